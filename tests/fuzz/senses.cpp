// Words of several senses in their sentences, with tabs between.
#include "heed/language/senses.h"

#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::takes([&] {
    for (const SenseSentence& s : read_senses(file.path()))
      fuzz::demand(s.sentence.find(s.word) != std::string::npos);
  });
  return 0;
}
