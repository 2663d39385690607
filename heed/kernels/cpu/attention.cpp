// Fused attention on the CPU. A sentence is the work of one thread; what is kept for a query is one
// row of scores, so memory grows with the length, not with its square.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// y += a x.
template <class T>
HWY_INLINE void add_scaled(int64_t n, T a, const T* x, T* y) {
  const auto factor = hn::Set(Tag<T>(), a);
  map_range<T>(
      0, n, [&](Vec<T> u, Vec<T> w) { return hn::MulAdd(factor, u, w); }, y, x,
      static_cast<const T*>(y));
}

template <class T>
HWY_INLINE T dot(int64_t n, const T* x, const T* y) {
  return sum_range<T>(
      n, [](Vec<T> a, Vec<T> b) { return hn::Mul(a, b); }, x, y);
}

// The keys of a sentence that may be read.
template <class Kernel>
HWY_INLINE int64_t key_count(const Kernel& k, int64_t b) {
  return k.lengths ? std::min<int64_t>(k.keys, k.lengths[b]) : k.keys;
}

template <class T>
void apply(const AdditiveAttention<T>& k) {
  parallel_for(k.batch * k.queries, 1, [&](int64_t row, int64_t) {
    const int64_t b = row / k.queries, count = key_count(k, b);
    const T *q = k.q + row * k.n, *keys = k.k + b * k.keys * k.n;
    const T* values = k.value + b * k.keys * k.value_size;
    T* context = k.context + row * k.value_size;
    std::fill_n(context, k.value_size, T(0));
    if (k.weights) std::fill_n(k.weights + row * k.keys, k.keys, T(0));
    k.log_sum[row] = -std::numeric_limits<T>::infinity();
    if (count == 0) return;
    std::vector<T> score(static_cast<size_t>(count));
    for (int64_t j = 0; j < count; ++j)
      score[static_cast<size_t>(j)] = sum_range<T>(
          k.n, [](Vec<T> a, Vec<T> key, Vec<T> w) { return hn::Mul(tanh_of(hn::Add(a, key)), w); },
          q, keys + j * k.n, k.v);
    const T most = *std::max_element(score.begin(), score.end());
    T sum = 0;
    for (T& s : score) sum += s = std::exp(s - most);
    k.log_sum[row] = most + std::log(sum);
    for (int64_t j = 0; j < count; ++j) {
      const T weight = score[static_cast<size_t>(j)] / sum;
      if (k.weights) k.weights[row * k.keys + j] = weight;
      add_scaled(k.value_size, weight, values + j * k.value_size, context);
    }
  });
}

// dv += ds t, and with u = ds v (1 - t^2): dq += u, dk += u. One pass.
template <class T>
HWY_INLINE void add_terms(int64_t n, T ds, const T* t, const T* v, T* dv, T* dq, T* dk) {
  const Tag<T> d;
  const auto factor = hn::Set(d, ds), one = hn::Set(d, T(1));
  for_vectors<T>(n, [&](auto load, auto store, int64_t i) {
    const auto th = load(t + i);
    const auto u = hn::Mul(hn::Mul(factor, load(v + i)), hn::NegMulAdd(th, th, one));
    store(hn::MulAdd(factor, th, load(dv + i)), dv + i);
    store(hn::Add(u, load(dq + i)), dq + i);
    store(hn::Add(u, load(dk + i)), dk + i);
  });
}

// With t_j = tanh(q + k_j), w_j the weights and g = d context:
//   d score_j = w_j (g . value_j - g . context),  d value_j = w_j g,
//   d q = sum_j d score_j v (1 - t_j^2),  d k_j the term of the sum,  d v = sum_j d score_j t_j.
template <class T>
void apply(const AdditiveAttentionGrad<T>& k) {
  std::vector<T> dv_of(static_cast<size_t>(k.batch * k.n));  // one row a sentence, added in order
  parallel_for(k.batch, 1, [&](int64_t b, int64_t) {
    const int64_t count = key_count(k, b);
    const T *keys = k.k + b * k.keys * k.n, *values = k.value + b * k.keys * k.value_size;
    T *dk = k.dk + b * k.keys * k.n, *dvalue = k.dvalue + b * k.keys * k.value_size;
    T* dv = dv_of.data() + b * k.n;
    std::vector<T> t(static_cast<size_t>(k.n));
    for (int64_t i = 0; i < k.queries; ++i) {
      const int64_t row = b * k.queries + i;
      const T *q = k.q + row * k.n, *g = k.dcontext + row * k.value_size;
      T* dq = k.dq + row * k.n;
      std::fill_n(dq, k.n, T(0));
      const T mean = dot(k.value_size, g, k.context + row * k.value_size);
      for (int64_t j = 0; j < count; ++j) {
        const T* key = keys + j * k.n;
        map_range<T>(
            0, k.n, [](Vec<T> a, Vec<T> c) { return tanh_of(hn::Add(a, c)); }, t.data(), q, key);
        const T weight = std::exp(dot<T>(k.n, t.data(), k.v) - k.log_sum[row]);
        const T ds = weight * (dot(k.value_size, g, values + j * k.value_size) - mean);
        add_scaled(k.value_size, weight, g, dvalue + j * k.value_size);
        add_terms(k.n, ds, t.data(), k.v, dv, dq, dk + j * k.n);
      }
    }
  });
  std::fill_n(k.dv, k.n, T(0));
  for (int64_t b = 0; b < k.batch; ++b) add_scaled<T>(k.n, T(1), dv_of.data() + b * k.n, k.dv);
}

HEED_KERNEL_BODIES(AdditiveAttention)
HEED_KERNEL_BODIES(AdditiveAttentionGrad)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(AdditiveAttention)
HEED_KERNEL_RUN(AdditiveAttentionGrad)

}  // namespace heed::kernels
#endif
