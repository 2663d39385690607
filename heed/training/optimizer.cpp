#include "heed/training/optimizer.h"

#include <algorithm>
#include <cmath>

#include "heed/kernels/shards.h"
#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {

namespace {

// Calls body(first, count) for runs of at most as many parameters as a kernel takes.
template <class Body>
void in_runs(size_t n, Body body) {
  for (size_t at = 0; at < n; at += kernels::kMaxParts)
    body(at, static_cast<int>(std::min<size_t>(kernels::kMaxParts, n - at)));
}

// The gradients of all parameters, taken from them, and whose they are.
struct Gradients {
  std::vector<size_t> moved;
  std::vector<Tensor> grads;
};
Gradients taken(const Params& params) {
  Gradients out;
  for (size_t i = 0; i < params.all().size(); ++i) {
    const auto& state = params.all()[i].value.parameter_state();
    if (!state->grad) continue;
    out.moved.push_back(i);
    out.grads.push_back(contiguous(*state->grad));
    state->grad = nullptr;
  }
  return out;
}

// The sum of the squares of all, as one double.
void sum_squares(const std::vector<Tensor>& grads, const Tensor& sum) {
  in_runs(grads.size(), [&](size_t first, int count) {
    launch("gradient norm", grads[first], [&]<class T>() {
      kernels::SumSquares<T> k{
          .add = first > 0, .sum = sum.data<double>(), .count = count, .part = {}};
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        k.part[i] = {grads[first + i].count(), grads[first + i].data<T>()};
      return k;
    });
  });
}

Tensor no_squares() { return tensor(std::vector<double>{0}, {1}, Type::f64); }

void require_complete(const char* who, size_t made_for, const Params& params) {
  require(made_for == params.all().size(), who, ": was made for ", made_for,
          " parameters, there are ", params.all().size(),
          " now; make it when the model is complete");
}

}  // namespace

namespace {

std::vector<Range> whole(const Params& params) {
  std::vector<Range> out;
  for (const Parameter& p : params.all()) out.push_back({0, p.value.count()});
  return out;
}

}  // namespace

Adam::Adam(Params params, const AdamOptions& options) : Adam(params, options, whole(params)) {}

Adam::Adam(Params params, const AdamOptions& options, std::vector<Range> pieces)
    : params_(std::move(params)),
      options_(options),
      pieces_(std::move(pieces)),
      squares_(no_squares()) {
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Type type = params_.all()[i].value.type();
    m_.push_back(zeros({pieces_[i].count()}, type));
    v_.push_back(zeros({pieces_[i].count()}, type));
  }
}

double Adam::gradient_norm() const { return std::sqrt(squares_.item()); }

void Adam::step(double rate, const RunningMean& mean) {
  require_complete("adam", m_.size(), params_);
  const Gradients all = taken(params_);
  if (all.moved.empty()) return;
  ++steps_;
  sum_squares(all.grads, squares_);
  move(rate, mean, all.moved, all.grads);
}

void Adam::step(double rate, const RunningMean& mean, const SummedGradients& sum) {
  require_complete("adam", m_.size(), params_);
  std::vector<size_t> moved;
  std::vector<Tensor> grads;
  bool any = false;
  for (size_t i = 0; i < sum.pieces.size(); ++i) {
    any = any || sum.pieces[i];
    if (!sum.pieces[i] || pieces_[i].count() == 0) continue;
    moved.push_back(i);
    grads.push_back(*sum.pieces[i]);
  }
  if (!any) return;
  ++steps_;
  launch("gradient norm", sum.squares, [&]<class T>() {
    return kernels::Total<T>{
        .n = sum.squares.count(), .x = sum.squares.data<T>(), .sum = squares_.data<double>()};
  });
  move(rate, mean, moved, grads);
}

void Adam::move(double rate, const RunningMean& mean, const std::vector<size_t>& moved,
                const std::vector<Tensor>& grads) {
  const kernels::AdamNumbers numbers{.rate = rate,
                                     .beta1 = options_.beta1,
                                     .beta2 = options_.beta2,
                                     .epsilon = options_.epsilon,
                                     .decay = options_.decay,
                                     .clip = options_.clip_norm,
                                     .average = mean.factor,
                                     .step = steps_};
  const Tensor there = uploaded(std::as_bytes(std::span(&numbers, 1)),
                                {static_cast<int64_t>(sizeof numbers / sizeof(double))}, Type::f64);
  in_runs(moved.size(), [&](size_t first, int count) {
    launch("adam", grads[first], [&]<class T>() {
      kernels::Adam<T> k{.numbers = reinterpret_cast<const kernels::AdamNumbers*>(there.raw()),
                         .squares = squares_.data<double>(),
                         .count = count,
                         .part = {}};
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const size_t p = moved[first + i];
        const int64_t begin = pieces_[p].first;
        const auto& compute_copy = params_.all()[p].value.parameter_state()->compute_copy;
        k.part[i] = {.n = m_[p].count(),
                     .grad = grads[first + i].data<T>(),
                     .w = params_.all()[p].value.data<T>() + begin,
                     .m = m_[p].data<T>(),
                     .v = v_[p].data<T>(),
                     .average = mean.of ? (*mean.of)[p].data<T>() : nullptr,
                     // Mixed precision: bf16, rounded from the master weights w.
                     .compute_copy = compute_copy ? compute_copy->data<bf16>() + begin : nullptr};
      }
      return k;
    });
  });
}

Sgd::Sgd(Params params, const SgdOptions& options)
    : params_(std::move(params)), options_(options), made_for_(params_.all().size()) {
  require(options.momentum >= 0 && options.momentum < 1, "sgd: momentum must be in [0, 1), given ",
          options.momentum);
  if (options.momentum == 0) return;
  for (const Parameter& p : params_.all())
    velocity_.push_back(zeros(p.value.shape(), p.value.type()));
}

void Sgd::step(double rate) {
  require_complete("sgd", made_for_, params_);
  const Gradients all = taken(params_);
  const std::vector<size_t>& moved = all.moved;
  const std::vector<Tensor>& grads = all.grads;
  if (moved.empty()) return;
  const Tensor squares = no_squares();
  sum_squares(grads, squares);
  norm_ = std::sqrt(squares.item());
  if (!std::isfinite(norm_)) return;
  const bool clips = options_.clip_norm > 0 && norm_ > options_.clip_norm;
  const double share = clips ? options_.clip_norm / norm_ : 1;
  for (size_t i = 0; i < moved.size(); ++i) {
    const Tensor w = params_.all()[moved[i]].value.detached();
    const double stays = 1 - rate * options_.decay;
    if (velocity_.empty()) {
      blend(w, stays, grads[i], -rate * share);
    } else {
      const Tensor& v = velocity_[moved[i]];
      blend(v, options_.momentum, grads[i], share);
      blend(w, stays, v, -rate);
    }
  }
  params_.refresh_compute_copies();
}

}  // namespace heed
