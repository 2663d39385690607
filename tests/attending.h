// What tests of attention have in common.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "heed/attention/multi_head.h"
#include "tests/cases/attention.h"
#include "tests/compare.h"
#include "tests/folder.h"

namespace heed {

using cases::Arrays;
using cases::AttentionCase;
using cases::AttentionSpec;
using cases::Function;
using Masked = AttentionSpec::Masked;
using Distance = AttentionSpec::Distance;
using Numbers = std::vector<double>;

// Scores that stand for the three forms of the fused kernel.
inline constexpr const char* kForms[] = {"dot", "factorized", "additive"};

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
Arrays<T> arrays(const std::vector<Tensor>& inputs) {
  Arrays<T> out;
  for (const Tensor& x : inputs) {
    const Numbers values = x.values();
    out.emplace_back(values.begin(), values.end());
  }
  return out;
}

inline bool all_zero(const Numbers& x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return v == 0; });
}

// A sum in which no two errors cancel.
inline Tensor uneven_sum(const Tensor& y) {
  Numbers weights(static_cast<size_t>(y.count()));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = 1 + 0.5 * std::sin(1.7 * static_cast<double>(i) + 0.3);
  return sum(y * tensor(weights, y.shape(), y.type()));
}

// A function's result and the gradients of all its inputs: everything that anyone can see of it.
inline std::vector<Numbers> everything(const Function& f, const std::vector<Tensor>& inputs,
                                       uint64_t seed = 5) {
  std::vector<Tensor> x;
  for (const Tensor& input : inputs)
    x.push_back(as_parameter(tensor(input.values(), input.shape(), input.type())));
  Tape tape(seed);
  const Tensor y = f(x);
  std::vector<Numbers> out{y.values()};
  tape.backward(uneven_sum(y));
  for (const Tensor& input : x)
    out.push_back(input.parameter_state()->grad ? input.parameter_state()->grad->values()
                                                : Numbers(static_cast<size_t>(input.count())));
  return out;
}

inline std::vector<Tensor> converted(const std::vector<Tensor>& inputs, Type type) {
  std::vector<Tensor> out;
  for (const Tensor& x : inputs) out.push_back(tensor(x.values(), x.shape(), type));
  return out;
}

// A case of few numbers, each of which is moved for a difference.
inline AttentionSpec small(AttentionSpec s) {
  s.batch = 3, s.queries = 2, s.keys = 4, s.query_size = 2, s.key_size = 3, s.value_size = 3;
  s.heads = 4, s.key_heads = 2;
  return s;
}

inline Tensor normal64(const Shape& shape, uint64_t seed, double deviation = 1) {
  Random random(seed);
  return normal(shape, deviation, random, Type::f64);
}

}  // namespace heed
