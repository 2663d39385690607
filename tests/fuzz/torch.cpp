// PyTorch's files of tensors: pickles in a zip archive, or one after the other.
#include "heed/exchange/torch_file.h"
#include "tests/fuzz/arrays.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::takes([&] { fuzz::look_at_all(parse_torch(fuzz::text_of(data, size), "fuzz")); });
  return 0;
}
