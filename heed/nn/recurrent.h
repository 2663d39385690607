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

// One cell with its parameters. Without input (in is 0) it is a transition: a step from one state
// to the next, which reads nothing (deep transition, Pascanu et al., 2014). With norms (a GRU) what
// the input and what the state add to the gates each go through a layer norm first (Ba et al.,
// 2016, section 4).
class RecurrentCell {
 public:
  RecurrentCell(const Params& params, Cell cell, int64_t in, int64_t size,
                std::optional<double> norm_epsilon = {});

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
  Tensor gates(const Tensor& x) const;
  CellState step_from_gates(const Tensor& gates, const CellState& state) const;
  // A transition's step.
  CellState transition(const CellState& state) const;
  int64_t gate_size() const { return u_.size(1); }
  // What a state is multiplied with, [n, G n], and what is added, [G n].
  Tensor state_weight() const { return compute_copy(u_); }
  Tensor state_bias() const { return compute_copy(*bias_); }

  int64_t size() const { return u_.size(0); }

 private:
  Cell cell_;
  std::optional<Linear> input_;
  std::optional<Tensor> input_bias_;  // of a transition
  Tensor u_;
  std::optional<Tensor> bias_;
  std::optional<LayerNorm> input_norm_, state_norm_;  // their biases are the gates'
};

// Layers of cells, each reading the states of the one below; with two directions the states of both
// are joined, [B, T, 2 n].
class RecurrentStack {
 public:
  struct Sizes {
    Cell cell = Cell::gru;
    int64_t in = 0, size = 0, layers = 1;
    bool bidirectional = false;
    double dropout = 0;       // between layers
    int64_t transitions = 0;  // cells without input after each cell, at every step
    std::optional<double> norm_epsilon = {};
  };
  RecurrentStack(const Params& params, const Sizes& sizes);

  struct Output {
    Tensor states;                  // [B, T, n or 2 n]: of the top layer
    std::vector<Tensor> layers;     // the same of every layer
    std::vector<CellState> finals;  // each cell's last state: layer by layer, forward first
  };
  Output operator()(const Tensor& x, std::span<const Id> lengths = {}) const;

 private:
  // A layer in one direction, step by step.
  RecurrentStates walk(size_t cell, const Tensor& x, std::span<const Id> lengths,
                       bool backward) const;

  Sizes sizes_;
  std::vector<RecurrentCell> cells_;
  std::vector<std::vector<RecurrentCell>> transitions_;  // after each of the cells
};

}  // namespace heed
