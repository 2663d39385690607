// A gradient broken on purpose: what a check of gradients must catch.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "heed/ops/ops.h"

namespace heed {

// x, but what flows back into it is off by one percent in its largest place: as if the op behind
// had one wrong number in its gradient. `seen` is set to how large that number is.
inline Tensor with_a_slip(const Tensor& x, double& seen) {
  return record("slip", {&x}, x, [&seen](const Tensor& dy) {
    std::vector<double> wrong = dy.values();
    const auto smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
    double& most = *std::max_element(wrong.begin(), wrong.end(), smaller);
    seen = std::abs(most);
    most *= 1.01;
    return Grads{tensor(wrong, dy.shape(), Type::f64)};
  });
}

}  // namespace heed
