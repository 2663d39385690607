#include "heed/search/slots.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "heed/ops/into.h"
#include "heed/search/search.h"
#include "heed/tensor/cuda.h"

namespace heed {
namespace {

// Few sizes, where steps are captured: a number of slots and a cache's capacity are powers of two,
// widths a multiple of 8, beyond 64 of 16, beyond 128 of 32, and so on.
// Kernels choose their tiles by the width: one that most sources fit into from the beginning.
constexpr int64_t kSlots = 8, kCapacity = 64, kWidth = 64;
// Sources that are encoded at a time where many wait: of fewer a GPU computes launches.
constexpr int64_t kSources = 64;

int64_t power_of_two(int64_t n, int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(n, least))));
}
int64_t rounded_width(int64_t n) {
  int64_t unit = 8;
  while (n > 8 * unit) unit *= 2;
  return (n + unit - 1) / unit * unit;
}

// The same tensors on the host: what lies on a GPU comes in one go.
void fetch(const std::vector<Tensor*>& all) {
  std::vector<Tensor> here;
  std::vector<FromCuda> copies;
  for (Tensor* x : all) {
    if (x->device() == Device::cpu) return;
    const UseDevice host(Device::cpu);
    here.push_back(empty_like(*x));
    copies.push_back(
        {x->raw(), here.back().raw(), static_cast<size_t>(x->count()) * size_of(x->type())});
  }
  copy_from_cuda(copies);
  for (size_t i = 0; Tensor * x : all) *x = here[i++];
}

template <class T>
std::span<const T> row_of(const Tensor& x, int64_t row) {
  return {x.data<T>() + row * x.size(1), static_cast<size_t>(x.size(1))};
}

// One non-finite score makes all of a row's log-probabilities non-finite, and top_k() passes over
// those.
std::span<const float> finite(std::span<const float> scores) {
  require(scores.empty() || std::ranges::any_of(scores, [](float x) { return std::isfinite(x); }),
          "search: the model's scores are not numbers; its parameters are broken");
  return scores;
}

// Tokens [sources, width], padded.
// Any token fills up the rows, since none of these is read: 0 is one of every source's vocabulary,
// while the target's pad may not be.
Source padded(std::span<const std::vector<Id>> sources, int64_t rows, int64_t width) {
  std::vector<Id> tokens(static_cast<size_t>(rows * width), 0);
  Source out;
  out.lengths.assign(static_cast<size_t>(rows), 0);
  for (size_t b = 0; b < sources.size(); ++b) {
    std::ranges::copy(sources[b], tokens.begin() + static_cast<std::ptrdiff_t>(b) * width);
    out.lengths[b] = static_cast<Id>(sources[b].size());
  }
  out.ids = ids(tokens, {rows, width});
  return out;
}

// [B, n] as [B, 1, 1, n]: rows that move are [rows, G, positions, n].
Tensor as_rows(const Tensor& x) {
  if (x.rank() == 4) return contiguous(x);
  require(x.rank() == 2, "search: a state's entries are [rows, n] or [B, G, Ts, n], one is ",
          x.shape());
  return reshape(contiguous(x), {x.size(0), 1, 1, x.size(1)});
}

Tensor first_rows(const Tensor& x, int64_t rows, int64_t width) {
  return x.view({rows, x.size(1), width, x.size(3)}, x.strides());
}

std::vector<Id> row_numbers(std::span<const Id> sentences, int64_t each) {
  std::vector<Id> out;
  for (const Id s : sentences)
    for (int64_t k = 0; k < each; ++k) out.push_back(s < 0 ? s : static_cast<Id>(s * each + k));
  return out;
}

}  // namespace

int64_t Slots::fixed(int64_t wanted) { return power_of_two(wanted, kSlots); }

Slots::Slots(const Model& model, const Kind& kind, Id pad)
    : model_(model),
      kind_(kind),
      pad_(pad),
      lasting_(Context::current().arena(current_arena().device()).shared_from_this()) {
  if (kind.listed) shortlists_.emplace(model);
  if (kind.slots == 0) return;
  graphs_.emplace(Arena::make(current_arena().device()));
  size_ = kind.slots;
  width_ = std::min(kWidth, model.positions().value_or(kWidth));
  waiting_places_ = may_wait(kind);
  idle_.assign(static_cast<size_t>(places()), true);
  lengths_.assign(static_cast<size_t>(places()), 0);
  positions_.assign(static_cast<size_t>(size_), 0);
  if (!kind.resident) return;
  const UseArena lasting(*lasting_);
  resident_.emplace(*kind.resident, kind.beam, size_);
  numbers_.assign(static_cast<size_t>(places()), -1);
  longest_.assign(static_cast<size_t>(places()), 0);
}

