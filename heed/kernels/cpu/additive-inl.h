// Scores of additive attention, v.tanh(q + k), and their gradients, for a tile of queries and keys.
//
// tanh(q + k) = 1 - 2 r with r = 1 / (1 + e^(2q) e^(2k)): the exponentials are taken once for each
// query and each key, and what is left for each pair is one multiplication and one reciprocal.
//   score = sum(v) - 2 sum_x v_x r_x,   d tanh = 4 r (1 - r).
// Four features share a reciprocal, that of the product of their 1 + e^(2q) e^(2k), while |q| + |k|
// <= 10.5: so long it fits into a float. The exponentials themselves fit up to 43; beyond, tanh
// itself is computed. Which way a pair goes is decided by its own query and key alone: what stands
// at other keys does not change its bits. Included once for each instruction set.
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

// Between rows of scratch arrays: whole panels and more, and not a power of two, so that rows do
// not share a set of the cache.
template <class T>
int64_t additive_width(int64_t size) {
  constexpr int64_t panel = 2 * HWY_LANES(T);
  return chunk_count(size, panel) * panel + 16;
}

template <class T>
class AdditiveTile {
 public:
  static int64_t count(int64_t width, int64_t rows, int64_t keys) {
    return (rows + keys + 1) * (width + 1);
  }
  // Rows of all arrays are `width` = additive_width(size) apart.
  AdditiveTile(T* memory, int64_t size, int64_t width, int64_t rows, int64_t keys)
      : size_(size),
        padded_((size + HWY_LANES(T) - 1) / HWY_LANES(T) * HWY_LANES(T)),
        width_(width),
        e_(memory),
        own_f_(e_ + rows * width),
        v_(own_f_ + keys * width),
        e_most_(v_ + width),
        own_f_most_(e_most_ + rows) {}

  // Queries [rows, width], zeros after `size`, and v [size].
  void take_queries(int64_t rows, const T* q, const T* v) {
    e_top_ = 0;
    for (int64_t r = 0; r < rows; ++r)
      e_top_ = std::max(e_top_, e_most_[r] = exponentials(size_, q + r * width_, e_ + r * width_));
    std::copy_n(v, size_, v_);
    std::fill(v_ + size_, v_ + width_, T(0));
    const Tag<T> d;
    auto half = hn::Zero(d);
    for (int64_t x = 0; x < padded_; x += HWY_LANES(T))
      half = hn::NegMulAdd(hn::Set(d, T(0.5)), hn::LoadU(d, v_ + x), half);
    hn::StoreU(half, d, less_half_);
  }
  void take_keys(int64_t keys, const T* k, int64_t k_row) {
    f_ = own_f_, f_most_ = own_f_most_;
    f_top_ = 0;
    for (int64_t j = 0; j < keys; ++j)
      f_top_ = std::max(f_top_,
                        own_f_most_[j] = exponentials(size_, k + j * k_row, own_f_ + j * width_));
  }
  // Keys [first, first + count) of `all`, as write_powers left them.
  void take_powers(const T* powers, int64_t all, int64_t first, int64_t count) {
    f_ = powers + first * width_, f_most_ = powers + all * width_ + first;
    f_top_ = 0;
    for (int64_t j = 0; j < count; ++j) f_top_ = std::max(f_top_, f_most_[j]);
  }
  static void write_powers(int64_t keys, int64_t size, const T* k, int64_t k_row, T* powers) {
    const int64_t width = additive_width<T>(size);
    for (int64_t j = 0; j < keys; ++j)
      powers[keys * width + j] = exponentials(size, k + j * k_row, powers + j * width);
  }

