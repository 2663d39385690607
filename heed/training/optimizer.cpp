#include "heed/training/optimizer.h"

#include <cmath>

#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {

double gradient_norm(const Params& params) {
  double squares = 0;
  for (const Parameter& p : params.all()) {
    if (!p.value.leaf()->grad) continue;
    const Tensor grad = contiguous(*p.value.leaf()->grad);
    double sum = 0;
    launch("gradient_norm", grad, [&]<class T>() {
      return kernels::SumSquares<T>{.n = grad.count(), .x = grad.data<T>(), .sum = &sum};
    });
    squares += sum;
  }
  return std::sqrt(squares);
}

Adam::Adam(Params params, const AdamOptions& options)
    : params_(std::move(params)), options_(options) {
  for (const Parameter& p : params_.all()) {
    m_.push_back(zeros(p.value.shape(), p.value.type()));
    v_.push_back(zeros(p.value.shape(), p.value.type()));
  }
}

double Adam::step(double rate) {
  require(m_.size() == params_.all().size(), "adam: was made for ", m_.size(),
          " parameters, there are ", params_.all().size(),
          " now; make it when the model is complete");
  const double norm = gradient_norm(params_);
  if (!std::isfinite(norm)) {
    params_.clear_gradients();
    return norm;
  }
  const double clip = options_.clip_norm;
  const double scale = clip > 0 && norm > clip ? clip / norm : 1;
  ++steps_;
  for (size_t i = 0; i < params_.all().size(); ++i) {
    const Tensor& w = params_.all()[i].value;
    if (!w.leaf()->grad) continue;
    const Tensor grad = contiguous(*w.leaf()->grad);
    launch("adam", w, [&]<class T>() {
      return kernels::Adam<T>{.n = w.count(),
                              .grad = grad.data<T>(),
                              .w = w.data<T>(),
                              .m = m_[i].data<T>(),
                              .v = v_[i].data<T>(),
                              .rate = static_cast<T>(rate),
                              .beta1 = static_cast<T>(options_.beta1),
                              .beta2 = static_cast<T>(options_.beta2),
                              .epsilon = static_cast<T>(options_.epsilon),
                              .decay = static_cast<T>(options_.decay),
                              .scale = static_cast<T>(scale),
                              .step = steps_};
    });
    w.leaf()->grad = nullptr;
  }
  return norm;
}

}  // namespace heed