int64_t Slots::may_wait(const Kind& kind) {
  return kind.resident ? std::max(kSources, kind.slots / 4) : 0;
}

int64_t Slots::room() const {
  return std::count(idle_.begin() + (resident_ ? size_ : 0), idle_.end(), true);
}

int64_t Slots::width() const { return lengths_.empty() ? 0 : *std::ranges::max_element(lengths_); }

// ---- what came of a step

Slots::Likeliest Slots::likeliest(int64_t slot, int64_t k) const {
  if (listed()) {
    const Ranked& top = found_.listed[static_cast<size_t>(slot)].top.top;
    return {finite(row_of<float>(top.values, k)), row_of<Id>(top.indices, k)};
  }
  return {finite(row_of<float>(found_.likeliest->values, row(slot, k))),
          row_of<Id>(found_.likeliest->indices, row(slot, k))};
}

std::span<const float> Slots::weights(int64_t slot, int64_t k) const {
  return row_of<float>(*found_.weights, row(slot, k));
}

double Slots::normalizer(int64_t slot, int64_t k) const {
  return std::exp(-double(row_of<float>(*found_.normalizer, row(slot, k))[0]));
}

int64_t Slots::vocabulary() const {
  return listed() ? shortlists_->vocabulary() : found_.log_probabilities.size(1);
}

// Those of a list [1, n], by token.
std::span<const float> Slots::spread(int64_t slot, const Tensor& scores, int64_t k) {
  one_ = full({1, vocabulary()}, -std::numeric_limits<double>::infinity());
  const std::vector<Id>& list = shortlists_->list(slot);
  const std::span<const float> own = finite(row_of<float>(scores, k));
  for (size_t i = 0; i < list.size(); ++i) one_->data<float>()[list[i]] = own[i];
  return row_of<float>(*one_, 0);
}

std::span<const float> Slots::logits(int64_t slot, int64_t k) {
  if (listed()) return spread(slot, found_.listed[static_cast<size_t>(slot)].logits, k);
  return finite(row_of<float>(*found_.logits, row(slot, k)));
}

std::span<const float> Slots::log_probabilities(int64_t slot, int64_t k) {
  if (listed()) {
    const Found::Listed& own = found_.listed[static_cast<size_t>(slot)];
    return spread(slot, own.logits - own.top.log_sum, k);
  }
  const Tensor& found = found_.log_probabilities;
  const int64_t r = row(slot, k);
  if (one_ && one_row_ == r) return finite(row_of<float>(*one_, 0));
  if (found_.log_sum) {  // most searches read no more than the likeliest
    one_ = slice(found, 0, r, r + 1) - slice(*found_.log_sum, 0, r, r + 1);
    one_row_ = r;
    return finite(row_of<float>(*one_, 0));
  }
  // Each copy waits for the GPU once: where many are wanted, all come at once.
  if (!all_ && found.device() != Device::cpu && alone_ < found.size(0) / 4) {
    ++alone_;
    one_ = to(slice(found, 0, r, r + 1), Device::cpu);
    one_row_ = r;
    return finite(row_of<float>(*one_, 0));
  }
  if (!all_) all_ = to(found, Device::cpu);
  return finite(row_of<float>(*all_, r));
}

// ---- a step

State Slots::state() const {
  State out;
  const int64_t width = captured() ? width_ : this->width();
  for (const auto& [name, x] : sentence_) {
    const Tensor now = first_rows(x, size_, rank_.at(name) == 2 ? 1 : std::min(width, x.size(2)));
    out.sentence[name] = rank_.at(name) == 2 ? now.view({size_, x.size(3)}, {x.stride(0), 1}) : now;
  }
  out.hypothesis = hypothesis_;
  out.cache = cache_;
  out.lengths = lengths_;
  if (captured()) out.lengths.resize(static_cast<size_t>(size_));
  out.positions = positions_;
  if (resident_) out.places = resident_->places();
  return out;
}

