// Optimizers: from gradients to new parameters, one pass over memory. In mixed precision the
// parameters are f32 master weights, gradients are f32 too, and the same pass writes the bf16
// compute copies that the next forward and backward pass multiply by.
//
// Threads: one trains at a time with a set of parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "heed/nn/module.h"

namespace heed {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.98, epsilon = 1e-9;
  double decay = 0;      // AdamW's weight decay, times the rate
  double clip_norm = 0;  // gradients are scaled down to this norm; 0: never
};

// What a step does beside moving the parameters: an exponential mean of each, or of the pieces of
// them that move, in their order, moves after it.
struct RunningMean {
  const std::vector<Tensor>* of = nullptr;  // null: none
  double factor = 0;                        // what stays of the mean
};

// Elements [first, last) of an array.
struct Range {
  int64_t first = 0, last = 0;
  int64_t count() const { return last - first; }
};

// What the gradients of several micro-batches, of several ranks, came to (training/gradient_sum.h).
struct SummedGradients {
  // By parameter, the sum of what this rank has of it, flat; where no micro-batch has a gradient,
  // none.
  std::vector<std::optional<Tensor>> pieces;
  Tensor squares;  // by block, of all parameters
};

// Adam (Kingma and Ba, 2015) and AdamW (Loshchilov and Hutter, 2019).
class Adam {
 public:
  Adam(Params params, const AdamOptions& options = {});
  // Of each parameter only these elements.
  Adam(Params params, const AdamOptions& options, std::vector<Range> pieces);

  // Moves every parameter that has a gradient and forgets the gradients. Moves nothing if their
  // norm is non-finite; the caller asks for it where it wants to know, which on a GPU means to
  // wait.
  void step(double rate, const RunningMean& mean = {});
  // The same by these, of the pieces.
  void step(double rate, const RunningMean& mean, const SummedGradients& sum);
  double gradient_norm() const;                       // at the last step, before clipping
  const Tensor& squares() const { return squares_; }  // its square

  // For checkpoints: steps made, and the moments of each piece in order, flat.
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const std::vector<Tensor>& m() const { return m_; }
  const std::vector<Tensor>& v() const { return v_; }

 private:
  void move(double rate, const RunningMean& mean, const std::vector<size_t>& moved,
            const std::vector<Tensor>& grads);

  Params params_;
  AdamOptions options_;
  std::vector<Range> pieces_;
  int64_t steps_ = 0;
  std::vector<Tensor> m_, v_;
  Tensor squares_;  // the sum of the squares of all gradients: one double
};

struct SgdOptions {
  double momentum = 0;   // what stays of the velocity: v = momentum v + gradient
  double decay = 0;      // weight decay, times the rate: not part of the gradient (as AdamW's)
  double clip_norm = 0;  // gradients are scaled down to this norm; 0: never
};

// Stochastic gradient descent, with momentum if wanted (Polyak, 1964): w -= rate v. Each step waits
// for the norm of the gradients, on a GPU too.
class Sgd {
 public:
  explicit Sgd(Params params, const SgdOptions& options = {});

  // As Adam's.
  void step(double rate);
  double gradient_norm() const { return norm_; }

 private:
  Params params_;
  SgdOptions options_;
  size_t made_for_;               // parameters
  std::vector<Tensor> velocity_;  // of each parameter; none without momentum
  double norm_ = 0;
};

}  // namespace heed
