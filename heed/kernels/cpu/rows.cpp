// Kernels that work row by row on the CPU: sums, softmax, norms, cross entropy, table look-ups. A
// row is always the work of one thread, and what is summed over rows is summed in chunks whose
// borders do not depend on the threads.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "heed/kernels/cpu/scratch.h"
#include "heed/kernels/kernels.h"
#include "heed/kernels/shards.h"
#include "heed/kernels/top_log_softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/rows.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// ---- sums and maxima

template <class T>
void apply(const SumSquares<T>& k) {
  if (!k.add) *k.sum = 0;
  for (int i = 0; i < k.count; ++i) {
    const SquaresPart<T>& p = k.part[i];
    std::vector<double> chunk(static_cast<size_t>(chunk_count(p.n, kGrain)));
    parallel_for(p.n, kGrain, [&](int64_t begin, int64_t end) {
      chunk[static_cast<size_t>(begin / kGrain)] = sum_range<T>(
          end - begin, [](Vec<T> x) { return hn::Mul(x, x); }, p.x + begin);
    });
    *k.sum += std::accumulate(chunk.begin(), chunk.end(), 0.0);
  }
}

template <class T>
void apply(const BlockSquares<T>& k) {
  for (int i = 0; i < k.count; ++i) {
    const BlockSquaresPart<T>& p = k.part[i];
    parallel_for(p.n, kGrain, [&](int64_t begin, int64_t end) {
      for (; begin < end; begin += kSquaresBlock)
        p.y[begin / kSquaresBlock] = sum_range<T>(
            std::min<int64_t>(kSquaresBlock, end - begin), [](Vec<T> x) { return hn::Mul(x, x); },
            p.x + begin);
    });
  }
}
static_assert(kGrain % kSquaresBlock == 0);

template <class T>
void apply(const Total<T>& k) {
  *k.sum = std::accumulate(k.x, k.x + k.n, 0.0);
}

// y[j] += x[j].
template <class T>
HWY_INLINE void add_row(int64_t n, const T* x, T* y) {
  map_range<T>(
      0, n, [](Vec<T> a, Vec<T> b) { return hn::Add(a, b); }, y, x, static_cast<const T*>(y));
}

// Adds up `count` partial rows of n (partial[c * n + j]) into y, in rising order.
template <class T>
void add_partials(int64_t count, int64_t n, const T* partial, T* y) {
  parallel_for(n, 1024, [&](int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    std::copy_n(partial + begin, width, y + begin);
    for (int64_t c = 1; c < count; ++c) add_row(width, partial + c * n + begin, y + begin);
  });
}

template <class T>
void apply(const Sum<T>& k) {
  if (k.n == 0) {
    std::fill_n(k.y, k.outer * k.inner, T(0));
    return;
  }
  if (k.inner == 1)
    return parallel_for(k.outer, row_grain(k.n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        k.y[i] = sum_range<T>(
            k.n, [](Vec<T> x) { return x; }, k.x + i * k.n);
    });
  // Sums down columns, chunk by chunk along n; the chunks do not depend on how many sums there are.
  const int64_t grain = std::max<int64_t>(16, row_grain(k.inner)), chunks = chunk_count(k.n, grain);
  std::vector<T> partial(static_cast<size_t>(k.outer * chunks * k.inner));
  parallel_for(k.outer * chunks, std::max<int64_t>(1, row_grain(std::min(k.n, grain) * k.inner)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t c = begin; c < end; ++c) {
                   const T* x = k.x + c / chunks * k.n * k.inner;
                   const int64_t first = c % chunks * grain;
                   T* sum = partial.data() + c * k.inner;
                   std::copy_n(x + first * k.inner, k.inner, sum);
                   for (int64_t i = first + 1; i < std::min(k.n, first + grain); ++i)
                     add_row(k.inner, x + i * k.inner, sum);
                 }
               });
  for (int64_t o = 0; o < k.outer; ++o)
    add_partials(chunks, k.inner, partial.data() + o * chunks * k.inner, k.y + o * k.inner);
}

