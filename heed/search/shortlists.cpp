#include "heed/search/shortlists.h"

#include <algorithm>

namespace heed {
// Finds a list in the union; false if some token of it is not there.
bool Shortlists::take(Own& own) {
  own.columns.clear();
  auto at = all_.begin();
  for (const Id token : own.tokens) {
    at = std::lower_bound(at, all_.end(), token);
    if (at == all_.end() || *at != token) return false;
    own.columns.push_back(static_cast<int32_t>(at - all_.begin()));
  }
  for (const int32_t c : own.columns) unused_ -= users_[static_cast<size_t>(c)]++ == 0;
  return true;
}

void Shortlists::join(std::span<const std::vector<Id>> lists) {
  bool known = outputs_.has_value();
  for (const std::vector<Id>& list : lists) {
    Own& own = own_.emplace_back(Own{list});
    known = known && take(own);
  }
  if (!known) gather();
}

void Shortlists::leave(std::span<const int64_t> gone,
                       std::span<const std::pair<int64_t, int64_t>> moved) {
  for (const int64_t slot : gone)
    for (const int32_t c : own_[static_cast<size_t>(slot)].columns)
      unused_ += --users_[static_cast<size_t>(c)] == 0;
  for (const auto& [before, after] : moved)
    own_[static_cast<size_t>(after)] = std::move(own_[static_cast<size_t>(before)]);
  own_.resize(own_.size() - gone.size());
  // What is nobody's costs a little in each step; to gather anew costs about as much as a step.
  if (!own_.empty() && 2 * unused_ > std::ssize(all_)) gather();
}

void Shortlists::gather() {
  outputs_.reset();  // its memory may be that of the next
  std::vector<bool> wanted(static_cast<size_t>(vocabulary()));
  for (const Own& own : own_)
    for (const Id token : own.tokens) wanted[static_cast<size_t>(token)] = true;
  all_.clear();
  for (size_t w = 0; w < wanted.size(); ++w)
    if (wanted[w]) all_.push_back(static_cast<Id>(w));
  users_.assign(all_.size(), 0);
  unused_ = std::ssize(all_);
  for (Own& own : own_) take(own);
  outputs_.emplace(model_.output_weight(), model_.output_bias(), all_);
}

Tensor Shortlists::logits(const Tensor& hidden) { return (*outputs_)(hidden); }

Tensor Shortlists::of_list(const Tensor& logits, int64_t slot, int64_t first, int64_t count) const {
  const std::vector<int32_t>& columns = own_[static_cast<size_t>(slot)].columns;
  const int64_t n = std::ssize(columns), all = logits.size(1);
  if (n == all) return slice(logits, 0, first, first + count);
  const Tensor out({count, n});
  for (int64_t r = 0; r < count; ++r) {
    const float* const from = logits.data<float>() + (first + r) * all;
    float* const to = out.data<float>() + r * n;
    for (int64_t j = 0; j < n; ++j) to[j] = from[columns[static_cast<size_t>(j)]];
  }
  return out;
}

}  // namespace heed
