#include "heed/nn/recurrent.h"

namespace heed {

RecurrentCell::RecurrentCell(const Params& params, Cell cell, int64_t in, int64_t size)
    : cell_(cell),
      input_(params / "input", in, kernels::gate_count(cell) * size),
      u_(params.add("u", {size, kernels::gate_count(cell) * size}, orthogonal())),
      bias_(params.add("u_bias", {kernels::gate_count(cell) * size}, constant(0))) {}

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
          .x = input_(x),
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

RecurrentStack::RecurrentStack(const Params& params, const Sizes& sizes) : sizes_(sizes) {
  require(sizes.layers >= 1, "recurrent stack: wants at least one layer, given ", sizes.layers);
  int64_t in = sizes.in;
  for (int64_t layer = 0; layer < sizes.layers; ++layer) {
    const Params part = params / std::to_string(layer);
    cells_.emplace_back(part / "forward", sizes.cell, in, sizes.size);
    if (sizes.bidirectional) cells_.emplace_back(part / "backward", sizes.cell, in, sizes.size);
    in = sizes.bidirectional ? 2 * sizes.size : sizes.size;
  }
}

RecurrentStack::Output RecurrentStack::operator()(const Tensor& x,
                                                  std::span<const Id> lengths) const {
  const int64_t batch = x.size(0), length = x.size(1), directions = sizes_.bidirectional ? 2 : 1;
  Output out{.states = x, .layers = {}, .finals = {}};
  for (size_t i = 0; i < cells_.size(); i += static_cast<size_t>(directions)) {
    const Tensor in = i == 0 ? x : dropout(out.states, sizes_.dropout);
    const Recurrent forward = cells_[i].sequence(in, {.lengths = lengths});
    const RecurrentStates s =
        directions == 2
            ? recurrent(forward, cells_[i + 1].sequence(in, {.lengths = lengths, .backward = true}))
            : recurrent(forward);
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
