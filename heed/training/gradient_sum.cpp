#include "heed/training/gradient_sum.h"

#include <algorithm>
#include <memory>

#include "heed/base/check.h"
#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

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

// Ranks that exchange with each other: first those of a machine, then those in the same place on
// every machine. A network then carries the gradients of a machine once, and not of each rank.
struct Level {
  std::vector<int> ranks;
  size_t own = 0;                                                // which of them this one is
  std::vector<std::vector<std::pair<int64_t, int64_t>>> blocks;  // that each of them comes with
  size_t most = 0;  // of any rank: all take as many steps
};
std::vector<Level> levels_of(const Ranks& ranks, int64_t all) {
  const int n = ranks.count(), each = ranks.on_each_machine(), own = ranks.rank();
  // Members `first`, `first` + step, ... below `last`; each has the sum of `of` ranks.
  const auto level = [&](int first, int last, int step, int of) {
    Level out;
    for (int r = 0; r < n; ++r) {
      const int begin = r / of * of;
      auto blocks =
          blocks_of({share_of(begin, n, all).first, share_of(begin + of - 1, n, all).last});
      out.most = std::max(out.most, blocks.size());
      if (r < first || r >= last || (r - first) % step != 0) continue;
      if (r == own) out.own = out.ranks.size();
      out.ranks.push_back(r);
      out.blocks.push_back(std::move(blocks));
    }
    return out;
  };
  if (each == 1 || each == n) return {level(0, n, 1, 1)};
  const int first = own / each * each;
  return {level(first, first + each, 1, 1), level(own % each, n, each, each)};
}

std::span<std::byte> bytes_of(const Tensor& x) {
  return {static_cast<std::byte*>(x.raw()), static_cast<size_t>(x.count()) * size_of(x.type())};
}

}  // namespace

Share share_of(int rank, int ranks, int64_t all) {
  return {.first = all * rank / ranks, .last = all * (rank + 1) / ranks};
}

GradientSum::GradientSum(const Params& params, int64_t all, Type wire)
    : params_(params),
      all_(all),
      // Parameters of f64, for checks, travel as they are.
      wire_(params.all().front().value.type() == Type::f32 ? wire : Type::f64),
      moved_(params.all().size(), 0),
      sum_([this](Tensor& y, const Tensor& x) { add(y, x); }) {
  constexpr int64_t kUnit = 4;  // a GPU reads 16 bytes at a time
  for (const Parameter& p : params_.all()) {
    begin_.push_back(losses_);
    losses_ += (p.value.count() + kUnit - 1) / kUnit * kUnit;
  }
  elements_ = losses_ + all;
}

