// Recurrent networks: plain RNN, GRU and LSTM, one or two directions, several layers, sentences of
// different lengths in one batch.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heed/nn/layers.h"

namespace heed {

// The state of a cell: h, and for an lstm c.
struct CellState {
  Tensor h;                      // [B, n]
  std::optional<Tensor> c = {};  // [B, n]
};

struct CellOptions {
  std::optional<CellState> start = {};  // zeros, unless given
  std::span<const Id> lengths = {};     // [B]; none: all sentences fill the batch
  bool backward = false;                // from the last token to the first
};

// One cell with its parameters.
class RecurrentCell {
 public:
  RecurrentCell(const Params& params, Cell cell, int64_t in, int64_t size);

  // The state in which a sentence begins: zeros.
  CellState start(int64_t batch) const;

  // A whole sequence x [B, T, in]: the states after each step.
  RecurrentStates operator()(const Tensor& x, const CellOptions& options = {}) const;
  // What recurrent() is given for that: it can run two cells at once.
  Recurrent sequence(const Tensor& x, const CellOptions& options = {}) const;
  // One step x [B, in].
  CellState step(const Tensor& x, const CellState& state) const;

  // The same in two parts, for a decoder whose tokens are known beforehand (teacher forcing): what
  // the input adds to the gates, [.., in] -> [.., G n], and a step from such sums [B, G n].
  Tensor gates(const Tensor& x) const { return input_(x); }
  CellState step_from_gates(const Tensor& gates, const CellState& state) const;
  int64_t gate_size() const { return u_.size(1); }
  // What a state is multiplied with, [n, G n], and what is added, [G n].
  Tensor state_weight() const { return compute_copy(u_); }
  Tensor state_bias() const { return compute_copy(bias_); }

  int64_t size() const { return u_.size(0); }

 private:
  Cell cell_;
  Linear input_;
  Tensor u_, bias_;
};

// Layers of cells, each reading the states of the one below; with two directions the states of both
// are joined, [B, T, 2 n].
class RecurrentStack {
 public:
  struct Sizes {
    Cell cell = Cell::gru;
    int64_t in = 0, size = 0, layers = 1;
    bool bidirectional = false;
    double dropout = 0;  // between layers
  };
  RecurrentStack(const Params& params, const Sizes& sizes);

  struct Output {
    Tensor states;                  // [B, T, n or 2 n]: of the top layer
    std::vector<Tensor> layers;     // the same of every layer
    std::vector<CellState> finals;  // each cell's last state: layer by layer, forward first
  };
  Output operator()(const Tensor& x, std::span<const Id> lengths = {}) const;

 private:
  Sizes sizes_;
  std::vector<RecurrentCell> cells_;
};

}  // namespace heed