// The same for a step that gives it back: nothing is copied.
State Slots::taken() {
  if (views_.empty() && !sentence_.empty()) views_ = state().sentence;
  State out;
  out.sentence = std::move(views_), out.hypothesis = std::move(hypothesis_);
  out.cache = std::move(cache_), out.positions = std::move(positions_);
  out.lengths = lengths_;
  return out;
}

void Slots::compute(State& state, const Tensor& last, std::span<const double> temperatures) {
  found_ = {};
  const SameForAnyRows rows;
  const Step step = model_.step(state, last, kind_.weights);
  if (kind_.weights)
    found_.weights =
        contiguous(chosen_weights(step.weights, kind_.layer, kind_.head, kind_.mean_of));
  if (listed()) return compute_lists(shortlists_->logits(step.hidden));
  const Tensor logits = contiguous(model_.logits(step.hidden));
  if (kind_.logits) found_.logits = logits;
  const int64_t likeliest = std::min(logits.size(1), kind_.likeliest);
  if ((logits.device() == Device::cpu || resident_) && !kind_.normalizer &&
      top_log_softmax_fits(logits, likeliest)) {
    found_.log_probabilities = logits;
    const TopLogSoftmax found = top_log_softmax(found_.log_probabilities, likeliest);
    found_.likeliest = found.top, found_.log_sum = found.log_sum;
    return;
  }
  found_.log_probabilities = contiguous(log_softmax(logits));
  found_.likeliest = top_k(found_.log_probabilities, likeliest);
  if (!kind_.normalizer) return;
  // log softmax((log p - log of the largest p) / temperature): at the largest its first term is 0,
  // and the rest is what is wanted.
  const Tensor largest = slice(found_.likeliest->values, 1, 0, 1);  // [rows, 1]
  std::vector<float> sharper;
  for (const double t : temperatures) sharper.push_back(static_cast<float>(1 / t));
  const Tensor relative =
      (found_.log_probabilities - largest) * tensor(sharper, {std::ssize(sharper), 1});
  found_.normalizer = top_k(log_softmax(relative), 1).values;  // [rows, 1]
}

void Slots::compute_lists(const Tensor& logits) {
  for (int64_t s = 0; s < size_; ++s) {
    const std::vector<Id>& list = shortlists_->list(s);
    const Tensor own = shortlists_->of_list(logits, s, row(s, 0), kind_.beam);
    Found::Listed found{own, top_log_softmax(own, std::min(std::ssize(list), kind_.likeliest))};
    const Tensor& at = found.top.top.indices;
    for (Id& token : std::span(at.data<Id>(), static_cast<size_t>(at.count())))
      if (token >= 0) token = list[static_cast<size_t>(token)];  // of scores that are NaN none
    found_.listed.push_back(std::move(found));
  }
}

void Slots::step(std::span<const Id> last, std::span<const double> temperatures) {
  all_.reset(), one_.reset();
  alone_ = 0;
  found_ = {};  // before the next step begins
  if (captured()) {
    captured_step(last, temperatures);
  } else {
    whole_ = false;
    State now = taken();
    compute(now, ids(last, {std::ssize(last)}), temperatures);
    views_ = std::move(now.sentence), hypothesis_ = std::move(now.hypothesis);
    cache_ = std::move(now.cache), positions_ = std::move(now.positions);
    whole_ = true;
  }
  if (listed()) return;  // on a CPU
  std::vector<Tensor*> wanted{&found_.likeliest->values, &found_.likeliest->indices};
  if (found_.normalizer) wanted.push_back(&*found_.normalizer);
  if (found_.weights) wanted.push_back(&*found_.weights);
  if (found_.logits) wanted.push_back(&*found_.logits);
  fetch(wanted);
}

void Slots::step_ahead() {
  found_ = {};
  captured_step({}, {});
  const bool waits = current_arena().device() == Device::cuda;
  under_way_.push_back(waits ? read_later(resident_->lies_at(), sizeof(Id)) : 0);
}

// Those that were over so many steps ago are known, and have left.
void Slots::settle(size_t behind) {
  const bool waits = current_arena().device() == Device::cuda;
  for (; under_way_.size() > behind; under_way_.pop_front())
    if (waits) read_now(under_way_.front(), nullptr, 0);
  for (int64_t s = 0; s < size_; ++s) {
    const auto slot = static_cast<size_t>(s);
    if (idle_[slot] || !resident_->over(s, numbers_[slot])) continue;
    idle_[slot] = true;
    Ended& one = ended_.emplace_back(s);
    try {
      one.hypotheses = resident_->hypotheses(s);
    } catch (const Error&) {
      one.error = std::current_exception();
    }
  }
}

