#include <gtest/gtest.h>

#include <sstream>

#include "heed/ops/gradient_check.h"
#include "heed/ops/ops.h"
#include "heed/ops/top_log_softmax.h"
#include "heed/tensor/context.h"
#include "heed/tensor/tensor.h"
#include "tests/folder.h"

namespace heed {
namespace {

TEST(Arena, TheSameRequestsGetTheSameAddresses) {
  const auto arena = Arena::make();
  const auto step = [&] {
    const UseArena use(*arena);
    std::vector<const void*> at;
    const Tensor a({100, 7});
    at.push_back(a.data<float>());
    for (int i = 1; i < 50; ++i) {
      const Tensor x({i * 13}), y({i});
      at.push_back(x.data<float>());
      at.push_back(y.data<float>());
    }
    return at;
  };
  const auto first = step();
  EXPECT_EQ(step(), first);
  EXPECT_EQ(step(), first);
}

TEST(Arena, WhatIsFreedIsUsedAgainAndThePeakIsKnown) {
  const auto arena = Arena::make();
  const UseArena use(*arena);
  {
    const Tensor a({1 << 20}), b({1 << 20});
    EXPECT_GE(arena->used(), 8 << 20);
  }
  EXPECT_EQ(arena->used(), 0);
  EXPECT_GE(arena->peak(), 8 << 20);
  EXPECT_LT(arena->peak(), 9 << 20);
  arena->reset_peak();
  { const Tensor a({1 << 20}); }
  EXPECT_LT(arena->peak(), 5 << 20);
}

TEST(Arena, ATensorMayOutliveTheUseOfItsArena) {
  Tensor kept;
  {
    const auto arena = Arena::make();
    const UseArena use(*arena);
    kept = full({3}, 2.5);
  }
  EXPECT_EQ(kept.values(), (std::vector<double>{2.5, 2.5, 2.5}));
}

TEST(Arena, TooMuchIsAnErrorThatSaysWhatWasWanted) {
  const std::string said = message([] { Tensor({int64_t{1} << 45}); });
  EXPECT_NE(said.find("arena: out of memory: wanted"), std::string::npos) << said;
  EXPECT_EQ(message([] { Tensor({int64_t{1} << 62}); }),
            "tensor: [4611686018427387904] is more than any memory can hold");
}

TEST(Tensor, ValuesOfAViewComeInItsOwnOrder) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(transpose(x, 0, 1).values(), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(slice(x, 1, 1, 3).values(), (std::vector<double>{2, 3, 5, 6}));
  EXPECT_FALSE(transpose(x, 0, 1).contiguous());
  EXPECT_TRUE(slice(x, 0, 1, 2).contiguous());
}

TEST(Tensor, OneThatWasNeverSetSaysSo) {
  EXPECT_EQ(message([] { Tensor().values(); }),
            "tensor: there is none; it was never given a value");
}

TEST(Tensor, WrongTypeAndWrongCountAreErrors) {
  const Tensor x = tensor({1, 2}, {2});
  EXPECT_EQ(message([&] { x.data<double>(); }), "tensor: holds f32, asked for f64");
  EXPECT_EQ(message([&] { x.item(); }), "item: wanted a tensor of one number, given shape [2]");
  EXPECT_EQ(message([&] { tensor({1, 2, 3}, {2}); }), "tensor: shape [2] wants 2 numbers, given 3");
  EXPECT_EQ(message([&] { Tensor({2, -1}); }), "tensor: negative size in [2, -1]");
}

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(Tensor, AnAxisThatIsNotThereIsAnError) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(x.size(-2), 2);
  EXPECT_EQ(message([&] { x.size(2); }), "tensor: axis 2 of one with 2 axes, shape [2, 3]");
  EXPECT_EQ(message([&] { x.size(-3); }), "tensor: axis -3 of one with 2 axes, shape [2, 3]");
  EXPECT_EQ(message([&] { x.stride(5); }), "tensor: axis 5 of one with 2 axes, shape [2, 3]");
  EXPECT_EQ(message([&] { zeros({}).size(0); }), "tensor: axis 0 of one with 0 axes, shape []");
  EXPECT_EQ(message([&] { x.shape()[2]; }), "shape: axis 2 of [2, 3], which has 2 axes");
  EXPECT_EQ(message([&] { x.shape()[-1]; }), "shape: axis -1 of [2, 3], which has 2 axes");
  EXPECT_EQ(message([&] {
              Shape s{4};
              s[1] = 2;
            }),
            "shape: axis 1 of [4], which has 1 axis");
}

TEST(Tensor, AViewBeyondItsMemoryIsAnError) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(x.view({3}, {2}, 1).count(), 3);  // elements 1, 3 and 5
  EXPECT_EQ(message([&] { x.view({3}, {2}, 2); }),
            "view: shape [3] with strides [2] from element 2 on reaches beyond the 6 elements that "
            "are there");
  EXPECT_NE(message([&] { x.view({1}, {1}, -1); }).find("from element -1 on"), std::string::npos);
  EXPECT_NE(message([&] { slice(x, 0, 1, 2).view({4}, {1}); }).find("from element 3 on"),
            std::string::npos);
  EXPECT_NE(message([&] {
              x.view({int64_t{1} << 40, 2}, {int64_t{1} << 40, 1});
            }).find("reaches beyond"),
            std::string::npos);
  EXPECT_EQ(message([&] {
              x.view({2, 3}, {3});
            }),
            "view: shape [2, 3] and strides [3] have different numbers of axes");
  EXPECT_EQ(message([&] { x.view({-2}, {1}); }), "view: negative size in [-2]");
  // Backwards, down to the first.
  EXPECT_EQ(tensor({1, 2, 3}, {3}).view({3}, {-1}, 2).values(), (std::vector<double>{3, 2, 1}));
  EXPECT_NE(message([&] { x.view({3}, {-1}, 1); }).find("reaches beyond"), std::string::npos);
  EXPECT_EQ(message([&] { Tensor().view({1}, {1}); }),
            "view: of no tensor; it was never given a value");
  // Nothing at all may be seen anywhere, and somebody else's memory is as large as was said.
  EXPECT_EQ(x.view({0, 5}, {5, 1}, 6).count(), 0);
  std::vector<float> theirs(4);
  const Tensor seen = look_at({.data = theirs.data()}, {2, 2});
  EXPECT_EQ(seen.view({4}, {1}).count(), 4);
  EXPECT_NE(message([&] { seen.view({5}, {1}); }).find("the 4 elements"), std::string::npos);
}

