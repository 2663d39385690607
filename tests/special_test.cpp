// What is no number, next to nothing, or not there at all: every op against plain loops, which say
// by IEEE's rules what follows from the formula.
#include <gtest/gtest.h>

#include "bench/cases/special.h"
#include "tests/cases/attention.h"
#include "tests/compare.h"
#include "tests/targets.h"

namespace heed {
namespace {

using cases::Arrays;
using cases::Case;

template <class T>
Arrays<T> arrays(const std::vector<Tensor>& inputs) {
  Arrays<T> out;
  for (const Tensor& x : inputs) {
    const std::vector<double> values = x.values();
    out.emplace_back(values.begin(), values.end());
  }
  return out;
}

// As the tables' own tests allow, and the last place of numbers that are next to nothing.
void expect_agreement(const Case& c, const std::string& name, const std::vector<Tensor>& f64,
                      const std::vector<Tensor>& f32, double share = 1e-12) {
  const std::vector<double> truth = c.truth(arrays<double>(f64)),
                            truth_f32 = c.truth(arrays<double>(f32));
  const double allowed =
      2 * earned(worst(truth_f32, c.plain(arrays<float>(f32)), Special::as_wanted)) +
      2 * 0x1p-23 * largest(truth_f32) + 2 * 0x1p-149;
  on_every_target([&](const char* target) {
    const std::vector<double> y64 = c.f(f64).values(), y32 = c.f(f32).values();
    EXPECT_LE(worst(truth, y64, Special::as_wanted), share * largest(truth) + 2 * 0x1p-1074)
        << name << ", f64, " << target;
    EXPECT_LE(worst(truth_f32, y32, Special::as_wanted), allowed) << name << ", f32, " << target;
  });
}

TEST(Special, WhatIsNoNumberReachesWhatItsFormulaSays) {
  for (const Case& c : cases::ops())
    cases::for_each_planted(c, [&](const std::string& name, size_t input, size_t at, double value) {
      expect_agreement(c, name, cases::planted(cases::draw(c, Type::f64), input, at, value),
                       cases::planted(cases::draw(c, Type::f32), input, at, value));
    });
}

// All inputs below the smallest normal number, of either type: nothing is flushed to zero.
TEST(Special, DenormalsAreNumbersLikeAnyOther) {
  for (const Case& c : cases::ops()) {
    const std::vector<Tensor> f64 = cases::scaled(cases::draw(c, Type::f64), 0x1p-1030),
                              f32 = cases::scaled(cases::draw(c, Type::f32), 0x1p-130);
    ASSERT_GT(largest(f64[0].values()), 0) << "this test itself flushes them";
    ASSERT_GT(largest(f32[0].values()), 0) << "this test itself flushes them";
    expect_agreement(c, c.name, f64, f32);
  }
}

TEST(Special, NothingAtAllIsNoSpecialCase) {
  for (const Case& c : cases::empty()) {
    const std::vector<Tensor> f64 = cases::draw(c, Type::f64);
    expect_agreement(c, c.name, f64, cases::draw(c, Type::f32));
    // And back: whatever has elements gets a gradient of zeros, since no result depends on it.
    std::vector<Tensor> x;
    for (const Tensor& input : f64) x.push_back(as_parameter(input));
    Tape tape;
    tape.backward(sum(square(c.f(x))));
    for (size_t i = 0; i < x.size(); ++i) {
      if (!x[i].parameter_state()->grad) continue;
      for (const double g : x[i].parameter_state()->grad->values())
        EXPECT_EQ(g, 0) << c.name << ", input " << i;
    }
  }
}

// Through masks: what only some see reaches no other, and what nobody sees nobody.
TEST(Special, WhatIsNoNumberReachesThoseAloneWhoSeeIt) {
  for (cases::AttentionSpec s : cases::scores())
    for (const auto mask : cases::masks()) {
      s.mask = mask, s.heads = 2, s.key_heads = 1;
      const cases::AttentionCase c = cases::attention_case(s);
      cases::for_each_planted(
          c, [&](const std::string& name, size_t input, size_t at, double value) {
            // Parameters are numbers: nothing else is loaded, nor trained.
            if (input > 2) return;
            expect_agreement(c, name, cases::planted(cases::draw(c, Type::f64), input, at, value),
                             cases::planted(cases::draw(c, Type::f32), input, at, value), 1e-11);
          });
    }
}

TEST(Special, AttentionOfNoSentencesNoQueriesOrNoKeysIsZero) {
  struct Sizes {
    int64_t batch, queries, keys;
  };
  for (cases::AttentionSpec s : cases::scores())
    for (const auto mask : cases::masks())
      for (const WeighRow& row : weigh_table())
        for (const Sizes sizes : {Sizes{0, 5, 7}, Sizes{3, 0, 7}, Sizes{3, 5, 0}}) {
          s.mask = mask, s.weigh.kind = row.kind, s.heads = 2, s.key_heads = 1;
          s.batch = sizes.batch, s.queries = sizes.queries, s.keys = sizes.keys;
          // Keys by position are the same for all sentences, and not taken for none of them.
          if (s.batch == 0 && (s.score == "static" || s.score == "location")) continue;
          const cases::AttentionCase c = cases::attention_case(s);
          expect_agreement(c, c.name, cases::draw(c, Type::f64), cases::draw(c, Type::f32));
        }
}

}  // namespace
}  // namespace heed
