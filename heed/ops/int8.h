// Weights of eight bits, for inference on a CPU: what linear() multiplies by and embedding() looks
// up (kernels/int8.h has the numbers and their layout, docs/decisions/int8.md the why).
//
// Such a weight is a Tensor of type i8 with the shape of the f32 weight it was made from; it knows
// along which of its two axes the outputs lie. linear() and embedding() take it, also transposed;
// every other op refuses it, since its elements do not lie where strides say.
//
// Threads: all functions may be called from any number at once; what is made never changes.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heed/kernels/int8.h"
#include "heed/ops/ops.h"

namespace heed {

// What a tensor of type i8 holds.
struct Int8Matrix {
  kernels::Int8Weights weights;  // [k, n]; the tensor keeps their memory
  int outputs = 1;               // the axis that has them: 1 as in x W, 0 as in a table
};

// w [K, N], f32 on a CPU, in eight bits: with `outputs` 1 for linear(x, w), with 0 (w is a table
// [V, D]) for embedding(w, id) and linear(x, w^T). In memory of the arena in use.
Tensor int8_weight(const Tensor& w, int outputs);

// One whose numbers are there already, as in a file (kernels/int8.h): blocks, and of each output,
// their number rounded up to 16, scales and sums. `shape` is that of the f32 weight.
struct Int8Tensors {
  Tensor blocks, scales, sums;
};
Tensor int8_weight(Int8Tensors parts, const Shape& shape, int outputs);

// The blocks, scales and sums of one, as bytes: for a file.
struct Int8Parts {
  std::span<const std::byte> blocks, scales, sums;
};
Int8Parts int8_parts(const Tensor& w);

// For linear() and embedding().
Tensor int8_linear(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                   Activation f);
// With several weights, for linear_each(): x is quantized once. Biases: one each, or none.
std::vector<Tensor> int8_linear_each(const Tensor& x, std::span<const Tensor> w,
                                     std::span<const Tensor> bias, Activation f);
Tensor int8_embedding(const Tensor& table, const Tensor& id, const Shape& shape);
// Those outputs of w, for OutputColumns: a weight [K, number of ids] whose outputs lie along
// axis 1.
Tensor int8_columns(const Tensor& w, const Tensor& ids);

}  // namespace heed
