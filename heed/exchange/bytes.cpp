#include "heed/exchange/bytes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>

#include "heed/files/atomic_file.h"

namespace heed {

int64_t elements_of(const std::vector<int64_t>& shape, uint64_t most, const std::string& what) {
  for (const int64_t n : shape) require(n >= 0, what, ": a size of ", n);
  // Of an empty array, too, the other sizes are bounded: who goes through its rows comes to an end.
  constexpr uint64_t kMostOfEmpty = 1 << 20;
  const bool empty = std::ranges::find(shape, 0) != shape.end();
  if (empty) most = kMostOfEmpty;
  uint64_t count = 1;
  for (const int64_t n : shape) {
    if (n == 0) continue;
    count *= static_cast<uint64_t>(n);
    require(static_cast<uint64_t>(n) <= most && count <= most, what,
            ": its shape has more elements than the file has bytes");
  }
  return empty ? 0 : static_cast<int64_t>(count);
}

float from_f16(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return sign * (mantissa > 0 ? NAN : INFINITY);
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

std::string read_whole(const std::string& path) {
  std::error_code error;  // of a name that no file can have, too
  require(!std::filesystem::is_directory(path, error), path, ": is a folder; a file was wanted");
  std::optional<std::string> bytes = read_file(path);
  require(bytes.has_value(), path, ": there is no such file");
  require(!bytes->starts_with("version https://git-lfs"), path,
          ": is a pointer that Git LFS left in the place of the file; fetch the file itself ('git "
          "lfs pull')");
  return std::move(*bytes);
}

}  // namespace heed
