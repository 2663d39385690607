// Attention: every score, mask, way to weigh and number of heads against plain loops; gradients
// against differences; the fused kernel against what it stands for; and the properties that hold
// whatever the numbers are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heed/attention/multi_head.h"
#include "heed/base/parallel.h"
#include "heed/ops/gradient_check.h"
#include "heed/training/optimizer.h"
#include "tests/cases/attention.h"
#include "tests/slip.h"
#include "tests/targets.h"

namespace heed {
namespace {

using cases::Arrays;
using cases::AttentionCase;
using cases::AttentionSpec;
using Masked = AttentionSpec::Masked;
using Distance = AttentionSpec::Distance;
using Numbers = std::vector<double>;
using cases::Function;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// ---- helpers

template <class T>
Arrays<T> arrays(const std::vector<Tensor>& inputs) {
  Arrays<T> out;
  for (const Tensor& x : inputs) {
    const Numbers values = x.values();
    out.emplace_back(values.begin(), values.end());
  }
  return out;
}

double worst(const auto& truth, const auto& given) {
  EXPECT_EQ(truth.size(), given.size());
  double most = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double error = std::abs(static_cast<double>(truth[i]) - static_cast<double>(given[i]));
    if (!(error <= most)) most = std::isnan(error) ? kInfinity : error;
  }
  return most;
}

double largest(const Numbers& x) {
  double most = 0;
  for (const double v : x) most = std::max(most, std::abs(v));
  return most;
}

bool all_zero(const Numbers& x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return v == 0; });
}

// A sum in which no two errors cancel.
Tensor uneven_sum(const Tensor& y) {
  Numbers weights(static_cast<size_t>(y.count()));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = 1 + 0.5 * std::sin(1.7 * static_cast<double>(i) + 0.3);
  return sum(y * tensor(weights, y.shape(), y.type()));
}

// A function's result and the gradients of all its inputs: everything that anyone can see of it.
std::vector<Numbers> everything(const Function& f, const std::vector<Tensor>& inputs,
                                uint64_t seed = 5) {
  std::vector<Tensor> x;
  for (const Tensor& input : inputs)
    x.push_back(as_parameter(tensor(input.values(), input.shape(), input.type())));
  Tape tape(seed);
  const Tensor y = f(x);
  std::vector<Numbers> out{y.values()};
  tape.backward(uneven_sum(y));
  for (const Tensor& input : x)
    out.push_back(input.leaf()->grad ? input.leaf()->grad->values()
                                     : Numbers(static_cast<size_t>(input.count())));
  return out;
}

std::vector<Tensor> converted(const std::vector<Tensor>& inputs, Type type) {
  std::vector<Tensor> out;
  for (const Tensor& x : inputs) out.push_back(tensor(x.values(), x.shape(), type));
  return out;
}

// A case of few numbers, each of which is moved for a difference.
AttentionSpec small(AttentionSpec s) {
  s.batch = 3, s.queries = 2, s.keys = 4, s.query_size = 2, s.key_size = 3, s.value_size = 3;
  s.heads = 4, s.key_heads = 2;
  return s;
}