std::vector<Slots::Ended> Slots::ended(size_t behind) {
  settle(behind);
  return std::exchange(ended_, {});
}

// ---- who joins

std::vector<int64_t> Slots::join(std::span<const std::vector<Id>> sources,
                                 std::span<const std::vector<Id>> lists,
                                 std::span<const int64_t> longest) {
  const int64_t count = std::ssize(sources);
  found_ = {}, all_.reset(), one_.reset();  // a graph's memory
  std::vector<int64_t> to;
  if (!captured()) {
    for (int64_t i = 0; i < count; ++i) to.push_back(size_ + i);
    join_now(sources, to);
    if (!listed()) return to;
    whole_ = false;
    const UseArena lasting(*lasting_);
    shortlists_->join(lists);
    whole_ = true;
    return to;
  }
  for (int64_t s = resident_ ? size_ : 0; s < places() && std::ssize(to) < count; ++s)
    if (idle_[static_cast<size_t>(s)]) to.push_back(s);
  HEED_ASSERT(std::ssize(to) == count);
  // Those of one width together, so many at a time.
  const int64_t most = model_.positions().value_or(INT64_MAX);
  std::map<int64_t, std::vector<size_t>> by_width;
  for (size_t i = 0; i < sources.size(); ++i) {
    const int64_t width = std::ssize(sources[i]);
    by_width[std::max(width, std::min(most, rounded_width(width)))].push_back(i);
  }
  whole_ = false;
  if (!by_width.empty()) make_wide(by_width.rbegin()->first);
  if (resident_ && count > 0) {
    const int64_t tokens = *std::ranges::max_element(longest);
    if (tokens > resident_->most()) settle(0);  // it is going to lie elsewhere
    resident_->make_long(tokens);
    for (size_t i = 0; i < to.size(); ++i) {
      const auto slot = static_cast<size_t>(to[i]);
      longest_[slot] = static_cast<Id>(longest[i]), numbers_[slot] = next_number_;
      next_number_ = next_number_ == std::numeric_limits<Id>::max() ? 0 : next_number_ + 1;
    }
  }
  for (const auto& [width, numbers] : by_width)
    for (size_t begin = 0, at_once = 0; begin < numbers.size(); begin += at_once) {
      at_once =
          static_cast<size_t>(at_a_time(std::ssize(numbers) - static_cast<int64_t>(begin), width));
      std::vector<std::vector<Id>> some;
      std::vector<int64_t> where;
      for (size_t i = begin; i < std::min(numbers.size(), begin + at_once); ++i) {
        some.push_back(sources[numbers[i]]);
        where.push_back(to[numbers[i]]);
      }
      join_captured(some, where, width);
    }
  for (size_t i = 0; i < to.size(); ++i) {
    const auto slot = static_cast<size_t>(to[i]);
    idle_[slot] = false;
    lengths_[slot] = static_cast<Id>(sources[i].size());
    if (resident_)
      waiting_.push_back(to[i]);
    else
      positions_[slot] = 0;
  }
  whole_ = true;
  return to;
}

// Sources that are encoded at a time, where so many of a width are left: of two numbers, so that
// there are few graphs. Long ones fill a GPU by themselves, and would take much memory together.
int64_t Slots::at_a_time(int64_t left, int64_t width) const {
  constexpr int64_t kLong = 256;
  const int64_t few = std::max(kSlots, size_ / 4), most = resident_ ? waiting_places_ : few;
  return left <= kSlots ? kSlots : width > kLong ? std::min(few, most) : most;
}

