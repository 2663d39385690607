// Functions of the last axis: softmax, norms, cross entropy, sums, ranks.
#include <algorithm>
#include <cmath>

#include "heed/kernels/top_log_softmax.h"
#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/ops/top_log_softmax.h"
#include "heed/ops/weight.h"
#include "heed/tensor/context.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

int64_t rows_of(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.count() / x.size(-1); }

void require_rows(const char* op, const Tensor& x) {
  require(x.rank() >= 1, op, ": wants at least one axis, given shape ", x.shape());
}

Tensor softmax_of(const char* op, const Tensor& given, bool log) {
  require_rows(op, given);
  const Tensor x = contiguous(given);
  Tensor y = empty_like(x);
  launch(op, x, [&]<class T>() {
    return kernels::Softmax<T>{
        .rows = rows_of(x), .n = x.size(-1), .log = log, .x = x.data<T>(), .y = y.data<T>()};
  });
  return record(op, {&x}, y, [op, y, log](Tensor dy) {
    dy = contiguous(dy);
    Tensor dx = reusable(dy);
    launch(op, dy, [&]<class T>() {
      return kernels::SoftmaxGrad<T>{.rows = rows_of(y),
                                     .n = y.size(-1),
                                     .log = log,
                                     .y = y.data<T>(),
                                     .dy = dy.data<T>(),
                                     .dx = dx.data<T>()};
    });
    return Grads{dx};
  });
}

void require_row_vector(const char* op, const char* what, const Tensor& v, const Tensor& x) {
  const Type type = wide(x.type());
  require(v.rank() == 1 && v.size(0) == x.size(-1) && v.type() == type && v.contiguous(), op, ": ",
          what, " wants shape [", x.size(-1), "] and type ", name(type), ", given ", v.shape(), " ",
          name(v.type()));
}

// What a norm's input is made from by the norm's own kernel, residual + dropout(more), and d more,
// which its backward pass saves.
struct Dropped {
  double p;
  kernels::Seed seed;
  std::shared_ptr<Tensor> back;
};
struct SumBefore {
  Tensor residual, more;
  Dropped dropped;
};

// With `before`, the input is not computed yet: it is computed here.
Tensor norm(const char* op, const Tensor& given, const Tensor& gain, const Tensor* bias,
            double epsilon, const SumBefore* before = nullptr) {
  require_rows(op, given);
  require_row_vector(op, "gain", gain, given);
  if (bias) require_row_vector(op, "bias", *bias, given);
  const Tensor x = contiguous(given);
  const int64_t rows = rows_of(x);
  Tensor y = empty_like(x), saved_mean, r;
  if (Tape::current() || x.device() == Device::cuda)
    saved_mean = Tensor({rows}, wide(x.type())), r = empty_like(saved_mean);
  const bool centered = bias != nullptr;
  launch(op, x, [&]<class T>() {
    kernels::Norm<T> k{.rows = rows,
                       .n = x.size(-1),
                       .centered = centered,
                       .epsilon = static_cast<kernels::Wide<T>>(epsilon),
                       .x = x.data<T>(),
                       .gain = gain.data<kernels::Wide<T>>(),
                       .bias = bias ? bias->data<kernels::Wide<T>>() : nullptr,
                       .y = y.data<T>(),
                       .mean = saved_mean.defined() ? saved_mean.data<kernels::Wide<T>>() : nullptr,
                       .r = r.defined() ? r.data<kernels::Wide<T>>() : nullptr};
    if (before) {
      k.x = before->residual.data<T>();
      k.of = {static_cast<float>(before->dropped.p), before->dropped.seed, before->more.data<T>(),
              x.data<T>()};
    }
    return k;
  });
  if (!Tape::current()) return y;
  std::optional<Dropped> drops;  // what comes back is dropped too
  if (before && before->dropped.p > 0) drops = before->dropped;
  return record(
      op, {&x, &gain, bias}, y,
      [op, to = Destination(x), x = x.detached(), gain_state = gain.parameter_state(),
       bias_state = bias ? bias->parameter_state() : nullptr, gain = gain.detached(), saved_mean, r,
       centered, drops](Tensor dy) {
        dy = contiguous(dy);
        const std::optional<Tensor> begun = to.begun();
        // dx is all of the sum's gradient, whose record is the next one.
        const bool dropped = drops && (begun || to.empty());
        if (dropped) *drops->back = empty_like(x);
        Tensor dx = begun ? *begun : reusable(dy), dgain = empty_like(gain),
               dbias = empty_like(gain), partial;
        const int64_t n = x.size(-1), parts = kernels::norm_parts(rows_of(x));
        const bool later =
            x.device() == Device::cuda && gain_state && (bias_state || !centered) && rows_of(x) > 0;
        if (later) partial = Tensor({parts, centered ? 2 * n : n}, gain.type());
        launch(op, x, [&]<class T>() {
          using W = kernels::Wide<T>;
          kernels::NormGrad<T> k{.rows = rows_of(x),
                                 .n = x.size(-1),
                                 .centered = centered,
                                 .add = begun.has_value(),
                                 .x = x.data<T>(),
                                 .gain = gain.data<W>(),
                                 .mean = saved_mean.data<W>(),
                                 .r = r.data<W>(),
                                 .dy = dy.data<T>(),
                                 .dx = dx.data<T>(),
                                 .dgain = dgain.data<W>(),
                                 .dbias = centered ? dbias.data<W>() : nullptr,
                                 .partial = later ? partial.data<W>() : nullptr};
          if (dropped)
            k.of = {static_cast<float>(drops->p), drops->seed, nullptr, drops->back->data<T>()};
          return k;
        });
        Grads grads(3);
        if (!begun) grads[0] = dx;
        if (!later) grads[1] = dgain;
        if (!later && centered) grads[2] = dbias;
        if (later) add_rows_later(gain_state, slice(partial, 1, 0, n));
        if (later && centered) add_rows_later(bias_state, slice(partial, 1, n, 2 * n));
        return grads;
      });
}

