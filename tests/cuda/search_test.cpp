// What a search on a GPU is made of: products of rows, and the likeliest tokens of a row.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "heed/ops/top_log_softmax.h"
#include "heed/tensor/cuda.h"
#include "tests/cuda/on_gpu.h"

namespace heed {
namespace {

class SearchOnGpu : public OnGpu {};

Tensor on_gpu(const Tensor& x) { return to(x, Device::cuda); }

// Products of models in use are tf32, with f32 sums: within 2^-10 of each product's size, whatever
// the tile, with a bias and relu, of weights as they lie and transposed.
TEST_F(SearchOnGpu, ProductsOfRowsAreProducts) {
  set_exact_products(false);
  const NoTape off;
  Random random(1);
  for (const int64_t k : {32, 96, 128, 512, 2048})
    for (const int64_t n : {8, 20, 132, 512, 3001})
      for (const int64_t rows : {1, 17, 40, 150, 700})
        for (const bool transposed : {false, true}) {
          if (!transposed && n % 4 != 0) continue;
          SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(k) + " x " +
                       std::to_string(n) + (transposed ? " transposed" : ""));
          const Tensor x = normal({rows, k}, 1, random), bias = normal({n}, 1, random);
          const Tensor w =
              transposed ? transpose(normal({n, k}, 1, random), 0, 1) : normal({k, n}, 1, random);
          const std::vector<double> wanted = linear(x, w, bias, Activation::relu).values();
          const Tensor there = [&] {
            const UseDevice use(Device::cuda);
            const SameForAnyRows same;
            return linear(on_gpu(x), on_gpu(w), on_gpu(bias), Activation::relu);
          }();
          const std::vector<double> found = there.values();
          ASSERT_EQ(found.size(), wanted.size());
          // A sum of k products of numbers of size 1, each rounded by 2^-11 twice.
          const double allowed = 6 * std::sqrt(double(k)) * std::exp2(-10);
          double worst = 0;
          for (size_t i = 0; i < found.size(); ++i)
            worst = std::max(worst, std::isnan(found[i]) ? 1e9 : std::abs(found[i] - wanted[i]));
          EXPECT_LE(worst, allowed);
        }
}

TEST_F(SearchOnGpu, LikeliestTokensAreThoseOfACpu) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  Random random(3);
  for (const int64_t n : {12, 77, 1000, 10'000, 40'001})
    for (const int64_t k : {1, 10, 12, 64}) {
      if (k > n) continue;
      SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(n));
      constexpr int64_t kRows = 6;
      const Tensor x = normal({kRows, n}, 3, random);
      float* const at = x.data<float>();
      for (int64_t j = 0; j < n; ++j) {
        at[n + j] = std::round(at[n + j]);       // many are equal
        if (j % 3 != 0) at[2 * n + j] = kNever;  // some cannot be
        if (j % 256 < 4) at[3 * n + j] += 50;    // all that is large lies together
      }
      at[4 * n + n / 2] = std::numeric_limits<float>::quiet_NaN();
      for (int64_t j = 0; j < n; ++j) at[5 * n + j] = kNever;
      const TopLogSoftmax one = top_log_softmax(x, k);
      const TopLogSoftmax two = [&] {
        const UseDevice use(Device::cuda);
        return top_log_softmax(on_gpu(x), k);
      }();
      const std::vector<double> numbers = one.top.indices.values(),
                                tokens = two.top.indices.values();
      const std::vector<double> wanted = one.top.values.values(), found = two.top.values.values();
      for (size_t i = 0; i < wanted.size(); ++i) {
        if (std::isinf(wanted[i])) {
          EXPECT_EQ(found[i], wanted[i]);
          continue;
        }
        EXPECT_NEAR(found[i], wanted[i], 2e-5);
        EXPECT_EQ(tokens[i], numbers[i]);
      }
      const std::vector<double> sums = one.log_sum.values(), others = two.log_sum.values();
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(others[i], sums[i], 2e-5);
    }
}

}  // namespace
}  // namespace heed
