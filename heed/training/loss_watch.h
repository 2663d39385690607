// Sees from the training loss that a run learns nothing, or has diverged: a GPU's night is saved,
// and so is the checkpoint of before. What it says is a function of the losses.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace heed {

class LossWatch {
 public:
  static constexpr int64_t kBlock = 100;  // updates whose mean loss is looked at
  static constexpr int64_t kBlocks = 5;   // in a row, before a run ends

  // All that a checkpoint holds of it.
  struct State {
    double loss = 0;  // sum over the tokens of this block
    int64_t tokens = 0, updates = 0;
    double best = std::numeric_limits<double>::infinity();  // of the blocks' means
    int64_t uniform = 0, far = 0;  // blocks in a row: above a uniform guess's, far above the best
  };

  // `tokens`: the size of the vocabulary that is guessed from.
  LossWatch(int64_t tokens, int64_t warmup);

  // Of update `step`, the mean loss of a token in nats. What is wrong, if the run is to end.
  std::optional<std::string> add(int64_t step, double loss, int64_t tokens);

  // Whether the last update speaks for a model that is lost, of which no checkpoint should be made.
  bool doubtful() const;

  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  bool is_far(double loss) const;

  double uniform_;
  int64_t warmup_;
  State state_;
  double last_ = 0;
};

}  // namespace heed
