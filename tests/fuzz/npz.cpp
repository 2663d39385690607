// NumPy's archives, by way of zip: also those of Marian, which have a configuration in them.
#include "heed/exchange/npz.h"

#include "heed/exchange/marian.h"
#include "tests/fuzz/arrays.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::takes([&] { fuzz::look_at_all(parse_npz(bytes, "fuzz").arrays); });
  fuzz::takes([&] { fuzz::look_at_all(parse_marian(bytes, "fuzz").arrays); });
  fuzz::takes([&] { fuzz::look_at_all({{"one", parse_npy(bytes, "fuzz")}}); });
  return 0;
}
