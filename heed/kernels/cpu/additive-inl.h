// Scores of additive attention, v.tanh(q + k), and their gradients, for a tile of queries and keys.
//
// tanh(q + k) = 1 - 2 r with r = 1 / (1 + e^(2q) e^(2k)): the exponentials are taken once for each
// query and each key, and what is left for each pair is one multiplication and one reciprocal.
//   score = sum(v) - 2 sum_x v_x r_x,   d tanh = 4 r (1 - r).
// The products of exponentials fit into a float while |q| + |k| <= 43, which is decided for each
// pair; beyond, tanh itself is computed. Included once for each instruction set.
#if defined(HEED_KERNELS_CPU_ADDITIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ADDITIVE_INL_H_
#undef HEED_KERNELS_CPU_ADDITIVE_INL_H_
#else
#define HEED_KERNELS_CPU_ADDITIVE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// 1 / x for 1 <= x < 2^127: an estimate of 12 or more bits, and one step of Newton's.
HWY_INLINE Vec<float> reciprocal(Vec<float> x) {
#if HWY_ARCH_X86
  const auto r = hn::ApproximateReciprocal(x);
  return hn::MulAdd(r, hn::NegMulAdd(x, r, hn::Set(Tag<float>(), 1.0f)), r);
#else
  return hn::Div(hn::Set(Tag<float>(), 1.0f), x);
#endif
}
HWY_INLINE Vec<double> reciprocal(Vec<double> x) { return hn::Div(hn::Set(Tag<double>(), 1.0), x); }

template <class T>
class AdditiveTile {
 public:
  static int64_t count(int64_t width, int64_t rows, int64_t keys) {
    return (rows + keys + 1) * (width + 1);
  }
  // Rows of all arrays are `width` apart, at least one vector more than `size`.
  AdditiveTile(T* memory, int64_t size, int64_t width, int64_t rows, int64_t keys)
      : size_(size),
        padded_((size + HWY_LANES(T) - 1) / HWY_LANES(T) * HWY_LANES(T)),
        width_(width),
        e_(memory),
        f_(e_ + rows * width),
        v_(f_ + keys * width),
        e_most_(v_ + width),
        f_most_(e_most_ + rows) {}

  // Queries [rows, width], zeros behind `size`, and v [size].
  void take_queries(int64_t rows, const T* q, const T* v) {
    e_top_ = 0;
    for (int64_t r = 0; r < rows; ++r)
      e_top_ = std::max(e_top_, e_most_[r] = exponentials(q + r * width_, e_ + r * width_));
    std::copy_n(v, size_, v_);
    std::fill(v_ + size_, v_ + width_, T(0));
    v_sum_ = sum_range<T>(
        size_, [](Vec<T> x) { return x; }, v);
  }
  void take_keys(int64_t keys, const T* k, int64_t k_row) {
    f_top_ = 0;
    for (int64_t j = 0; j < keys; ++j)
      f_top_ = std::max(f_top_, f_most_[j] = exponentials(k + j * k_row, f_ + j * width_));
  }

  // Times log2(e), as attention.cpp wants them.
  void scores(int64_t rows, int64_t keys, const T* q, const T* k, int64_t k_row, T* out,
              int64_t out_row) const {
    int64_t j = 0;
    // A few keys stay in the first-level cache while the queries pass.
    for (; j + kFew <= keys; j += kFew)
      for (int64_t r = 0; r < rows; ++r) score_few<kFew>(r, j, out + r * out_row + j);
    for (; j < keys; ++j)
      for (int64_t r = 0; r < rows; ++r) score_few<1>(r, j, out + r * out_row + j);
    if (all_fit()) return;
    for (int64_t r = 0; r < rows; ++r)
      for (j = 0; j < keys; ++j)
        if (!fits(r, j)) out[r * out_row + j] = plain_score(q + r * width_, k + j * k_row);
  }

  struct Seen {  // the keys that each row sees, and the key the tile begins with
    const int64_t *begin, *end;
    int64_t key;
  };
  struct Given {
    const T *q, *k;
    int64_t k_row;
  };
  struct Sums {  // rows `width` apart: dq still without its factor 4 v
    T *dq, *dk, *dv;
  };

