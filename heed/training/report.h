// What an update came to: its losses and the square of its gradients' norm. On a GPU their reading
// is deferred until the next update is under way, so that it never waits for the host.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <vector>

#include "heed/tensor/tensor.h"

namespace heed {

struct StepReport {
  struct Values {
    std::vector<float> losses;
    double squares = 0;
  };
  struct Ticket {
    int64_t losses = 0, squares = 0, count = 0;
    Values known = {};  // on a CPU
  };

  // `losses` are floats, `squares` is one double.
  static Ticket take(const Tensor& losses, const Tensor& squares);
  static Values read(const Ticket& ticket);
};

}  // namespace heed