  struct Rows {  // of those that were taken
    int64_t first, count;
  };
  // Times log2(e), as attention.cpp wants them.
  void scores(Rows rows, int64_t keys, const T* q, const T* k, int64_t k_row, T* out,
              int64_t out_row) const {
    // A few keys stay in the first-level cache while the queries pass.
    for (int64_t j = 0; j < keys; j += kFew)
      for (int64_t i = 0; i < rows.count; ++i) {
        const int64_t r = rows.first + i;
        T* to = out + i * out_row + j;
        if (j + kFew <= keys && (all_small() || few_small(r, j))) {
          score_few<kFew, 4>(r, j, to);
          continue;
        }
        for (int64_t u = 0; u < std::min<int64_t>(kFew, keys - j); ++u)
          if (small(r, j + u))
            score_few<1, 4>(r, j + u, to + u);
          else if (fits(r, j + u))
            score_few<1, 1>(r, j + u, to + u);
          else
            to[u] = plain_score(q + r * width_, k + (j + u) * k_row);
      }
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
  void gradient(int64_t rows, int64_t keys, const T* dscore, int64_t dscore_row, const Seen& seen,
                const Given& given, const Sums& sums) const {
    int64_t x = 0;
    for (; x + kFour <= padded_; x += kFour)
      gradient_of<4>(x, rows, keys, dscore, dscore_row, seen, given, sums);
    for (; x < padded_; x += HWY_LANES(T))
      gradient_of<1>(x, rows, keys, dscore, dscore_row, seen, given, sums);
  }

  // Of a single query: what d score [keys] adds to dq [width], still without its factor 4 v.
  void query_gradient(int64_t keys, const T* dscore, const T* q, const T* k, int64_t k_row,
                      T* dq) const {
    const Tag<T> d;
    const auto one = hn::Set(d, T(1)), quarter = hn::Set(d, T(0.25));
    for (int64_t x = 0; x < padded_ && all_fit(); x += HWY_LANES(T)) {
      const auto e = hn::LoadU(d, e_ + x);
      auto s0 = hn::Zero(d), s1 = s0;
      const auto part = [&](int64_t j) {
        const auto y = reciprocal(hn::MulAdd(e, hn::LoadU(d, f_ + j * width_ + x), one));
        const auto a = hn::Mul(hn::Set(d, dscore[j]), y);
        return hn::NegMulAdd(a, y, a);
      };
      int64_t j = 0;
      for (; j + 2 <= keys; j += 2) s0 = hn::Add(s0, part(j)), s1 = hn::Add(s1, part(j + 1));
      if (j < keys) s0 = hn::Add(s0, part(j));
      hn::StoreU(hn::Add(hn::LoadU(d, dq + x), hn::Add(s0, s1)), d, dq + x);
    }
    for (int64_t j = 0; j < keys && !all_fit(); ++j) {
      const auto ds = hn::Set(d, dscore[j]);
      for_vectors<T>(size_, [&](auto load, auto store, int64_t x) {
        const auto t = tanh_of(hn::Add(load(q + x), load(k + j * k_row + x)));
        const auto u = hn::Mul(hn::Mul(ds, hn::NegMulAdd(t, t, one)), quarter);
        store(hn::Add(u, load(dq + x)), dq + x);
      });
    }
  }

 private:
  static constexpr int64_t kFour = 4 * HWY_LANES(T);  // features that share a reciprocal
  static constexpr T kSmall = 21;                     // |2 q| + |2 k| of a small pair, at most
  static constexpr int64_t kRowsAtOnce = 28;
#if HWY_TARGET <= HWY_AVX3
  static constexpr int kFew = 4;  // keys at a time: what the registers hold
#else
  static constexpr int kFew = 2;
#endif

  // to = e^(2 x), ones after the end. Returns the largest |2 x|, infinite if x has anything
  // non-finite.
  static T exponentials(int64_t size, const T* from, T* to) {
    const Tag<T> d;
    auto most = hn::Zero(d), check = hn::Zero(d);
    for_vectors<T>(size, [&](auto load, auto, int64_t x) {
      const auto given = load(from + x), twice = hn::Add(given, given);
      most = larger(most, hn::Abs(twice));
      check = hn::Add(check, hn::Sub(given, given));
      hn::StoreU(exp_of(twice), d, to + x);
    });
    return hn::GetLane(hn::SumOfLanes(d, check)) == 0 ? hn::GetLane(hn::MaxOfLanes(d, most))
                                                      : std::numeric_limits<T>::infinity();
  }
  bool fits(int64_t r, int64_t j) const { return e_most_[r] + f_most_[j] <= T(86); }
  bool all_fit() const { return e_top_ + f_top_ <= T(86); }
  bool all_small() const { return e_top_ + f_top_ <= kSmall; }
  bool small(int64_t r, int64_t j) const { return e_most_[r] + f_most_[j] <= kSmall; }
  bool few_small(int64_t r, int64_t j) const {
    for (int u = 0; u < kFew; ++u)
      if (!small(r, j + u)) return false;
    return true;
  }

  // N keys at once; X vectors of features share a reciprocal, as far as they go.
  template <int N, int X>
  HWY_INLINE void score_few(int64_t r, int64_t j, T* out) const {
    const Tag<T> d;
    constexpr int64_t lanes = HWY_LANES(T);
    const T *e = e_ + r * width_, *f = f_ + j * width_;
    const auto one = hn::Set(d, T(1));
    Vec<T> sum[N];
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) sum[u] = hn::LoadU(d, less_half_);
    int64_t x = 0;
    if constexpr (X == 4)
      for (; x + 4 * lanes <= padded_; x += 4 * lanes) {
        Vec<T> ev[4], vv[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i)
          ev[i] = hn::LoadU(d, e + x + i * lanes), vv[i] = hn::LoadU(d, v_ + x + i * lanes);
#pragma GCC unroll 8
        for (int u = 0; u < N; ++u) {
          // v0 / y0 + v1 / y1 + v2 / y2 + v3 / y3 over one denominator.
          Vec<T> y[4];
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i)
            y[i] = hn::MulAdd(ev[i], hn::LoadU(d, f + u * width_ + x + i * lanes), one);
          const auto y01 = hn::Mul(y[0], y[1]), y23 = hn::Mul(y[2], y[3]);
          const auto n01 = hn::MulAdd(vv[0], y[1], hn::Mul(vv[1], y[0]));
          const auto n23 = hn::MulAdd(vv[2], y[3], hn::Mul(vv[3], y[2]));
          const auto n = hn::MulAdd(n01, y23, hn::Mul(n23, y01));
          sum[u] = hn::MulAdd(n, reciprocal(hn::Mul(y01, y23)), sum[u]);
        }
      }
    for (; x < padded_; x += lanes) {
      const auto ev = hn::LoadU(d, e + x), vv = hn::LoadU(d, v_ + x);
#pragma GCC unroll 8
      for (int u = 0; u < N; ++u) {
        const auto y = hn::MulAdd(ev, hn::LoadU(d, f + u * width_ + x), one);
        sum[u] = hn::MulAdd(vv, reciprocal(y), sum[u]);
      }
    }
#pragma GCC unroll 8
    for (int u = 0; u < N; ++u) out[u] = -2 * hn::GetLane(hn::SumOfLanes(d, sum[u])) * kLog2E<T>;
  }

  T plain_score(const T* q, const T* k) const {
    return kLog2E<T> *
           sum_range<T>(
               size_,
               [](Vec<T> a, Vec<T> b, Vec<T> c) { return hn::Mul(tanh_of(hn::Add(a, b)), c); }, q,
               k, static_cast<const T*>(v_));
  }

  // r = 1 / (1 + e f) for X vectors of features of a pair, in two halves: the chain of the first is
  // long, and the next pair's can run beside the second.
  template <int X>
  struct Reciprocals {
    Vec<T> y[X], all;

    HWY_INLINE Reciprocals(const T* e, const Vec<T>* f) {
      const Tag<T> d;
#pragma GCC unroll 4
      for (int i = 0; i < X; ++i)
        y[i] = hn::MulAdd(hn::LoadU(d, e + i * HWY_LANES(T)), f[i], hn::Set(d, T(1)));
      if constexpr (X == 1)
        all = reciprocal(y[0]);
      else
        all = reciprocal(hn::Mul(hn::Mul(y[0], y[1]), hn::Mul(y[2], y[3])));
    }
    HWY_INLINE void finish(Vec<T>* r) const {
      if constexpr (X == 1) {
        r[0] = all;
      } else {
        static_assert(X == 4);
        const auto r01 = hn::Mul(all, hn::Mul(y[2], y[3])), r23 = hn::Mul(all, hn::Mul(y[0], y[1]));
        r[0] = hn::Mul(r01, y[1]), r[1] = hn::Mul(r01, y[0]);
        r[2] = hn::Mul(r23, y[3]), r[3] = hn::Mul(r23, y[2]);
      }
    }
  };

  // X vectors of features, all keys and rows. Where some pair of a key is not small, each goes its
  // own way, and only if the row sees the key; small ones add the same bits as ever.
  template <int X>
  HWY_INLINE void gradient_of(int64_t x, int64_t rows, int64_t keys, const T* dscore,
                              int64_t dscore_row, const Seen& seen, const Given& given,
                              const Sums& sums) const {
    const Tag<T> d;
    constexpr int64_t lanes = HWY_LANES(T);
    // Some rows at a time: their exponentials and dq stay in the first-level cache.
    for (int64_t r0 = 0; r0 < rows; r0 += kRowsAtOnce)
      for (int64_t j = 0; j < keys; ++j) {
        Vec<T> f[X], dk[X], dv[X];
#pragma GCC unroll 4
        for (int i = 0; i < X; ++i)
          f[i] = hn::LoadU(d, f_ + j * width_ + x + i * lanes), dk[i] = dv[i] = hn::Zero(d);
        const int64_t r1 = std::min(rows, r0 + kRowsAtOnce);
        const auto add = [&](int64_t r, const Terms<X>& terms) {
          T* dq = sums.dq + r * width_ + x;
#pragma GCC unroll 4
          for (int i = 0; i < X; ++i) {
            dv[i] = hn::Add(dv[i], terms.v[i]);
            dk[i] = hn::Add(dk[i], terms.u[i]);
            hn::StoreU(hn::Add(terms.u[i], hn::LoadU(d, dq + i * lanes)), d, dq + i * lanes);
          }
        };
        if (e_top_ + f_most_[j] <= kSmall) {
          Reciprocals<X> next(e_ + r0 * width_ + x, f);
          for (int64_t r = r0; r < r1; ++r) {
            const Reciprocals<X> now = next;
            next = Reciprocals<X>(e_ + std::min(r + 1, r1 - 1) * width_ + x, f);
            add(r, Terms<X>(now, hn::Set(d, dscore[r * dscore_row + j])));
          }
        } else {
          for (int64_t r = r0; r < r1; ++r)
            if (seen.begin[r] <= seen.key + j && seen.key + j < seen.end[r])
              add(r, terms_of<X>(x, r, j, dscore[r * dscore_row + j], f, given));
        }
#pragma GCC unroll 4
        for (int i = 0; i < X; ++i) {
          T *to_k = sums.dk + j * width_ + x + i * lanes, *to_v = sums.dv + x + i * lanes;
          const auto factor = hn::Mul(hn::Set(d, T(4)), hn::LoadU(d, v_ + x + i * lanes));
          hn::StoreU(hn::MulAdd(factor, dk[i], hn::LoadU(d, to_k)), d, to_k);
          hn::StoreU(hn::Add(dv[i], hn::LoadU(d, to_v)), d, to_v);
        }
      }
  }

  // What a pair adds: d score * tanh to dv, a quarter of d score * (1 - tanh^2) to dq and dk.
  template <int X>
  struct Terms {
    Vec<T> v[X], u[X];

    Terms() = default;
    HWY_INLINE Terms(const Reciprocals<X>& reciprocals, Vec<T> ds) {
      Vec<T> r[X];
      reciprocals.finish(r);
#pragma GCC unroll 4
      for (int i = 0; i < X; ++i) {
        const auto a = hn::Mul(ds, r[i]);
        v[i] = hn::NegMulAdd(hn::Set(Tag<T>(), T(2)), a, ds);
        u[i] = hn::NegMulAdd(a, r[i], a);
      }
    }
  };
  template <int X>
  Terms<X> terms_of(int64_t x, int64_t r, int64_t j, T dscore, const Vec<T>* f,
                    const Given& given) const {
    const Tag<T> d;
    constexpr int64_t lanes = HWY_LANES(T);
    const auto ds = hn::Set(d, dscore);
    const T* e = e_ + r * width_ + x;
    if (small(r, j)) return {Reciprocals<X>(e, f), ds};
    Terms<X> terms;
    for (int i = 0; i < X; ++i) {
      const int64_t at = x + i * lanes;
      if (fits(r, j)) {
        const Terms<1> one(Reciprocals<1>(e + i * lanes, f + i), ds);
        terms.v[i] = one.v[0], terms.u[i] = one.u[0];
        continue;
      }
      const T* k = given.k + j * given.k_row + at;
      const auto key =
          at + lanes <= size_ ? hn::LoadU(d, k) : load_part<T>(k, static_cast<size_t>(size_ - at));
      const auto t = tanh_of(hn::Add(hn::LoadU(d, given.q + r * width_ + at), key));
      terms.v[i] = hn::Mul(ds, t);
      terms.u[i] = hn::Mul(hn::Mul(ds, hn::NegMulAdd(t, t, hn::Set(d, T(1)))), hn::Set(d, T(0.25)));
    }
    return terms;
  }

  int64_t size_, padded_, width_;
  T *e_, *own_f_, *v_, *e_most_, *own_f_most_;
  const T *f_ = nullptr, *f_most_ = nullptr;  // of the keys that were taken
  T e_top_ = 0, f_top_ = 0;
  T less_half_[HWY_LANES(T)] = {};  // of each lane's v: - sum v / 2
};

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