struct Targets {
  Tensor id;      // contiguous
  int64_t count;  // of those that count
};

// Every target must be a token of the vocabulary, or negative: not counted.
Targets checked_targets(const char* op, const Tensor& given, int64_t rows, int64_t vocabulary) {
  require(given.type() == Type::i32, op, ": targets must be ids, given ", name(given.type()));
  require(given.count() == rows, op, ": ", rows, " rows of logits, ", given.count(), " targets");
  Targets targets{.id = contiguous(given), .count = 0};
  for (const Id id : targets.id.host_ids()) {
    require(id < vocabulary, op, ": target ", id, " in a vocabulary of ", vocabulary);
    targets.count += id >= 0;
  }
  return targets;
}

void require_smoothing(const char* op, double smoothing) {
  require(smoothing >= 0 && smoothing < 1, op, ": smoothing must be in [0, 1), given ", smoothing);
}

// The mean of the rows that count, from their sum. How many count is not to be seen in a shape: it
// goes where elements go, for a step that is captured (heed/tensor/graph.h).
struct Mean {
  Tensor share;  // of a row in the mean

  Mean(int64_t count, const Tensor& like)
      : share(tensor(std::vector<double>{1.0 / static_cast<double>(std::max<int64_t>(1, count))},
                     {}, wide(like.type()))) {}
  Tensor of(const Tensor& losses) const {
    const NoTape off;
    return sum(losses) * share;
  }
  // The gradient of the loss, a scalar, times a saved gradient.
  static Tensor back(const Tensor& saved, const Tensor& dy) {
    if (is_unit(dy)) return saved;
    return cast(cast(saved, dy.type()) * dy, saved.type());
  }
};

}  // namespace

Tensor softmax(const Tensor& x) { return softmax_of("softmax", x, false); }
Tensor log_softmax(const Tensor& x) { return softmax_of("log_softmax", x, true); }

Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, double epsilon) {
  return norm("layer_norm", x, gain, &bias, epsilon);
}
Tensor rms_norm(const Tensor& x, const Tensor& gain, double epsilon) {
  return norm("rms_norm", x, gain, nullptr, epsilon);
}

