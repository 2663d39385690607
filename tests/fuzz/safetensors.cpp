// Safetensors files: whatever the bytes, what the reader returns lies within the file.
#include "heed/files/safetensors.h"

#include <cstring>
#include <span>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate_header.h"

namespace {

using heed::fuzz::demand;
using heed::fuzz::kLengthBytes;

// Where sums go, so that the reads are not optimized away.
volatile unsigned sink = 0;

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

}  // namespace

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