template <class T>
void apply(const Max<T>& k) {
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* x = k.x + i * k.n;
      const T most = max_range(k.n, x);
      int64_t at = 0;  // all NaN: the first
      while (at + 1 < k.n && x[at] != most) ++at;
      if (x[at] != most) at = 0;
      k.index[i] = static_cast<Id>(at);
    }
  });
}

// ---- softmax

// y = exp(x - shift); returns the sum. y may be x.
template <class T>
HWY_INLINE T exp_row(int64_t n, T shift, const T* x, T* y) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto m = hn::Set(d, shift);
  auto s0 = hn::Zero(d), s1 = s0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = exp_of_negative(hn::Sub(hn::LoadU(d, x + i), m));
    const auto b = exp_of_negative(hn::Sub(hn::LoadU(d, x + i + lanes), m));
    hn::StoreU(a, d, y + i);
    hn::StoreU(b, d, y + i + lanes);
    s0 = hn::Add(s0, a);
    s1 = hn::Add(s1, b);
  }
  for (; i < n; i += lanes) {
    const size_t rest = static_cast<size_t>(std::min(lanes, n - i));
    const auto a = exp_of_negative(hn::Sub(load_part<T>(x + i, rest), m));
    store_part<T>(a, y + i, rest);
    s0 = hn::Add(s0, hn::IfThenElseZero(hn::FirstN(d, rest), a));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1)));
}

// The sum of exp(x - shift).
template <class T>
HWY_INLINE T sum_exp(int64_t n, T shift, const T* x) {
  const auto m = hn::Set(Tag<T>(), shift);
  return sum_range<T>(
      n, [&](Vec<T> v) { return exp_of_negative(hn::Sub(v, m)); }, x);
}

// ---- the largest of a row

// The largest of every kSpan elements of a row; returns the largest of all.
constexpr int64_t kSpan = 256;
template <class T>
T largest_of_spans(int64_t n, const T* x, T* largest) {
  T most = -std::numeric_limits<T>::infinity();
  for (int64_t j = 0; j < n; j += kSpan) {
    *largest = max_range(std::min(kSpan, n - j), x + j);
    most = std::max(most, *largest++);
  }
  return most;
}

// Keeps the k best so far in falling order; a span, and in it a vector, is looked into only if one
// of its elements may be among them: if it beats the worst of these and, before there are k, is as
// large as the k-th largest of the spans' own largest. NaN never wins. `largest` is overwritten
// behind its end.
template <class T>
void top_k_row(int64_t n, int64_t count, const T* x, T* largest, T* value, Id* index) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), spans = chunk_count(n, kSpan);
  T bound = -std::numeric_limits<T>::infinity();
  if (spans >= count) {
    T* const sorted = largest + spans;
    std::copy_n(largest, spans, sorted);
    std::nth_element(sorted, sorted + count - 1, sorted + spans, std::greater<T>());
    bound = sorted[count - 1];
  }
  std::fill_n(value, count, -std::numeric_limits<T>::infinity());
  std::fill_n(index, count, Id{-1});
  int64_t filled = 0;
  const auto offer = [&](int64_t j) {
    if (filled == count ? !(x[j] > value[count - 1]) : !(x[j] >= bound)) return;
    int64_t at = filled < count ? filled++ : count - 1;
    for (; at > 0 && x[j] > value[at - 1]; --at)
      value[at] = value[at - 1], index[at] = index[at - 1];
    value[at] = x[j];
    index[at] = static_cast<Id>(j);
  };
  for (int64_t j = 0; j < n;) {
    const int64_t end = std::min(n, j + kSpan);
    if (const T most = largest[j / kSpan];
        filled == count ? !(most > value[count - 1]) : most < bound) {
      j = end;
      continue;
    }
    for (; j + lanes <= end; j += lanes) {
      const auto v = hn::LoadU(d, x + j);
      const auto may =
          filled == count ? hn::Gt(v, hn::Set(d, value[count - 1])) : hn::Ge(v, hn::Set(d, bound));
      if (HWY_UNLIKELY(!hn::AllFalse(d, may))) {
        uint8_t bits[8] = {};  // one a lane
        hn::StoreMaskBits(d, may, bits);
        for (uint64_t left = std::bit_cast<uint64_t>(bits); left != 0; left &= left - 1)
          offer(j + std::countr_zero(left));
      }
    }
    for (; j < end; ++j) offer(j);
  }
}

