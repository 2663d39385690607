// What benchmarks of attention are made with: queries, keys, values, what a score needs, and the
// gradient of the context, given from outside.
#pragma once

#include <memory>

#include "heed/attention/attend.h"
#include "heed/tensor/context.h"

namespace heed::bench {

struct AttendingSizes {
  int64_t batch, heads, length, size;
  Type type = Type::f32;
};

// Its tensors lie on the device in use; what it computes, in the arena.
struct Attending {
  std::shared_ptr<Arena> arena = Arena::make(current_arena().device());
  Params params{1};
  Tensor q, k, v, given;

  explicit Attending(const AttendingSizes& s) {
    Random random(3);
    const Shape shape{s.batch, s.heads, s.length, s.size};
    // Heads are alike: to draw all would take longer than to measure.
    const auto draw = [&] {
      return cast(zeros(shape) + normal({1, 1, s.length, s.size}, 1, random), s.type);
    };
    q = as_parameter(draw()), k = as_parameter(draw()), v = as_parameter(draw()), given = draw();
  }
  virtual ~Attending() = default;
  virtual Tensor context() const = 0;

  void forward() const {
    const UseArena use(*arena);
    const NoTape off;
    context();
  }
  void forward_backward() const {
    const UseArena use(*arena);
    Tape tape;
    const Tensor y = context();
    tape.backward(record("given", {&y}, zeros({}), [this](const Tensor&) { return Grads{given}; }));
    for (const Tensor* x : {&q, &k, &v}) x->parameter_state()->grad = nullptr;
    params.clear_gradients();
  }
};

struct ScaledDot final : Attending {
  std::unique_ptr<Score> score;
  Mask mask;
  explicit ScaledDot(const AttendingSizes& s, const Mask& seen = {})
      : Attending(s),
        score(make_score("scaled_dot", params, {.query = s.size, .key = s.size, .heads = s.heads})),
        mask(seen.at({s.batch, s.heads, s.length, s.length})) {}
  Tensor context() const override { return attend(*score, q, k, v, {.mask = mask}).context; }
};

// On projected queries and keys: the projections are plain products.
struct Additive final : Attending {
  Tensor weights;
  explicit Additive(const AttendingSizes& s)
      : Attending(s), weights(params.add("v", {s.heads, s.size}, normal_values(0.06))) {}
  Tensor context() const override {
    return fused_attention({.form = ScoreForm::additive, .q = q, .k = k, .value = v, .v = weights})
        .context;
  }
};

}  // namespace heed::bench
