// Elementwise ops: arithmetic with broadcast, activations, dropout, casts.
#include <algorithm>

#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {

using kernels::Binary;
using kernels::Unary;

namespace {

void require_number(const char* op, const Tensor& x) {
  require(x.defined(), op, ": given no tensor");
  require(x.type() != Type::i32, op, ": wants numbers, given ", name(x.type()));
}

void require_same_type(const char* op, const Tensor& a, const Tensor& b) {
  require_number(op, a);
  require_number(op, b);
  require(a.type() == b.type(), op, ": types differ: a is ", name(a.type()), ", b is ",
          name(b.type()));
}

Tensor unary(const char* op, Unary f, const Tensor& input) {
  require_number(op, input);
  const Tensor x = contiguous(input);
  Tensor y = empty_like(x);
  launch(op, x, [&]<class T>() {
    return kernels::Map<T>{.f = f, .n = x.count(), .x = x.data<T>(), .y = y.data<T>()};
  });
  const Tensor saved = (kernels::gradient_reads_result(f) ? y : x).detached();
  return record(op, {&x}, y, [op, f, saved](Tensor dy) {
    dy = contiguous(dy);
    Tensor dx = reusable(dy);
    launch(op, dy, [&]<class T>() {
      return kernels::MapGrad<T>{.f = f,
                                 .n = dy.count(),
                                 .x_or_y = saved.data<T>(),
                                 .dy = dy.data<T>(),
                                 .dx = dx.data<T>()};
    });
    return Grads{dx};
  });
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape out = a.rank() >= b.rank() ? a : b;
  for (int i = 1; i <= rank; ++i) {
    const int64_t m = i <= a.rank() ? a[a.rank() - i] : 1, n = i <= b.rank() ? b[b.rank() - i] : 1;
    require(m == n || m == 1 || n == 1, op, ": shapes cannot be broadcast: a is ", a, ", b is ", b);
    out[rank - i] = m == 1 ? n : m;
  }
  return out;
}

// Strides of x seen as `shape`: 0 where it is repeated.
Shape strides_as(const Tensor& x, const Shape& shape) {
  Shape stride = shape;
  for (int i = 1; i <= shape.rank(); ++i) {
    const bool repeated = i > x.rank() || (x.size(-i) == 1 && shape[shape.rank() - i] != 1);
    stride[shape.rank() - i] = repeated ? 0 : x.stride(-i);
  }
  return stride;
}

// c = f(a, b), not recorded.
Tensor zip(const char* op, Binary f, const Tensor& a_given, const Tensor& b_given) {
  const Shape shape = broadcast(op, a_given.shape(), b_given.shape());
  // The kernel wants the stride of its last axis, the last whose size is not 1, to be 0 or 1.
  const auto usable = [](const Tensor& x) {
    int last = x.rank() - 1;
    while (last >= 0 && x.size(last) == 1) --last;
    return last < 0 || x.stride(last) == 1 ? x : contiguous(x);
  };
  const Tensor a = usable(a_given), b = usable(b_given);
  Tensor c(shape, a.type());
  if (c.count() == 0) return c;
  Shape as = strides_as(a, shape), bs = strides_as(b, shape);
  launch(op, a, [&]<class T>() {
    kernels::Zip<T> k{.f = f,
                      .rank = 0,
                      .size = {},
                      .a_stride = {},
                      .b_stride = {},
                      .a = a.data<T>(),
                      .b = b.data<T>(),
                      .c = c.data<T>()};
    // Neighbouring axes that both operands walk through without a jump are one axis.
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] == 1) continue;
      const int last = k.rank - 1;
      if (last >= 0 && k.a_stride[last] == as[i] * shape[i] &&
          k.b_stride[last] == bs[i] * shape[i]) {
        k.size[last] *= shape[i];
        k.a_stride[last] = as[i];
        k.b_stride[last] = bs[i];
      } else {
        k.size[k.rank] = shape[i];
        k.a_stride[k.rank] = as[i];
        k.b_stride[k.rank] = bs[i];
        ++k.rank;
      }
    }
    if (k.rank == 0) k.rank = 1, k.size[0] = 1;
    HEED_ASSERT(k.a_stride[k.rank - 1] <= 1 && k.b_stride[k.rank - 1] <= 1);
    return k;
  });
  return c;
}

// The gradient of a broadcast: summed over every axis along which `shape` was repeated.
Tensor sum_to(Tensor x, const Shape& shape) {
  const Type type = x.type();
  while (x.rank() > shape.rank()) x = sum(x, 0);
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] == 1 && x.size(i) != 1) {
      Shape kept = x.shape();
      kept[i] = 1;
      x = reshape(sum(x, i), kept);
    }
  return cast(x, type);
}

