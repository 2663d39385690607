// Which words may follow, and the likeliest or a drawn one of them.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heed/search/search.h"

namespace heed {

struct WordScore {
  double log_probability;
  Id word;
};

// What a hypothesis may say next.
struct Allowed {
  const SearchOptions& options;
  std::vector<Id> words;  // so far
  int64_t longest = 0;    // most words
  std::optional<Id> only = {};

  // Words that may not follow, in no order.
  std::vector<Id> banned() const;
};

// Up to `count` allowed words, likeliest first; of equals the one with the smaller id.
std::vector<WordScore> best_words(std::span<const float> log_probabilities, const Allowed& allowed,
                                  int64_t count);

// The same from the row's largest scores in falling order, nothing if they are too few to tell.
std::optional<std::vector<WordScore>> best_words(std::span<const float> largest,
                                                 std::span<const Id> words, const Allowed& allowed,
                                                 int64_t count);

// One allowed word, drawn: a function of the options' seed, the sentence's number and the step.
WordScore drawn_word(std::span<const float> log_probabilities, const Allowed& allowed,
                     int64_t number, int64_t step);

}  // namespace heed