Tensor normal64(const Shape& shape, uint64_t seed, double deviation = 1) {
  Random random(seed);
  return normal(shape, deviation, random, Type::f64);
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// ---- the table

TEST(Attention, EveryCaseAgreesWithPlainLoopsInBothTypes) {
  for (const AttentionCase& c : cases::attention()) {
    const std::vector<Tensor> f64 = cases::draw(c, Type::f64), f32 = cases::draw(c, Type::f32);
    const Numbers truth = c.truth(arrays<double>(f64));
    // What plain loops in f32 get wrong, twice, and two roundings of the largest number.
    const double allowed =
        2 * worst(truth, c.plain(arrays<float>(f32))) + 2 * 0x1p-23 * largest(truth);
    on_every_target([&](const char* target) {
      EXPECT_LE(worst(truth, c.f(f64).values()), 1e-11 * (1 + largest(truth)))
          << c.name << ", " << target;
      EXPECT_LE(worst(truth, c.f(f32).values()), allowed) << c.name << ", " << target;
    });
  }
}

TEST(Attention, TheTableHasEveryScoreAndEveryWayToWeigh) {
  std::set<std::string> scores;
  std::set<Weigh::Kind> kinds;
  for (const AttentionCase& c : cases::attention())
    scores.insert(c.spec.score), kinds.insert(c.spec.weigh.kind);
  EXPECT_EQ(scores.size(), score_table().size());
  EXPECT_EQ(kinds.size(), weigh_table().size());
}

// An alias is a name whose formula the plain loops do not know, as that of a new score will be.
TEST(Attention, PlainLoopsTakeTheScoresOfAScoreTheyDoNotKnow) {
  for (const auto& [alias, name] : {std::pair{"concat", "additive"}, {"general", "bilinear"}}) {
    AttentionSpec s;
    s.score = alias, s.heads = 4, s.key_heads = 2, s.mask = Masked::padding_causal;
    const AttentionCase unknown = attention_case(s);
    s.score = name;
    const AttentionCase known = attention_case(s);
    const std::vector<Tensor> x = cases::draw(known, Type::f64);
    const Numbers truth = known.truth(arrays<double>(x));
    EXPECT_LE(worst(truth, unknown.truth(arrays<double>(x))), 1e-12) << alias;
    EXPECT_LE(worst(truth, unknown.f(x).values()), 1e-12) << alias;
  }
}

// ---- gradients

void expect_right_gradient(const AttentionCase& c, double bound = 1e-7) {
  const GradientCheck check = check_gradient(c.f, cases::draw(c, Type::f64));
  EXPECT_LT(check.worst, bound) << c.name << ": " << check.where;
}

TEST(AttentionGradient, OfEveryScoreUnderEveryMaskAgreesWithDifferences) {
  for (AttentionSpec s : cases::scores())
    for (const Masked mask : cases::masks()) {
      s = small(s);
      s.mask = mask, s.first = mask == Masked::causal ? 1 : 0;
      expect_right_gradient(attention_case(s));
    }
}

TEST(AttentionGradient, OfSparseWeightsAgreesWithDifferences) {
  for (AttentionSpec s : cases::scores())
    for (const Weigh::Kind kind : {Weigh::Kind::sparsemax, Weigh::Kind::entmax}) {
      s = small(s);
      s.mask = Masked::padding, s.weigh = {kind, 1.5};
      expect_right_gradient(attention_case(s));
    }
}

TEST(AttentionGradient, OfTermsByDistanceAndOfATemperatureAgreesWithDifferences) {
  for (AttentionSpec s : cases::scores())
    for (const Distance distance : {Distance::alibi, Distance::buckets})
      for (const Masked mask : {Masked::none, Masked::padding_causal, Masked::local}) {
        if (distance == Distance::alibi && mask != Masked::none) continue;
        s = small(s);
        s.distance = distance, s.mask = mask, s.weigh.temperature = 0.7, s.first = 1;
        expect_right_gradient(attention_case(s));
      }
}

// By plain ops, as who asks for weights under an open tape gets it.
TEST(AttentionGradient, OfTheComposedFormIsThatOfTheFusedOne) {
  for (AttentionSpec s : cases::scores())
    for (const Masked mask : cases::masks())
      for (const Distance distance : {Distance::none, Distance::buckets}) {
        s.mask = mask, s.distance = distance, s.heads = 4, s.key_heads = 2;
        const AttentionCase c = attention_case(s);
        if (!c.form) continue;
        const std::vector<Tensor> x = cases::draw(c, Type::f64);
        const auto fused = everything(c.f, x);
        const auto composed =
            everything([&](const std::vector<Tensor>& in) { return c.composed(in); }, x);
        for (size_t i = 0; i < fused.size(); ++i)
          EXPECT_LE(worst(composed[i], fused[i]), 1e-12 * (1 + largest(composed[i])))
              << c.name << ", " << (i == 0 ? "result" : c.names[i - 1]);
      }
}

TEST(AttentionGradient, OfWeightsAskedForAgreesWithDifferences) {
  for (AttentionSpec s : cases::scores()) {
    s = small(s);
    s.mask = Masked::padding_causal;
    const AttentionCase c = attention_case(s);
    const auto weights = [&](const std::vector<Tensor>& x) {
      return *c.attend(x, {.want_weights = true}).weights;
    };
    const GradientCheck check = check_gradient(weights, cases::draw(c, Type::f64));
    EXPECT_LT(check.worst, 1e-7) << c.name << ": " << check.where;
  }
}

// A decoder: many queries, one at a time, against keys and values that all of them share. Their
// gradients gather in one place.
TEST(AttentionGradient, OfManyStepsAgainstTheSameKeysAgreesWithDifferences) {
  for (const char* name : {"additive", "scaled_dot", "factorized", "location"}) {
    const Params params(1, Type::f64);
    const auto score = make_score(
        name, params, {.query = 3, .key = 3, .heads = 2, .key_heads = 1, .positions = 5});
    const std::vector<Id> lengths{5, 2};
    const auto f = [&](const std::vector<Tensor>& x) {
      const PreparedKeys keys{score->prepare(x[1] * 1.5)};
      const Tensor values = x[2] * 0.5;
      Tensor q = x[0];
      std::vector<Tensor> out;
      for (int step = 0; step < 3; ++step) {
        const Tensor read =
            attend(*score, q, keys, values, {.mask = Mask::padding(lengths)}).context;
        out.push_back(read);
        q = tanh(q + read);
      }
      return concat(out, 2);
    };
    const GradientCheck check = check_gradient(
        f, {normal64({2, 2, 1, 3}, 1), normal64({2, 1, 5, 3}, 2), normal64({2, 1, 5, 3}, 3)});
    EXPECT_LT(check.worst, 1e-7) << name << ": " << check.where;
  }
}

TEST(AttentionGradient, OfSelfAttentionWithOneTensorForAllThreeAgreesWithDifferences) {
  for (const char* name : {"additive", "scaled_dot", "factorized", "cosine"})
    for (const int64_t length : {1, 4}) {
      const Params params(1, Type::f64);
      const auto score = make_score(name, params, {.query = 3, .key = 3, .heads = 2});
      const auto f = [&](const std::vector<Tensor>& x) {
        const Tensor y = x[0] * 1.5;
        return attend(*score, y, y, y).context;
      };
      const GradientCheck check = check_gradient(f, {normal64({2, 2, length, 3}, 1)});
      EXPECT_LT(check.worst, 1e-7) << name << ": " << check.where;
    }
}

TEST(AttentionGradient, OfAPredictedPlaceReachesItsPredictor) {
  const Params params(1, Type::f64);
  const PlacePredictor predict(params / "place", 3);
  const auto score = make_score("scaled_dot", params, {.query = 3, .key = 3, .heads = 2});
  const std::vector<Id> lengths{6, 4};
  const Tensor q = normal64({2, 2, 3, 3}, 1), k = normal64({2, 2, 6, 3}, 2),
               v = normal64({2, 2, 6, 2}, 3);
  // place = length sigmoid(v^T tanh(W q)), number by number.
  const Numbers place = predict(q, lengths).values(), x = q.values(),
                w = params.at("place.W").value.values(), u = params.at("place.v").value.values();
  for (size_t row = 0; row < 12; ++row) {
    double sum = 0;
    for (size_t c = 0; c < 3; ++c) {
      double inner = 0;
      for (size_t a = 0; a < 3; ++a) inner += x[row * 3 + a] * w[a * 3 + c];
      sum += u[c] * std::tanh(inner);
    }
    EXPECT_NEAR(place[row], (row < 6 ? 6 : 4) / (1 + std::exp(-sum)), 1e-12);
  }
  const auto f = [&](const std::vector<Tensor>& in) {
    return attend(
               *score, in[0], in[1], in[2],
               {.mask = Mask::padding(lengths), .local = LocalPlace{predict(in[0], lengths), 2.5}})
        .context;
  };
  const GradientCheck check = check_gradient(f, {q, k, v});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

// Whoever else is followed back.
TEST(AttentionGradient, OfAnInputIsTheSameWhenItIsTheOnlyOne) {
  for (AttentionSpec s : cases::scores())
    for (const Masked mask : {Masked::none, Masked::padding, Masked::local})
      for (const int64_t queries : {1, 5}) {
        s.mask = mask, s.queries = queries, s.heads = 2, s.key_heads = 1;
        s.distance = Distance::buckets;
        const AttentionCase c = attention_case(s);
        const std::vector<Tensor> x = cases::draw(c, Type::f64);
        const auto all = everything(c.f, x);
        for (size_t i = 0; i < x.size(); ++i) {
          // A static score looks at no query: there is nothing to record.
          if (all_zero(all[i + 1])) continue;
          std::vector<Tensor> in = x;
          in[i] = as_parameter(tensor(x[i].values(), x[i].shape(), Type::f64));
          Tape tape;
          tape.backward(uneven_sum(c.f(in)));
          EXPECT_LE(worst(all[i + 1], in[i].leaf()->grad->values()), 1e-13)
              << c.name << ", " << c.names[i];
        }
      }
}

// Views whose numbers lie in any order.
TEST(AttentionGradient, OfViewsIsThatOfCopies) {
  for (const char* name : {"additive", "scaled_dot", "factorized"}) {
    const Params params(1, Type::f64);
    const auto score = make_score(name, params, {.query = 4, .key = 4, .heads = 2});
    // [B, T, H, d], [B, H, d, T] and a part of a longer one, all seen as [B, H, T, d].
    const std::vector<Tensor> x{normal64({2, 3, 2, 4}, 1), normal64({2, 2, 4, 7}, 2),
                                normal64({2, 2, 9, 5}, 3)};
    const auto with = [&](const std::function<Tensor(const Tensor&)>& seen) {
      return everything(
          [&](const std::vector<Tensor>& in) {
            return attend(*score, seen(transpose(in[0], 1, 2)), seen(transpose(in[1], 2, 3)),
                          seen(slice(in[2], 2, 1, 8)))
                .context;
          },
          x);
    };
    EXPECT_EQ(with([](const Tensor& t) { return t; }),
              with([](const Tensor& t) { return contiguous(t); }))
        << name;
  }
}

// The check itself can fail.
TEST(AttentionGradient, CheckFailsWhenAGradientOfFusedAttentionIsBroken) {
  for (AttentionSpec s : cases::scores())
    for (const Masked mask : {Masked::padding, Masked::local}) {
      s = small(s);
      if (mask == Masked::local && s.score != "additive" && s.score != "dot") continue;
      s.mask = mask, s.distance = Distance::buckets;
      const AttentionCase c = attention_case(s);
      if (!c.form) continue;
      const std::vector<Tensor> drawn = cases::draw(c, Type::f64);
      const size_t given = mask == Masked::local ? 4 : 3;  // before the parameters
      for (size_t i = 0; i < c.inputs.size(); ++i) {
        double seen = i < given ? 0 : 1;
        const auto f = [&](std::vector<Tensor> x) {
          if (i < given)
            x[i] = with_a_slip(x[i], seen);
          else if (!Tape::current())  // the tape knows nothing of a factor that differences see
            x[i] = x[i] * 1.01 - drawn[i] * 0.01;
          return c.f(x);
        };
        const GradientCheck check = check_gradient(f, drawn);
        // A static score does not look at queries, nor a query that looks at one place at keys.
        const bool blind = seen < 1e-9;
        if (blind) {
          EXPECT_TRUE(c.names[i] == "q" || c.names[i] == "keys") << c.name << ", " << c.names[i];
        } else {
          EXPECT_GT(check.worst, 5e-3) << c.name << ", " << c.names[i];
        }
      }
    }
}

// ---- the fused kernel and lengths

// Scores that stand for the three forms of the fused kernel.
const char* const kForms[] = {"dot", "factorized", "additive"};

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
          EXPECT_LE(worst(truth[i], fused[i]), 2 * worst(truth[i], plain[i]) +
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

// ---- rows that see nothing, and what stands where nobody looks

TEST(Mask, ARowThatSeesNothingGetsZerosAndSoDoItsGradients) {
  for (AttentionSpec s : cases::scores())
    for (const WeighRow& row : weigh_table())
      for (const bool weights : {false, true}) {
        s.weigh.kind = row.kind, s.heads = 2, s.key_heads = 1;
        const AttentionCase c = attention_case(s);
        const std::vector<Id> none{0, 0, 0}, some{7, 0, 3};
        const auto run = [&](const std::vector<Id>& lengths) {
          return everything(
              [&](const std::vector<Tensor>& x) {
                return c.attend(x, {.mask = Mask::padding(lengths), .want_weights = weights})
                    .context;
              },
              cases::draw(c, Type::f64));
        };
        const auto all = run(none), mixed = run(some);
        for (size_t i = 0; i < all.size(); ++i)
          EXPECT_TRUE(all_zero(all[i])) << c.name << ", number " << i;
        // The second of three sentences: its context, and the gradients of its q, keys and values.
        for (size_t i = 0; i < 4; ++i) {
          const auto third = static_cast<std::ptrdiff_t>(mixed[i].size() / 3);
          EXPECT_TRUE(all_zero(Numbers(mixed[i].begin() + third, mixed[i].begin() + 2 * third)))
              << c.name << ", number " << i;
        }
        EXPECT_FALSE(all_zero(mixed[0])) << c.name;
      }
}

// Behind all keys: a window that no key is in, and positions past it.
TEST(Mask, AWindowBehindAllKeysSeesNothing) {
  const auto score = make_score("scaled_dot", Params(1), {.query = 3, .key = 3});
  const Tensor q = as_parameter(full({1, 1, 4, 3}, 1)), k = full({1, 1, 5, 3}, 1);
  Tape tape;
  const Tensor y = attend(*score, q, k, k, {.mask = Mask::window(1, 0), .first = 4}).context;
  tape.backward(sum(y));
  const Numbers out = y.values(), dq = q.leaf()->grad->values();
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(out[i], i < 6 ? 1 : 0) << i;
  for (size_t i = 6; i < 12; ++i) EXPECT_EQ(dq[i], 0) << i;
}

// x [B, G, Tk, n] with `planted` at the keys for which `where` holds.
Tensor with_planted(const Tensor& x, double planted,
                    const std::function<bool(int64_t b, int64_t j)>& where) {
  Numbers values = x.values();
  const int64_t G = x.size(1), Tk = x.size(2), n = x.size(3);
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) / n;
    if (where(at / Tk / G, at % Tk)) values[i] = planted;
  }
  return tensor(values, x.shape(), x.type());
}

TEST(Mask, WhatStandsWhereNobodyLooksReachesNothing) {
  struct Hidden {
    const char* name;
    Mask mask;
    int64_t first;
    std::function<bool(int64_t, int64_t)> where;
    std::optional<LocalPlace> local = {};
  };
  const std::vector<Id> lengths{7, 0, 3};
  const auto behind = [&](int64_t b, int64_t j) { return j >= lengths[static_cast<size_t>(b)]; };
  // Two places with a gap between what they see: 0, 1 and 5, 6 of 7 keys.
  const Tensor apart = tensor(Numbers{.5, 5.5, .5, 5.5, .5, 5.5, .5, 5.5, .5, 5.5, .5, 5.5,
                                      .5, 5.5, .5, 5.5, .5, 5.5, .5, 5.5, .5, 5.5, .5, 5.5},
                              {3, 2, 4}, Type::f64);
  const std::vector<Hidden> hidden{
      {"padding", Mask::padding(lengths), 0, behind},
      {"causal", Mask::causal(), 0, [](int64_t, int64_t j) { return j > 3; }},
      {"window", Mask::window(0, 1), 2, [](int64_t, int64_t j) { return j < 2 || j > 6; }},
      {"padding and window", Mask::padding(lengths) & Mask::window(0, 1), 1,
       [&](int64_t b, int64_t j) { return behind(b, j) || j < 1 || j > 5; }},
      {"local", {}, 0, [](int64_t, int64_t j) { return j > 1 && j < 5; }, LocalPlace{apart, 0.7}}};
  for (AttentionSpec s : cases::scores())
    for (const Hidden& h : hidden)
      for (const Weigh::Kind kind : {Weigh::Kind::soft, Weigh::Kind::entmax})
        for (const bool weights : {false, true}) {
          s.heads = 2, s.key_heads = 1, s.queries = 4, s.first = h.first, s.weigh.kind = kind;
          const AttentionCase c = attention_case(s);
          const Function f = [&](const std::vector<Tensor>& x) {
            return c.attend(x, {.mask = h.mask, .local = h.local, .want_weights = weights}).context;
          };
          const std::vector<Tensor> clean = cases::draw(c, Type::f64);
          const auto want = everything(f, clean);
          for (const double planted : {kNaN, kInfinity, -kInfinity}) {
            std::vector<Tensor> x = clean;
            x[1] = with_planted(x[1], planted, h.where);
            x[2] = with_planted(x[2], planted, h.where);
            const auto got = everything(f, x);
            for (size_t i = 0; i < want.size(); ++i)
              EXPECT_LE(worst(want[i], got[i]), 1e-12 * (1 + largest(want[i])))
                  << planted << " at " << h.name << ", " << c.name << (weights ? ", composed" : "")
                  << ": " << (i == 0 ? "result" : "gradient of " + c.names[i - 1]);
          }
        }
}

// Keys that some queries see and others do not, also beyond the first tile: by the fused kernels,
// and by plain ops (sparse weights, weights wanted while recording).
TEST(Mask, CausalHidesTheFutureBitForBit) {
  struct Way {
    const char* name;
    Weigh::Kind kind;
    bool weights;
  };
  for (AttentionSpec s : cases::scores())
    for (const int64_t T : {9, 200})
      for (const Way& way :
           {Way{"fused", Weigh::Kind::soft, false}, Way{"weights", Weigh::Kind::soft, true},
            Way{"sparse", Weigh::Kind::entmax, false},
            Way{"hard", Weigh::Kind::straight_through, false}}) {
        s.mask = Masked::causal, s.batch = 1, s.heads = 2, s.key_heads = 1;
        s.queries = T, s.keys = T, s.query_size = s.key_size = 6, s.weigh.kind = way.kind;
        const AttentionCase c = attention_case(s);
        if (!c.form || (T > 9 && way.kind != Weigh::Kind::soft)) continue;
        const Function f = [&](const std::vector<Tensor>& x) {
          return c.attend(x, {.mask = Mask::causal(), .want_weights = way.weights}).context;
        };
        const std::vector<Tensor> clean = cases::draw(c, Type::f32);
        const auto want = everything(f, clean);
        for (const int64_t place : {T / 3, T - 2})
          for (const double planted : {kNaN, kInfinity, 3.0}) {
            std::vector<Tensor> x = clean;
            const auto where = [&](int64_t, int64_t j) { return j >= place; };
            x[1] = with_planted(x[1], planted, where);
            x[2] = with_planted(x[2], planted, where);
            const auto got = everything(f, x);
            const auto differ = [&](size_t which, int64_t size) {
              int64_t count = 0;
              for (int64_t h = 0; h < 2; ++h)
                for (int64_t i = 0; i < place * size; ++i) {
                  const auto at = static_cast<size_t>(h * T * size + i);
                  count += want[which][at] != got[which][at];
                }
              return count;
            };
            const auto what = [&] {
              return c.name + ", " + way.name + ", " + std::to_string(planted) + " at " +
                     std::to_string(place);
            };
            EXPECT_EQ(differ(0, s.value_size), 0) << what();
            EXPECT_EQ(differ(1, s.query_size), 0) << what() << ": gradient of q";
            // Who sees what is no number has none.
            if (std::isnan(planted)) {
              EXPECT_TRUE(std::isnan(got[0].back())) << what();
            }
          }
      }
}

// Keys that were prepared before: a cache, or a source that is padded.
TEST(Mask, WhatStandsAtPreparedKeysWhereNobodyLooksReachesNothing) {
  const std::vector<Id> lengths{7, 0, 3};
  const auto behind = [&](int64_t b, int64_t j) { return j >= lengths[static_cast<size_t>(b)]; };
  for (const AttentionSpec& s : cases::scores())
    for (const Weigh::Kind kind : {Weigh::Kind::soft, Weigh::Kind::sparsemax})
      for (const bool weights : {false, true}) {
        const Params params(1, Type::f64);
        const auto score = make_score(
            s.score, params,
            {.query = 4, .key = 4, .heads = 2, .key_heads = 1, .rank = s.rank, .positions = 7});
        const Tensor q = normal64({3, 2, 5, 4}, 1), k = score->prepare(normal64({3, 1, 7, 4}, 2)),
                     v = normal64({3, 1, 7, 3}, 3);
        const Function f = [&](const std::vector<Tensor>& x) {
          return attend(
                     *score, x[0], PreparedKeys{x[1]}, x[2],
                     {.mask = Mask::padding(lengths), .weigh = {kind, 1}, .want_weights = weights})
              .context;
        };
        const auto want = everything(f, {q, k.detached(), v});
        const auto got =
            everything(f, {q, with_planted(k, kNaN, behind), with_planted(v, kNaN, behind)});
        for (size_t i = 0; i < want.size(); ++i)
          EXPECT_LE(worst(want[i], got[i]), 1e-12 * (1 + largest(want[i])))
              << s.name() << ", number " << i;
      }
}

TEST(Mask, WhatTwoMasksLeaveIsWhatBothLeave) {
  const std::vector<Id> longer{6, 4}, shorter{3, 5};
  const Mask both = Mask::padding(longer) & Mask::padding(shorter) & Mask::window(3, 2) &
                    Mask::window(1, 4) & Mask::causal();
  const Tensor ranges = *both.ranges({.batch = 2, .heads = 1, .queries = 6, .keys = 6});
  ASSERT_EQ(ranges.shape(), (Shape{2, 1, 6, 2}));
  const Numbers given = ranges.values();
  for (int b = 0; b < 2; ++b)
    for (int i = 0; i < 6; ++i) {
      const int end = std::min(b == 0 ? 3 : 4, i + 1), begin = std::max(0, i - 1);
      const auto at = static_cast<size_t>((b * 6 + i) * 2);
      EXPECT_EQ(given[at], begin);
      EXPECT_EQ(given[at + 1], std::max(begin, end));
    }
  EXPECT_FALSE(Mask().ranges({.batch = 2, .heads = 1, .queries = 6, .keys = 6}));
}

TEST(Mask, RangesFoundOnceAreThoseOfTheirSizesAlone) {
  const std::vector<Id> lengths{6, 4};
  const Mask::Sizes sizes{.batch = 2, .heads = 2, .queries = 6, .keys = 6};
  const Mask mask = Mask::padding(lengths) & Mask::causal(), found = mask.at(sizes);
  EXPECT_EQ(found.ranges(sizes)->raw(), found.ranges(sizes)->raw());  // the same tensor
  EXPECT_EQ(found.ranges(sizes)->values(), mask.ranges(sizes)->values());
  Mask::Sizes other = sizes;
  other.queries = 1, other.first = 3;
  EXPECT_EQ(found.ranges(other)->values(), mask.ranges(other)->values());
  const Mask less = Mask::window(1, 0);
  EXPECT_EQ((found & less).ranges(sizes)->values(), (mask & less).ranges(sizes)->values());
}

// ---- properties

TEST(Weights, SumToOneAndAreZeroWhereNothingIsSeen) {
  for (const AttentionCase& c : cases::attention()) {
    const std::vector<Tensor> x = cases::draw(c, Type::f32);
    for (const bool recorded : {false, true}) {
      std::optional<Tape> tape;
      if (recorded) tape.emplace(3);
      const Tensor weights = *c.attend(x, {.want_weights = true}).weights;
      const AttentionSpec& s = c.spec;
      const Numbers w = weights.values();
      const Numbers places = s.mask == Masked::local ? x[3].values() : Numbers{};
      size_t at = 0;
      for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t h = 0; h < s.heads; ++h)
          for (int64_t i = 0; i < s.queries; ++i) {
            double sum = 0;
            bool any = false;
            const auto row = static_cast<size_t>((b * s.heads + h) * s.queries + i);
            for (int64_t j = 0; j < s.keys; ++j, ++at) {
              const bool seen = s.sees(b, i, j, places.empty() ? 0 : places[row]);
              any |= seen, sum += w[at];
              ASSERT_TRUE(seen || w[at] == 0) << c.name;
              ASSERT_GE(w[at], 0) << c.name;
            }
            ASSERT_NEAR(sum, any ? 1 : 0, 1e-6) << c.name;
          }
    }
  }
}