TEST(Tensor, IsPrintedAsNumPyPrintsArrays) {
  EXPECT_EQ(printed(tensor({1, -2.5, 3, 4, 5, 1e-7f}, {2, 3})),
            "[[    1  -2.5     3]\n"
            " [    4     5 1e-07]]");
  EXPECT_EQ(printed(full({2, 1, 2}, 0.5)), "[[[0.5 0.5]]\n\n [[0.5 0.5]]]");
  EXPECT_EQ(printed(transpose(tensor({1, 2, 3, 4}, {2, 2}), 0, 1)), "[[1 3]\n [2 4]]");
  EXPECT_EQ(printed(full({}, 3)), "3");
  EXPECT_EQ(printed(zeros({0, 3})), "[]");
  EXPECT_EQ(printed(Tensor()), "no tensor");
  EXPECT_EQ(printed(ids(std::vector<Id>{7, 12}, {2})), "[ 7 12]");
  std::vector<float> many(1001);
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<float>(i);
  EXPECT_EQ(printed(tensor(many, {1001})), "[   0    1    2 ...  998  999 1000]");
  EXPECT_EQ(printed(full({400, 4}, 1)),
            "[[1 1 1 1]\n [1 1 1 1]\n [1 1 1 1]\n ...\n [1 1 1 1]\n [1 1 1 1]\n [1 1 1 1]]");
}