Tensor scaled(const char* op, const Tensor& given, double factor, double term) {
  require_number(op, given);
  const Tensor x = contiguous(given);
  Tensor y = term == 0 ? empty_like(x) : full(x.shape(), term, x.type());
  launch(op, x, [&]<class T>() {
    return kernels::Axpby<T>{.n = x.count(),
                             .alpha = static_cast<kernels::Wide<T>>(factor),
                             .x = x.data<T>(),
                             .beta = static_cast<kernels::Wide<T>>(term == 0 ? 0 : 1),
                             .y = y.data<T>()};
  });
  return record(op, {&x}, y, [factor](const Tensor& dy) { return Grads{dy * factor}; });
}

}  // namespace

Tensor operator+(const Tensor& a, const Tensor& b) {
  require_same_type("add", a, b);
  return record(
      "add", {&a, &b}, zip("add", Binary::add, a, b),
      [as = a.shape(), bs = b.shape(), da = tracked(a), db = tracked(b)](const Tensor& dy) {
        Grads grads(2);
        if (da) grads[0] = sum_to(dy, as);
        if (db) grads[1] = sum_to(dy, bs);
        return grads;
      });
}

Tensor operator-(const Tensor& a, const Tensor& b) {
  require_same_type("subtract", a, b);
  return record(
      "subtract", {&a, &b}, zip("subtract", Binary::subtract, a, b),
      [as = a.shape(), bs = b.shape(), da = tracked(a), db = tracked(b)](const Tensor& dy) {
        Grads grads(2);
        if (da) grads[0] = sum_to(dy, as);
        if (db) grads[1] = sum_to(-dy, bs);
        return grads;
      });
}

Tensor operator*(const Tensor& a, const Tensor& b) {
  require_same_type("multiply", a, b);
  const bool da = tracked(a), db = tracked(b);
  return record("multiply", {&a, &b}, zip("multiply", Binary::multiply, a, b),
                [a = a.detached(), b = b.detached(), da, db](const Tensor& dy) {
                  Grads grads(2);
                  if (da) grads[0] = sum_to(dy * b, a.shape());
                  if (db) grads[1] = sum_to(dy * a, b.shape());
                  return grads;
                });
}

Tensor operator/(const Tensor& a, const Tensor& b) {
  require_same_type("divide", a, b);
  Tensor y = zip("divide", Binary::divide, a, b);
  const bool wants_b = tracked(b);
  return record("divide", {&a, &b}, y,
                [as = a.shape(), b = b.detached(), y, wants_b](const Tensor& dy) {
                  const Tensor da = dy / b;
                  Grads grads{sum_to(da, as), std::nullopt};
                  if (wants_b) grads[1] = sum_to(-(da * y), b.shape());
                  return grads;
                });
}

Tensor operator*(const Tensor& x, double factor) { return scaled("scale", x, factor, 0); }
Tensor operator*(double factor, const Tensor& x) { return scaled("scale", x, factor, 0); }
Tensor operator+(const Tensor& x, double term) { return scaled("add", x, 1, term); }
Tensor operator+(double term, const Tensor& x) { return scaled("add", x, 1, term); }
Tensor operator-(const Tensor& x, double term) { return scaled("subtract", x, 1, -term); }
Tensor operator-(double from, const Tensor& x) { return scaled("subtract", x, -1, from); }
// Divided, not multiplied by what is nearest to 1 / divisor.
Tensor operator/(const Tensor& x, double divisor) {
  require_number("divide", x);
  return x / full({}, divisor, x.type());
}
Tensor operator/(double dividend, const Tensor& x) {
  require_number("divide", x);
  return full({}, dividend, x.type()) / x;
}
Tensor operator-(const Tensor& x) { return unary("negate", Unary::negate, x); }

Tensor exp(const Tensor& x) { return unary("exp", Unary::exp, x); }
Tensor log(const Tensor& x) { return unary("log", Unary::log, x); }
Tensor sqrt(const Tensor& x) { return unary("sqrt", Unary::sqrt, x); }
Tensor square(const Tensor& x) { return unary("square", Unary::square, x); }
Tensor abs(const Tensor& x) {
  require_number("abs", x);
  return relu(x) + relu(-x);
}
Tensor tanh(const Tensor& x) { return unary("tanh", Unary::tanh, x); }
Tensor sigmoid(const Tensor& x) { return unary("sigmoid", Unary::sigmoid, x); }
Tensor relu(const Tensor& x) { return unary("relu", Unary::relu, x); }
Tensor gelu(const Tensor& x) { return unary("gelu", Unary::gelu, x); }
Tensor swish(const Tensor& x) { return unary("swish", Unary::swish, x); }