  // From d score [rows, keys] to what it adds to dq, dk and dv.
  void gradient(int64_t rows, int64_t keys, const T* slope, int64_t slope_row, const Seen& seen,
                const Given& given, const Sums& sums) const {
    if (!all_fit()) return plain_gradient(rows, keys, slope, slope_row, seen, given, sums);
    for (int64_t x = 0; x < padded_; x += HWY_LANES(T)) {
      int64_t j = 0;
      for (; j + kFew <= keys; j += kFew)
        gradient_few<kFew>(x, rows, j, slope + j, slope_row, sums);
      for (; j < keys; ++j) gradient_few<1>(x, rows, j, slope + j, slope_row, sums);
    }
  }

  // Of a single query: what d score [keys] adds to dq [width], still without its factor 4 v.
  void query_gradient(int64_t keys, const T* slope, const T* q, const T* k, int64_t k_row,
                      T* dq) const {
    const Tag<T> d;
    const auto one = hn::Set(d, T(1)), quarter = hn::Set(d, T(0.25));
    for (int64_t x = 0; x < padded_ && all_fit(); x += HWY_LANES(T)) {
      const auto e = hn::LoadU(d, e_ + x);
      auto s0 = hn::Zero(d), s1 = s0;
      const auto part = [&](int64_t j) {
        const auto y = reciprocal(hn::MulAdd(e, hn::LoadU(d, f_ + j * width_ + x), one));
        const auto a = hn::Mul(hn::Set(d, slope[j]), y);
        return hn::NegMulAdd(a, y, a);
      };
      int64_t j = 0;
      for (; j + 2 <= keys; j += 2) s0 = hn::Add(s0, part(j)), s1 = hn::Add(s1, part(j + 1));
      if (j < keys) s0 = hn::Add(s0, part(j));
      hn::StoreU(hn::Add(hn::LoadU(d, dq + x), hn::Add(s0, s1)), d, dq + x);
    }
    for (int64_t j = 0; j < keys && !all_fit(); ++j) {
      const auto ds = hn::Set(d, slope[j]);
      for_vectors<T>(size_, [&](auto load, auto store, int64_t x) {
        const auto t = tanh_of(hn::Add(load(q + x), load(k + j * k_row + x)));
        const auto u = hn::Mul(hn::Mul(ds, hn::NegMulAdd(t, t, one)), quarter);
        store(hn::Add(u, load(dq + x)), dq + x);
      });
    }
  }

 private:
#if HWY_TARGET <= HWY_AVX3
  static constexpr int kFew = 4;  // keys at a time: what the registers hold
#else
  static constexpr int kFew = 2;
#endif

  // to = e^(2 x), ones behind the end. Returns the largest |2 x|, infinite if x has anything but
  // numbers.
  T exponentials(const T* from, T* to) const {
    const Tag<T> d;
    auto most = hn::Zero(d), check = hn::Zero(d);
    for_vectors<T>(size_, [&](auto load, auto, int64_t x) {
      const auto given = load(from + x), twice = hn::Add(given, given);
      most = hn::Max(most, hn::Abs(twice));
      check = hn::Add(check, hn::Sub(given, given));
      hn::StoreU(exp_of(twice), d, to + x);
    });
    return hn::GetLane(hn::SumOfLanes(d, check)) == 0 ? hn::GetLane(hn::MaxOfLanes(d, most))
                                                      : std::numeric_limits<T>::infinity();
  }
  bool all_fit() const { return e_top_ + f_top_ <= T(86); }
  bool fits(int64_t r, int64_t j) const { return e_most_[r] + f_most_[j] <= T(86); }

