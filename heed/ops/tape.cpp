#include "heed/ops/tape.h"

#include <atomic>

#include "heed/ops/into.h"
#include "heed/ops/ops.h"
#include "heed/ops/weight.h"
#include "heed/tensor/graph.h"

namespace heed {
namespace {

thread_local Tape* open_tape = nullptr;

std::atomic<uint64_t> tapes_made = 0;

// The backward pass that is under way on this thread, if one is. Nothing of it outlives it, also if
// it ends by an exception.
struct BackwardPass;
thread_local BackwardPass* under_way = nullptr;
struct BackwardPass {
  BackwardPass(uint64_t number, std::vector<Tensor>& by_record, const Tensor& one)
      : tape(number), grads(by_record), unit(one) {
    under_way = this;
  }
  ~BackwardPass() { under_way = nullptr; }
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  uint64_t tape;               // its number
  std::vector<Tensor>& grads;  // by record
  const Tensor& unit;          // the gradient that it began with
  DeferredGradients deferred;
};

// Nobody else sees its numbers, and they lie in order: they can be added to.
Tensor own(Tensor sum) {
  return sum.sole_owner() && sum.contiguous() ? sum : sum + zeros({}, sum.type());
}

// sum + grad, in place where nobody else can see the sum. `sum` may be undefined: nothing came yet.
Tensor added(Tensor sum, Gradient grad) {
  if (!grad.part_of && !sum.defined()) return std::move(grad.value);
  if (!grad.part_of && (!sum.sole_owner() || !sum.contiguous())) return sum + grad.value;
  if (!sum.defined()) sum = zeros(grad.part_of->whole, grad.value.type());
  sum = own(std::move(sum));
  if (!grad.part_of) {
    add_into(grad.value, sum);
    return sum;
  }
  const auto& [whole, axis, begin] = *grad.part_of;
  add_into(grad.value, sum.view(grad.value.shape(), sum.strides(), begin * sum.stride(axis)));
  return sum;
}

}  // namespace

Tape::Tape() : Tape(tapes_made + 1) {}
Tape::Tape(uint64_t seed)
    : number_(++tapes_made),
      previous_(open_tape),
      seed_(seed),
      random_(seed),
      key_(static_cast<const uint64_t*>(graph_upload(&seed_, sizeof seed_))) {
  open_tape = this;
}
Tape::~Tape() {
  forget_weights();
  open_tape = previous_;
}
void Tape::forget_weights() {
  for (const auto& [state, uses] : weights_)
    if (state->uses == uses) state->uses = nullptr;
  weights_.clear();
}
Tape* Tape::current() { return open_tape; }

void Tape::reseed(uint64_t seed) {
  seed_ = seed;
  random_ = Random(seed);
  drawn_ = Random(drawn_.seed());
}

kernels::Seed Tape::draw() {
  const uint64_t n = drawn_.split();
  return key_ ? kernels::Seed{n, key_} : kernels::Seed{n + seed_, nullptr};
}

NoTape::NoTape() : previous_(open_tape) { open_tape = nullptr; }
NoTape::~NoTape() { open_tape = previous_; }

bool tracked(const Tensor& x) {
  return open_tape && (x.parameter_state() || x.slot().tape == open_tape->number_);
}

Tensor gradient_so_far(const Slot& slot, const Shape& shape, Type type) {
  HEED_ASSERT(under_way && slot.index < std::ssize(under_way->grads));
  Tensor& sum = under_way->grads[static_cast<size_t>(slot.index)];
  sum = sum.defined() ? own(std::move(sum)) : zeros(shape, type);
  return sum;
}

const Tensor* Destination::so_far() const {
  const Tensor* sum = state ? state->grad.get() : nullptr;
  if (!state && under_way && slot.tape == under_way->tape &&
      slot.index < std::ssize(under_way->grads))
    sum = &under_way->grads[static_cast<size_t>(slot.index)];
  return sum && sum->defined() ? sum : nullptr;
}
std::optional<Tensor> Destination::begun() const {
  const Tensor* const sum = so_far();
  if (!sum || !sum->sole_owner() || !sum->contiguous()) return std::nullopt;
  return *sum;
}
bool Destination::empty() const { return !so_far(); }

bool is_unit(const Tensor& dy) { return under_way && dy.raw() == under_way->unit.raw(); }

DeferredGradients& Tape::deferred() {
  HEED_ASSERT(under_way);
  return under_way->deferred;
}

Tensor reusable(const Tensor& dy) { return dy.sole_owner() ? dy : empty_like(dy); }

Tensor as_parameter(Tensor x) {
  x.set_parameter_state(std::make_shared<ParameterState>());
  return x;
}

Tensor record_on_tape(const char* op, Inputs inputs, Tensor y, Backward backward) {
  Tape& tape = *open_tape;
  Tape::Record made{.op = op, .shape = y.shape(), .inputs = {}, .backward = std::move(backward)};
  for (const Tensor* x : inputs) {
    Tape::Input to;
    if (x && x->slot().tape == tape.number_) to.index = x->slot().index;
    if (x) to.state = x->parameter_state();
    made.inputs.push_back(std::move(to));
  }
  y = y.detached();  // a view of a parameter is not itself the parameter
  y.set_slot({.tape = tape.number_, .index = static_cast<int64_t>(tape.records_.size())});
  tape.records_.push_back(std::move(made));
  return y;
}

void Tape::backward(const Tensor& loss) {
  require(loss.count() == 1, "backward: the loss must be a single number, given shape ",
          loss.shape());
  require(loss.slot().tape == number_,
          "backward: the loss was not recorded on this tape; it depends on no parameter, or was "
          "computed before the tape was opened");
  const NoTape off;
  std::vector<Tensor> grads(records_.size());
  const Tensor one = full(loss.shape(), 1, loss.type());
  BackwardPass pass(number_, grads, one);
  grads[static_cast<size_t>(loss.slot().index)] = one;
  while (!records_.empty()) {
    Record made = std::move(records_.back());
    records_.pop_back();
    Tensor dy = std::move(grads.back());
    grads.pop_back();
    if (!dy.defined()) continue;  // the loss does not depend on it
    require(dy.shape() == made.shape, "backward: gradient of ", made.op, " has shape ", dy.shape(),
            ", its result ", made.shape);
    Grads back = made.backward(std::move(dy));
    made.backward = nullptr;  // what it kept is free to be reused from here on
    require(back.size() == made.inputs.size(), "backward: ", made.op, " was made from ",
            made.inputs.size(), " inputs, its closure returned ", back.size(), " gradients");
    for (size_t i = 0; i < back.size(); ++i) {
      const Input& to = made.inputs[i];
      if (!back[i]) continue;
      Gradient grad = std::move(*back[i]);
      back[i].reset();
      if (to.state) {
        if (!to.state->grad) to.state->grad = std::make_shared<Tensor>();
        *to.state->grad = added(std::move(*to.state->grad), std::move(grad));
      } else if (to.index >= 0) {
        Tensor& sum = grads[static_cast<size_t>(to.index)];
        sum = added(std::move(sum), std::move(grad));
      }
    }
  }
  flush_weights(pass.deferred, weights_);
  forget_weights();
  // What was recorded so far is unknown to what is recorded from here on.
  number_ = ++tapes_made;
}

}  // namespace heed