std::vector<std::pair<int64_t, int64_t>> Slots::begin() {
  // A launch costs about as much as some idle slots cost in a step.
  constexpr int64_t kWorthIt = 16;
  // Who was in a slot has to be told of his end first.
  std::vector<bool> free = idle_;
  for (const Ended& e : ended_) free[static_cast<size_t>(e.slot)] = false;
  std::vector<std::pair<int64_t, int64_t>> moves;
  for (int64_t s = 0; s < size_ && std::ssize(moves) < std::ssize(waiting_); ++s)
    if (free[static_cast<size_t>(s)]) moves.emplace_back(waiting_[moves.size()], s);
  if (moves.empty() || std::ssize(moves) < std::min(std::ssize(waiting_), size_ / kWorthIt))
    return {};
  whole_ = false;
  const size_t at_once = static_cast<size_t>(std::max(kSlots, size_ / 4));
  for (size_t i = 0; i < moves.size(); i += at_once)
    begin_some(std::span(moves).subspan(i, std::min(at_once, moves.size() - i)));
  waiting_.erase(waiting_.begin(), waiting_.begin() + std::ssize(moves));
  whole_ = true;
  return moves;
}

// Those that begin together, long ones first, as groups whose padding is at most an eighth of the
// longest: products take all rows of a group, padding too.
namespace {

std::vector<std::vector<size_t>> by_width(std::span<const std::vector<Id>> sources) {
  std::vector<size_t> order(sources.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<size_t>(),
                           [&](size_t i) { return sources[i].size(); });
  std::vector<std::vector<size_t>> groups;
  for (const size_t i : order) {
    const size_t longest = groups.empty() ? 0 : sources[groups.back()[0]].size();
    if (groups.empty() || sources[i].size() + 1 + longest / 8 < longest) groups.emplace_back();
    groups.back().push_back(i);
  }
  return groups;
}

}  // namespace

void Slots::join_now(std::span<const std::vector<Id>> sources, std::span<const int64_t> to) {
  const int64_t count = std::ssize(sources);
  const std::vector<std::vector<size_t>> groups = by_width(sources);
  std::vector<State> fresh;
  for (const std::vector<size_t>& group : groups) {
    std::vector<std::vector<Id>> some;
    for (const size_t i : group) some.push_back(sources[i]);
    fresh.push_back(model_.start(padded(some, std::ssize(some), std::ssize(some[0]))));
  }
  if (fresh.empty()) return;
  whole_ = false;
  views_.clear();
  const int64_t wanted = size_ + count;
  const UseArena lasting(*lasting_);
  for (const auto& [name, given] : fresh[0].sentence) {
    const Tensor widest = as_rows(given);
    rank_[name] = given.rank();
    Tensor& home = sentence_[name];
    const int64_t slots = home.defined() ? home.size(0) : 0,
                  wide = home.defined() ? home.size(2) : 0;
    if (slots < wanted || wide < widest.size(2)) {
      // Larger memory, with what is there: no wider than those are who are still in it.
      const Tensor before = home;
      const int64_t used = given.rank() == 2 ? wide : std::min(wide, this->width());
      home = Tensor({slots < wanted ? std::max(wanted, 2 * slots) : slots, widest.size(1),
                     std::max(widest.size(2), used), widest.size(3)},
                    widest.type());
      if (size_ > 0)
        move_rows(std::vector{before}, std::vector{home}, in_order(size_),
                  std::vector<Id>(static_cast<size_t>(size_), static_cast<Id>(used)));
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      const Tensor x = g == 0 ? widest : as_rows(fresh[g].sentence.at(name));
      RowMoves moves{in_order(std::ssize(groups[g])), {}, {}};
      for (const size_t i : groups[g]) moves.to.push_back(static_cast<Id>(to[i]));
      moves.length.assign(groups[g].size(), static_cast<Id>(x.size(2)));
      put_rows(std::vector{x}, std::vector{home}, moves);
    }
  }
  // Where each sentence stands in the groups, for each of its hypotheses.
  std::vector<Id> each(static_cast<size_t>(count * kind_.beam));
  Id place = 0;
  for (const std::vector<size_t>& group : groups)
    for (const size_t i : group)
      std::fill_n(each.begin() + static_cast<std::ptrdiff_t>(i) * kind_.beam, kind_.beam, place++);
  const Tensor copies = ids(each, {std::ssize(each)});
  for (const auto& [name, unused] : fresh[0].hypothesis) {
    std::vector<Tensor> parts;
    for (const State& state : fresh) parts.push_back(contiguous(state.hypothesis.at(name)));
    const Tensor rows = embedding(parts.size() == 1 ? parts[0] : concat(parts, 0), copies);
    Tensor& home = hypothesis_[name];
    home = home.defined() && size_ > 0 ? concat({home, rows}, 0) : rows;
  }
  for (const auto& [name, unused] : fresh[0].cache) cache_[name].add_rows(count * kind_.beam);
  for (const std::vector<Id>& s : sources) lengths_.push_back(static_cast<Id>(s.size()));
  positions_.resize(static_cast<size_t>(wanted), 0);
  size_ = wanted;
  whole_ = true;
}

