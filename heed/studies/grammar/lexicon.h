// The words of the grammar (grammar.h), from the tables in data/grammar. Each table says in its
// first lines what its columns are.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <vector>

namespace heed::grammar {

using Words = std::vector<std::string>;

// Kinds of things, a letter each (nouns.tsv), say what goes together: one eats food and reads
// books. Two words go together if they share a letter.
using Kinds = std::string;

inline bool share(const Kinds& a, const Kinds& b) {
  return a.find_first_of(b) != std::string::npos;
}

// French words may begin with "*": an aspirated h, before which nothing is elided.
struct Noun {
  std::array<std::string, 2> english, french;  // singular, plural; no plural: not counted
  bool feminine = false;
  Kinds kinds;

  bool counted() const { return !english[1].empty(); }
};

struct Adjective {
  std::string english;
  std::array<std::array<std::string, 2>, 2> french;  // [plural][feminine]
  std::string before_vowel;                          // masculine singular: un vieil ami
  bool precedes = false;                             // stands before the noun
  Kinds kinds;
};

enum class Frame { alone, direct, to, give, that };

struct Verb {
  // English words before the object and after it. The first is the verb proper.
  Words before, after;
  std::string third, past;
  std::string infinitive;
  std::array<std::string, 6> present;  // je, tu, il, nous, vous, ils
  std::string participle;
  bool with_etre = false;
  Frame frame = Frame::alone;
  Kinds subjects, objects;
  int weight = 1;
};

struct Name {
  std::string text;
  bool feminine = false;
};

enum class When { middle, negated, past, present, future, any };

struct Adverb {
  Words english, french;
  When when = When::any;
};

struct Preposition {
  Words english, french;
  Kinds kinds;
};

struct Lexicon {
  std::vector<Noun> nouns;
  std::vector<Adjective> adjectives;
  std::vector<Verb> verbs;
  std::vector<Name> names;
  std::vector<Adverb> adverbs;
  std::vector<Preposition> prepositions;

  // Throws Error, with file and line, for a table that is not as it says.
  static Lexicon load(const std::filesystem::path& folder);
};

}  // namespace heed::grammar
