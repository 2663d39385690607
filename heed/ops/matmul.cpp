// Matrix products and their gradients: for c = a b, da = dc b^T and db = a^T dc. Transposes are
// views, so all three are the same kernel.
#include <algorithm>

#include "heed/ops/bf16.h"
#include "heed/ops/fixed_weight.h"
#include "heed/ops/int8.h"
#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/ops/weight.h"
#include "heed/tensor/context.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

// The kernel wants one of the last two strides to be 1.
Tensor usable(const Tensor& x) {
  const bool fine = x.stride(-1) == 1 || x.stride(-2) == 1 || x.size(-1) == 1 || x.size(-2) == 1;
  return fine ? x : contiguous(x);
}

template <class T>
kernels::Matrix<const T> matrix(const Tensor& x) {
  int64_t row = x.stride(-2), col = x.stride(-1);
  // The stride of an axis of size 1 means nothing; give it one the kernel understands.
  if (x.size(-1) == 1 && row != 1)
    col = 1;
  else if (x.size(-2) == 1 && col != 1)
    row = 1;
  return {x.data<T>(), row, col};
}

kernels::BatchStride batch_stride(const Tensor& x) {
  return {.outer = x.rank() > 3 ? x.stride(-4) : 0, .inner = x.rank() > 2 ? x.stride(-3) : 0};
}

// a b as a new tensor, not recorded.
Tensor product(const char* op, const Tensor& a, const Tensor& b,
               const ProductOptions& options = {}) {
  Shape shape = a.shape();
  shape[a.rank() - 1] = b.size(-1);
  Tensor c(shape, a.type());
  multiply(op, a, b, c, options);
  return c;
}

// [..., K] as one matrix [rows, K].
Tensor as_rows(const Tensor& x) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x.size(i);
  return reshape(x, {rows, x.size(-1)});
}

Tensor transposed(const Tensor& x) { return transpose(x, -1, -2); }

// db = a^T dc, laid out as b is: the gradient of a transposed view is one too.
Tensor right_gradient(const char* op, const Tensor& a, const Tensor& dc, const Tensor& b) {
  const bool b_transposed = b.stride(-1) != 1 && b.stride(-2) == 1;
  return b_transposed ? transposed(product(op, transposed(dc), a)) : product(op, transposed(a), dc);
}

// Are operands of this product rounded to bf16 (ops/bf16.h)?
bool in_bf16(const Tensor& a, const Tensor& b, const ProductOptions& options) {
  if (options.packed_b) return options.packed_b->type() == Type::bf16;
  constexpr int64_t kSmall = 16;
  return bf16_products() && a.device() == Device::cpu && a.type() == Type::f32 && a.rank() == 2 &&
         std::min({a.size(0), a.size(1), b.size(1)}) >= kSmall;
}

void multiply_in_bf16(const char* op, const Tensor& a, const Tensor& b, const Tensor& c,
                      const ProductOptions& options) {
  const auto run = [&](auto product) {
    product.m = a.size(0), product.x = matrix<float>(a);
    product.bias = options.bias ? options.bias->data<float>() : nullptr;
    product.relu = options.activation == Activation::relu;
    product.accumulate = options.accumulate;
    product.y = c.data<float>(), product.y_row = c.stride(0);
    launch_on(op, Device::cpu, Type::f32, product);
  };
  const int64_t k = b.size(0), n = b.size(1);
  if (options.packed_b)
    run(kernels::Bf16Matmul{.w = {k, n, options.packed_b->data<bf16>()}});
  else
    run(kernels::Bf16Product{.n = n, .k = k, .w = matrix<float>(b)});
  if (options.activation == Activation::none || options.activation == Activation::relu) return;
  const NoTape off;
  copy_into(activated(c, options.activation), c);
}

}  // namespace

