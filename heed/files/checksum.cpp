#include "heed/files/checksum.h"

#include <zlib.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "heed/base/check.h"

namespace heed {

std::string checksum(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  require(in.good(), file.string(), ": cannot be read");
  std::array<char, 1 << 16> part;
  uLong sum = crc32(0, nullptr, 0);
  while (in.read(part.data(), part.size()) || in.gcount() > 0)
    sum = crc32(sum, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(in.gcount()));
  require(!in.bad(), file.string(), ": cannot be read to its end");
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08lx", sum);
  return digits;
}

}  // namespace heed
