// Marian's own archives.
#include "heed/exchange/marian.h"
#include "tests/fuzz/arrays.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::takes(
      [&] { fuzz::look_at_all(parse_marian_bin(fuzz::text_of(data, size), "fuzz").arrays); });
  return 0;
}
