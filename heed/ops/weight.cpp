#include "heed/ops/weight.h"

#include <sys/mman.h>

#include "heed/ops/tape.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

constexpr int64_t kFewRows = 128;  // beyond, packing is lost in the product

// x^T dy, laid out as w is: the gradient of a transposed view is one too. And the sum of dy.
WeightUse::Gradients outer(const Tensor& w, const Tensor& x, const Tensor& dy, bool want_bias) {
  const bool transposed = w.stride(1) != 1 && w.stride(0) == 1;
  const Tensor a = transpose(transposed ? dy : x, 0, 1), b = transposed ? x : dy;
  Tensor c({a.size(0), b.size(1)}, wide(w.type()));
  multiply("weight gradient", a, b, c);
  WeightUse::Gradients out;
  out.weight = transposed ? transpose(c, 0, 1) : c;
  if (want_bias) out.bias = sum(dy, 0);
  return out;
}

Tensor joined(std::vector<Tensor>& parts) {
  Tensor all = parts.size() == 1 ? parts[0] : concat(parts, 0);
  parts.clear();
  return all;
}

Tensor as_matrix(const Tensor& w) {
  return w.view({w.size(-2), w.size(-1)}, {w.stride(-2), w.stride(-1)});
}
WeightUse::Gradients shaped(WeightUse::Gradients found, const Shape& shape) {
  if (found.weight && shape.rank() == 3) found.weight = reshape(*found.weight, shape);
  return found;
}

void give(ParameterState& to, const Tensor& grad) {
  if (!to.grad) to.grad = std::make_shared<Tensor>();
  *to.grad = to.grad->defined() ? *to.grad + grad : grad;
}

// ---- on a GPU: what waits for the end of the backward pass

}  // namespace

struct DeferredGradients::Inside {
  struct Rows {
    std::shared_ptr<ParameterState> to;
    Tensor x;
  };
  std::vector<Rows> rows;
  std::vector<NotedWeight> weights;  // all of whose uses have come back
  size_t bytes = 0;
};
DeferredGradients::DeferredGradients() : inside_(std::make_unique<Inside>()) {}
DeferredGradients::~DeferredGradients() = default;

namespace {

using Deferred = DeferredGradients::Inside;
// Of the backward pass that is under way on this thread.
Deferred& deferred_now() { return Tape::deferred().inside(); }

constexpr size_t kMostDeferred = size_t{4} << 30;

size_t bytes_of(const Tensor& x) { return static_cast<size_t>(x.count()) * size_of(x.type()); }
bool aligned(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0; }

struct Product {
  ParameterState* to;
  Shape shape;  // of the parameter
  Tensor x, dy;
};

// Products of one size: c_i = x_i^T dy_i.
void multiply_each(const std::vector<Product>& all) {
  const int64_t m = all[0].x.size(1), n = all[0].dy.size(1), count = std::ssize(all);
  std::vector<Tensor> found;
  std::vector<const void*> places(3 * all.size());
  bool together = all.size() > 1;
  for (size_t i = 0; i < all.size(); ++i) {
    found.emplace_back(Shape{m, n}, wide(all[i].x.type()));
    places[i] = all[i].x.raw();
    places[all.size() + i] = all[i].dy.raw();
    places[2 * all.size() + i] = found[i].raw();
    together = together && all[i].x.contiguous() && all[i].dy.contiguous() && aligned(all[i].x) &&
               aligned(all[i].dy);
  }
  if (together) {
    const Tensor there = uploaded(std::as_bytes(std::span(places)), {3 * count}, Type::f64);
    launch("weight gradients", all[0].x, [&]<class T>() {
      void* const* at = static_cast<void* const*>(there.raw());
      return kernels::OuterEach<T>{.count = count,
                                   .m = m,
                                   .n = n,
                                   .k = all[0].x.size(0),
                                   .a = reinterpret_cast<const T* const*>(at),
                                   .b = reinterpret_cast<const T* const*>(at + count),
                                   .c = reinterpret_cast<kernels::Wide<T>* const*>(at + 2 * count)};
    });
  } else {
    for (size_t i = 0; i < all.size(); ++i)
      multiply("weight gradient", transpose(all[i].x, 0, 1), all[i].dy, found[i]);
  }
  for (size_t i = 0; i < all.size(); ++i) give(*all[i].to, reshape(found[i], all[i].shape));
}

void sum_rows_each(const std::vector<Deferred::Rows>& all) {
  std::vector<Tensor> sums;
  for (const Deferred::Rows& r : all) sums.emplace_back(Shape{r.x.size(1)}, wide(r.x.type()));
  for (size_t first = 0; first < all.size(); first += kernels::kMaxParts) {
    const size_t end = std::min(all.size(), first + kernels::kMaxParts);
    launch("sums", all[first].x, [&]<class T>() {
      kernels::SumRowsEach<T> k{};
      for (size_t i = first; i < end; ++i)
        k.part[k.count++] = {.rows = all[i].x.size(0),
                             .n = all[i].x.size(1),
                             .x = all[i].x.data<T>(),
                             .x_row = all[i].x.stride(0),
                             .y = sums[i].data<kernels::Wide<T>>()};
      return k;
    });
  }
  for (size_t i = 0; i < all.size(); ++i) give(*all[i].to, sums[i]);
}

// Everything that waits, as few launches: small products and sums fill a GPU only together.
void flush_deferred(Deferred& deferred) {
  std::map<std::array<int64_t, 4>, std::vector<Product>> by_size;
  for (const auto& [state, uses] : deferred.weights) {
    if (uses->x.empty()) continue;
    const Tensor x = joined(uses->x), dy = joined(uses->dy);
    if (uses->one_bias) deferred.rows.push_back({uses->bias, dy});
    by_size[{x.size(0), x.size(1), dy.size(1), static_cast<int64_t>(x.type())}].push_back(
        {state.get(), uses->shape, x, dy});
  }
  for (const auto& [size, products] : by_size) multiply_each(products);
  std::map<Type, std::vector<Deferred::Rows>> by_type;
  for (const Deferred::Rows& r : deferred.rows) by_type[r.x.type()].push_back(r);
  for (const auto& [type, rows] : by_type) sum_rows_each(rows);
  deferred = {};
}

}  // namespace

