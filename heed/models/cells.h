// A decoder's cells, one above the other, as a step finds and leaves them in a State.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include "heed/models/model.h"
#include "heed/nn/recurrent.h"

namespace heed {

// The first states of all cells, for every sentence of the state.
void start_cells(const std::vector<RecurrentCell>& cells, State& state);

// One step from x [rows, in]: the top cell's h [rows, n].
Tensor step_cells(const std::vector<RecurrentCell>& cells, State& state, const Tensor& x);

}  // namespace heed
