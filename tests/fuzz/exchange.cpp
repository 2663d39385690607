// Other toolkits' files: CTranslate2's model.bin, NumPy's and Marian's archives, PyTorch's,
// Marian's YAML, and heed's own tables of pieces. The first bytes tell most of them apart, so all
// are tried.
#include "heed/data/piece_table.h"
#include "heed/exchange/ctranslate2.h"
#include "heed/exchange/marian.h"
#include "heed/exchange/npz.h"
#include "heed/exchange/torch_file.h"
#include "heed/exchange/yaml.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

namespace {

// What was returned has as many numbers as its shape says.
void look_at_all(const Arrays& arrays) {
  for (const auto& [name, array] : arrays) {
    std::int64_t count = 1;
    for (const std::int64_t n : array.shape) count *= n;
    fuzz::demand(std::ssize(array.values) == count);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::takes([&] { look_at_all(parse_ctranslate2(bytes, "fuzz").arrays); });
  fuzz::takes([&] { look_at_all(parse_marian(bytes, "fuzz").arrays); });
  fuzz::takes([&] { look_at_all(parse_npz(bytes, "fuzz").arrays); });
  fuzz::takes([&] { look_at_all(parse_torch(bytes, "fuzz")); });
  fuzz::takes([&] { parse_yaml_config(bytes, "fuzz"); });
  fuzz::takes([&] {
    for (const std::string& piece : parse_yaml_vocabulary(bytes, "fuzz"))
      fuzz::demand(piece.size() <= bytes.size());
  });
  if (bytes.starts_with('{')) {
    const fuzz::MemoryFile file(bytes);
    fuzz::takes([&] { load_piece_table(file.path())->encode("a b"); });
  }
  return 0;
}
