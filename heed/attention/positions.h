// Where queries stand in their sequence; the first key stands at 0.
//
// Threads: a value; different ones may be used by different threads, one by many that only read
// it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/base/id.h"

namespace heed {

class Positions {
 public:
  // Query i stands at first + i, in every sentence.
  Positions(int64_t first = 0) : first_(first) {}  // NOLINT: meant to be converted to
  // All queries of sentence b stand at each[b]: the hypotheses of a decoder's step.
  static Positions each(std::span<const Id> of_sentence) {
    Positions out;
    out.each_.assign(of_sentence.begin(), of_sentence.end());
    return out;
  }

  bool by_sentence() const { return !each_.empty(); }
  int64_t at(int64_t sentence, int64_t query) const {
    return by_sentence() ? each_[static_cast<size_t>(sentence)] : first_ + query;
  }
  int64_t first() const { return first_; }                       // of the first form
  const std::vector<Id>& of_sentences() const { return each_; }  // of the second
  bool operator==(const Positions&) const = default;

  // From `queries` further on: of the first form.
  Positions plus(int64_t queries) const {
    Positions out = *this;
    out.first_ += queries;
    return out;
  }

 private:
  int64_t first_ = 0;
  std::vector<Id> each_;
};

}  // namespace heed
