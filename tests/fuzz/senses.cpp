// Words of several senses in their sentences, with tabs between.
#include "heed/language/senses.h"

#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::takes([&] {
    const std::vector<SenseSentence> all = read_senses(file.path());
    fuzz::demand(all.size() > 1);  // a word of one sense only is refused
    for (const SenseSentence& s : all) fuzz::demand(s.sentence.size() >= s.word.size());
  });
  return 0;
}
