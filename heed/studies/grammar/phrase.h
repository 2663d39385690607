// Words of two languages that say the same, before they are spelled: each token carries the
// meanings it expresses, and tokens that share one are aligned.
#pragma once

#include <string>
#include <vector>

#include "heed/studies/grammar.h"
#include "heed/studies/grammar/lexicon.h"

namespace heed::grammar {

using Meanings = std::vector<int>;

// A token before it is known what follows it.
struct Token {
  std::string text;
  Meanings means;
  std::string before_vowel = {};  // le: l', ma: mon, a: an; empty: no other form
  bool article = false;           // le, les: merge with a "de" or "à" before them
};

using Tokens = std::vector<Token>;

Tokens tokens(const Words& words, const Meanings& means);

struct Phrase {
  Tokens english, french;
};

void append(Tokens& to, const Tokens& from);
void append(Phrase& to, const Phrase& from);

// What the rest of a sentence must know of a subject.
struct Agreement {
  int person = 3;
  bool plural = false, feminine = false;

  size_t form() const { return static_cast<size_t>((plural ? 3 : 0) + person - 1); }
  bool third_singular() const { return person == 3 && !plural; }
};

struct NounPhrase {
  Phrase phrase;
  Agreement agreement;
};

// Little words with two forms.
Token de(int means);
Token ne(int means);
Token que(int means);
Token le(const Agreement& a, int means);  // le, la, les

// The finished sentence: elision (l' eau) and contraction (du, aux) done, "a" or "an" chosen.
AlignedPair spelled(const Phrase& phrase);

}  // namespace heed::grammar
