// Optimizers: from gradients to new parameters, one pass over memory.
#pragma once

#include <cstdint>
#include <vector>

#include "heed/nn/module.h"

namespace heed {

// The norm of all gradients together, in double: sqrt of the sum of squares.
double gradient_norm(const Params& params);

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-9;
  double decay = 0;      // AdamW's weight decay, times the rate
  double clip_norm = 0;  // gradients are scaled down to this norm; 0: never
};

// Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019).
class Adam {
 public:
  Adam(Params params, const AdamOptions& options = {});

  // Moves every parameter that has a gradient, forgets the gradients, and returns their norm before
  // clipping. Moves nothing if the norm is not finite.
  double step(double rate);

  // For checkpoints: steps made, and the moments of each parameter in order.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const std::vector<Tensor>& m() const { return m_; }
  const std::vector<Tensor>& v() const { return v_; }

 private:
  Params params_;
  AdamOptions options_;
  int64_t steps_ = 0;
  std::vector<Tensor> m_, v_;
};

}  // namespace heed
