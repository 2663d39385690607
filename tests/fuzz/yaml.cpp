// Marian's YAML, configurations and vocabularies.
#include "heed/exchange/yaml.h"

#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  fuzz::takes([&] { parse_yaml_config(bytes, "fuzz"); });
  fuzz::takes([&] {
    // An escape of two bytes may stand for three, as \L does.
    for (const std::string& piece : parse_yaml_vocabulary(bytes, "fuzz"))
      fuzz::demand(2 * piece.size() <= 3 * bytes.size());
  });
  return 0;
}
