// bf16 on a CPU: products that are equal on every instruction set, and near what they stand for.
#include "heed/ops/bf16.h"

#include <gtest/gtest.h>

#include <cmath>

#include "heed/ops/into.h"
#include "heed/ops/tape.h"
#include "tests/folder.h"

namespace heed {
namespace {

using kernels::Bf16Path;

struct Product {
  Tensor x, w, bias;
};
Product random_product(int64_t m, int64_t k, int64_t n, uint64_t seed) {
  Random random(seed);
  return {normal({m, k}, 1, random), normal({k, n}, 0.3, random), normal({n}, 1, random)};
}

float rounded(float x) { return static_cast<float>(bf16(x)); }

// By the definition: pairs along k, the second of each first, one f32 addition after the other.
std::vector<float> by_definition(const Product& p, bool relu) {
  const int64_t m = p.x.size(0), k = p.w.size(0), n = p.w.size(1);
  std::vector<float> y;
  for (int64_t r = 0; r < m; ++r)
    for (int64_t o = 0; o < n; ++o) {
      volatile float sum = 0;  // step by step: the compiler is not to join a product with a sum
      for (int64_t i = 0; i < k; i += 2)
        for (int64_t at : {i + 1, i}) {
          if (at == k) continue;
          volatile float product =
              rounded(p.x.data<float>()[r * k + at]) * rounded(p.w.data<float>()[at * n + o]);
          sum = sum + product;
        }
      const float value = sum + p.bias.data<float>()[o];
      y.push_back(relu && value < 0 ? 0 : value);
    }
  return y;
}

// The same, all of it in one of two ways: weights packed before, or for this product.
std::vector<float> by_path(const Product& p, bool relu, std::optional<Bf16Path> path,
                           bool packed = true) {
  const int64_t m = p.x.size(0), k = p.w.size(0), n = p.w.size(1);
  std::vector<float> y(static_cast<size_t>(m * n), NAN);
  const kernels::Matrix<const float> w{p.w.data<float>(), p.w.stride(0), p.w.stride(1)},
      x{p.x.data<float>(), p.x.stride(0), p.x.stride(1)};
  if (packed) {
    const Tensor panels({kernels::bf16_count(k, n)}, Type::bf16);
    kernels::run(kernels::Cpu{}, kernels::PackBf16{k, n, w, panels.data<bf16>(), path});
    kernels::run(kernels::Cpu{}, kernels::Bf16Matmul{.m = m,
                                                     .x = x,
                                                     .w = {k, n, panels.data<bf16>()},
                                                     .bias = p.bias.data<float>(),
                                                     .relu = relu,
                                                     .y = y.data(),
                                                     .y_row = n,
                                                     .path = path});
  } else {
    kernels::run(kernels::Cpu{}, kernels::Bf16Product{.m = m,
                                                      .n = n,
                                                      .k = k,
                                                      .x = x,
                                                      .w = w,
                                                      .bias = p.bias.data<float>(),
                                                      .relu = relu,
                                                      .y = y.data(),
                                                      .y_row = n,
                                                      .path = path});
  }
  return y;
}

std::vector<Bf16Path> paths_here() {
  std::vector<Bf16Path> here;
  for (const Bf16Path path : {Bf16Path::plain, Bf16Path::avx2, Bf16Path::avx512})
    if (kernels::runs_here(path)) here.push_back(path);
  return here;
}

// A matrix that lies along the other axis.
Tensor along_the_other(const Tensor& x) { return transpose(contiguous(transpose(x, 0, 1)), 0, 1); }

constexpr std::pair<int64_t, int64_t> kSizes[] = {{64, 16},   {1, 1},    {100, 37}, {512, 70},
                                                  {129, 130}, {63, 64},  {2, 200},  {31, 15},
                                                  {700, 33},  {256, 320}};

TEST(Bf16, ProductsHaveTheSameBitsOnEveryInstructionSet) {
  uint64_t seed = 1;
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 13, 17, 48, 49, 100})
    for (const auto& [k, n] : kSizes) {
      const Product p = random_product(m, k, n, seed++);
      const Product other{along_the_other(p.x), along_the_other(p.w), p.bias};
      const bool relu = seed % 2 == 0;
      const std::vector<float> wanted = by_definition(p, relu);
      for (const Bf16Path path : paths_here()) {
        SCOPED_TRACE(testing::Message() << kernels::name(path) << " " << m << " " << k << " " << n);
        ASSERT_EQ(by_path(p, relu, path), wanted);
        ASSERT_EQ(by_path(p, relu, path, false), wanted);
        ASSERT_EQ(by_path(other, relu, path, false), wanted);
      }
    }
  if (!kernels::runs_here(Bf16Path::avx512))
    GTEST_SKIP() << "this CPU has no AVX-512 BF16: the other paths were tried";
}

