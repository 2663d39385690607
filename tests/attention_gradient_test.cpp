// Gradients of attention against differences.
#include <gtest/gtest.h>

#include "heed/ops/gradient_check.h"
#include "tests/attending.h"
#include "tests/slip.h"

namespace heed {
namespace {

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
          EXPECT_LE(worst(all[i + 1], in[i].parameter_state()->grad->values()), 1e-13)
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

}  // namespace
}  // namespace heed
