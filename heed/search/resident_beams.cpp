#include "heed/search/resident_beams.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "heed/ops/cache.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

constexpr int64_t kStates = 7;  // numbers of a sentence, one after the other in state_

template <class T>
Tensor filled(const std::vector<T>& values, const Shape& shape, Type type) {
  return uploaded(std::as_bytes(std::span(values)), shape, type);
}
Tensor doubles(int64_t rows, int64_t each) {
  return filled(std::vector<double>(static_cast<size_t>(rows * each)), {rows, each}, Type::f64);
}

template <class Kernel>
void launch_there(Device device, const Kernel& kernel) {
  launch_on("search", device, Type::f32, kernel);
}

}  // namespace

std::optional<kernels::BeamRules> ResidentBeams::rules(const SearchOptions& o) {
  using Rule = kernels::BeamRules::Ending;
  if (o.beam > kernels::kMostBeam || o.sample || o.want_weights || o.want_tree || o.coverage != 0 ||
      o.no_repeat > 0 || !o.suppress.empty() || o.renormalize || o.repetition_penalty != 1)
    return std::nullopt;
  const double patience = std::round(o.patience * double(o.beam));
  kernels::BeamRules out{.begin = o.begin,
                         .end = o.end,
                         .pad = o.pad,
                         .unknown = o.unknown,
                         .allow_unknown = o.allow_unknown,
                         .allow_begin = o.allow_begin,
                         .open_end = o.open_end,
                         .free_end = o.free_end,
                         .min_length = o.min_length,
                         .best = o.best,
                         .ending = Rule::patience,
                         .enough = std::max(patience, double(o.best)),
                         .normalize = o.normalize};
  if (o.ending == Ending::full) out.ending = Rule::full;
  if (o.ending == Ending::shrinking) out.ending = Rule::shrinking;
  if (o.ending == Ending::counted) {
    out.ending = o.normalize == 0 ? Rule::likeliest_counted : Rule::counted;
    out.enough = patience;
  }
  return out;
}

ResidentBeams::ResidentBeams(const kernels::BeamRules& rules, int64_t beam, int64_t slots)
    : rules_(rules),
      beam_(beam),
      kept_(std::max(beam, rules.best)),
      slots_(slots),
      arena_(current_arena().shared_from_this()) {
  const int64_t rows = slots * beam;
  std::vector<Id> state(static_cast<size_t>(kStates * slots), 0);
  std::fill_n(state.begin(), slots, Id{-1});  // nobody is there
  state_ = ids(state, {kStates, slots});
  order_ = ids(std::vector<Id>(static_cast<size_t>(rows), 0), {rows});
  last_ = filled(std::vector<Id>(static_cast<size_t>(rows), rules.pad), {rows}, Type::i32);
  from_ = filled(in_order(rows), {rows}, Type::i32);
  const auto ranges = [&](Id end) {  // [0, end) for each row
    std::vector<Id> out(static_cast<size_t>(2 * rows), 0);
    for (size_t i = 1; i < out.size(); i += 2) out[i] = end;
    return out;
  };
  constexpr int64_t kSteps = 2;  // its row of state_
  places_ = {.positions = filled(std::vector<Id>(static_cast<size_t>(rows), 0), {rows}, Type::i32),
             .past = filled(ranges(1), {rows, 1, 1, 2}, Type::i32),
             .source = filled(ranges(0), {slots, 1, beam, 2}, Type::i32),
             .steps = state_.view({slots}, {1}, kSteps * slots)};
  ended_ = ids(std::vector<Id>(static_cast<size_t>(2 * slots * kept_), 0), {2, slots, kept_});
  score_ = doubles(slots, beam);
  ended_score_ = doubles(2 * slots, kept_);
}

