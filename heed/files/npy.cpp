#include "heed/files/npy.h"

#include <bit>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"

namespace heed {

static_assert(std::endian::native == std::endian::little, "'<f4' is written as it lies in memory");

std::string npy_header(std::span<const int64_t> shape) {
  std::string sizes;
  for (const int64_t n : shape) sizes += std::to_string(n) + ", ";
  // (2, 3) but (2,): the comma makes a tuple of one.
  if (shape.size() > 1) sizes.resize(sizes.size() - 2);
  if (shape.size() == 1) sizes.pop_back();
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + sizes + "), }";
  constexpr size_t kBefore = 10, kAlign = 64;
  const size_t size = (kBefore + text.size() + 1 + kAlign - 1) / kAlign * kAlign - kBefore;
  text.resize(size - 1, ' ');
  text += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(size & 0xFF);
  out += static_cast<char>(size >> 8);
  return out + text;
}

void write_npy(const std::filesystem::path& path, std::span<const int64_t> shape,
               std::span<const float> values) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  require(count == static_cast<int64_t>(values.size()), path.string(), ": ", values.size(),
          " numbers do not fill the shape, which has ", count);
  AtomicFile file(path);
  file.write(npy_header(shape));
  file.write(std::as_bytes(values));
  file.commit();
}

}  // namespace heed
