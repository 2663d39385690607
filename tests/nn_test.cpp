#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "heed/base/random.h"
#include "heed/models/tensor_file.h"
#include "heed/nn/recurrent.h"
#include "heed/ops/gradient_check.h"
#include "heed/ops/into.h"
#include "heed/ops/weight.h"
#include "heed/tensor/context.h"
#include "heed/training/optimizer.h"
#include "tests/folder.h"

namespace heed {
namespace {

TEST(Params, NamesAreScopedAndTakenOnce) {
  const Params params(1);
  const Linear a(params / "encoder" / "0", 3, 4);
  EXPECT_EQ(params.all()[0].name, "encoder.0.weight");
  EXPECT_EQ(params.all()[1].name, "encoder.0.bias");
  EXPECT_EQ(params.count(), 16);
  EXPECT_THROW(Linear(params / "encoder" / "0", 3, 4), Error);
  EXPECT_THROW(params.at("encoder.0.weigth"), Error);
}

TEST(Params, NumbersDependOnSeedAndNameAlone) {
  const Params one(7), two(7), other(8);
  two.add("first", {5}, normal_values(1));
  const auto w = [](const Params& p) { return p.add("w", {2, 3}, glorot()).values(); };
  EXPECT_EQ(w(one), w(two));
  EXPECT_NE(w(other), one.at("w").value.values());
}

TEST(Params, OrthogonalBlocksAreOrthogonal) {
  const Params params(3, Type::f64);
  const Tensor u = params.add("u", {8, 24}, orthogonal());
  for (int64_t block = 0; block < 24; block += 8) {
    const Tensor q = slice(u, 1, block, block + 8);
    const std::vector<double> unit = matmul(q, transpose(q, 0, 1)).values();
    for (size_t i = 0; i < unit.size(); ++i) EXPECT_NEAR(unit[i], i % 9 == 0 ? 1 : 0, 1e-6);
  }
}

TEST(Layers, TiedEmbeddingGetsItsGradientFromBothEnds) {
  const Params params(1, Type::f64);
  const Embedding words(params, 5, 3);
  const Tensor id = ids(std::vector<Id>{1, 4}, {2}), next = ids(std::vector<Id>{4, 2}, {2});
  const GradientCheck check = check_gradient(
      [&](const std::vector<Tensor>& table) {
        return linear_cross_entropy(embedding(table[0], id), transpose(table[0], 0, 1), next);
      },
      {words.table()});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

TEST(Layers, PositionsAreSinesAndCosines) {
  const std::vector<double> p = sinusoidal_positions(3, 4, 5, Type::f64).values();
  for (int t = 0; t < 3; ++t)
    for (int i = 0; i < 2; ++i) {
      const double angle = (5 + t) / std::pow(10000.0, i / 2.0);
      EXPECT_DOUBLE_EQ(p[static_cast<size_t>(t * 4 + i)], std::sin(angle));
      EXPECT_DOUBLE_EQ(p[static_cast<size_t>(t * 4 + 2 + i)], std::cos(angle));
    }
}

TEST(Layers, FeedForwardAndNormsHaveRightGradients) {
  const Params params(2, Type::f64);
  const FeedForward ff(params / "ff", 4, 6, 0, Activation::gelu);
  const LayerNorm norm(params / "norm", 4);
  const RmsNorm rms(params / "rms", 4);
  Random random(1);
  const Tensor x = normal({2, 3, 4}, 1, random, Type::f64);
  const auto f = [&](const std::vector<Tensor>& in) { return ff(norm(in[0])) + rms(in[0]); };
  EXPECT_LT(check_gradient(f, {x}).worst, 1e-7);
}

// Padding must not matter: each sentence alone gives what it gives in the batch.
TEST(Recurrent, ASentenceDoesNotSeeThePaddingOfItsBatch) {
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm}) {
    const Params params(4, Type::f64);
    const RecurrentStack stack(
        params, {.cell = cell, .in = 3, .size = 5, .layers = 2, .bidirectional = true});
    Random random(2);
    const Tensor x = normal({3, 6, 3}, 1, random, Type::f64);
    const std::vector<Id> lengths{6, 2, 4};
    const auto together = stack(x, lengths);
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t n = lengths[static_cast<size_t>(b)];
      const auto alone = stack(slice(slice(x, 0, b, b + 1), 1, 0, n));
      EXPECT_EQ(alone.states.values(),
                slice(slice(together.states, 0, b, b + 1), 1, 0, n).values());
      for (size_t i = 0; i < alone.finals.size(); ++i)
        EXPECT_EQ(alone.finals[i].h.values(), slice(together.finals[i].h, 0, b, b + 1).values());
    }
  }
}

