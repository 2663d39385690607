// From scores to weights, other than by softmax: masks, sparse normalizations (sparsemax, entmax),
// the largest alone (hard attention).
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/weigh.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

template <class T>
void apply(const Limit<T>& k) {
  const int64_t rows = k.batch * k.heads * k.queries;
  parallel_for(rows, row_grain(k.n), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t b = row / (k.heads * k.queries), h = row / k.queries % k.heads;
      const Id* range = k.range + b * k.range_batch + h * k.range_head + 2 * (row % k.queries);
      const int64_t begin = std::clamp<int64_t>(range[0], 0, k.n);
      const int64_t end = std::clamp<int64_t>(range[1], begin, k.n);
      const T* x = k.x + row * k.n;
      T* y = k.y + row * k.n;
      std::fill_n(y, begin, k.outside);
      std::copy(x + begin, x + end, y + begin);
      std::fill(y + end, y + k.n, k.outside);
    }
  });
}

// The threshold t for which the weights max(0, x - t)^(1 / (a - 1)) sum to one, by the sorted
// scores: for sparsemax Martins and Astudillo (2016, algorithm 1), for 1.5-entmax Peters et al.
// (2019, algorithm 2), whose x are halved.
template <class T>
T threshold(bool sparsemax, std::vector<T>& x) {
  std::sort(x.begin(), x.end(), std::greater<>());
  double sum = 0, squares = 0, t = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double count = double(i + 1), z = double(x[i]);
    sum += z, squares += z * z;
    const double mean = sum / count;
    const double candidate =
        sparsemax ? (sum - 1) / count
                  : mean - std::sqrt(std::max(0.0, (1 - (squares - count * mean * mean)) / count));
    if (candidate > z) break;
    t = candidate;
  }
  return static_cast<T>(t);
}

template <class T>
void apply(const Entmax<T>& k) {
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    std::vector<T> sorted;
    for (int64_t row = begin; row < end; ++row) {
      const T* x = k.x + row * k.n;
      T* y = k.y + row * k.n;
      const T most = max_range(k.n, x);
      if (most == -std::numeric_limits<T>::infinity()) {  // nothing is seen, but perhaps NaN
        const bool none = std::none_of(x, x + k.n, [](T z) { return std::isnan(z); });
        std::fill_n(y, k.n, none ? T(0) : std::numeric_limits<T>::quiet_NaN());
        continue;
      }
      const T factor = k.sparsemax ? T(1) : T(0.5);
      sorted.clear();
      bool number = true;
      for (int64_t j = 0; j < k.n; ++j) {
        const T z = (x[j] - most) * factor;
        number = number && !std::isnan(z);
        // What lies 1 or more below the largest gets nothing.
        if (z > T(-1)) sorted.push_back(z);
      }
      const T t = number ? threshold(k.sparsemax, sorted) : std::numeric_limits<T>::quiet_NaN();
      for (int64_t j = 0; j < k.n; ++j) {
        const T over = (x[j] - most) * factor - t;
        y[j] = over <= 0 ? T(0) : k.sparsemax ? over : over * over;
      }
    }
  });
}

template <class T>
void apply(const EntmaxGrad<T>& k) {
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T *y = k.y + row * k.n, *dy = k.dy + row * k.n;
      T* dx = k.dx + row * k.n;
      const auto derivative = [&](int64_t j) {
        return y[j] == 0 ? T(0) : k.sparsemax ? T(1) : std::sqrt(y[j]);
      };
      T sum = 0, weighted = 0;
      for (int64_t j = 0; j < k.n; ++j) sum += derivative(j), weighted += derivative(j) * dy[j];
      const T mean = sum == 0 ? T(0) : weighted / sum;
      for (int64_t j = 0; j < k.n; ++j) dx[j] = derivative(j) * (dy[j] - mean);
    }
  });
}

template <class T>
void apply(const OneHot<T>& k) {
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* x = k.x + row * k.n;
      T* y = k.y + row * k.n;
      std::fill_n(y, k.n, T(0));
      int64_t best = -1;
      for (int64_t j = 0; j < k.n; ++j)
        if (x[j] > (best < 0 ? -std::numeric_limits<T>::infinity() : x[best])) best = j;
      if (best >= 0) y[best] = T(1);
    }
  });
}

HEED_KERNEL_BODIES(Limit)
HEED_KERNEL_BODIES(Entmax)
HEED_KERNEL_BODIES(EntmaxGrad)
HEED_KERNEL_BODIES(OneHot)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(Limit)
HEED_KERNEL_RUN(Entmax)
HEED_KERNEL_RUN(EntmaxGrad)
HEED_KERNEL_RUN(OneHot)

}  // namespace heed::kernels
#endif