// ---- who leaves

std::vector<std::pair<int64_t, int64_t>> Slots::choose(std::span<const Id> from,
                                                       std::span<const int64_t> gone) {
  const int64_t K = kind_.beam;
  std::vector<std::pair<int64_t, int64_t>> moved;
  if (captured()) {  // by the next step
    from_.assign(from.begin(), from.end());
    for (const int64_t s : gone) idle_[static_cast<size_t>(s)] = true;
    return moved;
  }
  // The last ones take the slots of those that leave.
  const int64_t after = size_ - std::ssize(gone);
  std::vector<Id> holes, last;
  for (const int64_t s : gone)
    if (s < after) holes.push_back(static_cast<Id>(s));
  for (int64_t s = after; s < size_; ++s)
    if (!std::ranges::binary_search(gone, s)) last.push_back(static_cast<Id>(s));
  for (size_t i = 0; i < holes.size(); ++i) moved.emplace_back(last[i], holes[i]);

  std::vector<Id> rows(from.size());
  for (size_t i = 0; i < from.size(); ++i)
    rows[i] = static_cast<Id>(static_cast<int64_t>(i) / K * K + from[i]);
  for (const int64_t s : gone)
    for (int64_t k = 0; k < K; ++k)
      rows[static_cast<size_t>(s * K + k)] = static_cast<Id>(s * K + k);
  std::vector<KeyValueCache*> caches;
  for (auto& [name, c] : cache_) caches.push_back(&c);
  KeyValueCache::reorder(caches, rows, K);
  for (size_t i = 0; i < holes.size(); ++i)
    std::copy_n(rows.begin() + last[i] * K, K, rows.begin() + holes[i] * K);
  rows.resize(static_cast<size_t>(after * K));
  bool same = gone.empty();
  for (size_t i = 0; same && i < rows.size(); ++i) same = rows[i] == static_cast<Id>(i);
  if (!same && !hypothesis_.empty()) {
    const Tensor where = ids(rows, {std::ssize(rows)});
    for (auto& [name, x] : hypothesis_) x = embedding(contiguous(x), where);
  }
  if (gone.empty()) return moved;
  views_.clear();
  const std::vector<Id> from_rows = row_numbers(last, K), to_rows = row_numbers(holes, K);
  for (KeyValueCache* c : caches) c->keep_rows(from_rows, to_rows, after * K);
  for (const auto& [name, x] : sentence_) {
    RowMoves moves{last, holes, {}};
    for (const Id s : last)
      moves.length.push_back(rank_.at(name) == 2 ? 1 : lengths_[static_cast<size_t>(s)]);
    put_rows(std::vector{x}, std::vector{x}, moves);
  }
  for (size_t i = 0; i < holes.size(); ++i) {
    lengths_[static_cast<size_t>(holes[i])] = lengths_[static_cast<size_t>(last[i])];
    positions_[static_cast<size_t>(holes[i])] = positions_[static_cast<size_t>(last[i])];
  }
  lengths_.resize(static_cast<size_t>(after)), positions_.resize(static_cast<size_t>(after));
  size_ = after;
  if (listed()) {
    const UseArena lasting(*lasting_);
    shortlists_->leave(gone, moved);
  }
  return moved;
}

// ---- as graphs

// Kinds: 0 sentences join, 1 a step, 2 those that have waited begin.
StepGraphs::Shape Slots::shape(int64_t kind, int64_t sources, int64_t width) const {
  return {kind,
          size_,
          kind_.beam,
          width_,
          kind == 0 ? 0 : capacity_,
          sources,
          width,
          resident_ ? resident_->most() : 0};
}

// Memory for wider sources, with what is there.
void Slots::make_wide(int64_t width) {
  if (width <= width_) return;
  const int64_t before = std::exchange(width_, width);
  const UseArena lasting(*lasting_);
  for (auto& [name, x] : sentence_) {
    if (rank_.at(name) == 2) continue;
    const Tensor wider({places(), x.size(1), width, x.size(3)}, x.type());
    move_rows(std::vector{x}, std::vector{wider}, in_order(places()),
              std::vector<Id>(static_cast<size_t>(places()), static_cast<Id>(before)));
    x = wider;
  }
}