TEST(Recurrent, StepByStepIsTheSameAsAllAtOnce) {
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm}) {
    const Params params(4);
    const RecurrentCell c(params, cell, 3, 5);
    Random random(2);
    const Tensor x = normal({2, 4, 3}, 1, random);
    const Tensor all = c(x).h;
    CellState s = c.start(2);
    for (int64_t t = 0; t < 4; ++t) {
      s = c.step(reshape(slice(x, 1, t, t + 1), {2, 3}), s);
      EXPECT_EQ(s.h.values(), slice(all, 1, t, t + 1).values()) << "step " << t;
    }
  }
}

TEST(Recurrent, AStateOfOneNumberIsNoSpecialCase) {
  const Params params(4, Type::f64);
  const RecurrentCell cell(params, Cell::lstm, 2, 1);
  Random random(2);
  const auto f = [&](const std::vector<Tensor>& in) { return cell(in[0]).h; };
  const GradientCheck check = check_gradient(f, {normal({3, 4, 2}, 1, random, Type::f64)});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

TEST(Recurrent, StackHasRightGradients) {
  const Params params(4, Type::f64);
  const RecurrentStack stack(
      params, {.cell = Cell::lstm, .in = 2, .size = 3, .layers = 2, .bidirectional = true});
  Random random(2);
  const std::vector<Id> lengths{3, 1};
  const auto f = [&](const std::vector<Tensor>& in) {
    const auto out = stack(in[0], lengths);
    return concat({reshape(out.states, {2, 18}), out.finals[2].h, *out.finals[3].c}, 1);
  };
  const GradientCheck check = check_gradient(f, {normal({2, 3, 2}, 1, random, Type::f64)});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

// Adam on one number, by hand.
TEST(Optimizer, AdamFollowsThePaper) {
  const Params params(1, Type::f64);
  const Tensor w = params.add("w", {1}, constant(1));
  Adam adam(params, {.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .decay = 0.1});
  double x = 1, m = 0, v = 0;
  for (int t = 1; t <= 5; ++t) {
    {
      Tape tape;
      tape.backward(sum(square(w)));
    }
    const double g = 2 * x;
    adam.step(0.1);
    EXPECT_NEAR(adam.gradient_norm(), std::abs(g), 1e-12);
    m = 0.9 * m + 0.1 * g, v = 0.99 * v + 0.01 * g * g;
    x -= 0.1 *
         (m / (1 - std::pow(0.9, t)) / (std::sqrt(v / (1 - std::pow(0.99, t))) + 1e-8) + 0.1 * x);
    EXPECT_NEAR(w.values()[0], x, 1e-12) << "step " << t;
  }
}

TEST(Optimizer, ClippingKeepsTheDirectionAndANaNMovesNothing) {
  const Params params(1, Type::f64);
  const Tensor w = params.add("w", {2}, constant(0));
  Adam adam(params, {.beta1 = 0, .beta2 = 0, .clip_norm = 1});
  w.parameter_state()->grad =
      std::make_shared<Tensor>(tensor(std::vector<double>{30, 40}, {2}, Type::f64));
  adam.step(0.1);
  EXPECT_DOUBLE_EQ(adam.gradient_norm(), 50);
  EXPECT_FALSE(w.parameter_state()->grad);
  const std::vector<double> before = w.values();
  w.parameter_state()->grad =
      std::make_shared<Tensor>(tensor(std::vector<double>{NAN, 1}, {2}, Type::f64));
  adam.step(0.1);
  EXPECT_TRUE(std::isnan(adam.gradient_norm()));
  EXPECT_EQ(w.values(), before);
}

TEST(Checkpoint, ParametersComeBackBitForBit) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "p.safetensors";
  const Params saved(1), loaded(2), other(3);
  const Linear a(saved / "a", 3, 4), b(loaded / "a", 3, 4), c(other / "a", 3, 5);
  save_parameters(saved, path);
  load_parameters(loaded, path);
  EXPECT_EQ(a.weight().values(), b.weight().values());
  try {
    load_parameters(other, path);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("tensor 'a.bias' is F32 [4], the model wants f32 [5]"),
              std::string::npos)
        << e.what();
  }
  // A tensor too many, or one too few: an error, and nothing is changed.
  const Params more(4);
  const Linear first(more / "a", 3, 4), second(more / "b", 1, 1);
  const std::vector<double> before = first.weight().values();
  EXPECT_THROW(load_parameters(more, path), Error);
  save_parameters(more, path);
  const std::vector<double> kept = b.weight().values();
  EXPECT_THROW(load_parameters(loaded, path), Error);
  EXPECT_EQ(first.weight().values(), before);
  EXPECT_EQ(b.weight().values(), kept);
  // So is a number that is none.
  for (const double none : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    copy_into(tensor(std::vector<double>{1, 2, none, 4}, {4}, Type::f32),
              saved.at("a.bias").value.detached());
    save_parameters(saved, path);
    EXPECT_TRUE(has(message([&] { load_parameters(loaded, path); }), "numbers that are none"));
    EXPECT_EQ(b.weight().values(), kept);
  }
  std::filesystem::remove(path);
}