// Beside the product in f64: each operand is off by at most 2^-8 of itself (half of the last of its
// 8 bits), their product by 2^-7 + 2^-16; and every addition by 2^-24 of what it adds to.
TEST(Bf16, TheErrorIsThatOfTheRounding) {
  for (const auto& [k, n] : kSizes) {
    const Product p = random_product(9, k, n, 11);
    const std::vector<float> y = by_path(p, false, std::nullopt);
    double most = 0;
    for (int64_t r = 0; r < 9; ++r)
      for (int64_t o = 0; o < n; ++o) {
        double sum = p.bias.data<float>()[o], size = std::fabs(sum);
        for (int64_t i = 0; i < k; ++i) {
          const double x = p.x.data<float>()[r * k + i], w = p.w.data<float>()[i * n + o];
          sum += x * w, size += std::fabs(x * w);
        }
        const double share = std::fabs(y[static_cast<size_t>(r * n + o)] - sum) / size;
        ASSERT_LE(share, 0x1p-7 + 0x1p-16 + double(k + 1) * 0x1p-24);
        most = std::max(most, share);
      }
    EXPECT_GT(most, 1e-6) << "is it f32?";
  }
}

TEST(Bf16, ARowDependsNeitherOnOthersNorOnThreads) {
  const Product p = random_product(150, 600, 100, 3);
  const int before = threads();
  for (const Bf16Path path : paths_here()) {
    set_threads(1);
    const std::vector<float> all = by_path(p, false, path);
    for (const int count : {1, 2, 4}) {
      set_threads(count);
      for (const bool packed : {true, false})
        EXPECT_EQ(by_path(p, false, path, packed), all) << kernels::name(path);
      for (const auto& [first, last] : {std::pair{0, 1}, {7, 8}, {149, 150}, {20, 27}, {3, 67}}) {
        const Product some{slice(p.x, 0, first, last), p.w, p.bias};
        const std::vector<float> alone = by_path(some, false, path);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + first * 100));
      }
    }
  }
  set_threads(before);
}

TEST(Bf16, SumsGoOnFromWhatIsThere) {
  for (const Bf16Path path : paths_here())
    for (const int64_t m : {3, 70}) {
      const Product p = random_product(m, 600, 50, 4);
      const std::vector<float> whole = by_path({p.x, p.w, zeros({50})}, false, path);
      std::vector<float> y(static_cast<size_t>(m * 50), 0);
      for (const int64_t k0 : {0, 300})
        kernels::run(kernels::Cpu{}, kernels::Bf16Product{.m = m,
                                                          .n = 50,
                                                          .k = 300,
                                                          .x = {p.x.data<float>() + k0, 600, 1},
                                                          .w = {p.w.data<float>() + k0 * 50, 50, 1},
                                                          .accumulate = true,
                                                          .y = y.data(),
                                                          .y_row = 50,
                                                          .path = path});
      EXPECT_EQ(y, whole) << kernels::name(path);
    }
}

