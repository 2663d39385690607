#include "heed/training/optimizer.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

Adam::Adam(Params params, const AdamOptions& options)
    : params_(std::move(params)),
      options_(options),
      squares_(tensor(std::vector<double>{0}, {1}, Type::f64)) {
  for (const Parameter& p : params_.all()) {
    m_.push_back(zeros(p.value.shape(), p.value.type()));
    v_.push_back(zeros(p.value.shape(), p.value.type()));
  }
}

double Adam::gradient_norm() const { return std::sqrt(squares_.item()); }

void Adam::step(double rate, const RunningMean& mean) {
  require(m_.size() == params_.all().size(), "adam: was made for ", m_.size(),
          " parameters, there are ", params_.all().size(),
          " now; make it when the model is complete");
  std::vector<size_t> moved;
  std::vector<Tensor> grads;
  for (size_t i = 0; i < m_.size(); ++i) {
    const auto& state = params_.all()[i].value.parameter_state();
    if (!state->grad) continue;
    moved.push_back(i);
    grads.push_back(contiguous(*state->grad));
    state->grad = nullptr;
  }
  if (moved.empty()) return;
  ++steps_;
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
    launch("gradient norm", grads[first], [&]<class T>() {
      kernels::SumSquares<T> k{
          .add = first > 0, .sum = squares_.data<double>(), .count = count, .part = {}};
      for (size_t i = 0; i < static_cast<size_t>(count); ++i)
        k.part[i] = {grads[first + i].count(), grads[first + i].data<T>()};
      return k;
    });
  });
  in_runs(moved.size(), [&](size_t first, int count) {
    launch("adam", grads[first], [&]<class T>() {
      kernels::Adam<T> k{.numbers = reinterpret_cast<const kernels::AdamNumbers*>(there.raw()),
                         .squares = squares_.data<double>(),
                         .count = count,
                         .part = {}};
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
        const size_t p = moved[first + i];
        const auto& compute_copy = params_.all()[p].value.parameter_state()->compute_copy;
        k.part[i] = {.n = m_[p].count(),
                     .grad = grads[first + i].data<T>(),
                     .w = params_.all()[p].value.data<T>(),
                     .m = m_[p].data<T>(),
                     .v = v_[p].data<T>(),
                     .average = mean.of ? (*mean.of)[p].data<T>() : nullptr,
                     // Mixed precision: bf16, rounded from the master weights w.
                     .compute_copy = compute_copy ? compute_copy->data<bf16>() : nullptr};
      }
      return k;
    });
  });
}

}  // namespace heed
