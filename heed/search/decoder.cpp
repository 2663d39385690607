#include "heed/search/decoder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "heed/ops/cache.h"
#include "heed/ops/into.h"
#include "heed/tensor/cuda.h"

namespace heed {
namespace {

// Few sizes: places are at least kPlaces and a power of two, and so is the room of caches; widths
// are a multiple of 8, beyond 64 of 16, beyond 128 of 32, and so on.
constexpr int64_t kPlaces = 8, kRoom = 64;

int64_t power_of_two(int64_t n, int64_t least) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(n, least))));
}
int64_t rounded_width(int64_t n) {
  int64_t unit = 8;
  while (n > 8 * unit) unit *= 2;
  return (n + unit - 1) / unit * unit;
}

// The same tensors on the host: what lies on a GPU comes in one go.
void fetch(std::initializer_list<Tensor*> all) {
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

// One score that is none makes none of a row's log-probabilities a number, and top_k() passes over
// those.
std::span<const float> numbers(std::span<const float> scores) {
  require(scores.empty() || std::ranges::any_of(scores, [](float x) { return std::isfinite(x); }),
          "search: the model's scores are not numbers; its parameters are broken");
  return scores;
}

}  // namespace

Decoding::Decoding(Decoder& decoder, const Source& source, const SearchOptions& options)
    : decoder_(decoder),
      options_(options),
      device_(source.ids.device()),
      captured_((decoder.steps_ == Decoder::Steps::as_graphs ||
                 (decoder.steps_ == Decoder::Steps::by_device && device_ == Device::cuda)) &&
                options.beam <= kMaxGroup),
      places_(static_cast<size_t>(source.ids.size(0))) {
  std::iota(places_.begin(), places_.end(), int64_t{0});
  if (captured_)
    begin(source);
  else
    state_ = decoder.model().start(source);
}

// ---- what came of a step

Decoding::Likeliest Decoding::likeliest(int64_t i, int64_t k) const {
  return {numbers(row_of<float>(found_.likeliest->values, row(i, k))),
          row_of<Id>(found_.likeliest->indices, row(i, k))};
}

std::span<const float> Decoding::weights(int64_t i, int64_t k) const {
  return row_of<float>(*found_.weights, row(i, k));
}

std::span<const float> Decoding::log_probabilities(int64_t i, int64_t k) {
  if (!all_) all_ = to(found_.log_probabilities, Device::cpu);
  return numbers(row_of<float>(*all_, row(i, k)));
}

// ---- a step

void Decoding::compute(State& state, std::span<const Id> last) {
  const SearchOptions& o = options_;
  const bool want_weights = o.want_weights || o.coverage > 0;
  found_ = {};
  const Step step = decoder_.model().step(state, last, want_weights);
  found_.log_probabilities = contiguous(log_softmax(step.logits));
  if (want_weights) found_.weights = contiguous(chosen_weights(step.weights, o));
  // A few more than are wanted, for words that may not follow.
  if (!o.sample || !o.prefixes.empty())
    found_.likeliest = top_k(found_.log_probabilities, std::min(words(), 2 * o.beam + 8));
}

void Decoding::step(std::span<const Id> last) {
  all_.reset();
  found_ = {};  // before the next step begins
  if (captured_)
    captured_step(last);
  else
    compute(state_, last);
  if (found_.likeliest && found_.weights)
    fetch({&found_.likeliest->values, &found_.likeliest->indices, &*found_.weights});
  else if (found_.likeliest)
    fetch({&found_.likeliest->values, &found_.likeliest->indices});
  else if (found_.weights)
    fetch({&*found_.weights});
}

void Decoding::choose(std::span<const Id> from, std::span<const Id> kept) {
  if (captured_) {  // by the next step
    from_.assign(from.begin(), from.end());
    std::vector<int64_t> left;
    for (const Id i : kept) left.push_back(places_[static_cast<size_t>(i)]);
    places_ = std::move(left);
    return;
  }
  const auto K = from.size() / kept.size();
  std::vector<Id> rows;
  for (size_t i = 0; i < from.size(); ++i)
    rows.push_back(static_cast<Id>(kept[i / K] * each_ + from[i]));
  state_.choose(rows, kept);
  each_ = static_cast<int64_t>(K);
  places_.resize(kept.size());
}

// ---- on a GPU

int64_t Decoding::room_for(int64_t positions) const {
  const int64_t most = decoder_.model().positions().value_or(INT64_MAX);
  return std::max(positions, std::min(most, power_of_two(positions, kRoom)));
}

// Kinds: 0 the beginning, 1 a step.
StepGraphs::Shape Decoding::shape(int64_t kind) const {
  const SearchOptions& o = options_;
  const int64_t layer = o.layer.value_or(-1) + 1, head = o.head.value_or(-1) + 1;
  return {kind,
          sizes_.places,
          each_,
          sizes_.width,
          sizes_.room,
          !o.sample || !o.prefixes.empty() ? 1 : 0,
          o.want_weights || o.coverage > 0 ? 1 + layer : 0,
          head};
}

