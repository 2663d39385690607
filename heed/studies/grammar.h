// A small grammar of English and French that says the same thing in both, and knows which word
// came from which: a corpus with true alignments, as large as one likes, for demonstrations and
// tests.
//
//   he hit me with a pie .          il m' a entarté .
//   the small black cats do not     les petits chats noirs ne
//   drink any water .               boivent pas d' eau .
//
// It has gender and number, adjectives before and behind the noun, clitic pronouns and their order,
// ne ... pas, the past with avoir and être and the agreement of the participle, elision (l', j',
// qu') and contraction (du, aux). Text is lower-case, with spaces between tokens; what is elided is
// a token of its own. An English sentence has one translation: "you" is "tu" ("you all": "vous"),
// and a speaker of unknown gender is masculine.
//
// How: each phrase is built in both languages at once, and every token carries the meanings it
// expresses; two tokens are aligned if they share one.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "heed/base/random.h"
#include "heed/data/alignment.h"

namespace heed {

namespace grammar {
struct Lexicon;
}

struct AlignedPair {
  std::string english, french;
  Links links;  // between words, English first
};

class Grammar {
 public:
  // The words are the tables in that folder: data/grammar.
  explicit Grammar(const std::filesystem::path& folder);
  ~Grammar();

  // One sentence.
  AlignedPair pair(Random& random) const;

  // `count` sentences, no two alike in either language. Those for a smaller count are the first of
  // those for a larger, so a test set that is taken first stays the same however much is trained
  // on. Throws Error if the grammar cannot say so many.
  std::vector<AlignedPair> pairs(int64_t count, uint64_t seed) const;

 private:
  std::unique_ptr<const grammar::Lexicon> lexicon_;
};

}  // namespace heed