template <class T>
void apply(const TopK<T>& k) {
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    T* const largest = scratch<Scratch::rows, T>(2 * chunk_count(k.n, kSpan));
    for (int64_t i = begin; i < end; ++i) {
      largest_of_spans(k.n, k.x + i * k.n, largest);
      top_k_row(k.n, k.k, k.x + i * k.n, largest, k.value + i * k.k, k.index + i * k.k);
    }
  });
}

void TopLogSoftmaxF32(const TopLogSoftmax& k) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    float* const largest = scratch<Scratch::rows, float>(2 * chunk_count(k.n, kSpan));
    for (int64_t i = begin; i < end; ++i) {
      const float* const x = k.x + i * k.n;
      float* const value = k.value + i * k.k;
      const float most = largest_of_spans(k.n, x, largest);
      top_k_row(k.n, k.k, x, largest, value, k.index + i * k.k);
      const float sum = k.log_sum[i] = most + std::log(sum_exp(k.n, most, x));
      for (int64_t j = 0; j < k.k; ++j) value[j] = std::isfinite(sum) ? value[j] - sum : none;
    }
  });
}

// Asks for a row of V vectors that is some rows after this one: the processor's own prefetching
// begins anew at every page.
template <int V, class T>
HWY_INLINE void prefetch_row(const T* row) {
  constexpr int64_t lanes = HWY_LANES(T), rows = std::max<int64_t>(1, 64 / (V * 4));
  for (int j = 0; j < V; ++j) hwy::Prefetch(row + (rows * V + j) * lanes);
}

// Rows of V vectors, which then stay in registers: the rows of attention's weights are short.
template <int V, class T>
void softmax_short(const Softmax<T>& k, int64_t begin, int64_t end) {
  const Tag<T> d;
  constexpr int64_t lanes = HWY_LANES(T);
  for (int64_t i = begin; i < end; ++i) {
    const T* x = k.x + i * V * lanes;
    T* y = k.y + i * V * lanes;
    prefetch_row<V>(x), prefetch_row<V>(y);
    Vec<T> v[V];
    auto largest = hn::Zero(d);  // by magnitude
    for (int j = 0; j < V; ++j) {
      v[j] = hn::LoadU(d, x + j * lanes);
      largest = larger(hn::Abs(v[j]), largest);
    }
    // Numbers as they usually are need no shift: their exponentials and the sum of them fit.
    if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Lt(largest, hn::Set(d, T(64)))))) {
      auto most = v[0];
      for (int j = 1; j < V; ++j) most = larger(v[j], most);
      most = hn::MaxOfLanes(d, most);
      // Nothing but -inf: -inf - -inf is a NaN, and the row is 0 unless a NaN was given.
      if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Eq(most, hn::Neg(hn::Inf(d)))))) {
        const bool broken = std::any_of(x, x + V * lanes, [](T u) { return u != u; });
        std::fill_n(y, V * lanes, broken ? std::numeric_limits<T>::quiet_NaN() : T(0));
        continue;
      }
      for (int j = 0; j < V; ++j) v[j] = hn::Sub(v[j], most);
    }
    auto sum = hn::Zero(d);
    for (int j = 0; j < V; ++j) {
      v[j] = exp_of_negative(v[j]);
      sum = hn::Add(sum, v[j]);
    }
    const auto factor = hn::Div(hn::Set(d, T(1)), hn::SumOfLanes(d, sum));
    for (int j = 0; j < V; ++j) hn::StoreU(hn::Mul(v[j], factor), d, y + j * lanes);
  }
}

