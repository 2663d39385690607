#include "heed/nn/recurrent.h"

#include <algorithm>
#include <utility>

namespace heed {

RecurrentCell::RecurrentCell(const Params& params, Cell cell, int64_t in, int64_t size,
                             std::optional<double> norm_epsilon)
    : cell_(cell) {
  const int64_t gates = kernels::gate_count(cell) * size;
  require(!norm_epsilon || cell == Cell::gru, "recurrent cell: norms are for a gru");
  if (in > 0)
    input_.emplace(params / "input", in, gates,
                   norm_epsilon ? Linear::Bias::no : Linear::Bias::yes);
  else
    input_bias_ = (params / "input").add("bias", {gates}, constant(0));
  u_ = params.add("u", {size, gates}, orthogonal());
  if (!norm_epsilon) {
    bias_ = params.add("u_bias", {gates}, constant(0));
    return;
  }
  if (in > 0) input_norm_.emplace(params / "input_norm", gates, *norm_epsilon);
  state_norm_.emplace(params / "u_norm", gates, *norm_epsilon);
}

Tensor RecurrentCell::gates(const Tensor& x) const {
  const Tensor sums = (*input_)(x);
  return input_norm_ ? (*input_norm_)(sums) : sums;
}

CellState RecurrentCell::start(int64_t batch) const {
  const Type type = state_weight().type();
  CellState state{.h = zeros({batch, size()}, type)};
  if (cell_ == Cell::lstm) state.c = zeros({batch, size()}, type);
  return state;
}

RecurrentStates RecurrentCell::operator()(const Tensor& x, const CellOptions& options) const {
  return recurrent(sequence(x, options));
}

Recurrent RecurrentCell::sequence(const Tensor& x, const CellOptions& options) const {
  require(x.rank() == 3, "recurrent cell: wants x [B, T, D], given ", x.shape());
  const CellState first = options.start ? *options.start : start(x.size(0));
  return {.cell = cell_,
          .x = gates(x),
          .u = state_weight(),
          .bias = state_bias(),
          .h = first.h,
          .c = first.c,
          .lengths = options.lengths,
          .backward = options.backward};
}

CellState RecurrentCell::step(const Tensor& x, const CellState& state) const {
  return step_from_gates(gates(x), state);
}

CellState RecurrentCell::step_from_gates(const Tensor& gates, const CellState& state) const {
  const int64_t batch = gates.size(0);
  if (state_norm_) {  // r, z, c (Cho et al., 2014)
    const Tensor u = (*state_norm_)(linear(state.h, state_weight()));
    const auto part = [&](const Tensor& all, int i) {
      return slice(all, 1, i * size(), (i + 1) * size());
    };
    const Tensor r = sigmoid(part(gates, 0) + part(u, 0)), z = sigmoid(part(gates, 1) + part(u, 1)),
                 c = tanh(part(gates, 2) + r * part(u, 2));
    return {.h = c + z * (state.h - c)};
  }
  const RecurrentStates after = recurrent({.cell = cell_,
                                           .x = reshape(gates, {batch, 1, gates.size(1)}),
                                           .u = state_weight(),
                                           .bias = state_bias(),
                                           .h = state.h,
                                           .c = state.c});
  CellState next{.h = reshape(after.h, {batch, size()})};
  if (after.c) next.c = reshape(*after.c, {batch, size()});
  return next;
}

CellState RecurrentCell::transition(const CellState& state) const {
  const Tensor nothing = zeros({state.h.size(0), gate_size()}, state.h.type());
  return step_from_gates(nothing + compute_copy(*input_bias_), state);
}

RecurrentStack::RecurrentStack(const Params& params, const Sizes& sizes) : sizes_(sizes) {
  require(sizes.layers >= 1, "recurrent stack: wants at least one layer, given ", sizes.layers);
  int64_t in = sizes.in;
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    const Params part = params / std::to_string(layer);
    for (const char* direction : {"forward", "backward"}) {
      if (direction[0] == 'b' && !sizes.bidirectional) continue;
      const Params own = part / direction;
      cells_.emplace_back(own, sizes.cell, in, sizes.size, sizes.norm_epsilon);
      std::vector<RecurrentCell>& more = transitions_.emplace_back();
      for (int64_t i = 0; i < sizes.transitions; ++i)
        more.emplace_back(own / "transition" / std::to_string(i), sizes.cell, 0, sizes.size,
                          sizes.norm_epsilon);
    }
    in = sizes.bidirectional ? 2 * sizes.size : sizes.size;
  }
}

RecurrentStates RecurrentStack::walk(size_t cell, const Tensor& x, std::span<const Id> lengths,
                                     bool backward) const {
  const int64_t batch = x.size(0), length = x.size(1);
  const std::vector<Tensor> gates =
      unstack(contiguous(transpose(cells_[cell].gates(x), 0, 1)));  // by step: [B, G n]
  CellState state = cells_[cell].start(batch);
  std::vector<Tensor> states(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) {
    const auto t = static_cast<size_t>(backward ? length - 1 - i : i);
    CellState next = cells_[cell].step_from_gates(gates[t], state);
    for (const RecurrentCell& more : transitions_[cell]) next = more.transition(next);
    // A sentence that is over, or has not begun, keeps its state.
    std::vector<Id> there;
    for (const Id n : lengths) there.push_back(std::cmp_less(t, n) ? 1 : 0);
    if (std::ranges::find(there, 0) != there.end())
      next.h = where(ids(there, {batch, 1}), next.h, state.h);
    states[t] = next.h;
    state = next;
  }
  return {.h = contiguous(transpose(stack(states), 0, 1)), .c = {}};
}

RecurrentStack::Output RecurrentStack::operator()(const Tensor& x,
                                                  std::span<const Id> lengths) const {
  const int64_t batch = x.size(0), length = x.size(1), directions = sizes_.bidirectional ? 2 : 1;
  Output out{.states = x, .layers = {}, .finals = {}};
  for (size_t i = 0; i < cells_.size(); i += static_cast<size_t>(directions)) {
    const Tensor in = i == 0 ? x : dropout(out.states, sizes_.dropout);
    RecurrentStates s;
    if (sizes_.transitions > 0 || sizes_.norm_epsilon) {
      s = walk(i, in, lengths, false);
      if (directions == 2) s.h = concat({s.h, walk(i + 1, in, lengths, true).h}, 2);
    } else {
      const Recurrent forward = cells_[i].sequence(in, {.lengths = lengths});
      s = directions == 2 ? recurrent(forward, cells_[i + 1].sequence(
                                                   in, {.lengths = lengths, .backward = true}))
                          : recurrent(forward);
    }
    for (int64_t direction = 0; direction < directions; ++direction) {
      // A sentence that is over keeps its state, so the last step's is every sentence's last.
      const int64_t last = direction == 1 ? 0 : length - 1, n = sizes_.size;
      const auto final_of = [&](const Tensor& all) {
        const Tensor both = slice(all, 1, last, last + 1);
        return reshape(directions == 2 ? slice(both, 2, direction * n, (direction + 1) * n) : both,
                       {batch, n});
      };
      CellState final{.h = final_of(s.h)};
      if (s.c) final.c = final_of(*s.c);
      out.finals.push_back(final);
    }
    out.states = s.h;
    out.layers.push_back(out.states);
  }
  return out;
}

}  // namespace heed
