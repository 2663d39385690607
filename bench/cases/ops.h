// One table of cases for every op. A case is used three ways: it must agree with plain loops, its
// gradient must agree with finite differences, and the benchmark times it (with larger sizes).
//
// To add an op: one row in ops.cpp, where the table is.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heed/ops/ops.h"

namespace heed::cases {

struct Input {
  Shape shape;
  enum Kind { normal, positive } kind = normal;  // positive: in [0.5, 1.5]
};

template <class T>
using Arrays = std::vector<std::vector<T>>;
template <class In>
using Number = typename std::decay_t<In>::value_type::value_type;  // of Arrays

struct Case {
  std::string name;
  std::vector<Input> inputs;
  std::function<Tensor(const std::vector<Tensor>&)> f;
  // The same by plain loops, in double for the truth and in float for the error that is allowed.
  std::function<std::vector<double>(const Arrays<double>&)> truth;
  std::function<std::vector<float>(const Arrays<float>&)> plain;
  double flops = 0, bytes = 0;  // of forward and backward, for the benchmark
};

// A case whose plain form is one generic function of Arrays<T>.
template <class F, class Plain>
Case make(std::string name, std::vector<Input> inputs, F f, Plain plain) {
  return {std::move(name), std::move(inputs), f, plain, plain};
}

// All of them, at sizes that a test can check: odd, smaller and larger than a vector and a tile.
std::vector<Case> ops();
std::vector<Case> recurrent_cases();        // those of them that are layers of cells: recurrent.cpp
std::vector<Case> empty_recurrent_cases();  // and those of no sentences or no steps

// Numbers for a case's inputs: the same for the same seed, whatever the type.
std::vector<Tensor> draw(const Case& c, Type type, uint64_t seed = 1);

// Single cases, used by the table and, those with a size of one's choice, by the benchmark: of
// single elements (elementwise.cpp), of matrix products (products.cpp), of rows (rows.cpp).
Case broadcast_case(const std::string& op, const Shape& a, const Shape& b);
Case unary_case(const std::string& name, int64_t n);
Case dropout_case(int64_t n);
Case add_dropout_case(int64_t n);
Case where_case();
Case matmul_case(int64_t m, int64_t k, int64_t n, char form);  // 'n' a b, 't' a b^T, 'T' a^T b
Case heads_case();
Case linear_case(Activation f, const char* label, bool with_bias);
Case linear_dropout_case(Activation f, const char* label);
Case linear_each_case();
Case linear_cross_entropy_case(bool tied);
Case shared_input_case(int64_t rows, int64_t n);
Case sum_case(const Shape& shape, int axis);
Case max_case(const Shape& shape, int axis);
Case softmax_case(int64_t rows, int64_t n, bool log);
Case layer_norm_case(int64_t rows, int64_t n);
Case rms_norm_case(int64_t rows, int64_t n);
Case add_dropout_norm_case(int64_t rows, int64_t n);
Case cross_entropy_case(int64_t rows, int64_t n, double smoothing);
Case embedding_case(int64_t words, int64_t size, int64_t count);
Case gather_case(int axis);
Case rotary_case(int64_t T);
Case decoder_steps_case();

// A layer of cells of the inputs x, u, bias, h (and c) from `first` on.
Recurrent recurrent_of(const std::vector<Tensor>& x, size_t first, Cell cell,
                       const std::vector<Id>& lengths, bool backward);

}  // namespace heed::cases
