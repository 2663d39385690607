// heed's tables of pieces, which imported models have.
#include "heed/data/piece_table.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::takes([&] { load_piece_table(file.path())->encode("a b"); });
  return 0;
}
