// The output layer of a running batch whose sentences may each say some words alone: no others are
// computed. What is multiplied is the union of their lists, gathered when somebody joins with words
// that are not in it, or much of it is nobody's any more; each sentence then sees the scores of its
// own list alone, in the same bits whoever else is there.
//
// For one thread at a time, on a CPU.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "heed/models/model.h"
#include "heed/ops/output_columns.h"

namespace heed {

class Shortlists {
 public:
  explicit Shortlists(const Model& model) : model_(model) {}

  // By slot: these come after those that are there. Rising, at least one token each.
  void join(std::span<const std::vector<Id>> lists);
  // Those in the slots `gone` leave; then who was in slot `before` is in slot `after`, for each of
  // these.
  void leave(std::span<const int64_t> gone, std::span<const std::pair<int64_t, int64_t>> moved);

  const std::vector<Id>& list(int64_t slot) const {
    return own_.at(static_cast<size_t>(slot)).tokens;
  }
  int64_t vocabulary() const { return model_.output_weight().size(1); }

  // The scores of the union from hidden vectors, [rows, any].
  Tensor logits(const Tensor& hidden);
  // Of these, rows [first, first + count) for the list of a slot: [count, tokens of it].
  Tensor of_list(const Tensor& logits, int64_t slot, int64_t first, int64_t count) const;

 private:
  struct Own {
    std::vector<Id> tokens;
    std::vector<int32_t> columns = {};  // where they are in the union
  };
  bool take(Own& own);
  void gather();

  const Model& model_;
  std::vector<Own> own_;
  std::optional<OutputColumns> outputs_;
  std::vector<Id> all_;         // its tokens: the union, and what is nobody's any more
  std::vector<int32_t> users_;  // of each of these: whose lists have it
  int64_t unused_ = 0;
};

}  // namespace heed
