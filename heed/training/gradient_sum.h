// The sum of the gradients of an update's micro-batches, in one fixed binary tree:
//
//   T(1) is the gradient of one micro-batch,
//   T(M) = T(the first p) + T(the rest), p the largest power of two below M.
//
// The result of a floating-point sum depends on its brackets alone, so it has the same bytes
// whether one rank computes all M, M ranks one each, or any number between (ranks/ranks.h and
// ranks/nccl.h move bytes; every sum is ours). What lies on a GPU stays there.
//
// Threads: one trains at a time with a set of parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "heed/nn/module.h"
#include "heed/ranks/nccl.h"
#include "heed/ranks/ranks.h"
#include "heed/training/optimizer.h"
#include "heed/training/shards.h"

namespace heed {

// A sum in that tree whose terms come in order, from any place on. What stands for more than one
// of them is a block: `count` terms, a power of two, from `first` on, a multiple of it.
template <class Value, class Add>
class TreeSum {
 public:
  struct Block {
    int64_t first = 0, count = 1;
    Value value;
  };
  // add(y, x): y += x.
  explicit TreeSum(Add add) : add_(std::move(add)) {}

  void put(Block block) {
    blocks_.push_back(std::move(block));
    while (blocks_.size() > 1) {
      const Block &left = blocks_[blocks_.size() - 2], &right = blocks_.back();
      if (left.count != right.count || left.first % (2 * left.count) != 0) return;
      join_last();
    }
  }
  const std::vector<Block>& blocks() const { return blocks_; }
  Value& last() { return blocks_.back().value; }
  // Of all terms, the first to the last: one block from here on.
  Value& total() {
    while (blocks_.size() > 1) join_last();
    return blocks_.front().value;
  }

 private:
  void join_last() {
    Block right = std::move(blocks_.back());
    blocks_.pop_back();
    add_(blocks_.back().value, right.value);
    blocks_.back().count += right.count;
  }
  Add add_;
  std::vector<Block> blocks_;
};

// The micro-batches of a rank: [first, last) of `all`.
struct Share {
  int64_t first = 0, last = 0;
};
Share share_of(int rank, int ranks, int64_t all);

class GradientSum {
 public:
  // Of `all` micro-batches, over all ranks, between which gradients travel in the type `wire`: with
  // bf16 half as many bytes, and then bits depend on who computed what.
  GradientSum(const Params& params, const Shards& shards, int64_t all, Type wire = Type::f32);
  GradientSum(const GradientSum&) = delete;
  GradientSum& operator=(const GradientSum&) = delete;

  // Takes the gradients of micro-batch number `at` from the parameters.
  void take(int64_t at);
  // The sum over all micro-batches of all ranks, of what this one has (training/shards.h). What
  // several ranks have on GPUs goes through `gpus`.
  SummedGradients give(Ranks& ranks, GpuExchange* gpus);

 private:
  using Sum = TreeSum<Tensor, std::function<void(Tensor&, const Tensor&)>>;
  void add(const Tensor& y, const Tensor& x) const;
  void collect(const Tensor& flat, bool adds) const;
  Tensor over(Ranks& ranks, GpuExchange* gpus);

  Params params_;
  const Shards& shards_;
  int64_t all_;
  Type wire_;
  std::vector<char> moved_;  // by parameter: whether any micro-batch has a gradient of it
  Sum sum_;  // of flat arrays; one that is no tensor is the gradients that the parameters have
};

}  // namespace heed
