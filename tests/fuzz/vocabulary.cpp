// Vocabularies of words and of characters: .words and .characters files, or another tool's.
#include "heed/data/vocabulary.h"

#include "heed/data/tokenizer.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  const fuzz::MemoryFile file(bytes);
  const bool read = fuzz::takes([&] {
    const Vocabulary words = Vocabulary::load(file.path());
    const SpecialIds s = words.special();
    for (Id id = 0; id < words.size(); ++id) {
      const bool special = id == s.pad || id == s.unknown || id == s.begin || id == s.end;
      fuzz::demand(words.id(words[id]) == (special ? s.unknown : id));
    }
  });
  for (const char* kind : {"words", "characters"}) {
    const bool made = fuzz::takes([&] {
      const auto tokenizer = load_tokenizer(kind, file.path());
      // Its own file as a text, bytes that are not UTF-8 included.
      const Sentence sentence = tokenizer->encode(bytes);
      fuzz::demand(sentence.ids.size() == sentence.word.size());
      for (const Id id : sentence.ids) fuzz::demand(id >= 0 && id < tokenizer->size());
      tokenizer->decode(sentence.ids);
      for (Id id = 0; id < tokenizer->size(); ++id) tokenizer->piece(id);
    });
    fuzz::demand(made == read);
  }
  return 0;
}
