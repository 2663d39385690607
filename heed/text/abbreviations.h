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
  maybe,          // "etc.", "Inc.": ends a sentence if what follows begins one
};

// The words of a language ("en", "de-AT"; empty or unknown: what is the same in most of them).
class Abbreviations {
 public:
  explicit Abbreviations(std::string_view language);

  // `word` stands before the full stop and may have others inside ("e.g").
  Abbreviation kind(std::string_view word) const;
  // Words that begin sentences and seldom names: "The", "Then".
  bool begins_sentence(std::string_view word) const;
  // "3. Oktober": numbers with a full stop are ordinals.
  bool has_ordinals() const { return ordinals_; }

 private:
  std::string language_;
  bool ordinals_ = false;
};

}  // namespace heed
