// Bounds and edge cases of kernels, on every instruction set of this machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "heed/kernels/kernels.h"
#include "tests/targets.h"

namespace heed::kernels {
namespace {

std::vector<float> mapped(Unary f, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  run(Cpu{}, Map<float>{.f = f, .n = static_cast<int64_t>(x.size()), .x = x.data(), .y = y.data()});
  return y;
}

// The error in units in the last place of the right result, which must be a normal number.
double ulps(float given, double right) {
  const int exponent = std::ilogb(right);
  return std::abs(static_cast<double>(given) - right) / std::ldexp(1.0, exponent - 23);
}

// Floats of all sizes between the limits: every `stride`-th bit pattern, of both signs.
std::vector<float> floats_up_to(float limit, uint32_t stride) {
  std::vector<float> x;
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(limit); bits += stride) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-x.back());
  }
  return x;
}

void expect_within(Unary f, double (*right)(double), double bound, float limit) {
  const std::vector<float> x = floats_up_to(limit, 4099);
  on_every_target([&](const char* target) {
    const std::vector<float> y = mapped(f, x);
    double worst = 0;
    float where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double truth = right(static_cast<double>(x[i]));
      if (std::abs(truth) < 0x1p-126 || std::abs(truth) > 0x1.fffffep127) continue;
      // Not `error > worst`, which is false of NaN.
      if (const double error = ulps(y[i], truth); !(error <= worst))
        worst = std::isnan(error) ? HUGE_VAL : error, where = x[i];
    }
    EXPECT_LE(worst, bound) << target << ", at " << where;
    EXPECT_GT(worst, 0) << target << ": nothing was compared";
  });
}

TEST(Kernels, ExpIsWithinOneUlp) { expect_within(Unary::exp, std::exp, 1, 88.8f); }
TEST(Kernels, TanhIsWithinTwoAndAHalfUlps) { expect_within(Unary::tanh, std::tanh, 2.5, 50.0f); }
TEST(Kernels, SigmoidIsWithinTwoUlps) {
  expect_within(
      Unary::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2, 87.0f);
}

TEST(Kernels, FunctionsAtTheEndsOfTheirRange) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::bit_cast<float>(0xFFFFFFFFu);  // the one that is easiest to lose
  on_every_target([&](const char* target) {
    const std::vector<float> x{inf, -inf, nan, 0, 1e30f, -1e30f, 88.7f, -87.3f, 1e-40f};
    const std::vector<float> e = mapped(Unary::exp, x);
    EXPECT_EQ(e[0], inf) << target;
    EXPECT_EQ(e[1], 0) << target;
    EXPECT_TRUE(std::isnan(e[2])) << target;
    EXPECT_EQ(e[3], 1) << target;
    EXPECT_EQ(e[4], inf) << target;
    EXPECT_EQ(e[5], 0) << target;
    EXPECT_TRUE(std::isfinite(e[6]) && e[6] > 3e38f) << target;
    EXPECT_GT(e[7], 0) << target;
    EXPECT_EQ(e[8], 1) << target;
    const std::vector<float> t = mapped(Unary::tanh, x);
    EXPECT_EQ(t[0], 1) << target;
    EXPECT_EQ(t[1], -1) << target;
    EXPECT_TRUE(std::isnan(t[2])) << target;
    EXPECT_EQ(t[3], 0) << target;
    const std::vector<float> s = mapped(Unary::sigmoid, x);
    EXPECT_EQ(s[0], 1) << target;
    EXPECT_EQ(s[1], 0) << target;
    EXPECT_TRUE(std::isnan(s[2])) << target;
    EXPECT_TRUE(std::isnan(mapped(Unary::relu, x)[2])) << target;
    EXPECT_TRUE(std::isnan(mapped(Unary::log, {-1.0f})[0])) << target;
    EXPECT_EQ(mapped(Unary::log, {0.0f})[0], -inf) << target;
  });
}

TEST(Kernels, SoftmaxOfARowWithNothingToChooseFromIsZero) {
  const float inf = std::numeric_limits<float>::infinity();
  on_every_target([&](const char* target) {
    for (const int64_t n : {1, 4, 5, 8, 16, 32, 40, 64}) {
      std::vector<float> x(static_cast<size_t>(2 * n), -inf), y(x.size());
      x[static_cast<size_t>(n)] = 3;  // the second row has one choice
      run(Cpu{}, Softmax<float>{.rows = 2, .n = n, .log = false, .x = x.data(), .y = y.data()});
      for (int64_t i = 0; i < n; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], 0) << target;
      EXPECT_EQ(y[static_cast<size_t>(n)], 1) << target;
    }
  });
}

