// Fused attention as one op: no array of size [Tq, Tk] exists, forward or backward.
#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "heed/ops/fused.h"
#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

const char* const kOp = "attention";

// [B, H, T, n] as the kernel reads it. A batch of one is read again for every sentence.
template <class T>
kernels::Heads<T> heads(const Tensor& x) {
  return {x.data<std::remove_const_t<T>>(), x.size(0) == 1 ? 0 : x.stride(0), x.stride(1),
          x.stride(2)};
}
// The last axis must have stride 1.
Tensor usable(const Tensor& x) { return x.size(-1) <= 1 || x.stride(-1) == 1 ? x : contiguous(x); }

// A tensor [B, H, T, n] laid out as `like` is: [B, T, H, n] in memory where its heads are slices of
// a model's vectors, so that the projections before and after copy nothing.
Tensor laid_out(const Shape& s, Type type, const Tensor& like) {
  if (like.stride(1) >= like.stride(2)) return Tensor(s, type);
  return transpose(Tensor({s[0], s[2], s[1], s[3]}, type), 1, 2);
}

template <class T>
kernels::Heads<T> bias_heads(const Tensor& bias, int64_t queries) {
  if (bias.rank() == 2)  // by distance: one step down in i is one step back
    return {bias.data<std::remove_const_t<T>>() + (queries - 1), 0, bias.stride(0), -1};
  return heads<T>(bias);
}

// What is saved for backward.
struct Saved {
  FusedAttention given;  // detached
  Tensor context = {}, lse = {};
  Tensor powers = {};  // of the keys, if a decoder's steps share them
  kernels::Seed seed = {};
  int64_t batch = 0;

  template <class T>
  kernels::Attention<T> kernel() const {
    const Tensor &q = given.q, &k = given.k, &value = given.value;
    using W = kernels::Wide<T>;
    kernels::Attention<T> a{};
    a.form = given.form;
    a.batch = batch, a.heads = q.size(1), a.key_heads = k.size(1);
    a.queries = q.size(2), a.keys = k.size(2), a.size = q.size(3), a.value_size = value.size(3);
    a.q = heads<const T>(q), a.k = heads<const T>(k), a.value = heads<const T>(value);
    a.scale = static_cast<W>(given.scale);
    if (given.v) a.v = given.v->data<W>();
    if (powers.defined()) a.powers = powers.data<W>();
    if (given.bias) a.bias = bias_heads<const W>(*given.bias, a.queries);
    if (given.place) a.place = given.place->data<W>(), a.falloff = static_cast<W>(given.falloff);
    if (given.range) {
      a.range = given.range->data<Id>();
      a.range_batch = given.range->size(0) == 1 ? 0 : given.range->stride(0);
      a.range_head = given.range->size(1) == 1 ? 0 : given.range->stride(1);
    }
    if (given.origins) {
      a.origins = given.origins->data<Id>();
      a.origins_known = given.origins->size(1);
    }
    a.dropout = static_cast<float>(given.dropout);
    a.seed = seed;
    a.context = heads<T>(context);
    if (lse.defined()) a.lse = lse.data<W>();
    return a;
  }
};