template <class T>
void softmax_long(const Softmax<T>& k, int64_t begin, int64_t end) {
  const Tag<T> d;
  const bool past_caches = streams(k.rows * k.n, k.y, k.x);
  for (int64_t i = begin; i < end; ++i) {
    const T* x = k.x + i * k.n;
    T* y = k.y + i * k.n;
    const auto write = [&](auto f, const T* from) {
      if (past_caches)
        stream_range<T>(0, k.n, f, y, from);
      else
        map_range<T>(0, k.n, f, y, from);
    };
    const T most = max_range(k.n, x);
    if (most == -std::numeric_limits<T>::infinity()) {  // nothing to choose from
      const bool broken = std::any_of(x, x + k.n, [](T u) { return u != u; });
      const T none = k.log ? most : T(0);
      std::fill_n(y, k.n, broken ? std::numeric_limits<T>::quiet_NaN() : none);
    } else if (k.log) {
      const auto shift = hn::Set(d, most + std::log(sum_exp(k.n, most, x)));
      write([&](Vec<T> v) { return hn::Sub(v, shift); }, x);
    } else {
      T* const powers = past_caches ? scratch<Scratch::rows, T>(k.n) : y;
      const auto factor = hn::Set(d, T(1) / exp_row(k.n, most, x, powers));
      write([&](Vec<T> v) { return hn::Mul(v, factor); }, powers);
    }
  }
}

template <class T>
void apply(const Softmax<T>& k) {
  constexpr int64_t lanes = HWY_LANES(T);
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    if (k.log) return softmax_long(k, begin, end);
    if (k.n == lanes) return softmax_short<1>(k, begin, end);
    if (k.n == 2 * lanes) return softmax_short<2>(k, begin, end);
    if (k.n == 4 * lanes) return softmax_short<4>(k, begin, end);
    if (k.n == 8 * lanes) return softmax_short<8>(k, begin, end);
    softmax_long(k, begin, end);
  });
}

// From y = softmax(x), rows of V vectors.
template <int V, class T>
void softmax_grad_short(const SoftmaxGrad<T>& k, int64_t begin, int64_t end) {
  const Tag<T> d;
  constexpr int64_t lanes = HWY_LANES(T);
  for (int64_t i = begin * V * lanes; i < end * V * lanes; i += V * lanes) {
    prefetch_row<V>(k.y + i), prefetch_row<V>(k.dy + i), prefetch_row<V>(k.dx + i);
    Vec<T> y[V], dy[V];
    auto sum = hn::Zero(d);
    for (int j = 0; j < V; ++j) {
      y[j] = hn::LoadU(d, k.y + i + j * lanes);
      dy[j] = hn::LoadU(d, k.dy + i + j * lanes);
      sum = hn::MulAdd(y[j], dy[j], sum);
    }
    sum = hn::SumOfLanes(d, sum);
    for (int j = 0; j < V; ++j)
      hn::StoreU(hn::Mul(y[j], hn::Sub(dy[j], sum)), d, k.dx + i + j * lanes);
  }
}

template <class T>
void softmax_grad_long(const SoftmaxGrad<T>& k, int64_t begin, int64_t end) {
  const Tag<T> d;
  using V = Vec<T>;
  const bool past_caches = streams(k.rows * k.n, k.dx, k.y, k.dy);
  for (int64_t i = begin; i < end; ++i) {
    const T* y = k.y + i * k.n;
    const T* dy = k.dy + i * k.n;
    T* dx = k.dx + i * k.n;
    if (k.log) {
      const auto sum = hn::Set(d, sum_range<T>(
                                      k.n, [](V g) { return g; }, dy));
      map_range<T>(
          0, k.n, [&](V v, V g) { return hn::NegMulAdd(exp_of(v), sum, g); }, dx, y, dy);
    } else {
      const auto sum = hn::Set(d, sum_range<T>(
                                      k.n, [](V v, V g) { return hn::Mul(v, g); }, y, dy));
      const auto gradient = [&](V v, V g) { return hn::Mul(v, hn::Sub(g, sum)); };
      if (past_caches)
        stream_range<T>(0, k.n, gradient, dx, y, dy);
      else
        map_range<T>(0, k.n, gradient, dx, y, dy);
    }
  }
}