TEST(Ops, ElementsAreChosenOnlyFromWhatIsThere) {
  const Tensor x = zeros({2, 3});
  const auto index = [](std::vector<Id> values, const Shape& shape) { return ids(values, shape); };
  EXPECT_EQ(message([&] {
              gather(x, index({0, 3}, {2, 1}), 1);
            }),
            "gather: index 3 along an axis of 3");
  EXPECT_EQ(message([&] {
              gather(x, index({0, -1}, {2, 1}), 1);
            }),
            "gather: index -1 along an axis of 3");
  EXPECT_EQ(message([&] {
              gather(x, index({0, 0, 0}, {3, 1}), 1);
            }),
            "gather: an index [3, 1] into [2, 3] along axis 1; the other sizes must be the same");
  EXPECT_EQ(message([&] { gather(x, zeros({2, 1}), 1); }), "gather: wants ids as index, given f32");
  EXPECT_EQ(message([&] {
              where(index({1, 0}, {2}), x, x);
            }),
            "where: shapes cannot be broadcast: condition is [2], a is [2, 3], b is [2, 3]");
  EXPECT_EQ(message([&] { max(zeros({3, 0}), 1); }), "max: of no elements: axis 1 of shape [3, 0]");
  EXPECT_EQ(max(tensor({1, 4, 3}, {3})).item(), 4);
  // A condition of numbers: what is not 0 holds.
  EXPECT_EQ(where(tensor({0.5, 0}, {2, 1}), full({3}, 1), full({}, 2)).values(),
            (std::vector<double>{1, 1, 1, 2, 2, 2}));
}

TEST(Ops, MessagesNameTheOpWhatWasGivenAndWhatWasWanted) {
  const Tensor a = zeros({8, 64}), b = zeros({32, 12}), d = zeros({8, 64}, Type::f64);
  EXPECT_EQ(message([&] { matmul(a, b); }),
            "matmul: inner sizes differ: a is [8, 64], b is [32, 12]");
  EXPECT_EQ(message([&] { matmul(a, d); }), "matmul: types differ: a is f32, b is f64");
  EXPECT_EQ(message([&] { a + b; }),
            "add: shapes cannot be broadcast: a is [8, 64], b is [32, 12]");
  EXPECT_EQ(message([&] { a + d; }), "add: types differ: a is f32, b is f64");
  EXPECT_EQ(message([&] {
              reshape(a, {3, -1});
            }),
            "reshape: [8, 64] has 512 numbers, [3, -1] cannot hold them");
  EXPECT_EQ(message([&] { slice(a, 0, 5, 9); }), "slice: items 5 to 9 of axis 0 of shape [8, 64]");
  EXPECT_EQ(message([&] { transpose(a, 0, 2); }),
            "transpose: axis 2 of a tensor with 2 axes, shape [8, 64]");
  EXPECT_EQ(message([&] { linear(a, b); }),
            "linear: inner sizes differ: x is [8, 64], w is [32, 12]");
  EXPECT_EQ(message([&] { layer_norm(a, zeros({3}), zeros({64})); }),
            "layer_norm: gain wants shape [64] and type f32, given [3] f32");
  EXPECT_EQ(message([&] { add_dropout_norm(b, a, 0.1, zeros({64}), zeros({64})); }),
            "add_dropout_norm: residual and x differ: [32, 12] f32 and [8, 64] f32");
  EXPECT_EQ(message([&] { embedding(a, ids(std::vector<Id>{8}, {1})); }),
            "embedding: id 8 in a table of 8");
  EXPECT_EQ(message([&] {
              cross_entropy(a, ids(std::vector<Id>{1, 2}, {2}));
            }),
            "cross_entropy: 8 rows of logits, 2 targets");
  EXPECT_EQ(message([&] { cross_entropy(slice(a, 0, 0, 1), ids(std::vector<Id>{64}, {1})); }),
            "cross_entropy: target 64 in a vocabulary of 64");
  EXPECT_EQ(message([&] {
              dropout(a, 1.0, {3, nullptr});
            }),
            "dropout: p must be in [0, 1), given 1");
  EXPECT_EQ(message([&] {
              linear_dropout(a, transpose(a, 0, 1), std::nullopt, Activation::relu, 1.0, {});
            }),
            "linear_dropout: p must be in [0, 1), given 1");
  EXPECT_EQ(message([&] { top_k(a, 65); }), "top_k: wanted 65 of rows of 64");
  EXPECT_EQ(message([&] { tanh(ids(std::vector<Id>{1}, {1})); }), "tanh: wants numbers, given i32");
  EXPECT_EQ(message([&] {
              concat({a, b}, 0);
            }),
            "concat: along axis 0: shapes [8, 64] and [32, 12], types f32 and f32");
  EXPECT_EQ(message([&] {
              recurrent({.cell = Cell::gru,
                         .x = zeros({2, 3, 12}),
                         .u = zeros({5, 15}),
                         .bias = zeros({15}),
                         .h = zeros({2, 5})});
            }),
            "recurrent: 3 gates of 5 want 15 columns; given x [2, 3, 12], u [5, 15]");
}