void multiply(const char* op, const Tensor& a_given, const Tensor& b_given, const Tensor& c,
              const ProductOptions& options) {
  const Tensor a = usable(a_given), b = usable(b_given);
  if (in_bf16(a, b, options)) return multiply_in_bf16(op, a, b, c, options);
  const auto product = [&]<class T, class C>() {
    return kernels::Matmul<T, C>{
        .m = a.size(-2),
        .n = b.size(-1),
        .k = a.size(-1),
        .a = matrix<T>(a),
        .b = matrix<T>(b),
        .c = {c.data<C>(), c.stride(-2)},
        .accumulate = options.accumulate,
        .bias = options.bias ? options.bias->data<T>() : nullptr,
        .activation = options.activation,
        .outer = a.rank() > 3 ? a.size(-4) : 1,
        .inner = a.rank() > 2 ? a.size(-3) : 1,
        .a_batch = batch_stride(a),
        .b_batch = batch_stride(b),
        .c_batch = batch_stride(c),
        .packed_b = options.packed_b ? options.packed_b->data<T>() : nullptr};
  };
  if (a.type() == Type::bf16 && c.type() == Type::f32)
    return launch_on(op, a.device(), a.type(), product.template operator()<bf16, float>());
  launch(op, a, [&]<class T>() { return product.template operator()<T, T>(); });
}

Tensor packed(const char* op, const Tensor& given) {
  const Tensor b = usable(given);
  if (bf16_products() && b.type() == Type::f32 && b.device() == Device::cpu) {
    const int64_t k = b.size(0), n = b.size(1);
    const Tensor panels({kernels::bf16_count(k, n)}, Type::bf16);
    launch_on(
        op, Device::cpu, Type::f32,
        kernels::PackBf16{.k = k, .n = n, .w = matrix<float>(b), .panels = panels.data<bf16>()});
    return panels;
  }
  Tensor out({kernels::packed_size(b.size(0), b.size(1))}, b.type());
  launch(op, b, [&]<class T>() {
    return kernels::PackMatrix<T>{
        .k = b.size(0), .n = b.size(1), .b = matrix<T>(b), .packed = out.data<T>()};
  });
  return out;
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  require(a.rank() >= 2 && b.rank() >= 2 && a.rank() <= 4, "matmul: wants 2 to 4 axes: a is ",
          a.shape(), ", b is ", b.shape());
  require(a.type() == b.type(), "matmul: types differ: a is ", name(a.type()), ", b is ",
          name(b.type()));
  require(a.size(-1) == b.size(-2), "matmul: inner sizes differ: a is ", a.shape(), ", b is ",
          b.shape());
  if (b.rank() == 2 && a.rank() > 2) {
    Shape shape = a.shape();
    shape[a.rank() - 1] = b.size(-1);
    return reshape(matmul(as_rows(a), b), shape);
  }
  require(
      a.rank() == b.rank() && std::equal(a.shape().begin(), a.shape().end() - 2, b.shape().begin()),
      "matmul: axes before the last two differ: a is ", a.shape(), ", b is ", b.shape());
  const bool da = tracked(a), db = tracked(b);
  return record("matmul", {&a, &b}, product("matmul", a, b),
                [a = a.detached(), b = b.detached(), da, db](const Tensor& dy) {
                  Grads grads(2);
                  if (da) grads[0] = product("matmul", dy, transposed(b));
                  if (db) grads[1] = right_gradient("matmul", a, dy, b);
                  return grads;
                });
}

