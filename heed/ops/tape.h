// The tape: what was computed, so that gradients can be computed back.
//
//   Tape tape;                        // from here on, ops of this thread are recorded
//   Tensor loss = model.loss(batch);
//   tape.backward(loss);              // every parameter's state now holds its gradient
//
// A tape is a list that only grows; its order is already topological, so backward is one loop from
// the end. While it runs nothing is recorded, and each record is dropped as soon as it has been
// used, with the tensors it kept. With no tape open, record() returns at once.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heed/kernels/kernels.h"
#include "heed/tensor/tensor.h"

namespace heed {

// What flows back to an input: a gradient of its shape or, for an op that reads only a part of it
// (slice), a gradient of that part, which the tape adds where it belongs: a decoder that takes its
// input step by step would otherwise add a tensor of zeros for every step.
struct Gradient {
  Gradient(Tensor whole) : value(std::move(whole)) {}  // NOLINT: meant to be converted to
  Gradient(Tensor part, const Shape& whole, int axis, int64_t begin)
      : value(std::move(part)), part_of(Part{whole, axis, begin}) {}

  struct Part {
    Shape whole;
    int axis;
    int64_t begin;
  };
  Tensor value;
  std::optional<Part> part_of;
};

// One for each input of an op, in order; none where the input is not tracked.
using Grads = std::vector<std::optional<Gradient>>;

// From the gradient of an op's result to those of its inputs. The closure owns dy and may overwrite
// it (see reusable()).
using Backward = std::function<Grads(Tensor dy)>;

// What an op was made from. A null pointer stands for an input that was left out.
using Inputs = std::span<const Tensor* const>;

class Tape {
 public:
  // Becomes the thread's current tape. What is drawn while it is open (dropout) is a function of
  // the seed: a trainer derives it from the step. Without one, every tape of a process has its own.
  Tape();
  explicit Tape(uint64_t seed);
  ~Tape();  // the one before becomes current again
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // Adds d loss / d p to the state of every parameter p that `loss`, a single number, depends on.
  // The tape is empty afterwards. Throws Error if the loss was not recorded here.
  void backward(const Tensor& loss);

  // The open tape of this thread, or null.
  static Tape* current();
  Random& random() { return random_; }
  // A seed for a kernel that draws: the n-th of a tape and the tape's seed make it, and the latter
  // is uploaded where the step is captured as a graph.
  kernels::Seed draw();
  // Draws from here on what a new tape with this seed would. Not within a captured step.
  void reseed(uint64_t seed);
  uint64_t number() const { return number_; }  // no two tapes of a process have the same
  // For ops/weight.h: what waits for the end of the backward pass that is under way on this thread.
  static class DeferredGradients& deferred();
  // For ops/attention.cpp: decoders whose steps are being recorded.
  std::vector<std::weak_ptr<struct AttentionSteps>>& attention_steps() { return attention_steps_; }
  // For ops/weight.h: this parameter's uses are to be flushed and forgotten with the tape.
  void note_weight(const std::shared_ptr<ParameterState>& state) {
    weights_.emplace_back(state, state->uses);
  }

 private:
  friend bool tracked(const Tensor&);
  friend Tensor record_on_tape(const char*, Inputs, Tensor, Backward);

  struct Input {  // where an input's gradient goes: a record of this tape, a state, or nowhere
    int64_t index = -1;
    std::shared_ptr<ParameterState> state;
  };
  struct Record {
    const char* op;
    Shape shape;
    std::vector<Input> inputs;
    Backward backward;
  };

  void forget_weights();

  uint64_t number_;
  Tape* previous_;
  uint64_t seed_;
  Random random_, drawn_{0x7461706573656564};
  std::vector<std::weak_ptr<struct AttentionSteps>> attention_steps_;
  const uint64_t* key_;  // the seed on a GPU, while a step is captured or replayed; else null
  std::vector<Record> records_;
  std::vector<std::pair<std::shared_ptr<ParameterState>, std::shared_ptr<WeightUses>>> weights_;
};

// A parameter may be used by one thread at a time: its state is not guarded.

// Does an open tape follow this tensor? Only then is its gradient worth computing.
bool tracked(const Tensor& x);

Tensor record_on_tape(const char* op, Inputs inputs, Tensor y, Backward backward);

// Notes that y was made from `inputs`; `backward` keeps what it captures until the backward pass.
// Returns y, which is from then on tracked if one of the inputs is.
template <class F>
Tensor record(const char* op, Inputs inputs, Tensor y, F&& backward) {
  for (const Tensor* x : inputs)
    if (x && tracked(*x))
      return record_on_tape(op, inputs, std::move(y), std::forward<F>(backward));
  return y;
}
template <class F>
Tensor record(const char* op, std::initializer_list<const Tensor*> inputs, Tensor y, F&& backward) {
  return record(op, Inputs(inputs.begin(), inputs.size()), std::move(y), std::forward<F>(backward));
}

// For a closure in the backward pass: the gradient that has come together so far for the tensor
// recorded at `slot`, zeros at first, to be added to in place; the closure then returns none for
// that input. For large inputs that many records share, such as the source that every step of a
// decoder attends to.
Tensor gradient_so_far(const Slot& slot, const Shape& shape, Type type);

// Where the gradient of an op's input gathers, for a closure that can add to it in place: one pass
// over memory less than a gradient of its own that the tape then adds.
struct Destination {
  explicit Destination(const Tensor& x) : slot(x.slot()), state(x.parameter_state()) {}
  // What has come together so far, if there is anything and nobody else sees it. A closure that
  // adds to it returns none for that input.
  std::optional<Tensor> begun() const;
  // Has nothing come yet?
  bool empty() const;

  Slot slot;
  std::shared_ptr<ParameterState> state;

 private:
  const Tensor* so_far() const;
};

// True for the 1 with which the backward pass begins: what is multiplied by it need not be.
bool is_unit(const Tensor& dy);

// A tensor like dy to write a gradient into: dy itself if nobody else sees it, which saves memory
// and its way through the cache. For kernels that may work in place. dy must be contiguous.
Tensor reusable(const Tensor& dy);

// Makes `x` a parameter: its gradient gathers in its state. Copies share the state.
Tensor as_parameter(Tensor x);

// While it lives, nothing is recorded on this thread.
class NoTape {
 public:
  NoTape();
  ~NoTape();
  NoTape(const NoTape&) = delete;
  NoTape& operator=(const NoTape&) = delete;

 private:
  Tape* previous_;
};

}  // namespace heed