// The same number for every distance.
class Constant final : public DistanceBias {
 public:
  Constant(int64_t heads, double value) : heads_(heads), value_(value) {}
  Tensor operator()(int64_t queries, int64_t keys, int64_t) const override {
    return full({heads_, queries + keys - 1}, value_, Type::f64);
  }

 private:
  int64_t heads_;
  double value_;
};

TEST(Attention, AConstantAddedToAllScoresChangesNothing) {
  const Constant shift(2, 3.7);
  for (AttentionSpec s : cases::scores())
    for (const WeighRow& row : weigh_table()) {
      s.weigh.kind = row.kind, s.heads = 2, s.key_heads = 2, s.mask = Masked::padding_causal;
      const AttentionCase c = attention_case(s);
      const std::vector<Tensor> x = cases::draw(c, Type::f64);
      const auto plain = everything(c.f, x);
      const auto shifted = everything(
          [&](const std::vector<Tensor>& in) { return c.attend(in, {.bias = &shift}).context; }, x);
      for (size_t i = 0; i < plain.size(); ++i)
        EXPECT_LE(worst(plain[i], shifted[i]), 1e-11) << c.name << ", number " << i;
    }
}

// A score that does not ask for positions does not know them.
bool knows_positions(const std::string& score) {
  try {
    make_score(score, Params(1), {.query = 2, .key = 2});
    return false;
  } catch (const Error&) {
    return true;
  }
}