int64_t checked_batch(const FusedAttention& a) {
  const Tensor &q = a.q, &k = a.k, &value = a.value;
  require(q.rank() == 4 && k.rank() == 4 && value.rank() == 4, kOp,
          ": wants q [B, H, Tq, n], k [B, G, Tk, n], value [B, G, Tk, m]; given ", q.shape(), ", ",
          k.shape(), ", ", value.shape());
  const int64_t batch = std::max({q.size(0), k.size(0), value.size(0)});
  for (const Tensor* x : {&q, &k, &value})
    require(x->size(0) == batch || x->size(0) == 1, kOp, ": batches differ: q ", q.shape(), ", k ",
            k.shape(), ", value ", value.shape());
  require(k.size(1) == value.size(1) && k.size(2) == value.size(2) && q.size(3) == k.size(3), kOp,
          ": sizes do not fit: q ", q.shape(), ", k ", k.shape(), ", value ", value.shape());
  require(k.size(1) > 0 && q.size(1) % k.size(1) == 0, kOp, ": ", q.size(1),
          " query heads cannot share ", k.size(1), " key heads evenly");
  const Shape v_shape{q.size(1), q.size(3)};
  require(a.v.has_value() == (a.form == ScoreForm::additive) && (!a.v || a.v->shape() == v_shape),
          kOp, ": v of shape ", v_shape, " belongs to additive scores, and to no others; given ",
          a.v ? a.v->shape() : Shape{});
  for (const Tensor* x : {&k, &value})
    require(x->type() == q.type(), kOp, ": types differ: q is ", name(q.type()), ", another input ",
            name(x->type()));
  for (const auto* x : {&a.v, &a.bias})
    require(!*x || (*x)->type() == wide(q.type()), kOp, ": types differ: q is ", name(q.type()),
            ", v or bias ", name(*x ? (*x)->type() : q.type()));
  if (a.bias) {
    const Shape& s = a.bias->shape();
    const bool by_distance = s == Shape{q.size(1), q.size(2) + k.size(2) - 1};
    const bool whole = s.rank() == 4 && (s[0] == 1 || s[0] == batch) && s[1] == q.size(1) &&
                       s[2] == q.size(2) && s[3] == k.size(2);
    require(by_distance || whole, kOp,
            ": bias wants [B or 1, H, Tq, Tk] or [H, Tq + Tk - 1]; q is ", q.shape(), ", k ",
            k.shape(), ", bias ", s);
  }
  if (a.place) {
    const Shape want{batch, q.size(1), q.size(2)};
    require(a.place->shape() == want && a.place->type() == wide(q.type()), kOp, ": place wants ",
            want, " of ", name(wide(q.type())), ", given ", a.place->shape(), " of ",
            name(a.place->type()));
  }
  if (a.range) {
    const Shape& s = a.range->shape();
    require(s.rank() == 4 && (s[0] == 1 || s[0] == batch) && (s[1] == 1 || s[1] == q.size(1)) &&
                s[2] == q.size(2) && s[3] == 2 && a.range->type() == Type::i32,
            kOp, ": range wants ids [B or 1, H or 1, Tq, 2]; q is ", q.shape(), ", range ", s);
  }
  require(!a.origins || (a.origins->rank() == 2 && a.origins->size(0) == batch &&
                         a.origins->size(1) <= k.size(2) && a.origins->contiguous() &&
                         k.size(0) == batch && q.device() == Device::cpu && !Tape::current()),
          kOp, ": origins want [", batch, ", at most ", k.size(2),
          "] on a CPU, with nothing recorded");
  require(a.dropout >= 0 && a.dropout < 1, kOp, ": dropout wants a share in [0, 1), given ",
          a.dropout);
  return batch;
}

// The gradient of a tensor that was read again for every sentence.
Tensor summed(const Tensor& dx, const Tensor& x) {
  return dx.size(0) == x.size(0) ? dx : cast(reshape(sum(dx, 0), x.shape()), x.type());
}

// Its sizes alone, for what asks whether a GPU has room for them.
template <class T>
kernels::Attention<T> sizes_of(const FusedAttention& x) {
  kernels::Attention<T> a{};
  a.form = x.form;
  a.batch = x.q.size(0), a.heads = x.q.size(1), a.key_heads = x.k.size(1);
  a.queries = x.q.size(2), a.keys = x.k.size(2), a.size = x.q.size(3);
  a.value_size = x.value.size(3);
  return a;
}
// fits(sizes) where they are of a GPU; a CPU has room for all.
template <class Fits>
bool where_on_gpu(const FusedAttention& a, Fits&& fits) {
  if (a.q.device() != Device::cuda) return true;
  return a.q.type() == Type::bf16 ? fits(sizes_of<bf16>(a)) : fits(sizes_of<float>(a));
}

// ---- the steps of a decoder

