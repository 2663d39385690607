// Every case of the table agrees with plain loops, on every instruction set of this machine, and
// has the same bits on any number of threads.
#include <gtest/gtest.h>

#include "bench/cases/ops.h"
#include "heed/base/parallel.h"
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

TEST(Agree, EveryOpWithPlainLoopsInBothTypes) {
  for (const Case& c : cases::ops()) {
    const std::vector<Tensor> f64 = cases::draw(c, Type::f64), f32 = cases::draw(c, Type::f32);
    const std::vector<double> truth = c.truth(arrays<double>(f64));
    const std::vector<double> truth_f32 = c.truth(arrays<double>(f32));
    // What plain loops in f32 get wrong, twice, and two roundings of the largest number.
    const double allowed = 2 * earned(worst(truth_f32, c.plain(arrays<float>(f32)))) +
                           2 * 0x1p-23 * largest(truth_f32);
    on_every_target([&](const char* target) {
      const Tensor y64 = c.f(f64), y32 = c.f(f32);
      ASSERT_EQ(static_cast<size_t>(y64.count()), truth.size()) << c.name;
      EXPECT_LE(worst(truth, y64.values()), 1e-12 * (1 + largest(truth)))
          << c.name << ", " << target;
      EXPECT_LE(worst(truth_f32, y32.values()), allowed) << c.name << ", " << target;
    });
  }
}

// The bits of a case's result and of all its gradients.
std::vector<std::vector<double>> everything(const Case& c) {
  std::vector<Tensor> x = cases::draw(c, Type::f32);
  for (Tensor& input : x) input = as_parameter(input);
  std::vector<std::vector<double>> out;
  Tape tape;
  const Tensor y = c.f(x);
  out.push_back(y.values());
  tape.backward(sum(square(y)));
  for (const Tensor& input : x)
    if (input.parameter_state()->grad) out.push_back(input.parameter_state()->grad->values());
  return out;
}

TEST(Agree, TheSameBitsOnAnyNumberOfThreads) {
  std::vector<Case> all = cases::ops();
  // Sizes at which the work is really shared out.
  for (const char form : {'n', 't', 'T'}) all.push_back(cases::matmul_case(130, 300, 200, form));
  all.push_back(cases::layer_norm_case(700, 64));
  all.push_back(cases::softmax_case(300, 200, false));
  all.push_back(cases::embedding_case(50, 256, 300));
  all.push_back(cases::dropout_case(70000));
  const int before = threads();
  for (const Case& c : all) {
    set_threads(1);
    const auto alone = everything(c);
    for (const int count : {2, 3}) {
      set_threads(count);
      EXPECT_EQ(everything(c), alone) << c.name << " on " << count << " threads";
    }
  }
  set_threads(before);
}

TEST(Agree, AProductOfARowDoesNotDependOnTheOtherRows) {
  Random random(3);
  const Tensor a = normal({97, 300}, 1, random), b = normal({300, 71}, 1, random);
  const std::vector<double> all = matmul(a, b).values();
  for (const int64_t count : {1, 2, 5, 13, 14, 15, 29, 60}) {
    const std::vector<double> some = matmul(slice(a, 0, 7, 7 + count), b).values();
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 7 * 71)) << count << " rows";
  }
}

}  // namespace
}  // namespace heed
