// bf16 (kernels/bf16.h has the numbers and their order, docs/decisions/bf16.md the why): weights
// for inference, and on a CPU products of training.
//
// Such a weight is a Tensor of type bf16 with the shape of the f32 weight it was made from; on a
// CPU it lies in panels. linear() and embedding() take it, also transposed, and x in f32; on a CPU
// every other op refuses it, as it does a weight of int8 (ops/int8.h).
//
// Threads: all functions may be called from any number at once; what is made never changes.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "heed/kernels/bf16.h"
#include "heed/ops/ops.h"

namespace heed {

// What a weight of bf16 holds.
struct Bf16Matrix {
  kernels::Bf16Weights weights;  // [k, n]; the tensor keeps their memory. On a CPU
  int outputs = 1;               // the axis that has them: 1 as in x W, 0 as in a table
};

// w [K, N], f32 on a CPU, in bf16: with `outputs` 1 for linear(x, w), with 0 (w is a table [V, D])
// for embedding(w, id) and linear(x, w^T). In memory of the arena in use.
Tensor bf16_weight(const Tensor& w, int outputs);
// The same for a GPU, from numbers on the host, in memory of the arena in use.
Tensor bf16_weight_on_gpu(std::span<const std::byte> f32, const Shape& shape, int outputs);
// Can a GPU multiply by a weight of this shape? Its rows begin at multiples of 16 bytes.
bool bf16_fits_gpu(const Shape& shape, int outputs);
bool is_bf16_weight(const Tensor& w);

// For linear() and embedding().
// On a GPU x may be bf16 and, for another such product, the result, before any f but relu.
Tensor bf16_linear(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                   Activation f, Type result = Type::f32);
// layer_norm() and add_dropout_norm() without dropout, whose result only such products read: in
// bf16, as they would round it. On a GPU; without a tape.
Tensor bf16_layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, double epsilon);
Normed bf16_add_norm(const Tensor& residual, const Tensor& x, const Tensor& gain,
                     const Tensor& bias, double epsilon);
// Several weights of one size that lie evenly apart, on a GPU, in one launch: [weights, rows, n].
Tensor bf16_linear_each(const Tensor& x, const Tensor& first, int64_t count, int64_t step,
                        const Tensor& first_bias, int64_t bias_step);
Tensor bf16_embedding(const Tensor& table, const Tensor& id, const Shape& shape);
// The outputs `ids` of w alone, a weight [K, number of ids].
Tensor bf16_columns(const Tensor& w, const Tensor& ids);

// Has this CPU the instructions that make products of bf16 faster than those of f32?
bool bf16_products_are_fast();

// While it lives, products of f32 matrices on a CPU, by this thread, round their operands to bf16
// (f32 sums): mixed precision, where weights and activations stay f32. Products of a batch of
// matrices and small ones, with less than 16 rows, columns or steps of k, stay f32; of a weight
// that was packed for several products, as a decoder's steps do, also few rows are rounded.
class UseBf16Products {
 public:
  explicit UseBf16Products(bool on);
  ~UseBf16Products();
  UseBf16Products(const UseBf16Products&) = delete;
  UseBf16Products& operator=(const UseBf16Products&) = delete;

 private:
  const bool before_;
};

}  // namespace heed
