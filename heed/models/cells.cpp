#include "heed/models/cells.h"

namespace heed {
namespace {

void put(State& state, size_t i, const CellState& cell) {
  state.hypothesis["h" + std::to_string(i)] = cell.h;
  if (cell.c) state.hypothesis["c" + std::to_string(i)] = *cell.c;
}

CellState get(const State& state, size_t i) {
  CellState cell{.h = state.hypothesis.at("h" + std::to_string(i))};
  const auto c = state.hypothesis.find("c" + std::to_string(i));
  if (c != state.hypothesis.end()) cell.c = c->second;
  return cell;
}

}  // namespace

void start_cells(const std::vector<RecurrentCell>& cells, State& state) {
  for (size_t i = 0; i < cells.size(); ++i) put(state, i, cells[i].start(state.sentences()));
}

Tensor step_cells(const std::vector<RecurrentCell>& cells, State& state, const Tensor& x) {
  Tensor s = x;
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellState cell = cells[i].step(s, get(state, i));
    put(state, i, cell);
    s = cell.h;
  }
  return s;
}

}  // namespace heed
