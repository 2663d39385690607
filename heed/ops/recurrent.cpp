// Recurrent cells over a whole sequence, forward, and backpropagation through time.
//
// The input part of all gates comes in one product for all steps (the caller's linear()); here each
// step is one product h U and one pointwise kernel or, on a GPU, where U is small enough, all steps
// of all directions are one persistent kernel. In the backward pass the gradient of U is one
// product over all steps at the end, not one a step.
#include <algorithm>
#include <array>
#include <vector>

#include "heed/base/parallel.h"
#include "heed/ops/bf16.h"
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

struct Sequence {
  Cell cell;
  int64_t batch, length, n, gates;
  int64_t directions;          // sequences side by side: states are [planes, B, T, directions n]
  std::optional<Tensor> live;  // ids [T, B]: 1 where a sentence is not over; none: never is

  int64_t planes() const { return cell == Cell::lstm ? 2 : 1; }  // h, and for an lstm c
  // The h (plane 0) or c (1) of one direction: [B, T, n].
  Tensor plane(const Tensor& states, int64_t i, int64_t direction) const {
    return states.view({batch, length, n}, {states.stride(1), states.stride(2), states.stride(3)},
                       i * states.stride(0) + direction * n);
  }
  bool packs(const Tensor& u) const { return length > 1 && u.device() == Device::cpu; }
  // What the kernels for all steps, forward and backward, begin with.
  template <class Kernel>
  Kernel kernel() const {
    return {.cell = cell,
            .rows = batch,
            .length = length,
            .n = n,
            .state_row = directions * n,
            .live = all_live(),
            .parts = static_cast<int>(directions),
            .part = {}};
  }
  const Id* all_live() const { return live ? live->data<Id>() : nullptr; }
  const Id* live_at(int64_t t) const { return live ? live->data<Id>() + t * batch : nullptr; }
};

// One of the sequences, and what the backward pass needs of it.
struct Direction {
  bool backward;
  WeightUse use;
  Tensor h0, c0;  // c0: lstm
  Tensor saved;   // [B, T, saved gates n]

  int64_t time(const Sequence& s, int64_t step) const {
    return backward ? s.length - 1 - step : step;
  }
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
             .directions = 1,
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
  }
  return s;
}

std::optional<Tensor> live_of(const Recurrent& r, const Sequence& s) {
  if (r.lengths.empty()) return std::nullopt;
  std::vector<Id> live;
  for (int64_t t = 0; t < s.length; ++t)
    for (const Id length : r.lengths) live.push_back(t < length);
  return ids(live, {s.length, s.batch});
}

// Whether there is a kernel for all steps at once; `make.operator()<T>()` fills it in.
template <class Make>
bool all_at_once(const Sequence& s, std::span<const Direction> directions, const Tensor& like,
                 Make&& make) {
  for (const Direction& d : directions)
    if (!d.use.w().contiguous()) return false;
  if constexpr (kBuiltWithCuda) {
    if (s.length <= 1 || like.device() != Device::cuda) return false;
    if (like.type() == Type::bf16)
      return kernels::fits(kernels::Cuda{}, make.template operator()<bf16>());
    if (like.type() == Type::f32 && !exact_products())
      return kernels::fits(kernels::Cuda{}, make.template operator()<float>());
  }
  return false;
}

template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

// Calls body(i) for every direction, on a CPU each on a thread of its own if that keeps all busy:
// no step waits for another thread, and U stays in the cache of one core. The body makes no tensor.
template <class Body>
void each_direction(const Tensor& like, int64_t count, Body&& body) {
  if (like.device() == Device::cpu && count >= threads()) {
    Context& context = Context::current();
    const bool bf16 = bf16_products();
    return parallel_for(count, 1, [&](int64_t i, int64_t) {
      const HelpContext here(context);
      const UseBf16Products same(bf16);
      body(i);
    });
  }
  for (int64_t i = 0; i < count; ++i) body(i);
}

// ---- forward

struct StepsWorkspace {
  std::optional<Tensor> u_packed;
  Tensor u_part;  // [B, G n]
};