TEST(Attention, TheOrderOfKeysWithTheirValuesDoesNotMatter) {
  const std::vector<int64_t> order{3, 6, 0, 2, 5, 1, 4};
  const auto permuted = [&](const Tensor& x) {
    std::vector<Tensor> parts;
    for (const int64_t j : order) parts.push_back(slice(x, 2, j, j + 1));
    return concat(parts, 2);
  };
  int tried = 0;
  for (AttentionSpec s : cases::scores()) {
    if (knows_positions(s.score)) continue;
    for (const WeighRow& row : weigh_table()) {
      s.weigh.kind = row.kind, s.heads = 4, s.key_heads = 2;
      const AttentionCase c = attention_case(s);
      std::vector<Tensor> x = cases::draw(c, Type::f64);
      const Numbers before = c.f(x).values();
      x[1] = permuted(x[1]), x[2] = permuted(x[2]);
      EXPECT_LE(worst(before, c.f(x).values()), 1e-12) << c.name;
      ++tried;
    }
  }
  EXPECT_GT(tried, 40);
}

TEST(Attention, HardIsTheLimitOfSoftAsTheTemperatureFalls) {
  for (AttentionSpec s : cases::scores()) {
    s.heads = 2, s.key_heads = 2, s.mask = Masked::padding;
    s.weigh = {Weigh::Kind::hard, 1};
    const AttentionCase hard = attention_case(s);
    const std::vector<Tensor> x = cases::draw(hard, Type::f64);
    const Numbers limit = hard.f(x).values();
    double before = kInfinity;
    for (const double temperature : {1.0, 1e-2, 1e-5}) {
      s.weigh = {Weigh::Kind::soft, temperature};
      const double away = worst(limit, attention_case(s).f(x).values());
      EXPECT_LT(away, before) << s.name();
      before = away;
    }
    EXPECT_LT(before, 1e-9) << s.name();
  }
}

