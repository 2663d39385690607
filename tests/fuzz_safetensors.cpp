// Fuzz target for the safetensors reader: whatever the bytes, it returns or throws heed::Error, and
// what it returns lies within the file.
//
// Build with clang (libFuzzer), from the root of the tree:
//   clang++ -std=c++20 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I.
//     tests/fuzz_safetensors.cpp heed/files/safetensors.cpp heed/files/atomic_file.cpp
//     heed/base/check.cpp -o fuzz_safetensors
// Run: ./fuzz_safetensors -max_total_time=600 -max_len=4096 NEW_FINDINGS tests/golden/safetensors
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "heed/base/check.h"
#include "heed/files/safetensors.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

constexpr std::size_t kLengthBytes = 8;

// Where sums go, so that the reads are not optimized away.
volatile unsigned sink = 0;

void demand(bool holds) {
  if (!holds) std::abort();
}

// Reads every range that came back (the sanitizer watches) and checks what was promised: the arrays
// cover the data from first to last, and sizes are those of the shapes.
unsigned touch(std::span<const std::byte> file, const heed::SafetensorsContents& contents) {
  unsigned sum = 0;
  std::size_t total = 0;
  const std::byte* expected = nullptr;
  for (const heed::TensorEntry& entry : contents.entries) {
    std::uint64_t bits = static_cast<std::uint64_t>(heed::bits(entry.dtype));
    for (const std::int64_t size : entry.shape) bits *= static_cast<std::uint64_t>(size);
    demand(bits == 8 * std::uint64_t{entry.bytes.size()});
    demand(!expected || entry.bytes.data() == expected);
    expected = entry.bytes.data() + entry.bytes.size();
    total += entry.bytes.size();
    sum += static_cast<unsigned>(entry.name.size());
    if (!entry.bytes.empty())
      sum += static_cast<unsigned>(entry.bytes.front()) + static_cast<unsigned>(entry.bytes.back());
  }
  demand(!expected || expected + contents.trailing_bytes == file.data() + file.size());
  demand(kLengthBytes + total + contents.trailing_bytes <= file.size());
  return sum;
}

std::size_t header_length(const std::uint8_t* data) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | data[i];
  return length;
}

}  // namespace

// Chance alone hardly ever changes a header and its length together. Half of the time, mutate the
// header by itself and write the length that fits; the other half, leave it to the library.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  if (seed % 2 == 0 || size < kLengthBytes || max_size < size)
    return LLVMFuzzerMutate(data, size, max_size);
  const std::size_t length = std::min(header_length(data), size - kLengthBytes);
  const std::vector<std::uint8_t> rest(data + kLengthBytes + length, data + size);
  const std::size_t room = max_size - kLengthBytes - rest.size();
  if (room == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::size_t changed = LLVMFuzzerMutate(data + kLengthBytes, length, room);
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    data[i] = static_cast<std::uint8_t>(std::uint64_t{changed} >> (8 * i));
  if (!rest.empty()) std::memcpy(data + kLengthBytes + changed, rest.data(), rest.size());
  return kLengthBytes + changed + rest.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  bool strict_took_it = false;
  try {
    sink = touch(file, heed::parse_safetensors(file, "fuzz"));
    strict_took_it = true;
  } catch (const heed::Error& error) {
    demand(std::strlen(error.what()) < 2000);
  }
  try {
    const auto contents = heed::parse_safetensors(file, "fuzz", {.allow_trailing_bytes = true});
    sink = touch(file, contents);
    demand(strict_took_it == (contents.trailing_bytes == 0));
  } catch (const heed::Error&) {
    demand(!strict_took_it);
  }
  return 0;
}
