// Ways to weigh other than softmax.
#include <gtest/gtest.h>

#include "heed/training/optimizer.h"
#include "tests/attending.h"

namespace heed {
namespace {

TEST(Weigh, StraightThroughHasTheGradientOfSoftmax) {
  for (AttentionSpec s : cases::scores()) {
    s.heads = 4, s.key_heads = 2, s.mask = Masked::padding_causal;
    s.weigh = {Weigh::Kind::straight_through, 0.8};
    const AttentionCase through = attention_case(s);
    s.weigh.kind = Weigh::Kind::soft;
    const AttentionCase soft = attention_case(s);
    s.weigh.kind = Weigh::Kind::hard;
    const AttentionCase hard = attention_case(s);
    const std::vector<Tensor> x = cases::draw(soft, Type::f64);
    const auto a = everything(through.f, x), b = everything(soft.f, x), h = everything(hard.f, x);
    EXPECT_LE(worst(h[0], a[0]), 1e-12) << s.score;
    EXPECT_LE(worst(h[3], a[3]), 1e-12) << s.score;  // of values: what was read
    for (size_t i = 1; i < a.size(); ++i)
      if (i != 3) {
        EXPECT_LE(worst(b[i], a[i]), 1e-12 * (1 + largest(b[i]))) << s.score << ", " << i;
      }
  }
}

TEST(Weigh, HardHasNoGradientButThatOfTheValues) {
  for (AttentionSpec s : cases::scores()) {
    s.mask = Masked::padding, s.weigh.kind = Weigh::Kind::hard;
    const AttentionCase c = attention_case(s);
    const auto all = everything(c.f, cases::draw(c, Type::f64));
    for (size_t i = 1; i < all.size(); ++i) EXPECT_EQ(all_zero(all[i]), i != 3) << c.name << i;
  }
}

TEST(Weigh, SparseWeightsOfEqualScoresAreEqualAndAFarOneGetsNothing) {
  for (const double alpha : {1.5, 2.0}) {
    const Numbers w =
        entmax(tensor(Numbers{3, 3, 3, 3, -9, 7, 7, 0, 0, 0}, {2, 5}, Type::f64), alpha).values();
    const Numbers want{.25, .25, .25, .25, 0, .5, .5, 0, 0, 0};
    EXPECT_LE(worst(want, w), 1e-15) << alpha;
    EXPECT_EQ(w[4], 0) << alpha;
    for (const double number : {kNaN, kInfinity}) {
      const Numbers bad = entmax(tensor(Numbers{1, number, 2}, {3}, Type::f64), alpha).values();
      EXPECT_TRUE(std::any_of(bad.begin(), bad.end(), [](double v) { return std::isnan(v); }))
          << alpha << ": " << number << " is not hidden";
    }
  }
}

// One query asked many times of three keys: q = 1, so that the keys are the scores.
struct Draws {
  static constexpr int64_t N = 20000;
  Tensor q = full({1, 1, N, 1}, 1, Type::f64);
  Tensor keys = as_parameter(tensor(Numbers{0.2, 1.1, -0.7}, {1, 1, 3, 1}, Type::f64));
  Tensor values = tensor(Numbers{1, -2, 4}, {1, 1, 3, 1}, Type::f64);
  std::unique_ptr<Score> score = make_score("dot", Params(1), {.query = 1, .key = 1});
  Numbers p = softmax(reshape(keys.detached(), {3})).values();

  Attended read(Weigh how) const {
    return attend(*score, q, keys, values, {.weigh = how, .want_weights = true});
  }
};

Numbers frequencies(const Tensor& weights) {
  Numbers out(3);
  for (const double j : arg_max(weights).values()) out[static_cast<size_t>(j)] += 1.0 / Draws::N;
  return out;
}

TEST(Weigh, GumbelAndReinforceDrawBySoftmax) {
  const Draws d;
  for (const Weigh::Kind kind : {Weigh::Kind::gumbel, Weigh::Kind::reinforce}) {
    const Tape tape(uint64_t{4});
    const Attended read = d.read({kind, 1});
    const Numbers found = frequencies(*read.weights);
    // Of 20,000 draws: four deviations are at most 0.014.
    for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(found[j], d.p[j], 0.014) << j;
    ASSERT_EQ(read.log_probability.has_value(), kind == Weigh::Kind::reinforce);
    if (!read.log_probability) continue;
    const Numbers log_p = read.log_probability->values(), drawn = arg_max(*read.weights).values();
    for (size_t i = 0; i < log_p.size(); ++i)
      ASSERT_NEAR(log_p[i], std::log(d.p[static_cast<size_t>(drawn[i])]), 1e-12);
  }
}

// The temperature makes the draws of gumbel sharper, not other.
TEST(Weigh, GumbelDrawsTheSameAtAnyTemperatureAndIsNearlyHardAtALowOne) {
  const Draws d;
  const Tape tape(uint64_t{4});
  const Tensor weights = *d.read({Weigh::Kind::gumbel, 0.01}).weights;
  const Numbers found = frequencies(weights);
  for (size_t j = 0; j < 3; ++j) EXPECT_NEAR(found[j], d.p[j], 0.014) << j;
  double most = 0;
  for (const double w : top_k(weights, 1).values.values()) most += w / Draws::N;
  EXPECT_GT(most, 0.98);
}

TEST(Weigh, ReinforceFollowsThePolicyGradient) {
  for (const double guess : {0.0, 1.5}) {
    const Draws d;
    Tape tape(uint64_t{4});
    const Attended read = d.read({Weigh::Kind::reinforce, 1});
    const Tensor reward = reshape(read.context, {1, 1, Draws::N}).detached();
    tape.backward(
        reinforce_loss(*read.log_probability, reward, full(reward.shape(), guess, Type::f64)));
    // d/ds -E[r] = -sum_j p_j r_j (e_j - p), whatever the baseline.
    const Numbers r = d.values.values(), by_draws = d.keys.parameter_state()->grad->values();
    const double expected = d.p[0] * r[0] + d.p[1] * r[1] + d.p[2] * r[2];
    for (size_t j = 0; j < 3; ++j)
      // A term of one draw has a deviation below 2: four of the mean's are 0.06.
      EXPECT_NEAR(by_draws[j], -d.p[j] * (r[j] - expected), 0.06) << j << ", baseline " << guess;
  }
}

TEST(Weigh, ABaselineLearnsTheRewardAndNothingElseMovesIt) {
  const Params params(1, Type::f64);
  const Baseline guess(params, 2);
  const Tensor q = normal64({4, 2, 5, 2}, 1), s = as_parameter(full({4, 2, 5}, -1, Type::f64));
  // What it has to learn: 0.7 + 0.3 q_0 - 0.5 q_1.
  const Numbers x = q.values();
  Numbers rewards;
  for (size_t i = 0; i < 40; ++i) rewards.push_back(0.7 + 0.3 * x[2 * i] - 0.5 * x[2 * i + 1]);
  const Tensor reward = tensor(rewards, {4, 2, 5}, Type::f64);
  Adam adam(params);
  for (int step = 0; step < 400; ++step) {
    Tape tape;
    const Tensor b = guess(q);
    const Numbers advantage = (reward - b).values();
    s.parameter_state()->grad = nullptr;
    tape.backward(reinforce_loss(s, reward, b));
    const Numbers ds = s.parameter_state()->grad->values();
    for (size_t i = 0; i < 40; ++i) ASSERT_NEAR(ds[i], -advantage[i] / 40, 1e-12);
    adam.step(0.02);
  }
  EXPECT_LE(worst(rewards, guess(q).values()), 1e-3);
}

}  // namespace
}  // namespace heed