// Single queries that read the same keys and values. In the backward pass each computes what its
// query needs and saves the rest here; what flows to keys, values and v is computed once, when all
// are through (deferred gradients; kernels.h, StepsGrad). The tape knows those whose steps are
// still being recorded.
}  // namespace
struct AttentionSteps {
  uint64_t tape = 0;
  int64_t k = -1, value = -1, v = -1;       // the records that made them
  std::shared_ptr<ParameterState> v_state;  // or v is a parameter
  Tensor shared;                           // stands for k, value and v on the tape; has no elements
  Tensor powers;                           // of the keys, on a CPU
  std::vector<Tensor> q, dcontext, saved;  // of the steps whose backward pass is over

  bool of(uint64_t number, const Tensor& keys, const Tensor& values, const Tensor& weight) const {
    return tape == number && k == keys.slot().index && value == values.slot().index &&
           v == weight.slot().index && v_state == weight.parameter_state();
  }
};
namespace {
using Steps = AttentionSteps;

Tensor nothing(const Tensor& like) { return Tensor({0}, like.type()); }

bool goes_step_by_step(const FusedAttention& a) {
  const auto made_here = [](const Tensor& x) { return tracked(x) && !x.parameter_state(); };
  return (a.q.device() == Device::cuda || a.dropout == 0) && a.form == ScoreForm::additive &&
         tracked(*a.v) && made_here(a.k) && made_here(a.value) && !a.bias && !a.place &&
         a.q.size(2) == 1 && a.q.size(1) == a.k.size(1) && a.k.size(2) > 0 &&
         a.q.size(0) == a.k.size(0) && a.q.size(0) == a.value.size(0) &&
         a.q.size(3) <= kernels::kMostStepSize && a.value.size(3) <= kernels::kMostStepSize &&
         where_on_gpu(a, []<class T>(const kernels::Attention<T>& sizes) {
           if constexpr (kBuiltWithCuda)
             return kernels::fits(kernels::Cuda{}, kernels::StepGrad<T>{sizes, {}, {}, nullptr});
           return true;
         });
}

Grads through_steps(const Steps& steps, const Tensor& k, const Tensor& value, const Tensor& v) {
  const Tensor q = concat(steps.q, 2), dcontext = concat(steps.dcontext, 2),
               saved = concat(steps.saved, 3);
  const Tensor dk = laid_out(k.shape(), k.type(), k),
               dvalue = laid_out(value.shape(), value.type(), value), dv = empty_like(v);
  launch(kOp, q, [&]<class T>() {
    using W = kernels::Wide<T>;
    return kernels::StepsGrad<T>{.batch = q.size(0),
                                 .heads = q.size(1),
                                 .steps = q.size(2),
                                 .keys = k.size(2),
                                 .size = q.size(3),
                                 .value_size = value.size(3),
                                 .q = heads<const T>(q),
                                 .k = heads<const T>(k),
                                 .dcontext = heads<const T>(dcontext),
                                 .v = v.data<W>(),
                                 .saved = saved.data<W>(),
                                 .dk = heads<T>(dk),
                                 .dvalue = heads<T>(dvalue),
                                 .add = false,
                                 .dv = dv.data<W>()};
  });
  return {dk, dvalue, dv};
}

std::shared_ptr<Steps> steps_of(const Tensor& k, const Tensor& value, const Tensor& v) {
  auto& step_registry = Tape::current()->attention_steps();
  std::erase_if(step_registry, [](const auto& steps) { return steps.expired(); });
  const uint64_t tape = Tape::current()->number();
  for (const auto& known : step_registry)
    if (const auto steps = known.lock(); steps->of(tape, k, value, v)) return steps;
  const auto steps = std::make_shared<Steps>(Steps{tape,
                                                   k.slot().index,
                                                   value.slot().index,
                                                   v.slot().index,
                                                   v.parameter_state(),
                                                   {},
                                                   {},
                                                   {},
                                                   {},
                                                   {}});
  if (k.device() == Device::cpu) {
    steps->powers =
        Tensor({k.size(0) * k.size(1), kernels::key_powers_size(k.size(2), k.size(3))}, k.type());
    launch(kOp, k, [&]<class T>() {
      return kernels::KeyPowers<T>{.batch = k.size(0),
                                   .heads = k.size(1),
                                   .keys = k.size(2),
                                   .size = k.size(3),
                                   .k = heads<const T>(k),
                                   .powers = steps->powers.data<T>()};
    });
  }
  steps->shared = record(kOp, {&k, &value, &v}, nothing(k),
                         [steps, k = k.detached(), value = value.detached(), v = v.detached()](
                             const Tensor&) { return through_steps(*steps, k, value, v); });
  step_registry.push_back(steps);
  return steps;
}

// One of them: `back` is what it saved for backward.
Tensor recorded_step(const Saved& back, const Tensor& q, const std::shared_ptr<Steps>& steps,
                     const Tensor& context) {
  return record(kOp, {&q, &steps->shared}, context, [back, steps](const Tensor& dy_given) {
    const Tensor dy = usable(dy_given);
    const Tensor& given = back.given.q;
    const Tensor dq = laid_out(given.shape(), given.type(), given);
    const Tensor saved({2, given.size(0), given.size(1), 1, back.given.k.size(2)}, back.lse.type());
    launch(kOp, given, [&]<class T>() {
      return kernels::StepGrad<T>{.forward = back.kernel<T>(),
                                  .dcontext = heads<const T>(dy),
                                  .dq = heads<T>(dq),
                                  .saved = saved.data<kernels::Wide<T>>()};
    });
    steps->q.push_back(given), steps->dcontext.push_back(dy), steps->saved.push_back(saved);
    return Grads{dq, nothing(given)};
  });
}

}  // namespace

