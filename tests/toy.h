// A toy language to train on: sentences of a few letters, and the same backwards.
#pragma once

#include <memory>
#include <string>

#include "heed/base/random.h"
#include "heed/data/corpus.h"
#include "tests/folder.h"

namespace heed {

// Sanitizers make everything about ten times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSlow = true;
#else
inline constexpr bool kSlow = false;
#endif

struct ToyOptions {
  int sentences = 200;
  uint32_t letters = 8, shortest = 2, longest = 5;
  uint64_t seed = 1;
  double sampling = 0;  // not 0: tokenizers by subwords, which are drawn anew in each epoch
};

struct ToyText {
  std::string source, target, links;  // lines
};

inline ToyText reversed_letters(const ToyOptions& o) {
  ToyText out;
  Random random(o.seed);
  for (int i = 0; i < o.sentences; ++i) {
    const uint32_t n = o.shortest + random.below(o.longest - o.shortest + 1);
    std::string there, back, links;
    for (uint32_t k = 0; k < n; ++k) {
      const std::string letter(1, static_cast<char>('a' + random.below(o.letters)));
      there += (k ? " " : "") + letter;
      back = letter + (k ? " " : "") + back;
      links += (k ? " " : "") + std::to_string(k) + "-" + std::to_string(n - 1 - k);
    }
    out.source += there + "\n", out.target += back + "\n", out.links += links + "\n";
  }
  return out;
}

// That text as files in `folder`, and as a corpus with tokenizers by word unless it samples.
inline std::shared_ptr<Corpus> toy_corpus(const Folder& folder, const ToyOptions& o = {}) {
  const ToyText text = reversed_letters(o);
  const CorpusFiles files{.source = folder.put("toy.source", text.source),
                          .target = folder.put("toy.target", text.target),
                          .alignment = folder.put("toy.links", text.links)};
  const TokenizerOptions kind{.kind = o.sampling > 0 ? "bpe" : "words", .size = 100};
  const TokenizerPair tokenizers{learn_tokenizer(texts(files, Side::source), kind),
                                 learn_tokenizer(texts(files, Side::target), kind)};
  return std::make_shared<Corpus>(files, tokenizers,
                                  CorpusOptions{.max_length = 12, .sampling = o.sampling});
}

}  // namespace heed
