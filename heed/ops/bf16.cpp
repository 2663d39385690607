#include "heed/ops/bf16.h"

#include "heed/ops/fixed_weight.h"
#include "heed/tensor/context.h"
#include "heed/tensor/dispatch.h"

namespace heed {

bool is_bf16_weight(const Tensor& w) { return w.storage()->bf16 != nullptr; }

Tensor bf16_weight(const Tensor& given, int outputs) {
  require(given.rank() == 2 && given.type() == Type::f32 && given.device() == Device::cpu,
          "bf16_weight: wants f32 [K, N] on a CPU, given ", name(given.type()), " ", given.shape());
  require(outputs == 0 || outputs == 1, "bf16_weight: outputs lie along axis 0 or 1, given ",
          outputs);
  const Tensor here = contiguous(given.detached());
  const Tensor w = outputs == 1 ? here : transpose(here, 0, 1);  // [k, n]
  const int64_t k = w.size(0), n = w.size(1);
  const auto panels = std::make_shared<const Tensor>(Shape{kernels::bf16_count(k, n)}, Type::bf16);
  kernels::run(kernels::Cpu{}, kernels::PackBf16{.k = k,
                                                 .n = n,
                                                 .w = {w.data<float>(), w.stride(0), w.stride(1)},
                                                 .panels = panels->data<bf16>()});
  Tensor out =
      look_at({.data = panels->raw(), .device = Device::cpu, .owner = panels, .constant = true},
              given.shape(), Type::bf16);
  out.storage()->bf16 = std::make_shared<const Bf16Matrix>(
      Bf16Matrix{.weights = {.k = k, .n = n, .panels = panels->data<bf16>()}, .outputs = outputs});
  return out;
}

Tensor bf16_linear(const Tensor& given, const Tensor& w, const std::optional<Tensor>& bias,
                   Activation f) {
  const Bf16Matrix& m = *w.storage()->bf16;
  check_fixed_linear(given, w, bias ? &*bias : nullptr, m.outputs);
  const Tensor x = contiguous(given.detached());
  const int64_t k = w.size(0), n = w.size(1);
  Shape shape = x.shape();
  shape[x.rank() - 1] = n;
  const Tensor y(shape, Type::f32);
  kernels::run(kernels::Cpu{}, kernels::Bf16Matmul{.m = x.count() / std::max<int64_t>(1, k),
                                                   .x = {x.data<float>(), k, 1},
                                                   .w = m.weights,
                                                   .bias = bias ? bias->data<float>() : nullptr,
                                                   .relu = f == Activation::relu,
                                                   .y = y.data<float>(),
                                                   .y_row = n});
  return activated(y, f);
}

Tensor bf16_embedding(const Tensor& table, const Tensor& id, const Shape& shape) {
  const Bf16Matrix& m = *table.storage()->bf16;
  require(m.outputs == 0 && table.stride(1) == 1,
          "embedding: a weight of bf16 that is no table: its outputs lie along the other axis");
  const Tensor y(shape, Type::f32);
  kernels::run(
      kernels::Cpu{},
      kernels::Bf16Columns{
          .count = id.count(), .ids = id.data<Id>(), .w = m.weights, .y = y.data<float>()});
  return y;
}

// By way of f32, which has all numbers of bf16.
Tensor bf16_columns(const Tensor& w, const Tensor& ids) {
  const Bf16Matrix& m = *w.storage()->bf16;
  const kernels::Bf16Weights& from = m.weights;
  require(m.outputs == (w.stride(1) == 1 ? 1 : 0),
          "output_columns: a weight of bf16 whose outputs lie along the other axis; transpose it");
  const Tensor table({ids.count(), from.k});
  kernels::run(
      kernels::Cpu{},
      kernels::Bf16Columns{
          .count = ids.count(), .ids = ids.data<Id>(), .w = from, .y = table.data<float>()});
  return transpose(bf16_weight(table, 0), 0, 1);
}

bool bf16_products_are_fast() { return kernels::runs_here(kernels::Bf16Path::avx512); }

UseBf16Products::UseBf16Products(bool on) : before_(set_bf16_products(on)) {}
UseBf16Products::~UseBf16Products() { set_bf16_products(before_); }

}  // namespace heed