bool fused_attention_fits(const FusedAttention& a) {
  return where_on_gpu(a, [](const auto& sizes) {
    if constexpr (kBuiltWithCuda) return kernels::fits(kernels::Cuda{}, sizes);
    return true;
  });
}

FusedResult fused_attention(const FusedAttention& given) {
  const int64_t batch = checked_batch(given);
  Tape* const tape = Tape::current();
  Saved saved{.given = {.form = given.form,
                        .q = usable(given.q),
                        .k = usable(given.k),
                        .value = usable(given.value),
                        .scale = given.scale,
                        .falloff = given.falloff,
                        .dropout = tape ? given.dropout : 0}};
  FusedAttention& a = saved.given;
  if (given.v) a.v = contiguous(*given.v);
  if (given.bias) a.bias = usable(*given.bias);
  if (given.place) a.place = contiguous(*given.place);
  if (given.range) a.range = contiguous(*given.range);
  a.origins = given.origins;
  saved.batch = batch;
  if (a.dropout > 0) saved.seed = tape->draw();
  const int64_t H = a.q.size(1), Tq = a.q.size(2), Tk = a.k.size(2);
  saved.context = laid_out({batch, H, Tq, a.value.size(3)}, a.q.type(), a.q);
  // Who neither goes back nor wants weights has no use for it on a CPU.
  if (tape || given.want_weights || a.q.device() == Device::cuda)
    saved.lse = Tensor({batch, H, Tq}, wide(a.q.type()));
  const std::shared_ptr<Steps> steps =
      goes_step_by_step(a) ? steps_of(a.k, a.value, *a.v) : nullptr;
  if (steps) saved.powers = steps->powers;
  FusedResult out;
  if (given.want_weights) out.weights = Tensor({batch, H, Tq, Tk}, wide(a.q.type()));
  launch(kOp, a.q, [&]<class T>() {
    kernels::Attention<T> kernel = saved.kernel<T>();
    if (out.weights) kernel.weights = heads<kernels::Wide<T>>(*out.weights);
    return kernel;
  });
  if (!tape) {
    out.context = saved.context;
    return out;
  }
  const Tensor q = a.q, k = a.k, value = a.value;
  const Tensor* v = a.v ? &*a.v : nullptr;
  const Tensor* bias = a.bias ? &*a.bias : nullptr;
  const Tensor* place = a.place ? &*a.place : nullptr;
  // Where the gradients of keys and values gather: they are shared by all steps of a decoder, and
  // are added to in place. Not for parameters, nor where keys and values are one tensor.
  const auto slot_of = [&](const Tensor& x) {
    return tracked(x) && !x.parameter_state() && x.size(0) == batch ? std::optional(x.slot())
                                                                    : std::nullopt;
  };
  std::optional<Slot> k_slot = slot_of(k), value_slot = slot_of(value);
  if (Tq > 1 || !k_slot || !value_slot || k_slot->index == value_slot->index)
    k_slot = value_slot = std::nullopt;
  const bool d_bias = bias && tracked(*bias);
  Saved back = saved;
  for (Tensor* x : {&back.given.q, &back.given.k, &back.given.value, &back.context})
    *x = x->detached();
  if (v) back.given.v = v->detached();
  if (bias) back.given.bias = bias->detached();
  if (place) back.given.place = place->detached();
  if (steps) {
    out.context = recorded_step(back, q, steps, saved.context);
    return out;
  }
  out.context = record(
      kOp, {&q, &k, &value, v, bias, place}, saved.context,
      [back, k_slot, value_slot, d_bias](const Tensor& dy_given) {
        const Tensor dy = usable(dy_given);
        const FusedAttention& g = back.given;
        const auto laid_out_as = [&](const Tensor& x) {
          return laid_out({back.batch, x.size(1), x.size(2), x.size(3)}, x.type(), x);
        };
        Tensor dq = laid_out_as(g.q);
        Tensor dk = k_slot ? gradient_so_far(*k_slot, g.k.shape(), g.k.type()) : laid_out_as(g.k);
        Tensor dvalue = value_slot ? gradient_so_far(*value_slot, g.value.shape(), g.value.type())
                                   : laid_out_as(g.value);
        std::optional<Tensor> dv, dbias, dplace;
        if (g.v) dv = empty_like(*g.v);
        if (d_bias) dbias = zeros(g.bias->shape(), g.bias->type());
        if (g.place) dplace = empty_like(*g.place);
        launch(kOp, g.q, [&]<class T>() {
          using W = kernels::Wide<T>;
          kernels::AttentionGrad<T> kernel{};
          kernel.forward = back.kernel<T>();
          kernel.dcontext = heads<const T>(dy);
          kernel.dq = heads<T>(dq), kernel.dk = heads<T>(dk), kernel.dvalue = heads<T>(dvalue);
          kernel.add = k_slot.has_value();
          if (dv) kernel.dv = dv->data<W>();
          if (dbias) kernel.dbias = bias_heads<W>(*dbias, g.q.size(2));
          if (dplace) kernel.dplace = dplace->data<W>();
          return kernel;
        });
        Grads grads(6);
        grads[0] = summed(dq, g.q);
        if (!k_slot) grads[1] = summed(dk, g.k), grads[2] = summed(dvalue, g.value);
        if (dv) grads[3] = *dv;
        if (dbias) grads[4] = *dbias;
        if (dplace) grads[5] = *dplace;
        return grads;
      });
  return out;
}

