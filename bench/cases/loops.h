// Plain loops that several cases are made of.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "heed/ops/ops.h"

namespace heed::cases {

// Ids that repeat and skip, the last of them -1 where asked for.
inline std::vector<Id> some_ids(int64_t count, int64_t below, bool with_gap = false) {
  std::vector<Id> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<Id>((i * 7 + i / 3) % below));
  if (with_gap && count > 2) out[1] = -1;
  return out;
}

template <class T>
T activated(Activation f, T x) {
  switch (f) {
    case Activation::none: return x;
    case Activation::relu: return std::max(x, T(0));
    case Activation::tanh: return std::tanh(x);
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::gelu:
      return T(0.5) * x * (1 + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
  }
  return x;
}

// c [m, n] = a [m, k] b [k, n], both row-major.
template <class T>
std::vector<T> product(const std::vector<T>& a, const std::vector<T>& b, int64_t m, int64_t k,
                       int64_t n) {
  std::vector<T> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(p * n + j)];
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  return c;
}
template <class T>
std::vector<T> transposed(const std::vector<T>& x, int64_t rows, int64_t cols) {
  std::vector<T> y(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      y[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * cols + j)];
  return y;
}

}  // namespace heed::cases
