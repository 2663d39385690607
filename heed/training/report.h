// What an update came to: its losses and the square of its gradients' norm. On a GPU they are read
// when the next update is under way, so that it never waits for the host.
#pragma once

#include <vector>

#include "heed/tensor/tensor.h"

namespace heed {

struct StepReport {
  struct Numbers {
    std::vector<float> losses;
    double squares = 0;
  };
  struct Ticket {
    int64_t losses = 0, squares = 0, count = 0;
    Numbers known = {};  // on a CPU
  };

  // `losses` are floats, `squares` is one double.
  static Ticket take(const Tensor& losses, const Tensor& squares);
  static Numbers read(const Ticket& ticket);
};

}  // namespace heed