TEST(Attention, OneHeadIsNoHeads) {
  const auto score = make_score("scaled_dot", Params(1), {.query = 4, .key = 4});
  const Tensor q = normal64({5, 4}, 1), k = normal64({7, 4}, 2), v = normal64({7, 3}, 3);
  const Tensor plain = matmul(softmax(matmul(q, transpose(k, 0, 1)) * 0.5), v);
  const Tensor y =
      attend(*score, reshape(q, {1, 1, 5, 4}), reshape(k, {1, 1, 7, 4}), reshape(v, {1, 1, 7, 3}))
          .context;
  EXPECT_LE(worst(plain.values(), y.values()), 1e-14);
}

TEST(Attention, AHeadOfManyIsThatHeadAlone) {
  const auto score = make_score("scaled_dot", Params(1), {.query = 4, .key = 4});
  const Tensor q = normal64({2, 4, 5, 4}, 1), k = normal64({2, 2, 7, 4}, 2),
               v = normal64({2, 2, 7, 3}, 3);
  const Tensor all = attend(*score, q, k, v).context;
  for (int64_t h = 0; h < 4; ++h) {
    const auto of = [](const Tensor& x, int64_t head) { return slice(x, 1, head, head + 1); };
    EXPECT_EQ(attend(*score, of(q, h), of(k, h / 2), of(v, h / 2)).context.values(),
              of(all, h).values())
        << h;
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

// ---- dropout

// With values that are unit vectors the context is the weights themselves, as dropped.
TEST(AttentionDropout, DropsItsShareAndKeepsTheMean) {
  const int64_t T = 60, S = 200;
  const double p = 0.3;
  Numbers unit(static_cast<size_t>(S * S));
  for (int64_t j = 0; j < S; ++j) unit[static_cast<size_t>(j * S + j)] = 1;
  const Tensor values = tensor(unit, {1, 1, S, S}, Type::f64);
  for (const char* name : kForms) {
    const auto score = make_score(name, Params(1, Type::f64), {.query = 4, .key = 4});
    const Tensor q = normal64({1, 1, T, 4}, 1, 0.3), k = normal64({1, 1, S, 4}, 2, 0.3);
    const auto read = [&](uint64_t seed) {
      const Tape tape(seed);
      return attend(*score, q, k, values, {.dropout = p}).context.values();
    };
    const Numbers weights = attend(*score, q, k, values, {.dropout = p}).context.values();
    const Numbers once = read(1);
    EXPECT_EQ(read(1), once) << name;
    EXPECT_NE(read(2), once) << name;
    int64_t dropped = 0;
    for (size_t i = 0; i < once.size(); ++i) {
      dropped += once[i] == 0;
      // What stays is made larger by what goes, to the 16 bits that the share is drawn with.
      ASSERT_NEAR(once[i], once[i] == 0 ? 0 : weights[i] / (1 - p), 1e-6 * weights[i]) << name;
    }
    // 12,000 draws: four deviations are 0.017.
    EXPECT_NEAR(double(dropped) / double(once.size()), p, 0.017) << name;
    // Sums of rows over 20 draws have the mean 1, with a deviation of about 0.01 each.
    double sum = 0;
    for (uint64_t seed = 1; seed <= 20; ++seed)
      for (const double w : read(seed)) sum += w;
    EXPECT_NEAR(sum / 20 / double(T), 1, 0.01) << name;
    // No row, and no key, has the mask of another.
    std::set<std::vector<bool>> rows, columns;
    for (int64_t i = 0; i < T; ++i) {
      std::vector<bool> row;
      for (int64_t j = 0; j < S; ++j) row.push_back(once[static_cast<size_t>(i * S + j)] == 0);
      rows.insert(row);
    }
    for (int64_t j = 0; j < S; ++j) {
      std::vector<bool> column;
      for (int64_t i = 0; i < T; ++i) column.push_back(once[static_cast<size_t>(i * S + j)] == 0);
      columns.insert(column);
    }
    EXPECT_EQ(static_cast<int64_t>(rows.size()), T) << name;
    EXPECT_EQ(static_cast<int64_t>(columns.size()), S) << name;
  }
}

// The numbers drawn are the same for the tape and for the differences.
TEST(AttentionDropout, HasTheGradientOfWhatItDropped) {
  for (AttentionSpec s : cases::scores())
    for (const int64_t keys : {4, 131}) {
      if (keys > 4 && s.score != "additive" && s.score != "dot") continue;
      s = small(s);
      s.keys = keys, s.batch = 1, s.value_size = 2;
      s.mask = Masked::causal, s.first = keys - 1;
      const AttentionCase c = attention_case(s);
      const auto f = [&](const std::vector<Tensor>& x) {
        std::optional<Tape> own;
        if (!Tape::current()) own.emplace(uint64_t{9});
        Tape::current()->reseed(9);
        return c.attend(x, {.dropout = 0.4}).context;
      };
      const GradientCheck check = check_gradient(f, cases::draw(c, Type::f64));
      EXPECT_LT(check.worst, 1e-7) << c.name << ": " << check.where;
    }
}

TEST(AttentionDropout, IsOffWithoutATape) {
  const AttentionCase c = cases::attention_case({});
  const std::vector<Tensor> x = cases::draw(c, Type::f32);
  EXPECT_EQ(c.attend(x, {.dropout = 0.5}).context.values(), c.f(x).values());
}

// ---- other ways to weigh

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
    const Numbers r = d.values.values(), by_draws = d.keys.leaf()->grad->values();
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
    s.leaf()->grad = nullptr;
    tape.backward(reinforce_loss(s, reward, b));
    const Numbers ds = s.leaf()->grad->values();
    for (size_t i = 0; i < 40; ++i) ASSERT_NEAR(ds[i], -advantage[i] / 40, 1e-12);
    adam.step(0.02);
  }
  EXPECT_LE(worst(rewards, guess(q).values()), 1e-3);
}