void ResidentBeams::make_long(int64_t tokens) {
  if (tokens <= most_) return;
  constexpr int64_t kLeast = 64;
  const int64_t before = most_, rows = slots_ * beam_;
  most_ = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(tokens, kLeast))));
  const UseArena lasting(*arena_);
  std::vector<double> power;
  for (int64_t n = 0; n < most_ + 2; ++n) power.push_back(std::pow(double(n), rules_.normalize));
  power_ = filled(power, {most_ + 2}, Type::f64);
  // What was written down so far stays: the oldest comes first.
  Tensor trace({2, most_, rows}, Type::i32);
  for (int64_t i = 0; i < 2 && before > 0; ++i) {
    const std::vector<double> kept =
        trace_.view({before, rows}, {rows, 1}, i * before * rows).values();
    std::vector<Id> numbers(kept.begin(), kept.end());
    numbers.resize(static_cast<size_t>(most_ * rows));
    set_numbers(trace.view({most_, rows}, {rows, 1}, i * most_ * rows),
                std::as_bytes(std::span(numbers)));
  }
  trace_ = trace;
  // One block: doubles first.
  const int64_t told = slots_ * rules_.best;
  const auto bytes = static_cast<size_t>(told) * 2 * sizeof(double) +
                     static_cast<size_t>(2 * slots_ + told + told * most_) * sizeof(Id);
  Shared fresh{.memory = shared_memory(bytes), .over = {}};
  auto* const numbers = static_cast<double*>(fresh.memory.get());
  fresh.over.score = numbers, fresh.over.log_probability = numbers + told;
  Id* at = reinterpret_cast<Id*>(numbers + 2 * told);
  for (Id** part : {&fresh.over.number, &fresh.over.count}) *part = at, at += slots_;
  fresh.over.length = at, fresh.over.tokens = at + told;
  std::fill_n(fresh.over.number, slots_, Id{-1});
  shared_ = std::move(fresh);
}

kernels::Beams ResidentBeams::view() const {
  Id* at = state_.data<Id>();
  kernels::Beams out{.rules = rules_,
                     .slots = slots_,
                     .most = most_,
                     .beam = static_cast<int>(beam_),
                     .kept = static_cast<int>(kept_),
                     .power = power_.data<double>(),
                     .order = order_.data<Id>(),
                     .score = score_.data<double>(),
                     .last = last_.data<Id>(),
                     .from = from_.data<Id>(),
                     .position = places_.positions.data<Id>(),
                     .past = places_.past.data<Id>(),
                     .source = places_.source.data<Id>(),
                     .token = trace_.data<Id>(),
                     .parent = trace_.data<Id>() + most_ * slots_ * beam_,
                     .ended_score = ended_score_.data<double>(),
                     .ended_log_probability = ended_score_.data<double>() + slots_ * kept_,
                     .ended_length = ended_.data<Id>(),
                     .ended_place = ended_.data<Id>() + slots_ * kept_,
                     .over = shared_.over};
  for (Id** part : {&out.number, &out.longest, &out.steps, &out.live, &out.ended, &out.finished,
                    &out.best_ended})
    *part = at, at += slots_;
  return out;
}

void ResidentBeams::begin(std::span<const Start> all) const {
  std::vector<Id> numbers;
  for (const Start& s : all) numbers.push_back(s.slot);
  for (const Start& s : all) numbers.push_back(s.number);
  for (const Start& s : all) numbers.push_back(s.longest);
  for (const Start& s : all) numbers.push_back(s.length);
  const int64_t count = std::ssize(all);
  const Tensor given = ids(numbers, {4, count});
  const Id* const at = given.data<Id>();
  launch_there(state_.device(), kernels::BeginBeams{.beams = view(),
                                                    .count = count,
                                                    .slot = at,
                                                    .number = at + count,
                                                    .longest = at + 2 * count,
                                                    .length = at + 3 * count});
}

void ResidentBeams::grow(const Ranked& likeliest, const Tensor& all,
                         const std::optional<Tensor>& log_sum) const {
  launch_there(state_.device(),
               kernels::GrowBeams{.beams = view(),
                                  .vocabulary = all.size(1),
                                  .likeliest = likeliest.values.size(1),
                                  .value = likeliest.values.data<float>(),
                                  .index = likeliest.indices.data<Id>(),
                                  .all = all.data<float>(),
                                  .log_sum = log_sum ? log_sum->data<float>() : nullptr});
}

bool ResidentBeams::over(int64_t slot, Id number) const {
  return std::atomic_ref(shared_.over.number[slot]).load(std::memory_order_acquire) == number;
}

std::vector<Hypothesis> ResidentBeams::hypotheses(int64_t slot) const {
  const kernels::Beams::Over& over = shared_.over;
  require(over.count[slot] >= 0,
          "search: the model's scores are not numbers; its parameters are broken");
  std::vector<Hypothesis> out(static_cast<size_t>(over.count[slot]));
  for (int64_t i = 0; i < std::ssize(out); ++i) {
    const int64_t told = slot * rules_.best + i;
    const Id* const tokens = over.tokens + told * most_;
    Hypothesis& h = out[static_cast<size_t>(i)];
    h.ids.assign(tokens, tokens + over.length[told]);
    h.log_probability = over.log_probability[told], h.score = over.score[told];
  }
  return out;
}

}  // namespace heed