// ---- without a tape

namespace {

void require_rows(const char* what, const Tensor& x, const Shape& shape, Type type) {
  require(x.shape() == shape && x.type() == type && (x.size(-1) <= 1 || x.stride(-1) == 1), kOp,
          ": ", what, " wants ", shape, " of ", name(type), " with a last stride of 1, given ",
          x.shape(), " of ", name(x.type()));
}

Saved saved_for(const FusedAttention& a, const FusedSaved& memory) {
  const int64_t batch = checked_batch(a);
  require(a.dropout == 0 && !a.want_weights, kOp,
          ": without a tape there is neither dropout nor a "
          "matrix of weights");
  const Shape context{batch, a.q.size(1), a.q.size(2), a.value.size(3)};
  require_rows("context", memory.context, context, a.q.type());
  require_rows("lse", memory.lse, {batch, context[1], context[2]}, wide(a.q.type()));
  require(memory.lse.contiguous(), kOp, ": lse is not contiguous");
  Saved out{.given = a, .context = memory.context, .lse = memory.lse};
  FusedAttention& g = out.given;
  g.q = usable(a.q), g.k = usable(a.k), g.value = usable(a.value);
  if (a.v) g.v = contiguous(*a.v);
  if (a.bias) g.bias = usable(*a.bias);
  if (a.place) g.place = contiguous(*a.place);
  if (a.range) g.range = contiguous(*a.range);
  out.batch = batch;
  return out;
}

}  // namespace

