// Masks: rows that see nothing, and what stands where nobody looks.
#include <gtest/gtest.h>

#include "tests/attending.h"

namespace heed {
namespace {

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
  const Numbers out = y.values(), dq = q.parameter_state()->grad->values();
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

}  // namespace
}  // namespace heed
