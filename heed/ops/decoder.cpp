#include "heed/ops/decoder.h"

#include <memory>
#include <vector>

#include "heed/ops/into.h"
#include "heed/ops/weight.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

using kernels::SlicedProduct;

const char* const kOp = "decoder";

template <class Kernel>
void start(const Kernel& kernel) {
  launch_on(kOp, Device::cuda, Type::bf16, kernel);
}

struct Sizes {
  int64_t batch, steps, keys, n, a;
  int64_t width() const { return a + 3 * n; }  // of [W U]
};

Sizes checked(const Decode& d) {
  require(d.x.rank() == 3 && d.h.rank() == 2 && d.keys.rank() == 3 && d.values.rank() == 3, kOp,
          ": wants x [B, T, 3 n], h [B, n], keys [B, Tk, a], values [B, Tk, 3 n]; given ",
          d.x.shape(), ", ", d.h.shape(), ", ", d.keys.shape(), ", ", d.values.shape());
  const Sizes s{d.x.size(0), d.x.size(1), d.keys.size(1), d.h.size(1), d.keys.size(2)};
  const Shape gates{s.batch, s.steps, 3 * s.n}, values{s.batch, s.keys, 3 * s.n};
  require(d.x.shape() == gates && d.values.shape() == values && d.keys.size(0) == s.batch &&
              d.h.size(0) == s.batch,
          kOp, ": sizes do not fit: x ", d.x.shape(), ", h ", d.h.shape(), ", keys ",
          d.keys.shape(), ", values ", d.values.shape());
  require(d.w.count() == s.n * s.a && d.w.size(-1) == s.a && d.v.count() == s.a &&
              d.u.shape() == Shape{s.n, 3 * s.n} && d.bias.shape() == Shape{3 * s.n},
          kOp, ": weights do not fit a state of ", s.n, " and keys of ", s.a, ": w ", d.w.shape(),
          ", v ", d.v.shape(), ", u ", d.u.shape(), ", bias ", d.bias.shape());
  for (const Tensor* x : {&d.x, &d.h, &d.keys, &d.values, &d.w, &d.u, &d.bias})
    require(x->type() == Type::bf16 && x->device() == Device::cuda, kOp,
            ": wants bf16 on a GPU, given ", name(x->type()), " on ", name(x->device()));
  require(d.v.type() == Type::f32 && d.v.device() == Device::cuda, kOp,
          ": wants v in f32 on a GPU, given ", name(d.v.type()), " on ", name(d.v.device()));
  require(d.bias.contiguous(), kOp, ": wants the numbers of the bias in order");
  require(decodes(s.n) && decodes(s.a), kOp,
          ": states and keys want multiples of 64 numbers up to 4096, given ", s.n, " and ", s.a);
  require(static_cast<int64_t>(d.lengths.size()) == s.batch, kOp, ": ", s.batch, " sentences, ",
          d.lengths.size(), " lengths");
  for (const Id length : d.lengths)
    require(length >= 0 && length <= s.keys, kOp, ": a source of ", length, " of ", s.keys,
            " words");
  return s;
}

// What is saved for backward, and what of it has come together.
struct Saved {
  Sizes s;
  Tensor keys, values, v, range;
  Tensor both;                 // [n, a + 3 n]: [W U]
  Tensor q, before;            // [B, T, a], [B, T, n]: h_{t-1}
  Tensor gates;                // [B, T, 4 n]
  Tensor dscores_and_weights;  // [2, B, T, Tk]
  Tensor dh, dweights;         // once they are known

  Tensor weights() const {
    return dscores_and_weights.view({s.batch, s.steps, s.keys},
                                    row_major({s.batch, s.steps, s.keys}),
                                    dscores_and_weights.stride(0));
  }
  kernels::DecoderSizes sizes() const {
    return {.batch = s.batch,
            .steps = s.steps,
            .keys = s.keys,
            .size = s.n,
            .key_size = s.a,
            .range = range.data<Id>(),
            .k = keys.data<bf16>(),
            .value = values.data<bf16>(),
            .v = v.data<float>()};
  }
};