WeightUse::WeightUse(const Tensor& w, const std::shared_ptr<ParameterState>& bias)
    : w_(as_matrix(w)), shape_(w.shape()) {
  Tape* const tape = Tape::current();
  if (!tape || !w.parameter_state()) return;
  if (!w.parameter_state()->uses || w.parameter_state()->uses->tape != tape->number()) {
    w.parameter_state()->uses = std::make_shared<WeightUses>();
    w.parameter_state()->uses->tape = tape->number();
    w.parameter_state()->uses->shape = shape_;
    tape->note_weight(w.parameter_state());
  }
  state_ = w.parameter_state();
  uses_ = state_->uses;
  if (uses_->recorded == 0) uses_->bias = bias;
  uses_->one_bias = uses_->one_bias && bias && uses_->bias == bias;
  ++uses_->recorded;
}

bool WeightUse::worth_packing(int64_t rows) const {
  return uses_ && uses_->recorded > 1 && rows <= kFewRows && w_.device() == Device::cpu;
}

std::optional<Tensor> WeightUse::packed(int64_t rows) {
  if (PackedWeights* const all = packed_weights();
      all && !Tape::current() && w_.device() == Device::cpu && w_.size(1) > 1)
    return all->packed(w_);
  if (!worth_packing(rows) || w_.size(1) == 1) return std::nullopt;
  if (!uses_->packed) uses_->packed = heed::packed("weight", w_);
  return uses_->packed;
}

std::optional<Tensor> WeightUse::packed_transposed(int64_t rows) {
  if (!worth_packing(rows)) return std::nullopt;
  if (!uses_->packed_transposed)
    uses_->packed_transposed = heed::packed("weight", transpose(w_, 0, 1));
  return uses_->packed_transposed;
}

WeightUse::Gradients WeightUse::gradients(const Tensor& x, const Tensor& dy, bool want_bias) {
  const bool on_gpu = w_.device() == Device::cuda;
  // A vector's gradient is cheap, and its x are large: no deferred.
  if (!uses_ || w_.size(1) == 1 || x.size(0) == 0 || (!on_gpu && uses_->recorded < 2))
    return shaped(outer(w_, x, dy, want_bias), shape_);
  Gradients now;
  // Only the bias that every use has can wait.
  if (want_bias && !uses_->one_bias) now.bias = sum(dy, 0);
  uses_->x.push_back(x);
  uses_->dy.push_back(dy);
  const bool last = ++uses_->returned == uses_->recorded;
  if (on_gpu) {
    Deferred& deferred = deferred_now();
    deferred.bytes += bytes_of(x) + bytes_of(dy);
    if (last) deferred.weights.emplace_back(state_, uses_);
    if (deferred.bytes > kMostDeferred) flush_deferred(deferred);
    return now;
  }
  if (!last) return now;
  const Tensor all_x = joined(uses_->x), all_dy = joined(uses_->dy);
  Gradients all = outer(w_, all_x, all_dy, want_bias && uses_->one_bias);
  if (!all.bias) all.bias = now.bias;
  return shaped(all, shape_);
}