template <class T>
void apply(const SoftmaxGrad<T>& k) {
  constexpr int64_t lanes = HWY_LANES(T);
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    if (k.log) return softmax_grad_long(k, begin, end);
    if (k.n == lanes) return softmax_grad_short<1>(k, begin, end);
    if (k.n == 2 * lanes) return softmax_grad_short<2>(k, begin, end);
    if (k.n == 4 * lanes) return softmax_grad_short<4>(k, begin, end);
    if (k.n == 8 * lanes) return softmax_grad_short<8>(k, begin, end);
    softmax_grad_long(k, begin, end);
  });
}

// ---- norms

template <class T>
void apply(const Norm<T>& k) {
  const Tag<T> d;
  using V = Vec<T>;
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* x = k.x + i * k.n;
      if (k.of.more) {  // without dropout: ops/rows.cpp
        T* const sum = k.of.sum + i * k.n;
        map_range<T>(
            0, k.n, [](V v, V more) { return hn::Add(v, more); }, sum, x, k.of.more + i * k.n);
        x = sum;
      }
      T* y = k.y + i * k.n;
      const T count = static_cast<T>(k.n);
      const T mean = k.centered ? sum_range<T>(
                                      k.n, [](V v) { return v; }, x) /
                                      count
                                : T(0);
      const auto m = hn::Set(d, mean);
      const T squares = sum_range<T>(
          k.n,
          [&](V v) {
            const auto c = hn::Sub(v, m);
            return hn::Mul(c, c);
          },
          x);
      const T r = T(1) / std::sqrt(squares / count + k.epsilon);
      const auto factor = hn::Set(d, r);
      if (k.centered)
        map_range<T>(
            0, k.n, [&](V v, V g, V b) { return hn::MulAdd(hn::Mul(hn::Sub(v, m), factor), g, b); },
            y, x, k.gain, k.bias);
      else
        map_range<T>(
            0, k.n, [&](V v, V g) { return hn::Mul(hn::Mul(v, factor), g); }, y, x, k.gain);
      if (!k.mean) continue;  // nothing is saved for backward
      k.mean[i] = mean;
      k.r[i] = r;
    }
  });
}