TEST(Ops, ArithmeticOnColumnsReadsTheRightNumbers) {
  const Tensor x = tensor({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ((slice(x, 1, 0, 1) + zeros({2, 1})).values(), (std::vector<double>{1, 3}));
  EXPECT_EQ((slice(x, 1, 1, 2) * slice(x, 1, 0, 1)).values(), (std::vector<double>{2, 12}));
  EXPECT_EQ((transpose(x, 0, 1) - x).values(), (std::vector<double>{0, 1, -1, 0}));
}

TEST(Ops, IdsCanBeSlicedAndJoined) {
  const Tensor id = ids(std::vector<Id>{1, 2, 3, 0}, {2, 2});
  const Tensor column = slice(id, 1, 1, 2);
  EXPECT_EQ(concat({column, column}, 1).values(), (std::vector<double>{2, 2, 0, 0}));
  const Tensor table = tensor({10, 20, 30, 40}, {4, 1});
  EXPECT_EQ(embedding(table, column).values(), (std::vector<double>{30, 10}));
  const Tensor turned = transpose(tensor({1, 2, 3, 4, 5, 6}, {2, 3}), 0, 1);
  EXPECT_EQ(embedding(turned, column).values(), (std::vector<double>{3, 6, 1, 4}));
}

TEST(Ops, ReshapeRefusesWhatMakesNoSense) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(message([&] { reshape(x, {-2, -3}); }), "reshape: negative size in [-2, -3]");
  EXPECT_EQ(message([&] {
              reshape(zeros({0, 3}), {-1, 0});
            }),
            "reshape: the -1 in [-1, 0] could be anything beside a 0");
  EXPECT_EQ(linear(zeros({3, 0}), zeros({0, 2})).values(), std::vector<double>(6));
}

TEST(Ops, LinearWithOnlyTheBiasTrackedHasItsGradient) {
  Random random(1);
  const Tensor x = normal({3, 4}, 1, random, Type::f64), w = normal({4, 5}, 1, random, Type::f64);
  for (const Activation f : {Activation::relu, Activation::gelu, Activation::tanh}) {
    const GradientCheck check =
        check_gradient([&](const std::vector<Tensor>& in) { return linear(x, w, in[0], f); },
                       {normal({5}, 1, random, Type::f64)});
    EXPECT_LT(check.worst, 1e-7) << check.where;
  }
}

TEST(Ops, CrossEntropyOnLogitsMovedInHasItsGradient) {
  const Tensor target = ids(std::vector<Id>{2, 0}, {2});
  Random random(1);
  const GradientCheck check = check_gradient(
      [&](const std::vector<Tensor>& in) { return cross_entropy(in[0] * 1.0, target, 0.1); },
      {normal({2, 3}, 1, random, Type::f64)});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

TEST(Ops, NoRowsGiveGradientsOfZero) {
  const Tensor gain = as_parameter(full({3}, 1)), bias = as_parameter(zeros({3}));
  const Tensor w = as_parameter(full({3, 4}, 1));
  const Tensor x = as_parameter(zeros({0, 3}));
  Tape tape;
  const Tensor y = layer_norm(x, gain, bias);
  tape.backward(linear_cross_entropy(y, w, ids(std::vector<Id>{}, {0})) + sum(y));
  EXPECT_EQ(gain.parameter_state()->grad->values(), std::vector<double>(3));
  EXPECT_EQ(w.parameter_state()->grad->values(), std::vector<double>(12));
}

TEST(Ops, ASumDoesNotDependOnItsBatch) {
  Random random(1);
  const Tensor x = normal({3, 90, 300}, 1, random);
  const std::vector<double> all = sum(x, 1).values();
  const std::vector<double> first = sum(slice(x, 0, 0, 1), 1).values();
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
}

TEST(Ops, TheLargestLogProbabilitiesInOnePassHaveTheSameBits) {
  Random random(12);
  for (const int64_t n : {1, 9, 255, 256, 257, 1000, 8001})
    for (const int64_t k : {int64_t{1}, int64_t{10}, int64_t{300}}) {
      if (k > n) continue;
      Tensor x = normal({5, n}, 3, random);
      for (int64_t i = 0; i < n; ++i) x.data<float>()[n + i] = 1;  // equals: the first ones
      std::fill_n(x.data<float>() + 2 * n, n, -INFINITY);
      x.data<float>()[4 * n - 1] = NAN;
      const auto [found, log_sum] = top_log_softmax(x, k);
      const Tensor all = log_softmax(x);
      const Ranked wanted = top_k(all, k);
      for (const int64_t row : {0, 1, 4}) {
        const auto of = [&](const Tensor& t) { return slice(t, 0, row, row + 1); };
        EXPECT_EQ(of(found.values).values(), of(wanted.values).values());
        EXPECT_EQ(of(x - log_sum).values(), of(all).values());
        EXPECT_EQ(of(found.indices).values(), of(top_k(x, k).indices).values());
      }
      // Nothing to choose from, and what is no number: nothing is found.
      for (const int64_t row : {2, 3})
        for (const double value : slice(found.values, 0, row, row + 1).values())
          EXPECT_EQ(value, -INFINITY);
    }
}

TEST(Ops, EmptyTensorsGoThrough) {
  const Tensor none = zeros({0, 5});
  EXPECT_EQ(matmul(none, zeros({5, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(matmul(zeros({3, 0}), zeros({0, 2})).values(), std::vector<double>(6));
  EXPECT_EQ(softmax(none).shape(), (Shape{0, 5}));
  EXPECT_EQ((none + none).shape(), (Shape{0, 5}));
  EXPECT_EQ(sum(none).item(), 0);
  EXPECT_EQ(concat({none, zeros({1, 5})}, 0).shape(), (Shape{1, 5}));
}

TEST(Ops, CrossEntropyOverwritesOnlyLogitsThatNobodySees) {
  const Tensor target = ids(std::vector<Id>{0}, {1});
  Tape tape;
  const Tensor w = as_parameter(tensor({1, 2}, {1, 2}));
  const Tensor logits = w * 1.0;
  cross_entropy(logits, target);
  EXPECT_EQ(logits.values(), (std::vector<double>{1, 2}));
}

TEST(Ops, CastToBf16AndBack) {
  const Tensor x = tensor({1, -2.5f, 1.00390625f}, {3});
  EXPECT_EQ(cast(cast(x, Type::bf16), Type::f32).values(), (std::vector<double>{1, -2.5, 1}));
  EXPECT_EQ(cast(x, Type::bf16).values(), (std::vector<double>{1, -2.5, 1}));
  EXPECT_EQ(message([&] { softmax(cast(x, Type::bf16)); }),
            "softmax: no kernel for bf16 on cpu; cast to f32 first");
}

TEST(Tape, NothingIsRecordedWithoutOne) {
  const Tensor w = as_parameter(tensor({2}, {1}));
  const Tensor y = w * w;
  EXPECT_FALSE(tracked(w));
  Tape tape;
  EXPECT_TRUE(tracked(w));
  EXPECT_FALSE(tracked(y));
  EXPECT_NE(message([&] { tape.backward(y); }).find("was not recorded on this tape"),
            std::string::npos);
}

TEST(Tape, GradientsOfAParameterUsedTwiceAreAdded) {
  const Tensor w = as_parameter(tensor({3}, {1}));
  Tape tape;
  tape.backward(sum(w * w + w));
  EXPECT_EQ(w.parameter_state()->grad->values(), std::vector<double>{7});
}

TEST(Tape, ASharedGradientIsNotChangedBehindItsBack) {
  // Both inputs of the sum get the very same gradient tensor; adding to one must leave the other.
  const Tensor a = as_parameter(tensor({1, 2}, {2})), b = as_parameter(tensor({3, 4}, {2}));
  Tape tape;
  tape.backward(sum((a + b) + a));
  EXPECT_EQ(a.parameter_state()->grad->values(), (std::vector<double>{2, 2}));
  EXPECT_EQ(b.parameter_state()->grad->values(), (std::vector<double>{1, 1}));
}

TEST(Tape, AWeightUsedManyTimesGetsTheGradientOfAllUses) {
  Random random(1);
  const Tensor w = as_parameter(normal({3, 4}, 1, random, Type::f64));
  const Tensor u = as_parameter(normal({4, 12}, 1, random, Type::f64));
  const Tensor x = normal({2, 3}, 1, random, Type::f64), none = zeros({12}, Type::f64);
  const auto f = [&](const std::vector<Tensor>& in) {
    Tensor h = zeros({2, 4}, Type::f64);
    for (int t = 0; t < 3; ++t) {
      const Tensor part = linear(x * (1.0 + t), in[0]);
      const Tensor gates = reshape(concat({part, part, part}, 1), {2, 1, 12});
      h = reshape(recurrent({.cell = Cell::gru, .x = gates, .u = in[1], .bias = none, .h = h}).h,
                  {2, 4});
    }
    return h;
  };
  const GradientCheck check = check_gradient(f, {w, u});
  EXPECT_LT(check.worst, 1e-7) << check.where;
}

TEST(Tape, UsesThatTheLossDoesNotDependOnDoNotHoldUpTheOthers) {
  const Tensor w = as_parameter(tensor({1, 2, 3, 4}, {2, 2}));
  const Tensor x = tensor({1, 10}, {1, 2});
  Tape tape;
  linear(x, w);
  const Tensor loss = sum(linear(x, w));
  linear(x, w);
  tape.backward(loss);
  EXPECT_EQ(w.parameter_state()->grad->values(), (std::vector<double>{1, 1, 10, 10}));
}

TEST(Tape, DropoutOnlyWhileItIsOpen) {
  const Tensor x = full({1000}, 1);
  EXPECT_EQ(dropout(x, 0.5).values(), x.values());
  std::vector<double> first;
  {
    Tape tape(5);
    first = dropout(x, 0.5).values();
    EXPECT_NE(first, x.values());
    EXPECT_NE(dropout(x, 0.5).values(), first);  // another place, other numbers
  }
  Tape tape(5);
  EXPECT_EQ(dropout(x, 0.5).values(), first);  // the same seed, the same numbers
}

TEST(Tape, OnceUsedUpItKnowsNothingOfBefore) {
  const Tensor w = as_parameter(tensor({2}, {1}));
  Tape tape;
  const Tensor y = w * w, loss = sum(y);
  tape.backward(loss);
  EXPECT_NE(message([&] { tape.backward(loss); }).find("was not recorded on this tape"),
            std::string::npos);
  w.parameter_state()->grad = nullptr;
  tape.backward(sum(w * 3.0 + y * 5.0));  // y is a number now, no function of w
  EXPECT_EQ(w.parameter_state()->grad->values(), std::vector<double>{3});
}

TEST(Tape, AnInnerTapeDoesNotDisturbAnOuterOne) {
  const Tensor w = as_parameter(tensor({1, 2, 3, 4}, {2, 2}));
  const Tensor x = tensor({1, 10}, {1, 2});
  Tape outer;
  linear(x, w);
  const Tensor loss = sum(linear(x, w)) + sum(linear(x, w));
  {
    Tape inner;
    inner.backward(sum(linear(x, w)));
  }
  outer.backward(loss);
  EXPECT_EQ(w.parameter_state()->grad->values(), (std::vector<double>{3, 3, 30, 30}));
}

TEST(Tape, LossMustBeOneNumber) {
  const Tensor w = as_parameter(tensor({1, 2}, {2}));
  Tape tape;
  EXPECT_EQ(message([&] { tape.backward(w * w); }),
            "backward: the loss must be a single number, given shape [2]");
}

}  // namespace
}  // namespace heed