void fused_attention_into(const FusedAttention& attention, const FusedSaved& into) {
  const NoTape off;
  const Saved saved = saved_for(attention, into);
  launch(kOp, saved.given.q, [&]<class T>() { return saved.kernel<T>(); });
}

void fused_attention_gradients_into(const FusedAttention& attention, const FusedSaved& saved_in,
                                    const Tensor& dcontext, const FusedGradients& into) {
  const NoTape off;
  const Saved saved = saved_for(attention, saved_in);
  const FusedAttention& g = saved.given;
  const auto of_batch = [&](const Tensor& x) {
    return Shape{saved.batch, x.size(1), x.size(2), x.size(3)};
  };
  require_rows("dq", into.dq, of_batch(g.q), g.q.type());
  require_rows("dk", into.dk, of_batch(g.k), g.k.type());
  require_rows("dvalue", into.dvalue, of_batch(g.value), g.value.type());
  require_rows("dcontext", dcontext, saved.context.shape(), g.q.type());
  require(into.dv.has_value() == g.v.has_value() && !g.place && (!into.dbias || g.bias), kOp,
          ": the gradients that are wanted are not those of what is given");
  if (into.dv) require_rows("dv", *into.dv, g.v->shape(), g.v->type());
  if (into.dbias) require_rows("dbias", *into.dbias, g.bias->shape(), g.bias->type());
  if (into.dbias) {
    require(into.dbias->contiguous(), kOp, ": dbias is not contiguous");
    launch(kOp, *into.dbias, [&]<class T>() {
      return kernels::Fill<T>{.n = into.dbias->count(), .value = 0, .y = into.dbias->data<T>()};
    });
  }
  launch(kOp, g.q, [&]<class T>() {
    using W = kernels::Wide<T>;
    kernels::AttentionGrad<T> kernel{};
    kernel.forward = saved.kernel<T>();
    kernel.dcontext = heads<const T>(dcontext);
    kernel.dq = heads<T>(into.dq), kernel.dk = heads<T>(into.dk);
    kernel.dvalue = heads<T>(into.dvalue);
    if (into.dv) kernel.dv = into.dv->data<W>();
    if (into.dbias) kernel.dbias = bias_heads<W>(*into.dbias, g.q.size(2));
    return kernel;
  });
}

Tensor by_distance(const Tensor& table, int64_t queries, int64_t keys) {
  require(table.rank() == 2 && table.size(1) == queries + keys - 1, "by_distance: ", queries,
          " queries and ", keys, " keys want a table [H, ", queries + keys - 1, "], given ",
          table.shape());
  const Tensor x = contiguous(table);
  const int64_t H = x.size(0), n = x.size(1);
  const Tensor rows = x.detached().view({H, queries, keys}, {n, -1, 1}, queries - 1);
  return record("by_distance", {&x}, contiguous(rows), [=](const Tensor& dy) {
    const std::vector<double> dbiases = dy.values();
    std::vector<double> sums(static_cast<size_t>(H * n));
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < queries; ++i)
        for (int64_t j = 0; j < keys; ++j)
          sums[static_cast<size_t>(h * n + j - i + queries - 1)] +=
              dbiases[static_cast<size_t>((h * queries + i) * keys + j)];
    return Grads{tensor(sums, {H, n}, dy.type())};
  });
}

}  // namespace heed
