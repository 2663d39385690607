// attend() with a term for each query and key: any mask, any bias.
#include "heed/ops/gradient_check.h"
#include "tests/attending.h"

namespace heed {
namespace {

constexpr int64_t kBatch = 2, kHeads = 2, kQueries = 3, kKeys = 4, kSize = 5;

struct Given {
  Tensor q, k, v;
};
Given drawn(Type type = Type::f64) {
  Random random(3);
  return {normal({kBatch, kHeads, kQueries, kSize}, 1, random, type),
          normal({kBatch, kHeads, kKeys, kSize}, 1, random, type),
          normal({kBatch, kHeads, kKeys, kSize}, 1, random, type)};
}
std::unique_ptr<Score> dots(const Params& params) {
  return make_score("dot", params, {.query = kSize, .key = kSize, .heads = kHeads});
}

// The definition, by matrix products.
Tensor by_hand(const Given& x, const Tensor& bias) {
  return matmul(softmax(matmul(x.q, transpose(x.k, 2, 3)) + bias), x.v);
}

TEST(ScoreBias, IsAddedForEachQueryAndKeyInEveryShapeThatIsAllowed) {
  const Params params(1, Type::f64);
  const auto score = dots(params);
  const Given x = drawn();
  Random random(4);
  for (const Shape& shape :
       {Shape{kQueries, kKeys}, Shape{1, 1, kQueries, kKeys}, Shape{kBatch, 1, kQueries, kKeys},
        Shape{1, kHeads, kQueries, kKeys}, Shape{kBatch, kHeads, kQueries, kKeys}}) {
    const Tensor bias = normal(shape, 1, random, Type::f64);
    const Attended got = attend(*score, x.q, x.k, x.v, {.score_bias = bias});
    EXPECT_LT(worst(by_hand(x, bias).values(), got.context.values()), 1e-12) << shape;
  }
}

TEST(ScoreBias, MinusInfinityHidesAKeyAndARowOfItGivesZeros) {
  const Params params(1, Type::f64);
  const auto score = dots(params);
  const Given x = drawn();
  Numbers causal;
  for (int64_t i = 0; i < kQueries; ++i)
    for (int64_t j = 0; j < kKeys; ++j) causal.push_back(j <= i ? 0 : -kInfinity);
  const Tensor bias = tensor(causal, {kQueries, kKeys}, Type::f64);
  const Tensor wanted = attend(*score, x.q, x.k, x.v, {.mask = Mask::causal()}).context;
  const Tensor got = attend(*score, x.q, x.k, x.v, {.score_bias = bias}).context;
  EXPECT_LT(worst(wanted.values(), got.values()), 1e-12);
  const Tensor nothing = full({kQueries, kKeys}, -kInfinity, Type::f64);
  EXPECT_TRUE(all_zero(attend(*score, x.q, x.k, x.v, {.score_bias = nothing}).context.values()));
}

TEST(ScoreBias, GoesWithMasksTemperatureAndTheLargestWeights) {
  const Params params(1, Type::f64);
  const auto score = dots(params);
  const Given x = drawn();
  Random random(5);
  const Tensor bias = normal({kBatch, kHeads, kQueries, kKeys}, 1, random, Type::f64);
  const std::vector<Id> lengths = {2, 4};
  const AttendOptions options{.mask = Mask::padding(lengths),
                              .weigh = {.temperature = 2},
                              .score_bias = bias,
                              .want_weights = true,
                              .want_top = 1};
  const Attended got = attend(*score, x.q, x.k, x.v, options);
  const Tensor scores = (matmul(x.q, transpose(x.k, 2, 3)) + bias) / 2.0;
  const Numbers all = softmax(scores).values(), weights = got.weights->values();
  const Numbers shortened = softmax(slice(scores, 3, 0, 2)).values();
  const auto half = static_cast<std::ptrdiff_t>(all.size() / 2);
  EXPECT_LT(
      worst(Numbers(all.begin() + half, all.end()), Numbers(weights.begin() + half, weights.end())),
      1e-12);
  for (size_t row = 0; row < size_t{kHeads * kQueries}; ++row)
    for (size_t j = 0; j < 4; ++j)
      EXPECT_NEAR(weights[row * 4 + j], j < 2 ? shortened[row * 2 + j] : 0, 1e-12);
  EXPECT_EQ(got.top->values.values(), max(*got.weights, -1).values());
}

TEST(ScoreBias, HasAGradient) {
  const Params params(1, Type::f64);
  const auto score = dots(params);
  const Given x = drawn();
  Random random(6);
  const GradientCheck check = check_gradient(
      [&](const std::vector<Tensor>& in) {
        return attend(*score, in[0], in[1], in[2], {.score_bias = in[3]}).context;
      },
      {x.q, x.k, x.v, normal({1, kHeads, kQueries, kKeys}, 1, random, Type::f64)});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

TEST(ScoreBias, OfAnotherShapeIsAnError) {
  const Params params(1, Type::f64);
  const auto score = dots(params);
  const Given x = drawn();
  EXPECT_EQ(message([&] {
              attend(*score, x.q, x.k, x.v, {.score_bias = zeros({kKeys, kQueries}, Type::f64)});
            }),
            "attend: score_bias wants [3, 4] or [2 or 1, 2 or 1, 3, 4], given [4, 3]");
}

}  // namespace
}  // namespace heed
