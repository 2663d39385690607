// Recurrent cells over a whole sequence, forward and back through time.
//
// The input part of all gates comes in one product for all steps (the caller's linear()); here each
// step is one product h U and one pointwise kernel. On the way back the gradient of U is one
// product over all steps at the end, not one a step.
#include <algorithm>
#include <vector>

#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/ops/weight.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

// A step of [B, T, n] as [B, n].
Tensor at_step(const Tensor& x, int64_t t) {
  return x.view({x.size(0), x.size(2)}, {x.stride(0), x.stride(2)}, t * x.stride(1));
}
Tensor plane(const Tensor& x, int64_t i) {
  return x.view({x.size(1), x.size(2), x.size(3)}, {x.stride(1), x.stride(2), x.stride(3)},
                i * x.stride(0));
}

struct Sequence {
  Cell cell;
  int64_t batch, length, n, gates;
  bool backward;
  std::optional<Tensor> live;  // ids [T, B]: 1 where a sentence is not over; none: never is

  bool packs(const Tensor& u) const { return length > 1 && u.device() == Device::cpu; }
  int64_t time(int64_t step) const { return backward ? length - 1 - step : step; }
  const Id* live_at(int64_t t) const { return live ? live->data<Id>() + t * batch : nullptr; }
};

Sequence checked(const Recurrent& r) {
  const char* const op = "recurrent";
  require(r.x.rank() == 3 && r.u.rank() == 2 && r.h.rank() == 2, op,
          ": wants x [B, T, G n], u [n, G n], h [B, n]; given ", r.x.shape(), ", ", r.u.shape(),
          ", ", r.h.shape());
  Sequence s{.cell = r.cell,
             .batch = r.x.size(0),
             .length = r.x.size(1),
             .n = r.u.size(0),
             .gates = kernels::gate_count(r.cell),
             .backward = r.backward,
             .live = {}};
  const int64_t width = s.gates * s.n;
  require(r.x.size(2) == width && r.u.size(1) == width, op, ": ", s.gates, " gates of ", s.n,
          " want ", width, " columns; given x ", r.x.shape(), ", u ", r.u.shape());
  require(r.bias.shape() == Shape{width}, op, ": bias wants shape [", width, "], given ",
          r.bias.shape());
  const Shape state{s.batch, s.n};
  require(r.h.shape() == state && (!r.c || r.c->shape() == state), op, ": the first state wants ",
          state, ", given ", r.h.shape(), " and ", r.c ? r.c->shape() : state);
  for (const Tensor* part : {&r.u, &r.bias, &r.h, r.c ? &*r.c : &r.h})
    require(part->type() == r.x.type(), op, ": types differ: x is ", name(r.x.type()),
            ", another input ", name(part->type()));
  require((r.cell == Cell::lstm) == r.c.has_value(), op,
          ": an lstm has a cell state c, the others none");
  if (!r.lengths.empty()) {
    require(static_cast<int64_t>(r.lengths.size()) == s.batch, op, ": ", s.batch, " sentences, ",
            r.lengths.size(), " lengths");
    for (const Id length : r.lengths)
      require(length >= 0 && length <= s.length, op, ": length ", length, " of at most ", s.length);
    std::vector<Id> live;
    for (int64_t t = 0; t < s.length; ++t)
      for (const Id length : r.lengths) live.push_back(t < length);
    s.live = ids(live, {s.length, s.batch});
  }
  return s;
}

