#include "heed/ops/bf16.h"

#include <cstring>
#include <vector>

#include "heed/base/parallel.h"
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

bool bf16_fits_gpu(const Shape& shape, int outputs) {
  // Rows of a weight, and of what it is multiplied with.
  return shape[1] % 8 == 0 && (outputs == 0 || shape[0] % 8 == 0);
}

Tensor bf16_weight_on_gpu(std::span<const std::byte> f32, const Shape& shape, int outputs) {
  require(current_arena().device() == Device::cuda && shape.rank() == 2 &&
              static_cast<size_t>(shape.count()) * sizeof(float) == f32.size() &&
              bf16_fits_gpu(shape, outputs),
          "bf16_weight_on_gpu: cannot be of shape ", shape, ", in ", f32.size(), " bytes");
  std::vector<uint16_t> rounded(static_cast<size_t>(shape.count()));
  constexpr int64_t kGrain = 1 << 16;
  parallel_for(shape.count(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, f32.data() + static_cast<size_t>(i) * sizeof bits, sizeof bits);
      // To nearest, ties to even; weights of a file are finite.
      rounded[static_cast<size_t>(i)] =
          static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
    }
  });
  const Tensor out = uploaded(std::as_bytes(std::span(rounded)), shape, Type::bf16);
  out.storage()->bf16 =
      std::make_shared<const Bf16Matrix>(Bf16Matrix{.weights = {}, .outputs = outputs});
  return out;
}

namespace {

template <class X, class Y>
kernels::Bf16Rows<X, Y> rows_of(const Tensor& x, const Tensor& w, const Tensor* bias,
                                const Tensor& y) {
  const int64_t k = w.size(0), n = w.size(1);
  return {.m = x.count() / k,
          .n = n,
          .k = k,
          .x = x.data<X>(),
          .w = {w.data<bf16>(), w.stride(0), w.stride(1)},
          .bias = bias ? bias->data<float>() : nullptr,
          .y = y.data<Y>()};
}

Tensor linear_on_gpu(const Tensor& x, const Tensor& w, const Tensor* bias, Activation f,
                     Type result) {
  Shape shape = x.shape();
  shape[x.rank() - 1] = w.size(1);
  const Tensor y(shape, result);
  const auto launch = [&](auto product) {
    product.relu = f == Activation::relu;
    launch_on("linear", Device::cuda, Type::bf16, product);
  };
  const Launching now("linear", Device::cuda);
  const auto to = [&]<class Y>() {
    if (x.type() == Type::bf16)
      launch(rows_of<bf16, Y>(x, w, bias, y));
    else
      launch(rows_of<float, Y>(x, w, bias, y));
  };
  result == Type::bf16 ? to.template operator()<bf16>() : to.template operator()<float>();
  return activated(y, f);
}

}  // namespace

Tensor bf16_linear_each(const Tensor& given, const Tensor& first, int64_t count, int64_t step,
                        const Tensor& first_bias, int64_t bias_step) {
  check_fixed_linear(given, first, &first_bias, first.storage()->bf16->outputs);
  const Tensor x = contiguous(given.detached());
  const int64_t n = first.size(1);
  const Tensor all({count, x.count() / first.size(0), n}, Type::f32);
  const Launching now("linear", Device::cuda);
  const auto launch = [&](auto product) {
    product.items = count, product.w_step = step, product.bias_step = bias_step;
    launch_on("linear", Device::cuda, Type::bf16, product);
  };
  if (x.type() == Type::bf16)
    launch(rows_of<bf16, float>(x, first, &first_bias, all));
  else
    launch(rows_of<float, float>(x, first, &first_bias, all));
  return all;
}

namespace {

Normed norm_on_gpu(const Tensor& given, const Tensor* more, const Tensor& gain, const Tensor& bias,
                   double epsilon) {
  const char* const op = "layer_norm";
  require(!Tape::current() && given.device() == Device::cuda && given.type() == Type::f32 &&
              gain.shape() == Shape{given.size(-1)} && bias.shape() == gain.shape() &&
              (!more || (more->shape() == given.shape() && more->type() == Type::f32)),
          op, ": in bf16, wants f32 on a GPU, given ", name(given.type()), " ", given.shape());
  const Tensor x = contiguous(given), y(x.shape(), Type::bf16);
  const Tensor added = more ? contiguous(*more) : x, sum = more ? empty_like(x) : x;
  const int64_t n = x.size(-1), rows = n == 0 ? 0 : x.count() / n;
  const Tensor saved({2, rows}, Type::f32);  // mean and r, which nobody asks for
  const Launching now(op, Device::cuda);
  kernels::Bf16Norm k{.norm = {.rows = rows,
                               .n = n,
                               .centered = true,
                               .epsilon = static_cast<float>(epsilon),
                               .x = x.data<float>(),
                               .gain = gain.data<float>(),
                               .bias = bias.data<float>(),
                               .y = nullptr,
                               .mean = saved.data<float>(),
                               .r = saved.data<float>() + rows},
                      .y = y.data<bf16>()};
  if (more) k.norm.of = {0, {}, added.data<float>(), sum.data<float>()};
  launch_on(op, Device::cuda, Type::bf16, k);
  return {sum, y};
}

}  // namespace

Tensor bf16_layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, double epsilon) {
  return norm_on_gpu(x, nullptr, gain, bias, epsilon).normed;
}
Normed bf16_add_norm(const Tensor& residual, const Tensor& x, const Tensor& gain,
                     const Tensor& bias, double epsilon) {
  return norm_on_gpu(residual, &x, gain, bias, epsilon);
}

Tensor bf16_linear(const Tensor& given, const Tensor& w, const std::optional<Tensor>& bias,
                   Activation f, Type result) {
  const Bf16Matrix& m = *w.storage()->bf16;
  check_fixed_linear(given, w, bias ? &*bias : nullptr, m.outputs);
  const Tensor x = contiguous(given.detached());
  if (w.device() == Device::cuda) return linear_on_gpu(x, w, bias ? &*bias : nullptr, f, result);
  require(result == Type::f32, "linear: of a CPU its results are f32");
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
  if (table.device() == Device::cuda) {
    const Launching now("embedding", Device::cuda);
    launch_on("embedding", Device::cuda, Type::bf16,
              kernels::Bf16Gather{.count = id.count(),
                                  .n = table.size(1),
                                  .table = table.data<bf16>(),
                                  .id = id.data<Id>(),
                                  .y = y.data<float>()});
    return y;
  }
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
