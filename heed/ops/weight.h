// A weight matrix within a step. One that is used many times, as in the steps of a recurrent
// decoder, is packed once, and its gradient is one product over all uses, dW = [x1; x2; ...]^T
// [dy1; dy2; ...], instead of one small product and one sum each (docs/decisions/recording.md). The
// gradient of the bias that goes with it, the sum of all dy, comes at the same time.
//
// On a GPU all gradients of weights wait for the end of the backward pass: nothing needs them
// earlier, and small products fill a GPU only together. Those of one size are one launch, all sums
// another.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "heed/ops/into.h"

namespace heed {

// What a tape knows of a weight's uses. Lives in the parameter's state.
struct WeightUses {
  uint64_t tape = 0;  // the tape these belong to; the weight does not change while it is open
  Shape shape;        // of the parameter
  int recorded = 0, returned = 0;
  std::optional<Tensor> packed, packed_transposed;
  std::vector<Tensor> x, dy;             // of the uses whose gradients have come back
  std::shared_ptr<ParameterState> bias;  // of the first use
  bool one_bias = true;                  // every use has it: its gradient can wait too
};

// One use, made when the op is recorded and kept by its closure.
class WeightUse {
 public:
  // w [K, N] or, a score's with one head, [1, K, N]; `bias`: the state of the bias that is added to
  // every product with w, if it has one.
  explicit WeightUse(const Tensor& w, const std::shared_ptr<ParameterState>& bias = nullptr);

  // w (or w^T) as products read it, from the second use on: for few rows only or, where no tape is
  // open, of weights that do not change (PackedWeights).
  std::optional<Tensor> packed(int64_t rows);
  std::optional<Tensor> packed_transposed(int64_t rows);

  // x^T dy and, if wanted, the sum of dy over rows, over all uses when it is the last one's turn;
  // before that, and on a GPU, nothing: the state gets it later.
  struct Gradients {
    std::optional<Tensor> weight, bias;
  };
  Gradients gradients(const Tensor& x, const Tensor& dy, bool want_bias);

  const Tensor& w() const { return w_; }  // [K, N]

 private:
  bool worth_packing(int64_t rows) const;

  Tensor w_;  // detached
  Shape shape_;
  std::shared_ptr<ParameterState> state_;
  std::shared_ptr<WeightUses> uses_;  // null: not a parameter, or no tape is open
};

// Weights that do not change, as in a search, laid out for products once: what linear() multiplies
// by step after step, from its second use on. On a CPU. May be used by many threads at once; a
// packed weight is read in every context.
class PackedWeights {
 public:
  PackedWeights();
  ~PackedWeights();
  std::optional<Tensor> packed(const Tensor& w);
  // Null unless it is packed already.
  const Tensor* ready(const Tensor& w) const;

 private:
  using Key = std::array<int64_t, 5>;  // place and layout
  struct Used {
    Key key;
    Tensor w;  // its memory is not given to another while this remembers it
    std::optional<Tensor> packed;
  };
  class Table;
  static Key key_of(const Tensor& w);
  void publish(const Used& used);

  std::atomic<const Table*> ready_;  // those that are packed: read without a lock
  std::mutex mutex_;
  std::vector<std::unique_ptr<Table>> tables_;  // the last one is ready_; others may be being read
  std::shared_ptr<Arena> arena_;                // of no context
  std::map<Key, Used> used_;
};

// While it lives, products of this thread use these, where no tape is open.
class UsePackedWeights {
 public:
  explicit UsePackedWeights(std::shared_ptr<PackedWeights> weights);
  ~UsePackedWeights();
  UsePackedWeights(const UsePackedWeights&) = delete;
  UsePackedWeights& operator=(const UsePackedWeights&) = delete;

 private:
  std::shared_ptr<PackedWeights> weights_;
  PackedWeights* previous_;
};

// At the end of the backward pass, the sum of the rows of x [rows, n] is added to the gradient of a
// parameter. On a GPU.
void add_rows_later(const std::shared_ptr<ParameterState>& to, const Tensor& x);

// Gradients of weights and biases that wait for the end of a backward pass, which owns them.
class DeferredGradients {
 public:
  DeferredGradients();
  ~DeferredGradients();
  struct Inside;
  Inside& inside() { return *inside_; }

 private:
  std::unique_ptr<Inside> inside_;
};

// For the tape: what waits is computed, also for uses that the loss does not depend on.
using NotedWeight = std::pair<std::shared_ptr<ParameterState>, std::shared_ptr<WeightUses>>;
void flush_weights(DeferredGradients& deferred, const std::vector<NotedWeight>& noted);

}  // namespace heed