Tensor range_of(std::span<const Id> lengths) {
  std::vector<Id> range;
  for (const Id length : lengths) range.push_back(0), range.push_back(length);
  return ids(range, {std::ssize(lengths), 2});
}

// Rows of columns [begin, begin + count) of x [B, T, width].
Tensor columns(const Tensor& x, int64_t begin, int64_t count) {
  return x.view({x.size(0) * x.size(1), count}, {x.size(2), 1}, begin);
}

Tensor forward(Saved& k, const Tensor& x, const Tensor& h0, const Tensor& bias) {
  const auto& [B, T, Tk, n, a] = k.s;
  const int64_t width = k.s.width(), slices = SlicedProduct::slices(n);
  const Tensor qu({slices, B, width}), state = cast(h0, Type::f32), h({B, T, n}, Type::bf16);
  copy_into(h0, k.before.view({B, n}, {T * n, 1}));
  for (int64_t t = 0; t < T; ++t) {
    start(SlicedProduct{.m = B,
                        .n = width,
                        .k = n,
                        .a = k.before.data<bf16>() + t * n,
                        .a_row = T * n,
                        .b = k.both.data<bf16>(),
                        .transposed = false,
                        .c = qu.data<float>(),
                        .follows = t > 0});
    start(kernels::DecoderStep{.s = k.sizes(),
                               .step = t,
                               .slices = slices,
                               .qu = qu.data<float>(),
                               .x = x.data<bf16>(),
                               .bias = bias.data<bf16>(),
                               .state = state.data<float>(),
                               .q = k.q.data<bf16>(),
                               .before = k.before.data<bf16>(),
                               .h = h.data<bf16>(),
                               .gates = k.gates.data<float>(),
                               .weights = k.weights().data<float>()});
  }
  return h;
}

// The gradients of x, h, keys, values and v, and of [W U] what weights are given.
struct Gradients {
  Tensor dx, dh, dkeys, dvalues, dv, dqu;
};
Gradients back(const Saved& k) {
  const auto& [B, T, Tk, n, a] = k.s;
  const int64_t width = k.s.width(), planes = 1 + SlicedProduct::slices(width);
  const Tensor dh = k.dh.defined() ? contiguous(k.dh) : zeros({B, T, n}, Type::bf16);
  const Tensor dweights = k.dweights.defined() ? contiguous(k.dweights) : Tensor();
  Gradients out{.dx = Tensor({B, T, 3 * n}, Type::bf16),
                .dh = {},
                .dkeys = empty_like(k.keys),
                .dvalues = empty_like(k.values),
                .dv = empty_like(k.v),
                .dqu = Tensor({B, T, width}, Type::bf16)};
  const Tensor carried = zeros({planes, B, n});
  for (int64_t t = T - 1; t >= 0; --t) {
    start(
        kernels::DecoderStepGrad{.s = k.sizes(),
                                 .step = t,
                                 .planes = planes,
                                 .q = k.q.data<bf16>(),
                                 .before = k.before.data<bf16>(),
                                 .gates = k.gates.data<float>(),
                                 .weights = k.weights().data<float>(),
                                 .dh = dh.data<bf16>(),
                                 .dweights = dweights.defined() ? dweights.data<float>() : nullptr,
                                 .carried = carried.data<float>(),
                                 .dx = out.dx.data<bf16>(),
                                 .dqu = out.dqu.data<bf16>(),
                                 .dscores = k.dscores_and_weights.data<float>(),
                                 .follows = t < T - 1});
    start(SlicedProduct{.m = B,
                        .n = n,
                        .k = width,
                        .a = out.dqu.data<bf16>() + t * width,
                        .a_row = T * width,
                        .b = k.both.data<bf16>(),
                        .transposed = true,
                        .c = carried.data<float>() + carried.stride(0),
                        .follows = true});
  }
  out.dh = cast(sum(carried, 0), Type::bf16);
  start(kernels::StepsGrad<bf16>{.batch = B,
                                 .heads = 1,
                                 .steps = T,
                                 .keys = Tk,
                                 .size = a,
                                 .value_size = 3 * n,
                                 .q = {k.q.data<bf16>(), T * a, 0, a},
                                 .k = {k.keys.data<bf16>(), Tk * a, 0, a},
                                 .dcontext = {out.dx.data<bf16>(), T * 3 * n, 0, 3 * n},
                                 .v = k.v.data<float>(),
                                 .saved = k.dscores_and_weights.data<float>(),
                                 .dk = {out.dkeys.data<bf16>(), Tk * a, 0, a},
                                 .dvalue = {out.dvalues.data<bf16>(), Tk * 3 * n, 0, 3 * n},
                                 .add = false,
                                 .dv = out.dv.data<float>()});
  return out;
}

}  // namespace

