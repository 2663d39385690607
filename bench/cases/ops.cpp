#include "bench/cases/special.h"

#include "bench/cases/loops.h"
#include "heed/base/random.h"

namespace heed::cases {
namespace {

// One number and a tensor.
template <class F>
Case number_case(const char* name, F f, double number = 1.3, Input::Kind kind = Input::normal) {
  return make(
      name, {{{7}, kind}}, [=](const std::vector<Tensor>& x) { return f(x[0], number); },
      [=](const auto& in) {
        auto y = in[0];
        for (auto& v : y) v = f(v, static_cast<Number<decltype(in)>>(number));
        return y;
      });
}

}  // namespace

std::vector<Tensor> draw(const Case& c, Type type, uint64_t seed) {
  Random random(seed);
  std::vector<Tensor> out;
  for (const Input& input : c.inputs) {
    std::vector<double> values(static_cast<size_t>(input.shape.count()));
    for (double& v : values)
      v = input.kind == Input::positive ? 0.5 + double(random.uniform()) : double(random.normal());
    out.push_back(tensor(values, input.shape, type));
  }
  return out;
}

std::vector<Case> ops() {
  std::vector<Case> all;
  for (const char* name : {"exp", "log", "sqrt", "square", "abs", "tanh", "sigmoid", "relu", "gelu",
                           "swish", "negate"})
    for (const int64_t n : {1, 37}) all.push_back(unary_case(name, n));
  for (const char* op : {"add", "subtract", "multiply", "divide"}) {
    all.push_back(broadcast_case(op, {3, 5}, {3, 5}));
    all.push_back(broadcast_case(op, {2, 3, 19}, {19}));
    all.push_back(broadcast_case(op, {2, 1, 4}, {3, 1}));
    all.push_back(broadcast_case(op, {5, 1}, {1, 17}));
    all.push_back(broadcast_case(op, {}, {4}));
  }
  all.push_back(make(
      "scale", {{{7}}}, [](const std::vector<Tensor>& x) { return x[0] * 2.5; },
      [](const auto& in) {
        auto y = in[0];
        for (auto& v : y) v *= Number<decltype(in)>(2.5);
        return y;
      }));
  all.push_back(make(
      "add a number", {{{7}}}, [](const std::vector<Tensor>& x) { return x[0] + 1.5; },
      [](const auto& in) {
        auto y = in[0];
        for (auto& v : y) v += Number<decltype(in)>(1.5);
        return y;
      }));
  all.push_back(number_case("subtract a number", [](auto x, auto c) { return x - c; }));
  all.push_back(number_case("subtract from a number", [](auto x, auto c) { return c - x; }));
  all.push_back(number_case("add to a number", [](auto x, auto c) { return c + x; }));
  all.push_back(number_case("divide by a number", [](auto x, auto c) { return x / c; }));
  // Over the smallest numbers it is still one.
  all.push_back(number_case(
      "divide a number", [](auto x, auto c) { return c / x; }, 0.01, Input::positive));
  all.push_back(dropout_case(1500));
  all.push_back(add_dropout_case(1500));
  for (const int64_t n : {13, 128, 512, 1040}) all.push_back(add_dropout_norm_case(3, n));
  all.push_back(linear_each_case());
  all.push_back(shared_input_case(7, 13));
  for (const char form : {'n', 't', 'T'}) {
    all.push_back(matmul_case(1, 1, 1, form));
    all.push_back(matmul_case(5, 7, 3, form));
    all.push_back(matmul_case(15, 33, 65, form));
  }
  all.push_back(heads_case());
  all.push_back(linear_case(Activation::none, "without bias", false));
  all.push_back(linear_case(Activation::none, "with bias", true));
  all.push_back(linear_case(Activation::relu, "relu", true));
  all.push_back(linear_case(Activation::tanh, "tanh", true));
  all.push_back(linear_case(Activation::sigmoid, "sigmoid", true));
  all.push_back(linear_case(Activation::gelu, "gelu", true));
  all.push_back(linear_dropout_case(Activation::relu, "relu"));
  all.push_back(linear_dropout_case(Activation::tanh, "tanh"));
  // Whole vectors, whose rows stay in registers.
  for (const int64_t n : {2, 4, 8, 16, 32, 64, 128}) all.push_back(softmax_case(3, n, false));
  for (const int64_t n : {1, 5, 67}) {
    all.push_back(softmax_case(3, n, false));
    all.push_back(softmax_case(3, n, true));
    all.push_back(layer_norm_case(35, n));
    // Of one element, x / |x| is a step at 0, where differences say nothing.
    if (n > 1) all.push_back(rms_norm_case(35, n));
    all.push_back(cross_entropy_case(4, n, 0));
    all.push_back(cross_entropy_case(4, n, 0.1));
  }
  all.push_back(linear_cross_entropy_case(false));
  all.push_back(linear_cross_entropy_case(true));
  all.push_back(sum_case({3, 4, 5}, 0));
  all.push_back(sum_case({3, 4, 5}, 1));
  all.push_back(sum_case({3, 4, 5}, 2));
  all.push_back(sum_case({100, 3}, 0));
  for (const int axis : {0, 1, 2}) all.push_back(max_case({3, 4, 5}, axis));
  all.push_back(max_case({3, 37}, 1));
  all.push_back(embedding_case(11, 9, 13));
  for (const int axis : {0, 1}) all.push_back(gather_case(axis));
  all.push_back(where_case());
  all.push_back(rotary_case(3));
  all.push_back(make(
      "reshape and transpose", {{{2, 3, 4}}},
      [](const std::vector<Tensor>& x) {
        return reshape(transpose(reshape(x[0], {6, 4}), 0, 1), {2, -1});
      },
      [](const auto& in) { return transposed(in[0], 6, 4); }));
  all.push_back(make(
      "slice", {{{3, 4}}}, [](const std::vector<Tensor>& x) { return slice(x[0], 1, 1, 3); },
      [](const auto& in) {
        std::decay_t<decltype(in[0])> y;
        for (size_t i = 0; i < 3; ++i)
          for (size_t j = 1; j < 3; ++j) y.push_back(in[0][i * 4 + j]);
        return y;
      }));
  all.push_back(make(
      "concat", {{{2, 1}}, {{2, 3}}},
      [](const std::vector<Tensor>& x) {
        return concat({x[0], x[1]}, 1);
      },
      [](const auto& in) {
        std::decay_t<decltype(in[0])> y;
        for (size_t i = 0; i < 2; ++i) {
          y.push_back(in[0][i]);
          for (size_t j = 0; j < 3; ++j) y.push_back(in[1][i * 3 + j]);
        }
        return y;
      }));
  all.push_back(make(  // of the parts one is used twice, one not at all
      "stack and unstack", {{{3, 2, 4}}},
      [](const std::vector<Tensor>& x) {
        const std::vector<Tensor> part = unstack(x[0]);
        const Tensor both[] = {part[2], part[0] * part[2]};
        return stack(both);
      },
      [](const auto& in) {
        std::decay_t<decltype(in[0])> y(in[0].begin() + 16, in[0].end());
        for (size_t i = 0; i < 8; ++i) y.push_back(in[0][i] * in[0][16 + i]);
        return y;
      }));
  all.push_back(decoder_steps_case());
  for (Case& c : recurrent_cases()) all.push_back(std::move(c));
  return all;
}

std::vector<Case> empty() {
  std::vector<Case> all;
  for (const char* name : {"exp", "log", "abs", "tanh", "sigmoid", "relu", "gelu"})
    all.push_back(unary_case(name, 0));
  for (const char* op : {"add", "divide"}) {
    all.push_back(broadcast_case(op, {0, 5}, {0, 5}));
    all.push_back(broadcast_case(op, {2, 0, 3}, {3}));
    all.push_back(broadcast_case(op, {0, 1}, {1, 4}));
  }
  all.push_back(dropout_case(0));
  all.push_back(add_dropout_case(0));
  all.push_back(add_dropout_norm_case(0, 128));
  for (const char form : {'n', 't', 'T'}) {
    all.push_back(matmul_case(0, 7, 3, form));
    all.push_back(matmul_case(5, 0, 3, form));
    all.push_back(matmul_case(5, 7, 0, form));
    all.push_back(matmul_case(1, 0, 1, form));
  }
  for (const bool log : {false, true}) {
    all.push_back(softmax_case(0, 16, log));
    all.push_back(softmax_case(3, 0, log));
  }
  all.push_back(layer_norm_case(0, 5));
  all.push_back(layer_norm_case(3, 0));
  all.push_back(rms_norm_case(0, 5));
  all.push_back(rms_norm_case(3, 0));
  for (const double smoothing : {0.0, 0.1}) all.push_back(cross_entropy_case(0, 5, smoothing));
  for (const int axis : {0, 1, 2})
    for (const Shape& shape : {Shape{0, 4, 5}, Shape{3, 0, 5}, Shape{3, 4, 0}})
      all.push_back(sum_case(shape, axis));
  all.push_back(max_case({0, 5}, 1));
  all.push_back(embedding_case(11, 9, 0));
  all.push_back(embedding_case(11, 0, 3));
  all.push_back(rotary_case(0));
  for (Case& c : empty_recurrent_cases()) all.push_back(std::move(c));
  for (Case& c : all) c.name += ", empty";
  return all;
}

}  // namespace heed::cases
