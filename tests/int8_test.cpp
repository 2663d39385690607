// Weights of eight bits: products that are equal on every instruction set, and what they cost.
#include "heed/ops/int8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/folder.h"

namespace heed {
namespace {

using kernels::Int8Path;

struct Product {
  Tensor x, w, bias;
};
Product random_product(int64_t m, int64_t k, int64_t n, uint64_t seed) {
  Random random(seed);
  return {normal({m, k}, 1, random), normal({k, n}, 0.3, random), normal({n}, 1, random)};
}

// By the definition, in whole numbers.
std::vector<float> by_definition(const Product& p, bool relu) {
  const int64_t m = p.x.size(0), k = p.w.size(0), n = p.w.size(1);
  const auto quantized = [&](auto at, int64_t count, float& scale) {
    float most = 0;
    for (int64_t i = 0; i < count; ++i) most = std::max(most, std::fabs(at(i)));
    scale = most / 127;
    std::vector<int32_t> out;
    for (int64_t i = 0; i < count; ++i)
      out.push_back(static_cast<int32_t>(std::nearbyint(at(i) * (127 / most))));
    return out;
  };
  std::vector<std::vector<int32_t>> columns;
  std::vector<float> scales(static_cast<size_t>(n));
  for (int64_t o = 0; o < n; ++o)
    columns.push_back(quantized([&](int64_t i) { return p.w.data<float>()[i * n + o]; }, k,
                                scales[static_cast<size_t>(o)]));
  std::vector<float> y;
  for (int64_t r = 0; r < m; ++r) {
    float scale = 0;
    const auto row = quantized([&](int64_t i) { return p.x.data<float>()[r * k + i]; }, k, scale);
    for (int64_t o = 0; o < n; ++o) {
      int32_t sum = 0;
      for (size_t i = 0; i < row.size(); ++i) sum += row[i] * columns[static_cast<size_t>(o)][i];
      // Step by step: the compiler is not to join a product with a sum.
      volatile float product = static_cast<float>(sum) * (scale * scales[static_cast<size_t>(o)]);
      const float value = product + p.bias.data<float>()[o];
      y.push_back(relu && value < 0 ? 0 : value);
    }
  }
  return y;
}

std::vector<float> by_path(const Product& p, bool relu, std::optional<Int8Path> path) {
  const Tensor w = int8_weight(p.w, 1);
  const int64_t m = p.x.size(0), n = p.w.size(1);
  std::vector<float> y(static_cast<size_t>(m * n), NAN);
  kernels::run(kernels::Cpu{}, kernels::Int8Matmul{.m = m,
                                                   .x = p.x.data<float>(),
                                                   .x_row = p.w.size(0),
                                                   .w = w.storage()->int8->weights,
                                                   .bias = p.bias.data<float>(),
                                                   .relu = relu,
                                                   .y = y.data(),
                                                   .y_row = n,
                                                   .path = path});
  return y;
}

TEST(Int8, ProductsHaveTheSameBitsOnEveryInstructionSet) {
  int paths = 0;
  for (const Int8Path path : {Int8Path::plain, Int8Path::avx2, Int8Path::vnni, Int8Path::amx}) {
    if (!kernels::runs_here(path)) continue;
    ++paths;
    uint64_t seed = 1;
    for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 17, 31, 32, 33, 70, 130})
      for (const auto& [k, n] : {std::pair<int64_t, int64_t>{64, 16},
                                 {1, 1},
                                 {100, 37},
                                 {512, 70},
                                 {129, 130},
                                 {63, 64}}) {
        SCOPED_TRACE(testing::Message() << kernels::name(path) << " " << m << " " << k << " " << n);
        const Product p = random_product(m, k, n, seed++);
        for (const bool relu : {false, true})
          ASSERT_EQ(by_path(p, relu, path), by_definition(p, relu));
      }
  }
  EXPECT_GE(paths, 1);
}

TEST(Int8, ARowDependsNeitherOnOthersNorOnThreads) {
  const Product p = random_product(50, 192, 100, 3);
  const std::vector<float> all = by_path(p, false, std::nullopt);
  for (const int count : {1, 2, 3}) {
    const int before = threads();
    set_threads(count);
    EXPECT_EQ(by_path(p, false, std::nullopt), all);
    for (const int64_t first : {0, 7, 49}) {
      const Product one{slice(p.x, 0, first, first + 1), p.w, p.bias};
      const std::vector<float> alone = by_path(one, false, std::nullopt);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + first * 100));
    }
    set_threads(before);
  }
}

