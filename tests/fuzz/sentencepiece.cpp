// SentencePiece's model files: loaded by the library, and read once more for what it does not tell.
#include "heed/data/sentencepiece.h"

#include "heed/data/piece_sampler.h"
#include "tests/fuzz/fuzz.h"

using namespace heed;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  std::shared_ptr<const Tokenizer> tokenizer;
  if (!fuzz::takes([&] { tokenizer = load_sentencepiece(file.path()); })) return 0;
  const std::string_view text = "the ﬁrst cat, ⁇ the last\n";
  fuzz::takes([&] {
    const Sentence sentence = tokenizer->encode(text);
    fuzz::demand(sentence.ids.size() == sentence.word.size());
    for (const Id id : sentence.ids) fuzz::demand(id >= 0 && id < tokenizer->size());
    tokenizer->decode(sentence.ids);
    for (Id id = 0; id < tokenizer->size(); ++id) tokenizer->piece(id);
  });
  fuzz::takes([&] { tokenizer->sampler(0.1); });
  return 0;
}
