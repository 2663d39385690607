#include "heed/training/gradient_sum.h"

#include <algorithm>
#include <memory>

#include "heed/base/check.h"
#include "heed/kernels/shards.h"
#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

// The blocks that a rank comes to.
auto blocks_of(const Share& share) {
  struct Nothing {};
  TreeSum<Nothing, void (*)(Nothing&, const Nothing&)> sum([](Nothing&, const Nothing&) {});
  for (int64_t i = share.first; i < share.last; ++i) sum.put({.first = i, .value = {}});
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const auto& block : sum.blocks()) out.emplace_back(block.first, block.count);
  return out;
}

// The blocks that each member of a level comes with, and the most of any rank: all take as many
// steps.
struct Blocks {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> by_member;
  size_t most = 0;
};
Blocks blocks_of(const Shards::Level& level, int ranks, int64_t all) {
  const auto blocks = [&](int rank) {
    const int first = rank / level.of * level.of;
    return blocks_of(
        {share_of(first, ranks, all).first, share_of(first + level.of - 1, ranks, all).last});
  };
  Blocks out;
  for (const int r : level.ranks) out.by_member.push_back(blocks(r));
  for (int r = 0; r < ranks; ++r) out.most = std::max(out.most, blocks(r).size());
  return out;
}

}  // namespace

Share share_of(int rank, int ranks, int64_t all) {
  return {.first = all * rank / ranks, .last = all * (rank + 1) / ranks};
}

GradientSum::GradientSum(const Params& params, const Shards& shards, int64_t all, Type wire)
    : params_(params),
      shards_(shards),
      all_(all),
      // Parameters of f64, for checks, travel as they are.
      wire_(params.all().front().value.type() == Type::f32 ? wire : Type::f64),
      moved_(params.all().size(), 0),
      sum_([this](Tensor& y, const Tensor& x) { add(y, x); }) {}

void GradientSum::take(int64_t at) {
  // What is added to its neighbour at once is never made flat: a pass over memory less.
  sum_.put({.first = at, .value = Tensor()});
  if (Tensor& last = sum_.last(); !last.defined()) {
    last = Tensor({shards_.elements()}, params_.all().front().value.type());
    collect(last, /*adds=*/false);
  }
  for (size_t i = 0; i < moved_.size(); ++i) {
    auto& grad = params_.all()[i].value.parameter_state()->grad;
    moved_[i] = moved_[i] || grad;
    grad = nullptr;
  }
}

namespace {

// y = x or, with `adds`, y += x; no x is 0.
struct Term {
  Tensor x, y;
};
void sum_on_gpu(const std::vector<Term>& terms, bool adds) {
  for (size_t first = 0; first < terms.size(); first += kernels::kMaxParts) {
    const char* const op = "sum of gradients";
    const Launching now(op, Device::cuda);
    kernels::SumParts k{.add = adds, .count = 0, .part = {}};
    for (size_t i = first; i < std::min(terms.size(), first + kernels::kMaxParts); ++i) {
      const auto& [x, y] = terms[i];
      k.part[k.count++] = {
          .n = y.count(), .x = x.defined() ? x.data<float>() : nullptr, .y = y.data<float>()};
    }
    launch_on(op, Device::cuda, Type::f32, k);
  }
}
void sum(const std::vector<Term>& terms, bool adds) {
  if (terms.front().y.device() == Device::cuda) return sum_on_gpu(terms, adds);
  for (const auto& [given, y] : terms) {
    const Tensor x = given.defined() ? given : zeros(y.shape(), y.type());
    if (adds)
      blend(y, 1, x, 1);
    else
      copy_into(x, y);
  }
}

}  // namespace

void GradientSum::add(const Tensor& y, const Tensor& x) const {
  if (x.defined())
    sum({{x, y}}, /*adds=*/true);
  else
    collect(y, /*adds=*/true);
}

// Into flat: the gradients that the parameters have.
void GradientSum::collect(const Tensor& flat, bool adds) const {
  std::vector<Term> terms;
  for (size_t i = 0; i < moved_.size(); ++i) {
    const Tensor& value = params_.all()[i].value;
    const auto& grad = value.parameter_state()->grad;
    const int64_t begin = shards_.begin(i), n = value.count();
    terms.push_back(
        {grad ? reshape(contiguous(*grad), {n}) : Tensor(), slice(flat, 0, begin, begin + n)});
  }
  sum(terms, adds);
}