Normed add_dropout_norm(const Tensor& residual_given, const Tensor& given, double p,
                        kernels::Seed seed, const Tensor& gain, const Tensor& bias) {
  const char* const op = "add_dropout_norm";
  require_rows(op, given);
  require(residual_given.shape() == given.shape() && residual_given.type() == given.type(), op,
          ": residual and x differ: ", residual_given.shape(), " ", name(residual_given.type()),
          " and ", given.shape(), " ", name(given.type()));
  require(p >= 0 && p < 1, op, ": p must be in [0, 1), given ", p);
  if (given.device() == Device::cpu && (p > 0 || Tape::current())) {
    const Tensor sum = add_dropout(residual_given, given, p, seed);
    return {sum, layer_norm(sum, gain, bias)};
  }
  const Tensor residual = contiguous(residual_given), x = contiguous(given);
  if (given.device() == Device::cpu) {
    const Tensor sum = empty_like(x);
    const SumBefore before{residual, x, {}};
    return {sum, norm(op, sum, gain, &bias, 1e-5, &before)};
  }
  // The norm's backward pass comes first, and saves d x here.
  const auto back = std::make_shared<Tensor>();
  const Tensor sum = record(op, {&residual, &x}, empty_like(x), [p, seed, back](Tensor dy) {
    dy = contiguous(dy);
    return Grads{dy, back->defined() ? *back : dropout(dy, p, seed)};
  });
  const SumBefore before{residual.detached(), x.detached(), {p, seed, back}};
  return {sum, norm(op, sum, gain, &bias, 1e-5, &before)};
}
Normed add_dropout_norm(const Tensor& residual, const Tensor& x, double p, const Tensor& gain,
                        const Tensor& bias) {
  Tape* const tape = Tape::current();
  const bool drops = tape && p != 0;
  return add_dropout_norm(residual, x, drops ? p : 0, drops ? tape->draw() : kernels::Seed{}, gain,
                          bias);
}

Tensor cross_entropy(Tensor logits, const Tensor& given_target, double smoothing) {
  require_rows("cross_entropy", logits);
  require_smoothing("cross_entropy", smoothing);
  const bool wants_grad = tracked(logits), overwrite = logits.sole_owner() && logits.contiguous();
  const Tensor x = contiguous(logits);
  const int64_t rows = rows_of(x);
  const auto [target, count] = checked_targets("cross_entropy", given_target, rows, x.size(-1));
  const Mean mean_of(count, x);
  Tensor losses({rows}, wide(x.type())), d_logits;
  if (wants_grad) d_logits = overwrite ? x.detached() : empty_like(x);
  launch("cross_entropy", x, [&, &id = target]<class T>() {
    return kernels::CrossEntropy<T>{.rows = rows,
                                    .n = x.size(-1),
                                    .smoothing = static_cast<kernels::Wide<T>>(smoothing),
                                    .scale = mean_of.share.data<kernels::Wide<T>>(),
                                    .logits = x.data<T>(),
                                    .target = id.data<Id>(),
                                    .loss = losses.data<kernels::Wide<T>>(),
                                    .d_logits = wants_grad ? d_logits.data<T>() : nullptr};
  });
  return record("cross_entropy", {&logits}, mean_of.of(losses),
                [d_logits](const Tensor& dy) { return Grads{Mean::back(d_logits, dy)}; });
}