// Short rows take a shift only if they need one: at the border, beyond it, and with -inf.
TEST(Kernels, SoftmaxOfLargeNumbers) {
  for (const float most : {63.9f, 64.0f, 80.0f, 300.0f, 1e30f})
    for (const int64_t n : {4, 16, 32, 128, 100})
      on_every_target([&](const char* target) {
        std::vector<float> x(static_cast<size_t>(n)), y(x.size());
        for (size_t j = 0; j < x.size(); ++j) x[j] = most * (j % 2 ? -1 : 1) + float(j % 5);
        x[1] = -std::numeric_limits<float>::infinity();
        run(Cpu{}, Softmax<float>{.rows = 1, .n = n, .log = false, .x = x.data(), .y = y.data()});
        double sum = 0;
        const double top = *std::max_element(x.begin(), x.end());
        for (const float u : x) sum += std::exp(double(u) - top);
        for (size_t j = 0; j < x.size(); ++j)
          EXPECT_NEAR(y[j], std::exp(double(x[j]) - top) / sum, 1e-6) << target << ", " << most;
      });
}

// What no cache will hold is written past the caches: the same bits, wherever it begins.
TEST(Kernels, ALargeResultIsThatOfItsParts) {
  constexpr int64_t n = 1601, rows = 2000, all = n * rows;
  std::vector<float> x(all + 16), y(all + 16), part(all), g(all);
  for (size_t i = 0; i < x.size(); ++i) x[i] = float(i % 1009) * 0.01f - 5;
  for (size_t i = 0; i < g.size(); ++i) g[i] = float(i % 31) - 15;
  on_every_target([&](const char* target) {
    for (const int64_t from : {0, 3}) {
      const float* in = x.data() + from;
      float* out = y.data() + from;
      const auto expect_parts = [&](auto whole, auto row) {
        y.back() = 7;
        run(Cpu{}, whole);
        for (int64_t i = 0; i < rows; ++i) run(Cpu{}, row(i * n));
        EXPECT_TRUE(std::equal(part.begin(), part.end(), out)) << target << ", " << from;
        EXPECT_EQ(y.back(), 7) << target;
      };
      expect_parts(Map<float>{.f = Unary::sigmoid, .n = all, .x = in, .y = out}, [&](int64_t i) {
        return Map<float>{.f = Unary::sigmoid, .n = n, .x = in + i, .y = part.data() + i};
      });
      for (const bool log : {false, true}) {
        const auto softmax = [&](int64_t count, int64_t i, float* to) {
          return Softmax<float>{.rows = count, .n = n, .log = log, .x = in + i, .y = to};
        };
        const auto back = [&](int64_t count, int64_t i, float* to) {
          return SoftmaxGrad<float>{
              .rows = count, .n = n, .log = log, .y = in + i, .dy = g.data() + i, .dx = to};
        };
        expect_parts(softmax(rows, 0, out),
                     [&](int64_t i) { return softmax(1, i, part.data() + i); });
        expect_parts(back(rows, 0, out), [&](int64_t i) { return back(1, i, part.data() + i); });
      }
    }
  });
}

TEST(Kernels, ANaNIsNeverHidden) {
  on_every_target([&](const char* target) {
    for (const int64_t n : {1, 7, 16, 64, 100})
      for (const int64_t where : {int64_t{0}, n / 2, n - 1}) {
        std::vector<float> x(static_cast<size_t>(n), 1.0f), y(x.size());
        x[static_cast<size_t>(where)] = std::nanf("");
        run(Cpu{}, Softmax<float>{.rows = 1, .n = n, .log = false, .x = x.data(), .y = y.data()});
        EXPECT_TRUE(std::isnan(y[0])) << target << ", " << n << ", " << where;
      }
  });
}

TEST(Kernels, TopKOfEqualsTakesTheFirst) {
  on_every_target([&](const char* target) {
    const int64_t n = 100;
    std::vector<float> x(static_cast<size_t>(n), 0.0f), value(4);
    std::vector<Id> index(4);
    x[70] = x[30] = 5, x[99] = 7;
    run(Cpu{}, TopK<float>{.rows = 1,
                           .n = n,
                           .k = 4,
                           .x = x.data(),
                           .value = value.data(),
                           .index = index.data()});
    EXPECT_EQ(index, (std::vector<Id>{99, 30, 70, 0})) << target;
    EXPECT_EQ(value, (std::vector<float>{7, 5, 5, 0})) << target;
    run(Cpu{}, TopK<float>{.rows = 1,
                           .n = 4,
                           .k = 4,
                           .x = x.data() + 69,
                           .value = value.data(),
                           .index = index.data()});
    EXPECT_EQ(index, (std::vector<Id>{1, 0, 2, 3})) << target;
  });
}

TEST(Kernels, Bf16RoundsToNearestEvenAndKeepsNaN) {
  std::vector<float> x{1.0f, 1.00390625f, 1.01171875f, -2.5f, std::nanf(""), INFINITY, 3.4e38f};
  std::vector<bf16> y(x.size());
  std::vector<float> back(x.size());
  const int64_t n = static_cast<int64_t>(x.size());
  run(Cpu{}, ToBf16{.n = n, .x = x.data(), .y = y.data()});
  run(Cpu{}, FromBf16{.n = n, .x = y.data(), .y = back.data()});
  EXPECT_EQ(back[0], 1.0f);
  EXPECT_EQ(back[1], 1.0f);       // a tie: to even
  EXPECT_EQ(back[2], 1.015625f);  // a tie: to even, upwards
  EXPECT_EQ(back[3], -2.5f);
  EXPECT_TRUE(std::isnan(back[4]));
  EXPECT_EQ(back[5], INFINITY);
  EXPECT_EQ(back[6], INFINITY);
}