namespace {

void check_linear(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias) {
  require(x.rank() >= 1 && (w.rank() == 2 || (w.rank() == 3 && w.size(0) == 1)) &&
              x.size(-1) == w.size(-2),
          "linear: inner sizes differ: x is ", x.shape(), ", w is ", w.shape());
  require(x.type() == w.type(), "linear: types differ: x is ", name(x.type()), ", w is ",
          name(w.type()));
  require(!bias || (bias->shape() == Shape{w.size(-1)} && bias->contiguous() &&
                    bias->type() == w.type()),
          "linear: bias wants shape [", w.size(-1), "] and type ", name(w.type()), ", given ",
          bias ? bias->shape() : Shape{}, " ", name(bias ? bias->type() : w.type()));
}

Shape linear_shape(const Tensor& x, const Tensor& w) {
  Shape shape = x.shape();
  shape[x.rank() - 1] = w.size(-1);
  return shape;
}

// The backward pass of y = f(input w + bias); `saved` for it: what f's derivative is made from. Of
// relu that may be what dropout left of y, of which a share of p is 0.
Tensor recorded_linear(const Tensor& input, const Tensor& w, const std::optional<Tensor>& bias,
                       Activation f, const WeightUse& used, const Tensor& saved, const Tensor& y,
                       double p = 0) {
  if (!Tape::current()) return reshape(y, linear_shape(input, w));
  const bool dx = tracked(input), dw = tracked(w), dbias = bias && tracked(*bias);
  return record("linear", {&input, &w, bias ? &*bias : nullptr}, reshape(y, linear_shape(input, w)),
                [x = as_rows(input.detached()), to = Destination(input), shape = input.shape(),
                 use = used, saved, f, p, dx, dw, dbias](Tensor dy) mutable {
                  dy = as_rows(contiguous(dy));
                  if (f != Activation::none) {
                    constexpr kernels::Unary unary[] = {kernels::Unary::copy, kernels::Unary::relu,
                                                        kernels::Unary::gelu, kernels::Unary::tanh,
                                                        kernels::Unary::sigmoid};
                    Tensor through = reusable(dy);
                    launch("linear", dy, [&]<class T>() {
                      return kernels::MapGrad<T>{
                          .f = unary[static_cast<size_t>(f)],
                          .n = dy.count(),
                          .x_or_y = saved.data<T>(),
                          .dy = dy.data<T>(),
                          .dx = through.data<T>(),
                          .scale = 1 / (1 - static_cast<kernels::Wide<T>>(static_cast<float>(p)))};
                    });
                    dy = through;
                  }
                  Grads grads(3);
                  if (dx) {
                    const std::optional<Tensor> begun = to.begun();
                    const Tensor into = begun ? as_rows(*begun) : Tensor(x.shape(), dy.type());
                    multiply("linear", dy, transposed(use.w()), into,
                             {.accumulate = begun.has_value(),
                              .packed_b = use.packed_transposed(dy.size(0))});
                    if (!begun) grads[0] = reshape(into, shape);
                  }
                  if (dw) {
                    WeightUse::Gradients found = use.gradients(x, dy, dbias);
                    if (found.weight) grads[1] = *found.weight;
                    if (found.bias) grads[2] = *found.bias;
                  } else if (dbias) {
                    grads[2] = sum(dy, 0);
                  }
                  return grads;
                });
}

// How far apart tensors lie in memory, in elements, if evenly.
std::optional<int64_t> even_step(std::span<const Tensor> x) {
  const auto place = [&](size_t i) { return reinterpret_cast<intptr_t>(x[i].raw()); };
  const intptr_t step = place(1) - place(0), size = static_cast<intptr_t>(size_of(x[0].type()));
  for (size_t i = 1; i < x.size(); ++i)
    if (place(i) - place(i - 1) != step) return std::nullopt;
  return step > 0 && step % size == 0 ? std::optional<int64_t>(step / size) : std::nullopt;
}

// What linear_dropout() drops of relu's result, if anything.
struct Dropped {
  double p = 0;
  kernels::Seed seed{};
};

// Where nothing is recorded and the weight is packed, as in a decoder's steps: the product alone.
std::optional<Tensor> linear_of_packed(const Tensor& given, const Tensor& w,
                                       const std::optional<Tensor>& bias, Activation f) {
  const PackedWeights* const all = packed_weights();
  if (!all || Tape::current() || w.rank() != 2 || w.device() != Device::cpu) return std::nullopt;
  const Tensor* const packed = all->ready(w);
  if (!packed || packed->type() != given.type()) return std::nullopt;
  const Tensor x = contiguous(given);
  const int64_t k = w.size(0), n = w.size(1);
  Tensor y(linear_shape(x, w), x.type());
  launch("linear", x, [&]<class T>() {
    return kernels::Matmul<T>{.m = x.count() / std::max<int64_t>(1, k),
                              .n = n,
                              .k = k,
                              .a = {x.data<T>(), k, 1},
                              .b = matrix<T>(w),
                              .c = {y.data<T>(), n},
                              .bias = bias ? bias->data<T>() : nullptr,
                              .activation = f,
                              .a_batch = {},
                              .b_batch = {},
                              .c_batch = {},
                              .packed_b = packed->data<T>()};
  });
  return y;
}

Tensor linear_of(const Tensor& given, const Tensor& w, const std::optional<Tensor>& bias,
                 Activation f, const Dropped& dropped) {
  check_linear(given, w, bias);
  if (dropped.p == 0)
    if (const auto y = linear_of_packed(given, w, bias, f)) return *y;
  const Tensor input = contiguous(given), x = as_rows(input.detached());
  const bool activated = f != Activation::none;
  // The derivative of tanh and sigmoid is made from the result; those of relu and gelu from what
  // went in, which relu's result can stand in for, having the same sign.
  const bool needs_input =
      f == Activation::gelu && (tracked(input) || tracked(w) || (bias && tracked(*bias)));
  WeightUse use(w, bias ? bias->parameter_state() : nullptr);
  const int64_t rows = x.size(0);
  Tensor y = product("linear", x, use.w(),
                     {.bias = bias,
                      .activation = needs_input ? Activation::none : f,
                      .packed_b = use.packed(rows)});
  if (dropped.p > 0) {
    const NoTape off;
    y = dropout(y, dropped.p, dropped.seed);
  }
  Tensor saved;
  if (activated) saved = y;
  if (needs_input) {
    const NoTape off;
    y = gelu(y);
  }
  return recorded_linear(input, w, bias, f, use, saved, y, dropped.p);
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias, Activation f) {
  if (w.type() == Type::i8) return int8_linear(x, w, bias, f);
  if (is_bf16_weight(w)) return bf16_linear(x, w, bias, f);
  return linear_of(x, w, bias, f, {});
}

Tensor linear_dropout(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                      Activation f, double p, kernels::Seed seed) {
  require(p >= 0 && p < 1, "linear_dropout: p must be in [0, 1), given ", p);
  if (f != Activation::relu) return dropout(linear(x, w, bias, f), p, seed);
  return linear_of(x, w, bias, f, {p, seed});
}

Tensor linear_dropout(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                      Activation f, double p) {
  Tape* const tape = Tape::current();
  return tape && p != 0 ? linear_dropout(x, w, bias, f, p, tape->draw()) : linear(x, w, bias, f);
}

std::vector<Tensor> linear_each(const Tensor& given, std::span<const Tensor> w,
                                std::span<const Tensor> bias) {
  require(w.size() == bias.size() && !w.empty(), "linear_each: ", w.size(), " weights, ",
          bias.size(), " biases");
  if (std::ranges::all_of(w, [](const Tensor& one) { return one.type() == Type::i8; }))
    return int8_linear_each(given, w, bias, Activation::none);
  const bool bf16 = std::ranges::all_of(w, is_bf16_weight);
  bool together = given.device() == Device::cuda && w.size() > 1 && given.count() > 0;
  for (size_t i = 0; i < w.size(); ++i) {
    if (w[i].type() != Type::i8 && !is_bf16_weight(w[i])) check_linear(given, w[i], bias[i]);
    together = together && w[i].shape() == w[0].shape() && w[i].contiguous() &&
               is_bf16_weight(w[i]) == bf16;
  }
  const std::optional<int64_t> step = together ? even_step(w) : std::nullopt,
                               bias_step = together ? even_step(bias) : std::nullopt;
  std::vector<Tensor> out;
  if (!step || !bias_step) {
    for (size_t i = 0; i < w.size(); ++i) out.push_back(linear(given, w[i], bias[i]));
    return out;
  }
  const Tensor input = contiguous(given), x = as_rows(input.detached());
  const int64_t rows = x.size(0), n = w[0].size(-1), count = std::ssize(w);
  if (bf16) {
    const Tensor all = bf16_linear_each(x, w[0], count, *step, bias[0], *bias_step);
    for (int64_t i = 0; i < count; ++i)
      out.push_back(reshape(all.view({rows, n}, {n, 1}, i * rows * n), linear_shape(given, w[0])));
    return out;
  }
  const Tensor all({count, rows, n}, x.type());
  launch("linear", x, [&]<class T>() {
    return kernels::Matmul<T>{.m = rows,
                              .n = n,
                              .k = x.size(1),
                              .a = matrix<T>(x),
                              .b = {w[0].data<T>(), n, 1},
                              .c = {all.data<T>(), n},
                              .bias = bias[0].data<T>(),
                              .bias_step = *bias_step,
                              .inner = count,
                              .a_batch = {},
                              .b_batch = {.outer = 0, .inner = *step},
                              .c_batch = {.outer = 0, .inner = rows * n}};
  });
  for (size_t i = 0; i < w.size(); ++i)
    out.push_back(recorded_linear(input, w[i], bias[i], Activation::none,
                                  WeightUse(w[i], bias[i].parameter_state()), {},
                                  all.view({rows, n}, {n, 1}, static_cast<int64_t>(i) * rows * n)));
  return out;
}

}  // namespace heed