// What lasts is kept by its name and size, so that it lies where the graphs of its size expect it.
Tensor Decoding::kept(const std::string& name, const Tensor& x) {
  Tensor& home = decoder_.tensors_[{name, {x.shape().begin(), x.shape().end()}}];
  if (!home.defined()) {
    const UseDevice lasting(x.device());  // not the step's memory
    home = empty_like(x);
  }
  copy_into(x, home);
  return home;
}

KeyValueCache Decoding::kept_cache(const std::string& name) const {
  const auto known = decoder_.caches_.find({name, {sizes_.places * each_, sizes_.room}});
  if (known != decoder_.caches_.end()) return known->second.emptied();
  const UseDevice lasting(device_);
  return KeyValueCache(sizes_.room);
}

void Decoding::begin(const Source& source) {
  if (!decoder_.graphs_) decoder_.graphs_.emplace(Arena::make(device_));
  each_ = options_.beam;
  const int64_t B = source.ids.size(0), width = source.ids.size(1);
  const int64_t most = decoder_.model().positions().value_or(INT64_MAX);
  sizes_ = {.places = power_of_two(B, kPlaces),
            .width = std::max(width, std::min(most, rounded_width(width))),
            .room = room_for(1)};
  std::vector<Id> words(static_cast<size_t>(sizes_.places * sizes_.width), options_.pad);
  for (int64_t b = 0; b < B; ++b)
    std::copy_n(source.ids.host_ids().begin() + b * width, width, words.begin() + b * sizes_.width);
  std::vector<Id> lengths = source.lengths, rows;
  lengths.resize(static_cast<size_t>(sizes_.places), 0);
  for (int64_t i = 0; i < sizes_.places * each_; ++i) rows.push_back(static_cast<Id>(i / each_));
  decoder_.graphs_->run(shape(0), [&] {
    State now = decoder_.model().start({ids(words, {sizes_.places, sizes_.width}), lengths});
    now.choose(rows, in_order(sizes_.places));
    for (auto& [name, x] : now.sentence) x = kept("sentence " + name, x);
    for (auto& [name, x] : now.hypothesis) x = kept("hypothesis " + name, x);
    state_ = std::move(now);
  });
  for (auto& [name, c] : state_.cache) c = kept_cache(name);
}

// Moves everything to memory of other sizes, the sentences to the first places.
void Decoding::resize(const Sizes& to) {
  std::vector<Id> sentences, rows;
  for (int64_t i = 0; i < to.places; ++i) {
    const int64_t place = i < std::ssize(places_) ? places_[static_cast<size_t>(i)] : 0;
    sentences.push_back(static_cast<Id>(place));
    for (int64_t k = 0; k < each_; ++k) rows.push_back(static_cast<Id>(place * each_ + k));
  }
  const std::map<std::string, KeyValueCache> caches = std::move(state_.cache);
  state_.cache.clear();
  state_.choose(rows, sentences);
  sizes_ = to;
  for (auto& [name, x] : state_.sentence) x = kept("sentence " + name, x);
  for (auto& [name, x] : state_.hypothesis) x = kept("hypothesis " + name, x);
  for (const auto& [name, c] : caches) (state_.cache[name] = kept_cache(name)).take(c, rows);
  std::iota(places_.begin(), places_.end(), int64_t{0});
}

void Decoding::captured_step(std::span<const Id> last) {
  const int64_t sentences = std::ssize(places_), K = std::ssize(last) / sentences;
  Sizes wanted = sizes_;
  wanted.places = std::min(sizes_.places, power_of_two(sentences, kPlaces));
  if (!state_.cache.empty()) wanted.room = std::max(sizes_.room, room_for(state_.steps + 1));
  if (wanted.places != sizes_.places || wanted.room != sizes_.room) resize(wanted);
  const int64_t rows = sizes_.places * each_;
  std::vector<Id> words(static_cast<size_t>(rows), options_.pad), from = in_order(rows);
  for (int64_t i = 0; i < sentences; ++i)
    for (int64_t k = 0; k < K; ++k) {
      const auto at = static_cast<size_t>(row(i, k)), given = static_cast<size_t>(i * K + k);
      words[at] = last[given];
      if (!from_.empty()) from[at] = static_cast<Id>(row(i, from_[given]));
    }
  State after;
  decoder_.graphs_->run(shape(1), [&] {
    State now = state_;
    now.choose(from, in_order(sizes_.places));
    compute(now, words);
    for (auto& [name, x] : now.hypothesis) x = kept("hypothesis " + name, x);
    after = std::move(now);
  });
  state_ = std::move(after);
  for (const auto& [name, c] : state_.cache)
    decoder_.caches_.try_emplace({name, {rows, sizes_.room}}, c);
}

}  // namespace heed