Tensor linear_cross_entropy(const Tensor& given, const Tensor& w, const Tensor& given_target,
                            double smoothing) {
  const char* const op = "linear_cross_entropy";
  require(given.rank() >= 1 && w.rank() == 2 && given.size(-1) == w.size(0), op,
          ": inner sizes differ: x is ", given.shape(), ", w is ", w.shape());
  require(given.type() == w.type(), op, ": types differ: x is ", name(given.type()), ", w is ",
          name(w.type()));
  require_smoothing(op, smoothing);
  const Tensor x =
      reshape(given, {given.count() / std::max<int64_t>(1, given.size(-1)), given.size(-1)});
  const int64_t rows = x.size(0), vocabulary = w.size(1);
  const auto [target, count] = checked_targets(op, given_target, rows, vocabulary);
  const Mean mean_of(count, x);
  const bool wants_x = tracked(x), wants_w = tracked(w);
  Tensor losses({rows}, wide(x.type())), dx, dw;
  if (wants_x) dx = empty_like(x);
  const bool w_transposed =
      w.stride(1) != 1;  // a tied embedding: its gradient is laid out as it is
  if (wants_w) dw = Tensor(w_transposed ? Shape{vocabulary, w.size(0)} : w.shape(), wide(w.type()));
  if (wants_w && rows == 0) dw = zeros(dw.shape(), dw.type());
  // Rows whose logits exist at a time: as fit into a CPU's cache; a GPU wants large products.
  const int64_t slab_rows = x.device() == Device::cuda ? 16384 : 256;
  Tensor logits({std::min(slab_rows, rows), vocabulary}, x.type());
  // A product of bf16 packs what it multiplies by: here once for all slabs.
  std::optional<Tensor> packed_w, packed_back;
  if (bf16_products() && x.device() == Device::cpu && rows > slab_rows) {
    packed_w = packed(op, w.detached());
    if (wants_x) packed_back = packed(op, transpose(w.detached(), 0, 1));
  }
  for (int64_t at = 0; at < rows; at += slab_rows) {
    const int64_t n = std::min(slab_rows, rows - at);
    const Tensor x_slab = slice(x.detached(), 0, at, at + n), slab = slice(logits, 0, 0, n);
    multiply(op, x_slab, w.detached(), slab, {.packed_b = packed_w});
    launch(op, x, [&, &id = target]<class T>() {
      return kernels::CrossEntropy<T>{.rows = n,
                                      .n = vocabulary,
                                      .smoothing = static_cast<kernels::Wide<T>>(smoothing),
                                      .scale = mean_of.share.data<kernels::Wide<T>>(),
                                      .logits = slab.data<T>(),
                                      .target = id.data<Id>() + at,
                                      .loss = losses.data<kernels::Wide<T>>() + at,
                                      .d_logits = wants_x || wants_w ? slab.data<T>() : nullptr};
    });
    if (wants_x)
      multiply(op, slab, transpose(w.detached(), 0, 1), slice(dx, 0, at, at + n),
               {.packed_b = packed_back});
    if (wants_w) {
      const Tensor &a = w_transposed ? slab : x_slab, &b = w_transposed ? x_slab : slab;
      multiply(op, transpose(a, 0, 1), b, dw, {.accumulate = at > 0});
    }
  }
  if (wants_w && w_transposed) dw = transpose(dw, 0, 1);
  return record(op, {&x, &w}, mean_of.of(losses), [dx, dw](const Tensor& dy) {
    Grads grads(2);
    if (dx.defined()) grads[0] = Mean::back(dx, dy);
    if (dw.defined()) grads[1] = Mean::back(dw, dy);
    return grads;
  });
}

Tensor sum(const Tensor& given, int given_axis) {
  require(given_axis >= -given.rank() && given_axis < given.rank(), "sum: axis ", given_axis,
          " of shape ", given.shape());
  const int axis = given_axis < 0 ? given_axis + given.rank() : given_axis;
  const Tensor x = contiguous(given);
  int64_t outer = 1, inner = 1;
  std::vector<int64_t> sizes;
  for (int i = 0; i < x.rank(); ++i) {
    if (i < axis) outer *= x.size(i);
    if (i > axis) inner *= x.size(i);
    if (i != axis) sizes.push_back(x.size(i));
  }
  Tensor y(Shape(sizes), wide(x.type()));
  launch("sum", x, [&]<class T>() {
    return kernels::Sum<T>{.outer = outer,
                           .n = x.size(axis),
                           .inner = inner,
                           .x = x.data<T>(),
                           .y = y.data<kernels::Wide<T>>()};
  });
  return record("sum", {&x}, y, [from = x.shape(), type = x.type(), axis](const Tensor& dy) {
    Shape kept = from;
    kept[axis] = 1;
    // Repeated along the axis: adding zeros of the full shape broadcasts it.
    return Grads{cast(reshape(dy, kept) + zeros(from, dy.type()), type)};
  });
}

Tensor mean(const Tensor& x, int axis) {
  const Tensor total = sum(x, axis);
  return total * (1.0 / static_cast<double>(std::max<int64_t>(1, x.size(axis))));
}

Tensor sum(const Tensor& x) { return sum(reshape(x, {x.count()}), 0); }
Tensor mean(const Tensor& x) { return mean(reshape(x, {x.count()}), 0); }