// A reduce-scatter of exchanges and our own sums: the bytes of a ring, in the order of the tree.
Tensor GradientSum::over(Ranks& ranks, GpuExchange* gpus) {
  const auto n = static_cast<size_t>(ranks.count());
  const Type type = params_.all().front().value.type();
  std::vector<Sum::Block> mine = sum_.blocks();
  for (const Shards::Level& level : shards_.levels()) {
    const Blocks blocks = blocks_of(level, ranks.count(), all_);
    const auto shard = [&](const Tensor& x, size_t i) {
      return slice(x, 0, level.ranges[i].first - level.whole.first,
                   level.ranges[i].last - level.whole.first);
    };
    std::vector<Tensor> sent;
    for (const Sum::Block& block : mine) sent.push_back(cast(block.value, wire_));
    const Shape shape{level.ranges[level.own].count()};
    std::vector<std::vector<Tensor>> parts(level.ranks.size());  // of my shard, by rank and block
    for (size_t k = 0; k < blocks.most; ++k) {
      std::vector<Ranks::Sent> to(n);
      std::vector<Ranks::Received> from(n);
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto r = static_cast<size_t>(level.ranks[i]);
        if (k < sent.size()) to[r] = bytes_of(shard(sent[k], i));
        if (k < blocks.by_member[i].size()) from[r] = bytes_of(parts[i].emplace_back(shape, wire_));
      }
      exchange("gradients", to, from, ranks, gpus);
    }
    Sum sum([this](Tensor& y, const Tensor& x) { add(y, x); });
    for (size_t i = 0; i < parts.size(); ++i)
      for (size_t k = 0; k < parts[i].size(); ++k)
        sum.put(
            {blocks.by_member[i][k].first, blocks.by_member[i][k].second, cast(parts[i][k], type)});
    if (&level == &shards_.levels().back()) sum.total();
    mine = sum.blocks();
  }
  const Tensor& own = mine.front().value;
  if (shards_.shared()) return own;
  const Tensor flat({shards_.elements()}, wire_);
  shards_.gather("the sum of the gradients", flat, ranks, gpus, cast(own, wire_));
  return cast(flat, type);
}

SummedGradients GradientSum::give(Ranks& ranks, GpuExchange* gpus) {
  // A parameter moves if any micro-batch has a gradient of it. Here all meet all: who does not come
  // is named, while in what follows some wait for others that wait for him.
  for (const std::string& other :
       ranks.gather("gradients", std::string(moved_.begin(), moved_.end())))
    for (size_t i = 0; i < moved_.size(); ++i) moved_[i] = moved_[i] || other[i];
  const Tensor sum = ranks.count() == 1 ? sum_.total() : over(ranks, gpus);
  SummedGradients out{.pieces = {}, .squares = zeros({shards_.blocks()}, sum.type())};
  struct Part {
    Tensor x, y;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < moved_.size(); ++i) {
    out.pieces.emplace_back();
    if (!moved_[i]) continue;
    const Range piece = shards_.piece(i);
    const int64_t begin = shards_.begin(i) + piece.first,
                  here = piece.count() > 0 ? begin - shards_.own().first : 0;
    out.pieces.back() = slice(sum, 0, here, here + piece.count());
    if (piece.count() == 0) continue;
    const int64_t block = shards_.blocks_of({begin, begin}).first;
    const int64_t blocks = (piece.count() + kernels::kSquaresBlock - 1) / kernels::kSquaresBlock;
    parts.push_back({*out.pieces.back(), slice(out.squares, 0, block, block + blocks)});
  }
  for (size_t first = 0; first < parts.size(); first += kernels::kMaxParts)
    launch("squares by blocks", sum, [&]<class T>() {
      kernels::BlockSquares<T> k{.count = 0, .part = {}};
      for (size_t i = first; i < std::min(parts.size(), first + kernels::kMaxParts); ++i)
        k.part[k.count++] = {parts[i].x.count(), parts[i].x.template data<T>(),
                             parts[i].y.template data<T>()};
      return k;
    });
  if (shards_.shared()) shards_.gather("squares of the gradients", out.squares, ranks, gpus);
  return out;
}

}  // namespace heed
