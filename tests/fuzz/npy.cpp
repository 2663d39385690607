// NumPy's format is only written: for any shape, the bytes before the numbers are what NumPy asks
// for (numpy.lib.format, version 1.0).
#include "heed/files/npy.h"

#include <cstring>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::int64_t> shape(size / sizeof(std::int64_t));
  if (!shape.empty()) std::memcpy(shape.data(), data, shape.size() * sizeof shape[0]);
  fuzz::takes([&] {
    const std::string header = npy_header(shape);
    constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
    fuzz::demand(header.starts_with(kMagic) && header.size() % 64 == 0 && header.ends_with('\n'));
    const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(header[i]); };
    // The length of the description stands before it.
    fuzz::demand(std::size_t{byte(8)} + 256u * byte(9) == header.size() - 10);
    std::string sizes;
    for (const std::int64_t n : shape)
      sizes += std::to_string(n) + (shape.size() == 1 ? "," : ", ");
    if (shape.size() > 1) sizes.resize(sizes.size() - 2);
    fuzz::demand(header.find("'shape': (" + sizes + ")") != std::string::npos);
  });
  return 0;
}