// ---- weights and the largest of them

TEST(Weights, OfTheFusedKernelAreThoseOfTheComposedForm) {
  for (AttentionSpec s : cases::scores())
    for (const Masked mask : cases::masks())
      for (const int64_t keys : {7, 200}) {
        s.mask = mask, s.heads = 4, s.key_heads = 2, s.distance = Distance::alibi;
        s.keys = keys, s.weigh.temperature = 0.9;
        const AttentionCase c = attention_case(s);
        const std::vector<Tensor> x = cases::draw(c, Type::f64);
        const Numbers fused = c.attend(x, {.want_weights = true}).weights->values();
        const Tape tape;
        const Numbers composed = c.attend(x, {.want_weights = true}).weights->values();
        EXPECT_LE(worst(composed, fused), 1e-13) << c.name;
      }
}

TEST(Weights, TheLargestAreThoseOfAllWeights) {
  for (AttentionSpec s : cases::scores())
    for (const Masked mask : cases::masks())
      for (const WeighRow& row : weigh_table()) {
        if (row.kind != Weigh::Kind::soft && mask != Masked::padding_window) continue;
        s.mask = mask, s.heads = 4, s.key_heads = 2, s.weigh.kind = row.kind;
        s.distance = row.kind == Weigh::Kind::soft ? Distance::buckets : Distance::none;
        s.queries = 70, s.keys = 9;  // more queries than are ranked at a time
        const AttentionCase c = attention_case(s);
        const std::vector<Tensor> x = cases::draw(c, Type::f32);
        const Attended read = c.attend(x, {.want_weights = true, .want_top = 3});
        const Ranked want = top_k(*read.weights, 3);
        EXPECT_EQ(read.top->values.values(), want.values.values()) << c.name;
        EXPECT_EQ(read.top->indices.values(), want.indices.values()) << c.name;
      }
}

TEST(Weights, CanBeAskedForWhenThereAreNoQueriesOrNoKeys) {
  const auto score = make_score("scaled_dot", Params(1), {.query = 3, .key = 3});
  const auto read = [&](int64_t queries, int64_t keys, int64_t top) {
    return attend(*score, zeros({2, 1, queries, 3}), zeros({2, 1, keys, 3}), zeros({2, 1, keys, 4}),
                  {.want_weights = true, .want_top = top});
  };
  EXPECT_EQ(read(0, 5, 0).weights->shape(), (Shape{2, 1, 0, 5}));
  EXPECT_EQ(read(0, 5, 2).top->values.shape(), (Shape{2, 1, 0, 2}));
  EXPECT_EQ(read(3, 0, 0).weights->shape(), (Shape{2, 1, 3, 0}));
  EXPECT_TRUE(all_zero(read(3, 0, 0).context.values()));
}

// ---- scores

// w2^T tanh(W1 [q; k]) with W1 = [W U]: one matrix, on queries and keys behind each other.
TEST(Score, TheConcatenatedFormIsTheAdditiveOne) {
  const size_t a = 4, d = 6, n = 5, T = 3, S = 7;
  const Params params(1, Type::f64), same(1, Type::f64);
  const ScoreSizes sizes{.query = 4, .key = 6, .size = 5};
  const auto concat_form = make_score("concat", params, sizes);
  const auto additive = make_score("additive", same, sizes);
  const Tensor q = normal64({1, 1, 3, 4}, 1), k = normal64({1, 1, 7, 6}, 2);
  const Numbers scores = (*concat_form)(q, concat_form->prepare(k), 0).values();
  EXPECT_EQ(scores, (*additive)(q, additive->prepare(k), 0).values());
  // W1 [a + d, n], from the parameters of the score.
  Numbers w1 = params.at("W").value.values();
  const Numbers u = params.at("U").value.values(), w2 = params.at("v").value.values();
  w1.insert(w1.end(), u.begin(), u.end());
  const Numbers x = q.values(), y = k.values();
  for (size_t i = 0; i < T; ++i)
    for (size_t j = 0; j < S; ++j) {
      Numbers both(x.begin() + static_cast<std::ptrdiff_t>(i * a),
                   x.begin() + static_cast<std::ptrdiff_t>((i + 1) * a));
      both.insert(both.end(), y.begin() + static_cast<std::ptrdiff_t>(j * d),
                  y.begin() + static_cast<std::ptrdiff_t>((j + 1) * d));
      double score = 0;
      for (size_t c = 0; c < n; ++c) {
        double inner = 0;
        for (size_t r = 0; r < both.size(); ++r) inner += w1[r * n + c] * both[r];
        score += w2[c] * std::tanh(inner);
      }
      EXPECT_NEAR(scores[i * S + j], score, 1e-12);
    }
}

TEST(Score, AnAliasMakesTheSameParameters) {
  for (const auto& [alias, name] : {std::pair{"concat", "additive"}, {"general", "bilinear"}}) {
    const Params a(1), b(1);
    make_score(alias, a, {.query = 2, .key = 3});
    make_score(name, b, {.query = 2, .key = 3});
    ASSERT_EQ(a.all().size(), b.all().size());
    for (size_t i = 0; i < a.all().size(); ++i) EXPECT_EQ(a.all()[i].name, b.all()[i].name);
  }
}

