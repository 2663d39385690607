// Which keys a query sees: the second seam. A value, not a [Tq, Tk] array: every mask here is an
// interval of keys for each query, and so is what several masks leave together.
//
//   attend(score, q, k, v, {.mask = Mask::padding(lengths) & Mask::causal()});
//
// A query that sees nothing gets zeros, and so do its gradients; what stands at a key that is not
// seen, NaN included, reaches nothing.
//
// Threads: a value; different ones may be used by different threads, one by many that only read
// it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heed/attention/positions.h"
#include "heed/tensor/tensor.h"

namespace heed {

class Mask {
 public:
  Mask() = default;  // everything is seen

  // Keys at and after a sentence's length are not seen: [B].
  static Mask padding(std::span<const Id> lengths);
  // Only keys up to the query's own position are.
  static Mask causal();
  // Only keys before it are; the first query sees nothing.
  static Mask past();
  // Only keys from `before` before to `after` after the query's position (Luong et al., 2015,
  // local attention, monotonic).
  static Mask window(int64_t before, int64_t after);
  // Only keys at most `reach` from a predicted place [B, H, Tq] (the same, predictive): see
  // LocalPlace in attend.h.
  static Mask around(const Tensor& places, double reach);

  // Ranges that are known, at these sizes alone.
  struct Sizes;
  static Mask of(const Sizes& sizes, const Tensor& ranges);

  // What both leave. Throws Error where both say something different of the same kind.
  Mask operator&(const Mask& other) const;

  struct Sizes {
    int64_t batch, heads, queries, keys;
    Positions first = {};  // of the queries
    bool operator==(const Sizes&) const = default;
  };
  // ids [B or 1, H or 1, Tq, 2]: the first key seen and the one after the last; none: all are
  // seen.
  std::optional<Tensor> ranges(const Sizes& sizes) const;

  // The same mask, with its ranges at these sizes found now: for layers that share it.
  Mask at(const Sizes& sizes) const;

 private:
  struct Found {
    Sizes sizes;
    std::optional<Tensor> ranges;
  };
  std::optional<std::vector<Id>> lengths_;
  bool causal_ = false, past_ = false;
  std::optional<int64_t> before_, after_;
  std::optional<Tensor> places_;
  double reach_ = 0;
  std::shared_ptr<const Found> found_;
};

}  // namespace heed
