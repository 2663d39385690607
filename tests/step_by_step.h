// A model as search sees it, step by step, against the same all at once, as training has it.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "heed/models/model.h"
#include "tests/compare.h"

namespace heed {

// What is computed in another order, in f32, on numbers of about 1 to 10 may differ by this.
inline constexpr double kRounding = 1e-5;

// `in`: the words that T steps of B sentences read, sentence by sentence. Of weights over a model's
// own past a step has only those of the steps so far.
template <class Source>
void expect_steps_as_forced(const Model& model, const Source& source, const std::vector<Id>& in,
                            int64_t B, int64_t T, bool attends) {
  const TeacherForced forced = model.forward(source, ids(in, {B, T}), true);
  EXPECT_EQ(forced.weights.empty(), !attends);
  const Tensor all = log_softmax(model.logits(forced.hidden));
  State state = model.start(source);
  for (int64_t t = 0; t < T; ++t) {
    std::vector<Id> last;
    for (int64_t b = 0; b < B; ++b) last.push_back(in[static_cast<size_t>(b * T + t)]);
    const Step step = model.step(state, last, true);
    EXPECT_LT(
        worst(slice(all, 1, t, t + 1).values(), log_softmax(model.logits(step.hidden)).values()),
        kRounding)
        << "step " << t;
    ASSERT_EQ(step.weights.size(), forced.weights.size());
    for (size_t i = 0; i < step.weights.size(); ++i) {
      const Tensor& now = step.weights[i].values;
      const Tensor row = slice(forced.weights[i].values, 2, t, t + 1);
      const int64_t keys = now.size(now.rank() - 1);
      EXPECT_TRUE(keys == row.size(3) || keys == t + 1) << keys << " keys at step " << t;
      EXPECT_LT(worst(slice(row, 3, 0, keys).values(), now.values()), kRounding)
          << "weights of step " << t;
    }
  }
}

}  // namespace heed