  template <int N>
  HWY_INLINE void score_few(int64_t r, int64_t j, T* out) const {
    const Tag<T> d;
    const T *e = e_ + r * width_, *f = f_ + j * width_;
    const auto one = hn::Set(d, T(1));
    Vec<T> sum[N];
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) sum[u] = hn::Zero(d);
    for (int64_t x = 0; x < padded_; x += HWY_LANES(T)) {
      const auto ev = hn::LoadU(d, e + x), vv = hn::LoadU(d, v_ + x);
#pragma GCC unroll 8
      for (int u = 0; u < N; ++u) {
        const auto y = hn::MulAdd(ev, hn::LoadU(d, f + u * width_ + x), one);
        sum[u] = hn::MulAdd(vv, reciprocal(y), sum[u]);
      }
    }
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u)
      out[u] = (v_sum_ - 2 * hn::GetLane(hn::SumOfLanes(d, sum[u]))) * kLog2E<T>;
  }

  T plain_score(const T* q, const T* k) const {
    return kLog2E<T> *
           sum_range<T>(
               size_,
               [](Vec<T> a, Vec<T> b, Vec<T> c) { return hn::Mul(tanh_of(hn::Add(a, b)), c); }, q,
               k, static_cast<const T*>(v_));
  }

  // One vector of features, N keys, all rows.
  template <int N>
  HWY_INLINE void gradient_few(int64_t x, int64_t rows, int64_t j, const T* slope,
                               int64_t slope_row, const Sums& sums) const {
    const Tag<T> d;
    const auto one = hn::Set(d, T(1)), two = hn::Set(d, T(2));
    Vec<T> f[N], dk[N];
    auto dv = hn::Zero(d);
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) f[u] = hn::LoadU(d, f_ + (j + u) * width_ + x), dk[u] = hn::Zero(d);
    for (int64_t r = 0; r < rows; ++r) {
      const auto e = hn::LoadU(d, e_ + r * width_ + x);
      T* dq = sums.dq + r * width_ + x;
      auto row = hn::LoadU(d, dq);
#pragma GCC unroll 8
      for (int u = 0; u < N; ++u) {
        const auto t = reciprocal(hn::MulAdd(e, f[u], one));
        const auto ds = hn::Set(d, slope[r * slope_row + u]);
        const auto a = hn::Mul(ds, t), b = hn::NegMulAdd(a, t, a);
        dv = hn::Add(dv, hn::NegMulAdd(two, a, ds));  // d score * (1 - 2 r)
        dk[u] = hn::Add(dk[u], b);
        row = hn::Add(row, b);
      }
      hn::StoreU(row, d, dq);
    }
    const auto factor = hn::Mul(hn::Set(d, T(4)), hn::LoadU(d, v_ + x));
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) {
      T* at = sums.dk + (j + u) * width_ + x;
      hn::StoreU(hn::MulAdd(factor, dk[u], hn::LoadU(d, at)), d, at);
    }
    hn::StoreU(hn::Add(hn::LoadU(d, sums.dv + x), dv), d, sums.dv + x);
  }

  // The same pair by pair, with tanh itself where the exponentials do not fit, and only for keys
  // that a row sees. Pairs that fit add the same bits to dq as they do above: what stands at other
  // keys does not matter to a query that does not see them.
  void plain_gradient(int64_t rows, int64_t keys, const T* slope, int64_t slope_row,
                      const Seen& seen, const Given& given, const Sums& sums) const {
    const Tag<T> d;
    const auto one = hn::Set(d, T(1)), two = hn::Set(d, T(2)), quarter = hn::Set(d, T(0.25));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = std::max<int64_t>(0, seen.begin[r] - seen.key);
           j < std::min(keys, seen.end[r] - seen.key); ++j) {
        const auto ds = hn::Set(d, slope[r * slope_row + j]);
        const T *q = given.q + r * width_, *k = given.k + j * given.k_row;
        const T *e = e_ + r * width_, *f = f_ + j * width_;
        T *dq = sums.dq + r * width_, *dk = sums.dk + j * width_;
        const bool fit = fits(r, j);
        for_vectors<T>(size_, [&](auto load, auto store, int64_t x) {
          Vec<T> t, u;  // tanh, and a quarter of d score * (1 - tanh^2)
          if (fit) {
            const auto y = reciprocal(hn::MulAdd(load(e + x), load(f + x), one));
            const auto a = hn::Mul(ds, y);
            t = hn::NegMulAdd(two, y, one), u = hn::NegMulAdd(a, y, a);
          } else {
            t = tanh_of(hn::Add(load(q + x), load(k + x)));
            u = hn::Mul(hn::Mul(ds, hn::NegMulAdd(t, t, one)), quarter);
          }
          store(hn::Add(u, load(dq + x)), dq + x);
          store(hn::MulAdd(hn::Mul(hn::Set(d, T(4)), u), load(v_ + x), load(dk + x)), dk + x);
          store(hn::MulAdd(ds, t, load(sums.dv + x)), sums.dv + x);
        });
      }
  }

  int64_t size_, padded_, width_;
  T *e_, *f_, *v_, *e_most_, *f_most_;
  T e_top_ = 0, f_top_ = 0, v_sum_ = 0;
};

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
