#include "heed/training/gradient_sum.h"

#include <algorithm>
#include <memory>

#include "heed/base/check.h"
#include "heed/ops/into.h"
#include "heed/ops/ops.h"

namespace heed {
namespace {

// Who sums what of the flat array: shards begin where lines of memory do.
int64_t shard_begin(int64_t elements, int rank, int ranks) {
  constexpr int64_t kUnit = 64;
  return rank == ranks ? elements : std::min(elements, elements * rank / ranks / kUnit * kUnit);
}

// The blocks that a rank comes to.
auto blocks_of(const Share& share) {
  struct Nothing {};
  TreeSum<Nothing, void (*)(Nothing&, const Nothing&)> sum([](Nothing&, const Nothing&) {});
  for (int64_t i = share.first; i < share.last; ++i) sum.put({.first = i, .value = {}});
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const auto& block : sum.blocks()) out.emplace_back(block.first, block.count);
  return out;
}

std::span<std::byte> bytes_of(const Tensor& x) {
  return {static_cast<std::byte*>(x.raw()), static_cast<size_t>(x.count()) * size_of(x.type())};
}

}  // namespace

Share share_of(int rank, int ranks, int64_t all) {
  return {.first = all * rank / ranks, .last = all * (rank + 1) / ranks};
}

GradientSum::GradientSum(const Params& params)
    : params_(params), elements_(params.count()), moved_(params.all().size(), 0) {}

void GradientSum::add(Tensor& y, const Tensor& x) { blend(y, 1, x, 1); }

void GradientSum::take(int64_t at) {
  const std::vector<Parameter>& all = params_.all();
  const Tensor flat({elements_}, all.front().value.type());
  int64_t begin = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& state = all[i].value.parameter_state();
    const Tensor here = slice(flat, 0, begin, begin + all[i].value.count());
    begin += all[i].value.count();
    if (state->grad) {
      copy_into(*state->grad, reshape(here, all[i].value.shape()));
      state->grad = nullptr;
      moved_[i] = 1;
    } else {
      copy_into(zeros(here.shape(), here.type()), here);
    }
  }
  sum_.put({.first = at, .value = flat});
}

// A reduce-scatter of an exchange and our own sum, then everybody's shard to everybody: the bytes
// of a ring, in the order of the tree.
Tensor GradientSum::over(Ranks& ranks, int64_t all) {
  const int n = ranks.count(), own = ranks.rank();
  const Type type = sum_.blocks().front().value.type();
  const auto shard = [&](const Tensor& flat, int r) {
    return bytes_of(slice(flat, 0, shard_begin(elements_, r, n), shard_begin(elements_, r + 1, n)));
  };
  std::vector<std::vector<std::pair<int64_t, int64_t>>> blocks;
  size_t most = 0;
  for (int r = 0; r < n; ++r)
    most = std::max(most, blocks.emplace_back(blocks_of(share_of(r, n, all))).size());
  const int64_t size = shard_begin(elements_, own + 1, n) - shard_begin(elements_, own, n);
  std::vector<std::vector<Tensor>> parts(static_cast<size_t>(n));  // my shard, by rank and block
  std::vector<Ranks::Sent> to(static_cast<size_t>(n));
  std::vector<Ranks::Received> from(static_cast<size_t>(n));
  for (size_t k = 0; k < most; ++k) {
    for (size_t r = 0; r < to.size(); ++r) {
      to[r] = k < sum_.blocks().size()
                  ? Ranks::Sent(shard(sum_.blocks()[k].value, static_cast<int>(r)))
                  : Ranks::Sent();
      from[r] = k < blocks[r].size() ? bytes_of(parts[r].emplace_back(Shape{size}, type))
                                     : Ranks::Received();
    }
    ranks.exchange("gradients", to, from);
  }
  TreeSum<Tensor, void (*)(Tensor&, const Tensor&)> sum(&add);
  for (size_t r = 0; r < parts.size(); ++r)
    for (size_t k = 0; k < parts[r].size(); ++k)
      sum.put({.first = blocks[r][k].first, .count = blocks[r][k].second, .value = parts[r][k]});
  const Tensor mine = sum.total(), flat({elements_}, type);
  for (size_t r = 0; r < to.size(); ++r)
    to[r] = bytes_of(mine), from[r] = shard(flat, static_cast<int>(r));
  ranks.exchange("the sum of the gradients", to, from);
  return flat;
}

void GradientSum::give(Ranks& ranks, int64_t all) {
  const Tensor flat = ranks.count() == 1 ? sum_.total() : over(ranks, all);
  // A parameter moves if any micro-batch has a gradient of it.
  for (const std::string& other :
       ranks.gather("gradients", std::string(moved_.begin(), moved_.end())))
    for (size_t i = 0; i < moved_.size(); ++i) moved_[i] = moved_[i] || other[i];
  int64_t begin = 0;
  for (size_t i = 0; i < moved_.size(); ++i) {
    const Tensor& value = params_.all()[i].value;
    const Tensor here = slice(flat, 0, begin, begin + value.count());
    begin += value.count();
    if (moved_[i])
      value.parameter_state()->grad = std::make_shared<Tensor>(reshape(here, value.shape()));
  }
}

}  // namespace heed
