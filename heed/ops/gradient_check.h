// Checks a gradient against finite differences. Part of the library, so that whoever writes an op,
// a score or a layer of their own can check it.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heed/tensor/tensor.h"

namespace heed {

struct GradientCheck {
  double worst = 0;   // the largest difference, relative to the largest gradient of that input
  std::string where;  // "input 1, number 7: 0.25 by the tape, 0.31 by differences"
};

// f is a function of f64 tensors, written in ops. Its result is summed with uneven weights, so that
// no two errors cancel, and each input element is moved by +-step. A right gradient gives worst
// below about 1e-7; a wrong one is seldom under 1e-3.
GradientCheck check_gradient(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                             const std::vector<Tensor>& inputs, double step = 1e-5);

}  // namespace heed