// ---- errors

TEST(Attention, SaysWhatIsWrong) {
  struct Row {
    const char* want;
    std::function<void()> f;
  };
  const ScoreSizes two{.query = 2, .key = 2};
  const auto dot = make_score("dot", Params(1), two);
  const auto ones = [](const Shape& shape) { return full(shape, 1); };
  const Tensor q = ones({2, 2, 3, 2}), k = ones({2, 2, 4, 2}), v = ones({2, 2, 4, 5});
  const std::vector<Id> long_one{4, 5}, negative{4, -1}, three{1, 1, 1}, fine{4, 2};
  const auto by_position = [&](const char* name, int64_t rank) {
    const auto score = make_score(name, Params(1),
                                  {.query = 2, .key = 2, .heads = 2, .rank = rank, .positions = 3});
    attend(*score, q, k, v);
  };
  const std::vector<Row> rows{
      {"unknown score 'aditive'; did you mean 'additive'?",
       [&] { make_score("aditive", Params(1), two); }},
      {"unknown weigh 'sparsmax'; did you mean 'sparsemax'?", [&] { weigh_kind("sparsmax"); }},
      {"score 'dot': queries of size 2 cannot be multiplied with keys of size 3; 'bilinear' can",
       [&] { make_score("dot", Params(1), {.query = 2, .key = 3}); }},
      {"score 'cosine': queries of size 2",
       [&] { make_score("cosine", Params(1), {.query = 2, .key = 3}); }},
      {"score 'dot': 4 query heads cannot share 3 key heads evenly",
       [&] { make_score("dot", Params(1), {.query = 2, .key = 2, .heads = 4, .key_heads = 3}); }},
      {"score 'static': wants the longest sentence as `positions`",
       [&] { make_score("static", Params(1), two); }},
      {"score 'location': wants the longest sentence as `positions`",
       [&] { make_score("location", Params(1), two); }},
      {"score 'static': made for 3 positions, asked for 4", [&] { by_position("static", 0); }},
      {"score 'static': made for 3 positions, asked for 4", [&] { by_position("static", 2); }},
      {"score 'location': made for 3 positions, asked for 4", [&] { by_position("location", 0); }},
      {"attend: wants q [B, H, Tq, d], keys [B, G, Tk, d], values [B, G, Tk, m]; given [3, 2]",
       [&] {
         attend(*dot, ones({3, 2}), k, v);
       }},
      {"attend: keys [2, 2, 4, 2] and values [2, 2, 3, 5] do not belong together",
       [&] {
         attend(*dot, q, k, ones({2, 2, 3, 5}));
       }},
      {"attend: 3 queries' sentences, 2 values' sentences",
       [&] {
         attend(*dot, ones({3, 2, 3, 2}), k, v);
       }},
      {"attend: 3 query heads cannot share 2 key heads evenly",
       [&] {
         attend(*dot, ones({2, 3, 3, 2}), k, v);
       }},
      {"sizes do not fit",
       [&] {
         attend(*dot, q, ones({2, 2, 4, 3}), v);
       }},
      {"types differ", [&] { attend(*dot, q, full(k.shape(), 1, Type::f64), v); }},
      {"attend: temperature wants a number above 0, given 0",
       [&] {
         attend(*dot, q, k, v, {.weigh = {Weigh::Kind::soft, 0}});
       }},
      {"temperature wants a number above 0, given -1",
       [&] {
         attend(*dot, q, k, v, {.weigh = {Weigh::Kind::sparsemax, -1}});
       }},
      {"mask: a length of 5 among 4 keys",
       [&] { attend(*dot, q, k, v, {.mask = Mask::padding(long_one)}); }},
      {"mask: a length of -1 among 4 keys",
       [&] { attend(*dot, q, k, v, {.mask = Mask::padding(negative)}); }},
      {"mask: 3 lengths for 2 sentences",
       [&] { attend(*dot, q, k, v, {.mask = Mask::padding(three)}); }},
      {"mask: paddings of 2 and of 3 sentences do not go together",
       [&] { Mask::padding(fine) & Mask::padding(three); }},
      {"mask: a window of -1 before", [&] { Mask::window(-1, 0); }},
      {"attend: local attention wants a reach above 0, given 0",
       [&] {
         attend(*dot, q, k, v, {.local = LocalPlace{ones({2, 2, 3}), 0}});
       }},
      {"mask: places want [2, 2, 3], given [2, 3, 2]",
       [&] {
         attend(*dot, q, k, v, {.local = LocalPlace{ones({2, 3, 2}), 1}});
       }},
      {"attend: the 5 largest weights of 4", [&] { attend(*dot, q, k, v, {.want_top = 5}); }},
      {"dropout wants a share in [0, 1), given 1", [&] { attend(*dot, q, k, v, {.dropout = 1}); }},
      {"multi-head attention: a model of size 6 cannot be shared by 4 heads evenly",
       [&] { MultiHead(Params(1), {.model = 6, .heads = 4}); }},
      {"wants at least one head", [&] { MultiHead(Params(1), {.model = 6, .heads = 0}); }},
      {"cannot share 3 key heads evenly",
       [&] { MultiHead(Params(1), {.model = 8, .heads = 4, .key_heads = 3}); }},
      {"distance_buckets: wants an even number of at least 4 buckets",
       [&] { distance_buckets(Params(1), 2, 5); }},
      {"reinforce_loss: wants three tensors",
       [&] {
         reinforce_loss(ones({1, 1, 2}), ones({1, 1, 2}), ones({1, 2}));
       }},
  };
  for (const Row& row : rows) {
    const std::string message = message_of(row.f);
    EXPECT_NE(message.find(row.want), std::string::npos) << message << "\n  wanted: " << row.want;
  }
}

// ---- several heads, and their cache

TEST(MultiHead, StepByStepIsTheSameAsAllAtOnceBitForBit) {
  struct Heads {
    int64_t queries, keys, length;
  };
  int tried = 0;
  for (const AttentionSpec& s : cases::scores())
    for (const auto& [heads, key_heads, T] : {Heads{1, 1, 20}, Heads{2, 2, 20}, Heads{4, 2, 150}})
      for (const bool rotary : {false, true}) {
        if (rotary && s.score != "scaled_dot") continue;
        const Params params(1);
        const MultiHead mh(params, {.model = 24,
                                    .heads = heads,
                                    .key_heads = key_heads,
                                    .score = s.score,
                                    .rank = s.rank,
                                    .positions = T,
                                    .rotary = rotary});
        AttentionSpec one = s;
        one.query_size = one.key_size = 4;
        if (!attention_case(one).form) continue;
        Random random(2);
        const Tensor x = normal({2, T, 24}, 1, random);
        const auto bias = alibi(heads);
        on_every_target([&](const char* target) {
          const Tensor all = mh(x, mh.remember(x), {.mask = Mask::causal(), .bias = bias.get()}).y;
          KeyValueCache cache;
          int64_t wrong = 0;
          // The first few at once, as a prompt, the others one by one.
          for (int64_t t = 0, next = 3; t < T; t = next, next = t + 1) {
            const Tensor step = slice(x, 1, t, next);
            cache.append(mh.remember(step, t));
            const Tensor y =
                mh(step, cache.all(), {.mask = Mask::causal(), .bias = bias.get(), .first = t}).y;
            wrong += y.values() != slice(all, 1, t, next).values();
          }
          EXPECT_EQ(wrong, 0) << s.name() << ", " << heads << "/" << key_heads << " heads"
                              << (rotary ? ", rotary" : "") << ": steps that differ, " << target;
        });
        ++tried;
      }
  EXPECT_GT(tried, 20);
}