namespace {

// Parameters that lie in a mapped file and are seldom read again need not stay in memory. Whatever
// else they are, they lose nothing by it.
void not_needed_soon(const Tensor& w) {
#if defined(MADV_PAGEOUT)
  if (w.storage()->arena || w.context() != 0) return;
  constexpr uintptr_t kPage = 4096;
  const auto begin = reinterpret_cast<uintptr_t>(w.raw());
  const uintptr_t first = (begin + kPage - 1) / kPage * kPage,
                  end = (begin + bytes_of(w)) / kPage * kPage;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_PAGEOUT);
#endif
}

}  // namespace

// Places for what is packed, found by hashing. A place is taken once, and never given up.
class PackedWeights::Table {
 public:
  explicit Table(size_t places) : places_(places) {}

  const Used* find(const Key& key) const {
    for (size_t i = first(key);; i = (i + 1) % places_.size()) {
      const Used* const used = places_[i].load(std::memory_order_acquire);
      if (!used || used->key == key) return used;
    }
  }
  void add(const Used& used) {
    size_t i = first(used.key);
    while (places_[i].load(std::memory_order_relaxed)) i = (i + 1) % places_.size();
    places_[i].store(&used, std::memory_order_release);
    ++taken_;
  }
  bool has_room() const { return 2 * taken_ < places_.size(); }
  size_t size() const { return places_.size(); }
  void add_all(const Table& other) {
    for (const auto& place : other.places_)
      if (const Used* const used = place) add(*used);
  }

 private:
  size_t first(const Key& key) const {
    uint64_t hash = 0;
    for (const int64_t part : key) hash = (hash ^ static_cast<uint64_t>(part)) * 0x9E3779B97F4A7C15;
    return (hash >> 32) % places_.size();
  }
  std::vector<std::atomic<const Used*>> places_;
  size_t taken_ = 0;
};

PackedWeights::PackedWeights() {
  constexpr size_t kPlaces = 128;
  ready_ = tables_.emplace_back(std::make_unique<Table>(kPlaces)).get();
}
PackedWeights::~PackedWeights() = default;

// With mutex_ held.
void PackedWeights::publish(const Used& used) {
  if (!tables_.back()->has_room()) {
    auto larger = std::make_unique<Table>(2 * tables_.back()->size());
    larger->add_all(*tables_.back());
    ready_ = tables_.emplace_back(std::move(larger)).get();
  }
  tables_.back()->add(used);
}

PackedWeights::Key PackedWeights::key_of(const Tensor& w) {
  return {reinterpret_cast<intptr_t>(w.raw()), w.size(0), w.size(1), w.stride(0), w.stride(1)};
}

const Tensor* PackedWeights::ready(const Tensor& w) const {
  const Used* const used = ready_.load(std::memory_order_acquire)->find(key_of(w));
  return used ? &*used->packed : nullptr;
}

std::optional<Tensor> PackedWeights::packed(const Tensor& w) {
  if (const Tensor* const done = ready(w)) return *done;
  const Key key = key_of(w);
  const std::lock_guard lock(mutex_);
  const auto [found, first] = used_.try_emplace(key, Used{key, w, std::nullopt});
  if (first) return std::nullopt;
  Used& used = found->second;
  if (!used.packed) {
    if (!arena_) arena_ = Arena::shared(Device::cpu);
    const UseArena lasting(*arena_);
    used.packed = heed::packed("weight", w);
    not_needed_soon(w);
    publish(used);
  }
  return used.packed;
}

UsePackedWeights::UsePackedWeights(std::shared_ptr<PackedWeights> weights)
    : weights_(std::move(weights)), previous_(set_packed_weights(weights_.get())) {}
UsePackedWeights::~UsePackedWeights() { set_packed_weights(previous_); }

void add_rows_later(const std::shared_ptr<ParameterState>& to, const Tensor& x) {
  deferred_now().rows.push_back({to, x});
}

void flush_weights(DeferredGradients& all, const std::vector<NotedWeight>& noted) {
  Deferred& deferred = all.inside();
  deferred.weights.clear();
  for (const auto& [state, uses] : noted) {
    if (uses->x.empty()) continue;
    if (uses->x[0].device() == Device::cuda) {
      deferred.weights.emplace_back(state, uses);
      continue;
    }
    const Tensor x = joined(uses->x), dy = joined(uses->dy);
    // Parameters are row-major; that is all that outer() asks of w.
    const Tensor like({x.size(1), dy.size(1)}, x.type());
    const WeightUse::Gradients found = shaped(outer(like, x, dy, uses->one_bias), uses->shape);
    give(*state, *found.weight);
    if (found.bias) give(*uses->bias, *found.bias);
  }
  flush_deferred(deferred);
}

}  // namespace heed
