// Attention: every score, mask, way to weigh and number of heads against plain loops, and the
// properties that hold whatever the numbers are.
#include <gtest/gtest.h>

#include "heed/ops/gradient_check.h"
#include "tests/attending.h"
#include "tests/targets.h"

namespace heed {
namespace {

// ---- the table

TEST(Attention, EveryCaseAgreesWithPlainLoopsInBothTypes) {
  for (const AttentionCase& c : cases::attention()) {
    const std::vector<Tensor> f64 = cases::draw(c, Type::f64), f32 = cases::draw(c, Type::f32);
    const Numbers truth = c.truth(arrays<double>(f64));
    // What plain loops in f32 get wrong, twice, and two roundings of the largest number.
    const double allowed =
        2 * earned(worst(truth, c.plain(arrays<float>(f32)))) + 2 * 0x1p-23 * largest(truth);
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
    const std::string said = message(row.f);
    EXPECT_NE(said.find(row.want), std::string::npos) << said << "\n  wanted: " << row.want;
  }
}

}  // namespace
}  // namespace heed