TEST(MultiHead, IsItsFormula) {
  const Params params(1, Type::f64);
  const MultiHead mh(params, {.model = 6, .memory = 5, .heads = 2, .head_size = 4});
  const Tensor x = normal64({2, 3, 6}, 1), memory = normal64({2, 7, 5}, 2);
  const auto projected = [&](const Tensor& from, const std::string& part) {
    return linear(from, params.at(part + ".weight").value, params.at(part + ".bias").value);
  };
  const Tensor q = projected(x, "query"), k = projected(memory, "key"),
               v = projected(memory, "value");
  std::vector<Tensor> heads;
  for (int64_t h = 0; h < 2; ++h) {
    const auto of = [&](const Tensor& y) { return slice(y, 2, 4 * h, 4 * h + 4); };
    heads.push_back(
        matmul(softmax(matmul(of(q), transpose(of(k), 1, 2)) * 0.5), contiguous(of(v))));
  }
  EXPECT_LE(
      worst(projected(concat(heads, 2), "output").values(), mh(x, mh.remember(memory)).y.values()),
      1e-13);
  const auto f = [&](const std::vector<Tensor>& in) { return mh(in[0], mh.remember(in[1])).y; };
  const GradientCheck check = check_gradient(f, {x, memory});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

KeysValues some_keys(int64_t batch, int64_t length, uint64_t seed) {
  return {{normal64({batch, 2, length, 3}, seed)}, normal64({batch, 2, length, 4}, seed + 1)};
}

TEST(KeyValueCache, GrowsInPlaceAndDoublesItsRoom) {
  KeyValueCache cache;
  std::vector<Tensor> keys, values;
  const void* before = nullptr;
  int moved = 0;
  for (int64_t t = 0; t < 100; ++t) {
    const KeysValues more = some_keys(2, 1, static_cast<uint64_t>(t));
    keys.push_back(more.keys.k), values.push_back(more.values);
    cache.append(more);
    ASSERT_EQ(cache.length(), t + 1);
    const KeysValues all = cache.all();
    moved += all.keys.k.raw() != before;
    before = all.keys.k.raw();
    if (t % 9 == 0 || t == 99) {
      EXPECT_EQ(all.keys.k.values(), concat(keys, 2).values()) << t;
      EXPECT_EQ(all.values.values(), concat(values, 2).values()) << t;
    }
  }
  EXPECT_LE(moved, 4);  // 16, 32, 64, 128
}

// In place within groups, and with a room that is fixed: the same numbers, at the same place.
TEST(KeyValueCache, AFixedRoomStaysWhereItIs) {
  KeyValueCache grown, fixed(40);
  const KeysValues first = some_keys(6, 5, 1);
  grown.append(first), fixed.append(first);
  const void* const before = fixed.all().keys.k.raw();
  for (int64_t t = 5; t < 12; ++t) {
    const std::vector<Id> from{1, 0, 1, 3, 3, 5};  // groups of three; two change places
    grown.reorder(from);
    fixed.reorder(from, 3);
    const KeysValues more = some_keys(6, 1, 100 + static_cast<uint64_t>(t));
    grown.append(more), fixed.append(more);
  }
  EXPECT_EQ(fixed.all().keys.k.raw(), before);
  const auto seen = [](const Tensor& x) { return slice(x, 2, 0, 12).values(); };
  EXPECT_EQ(fixed.all().keys.k.size(2), 40);
  EXPECT_EQ(seen(fixed.all().keys.k), grown.all().keys.k.values());
  EXPECT_EQ(seen(fixed.all().values), grown.all().values.values());
  EXPECT_FALSE(grown.mask().ranges({6, 1, 1, 12}));
  const Tensor range = *fixed.mask().ranges({6, 1, 1, 40});
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(range.host_ids()[i], i % 2 ? 12 : 0);
  // The two last sentences, twice, into room for fewer.
  KeyValueCache other(20);
  const std::vector<Id> last{4, 5, 4, 5};
  other.take(fixed, last), grown.reorder(last);
  EXPECT_EQ(seen(other.all().keys.k), grown.all().keys.k.values());
  EXPECT_EQ(seen(other.all().values), grown.all().values.values());
  EXPECT_EQ(other.emptied().length(), 0);
  EXPECT_NE(message_of([&] { other.append(some_keys(4, 9, 1)); }).find("room for 20"),
            std::string::npos);
}

TEST(KeyValueCache, ReordersSentences) {
  KeyValueCache cache;
  EXPECT_NE(message_of([&] { cache.all(); }).find("nothing has been added"), std::string::npos);
  cache.reorder(std::vector<Id>{0});  // nothing to do yet
  const KeysValues first = some_keys(3, 5, 1), second = some_keys(4, 2, 9);
  cache.append(first);
  // A search kept two followers of the last sentence, none of the second.
  cache.reorder(std::vector<Id>{2, 0, 2, 0});
  cache.append(second);
  const KeysValues all = cache.all();
  const std::vector<int64_t> from{2, 0, 2, 0};
  for (int64_t b = 0; b < 4; ++b) {
    const auto of = [](const Tensor& x, int64_t i) { return slice(x, 0, i, i + 1); };
    const int64_t was = from[static_cast<size_t>(b)];
    EXPECT_EQ(of(all.keys.k, b).values(),
              concat({of(first.keys.k, was), of(second.keys.k, b)}, 2).values());
    EXPECT_EQ(of(all.values, b).values(),
              concat({of(first.values, was), of(second.values, b)}, 2).values());
  }
  const std::vector<Id> beyond{0, 4};
  EXPECT_NE(message_of([&] { cache.reorder(beyond); }).find("sentence 4 of 4"), std::string::npos);
  EXPECT_NE(message_of([&] { cache.append(some_keys(3, 1, 1)); }).find("key/value cache: holds"),
            std::string::npos);
  KeysValues uneven = some_keys(4, 2, 1);
  uneven.values = slice(uneven.values, 2, 0, 1);
  EXPECT_NE(message_of([&] { cache.append(uneven); }).find("key/value cache: holds values"),
            std::string::npos);
  EXPECT_EQ(cache.length(), 7);
  KeyValueCache shorter;
  shorter.append(some_keys(4, 2, 1));
  KeyValueCache* const both[] = {&cache, &shorter};
  EXPECT_NE(message_of([&] {
              KeyValueCache::reorder(both, std::vector<Id>{0, 1, 2, 3}, 1);
            }).find("they cannot be reordered together"),
            std::string::npos);
}

}  // namespace
}  // namespace heed
