#include "heed/training/shards.h"

#include <algorithm>

#include "heed/base/check.h"
#include "heed/kernels/shards.h"
#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {

Shards::Shards(const Params& params, const Ranks& ranks, bool shares)
    : rank_(ranks.rank()), shared_(shares && ranks.count() > 1) {
  constexpr int64_t kUnit = 4;  // a GPU reads 16 bytes at a time
  for (const Parameter& p : params.all()) {
    const int64_t n = p.value.count();
    begin_.push_back(elements_), count_.push_back(n), first_block_.push_back(blocks_);
    elements_ += (n + kUnit - 1) / kUnit * kUnit;
    blocks_ += (n + kernels::kSquaresBlock - 1) / kernels::kSquaresBlock;
  }
  const int n = ranks.count(), each = ranks.on_each_machine();
  for (int r = 0; r < n; ++r) {
    const std::vector<Level> levels = levels_for(r, n, each);
    ranges_.push_back(shared_ ? levels.back().ranges[levels.back().own] : Range{0, elements_});
    if (r == rank_) levels_ = levels;
  }
}

// Members of a level are `first`, `first` + step, ... below `last`.
std::vector<Shards::Level> Shards::levels_for(int rank, int ranks, int each) const {
  const auto level = [&](Range whole, int first, int last, int step) {
    Level out{.ranks = {}, .ranges = {}, .whole = whole, .of = step};
    for (int r = first; r < last; r += step) {
      if (r == rank) out.own = out.ranks.size();
      out.ranks.push_back(r);
    }
    const auto n = std::ssize(out.ranks);
    for (int64_t i = 0; i < n; ++i)
      out.ranges.push_back({border(whole, i, n), border(whole, i + 1, n)});
    return out;
  };
  const Range all{0, elements_};
  if (each == 1 || each == ranks) return {level(all, 0, ranks, 1)};
  const int first = rank / each * each;
  std::vector<Level> out{level(all, first, first + each, 1)};
  out.push_back(level(out[0].ranges[out[0].own], rank % each, ranks, each));
  return out;
}

size_t Shards::parameter_at(int64_t element) const {
  return static_cast<size_t>(std::upper_bound(begin_.begin(), begin_.end(), element) -
                             begin_.begin() - 1);
}

// Where part `part` of `parts` of a range begins.
int64_t Shards::border(Range whole, int64_t part, int64_t parts) const {
  const int64_t at = whole.first + whole.count() * part / parts;
  if (at >= whole.last) return whole.last;
  const int64_t begin = begin_[parameter_at(at)];
  return std::max(whole.first,
                  begin + (at - begin) / kernels::kSquaresBlock * kernels::kSquaresBlock);
}

int64_t Shards::block_of(int64_t border) const {
  if (border >= elements_) return blocks_;
  const size_t p = parameter_at(border);
  return first_block_[p] + (border - begin_[p]) / kernels::kSquaresBlock;
}

Range Shards::piece(size_t parameter, int rank) const {
  const Range all = range(rank);
  const int64_t begin = begin_[parameter], last = count_[parameter];
  const Range out{std::clamp<int64_t>(all.first - begin, 0, last),
                  std::clamp<int64_t>(all.last - begin, 0, last)};
  return out.count() > 0 ? out : Range{};
}

void Shards::gather(const std::string& what, const Tensor& array, Ranks& ranks, GpuExchange* gpus,
                    const Tensor& own) const {
  const bool by_block = array.count() != elements_;
  HEED_ASSERT(!by_block || array.count() == blocks_);
  const auto part = [&](Range range) {
    if (by_block) range = blocks_of(range);
    return bytes_of(slice(array, 0, range.first, range.last));
  };
  const auto n = static_cast<size_t>(ranks.count());
  // The last level's ranges together are what the one before has of its own.
  for (size_t l = levels_.size(); l-- > 0;) {
    const Level& level = levels_[l];
    std::vector<Ranks::Sent> to(n);
    std::vector<Ranks::Received> from(n);
    const bool moves = own.defined() && l + 1 == levels_.size();
    for (size_t i = 0; i < level.ranks.size(); ++i) {
      if (i == level.own && !moves) continue;
      const auto r = static_cast<size_t>(level.ranks[i]);
      to[r] = moves ? bytes_of(own) : part(level.ranges[level.own]);
      from[r] = part(level.ranges[i]);
    }
    exchange(what, to, from, ranks, gpus);
  }
}

namespace {

struct Taken {
  Tensor x, y;
  std::shared_ptr<Tensor> compute_copy;  // or null
};
// y = x, of all.
void take(const std::vector<Taken>& all) {
  for (size_t first = 0; first < all.size();) {
    const Taken& t = all[first];
    if (t.y.device() == Device::cpu) {
      copy_into(t.x, t.y);
      ++first;
      continue;
    }
    const char* const op = "parameters of others";
    const Launching now(op, Device::cuda);
    kernels::TakeParts k{.count = 0, .part = {}};
    for (; first < all.size() && k.count < kernels::kMaxParts; ++first) {
      const auto& [x, y, copy] = all[first];
      k.part[k.count++] = {y.count(), x.data<float>(), y.data<float>(),
                           copy ? copy->data<bf16>() : nullptr};
    }
    launch_on(op, Device::cuda, Type::f32, k);
  }
}

}  // namespace

void Shards::gather(const Params& params, Ranks& ranks, GpuExchange* gpus) const {
  if (!shared_) return;
  const Tensor flat({elements_}, params.all().front().value.type());
  std::vector<Taken> mine, others;
  for (size_t i = 0; i < begin_.size(); ++i) {
    const Tensor value = params.all()[i].value.detached();
    const Tensor w = reshape(value, {count_[i]});
    const auto& copy = params.all()[i].value.parameter_state()->compute_copy;
    const auto of = [&](const Tensor& x, int64_t first, int64_t last) {
      return slice(x, 0, first, last);
    };
    const auto here = [&](Range r) { return of(flat, begin_[i] + r.first, begin_[i] + r.last); };
    const Range own = piece(i);
    if (own.count() > 0) mine.push_back({of(w, own.first, own.last), here(own), nullptr});
    for (const Range r : {Range{0, own.first}, Range{own.last, count_[i]}})
      if (r.count() > 0)
        others.push_back(
            {here(r), of(w, r.first, r.last),
             copy ? std::make_shared<Tensor>(of(reshape(*copy, {count_[i]}), r.first, r.last))
                  : nullptr});
  }
  take(mine);
  gather("parameters", flat, ranks, gpus);
  take(others);
}

std::span<std::byte> bytes_of(const Tensor& x) {
  return {static_cast<std::byte*>(x.raw()), static_cast<size_t>(x.count()) * size_of(x.type())};
}

void exchange(const std::string& what, const std::vector<Ranks::Sent>& to,
              const std::vector<Ranks::Received>& from, Ranks& ranks, GpuExchange* gpus) {
  if (gpus)
    gpus->exchange(what, to, from);
  else
    ranks.exchange(what, to, from);
}

}  // namespace heed