TEST(Int8, SeveralProductsOfOneInputAreThoseOfEach) {
  const Product p = random_product(9, 128, 48, 4), q = random_product(9, 128, 130, 6);
  const Tensor w[] = {int8_weight(p.w, 1), int8_weight(q.w, 1)}, bias[] = {p.bias, q.bias};
  const int before = threads();
  for (const int count : {1, 3}) {
    set_threads(count);
    for (const int64_t rows : {1, 9}) {
      const Tensor x = slice(p.x, 0, 0, rows);
      const std::vector<Tensor> found = linear_each(x, w, bias);
      for (size_t i = 0; i < 2; ++i)
        EXPECT_EQ(found[i].values(), linear(x, w[i], bias[i]).values());
    }
  }
  set_threads(before);
}

TEST(Int8, LinearIsNearF32AndTakesTablesTransposed) {
  const Product p = random_product(9, 256, 64, 5);
  for (const Activation f : {Activation::none, Activation::relu, Activation::gelu, Activation::tanh,
                             Activation::sigmoid}) {
    const std::vector<double> exact = linear(p.x, p.w, p.bias, f).values();
    const std::vector<double> near = linear(p.x, int8_weight(p.w, 1), p.bias, f).values();
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i)
      error += std::pow(exact[i] - near[i], 2), size += std::pow(exact[i], 2);
    // Two roundings to 1 of 254 parts of the largest of some normal numbers, about three
    // deviations: sqrt(2) * 3 / 127 / sqrt(12) = 0.01.
    EXPECT_LT(std::sqrt(error / size), 0.02);
    EXPECT_GT(std::sqrt(error / size), 1e-4) << "is it f32?";
  }
  const Tensor table = transpose(p.w, 0, 1);  // [64, 256]: outputs along axis 0
  const Tensor eight = int8_weight(contiguous(table), 0);
  EXPECT_EQ(linear(p.x, transpose(eight, 0, 1), p.bias).values(),
            linear(p.x, int8_weight(p.w, 1), p.bias).values());
  const Tensor rows = embedding(eight, ids(std::vector<Id>{63, 0, 63, 5}, {2, 2}));
  EXPECT_EQ(rows.shape(), (Shape{2, 2, 256}));
  for (int64_t i = 0; i < 256; ++i) {
    const float exact = table.data<float>()[63 * table.stride(0) + i * table.stride(1)];
    EXPECT_NEAR(rows.data<float>()[i], exact, 0.3 * 4.5 / 254);
    EXPECT_EQ(rows.data<float>()[i], rows.data<float>()[2 * 256 + i]);
  }
}

TEST(Int8, RowsThatAreNoNumbersStayNone) {
  Product p = random_product(3, 64, 32, 8);
  p.x.data<float>()[64] = INFINITY;
  p.x.data<float>()[128] = NAN;
  const std::vector<float> y = by_path(p, false, std::nullopt);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_TRUE(std::isfinite(y[i]));
    EXPECT_TRUE(std::isnan(y[32 + i]));
    EXPECT_TRUE(std::isnan(y[64 + i]));
  }
  std::fill_n(p.x.data<float>(), 64, 0.0f);  // no number to scale by
  EXPECT_EQ(by_path(p, false, std::nullopt)[0], p.bias.data<float>()[0]);
}

TEST(Int8, OtherOpsAndTrainingRefuseIt) {
  const Product p = random_product(4, 32, 32, 9);
  const Tensor w = int8_weight(p.w, 1);
  EXPECT_TRUE(has(message([&] { matmul(p.x, w); }), "types"));
  EXPECT_TRUE(has(message([&] { tanh(w); }), "no kernel for i8"));
  EXPECT_TRUE(has(message([&] { w.values(); }), "lie in blocks"));
  EXPECT_TRUE(has(message([&] { linear(p.x, transpose(w, 0, 1)); }), "along the other axis"));
  EXPECT_TRUE(has(message([&] { embedding(w, ids(std::vector<Id>{1}, {1})); }), "no table"));
  Tape tape;
  const Tensor x = as_parameter(p.x);
  EXPECT_TRUE(has(message([&] { linear(x, w); }), "nothing is learnt through them"));
}

}  // namespace
}  // namespace heed