// Caches for more positions, with what is there.
void Slots::make_long(int64_t positions) {
  if (positions <= capacity_) return;
  const int64_t most = model_.positions().value_or(INT64_MAX);
  capacity_ = std::max(positions, std::min(most, power_of_two(positions, kCapacity)));
  if (resident_) tell_lengths();
  const UseArena lasting(*lasting_);
  for (auto& [name, c] : cache_) {
    KeyValueCache larger(capacity_, size_ * kind_.beam);
    larger.take(c, in_order(size_ * kind_.beam));
    c = larger;
  }
}

// What the fresh sentences have goes to these slots; -1: nobody is there.
void Slots::put(const State& fresh, std::span<const Id> to) {
  const int64_t count = std::ssize(to), K = kind_.beam;
  const auto home_of = [&](std::map<std::string, Tensor>& homes, const std::string& name,
                           const Shape& wanted, Type type) {
    Tensor& home = homes[name];
    if (!home.defined()) {
      const UseArena lasting(*lasting_);
      home = zeros(wanted, type);
    }
    return home;
  };
  // Those of one width in one launch.
  std::map<int64_t, std::pair<std::vector<Tensor>, std::vector<Tensor>>> by_width;
  for (const auto& [name, given] : fresh.sentence) {
    const Tensor x = as_rows(given);
    rank_[name] = given.rank();
    const int64_t width = given.rank() == 2 ? 1 : width_;
    auto& [from, homes] = by_width[x.size(2)];
    from.push_back(x);
    homes.push_back(home_of(sentence_, name, {places(), x.size(1), width, x.size(3)}, x.type()));
  }
  for (const auto& [width, arrays] : by_width)
    put_rows(arrays.first, arrays.second,
             {in_order(count),
              {to.begin(), to.end()},
              std::vector<Id>(static_cast<size_t>(count), static_cast<Id>(width))});
  std::vector<Id> each;
  for (int64_t i = 0; i < count * K; ++i) each.push_back(static_cast<Id>(i / K));
  for (const auto& [name, given] : fresh.hypothesis) {
    const Tensor x = as_rows(given);
    const Tensor home = home_of(hypothesis_, name, {size_ * K, x.size(3)}, x.type());
    if (resident_) {
      std::vector<Id> places;
      for (const Id p : to) places.push_back(p < 0 ? p : p - static_cast<Id>(size_));
      const Tensor there =
          home_of(waiting_hypothesis_, name, {waiting_places_, x.size(3)}, x.type());
      put_rows(std::vector{x}, std::vector{as_rows(there)},
               {in_order(count), places, std::vector<Id>(places.size(), 1)});
      continue;
    }
    put_rows(std::vector{x}, std::vector{as_rows(home)},
             {each, row_numbers(to, K), std::vector<Id>(each.size(), 1)});
  }
}

void Slots::join_captured(std::span<const std::vector<Id>> sources, std::span<const int64_t> to,
                          int64_t width) {
  const int64_t at_once = at_a_time(std::ssize(sources), width);
  std::vector<Id> where(static_cast<size_t>(at_once), -1), rows;
  for (size_t i = 0; i < to.size(); ++i) {
    where[i] = static_cast<Id>(to[i]);
    rows.push_back(where[i]);
  }
  std::vector<std::string> caches;
  const SameForAnyRows same;
  graphs_->run(shape(0, at_once, width), [&] {
    const State fresh = model_.start(padded(sources, at_once, width));
    put(fresh, where);
    caches.clear();
    for (const auto& [name, c] : fresh.cache) caches.push_back(name);
  });
  const UseArena lasting(*lasting_);
  if (!caches.empty()) make_long(1);
  for (const std::string& name : caches)
    cache_.try_emplace(name, KeyValueCache(capacity_, size_ * kind_.beam));
  if (resident_) return;
  for (auto& [name, c] : cache_) c.empty_rows(row_numbers(rows, kind_.beam));
}

