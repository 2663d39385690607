// A weight matrix within a step. One that is used many times, as in the steps of a recurrent
// decoder, is packed once, and its gradient is one product over all uses, dW = [x1; x2; ...]^T
// [dy1; dy2; ...], instead of one small product and one sum each (docs/decisions/recording.md). The
// gradient of the bias that goes with it, the sum of all dy, comes at the same time.
//
// On a GPU all gradients of weights wait for the end of the backward pass: nothing needs them
// earlier, and small products fill a GPU only together. Those of one size are one launch, all sums
// another.
#pragma once

#include <map>
#include <memory>
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

  // For few rows only: w (or w^T) as products read it, from the second use on. packed() also
  // where no tape is open but weights are fixed.
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

// While it lives, no weight changes, as in a search: what linear() multiplies by step after step is
// laid out for products once. On a CPU; for this thread, where no tape is open.
class FixedWeights {
 public:
  FixedWeights();
  ~FixedWeights();
  FixedWeights(const FixedWeights&) = delete;
  FixedWeights& operator=(const FixedWeights&) = delete;

  std::optional<Tensor> packed(const Tensor& w);

 private:
  struct Used {
    Tensor w;  // its memory is not given to another while this remembers it
    std::optional<Tensor> packed;
  };
  std::map<std::vector<int64_t>, Used> used_;  // by place and layout
  FixedWeights* previous_;
};

// At the end of the backward pass, the sum of the rows of x [rows, n] is added to the gradient of a
// parameter. On a GPU.
void add_rows_later(const std::shared_ptr<ParameterState>& to, const Tensor& x);

// For the tape: nothing waits at the beginning of the backward pass, and at its end what waits is
// computed, also for uses that the loss does not depend on.
using NotedWeight = std::pair<std::shared_ptr<ParameterState>, std::shared_ptr<WeightUses>>;
void drop_deferred();
void flush_weights(const std::vector<NotedWeight>& noted);

}  // namespace heed
