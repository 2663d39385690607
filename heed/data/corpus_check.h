// What speaks against training from a corpus: much of it left out, another encoding, both sides the
// same, sides that change places, words that are not in the vocabulary, validation on what is
// learnt from. A model comes out of all of these, and it is bad without a word.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <vector>

#include "heed/data/corpus.h"

namespace heed {

struct CorpusDoubt {
  std::string told;    // with figures, and what to do
  bool grave = false;  // of so much of the corpus that nobody can mean it
};

// Of one corpus, by what was found in it (Corpus::look).
std::vector<CorpusDoubt> doubts_of(const Corpus& corpus, const CleaningReport& found);

// Whether the sides of `other` have changed places: its source is written like the target of
// `corpus`, and its target like the source.
std::vector<CorpusDoubt> swapped_sides(const Corpus& corpus, const Corpus& other);

// Whether much of `other`, to validate on, is in `corpus` too.
std::vector<CorpusDoubt> known_pairs(const Corpus& corpus, const Corpus& other);

}  // namespace heed