// The gradients of x, u, bias, h and c.
Grads through_time(const Sequence& s, WeightUse& use, const Tensor& h0, const Tensor& c0,
                   const Tensor& states, const Tensor& kept, const Tensor& dstates) {
  const bool lstm = s.cell == Cell::lstm, gru = s.cell == Cell::gru;
  const Tensor& u = use.w();
  const Tensor h = plane(states, 0), dh_all = plane(dstates, 0);
  Tensor dx({s.batch, s.length, s.gates * s.n}, u.type());
  // Only a gru's two gate parts have different gradients.
  const Tensor du = gru ? empty_like(dx) : dx;
  const Tensor u_turned = transpose(u, 0, 1);
  const std::optional<Tensor> u_packed =
      s.packs(u) ? packed("recurrent", u_turned) : use.packed_turned(s.batch);
  Tensor dh_next = zeros({s.batch, s.n}, u.type()), dc_next = dh_next;
  for (int64_t step = s.length - 1; step >= 0; --step) {
    const int64_t t = s.time(step);
    const Tensor h_before = step == 0 ? h0 : at_step(h, s.time(step - 1));
    const Tensor dh_new = at_step(dh_all, t) + dh_next;
    Tensor dh({s.batch, s.n}, u.type()), dc, dc_new, c_before, c_new;
    if (lstm) {
      dc = Tensor({s.batch, s.n}, u.type());
      dc_new = at_step(plane(dstates, 1), t) + dc_next;
      c_before = step == 0 ? c0 : at_step(plane(states, 1), s.time(step - 1));
      c_new = at_step(plane(states, 1), t);
    }
    const Tensor dx_t = at_step(dx, t), du_t = at_step(du, t), gates = at_step(kept, t);
    launch("recurrent", u, [&]<class T>() {
      const auto pointer = [](const Tensor& x) -> T* {
        return x.defined() ? x.data<T>() : nullptr;
      };
      const auto row = [](const Tensor& x) { return x.defined() ? x.stride(0) : 0; };
      return kernels::CellStepGrad<T>{.cell = s.cell,
                                      .rows = s.batch,
                                      .n = s.n,
                                      .gates = gates.data<T>(),
                                      .gates_row = row(gates),
                                      .h = h_before.data<T>(),
                                      .h_row = row(h_before),
                                      .c = pointer(c_before),
                                      .c_new = pointer(c_new),
                                      .c_row = row(c_before),
                                      .c_new_row = row(c_new),
                                      .live = s.live_at(t),
                                      .dh_new = dh_new.data<T>(),
                                      .dh_new_row = row(dh_new),
                                      .dc_new = pointer(dc_new),
                                      .dc_new_row = row(dc_new),
                                      .dx = dx_t.data<T>(),
                                      .dx_row = row(dx_t),
                                      .du = gru ? du_t.data<T>() : nullptr,
                                      .du_row = row(du_t),
                                      .dh = dh.data<T>(),
                                      .dh_row = row(dh),
                                      .dc = pointer(dc),
                                      .dc_row = row(dc)};
    });
    multiply("recurrent", du_t, u_turned, dh, {.accumulate = true, .packed_b = u_packed});
    dh_next = dh;
    dc_next = dc;
  }
  // The states that the steps began from, in the order of du's rows.
  const Tensor first = reshape(h0, {s.batch, 1, s.n});
  const Tensor before = s.length == 0 ? slice(first, 1, 0, 0)
                        : s.backward  ? concat({slice(h, 1, 1, s.length), first}, 1)
                                      : concat({first, slice(h, 1, 0, s.length - 1)}, 1);
  const Tensor du_rows = reshape(du, {s.batch * s.length, s.gates * s.n});
  const WeightUse::Gradients found =
      use.gradients(reshape(before, {s.batch * s.length, s.n}), du_rows, true);
  Grads grads{dx, std::nullopt, std::nullopt, dh_next, std::nullopt};
  if (found.weight) grads[1] = *found.weight;
  if (found.bias) grads[2] = *found.bias;
  if (lstm) grads[4] = dc_next;
  return grads;
}

}  // namespace

RecurrentStates recurrent(const Recurrent& r) {
  const Sequence s = checked(r);
  const bool lstm = s.cell == Cell::lstm;
  const Tensor x = contiguous(r.x), h0 = contiguous(r.h), c0 = r.c ? contiguous(*r.c) : Tensor();
  Tensor states({lstm ? 2 : 1, s.batch, s.length, s.n}, x.type());
  Tensor kept({s.batch, s.length, kernels::kept_gates(s.cell) * s.n}, x.type());
  Tensor u_part({s.batch, s.gates * s.n}, x.type());
  WeightUse use(r.u, r.bias.leaf());
  const std::optional<Tensor> u_packed =
      s.packs(r.u) ? packed("recurrent", r.u) : use.packed(s.batch);
  const Tensor h = plane(states, 0), c = lstm ? plane(states, 1) : Tensor();
  for (int64_t step = 0; step < s.length; ++step) {
    const int64_t t = s.time(step);
    const Tensor h_before = step == 0 ? h0 : at_step(h, s.time(step - 1));
    multiply("recurrent", h_before, r.u, u_part, {.bias = r.bias, .packed_b = u_packed});
    const Tensor x_t = at_step(x, t), h_new = at_step(h, t), gates = at_step(kept, t);
    Tensor c_before, c_new;
    if (lstm) c_before = step == 0 ? c0 : at_step(c, s.time(step - 1)), c_new = at_step(c, t);
    launch("recurrent", x, [&]<class T>() {
      return kernels::CellStep<T>{.cell = s.cell,
                                  .rows = s.batch,
                                  .n = s.n,
                                  .x = x_t.data<T>(),
                                  .x_row = x_t.stride(0),
                                  .u = u_part.data<T>(),
                                  .u_row = u_part.stride(0),
                                  .h = h_before.data<T>(),
                                  .h_row = h_before.stride(0),
                                  .c = lstm ? c_before.data<T>() : nullptr,
                                  .c_row = lstm ? c_before.stride(0) : 0,
                                  .live = s.live_at(t),
                                  .h_new = h_new.data<T>(),
                                  .h_new_row = h_new.stride(0),
                                  .c_new = lstm ? c_new.data<T>() : nullptr,
                                  .c_new_row = lstm ? c_new.stride(0) : 0,
                                  .gates = gates.data<T>(),
                                  .gates_row = gates.stride(0)};
    });
  }
  states = record("recurrent", {&x, &r.u, &r.bias, &h0, r.c ? &c0 : nullptr}, states,
                  [s, use, h0 = h0.detached(), c0 = c0.detached(), states = states.detached(),
                   kept](const Tensor& dstates) mutable {
                    return through_time(s, use, h0, c0, states, kept, contiguous(dstates));
                  });
  const Shape shape{s.batch, s.length, s.n};
  RecurrentStates out{.h = reshape(slice(states, 0, 0, 1), shape), .c = std::nullopt};
  if (lstm) out.c = reshape(slice(states, 0, 1, 2), shape);
  return out;
}

}  // namespace heed
