// The fused kernel against what it stands for, at all lengths.
#include <gtest/gtest.h>

#include "heed/base/parallel.h"
#include "tests/attending.h"
#include "tests/targets.h"

namespace heed {
namespace {

TEST(FusedAttention, ErrsAtMostTwiceAsMuchAsTheComposedFormAtAllLengths) {
  struct Sizes {
    int64_t queries, keys, size = 9, value_size = 11;
  };
  // Sizes of less and of more than a panel of a product, and whole ones.
  const std::vector<Sizes> all_sizes{
      {0, 0},    {0, 5},    {5, 0},     {1, 1},           {1, 2},
      {2, 1},    {17, 17},  {1, 1000},  {1000, 1},        {64, 64},
      {17, 129}, {129, 64}, {129, 17},  {129, 129},       {64, 129, 64, 64},
      {2, 1000}, {1000, 2}, {64, 1000}, {129, 64, 40, 72}};
  for (const char* name : kForms)
    for (const auto& [queries, keys, size, value_size] : all_sizes)
      for (const Masked mask : {Masked::none, Masked::causal}) {
        AttentionSpec s;
        s.score = name, s.mask = mask;
        s.batch = 1, s.heads = 2, s.key_heads = 1, s.queries = queries, s.keys = keys;
        s.query_size = s.key_size = size, s.value_size = value_size;
        const AttentionCase c = attention_case(s);
        ASSERT_TRUE(c.form) << name;
        const std::vector<Tensor> x = cases::draw(c, Type::f64), f32 = converted(x, Type::f32);
        const Function composed = [&](const std::vector<Tensor>& in) { return c.composed(in); };
        const auto truth = everything(composed, x), fused64 = everything(c.f, x);
        const auto plain = everything(composed, f32), fused = everything(c.f, f32);
        // A score's gradient is the difference w g.v_j - w g.context, which may be 0 where its
        // parts are not. The first part, by a function that has no other: both are rounded twice.
        const auto part = everything(
            [&](const std::vector<Tensor>& in) {
              const Tensor w = c.attend(in, {.want_weights = true}).weights->detached();
              const Tensor both = reshape(w * c.scores(in), {1, 1, 2 * s.queries, s.keys});
              return reshape(matmul(both, in[2]), {1, 2, s.queries, s.value_size});
            },
            x);
        for (size_t i = 0; i < truth.size(); ++i) {
          const std::string where = c.name + ", " + std::to_string(queries) + " x " +
                                    std::to_string(keys) + ", " +
                                    (i == 0 ? "result" : c.names[i - 1]);
          EXPECT_LE(worst(truth[i], fused64[i]), 1e-11 * (1 + largest(truth[i]))) << where;
          EXPECT_LE(worst(truth[i], fused[i]), 2 * earned(worst(truth[i], plain[i])) +
                                                   2 * 0x1p-23 * largest(truth[i]) +
                                                   (i == 0 ? 0 : 4 * 0x1p-23 * largest(part[i])))
              << where;
        }
      }
}

// tanh(q + k) by products of exponentials: where they overflow, and where q and k cancel.
TEST(FusedAttention, AdditiveScoresAreRightForLargeNumbersToo) {
  const int64_t T = 40, S = 150, n = 24, m = 5;
  for (const double bound : {3.0, 20.0, 45.0, 100.0}) {
    Random random(7);
    const Tensor k = uniform({1, 1, S, n}, bound, random), v = uniform({1, n}, 0.5, random);
    const Tensor value = uniform({1, 1, S, m}, 1, random), near = uniform({1, 1, T, n}, 1, random);
    // Some queries are large too, of any sign, others nearly cancel a key.
    Numbers queries = uniform({1, 1, T, n}, bound, random).values();
    const Numbers keys = k.values(), beside = near.values();
    for (size_t i = 0; i < queries.size() / 2; ++i) queries[i] = beside[i] - keys[i];
    const Tensor q = tensor(queries, {1, 1, T, n}, Type::f32);
    const auto f = [](const std::vector<Tensor>& x) {
      return fused_attention(
                 {.form = ScoreForm::additive, .q = x[0], .k = x[1], .value = x[2], .v = x[3]})
          .context;
    };
    const auto truth_of = [](const std::vector<Tensor>& x) {
      const Tensor scores =
          composed_scores({.form = ScoreForm::additive, .q = x[0], .k = x[1], .v = x[3]});
      return matmul(softmax(scores), x[2]);
    };
    const std::vector<Tensor> x{q, k, value, v};
    const auto truth = everything(truth_of, converted(x, Type::f64));
    on_every_target([&](const char* target) {
      const auto fused = everything(f, x), fused64 = everything(f, converted(x, Type::f64));
      for (size_t i = 0; i < truth.size(); ++i) {
        EXPECT_LE(worst(truth[i], fused[i]), 5e-6 * largest(truth[i]))
            << "up to " << bound << ", number " << i << ", " << target;
        EXPECT_LE(worst(truth[i], fused64[i]), 1e-12 * (1 + largest(truth[i])))
            << "up to " << bound << ", number " << i << ", " << target;
      }
    });
  }
}

// Exponentials are taken from near the largest score of a row's first keys: scores of later keys
// that are larger, a little or by more than a power of 2 can hold, have the row done again.
TEST(FusedAttention, ScoresMayRiseFromKeyToKey) {
  const int64_t T = 50, S = 400, n = 8, m = 5;
  for (const double rise : {4.0, 12.0, 60.0, 150.0, 3000.0}) {
    Random random(8);
    Numbers queries = uniform({1, 1, T, n}, 1, random).values();
    Numbers keys = uniform({1, 1, S, n}, 1, random).values();
    for (size_t i = 0; i < queries.size(); i += n) queries[i] = i % (2 * n) == 0 ? 1 : -1;
    for (size_t j = 0; j < keys.size(); j += n) keys[j] = rise * double(j) / double(keys.size());
    const std::vector<Tensor> given{tensor(queries, {1, 1, T, n}, Type::f32),
                                    tensor(keys, {1, 1, S, n}, Type::f32),
                                    uniform({1, 1, S, m}, 1, random)};
    const auto f = [](const std::vector<Tensor>& x) {
      return fused_attention({.q = x[0], .k = x[1], .value = x[2]}).context;
    };
    const auto truth_of = [](const std::vector<Tensor>& x) {
      return matmul(softmax(composed_scores({.q = x[0], .k = x[1]})), x[2]);
    };
    const Numbers truth = truth_of(converted(given, Type::f64)).values();
    on_every_target([&](const char* target) {
      // A score is rounded to 6e-8 of itself, a weight by as much as its score.
      EXPECT_LE(worst(truth, f(given).values()), 5e-6 + 5e-7 * rise) << rise << ", " << target;
      EXPECT_LE(worst(truth, f(converted(given, Type::f64)).values()), 1e-12 * (1 + rise))
          << rise << ", " << target;
    });
  }
}

// A decoder's steps leave what flows to keys and values for the end: the same as all queries at
// once, for more steps and keys than a tile has, some of them seeing few keys or none.
TEST(FusedAttention, StepsOfADecoderHaveTheGradientsOfAllQueriesAtOnce) {
  const int64_t B = 3, H = 2, T = 70, S = 300, n = 20, m = 5;
  for (const double bound : {1.0, 30.0, 100.0}) {
    Random random(9);
    const std::vector<Tensor> x{uniform({B, H, T, n}, bound, random),
                                uniform({B, H, S, n}, bound, random),
                                uniform({B, H, S, m}, 1, random), uniform({H, n}, 0.5, random)};
    std::vector<Id> seen;
    for (Id t = 0; t < T; ++t) seen.push_back(t % 5), seen.push_back(t % 7 == 0 ? 0 : 3 + 4 * t);
    const Tensor range = ids(seen, {1, 1, T, 2});
    const auto once = [&](const std::vector<Tensor>& given) {
      return fused_attention({.form = ScoreForm::additive,
                              .q = given[0],
                              .k = given[1],
                              .value = given[2],
                              .v = given[3],
                              .range = range})
          .context;
    };
    const auto steps = [&](const std::vector<Tensor>& given) {
      const Tensor k = given[1] * 1.0, value = given[2] * 1.0;
      std::vector<Tensor> out;
      for (int64_t t = 0; t < T; ++t)
        out.push_back(fused_attention({.form = ScoreForm::additive,
                                       .q = slice(given[0], 2, t, t + 1),
                                       .k = k,
                                       .value = value,
                                       .v = given[3],
                                       .range = slice(range, 2, t, t + 1)})
                          .context);
      return concat(out, 2);
    };
    const auto truth = everything(once, converted(x, Type::f64));
    on_every_target([&](const char* target) {
      const auto found = everything(steps, x), found64 = everything(steps, converted(x, Type::f64));
      for (size_t i = 0; i < truth.size(); ++i) {
        EXPECT_LE(worst(truth[i], found[i]), 5e-6 * largest(truth[i]))
            << "up to " << bound << ", number " << i << ", " << target;
        EXPECT_LE(worst(truth[i], found64[i]), 1e-12 * (1 + largest(truth[i])))
            << "up to " << bound << ", number " << i << ", " << target;
      }
    });
  }
}

// Sizes at which the work is shared out: few heads with long keys, and many heads.
std::vector<AttentionSpec> large() {
  std::vector<AttentionSpec> out;
  for (const char* name : kForms)
    for (const bool many : {false, true})
      for (const Distance distance : {Distance::none, Distance::buckets}) {
        AttentionSpec s;
        s.score = name, s.distance = distance;
        s.mask = many ? Masked::padding_causal : Masked::none;
        s.batch = many ? 3 : 1, s.heads = many ? 8 : 2, s.key_heads = many ? 8 : 1;
        s.queries = many ? 100 : 150, s.keys = many ? 100 : 700;
        s.query_size = s.key_size = 8, s.value_size = 8;
        out.push_back(s);
      }
  return out;
}

TEST(Attention, TheSameBitsOnAnyNumberOfThreads) {
  const int before = threads();
  for (const AttentionSpec& s : large()) {
    const AttentionCase c = attention_case(s);
    const std::vector<Tensor> x = cases::draw(c, Type::f32);
    const Function f = [&](const std::vector<Tensor>& in) {
      return c.attend(in, {.dropout = 0.2}).context;
    };
    set_threads(1);
    const auto alone = everything(f, x);
    for (const int count : {2, 3}) {
      set_threads(count);
      EXPECT_EQ(everything(f, x), alone) << c.name << " on " << count << " threads";
    }
  }
  set_threads(before);
}

TEST(FusedAttention, TheBitsOfARowDoNotDependOnTheOtherRows) {
  for (const AttentionSpec& s : large()) {
    if (s.distance != Distance::none) continue;
    const AttentionCase c = attention_case(s);
    const std::vector<Tensor> x = cases::draw(c, Type::f32);
    on_every_target([&](const char* target) {
      const Tensor all = c.f(x);
      for (const int64_t b : {int64_t{0}, s.batch - 1})
        for (const auto& [begin, end] :
             {std::pair<int64_t, int64_t>{0, 1}, {5, 6}, {3, 20}, {80, 100}, {0, s.queries}}) {
          AttentionSpec part = s;
          part.batch = 1, part.queries = end - begin, part.first = begin;
          part.mask = s.mask == Masked::none ? Masked::none : Masked::causal;
          const AttentionCase few = attention_case(part);
          std::vector<Tensor> in = x;
          for (size_t i = 0; i < 3; ++i) in[i] = slice(x[i], 0, b, b + 1);
          in[0] = slice(in[0], 2, begin, end);
          const std::vector<Id> length{s.mask == Masked::none
                                           ? static_cast<Id>(s.keys)
                                           : s.lengths()[static_cast<size_t>(b)]};
          const Tensor some = few.attend(in, {.mask = Mask::padding(length)}).context;
          EXPECT_EQ(some.values(), slice(slice(all, 0, b, b + 1), 2, begin, end).values())
              << c.name << ", rows " << begin << " to " << end << " of sentence " << b << ", "
              << target;
        }
    });
  }
}

}  // namespace
}  // namespace heed