namespace {

// y = residual + dropout(x); the residual may be left out.
Tensor dropped(double p, kernels::Seed seed, const Tensor& x, const Tensor* residual, Tensor y) {
  launch("dropout", x, [&]<class T>() {
    return kernels::Dropout<T>{.n = x.count(),
                               .p = static_cast<float>(p),
                               .seed = seed,
                               .x = x.data<T>(),
                               .residual = residual ? residual->data<T>() : nullptr,
                               .y = y.data<T>()};
  });
  return y;
}

}  // namespace

Tensor dropout(const Tensor& given, double p, kernels::Seed seed) {
  require_number("dropout", given);
  require(p >= 0 && p < 1, "dropout: p must be in [0, 1), given ", p);
  if (p == 0) return given;
  const Tensor x = contiguous(given);
  return record("dropout", {&x}, dropped(p, seed, x, nullptr, empty_like(x)), [p, seed](Tensor dy) {
    dy = contiguous(dy);
    return Grads{dropped(p, seed, dy, nullptr, reusable(dy))};
  });
}

Tensor add_dropout(const Tensor& residual_given, const Tensor& given, double p,
                   kernels::Seed seed) {
  require_same_type("add_dropout", residual_given, given);
  require(residual_given.shape() == given.shape(),
          "add_dropout: shapes differ: ", residual_given.shape(), " and ", given.shape());
  require(p >= 0 && p < 1, "add_dropout: p must be in [0, 1), given ", p);
  if (p == 0) return residual_given + given;
  const Tensor residual = contiguous(residual_given), x = contiguous(given);
  return record("add_dropout", {&residual, &x}, dropped(p, seed, x, &residual, empty_like(x)),
                [p, seed](Tensor dy) {
                  dy = contiguous(dy);
                  return Grads{dy, dropped(p, seed, dy, nullptr, empty_like(dy))};
                });
}

Tensor add_dropout(const Tensor& residual, const Tensor& x, double p) {
  Tape* const tape = Tape::current();
  return tape && p != 0 ? add_dropout(residual, x, p, tape->draw()) : residual + x;
}

Tensor dropout(const Tensor& x, double p) {
  Tape* const tape = Tape::current();
  return tape && p != 0 ? dropout(x, p, tape->draw()) : x;
}

Tensor cast(const Tensor& given, Type type) {
  if (given.type() == type) return given;
  require(!given.storage()->bf16, "cast: weights of bf16 lie in panels (ops/bf16.h)");
  const Tensor x = contiguous(given);
  Tensor y(x.shape(), type);
  const Type from = x.type();
  if (from == Type::f32 && type == Type::bf16) {
    launch_on("cast", x.device(), from,
              kernels::ToBf16{.n = x.count(), .x = x.data<float>(), .y = y.data<bf16>()});
  } else if (from == Type::bf16 && type == Type::f32) {
    launch_on("cast", x.device(), from,
              kernels::FromBf16{.n = x.count(), .x = x.data<bf16>(), .y = y.data<float>()});
  } else if (x.device() == Device::cuda) {
    fail("cast: from ", name(from), " to ", name(type), " is not known on a GPU");
  } else if (from == Type::f32 && type == Type::f64) {
    std::copy_n(x.data<float>(), x.count(), y.data<double>());
  } else if (from == Type::f64 && type == Type::f32) {
    std::transform(x.data<double>(), x.data<double>() + x.count(), y.data<float>(),
                   [](double v) { return static_cast<float>(v); });
  } else {
    fail("cast: from ", name(from), " to ", name(type), " is not known");
  }
  // Mixed precision: a parameter's gradient is f32 also where its bf16 compute copy is what was
  // cast.
  return record("cast", {&x}, y, [to = x.parameter_state() ? wide(from) : from](const Tensor& dy) {
    return Grads{cast(dy, to)};
  });
}

void blend(const Tensor& y, double a, const Tensor& x, double b) {
  launch("blend", y, [&]<class T>() {
    return kernels::Axpby<T>{.n = y.count(),
                             .alpha = static_cast<kernels::Wide<T>>(b),
                             .x = x.data<T>(),
                             .beta = static_cast<kernels::Wide<T>>(a),
                             .y = y.data<T>()};
  });
}

}  // namespace heed