// With xh = (x - mean) r and g = dy gain:  dx = r (g - mean(g) - xh mean(g xh)); RMS norm has no
// mean(g). dgain = sum over rows of dy xh, dbias of dy: one partial row for each chunk.
template <class T>
void apply(const NormGrad<T>& k) {
  const Tag<T> d;
  using V = Vec<T>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  // At most 32 chunks: one thread adds up what the others wrote.
  const int64_t grain = std::max({int64_t{32}, row_grain(k.n), chunk_count(k.rows, 32)});
  const int64_t chunks = std::max<int64_t>(1, chunk_count(k.rows, grain));
  T* const partial = scratch<Scratch::rows, T>(2 * chunks * k.n);
  if (k.rows == 0) std::fill_n(partial, 2 * chunks * k.n, T(0));
  const T count = static_cast<T>(k.n);
  parallel_for(k.rows, grain, [&](int64_t begin, int64_t end) {
    T* dgain = partial + begin / grain * k.n;
    T* dbias = dgain + chunks * k.n;
    std::fill_n(dgain, k.n, T(0));
    std::fill_n(dbias, k.n, T(0));
    for (int64_t i = begin; i < end; ++i) {
      const T *x = k.x + i * k.n, *dy = k.dy + i * k.n;
      const auto m = hn::Set(d, k.mean[i]), r = hn::Set(d, k.r[i]);
      const auto hat = [&](V v) { return hn::Mul(hn::Sub(v, m), r); };
      auto s0 = hn::Zero(d), s1 = s0;  // sums of g and of g xh
      const auto gather = [&](V v, V dv, V gain, V dg, V db, auto&& store) {
        const auto xh = hat(v), g = hn::Mul(dv, gain);
        s0 = hn::Add(s0, g);
        s1 = hn::MulAdd(g, xh, s1);
        store(hn::MulAdd(dv, xh, dg), hn::Add(dv, db));
      };
      int64_t j = 0;
      for (; j + lanes <= k.n; j += lanes)
        gather(hn::LoadU(d, x + j), hn::LoadU(d, dy + j), hn::LoadU(d, k.gain + j),
               hn::LoadU(d, dgain + j), hn::LoadU(d, dbias + j), [&](V dg, V db) {
                 hn::StoreU(dg, d, dgain + j);
                 hn::StoreU(db, d, dbias + j);
               });
      if (const size_t rest = static_cast<size_t>(k.n - j); rest > 0)
        gather(load_part<T>(x + j, rest), load_part<T>(dy + j, rest),
               load_part<T>(k.gain + j, rest), load_part<T>(dgain + j, rest),
               load_part<T>(dbias + j, rest), [&](V dg, V db) {
                 store_part<T>(dg, dgain + j, rest);
                 store_part<T>(db, dbias + j, rest);
               });
      const T mean_g = k.centered ? hn::GetLane(hn::SumOfLanes(d, s0)) / count : T(0);
      const auto a = hn::Set(d, mean_g);
      const auto b = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, s1)) / count);
      const auto gradient = [&](V v, V dv, V gain) {
        return hn::Mul(r, hn::NegMulAdd(hat(v), b, hn::MulSub(dv, gain, a)));
      };
      T* dx = k.dx + i * k.n;
      if (k.add)
        map_range<T>(
            0, k.n,
            [&](V v, V dv, V gain, V before) { return hn::Add(before, gradient(v, dv, gain)); }, dx,
            x, dy, k.gain, static_cast<const T*>(dx));
      else
        map_range<T>(0, k.n, gradient, dx, x, dy, k.gain);
    }
  });
  add_partials<T>(chunks, k.n, partial, k.dgain);
  if (k.dbias) add_partials<T>(chunks, k.n, partial + chunks * k.n, k.dbias);
}

// ---- cross entropy

template <class T>
void apply(const CrossEntropy<T>& k) {
  const Tag<T> d;
  const T e = k.smoothing, share = e / static_cast<T>(k.n), scale = *k.scale;
  parallel_for(k.rows, row_grain(k.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* x = k.logits + i * k.n;
      T* dx = k.d_logits ? k.d_logits + i * k.n : nullptr;
      const Id target = k.target[i];
      if (target < 0) {
        k.loss[i] = 0;
        if (dx) std::fill_n(dx, k.n, T(0));
        continue;
      }
      const T most = max_range(k.n, x), x_target = x[target];
      // sum_j (x_j - most), wanted for the smoothing alone; before dx overwrites x.
      const auto m = hn::Set(d, most);
      const T below = e == T(0) ? T(0)
                                : sum_range<T>(
                                      k.n, [&](Vec<T> v) { return hn::Sub(v, m); }, x);
      const T sum = dx ? exp_row(k.n, most, x, dx) : sum_exp(k.n, most, x);
      const T lse = std::log(sum);
      // -log p_j = lse - (x_j - most)
      k.loss[i] =
          (T(1) - e) * (lse - (x_target - most)) + (e == T(0) ? T(0) : e * lse - share * below);
      if (!dx) continue;
      const auto factor = hn::Set(d, scale / sum), less = hn::Set(d, scale * share);
      map_range<T>(
          0, k.n, [&](Vec<T> v) { return hn::MulSub(v, factor, less); }, dx,
          static_cast<const T*>(dx));
      dx[target] -= scale * (T(1) - e);
    }
  });
}