TEST(Bf16, WhatIsNoNumberPassesThroughAndTinyNumbersAreNone) {
  for (const Bf16Path path : paths_here()) {
    SCOPED_TRACE(kernels::name(path));
    Product p = random_product(5, 64, 32, 8);
    float* const x = p.x.data<float>();
    x[64] = INFINITY, x[128] = NAN, x[192] = INFINITY, x[193] = -INFINITY;
    for (int64_t i = 0; i < 64; ++i) x[256 + i] = 1e-39f;  // smaller than a normal number
    for (int64_t o = 0; o < 32; ++o)
      p.w.data<float>()[o] = 1, p.w.data<float>()[32 + o] = 2;  // which infinity would turn to NaN
    const std::vector<float> y = by_path(p, false, path), positive = by_path(p, true, path);
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_TRUE(std::isfinite(y[i]));
      EXPECT_EQ(y[32 + i], INFINITY);
      EXPECT_TRUE(std::isnan(y[64 + i]));
      EXPECT_TRUE(std::isnan(positive[64 + i]));
      EXPECT_TRUE(std::isnan(y[96 + i]));
      EXPECT_EQ(y[128 + i], p.bias.data<float>()[i]);
    }
  }
}

TEST(Bf16, LinearAndEmbeddingTakeWeightsAlsoTransposed) {
  const Product p = random_product(9, 256, 64, 5);
  const Tensor x = cast(cast(p.x, Type::bf16), Type::f32),
               w = cast(cast(p.w, Type::bf16), Type::f32);
  for (const Activation f : {Activation::none, Activation::relu, Activation::gelu, Activation::tanh,
                             Activation::sigmoid}) {
    // Of numbers that are bf16 already: what is left is the order of sums.
    const std::vector<double> exact = linear(x, w, p.bias, f).values(),
                              near = linear(x, bf16_weight(w, 1), p.bias, f).values();
    for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(near[i], exact[i], 1e-4);
  }
  const Tensor table = contiguous(transpose(p.w, 0, 1));  // [64, 256]: outputs along axis 0
  const Tensor half = bf16_weight(table, 0);
  EXPECT_EQ(linear(p.x, transpose(half, 0, 1), p.bias).values(),
            linear(p.x, bf16_weight(p.w, 1), p.bias).values());
  const Tensor two[] = {bf16_weight(p.w, 1), transpose(half, 0, 1)}, biases[] = {p.bias, p.bias};
  for (const Tensor& y : linear_each(p.x, two, biases))
    EXPECT_EQ(y.values(), linear(p.x, two[0], p.bias).values());
  const Tensor rows = embedding(half, ids(std::vector<Id>{63, 0, 63, 5}, {2, 2}));
  EXPECT_EQ(rows.shape(), (Shape{2, 2, 256}));
  for (int64_t i = 0; i < 256; ++i) {
    EXPECT_EQ(rows.data<float>()[i], rounded(table.data<float>()[63 * 256 + i]));
    EXPECT_EQ(rows.data<float>()[256 + i], rounded(table.data<float>()[i]));
    EXPECT_EQ(rows.data<float>()[3 * 256 + i], rounded(table.data<float>()[5 * 256 + i]));
  }
}

TEST(Bf16, OtherOpsAndTrainingRefuseIt) {
  const Product p = random_product(4, 32, 32, 9);
  const Tensor w = bf16_weight(p.w, 1);
  EXPECT_TRUE(has(message([&] { matmul(p.x, w); }), "types"));
  EXPECT_TRUE(has(message([&] { tanh(w); }), "no kernel for bf16"));
  EXPECT_TRUE(has(message([&] { w.values(); }), "lie in panels"));
  EXPECT_TRUE(has(message([&] { cast(w, Type::f32); }), "lie in panels"));
  EXPECT_TRUE(has(message([&] { linear(p.x, transpose(w, 0, 1)); }), "along the other axis"));
  EXPECT_TRUE(has(message([&] { embedding(w, ids(std::vector<Id>{1}, {1})); }), "no table"));
  Tape tape;
  const Tensor x = as_parameter(p.x);
  EXPECT_TRUE(has(message([&] { linear(x, w); }), "nothing is learnt through them"));
}