void GradientSum::take(int64_t at, const Tensor& loss) {
  at_ = at, loss_ = loss;
  // What is added to its neighbour at once is never made flat: a pass over memory less.
  sum_.put({.first = at, .value = Tensor()});
  if (Tensor& last = sum_.last(); !last.defined()) {
    last = Tensor({elements_}, params_.all().front().value.type());
    collect(last, /*adds=*/false);
  }
  for (size_t i = 0; i < moved_.size(); ++i) {
    auto& grad = params_.all()[i].value.parameter_state()->grad;
    moved_[i] = moved_[i] || grad;
    grad = nullptr;
  }
  loss_ = Tensor();
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

// Into flat: the gradients that the parameters have and, in its place among the others', the loss.
void GradientSum::collect(const Tensor& flat, bool adds) const {
  std::vector<Term> terms;
  const auto put = [&](int64_t begin, int64_t count, const Tensor& x) {
    if (count > 0)
      terms.push_back({x.defined() ? reshape(contiguous(x), {count}) : x,
                       slice(flat, 0, begin, begin + count)});
  };
  for (size_t i = 0; i < begin_.size(); ++i) {
    const Tensor& value = params_.all()[i].value;
    const auto& grad = value.parameter_state()->grad;
    put(begin_[i], value.count(), grad ? *grad : Tensor());
  }
  put(losses_, at_, Tensor());
  put(losses_ + at_, 1, loss_);
  put(losses_ + at_ + 1, all_ - at_ - 1, Tensor());
  sum(terms, adds);
}

// A reduce-scatter of exchanges and our own sums, then everybody's shard to everybody: the bytes of
// a ring, in the order of the tree.
Tensor GradientSum::over(Ranks& ranks, GpuExchange* gpus) {
  const auto n = static_cast<size_t>(ranks.count());
  std::vector<Ranks::Sent> to(n);
  std::vector<Ranks::Received> from(n);
  const auto exchange = [&](const char* what) {
    if (gpus)
      gpus->exchange(what, to, from);
    else
      ranks.exchange(what, to, from);
    std::ranges::fill(to, Ranks::Sent()), std::ranges::fill(from, Ranks::Received());
  };
  const auto shard = [](const Tensor& flat, const Level& level, size_t i) {
    const int of = static_cast<int>(level.ranks.size()), at = static_cast<int>(i);
    return slice(flat, 0, shard_begin(flat.count(), at, of), shard_begin(flat.count(), at + 1, of));
  };
  const std::vector<Level> levels = levels_of(ranks, all_);
  std::vector<Sum::Block> mine = sum_.blocks();
  std::vector<Tensor> flats;  // what each level leaves a shard of
  for (const Level& level : levels) {
    const Tensor whole = mine.front().value;
    std::vector<Tensor> sent;
    for (const Sum::Block& block : mine) sent.push_back(cast(block.value, wire_));
    const Shape shape{shard(whole, level, level.own).count()};
    std::vector<std::vector<Tensor>> parts(level.ranks.size());  // of my shard, by rank and block
    for (size_t k = 0; k < level.most; ++k) {
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto r = static_cast<size_t>(level.ranks[i]);
        if (k < sent.size()) to[r] = bytes_of(shard(sent[k], level, i));
        if (k < level.blocks[i].size()) from[r] = bytes_of(parts[i].emplace_back(shape, wire_));
      }
      exchange("gradients");
    }
    Sum sum([this](Tensor& y, const Tensor& x) { add(y, x); });
    for (size_t i = 0; i < parts.size(); ++i)
      for (size_t k = 0; k < parts[i].size(); ++k)
        sum.put(
            {level.blocks[i][k].first, level.blocks[i][k].second, cast(parts[i][k], whole.type())});
    if (&level == &levels.back()) sum.total();
    mine = sum.blocks();
    flats.push_back(Tensor(whole.shape(), wire_));
  }
  Tensor found = cast(mine.front().value, wire_);
  for (size_t l = levels.size(); l-- > 0;) {
    for (size_t i = 0; i < levels[l].ranks.size(); ++i) {
      const auto r = static_cast<size_t>(levels[l].ranks[i]);
      to[r] = bytes_of(found), from[r] = bytes_of(shard(flats[l], levels[l], i));
    }
    exchange("the sum of the gradients");
    found = flats[l];
  }
  const Type type = sum_.blocks().front().value.type();
  if (type == wire_) return found;
  // Losses keep all of their bits.
  found = cast(found, type);
  const auto losses = [&](const Tensor& flat, int64_t first, int64_t last) {
    return slice(flat, 0, losses_ + first, losses_ + last);
  };
  for (const Sum::Block& block : sum_.blocks())
    copy_into(losses(block.value, block.first, block.first + block.count),
              losses(found, block.first, block.first + block.count));
  for (int r = 0; r < ranks.count(); ++r) {
    if (r == ranks.rank()) continue;
    const auto i = static_cast<size_t>(r);
    const auto of = [&](int rank) {
      const Share share = share_of(rank, ranks.count(), all_);
      return bytes_of(losses(found, share.first, share.last));
    };
    to[i] = of(ranks.rank()), from[i] = of(r);
  }
  exchange("losses");
  return found;
}

Tensor GradientSum::give(Ranks& ranks, GpuExchange* gpus) {
  const Tensor flat = ranks.count() == 1 ? sum_.total() : over(ranks, gpus);
  // A parameter moves if any micro-batch has a gradient of it.
  for (const std::string& other :
       ranks.gather("gradients", std::string(moved_.begin(), moved_.end())))
    for (size_t i = 0; i < moved_.size(); ++i) moved_[i] = moved_[i] || other[i];
  for (size_t i = 0; i < moved_.size(); ++i) {
    const Tensor& value = params_.all()[i].value;
    if (moved_[i])
      value.parameter_state()->grad = std::make_shared<Tensor>(
          reshape(slice(flat, 0, begin_[i], begin_[i] + value.count()), value.shape()));
  }
  return slice(flat, 0, losses_, elements_);
}

}  // namespace heed