// Sizes around every edge of the tiles, with accumulation and a packed b.
TEST(Kernels, ProductsOfAllSmallSizes) {
  on_every_target([&](const char* target) {
    for (const int64_t m : {1, 2, 13, 14, 15, 57, 113})
      for (const int64_t n : {1, 15, 16, 33, 300})
        for (const int64_t k : {1, 17, 256, 257, 600}) {
          std::vector<double> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n));
          for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(double(i) * 0.7);
          for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(double(i) * 1.3);
          std::vector<double> c(static_cast<size_t>(m * n), 2.0),
              packed(static_cast<size_t>(packed_size(k, n)));
          run(Cpu{},
              PackMatrix<double>{.k = k, .n = n, .b = {b.data(), n}, .packed = packed.data()});
          Matmul<double> g{.m = m,
                           .n = n,
                           .k = k,
                           .a = {a.data(), k},
                           .b = {b.data(), n},
                           .c = {c.data(), n},
                           .accumulate = true,
                           .a_batch = {},
                           .b_batch = {},
                           .c_batch = {}};
          run(Cpu{}, g);
          std::vector<double> with_packed(c.size(), 2.0);
          g.c.data = with_packed.data();
          g.packed_b = packed.data();
          run(Cpu{}, g);
          // A product with a vector has an order of its own, unless it is packed.
          if (n > 1) {
            EXPECT_EQ(c, with_packed) << target;
          }
          for (int64_t at = 0; at < m * n; at += 7) {
            double sum = 0;
            for (int64_t p = 0; p < k; ++p)
              sum +=
                  a[static_cast<size_t>(at / n * k + p)] * b[static_cast<size_t>(p * n + at % n)];
            ASSERT_NEAR(c[static_cast<size_t>(at)], 2 + sum, 1e-11)
                << target << ' ' << m << ' ' << n << ' ' << k;
          }
        }
  });
}

// Every way through the product: b packed by all threads (many rows), several blocks of columns,
// rows that lie 4096 bytes apart, each of a and b transposed.
TEST(Kernels, ProductsOfLargeSizes) {
  struct Size {
    int64_t m, k, n;
  };
  for (const Size s :
       {Size{330, 70, 40}, Size{20, 30, 1100}, Size{350, 512, 50}, Size{60, 512, 33}})
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        std::vector<double> a(static_cast<size_t>(s.m * s.k)), b(static_cast<size_t>(s.k * s.n));
        for (size_t i = 0; i < a.size(); ++i) a[i] = std::sin(double(i) * 0.7);
        for (size_t i = 0; i < b.size(); ++i) b[i] = std::cos(double(i) * 1.3);
        std::vector<double> c(static_cast<size_t>(s.m * s.n));
        const Matrix<const double> left = a_turned ? Matrix<const double>{a.data(), 1, s.m}
                                                   : Matrix<const double>{a.data(), s.k, 1};
        const Matrix<const double> right = b_turned ? Matrix<const double>{b.data(), 1, s.k}
                                                    : Matrix<const double>{b.data(), s.n, 1};
        run(Cpu{}, Matmul<double>{.m = s.m,
                                  .n = s.n,
                                  .k = s.k,
                                  .a = left,
                                  .b = right,
                                  .c = {c.data(), s.n},
                                  .a_batch = {},
                                  .b_batch = {},
                                  .c_batch = {}});
        for (int64_t i = 0; i < s.m; ++i)
          for (int64_t j = 0; j < s.n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < s.k; ++p)
              sum += left.data[i * left.row + p * left.col] *
                     right.data[p * right.row + j * right.col];
            ASSERT_NEAR(c[static_cast<size_t>(i * s.n + j)], sum, 1e-11)
                << s.m << ' ' << s.k << ' ' << s.n << ", " << i << ' ' << j;
          }
      }
}

TEST(Kernels, AnEmptySumIsZeroAndGetsItsBias) {
  std::vector<float> c(6, 9.0f), bias{1, 2, 3};
  run(Cpu{}, Matmul<float>{.m = 2,
                           .n = 3,
                           .k = 0,
                           .a = {c.data(), 0},
                           .b = {c.data(), 3},
                           .c = {c.data(), 3},
                           .bias = bias.data(),
                           .a_batch = {},
                           .b_batch = {},
                           .c_batch = {}});
  EXPECT_EQ(c, (std::vector<float>{1, 2, 3, 1, 2, 3}));
}

}  // namespace
}  // namespace heed::kernels
