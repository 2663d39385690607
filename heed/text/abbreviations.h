// What a full stop after a word says, by language: whether the sentence goes on after it.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <string_view>

namespace heed {

enum class Abbreviation {
  none,
  always,         // "Dr.": a sentence never ends with it
  before_number,  // "No. 5", "p. 12": goes on if a number follows
  maybe,          // "Inc.", "U.S.": ends a sentence if what follows begins one
  before_small,   // "etc.", "44 B.C.": ends one unless a small letter follows
};

// The words of a language ("en", "de-AT"; empty or unknown: what is the same in most of them).
class Abbreviations {
 public:
  explicit Abbreviations(std::string_view language);

  // `word` stands before the full stop and may have others inside ("e.g").
  Abbreviation kind(std::string_view word) const;
  // Words that begin sentences and seldom names: "The", "Then".
  bool begins_sentence(std::string_view word) const;
  // After a number a measure, elsewhere an abbreviation: "3 m." and "M. Dupont".
  bool is_unit(std::string_view word) const;
  // What a letter after it names, so that it is no initial: "plan B.", "section A."
  bool is_label(std::string_view word) const;
  // Who spoke stands with it after the quotation: "Stop!" John said.
  bool reports(std::string_view word) const;
  // Goes on after an hour: "at 5 p.m. Eastern time", "Monday".
  bool follows_hour(std::string_view word) const;
  // Goes on after an ordinal, whatever is before it: "3. Oktober".
  bool follows_ordinal(std::string_view word) const;
  // "3. Oktober": numbers with a full stop are ordinals.
  bool has_ordinals() const { return ordinals_; }
  // Greek asks with a semicolon.
  bool asks_with_semicolon() const { return language_ == "el"; }

 private:
  std::string language_;
  bool ordinals_ = false;
};

}  // namespace heed