// Sentences that have waited begin, each in its slot.
void Slots::begin_some(std::span<const std::pair<int64_t, int64_t>> moves) {
  const auto count = static_cast<size_t>(std::max(kSlots, size_ / 4));
  RowMoves rows{std::vector<Id>(count, 0), std::vector<Id>(count, -1), std::vector<Id>(count, 0)};
  std::vector<ResidentBeams::Start> starts(count);
  for (size_t i = 0; i < moves.size(); ++i) {
    const auto [place, slot] =
        std::pair(static_cast<size_t>(moves[i].first), static_cast<size_t>(moves[i].second));
    rows.from[i] = static_cast<Id>(place), rows.to[i] = static_cast<Id>(slot);
    rows.length[i] = lengths_[place];
    starts[i] = {.slot = rows.to[i],
                 .number = numbers_[place],
                 .longest = longest_[place],
                 .length = lengths_[place]};
    numbers_[slot] = numbers_[place], longest_[slot] = longest_[place];
    lengths_[slot] = lengths_[place], positions_[slot] = 0;
    idle_[slot] = false, idle_[place] = true;
  }
  RowMoves one = rows;  // of what is one row whatever the width
  one.length.assign(count, 1);
  std::vector<Id> from, to;  // of hypotheses
  for (size_t i = 0; i < count; ++i)
    from.insert(from.end(), static_cast<size_t>(kind_.beam),
                std::max(Id{0}, rows.from[i] - static_cast<Id>(size_)));
  to = row_numbers(rows.to, kind_.beam);
  graphs_->run(shape(2, static_cast<int64_t>(count), 0), [&] {
    std::vector<Tensor> wide, narrow;
    for (const auto& [name, x] : sentence_) (rank_.at(name) == 2 ? narrow : wide).push_back(x);
    if (!wide.empty()) put_rows(wide, wide, rows);
    if (!narrow.empty()) put_rows(narrow, narrow, one);
    for (const auto& [name, x] : waiting_hypothesis_)
      put_rows(std::vector{as_rows(x)}, std::vector{as_rows(hypothesis_.at(name))},
               {from, to, std::vector<Id>(from.size(), 1)});
    resident_->begin(starts);
  });
}

// The caches of resident searches are as long as these have come, whatever the host has run of it.
void Slots::tell_lengths() {
  std::vector<Id> lengths;
  for (const Id p : positions_) lengths.insert(lengths.end(), static_cast<size_t>(kind_.beam), p);
  for (auto& [name, c] : cache_) c.set_lengths(lengths);
}

// A resident search that has taken all steps that it may is over, though the host may not have
// heard of it.
bool Slots::computed(int64_t s) const {
  const auto slot = static_cast<size_t>(s);
  return !idle_[slot] && !(resident_ && positions_[slot] > longest_[slot]);
}

void Slots::captured_step(std::span<const Id> last, std::span<const double> temperatures) {
  const int64_t K = kind_.beam, rows = size_ * K;
  for (int64_t s = 0; s < size_; ++s) {
    if (computed(s)) continue;
    lengths_[static_cast<size_t>(s)] = positions_[static_cast<size_t>(s)] = 0;
    if (resident_) longest_[static_cast<size_t>(s)] = -1;
    const Id slot[] = {static_cast<Id>(s)};
    if (!resident_)
      for (auto& [name, c] : cache_) c.empty_rows(row_numbers(slot, K));
  }
  if (!cache_.empty()) make_long(*std::ranges::max_element(positions_) + 1);
  if (resident_) {
    if (graphs_->repeat(shape(1, 0, 0))) {
      for (Id& p : positions_) ++p;
      return;
    }
    tell_lengths();
  }
  std::vector<Id> from = in_order(rows);
  for (size_t i = 0; i < from_.size(); ++i)
    if (!idle_[i / static_cast<size_t>(K)])
      from[i] = static_cast<Id>(static_cast<int64_t>(i) / K * K + from_[i]);
  const std::vector<Id> all = in_order(size_);
  State after;
  graphs_->run(shape(1, 0, 0), [&] {
    State now = state();
    if (resident_) {
      now.choose(resident_->from());
      compute(now, resident_->last(), temperatures);
      resident_->grow(*found_.likeliest, found_.log_probabilities, found_.log_sum);
      found_ = {};
    } else {
      now.choose(from, all);
      compute(now, ids(last, {rows}), temperatures);
    }
    for (auto& [name, x] : now.hypothesis) {
      copy_into(x, hypothesis_.at(name));
      x = hypothesis_.at(name);
    }
    after = std::move(now);
  });
  cache_ = std::move(after.cache), positions_ = std::move(after.positions);
  from_.clear();
}

}  // namespace heed
