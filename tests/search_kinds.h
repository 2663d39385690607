// Every kind of search, for tests that compare two ways to make its steps.
#pragma once

#include <string>
#include <vector>

#include "heed/search/search.h"

namespace heed {

struct SearchKind {
  std::string name;
  SearchOptions options;
};

// For `sentences` sentences; words of prefixes are at least `first_word`.
inline std::vector<SearchKind> search_kinds(int64_t sentences, Id first_word) {
  SearchOptions plain;
  plain.max_extra = 5;
  std::vector<SearchKind> kinds;
  const auto add = [&](const char* name) -> SearchOptions& {
    return kinds.emplace_back(SearchKind{name, plain}).options;
  };
  add("greedy").beam = 1;
  add("beam").best = 3;
  add("wide beam").beam = 128;  // more than a graph's step has room for
  add("weights").want_weights = true;
  add("coverage").coverage = 0.4;
  add("no repeat").no_repeat = 2;
  SearchOptions& length = add("lengths");
  length.min_length = 3, length.max_length = 6, length.open_end = true;
  SearchOptions& known = add("without unknown words, normalized");
  known.allow_unknown = false, known.normalize = 0.6;
  for (const Ending ending : {Ending::full, Ending::shrinking, Ending::counted})
    for (const double normalize : {0.0, 1.0}) {
      SearchOptions& other = add("another ending");
      other.ending = ending, other.normalize = normalize, other.best = 4;
    }
  SearchOptions& patient = add("patience");
  patient.patience = 1.7, patient.allow_begin = true;
  SearchOptions& cut = add("free ends");
  cut.max_length = 3, cut.free_end = true, cut.beam = 3;
  for (const bool sample : {false, true}) {
    SearchOptions& prefix = add(sample ? "samples of a prefix" : "prefixes");
    prefix.sample = sample;
    for (int64_t i = 0; i < sentences; ++i)
      prefix.prefixes.emplace_back(static_cast<size_t>(i % 4), first_word + static_cast<Id>(i % 3));
  }
  add("samples").sample = true;
  SearchOptions& likeliest = add("samples of the likeliest");
  likeliest.sample = true, likeliest.top_k = 5, likeliest.top_p = 0.9, likeliest.temperature = 0.7;
  SearchOptions& warm = add("samples at a temperature");
  warm.sample = true, warm.temperature = 1.3, warm.top_p = 0.95;
  return kinds;
}

}  // namespace heed