TEST(Optimizer, AdamRefusesParametersThatCameLater) {
  const Params params(1);
  params.add("w", {2}, constant(0));
  Adam adam(params);
  params.add("late", {2}, constant(0));
  EXPECT_THROW(adam.step(0.1), Error);
}

// Losses of a small model at a fixed seed: kernels, gradients and optimizer in one.
std::vector<double> ten_losses(Type type) {
  const Params params(1, type);
  const Embedding words(params / "words", 20, 16);
  const RecurrentCell cell(params / "cell", Cell::gru, 16, 16);
  const LayerNorm norm(params / "norm", 16);
  Adam adam(params, {.clip_norm = 1});
  std::vector<Id> in, out;
  for (Id i = 0; i < 24; ++i) in.push_back(i * 7 % 20), out.push_back((i * 7 + 3) % 20);
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    Tape tape;
    const Tensor h = norm(cell(words(ids(in, {4, 6}))).h);
    const Tensor loss = linear_cross_entropy(h, words.output_weight(), ids(out, {4, 6}), 0.1);
    losses.push_back(loss.item());
    tape.backward(loss);
    adam.step(1e-2);
  }
  return losses;
}

TEST(Training, TenKnownLosses) {
  const std::vector<double> known{3.0857005, 2.7099867, 2.4342364, 2.2133324, 2.0232894,
                                  1.8520707, 1.6964262, 1.5587704, 1.4407917, 1.3393074};
  const std::vector<double> f64 = ten_losses(Type::f64), f32 = ten_losses(Type::f32);
  for (size_t i = 0; i < known.size(); ++i) {
    EXPECT_NEAR(f64[i], known[i], 1e-6) << "step " << i;
    EXPECT_NEAR(f32[i], known[i], 1e-4) << "step " << i;
  }
}

// Laid out once, a weight gives the same numbers, as it is and turned (a tied embedding's); and the
// layout is that of its second use, so a weight that changes meanwhile is not seen: it must not.
TEST(PackedWeights, TheSameNumbersByALayoutMadeOnce) {
  const Params params(3);
  const Embedding words(params / "words", 70, 33);
  const Linear f(params / "f", 33, 50);
  Random random(5);
  std::vector<float> numbers(9 * 33);
  for (float& x : numbers) x = static_cast<float>(random.uniform() - 0.5);
  const Tensor x = tensor(numbers, {9, 33});
  const auto products = [&] {
    std::vector<double> all = f(x).values();
    for (const double y : linear(x, words.output_weight()).values()) all.push_back(y);
    return all;
  };
  const std::vector<double> known = products();
  {
    const UsePackedWeights fixed(std::make_shared<PackedWeights>());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(products(), known) << i;
    params.at("f.weight").value.data<float>()[0] += 1;
    EXPECT_EQ(products(), known);
  }
  EXPECT_NE(products(), known);
}

// Also of a parameter in bf16, as bf16 compute copies are: what the optimizer reads is f32.
TEST(Cast, AParametersGradientIsWide) {
  const Tensor x = as_parameter(cast(tensor(std::vector<float>{1, -2, 3}, {3}), Type::bf16));
  Tape tape;
  tape.backward(sum(square(cast(x, Type::f32))));
  EXPECT_EQ(x.parameter_state()->grad->type(), Type::f32);
  EXPECT_EQ(x.parameter_state()->grad->values(), (std::vector<double>{2, -4, 6}));
}

}  // namespace
}  // namespace heed
