// Chance alone hardly ever changes a safetensors file's header and its length together. Half of the
// time, the header is changed by itself and gets the length that fits; the other half is left to
// the library. To be included once in a target.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace heed::fuzz {

inline constexpr std::size_t kLengthBytes = 8;

inline std::size_t header_length(const std::uint8_t* data) {
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | data[i];
  return length;
}

}  // namespace heed::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  using heed::fuzz::kLengthBytes;
  if (seed % 2 == 0 || size < kLengthBytes || max_size < size)
    return LLVMFuzzerMutate(data, size, max_size);
  const std::size_t length = std::min(heed::fuzz::header_length(data), size - kLengthBytes);
  const std::vector<std::uint8_t> rest(data + kLengthBytes + length, data + size);
  const std::size_t room = max_size - kLengthBytes - rest.size();
  if (room == 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::size_t changed = LLVMFuzzerMutate(data + kLengthBytes, length, room);
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    data[i] = static_cast<std::uint8_t>(std::uint64_t{changed} >> (8 * i));
  if (!rest.empty()) std::memcpy(data + kLengthBytes + changed, rest.data(), rest.size());
  return kLengthBytes + changed + rest.size();
}