// ---- tables

template <class T>
void apply(const Gather<T>& k) {
  parallel_for(k.count, row_grain(k.n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) std::copy_n(k.table + k.id[i] * k.n, k.n, k.y + i * k.n);
  });
}

// Columns are shared out, not rows: each thread adds its columns of all rows, in rising order.
template <class T>
void apply(const ScatterAdd<T>& k) {
  const int64_t grain = std::max<int64_t>(64, k.n / 8);
  parallel_for(k.n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < k.count; ++i)
      add_row(end - begin, k.x + i * k.n + begin, k.table + k.id[i] * k.n + begin);
  });
}

template <class T>
void apply(const Rotary<T>& k) {
  const int64_t half = k.n / 2;
  // The angles of a position are the same for all heads and, where they stand alike, sentences:
  // made once.
  const int64_t rows = (k.first_step == 0 ? 1 : k.batch) * k.length;
  std::vector<T> rotations(static_cast<size_t>(2 * rows * half));
  T *cosine = rotations.data(), *sine = cosine + rows * half;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(k.first[r / k.length] + r % k.length) *
                           std::pow(static_cast<double>(k.base), -2.0 * double(i) / double(k.n));
      cosine[r * half + i] = static_cast<T>(std::cos(angle));
      sine[r * half + i] = static_cast<T>(k.backward ? -std::sin(angle) : std::sin(angle));
    }
  parallel_for(k.batch * k.length, row_grain(k.heads * k.n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t h = 0; h < k.heads; ++h) {
        const T* x = k.x + (r * k.heads + h) * k.n;
        T* y = k.y + (r * k.heads + h) * k.n;
        const T *c = cosine + r % rows * half, *s = sine + r % rows * half;
        for (int64_t i = 0; i < half; ++i) {
          const T a = x[i], b = x[i + half];
          y[i] = a * c[i] - b * s[i];
          y[i + half] = a * s[i] + b * c[i];
        }
      }
  });
}

HEED_KERNEL_BODIES(SumSquares)
HEED_KERNEL_BODIES(BlockSquares)
HEED_KERNEL_BODIES(Total)
HEED_KERNEL_BODIES(Sum)
HEED_KERNEL_BODIES(Max)
HEED_KERNEL_BODIES(TopK)
HEED_KERNEL_BODIES(Softmax)
HEED_KERNEL_BODIES(SoftmaxGrad)
HEED_KERNEL_BODIES(Norm)
HEED_KERNEL_BODIES(NormGrad)
HEED_KERNEL_BODIES(CrossEntropy)
HEED_KERNEL_BODIES(Gather)
HEED_KERNEL_BODIES(ScatterAdd)
HEED_KERNEL_BODIES(Rotary)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(SumSquares)
HEED_KERNEL_RUN(BlockSquares)
HEED_KERNEL_RUN(Total)
HEED_KERNEL_RUN(Sum)
HEED_KERNEL_RUN(Max)
HEED_KERNEL_RUN(TopK)
HWY_EXPORT(TopLogSoftmaxF32);
void run(Cpu, const TopLogSoftmax& k) { HWY_DYNAMIC_DISPATCH(TopLogSoftmaxF32)(k); }
HEED_KERNEL_RUN(Softmax)
HEED_KERNEL_RUN(SoftmaxGrad)
HEED_KERNEL_RUN(Norm)
HEED_KERNEL_RUN(NormGrad)
HEED_KERNEL_RUN(CrossEntropy)
HEED_KERNEL_RUN(Gather)
HEED_KERNEL_RUN(ScatterAdd)
HEED_KERNEL_RUN(Rotary)

}  // namespace heed::kernels
#endif