Decoded decode(const Decode& d) {
  const Sizes s = checked(d);
  const Tensor x = contiguous(d.x), h0 = contiguous(d.h), keys = contiguous(d.keys),
               values = contiguous(d.values), v = contiguous(d.v);
  WeightUse w(d.w), u(d.u, d.bias.parameter_state());
  const int64_t B = s.batch, T = s.steps;
  const auto k =
      std::make_shared<Saved>(Saved{.s = s,
                                    .keys = keys.detached(),
                                    .values = values.detached(),
                                    .v = v.detached(),
                                    .range = range_of(d.lengths),
                                    .both = concat({w.w().detached(), u.w().detached()}, 1),
                                    .q = Tensor({B, T, s.a}, Type::bf16),
                                    .before = Tensor({B, T, s.n}, Type::bf16),
                                    .gates = Tensor({B, T, 4 * s.n}),
                                    .dscores_and_weights = Tensor({2, B, T, s.keys}),
                                    .dh = {},
                                    .dweights = {}});
  if constexpr (kBuiltWithCuda)
    require(kernels::fits(kernels::Cuda{}, k->sizes()), kOp,
            ": a block of the GPU has no room for ", s.keys, " keys of ", s.a, " and a state of ",
            s.n, "; shorter sentences fit, or --precision f32");
  const Tensor h = forward(*k, x.detached(), h0.detached(), d.bias.detached());
  // The op has two results. A record of its own, which has no elements and lies before theirs, has
  // its turn in the backward pass when theirs is over.
  const Tensor nothing({0}, Type::bf16);
  const Tensor op = record(
      kOp, {&x, &h0, &keys, &values, &v, &d.w, &d.u, &d.bias}, nothing,
      [k, w, u](const Tensor&) mutable {
        const Gradients g = back(*k);
        const Tensor before = columns(k->before, 0, k->s.n);
        const WeightUse::Gradients dw = w.gradients(before, columns(g.dqu, 0, k->s.a), false);
        const WeightUse::Gradients du =
            u.gradients(before, columns(g.dqu, k->s.a, 3 * k->s.n), true);
        Grads grads{g.dx, g.dh, g.dkeys, g.dvalues, g.dv};
        for (const std::optional<Tensor>& sum : {dw.weight, du.weight, du.bias})
          grads.push_back(sum ? std::optional<Gradient>(*sum) : std::nullopt);
        return grads;
      });
  const auto part = [&](const Tensor& y, Tensor Saved::*to) {
    return record(kOp, {&op}, y, [k, to](const Tensor& dy) {
      (*k).*to = dy;
      return Grads{Tensor({0}, Type::bf16)};
    });
  };
  return {.h = part(h, &Saved::dh), .weights = part(k->weights(), &Saved::dweights)};
}

}  // namespace heed
