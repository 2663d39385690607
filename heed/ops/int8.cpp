#include "heed/ops/int8.h"

#include "heed/kernels/select.h"
#include "heed/ops/fixed_weight.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

// Of k x n. Scales and sums of whole blocks, so that in a file all parts stay aligned.
Int8Tensors parts_of(int64_t k, int64_t n) {
  const int64_t padded = (n + 15) / 16 * 16;
  return {Tensor({kernels::int8_bytes(k, n)}, Type::i8), zeros({padded}),
          zeros({padded}, Type::i32)};
}

// Do the outputs lie along this view's last axis?
bool outputs_last(const Tensor& w, const Int8Matrix& matrix) {
  return matrix.outputs == (w.stride(1) == 1 ? 1 : 0);
}

const Int8Matrix& matrix_of(const char* op, const Tensor& w) {
  const auto& matrix = w.storage()->int8;
  require(matrix != nullptr, op, ": a weight of i8 that int8_weight() did not make");
  return *matrix;
}

}  // namespace

Tensor int8_weight(Int8Tensors parts, const Shape& shape, int outputs) {
  const auto owner = std::make_shared<const Int8Tensors>(std::move(parts));
  Tensor out = look_at({.data = owner->blocks.raw(),  // nobody writes to it
                        .device = Device::cpu,
                        .owner = owner,
                        .constant = true},
                       shape, Type::i8);
  out.storage()->int8 = std::make_shared<const Int8Matrix>(
      Int8Matrix{.weights = {.k = shape[1 - outputs],
                             .n = shape[outputs],
                             .blocks = owner->blocks.data<int8_t>(),
                             .scales = owner->scales.data<float>(),
                             .sums = owner->sums.data<Id>()},
                 .outputs = outputs});
  return out;
}

Tensor int8_weight(const Tensor& given, int outputs) {
  require(given.rank() == 2 && given.type() == Type::f32 && given.device() == Device::cpu,
          "int8_weight: wants f32 [K, N] on a CPU, given ", name(given.type()), " ", given.shape());
  require(outputs == 0 || outputs == 1, "int8_weight: outputs lie along axis 0 or 1, given ",
          outputs);
  const Tensor w = outputs == 1 ? given : transpose(given.detached(), 0, 1);  // [k, n]
  const int64_t k = w.size(0), n = w.size(1);
  Int8Tensors parts = parts_of(k, n);
  kernels::run(kernels::Cpu{},
               kernels::QuantizeWeights{.k = k,
                                        .n = n,
                                        .w = {w.data<float>(), w.stride(0), w.stride(1)},
                                        .blocks = parts.blocks.data<int8_t>(),
                                        .scales = parts.scales.data<float>(),
                                        .sums = parts.sums.data<Id>()});
  return int8_weight(std::move(parts), given.shape(), outputs);
}

Int8Parts int8_parts(const Tensor& tensor) {
  const kernels::Int8Weights& w = matrix_of("int8_parts", tensor).weights;
  const size_t padded = static_cast<size_t>((w.n + 15) / 16 * 16);
  return {std::as_bytes(std::span(w.blocks, static_cast<size_t>(kernels::int8_bytes(w.k, w.n)))),
          std::as_bytes(std::span(w.scales, padded)), std::as_bytes(std::span(w.sums, padded))};
}

std::vector<Tensor> int8_linear_each(const Tensor& given, std::span<const Tensor> w,
                                     std::span<const Tensor> bias, Activation f) {
  const Tensor x = contiguous(given.detached());
  const int64_t k = given.size(-1), rows = x.count() / std::max<int64_t>(1, k);
  std::vector<Tensor> out;
  std::vector<kernels::Int8Matmul> each;
  for (size_t i = 0; i < w.size(); ++i) {
    const Tensor* const b = i < bias.size() ? &bias[i] : nullptr;
    const Int8Matrix& m = matrix_of("linear", w[i]);
    check_fixed_linear(given, w[i], b, m.outputs);
    Shape shape = x.shape();
    shape[x.rank() - 1] = w[i].size(1);
    out.emplace_back(shape, Type::f32);
    each.push_back({.m = rows,
                    .x = x.data<float>(),
                    .x_row = k,
                    .w = m.weights,
                    .bias = b ? b->data<float>() : nullptr,
                    .relu = f == Activation::relu,
                    .y = out.back().data<float>(),
                    .y_row = w[i].size(1)});
  }
  kernels::run(kernels::Cpu{}, kernels::Int8MatmulEach{each});
  for (Tensor& y : out) y = activated(y, f);
  return out;
}

Tensor int8_linear(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                   Activation f) {
  return int8_linear_each(x, {&w, 1}, bias ? std::span(&*bias, 1) : std::span<const Tensor>(),
                          f)[0];
}

Tensor int8_embedding(const Tensor& table, const Tensor& id, const Shape& shape) {
  const Int8Matrix& m = matrix_of("embedding", table);
  require(m.outputs == 0 && table.stride(1) == 1,
          "embedding: a weight of int8 that is no table: its outputs lie along the other axis");
  const Tensor y(shape, Type::f32);
  kernels::run(
      kernels::Cpu{},
      kernels::Int8Columns{
          .count = id.count(), .ids = id.data<Id>(), .w = m.weights, .y = y.data<float>()});
  return y;
}

Tensor int8_columns(const Tensor& w, const Tensor& ids) {
  const Int8Matrix& m = matrix_of("output_columns", w);
  require(outputs_last(w, m),
          "output_columns: a weight of int8 whose outputs lie along the other axis; transpose it");
  const int64_t n = ids.count();
  Int8Tensors parts = parts_of(m.weights.k, n);
  kernels::run(kernels::Cpu{}, kernels::SelectInt8Columns{.n = n,
                                                          .w = m.weights,
                                                          .ids = ids.data<Id>(),
                                                          .blocks = parts.blocks.data<int8_t>(),
                                                          .scales = parts.scales.data<float>(),
                                                          .sums = parts.sums.data<Id>()});
  return int8_weight(std::move(parts), {m.weights.k, n}, 1);
}

}  // namespace heed
