// The gradients of a model's parameters against differences of its loss.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "heed/ops/ops.h"

namespace heed {

// `loss` is of parameters in f64; four of each parameter's numbers are moved.
inline void expect_right_gradients(const Params& params, const std::function<Tensor()>& loss) {
  {
    Tape tape;
    tape.backward(loss());
  }
  double largest = 0;  // of all gradients: differences are rounded by the loss they are of
  for (const Parameter& p : params.all())
    if (p.value.parameter_state()->grad)
      for (const double g : p.value.parameter_state()->grad->values()) {
        ASSERT_TRUE(std::isfinite(g)) << p.name;  // also where nothing is moved
        largest = std::max(largest, std::abs(g));
      }
  for (const Parameter& p : params.all()) {
    const std::vector<double> grad = p.value.parameter_state()->grad
                                         ? p.value.parameter_state()->grad->values()
                                         : std::vector<double>(size_t(p.value.count()));
    double* w = p.value.data<double>();
    const int64_t stride = std::max<int64_t>(1, p.value.count() / 4);
    for (int64_t i = 0; i < p.value.count(); i += stride) {
      constexpr double kMove = 1e-5;
      const double kept = w[i];
      w[i] = kept + kMove;
      const double above = loss().item();
      w[i] = kept - kMove;
      const double below = loss().item();
      w[i] = kept;
      EXPECT_NEAR(grad[static_cast<size_t>(i)], (above - below) / (2 * kMove), 1e-7 * largest)
          << p.name << "[" << i << "]";
    }
  }
}

}  // namespace heed