Tensor max(const Tensor& given, int given_axis) {
  require(given_axis >= -given.rank() && given_axis < given.rank(), "max: axis ", given_axis,
          " of shape ", given.shape());
  const int axis = given_axis < 0 ? given_axis + given.rank() : given_axis;
  require(given.size(axis) > 0, "max: of no elements: axis ", axis, " of shape ", given.shape());
  // The axis last.
  Tensor x = given;
  for (int i = axis; i + 1 < x.rank(); ++i) x = transpose(x, i, i + 1);
  x = contiguous(x);
  const Shape shape(std::span(x.shape().begin(), static_cast<size_t>(x.rank() - 1)));
  const auto largest = [&] {
    const NoTape off;
    // top_k() passes over NaN; tanh makes numbers of infinities, and leaves NaN.
    return reshape(top_k(x, 1).values, shape) + sum(tanh(x) * 0.0, -1);
  };
  return record("max", {&x}, largest(), [x = x.detached(), shape](const Tensor& dy) {
    Shape kept = x.shape();
    kept[x.rank() - 1] = 1;
    return Grads{one_hot_max(x) * reshape(dy, kept)};
  });
}

Tensor max(const Tensor& x) { return max(reshape(x, {x.count()}), 0); }

Ranked top_k(const Tensor& given, int64_t k) {
  require_rows("top_k", given);
  require(k >= 1 && k <= given.size(-1), "top_k: wanted ", k, " of rows of ", given.size(-1));
  const Tensor x = contiguous(given);
  Shape shape = x.shape();
  shape[x.rank() - 1] = k;
  Ranked out{.values = Tensor(shape, x.type()), .indices = Tensor(shape, Type::i32)};
  launch("top_k", x, [&]<class T>() {
    return kernels::TopK<T>{.rows = rows_of(x),
                            .n = x.size(-1),
                            .k = k,
                            .x = x.data<T>(),
                            .value = out.values.data<T>(),
                            .index = out.indices.data<Id>()};
  });
  return out;
}

bool top_log_softmax_fits(const Tensor& x, int64_t k) {
  if constexpr (kBuiltWithCuda)
    if (x.device() == Device::cuda)
      return kernels::fits(kernels::Cuda{}, kernels::TopLogSoftmax{.rows = rows_of(x),
                                                                   .n = x.size(-1),
                                                                   .k = k,
                                                                   .x = x.data<float>(),
                                                                   .value = nullptr,
                                                                   .index = nullptr,
                                                                   .log_sum = nullptr});
  return true;
}

TopLogSoftmax top_log_softmax(const Tensor& given, int64_t k) {
  const char* const op = "top_log_softmax";
  require_rows(op, given);
  require(k >= 1 && k <= given.size(-1), op, ": wanted ", k, " of rows of ", given.size(-1));
  require(given.type() == Type::f32, op, ": wants f32, given ", name(given.type()));
  require(given.device() == Device::cpu || k <= kernels::kMostTop, op, ": wanted ", k,
          " of a row; a GPU finds ", kernels::kMostTop, " at most");
  const Tensor x = contiguous(given);
  Shape shape = x.shape(), one = shape;
  shape[x.rank() - 1] = k, one[x.rank() - 1] = 1;
  TopLogSoftmax out{{Tensor(shape), Tensor(shape, Type::i32)}, Tensor(one)};
  launch_on(op, x.device(), x.type(),
            kernels::TopLogSoftmax{.rows = rows_of(x),
                                   .n = x.size(-1),
                                   .k = k,
                                   .x = x.data<float>(),
                                   .value = out.top.values.data<float>(),
                                   .index = out.top.indices.data<Id>(),
                                   .log_sum = out.log_sum.data<float>()});
  return out;
}

Tensor arg_max(const Tensor& given) {
  require_rows("arg_max", given);
  require(given.size(-1) > 0, "arg_max: rows are empty: shape ", given.shape());
  const Tensor x = contiguous(given);
  const Shape shape(std::span(x.shape().begin(), static_cast<size_t>(x.rank() - 1)));
  Tensor indices(shape, Type::i32);
  launch("arg_max", x, [&]<class T>() {
    return kernels::Max<T>{
        .rows = rows_of(x), .n = x.size(-1), .x = x.data<T>(), .index = indices.data<Id>()};
  });
  return indices;
}

}  // namespace heed