// Mixed precision: all three products of linear() round their operands, and nothing else is.
struct Found {
  Tensor y, dx, dw, dbias;
};

// Of the sum of squares of y = uses * f(x w + bias).
Found trained(const Product& p, Activation f, int uses, bool bf16) {
  const Tensor x = as_parameter(p.x), w = as_parameter(p.w), bias = as_parameter(p.bias);
  Tape tape;
  const UseBf16Products products(bf16);
  Tensor y = linear(x, w, bias, f);
  for (int i = 1; i < uses; ++i) y = y + linear(x, w, bias, f);
  tape.backward(sum(sum(y * y, 1), 0));
  const auto gradient = [](const Tensor& of) { return *of.parameter_state()->grad; };
  return {y.detached(), gradient(x), gradient(w), gradient(bias)};
}

// The same step by step, in f64 between the roundings.
Found step_by_step(const Product& p, Activation f, int uses) {
  const auto half = [](const Tensor& x) {
    return cast(cast(cast(cast(x, Type::f32), Type::bf16), Type::f32), Type::f64);
  };
  const Tensor x = half(p.x), w = half(p.w), bias = cast(p.bias, Type::f64);
  const Tensor z = as_parameter(linear(x, w, bias));
  Tensor y;
  {
    Tape tape;
    switch (f) {
      case Activation::none: y = z * 1.0; break;
      case Activation::relu: y = relu(z); break;
      case Activation::gelu: y = gelu(z); break;
      case Activation::tanh: y = tanh(z); break;
      case Activation::sigmoid: y = sigmoid(z); break;
    }
    tape.backward(sum(sum(y * y, 1), 0) * double(uses));  // 2 uses y f'(z): of one use
  }
  const Tensor dz = *z.parameter_state()->grad, rounded_dz = half(dz);
  return {y.detached() * double(uses), matmul(rounded_dz, transpose(w, 0, 1)) * double(uses),
          matmul(transpose(x, 0, 1), rounded_dz) * double(uses), sum(dz, 0) * double(uses)};
}

double distance(const Tensor& of, const Tensor& from) {
  const std::vector<double> a = of.values(), b = from.values();
  double error = 0, size = 0;
  for (size_t i = 0; i < b.size(); ++i)
    error += std::pow(a[i] - b[i], 2), size += std::pow(b[i], 2);
  return a.size() == b.size() ? std::sqrt(error / size) : NAN;
}

// Whose rows begin at multiples of 16 bytes, and whose operands' do.
TEST(Bf16, SomeWeightsCanLieOnAGpu) {
  constexpr int kProduct = 1, kTable = 0;
  EXPECT_TRUE(bf16_fits_gpu({512, 2048}, kProduct));
  EXPECT_FALSE(bf16_fits_gpu({512, 10001}, kProduct));
  EXPECT_FALSE(bf16_fits_gpu({500, 2048}, kProduct));
  EXPECT_TRUE(bf16_fits_gpu({10001, 512}, kTable));
  EXPECT_FALSE(bf16_fits_gpu({10000, 500}, kTable));
}

TEST(Bf16, ProductsOfTrainingRoundTheirOperands) {
  const Product p = random_product(70, 96, 80, 12);
  for (const Activation f : {Activation::none, Activation::relu, Activation::gelu, Activation::tanh,
                             Activation::sigmoid})
    for (const int uses : {1, 3}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(f) << " " << uses);
      const Found found = trained(p, f, uses, true), exact = trained(p, f, uses, false),
                  wanted = step_by_step(p, f, uses);
      for (const auto& part : {&Found::y, &Found::dx, &Found::dw, &Found::dbias}) {
        // What f32 sums leave; now and then one tips a rounding over to the next of bf16.
        EXPECT_LT(distance(found.*part, wanted.*part), 2e-4);
        EXPECT_GT(distance(exact.*part, wanted.*part), 5e-4) << "f32 is no further off";
      }
    }
}

}  // namespace
}  // namespace heed
