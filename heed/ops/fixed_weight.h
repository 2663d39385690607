// What weights that do not change and lie in an order of their own, int8 and bf16, have in common:
// what linear() may be given with them, and how it ends.
#pragma once

#include "heed/ops/ops.h"
#include "heed/ops/tape.h"

namespace heed {

// Throws Error if linear(x, w, bias) cannot be; `outputs`: the axis of the weight, as it was made,
// that has them. `bias` may be null.
inline void check_fixed_linear(const Tensor& x, const Tensor& w, const Tensor* bias, int outputs) {
  const char* const type = w.type() == Type::i8 ? "int8" : "bf16";
  require(x.type() == Type::f32 || (x.type() == Type::bf16 && w.device() == Device::cuda),
          "linear: weights of ", type, " want x in f32, given ", name(x.type()));
  require(!Tape::current() || (!tracked(x) && !(bias && tracked(*bias))), "linear: weights of ",
          type,
          " do not change, and nothing is learnt through them; train the model that they were "
          "made from");
  require(w.rank() == 2 && x.rank() >= 1 && x.size(-1) == w.size(0),
          "linear: inner sizes differ: x is ", x.shape(), ", w is ", w.shape());
  require(!bias || (bias->shape() == Shape{w.size(1)} && bias->contiguous() &&
                    bias->type() == Type::f32),
          "linear: bias wants shape [", w.size(1), "] and type f32");
  // Which of the matrix' own axes is the last of this view?
  require(w.stride(1) == 1 ? outputs == 1 : outputs == 0, "linear: a weight of ", type,
          " whose outputs lie along the other axis; transpose it");
}

// f(y) for a y that relu was applied to already, if f is that.
inline Tensor activated(const Tensor& y, Activation f) {
  switch (f) {
    case Activation::gelu: return gelu(y);
    case Activation::tanh: return tanh(y);
    case Activation::sigmoid: return sigmoid(y);
    case Activation::none:
    case Activation::relu: break;
  }
  return y;
}

}  // namespace heed