void steps(const Sequence& s, const Direction& d, const Tensor& x, const Tensor& bias,
           const Tensor& h, const Tensor& c, const StepsWorkspace& workspace) {
  const bool lstm = s.cell == Cell::lstm;
  const Tensor &w = d.use.w(), &u_part = workspace.u_part;
  for (int64_t step = 0; step < s.length; ++step) {
    const int64_t t = d.time(s, step);
    const Tensor h_before = step == 0 ? d.h0 : at_step(h, d.time(s, step - 1));
    multiply("recurrent", h_before, w, u_part, {.bias = bias, .packed_b = workspace.u_packed});
    const Tensor x_t = at_step(x, t), h_new = at_step(h, t), gates = at_step(d.saved, t);
    Tensor c_before, c_new;
    if (lstm) c_before = step == 0 ? d.c0 : at_step(c, d.time(s, step - 1)), c_new = at_step(c, t);
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
}

// x and bias of each direction; states [planes, B, T, directions n] are filled in.
void forward(const Sequence& s, std::span<Direction> directions, std::span<const Tensor> x,
             std::span<const Tensor> bias, const Tensor& states) {
  const auto c_of = [&](int64_t i) {
    return s.cell == Cell::lstm ? s.plane(states, 1, i) : Tensor();
  };
  const auto together = [&]<class T>() {
    auto k = s.kernel<kernels::CellSequence<T>>();
    for (size_t i = 0; i < directions.size(); ++i) {
      const Direction& d = directions[i];
      const int64_t at = static_cast<int64_t>(i);
      k.part[i] = {.backward = d.backward,
                   .x = data_or_null<T>(x[i]),
                   .u = data_or_null<T>(d.use.w()),
                   .bias = data_or_null<T>(bias[i]),
                   .h0 = data_or_null<T>(d.h0),
                   .c0 = data_or_null<T>(d.c0),
                   .h = data_or_null<T>(s.plane(states, 0, at)),
                   .c = data_or_null<T>(c_of(at)),
                   .gates = data_or_null<kernels::Wide<T>>(d.saved)};
    }
    return k;
  };
  if (all_at_once(s, directions, states, together)) return launch("recurrent", states, together);
  std::vector<StepsWorkspace> workspace;
  for (Direction& d : directions) {
    const Tensor& w = d.use.w();
    workspace.push_back({s.packs(w) ? packed("recurrent", w) : d.use.packed(s.batch),
                         Tensor({s.batch, s.gates * s.n}, states.type())});
  }
  each_direction(states, std::ssize(directions), [&](int64_t at) {
    const size_t i = static_cast<size_t>(at);
    steps(s, directions[i], x[i], bias[i], s.plane(states, 0, at), c_of(at), workspace[i]);
  });
}

// ---- backward

// What the backward pass gives of one direction.
struct Gradients {
  Tensor dx, du;    // [B, T, G n]; only a gru's two gate parts have different gradients
  Tensor dh0, dc0;  // [B, n]
};

// The gradients of the states after a step and before it take turns.
struct StepsBackWorkspace {
  std::optional<Tensor> u_packed;  // of U^T
  Tensor dh_new, dh, dc_new, dc;   // [B, n]; at first zeros after the last step
};

void steps_back(const Sequence& s, const Direction& d, const Tensor& h, const Tensor& c,
                const Tensor& dh_all, const Tensor& dc_all, StepsBackWorkspace& workspace,
                Gradients& out) {
  const bool lstm = s.cell == Cell::lstm, gru = s.cell == Cell::gru;
  const Tensor& u = d.use.w();
  const Tensor u_transposed = transpose(u, 0, 1);
  auto& [u_packed, dh_new, dh, dc_new, dc] = workspace;
  for (int64_t step = s.length - 1; step >= 0; --step) {
    const int64_t t = d.time(s, step);
    const Tensor h_before = step == 0 ? d.h0 : at_step(h, d.time(s, step - 1));
    add_into(at_step(dh_all, t), dh_new);
    Tensor c_before, c_new;
    if (lstm) {
      add_into(at_step(dc_all, t), dc_new);
      c_before = step == 0 ? d.c0 : at_step(c, d.time(s, step - 1));
      c_new = at_step(c, t);
    }
    const Tensor dx_t = at_step(out.dx, t), du_t = at_step(out.du, t), gates = at_step(d.saved, t);
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
    multiply("recurrent", du_t, u_transposed, dh, {.accumulate = true, .packed_b = u_packed});
    std::swap(dh_new, dh);
    std::swap(dc_new, dc);
  }
  out.dh0 = dh_new;
  if (lstm) out.dc0 = dc_new;
}

// The gradients of x, u, bias, h and c of every direction.
Grads through_time(const Sequence& s, std::span<Direction> directions, const Tensor& states,
                   const Tensor& dstates) {
  const bool lstm = s.cell == Cell::lstm, gru = s.cell == Cell::gru;
  const auto plane = [&](const Tensor& all, int64_t i, size_t direction) {
    return i < s.planes() ? s.plane(all, i, static_cast<int64_t>(direction)) : Tensor();
  };
  std::vector<Gradients> out(directions.size());
  for (Gradients& g : out) {
    g.dx = Tensor({s.batch, s.length, s.gates * s.n}, states.type());
    g.du = gru ? empty_like(g.dx) : g.dx;
  }
  const auto together = [&]<class T>() {
    auto k = s.kernel<kernels::CellSequenceGrad<T>>();
    for (size_t i = 0; i < directions.size(); ++i) {
      const Direction& d = directions[i];
      k.part[i] = {.backward = d.backward,
                   .u = data_or_null<T>(d.use.w()),
                   .h0 = data_or_null<T>(d.h0),
                   .c0 = data_or_null<T>(d.c0),
                   .h = data_or_null<T>(plane(states, 0, i)),
                   .c = data_or_null<T>(plane(states, 1, i)),
                   .gates = data_or_null<kernels::Wide<T>>(d.saved),
                   .dh = data_or_null<T>(plane(dstates, 0, i)),
                   .dc = data_or_null<T>(plane(dstates, 1, i)),
                   .dx = data_or_null<T>(out[i].dx),
                   .du = gru ? data_or_null<T>(out[i].du) : nullptr,
                   .dh0 = data_or_null<T>(out[i].dh0),
                   .dc0 = data_or_null<T>(out[i].dc0)};
    }
    return k;
  };
  if (all_at_once(s, directions, states, together)) {
    for (Gradients& g : out) {
      g.dh0 = Tensor({s.batch, s.n}, states.type());
      if (lstm) g.dc0 = empty_like(g.dh0);
    }
    launch("recurrent", states, together);
  } else {
    std::vector<StepsBackWorkspace> workspace;
    const Shape state{s.batch, s.n};
    const Type type = states.type();
    for (Direction& d : directions) {
      const Tensor& u = d.use.w();
      workspace.push_back({.u_packed = s.packs(u) ? packed("recurrent", transpose(u, 0, 1))
                                                  : d.use.packed_transposed(s.batch),
                           .dh_new = zeros(state, type),
                           .dh = Tensor(state, type),
                           .dc_new = lstm ? zeros(state, type) : Tensor(),
                           .dc = lstm ? Tensor(state, type) : Tensor()});
    }
    each_direction(states, std::ssize(directions), [&](int64_t at) {
      const size_t i = static_cast<size_t>(at);
      steps_back(s, directions[i], plane(states, 0, i), plane(states, 1, i), plane(dstates, 0, i),
                 plane(dstates, 1, i), workspace[i], out[i]);
    });
  }
  Grads grads;
  for (size_t i = 0; i < directions.size(); ++i) {
    Direction& d = directions[i];
    const Gradients& g = out[i];
    // The states that the steps began from, in the order of du's rows.
    const Tensor h = plane(states, 0, i), first = reshape(d.h0, {s.batch, 1, s.n});
    const Tensor before = s.length == 0 ? slice(first, 1, 0, 0)
                          : d.backward  ? concat({slice(h, 1, 1, s.length), first}, 1)
                                        : concat({first, slice(h, 1, 0, s.length - 1)}, 1);
    const Tensor du_rows = reshape(g.du, {s.batch * s.length, s.gates * s.n});
    const WeightUse::Gradients found =
        d.use.gradients(reshape(before, {s.batch * s.length, s.n}), du_rows, true);
    grads.emplace_back(g.dx);
    for (const std::optional<Tensor>& sum : {found.weight, found.bias})
      grads.push_back(sum ? std::optional<Gradient>(*sum) : std::nullopt);
    grads.emplace_back(g.dh0);
    grads.push_back(lstm ? std::optional<Gradient>(g.dc0) : std::nullopt);
  }
  return grads;
}

// ---- both

// bf16 is known to the kernel for all steps alone, which keeps states in f32 from step to step.
// Asked with what both passes have in common.
bool runs_in_bf16(const Sequence& s, std::span<const Recurrent> given) {
  if constexpr (kBuiltWithCuda) {
    kernels::CellSequence<bf16> there{};
    kernels::CellSequenceGrad<bf16> back{};
    const auto fill = [&](auto& k) {
      k.cell = s.cell, k.rows = s.batch, k.length = s.length, k.n = s.n;
      k.state_row = s.n * std::ssize(given), k.parts = static_cast<int>(given.size());
      for (size_t i = 0; i < given.size(); ++i) {
        k.part[i].u = given[i].u.template data<bf16>();
        if (given[i].h.contiguous()) k.part[i].h0 = given[i].h.template data<bf16>();
      }
    };
    fill(there), fill(back);
    for (size_t i = 0; i < given.size(); ++i) {
      if (!given[i].u.contiguous()) return false;
      if (given[i].x.contiguous()) there.part[i].x = given[i].x.data<bf16>();
    }
    return s.length > 1 && given[0].x.device() == Device::cuda &&
           kernels::fits(kernels::Cuda{}, there) && kernels::fits(kernels::Cuda{}, back);
  }
  return false;
}

Recurrent widened(Recurrent r) {
  for (Tensor* x : {&r.x, &r.u, &r.bias, &r.h}) *x = cast(*x, Type::f32);
  if (r.c) r.c = cast(*r.c, Type::f32);
  return r;
}

RecurrentStates side_by_side(std::span<const Recurrent> given) {
  for (const Recurrent& r : given) checked(r);
  Sequence s = checked(given[0]);
  if (given[0].x.type() == Type::bf16 && !runs_in_bf16(s, given)) {
    std::vector<Recurrent> wide;
    for (const Recurrent& r : given) wide.push_back(widened(r));
    RecurrentStates states = side_by_side(wide);
    states.h = cast(states.h, Type::bf16);
    if (states.c) states.c = cast(*states.c, Type::bf16);
    return states;
  }
  s.live = live_of(given[0], s);
  s.directions = static_cast<int64_t>(given.size());
  std::vector<Direction> directions;
  std::vector<Tensor> x, bias, h0, c0;
  for (const Recurrent& r : given) {
    const Tensor first_h = contiguous(r.h), first_c = r.c ? contiguous(*r.c) : Tensor();
    x.push_back(contiguous(r.x));
    bias.push_back(contiguous(r.bias));
    h0.push_back(first_h);
    c0.push_back(first_c);
    directions.push_back({.backward = r.backward,
                          .use = WeightUse(r.u, bias.back().parameter_state()),
                          .h0 = first_h.detached(),
                          .c0 = first_c.detached(),
                          .saved = Tensor({s.batch, s.length, kernels::saved_gates(s.cell) * s.n},
                                          wide(r.x.type()))});
  }
  Tensor states({s.planes(), s.batch, s.length, s.directions * s.n}, x[0].type());
  forward(s, directions, x, bias, states);
  std::vector<const Tensor*> inputs;
  for (size_t i = 0; i < given.size(); ++i)
    inputs.insert(inputs.end(),
                  {&x[i], &given[i].u, &bias[i], &h0[i], given[i].c ? &c0[i] : nullptr});
  states = record("recurrent", inputs, states,
                  [s, directions, states = states.detached()](const Tensor& dstates) mutable {
                    return through_time(s, directions, states, contiguous(dstates));
                  });
  const Shape shape{s.batch, s.length, s.directions * s.n};
  if (s.planes() == 1) return {.h = reshape(states, shape), .c = std::nullopt};
  return {.h = reshape(slice(states, 0, 0, 1), shape), .c = reshape(slice(states, 0, 1, 2), shape)};
}

}  // namespace

RecurrentStates recurrent(const Recurrent& r) { return side_by_side({&r, 1}); }

RecurrentStates recurrent(const Recurrent& first, const Recurrent& second) {
  require(first.cell == second.cell && first.x.shape() == second.x.shape() &&
              first.x.type() == second.x.type() &&
              std::ranges::equal(first.lengths, second.lengths),
          "recurrent: two sequences side by side want one kind of cell, one size and the same "
          "lengths; given x ",
          first.x.shape(), " and ", second.x.shape());
  return side_by_side(std::array{first, second});
}

}  // namespace heed
