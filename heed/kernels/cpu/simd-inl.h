// Vector pieces that the CPU kernels share: exp, tanh and friends, loads at the end of a row, loops
// over arrays. Included once for each instruction set (hence no #pragma once; Highway's toggle).
//
// Error bounds, in units in the last place of an f32, measured over all inputs with stride by
// kernels_test.cpp: exp 1, tanh 2, sigmoid 2. Results below the smallest normal number are 0. In
// f64 exp and tanh are Highway's (1 and 4 ulp).
#if defined(HEED_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_SIMD_INL_H_
#undef HEED_KERNELS_CPU_SIMD_INL_H_
#else
#define HEED_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>

#include "heed/base/parallel.h"
#include "heed/base/random.h"
#include "heed/kernels/kernels.h"

// In the target's namespace: the two types of a kernel whose body is apply(const Name<T>&).
#define HEED_KERNEL_BODIES(Name)                     \
  void Name##F32(const Name<float>& k) { apply(k); } \
  void Name##F64(const Name<double>& k) { apply(k); }

// Once, outside: run() picks the body for the best instruction set of this machine.
#define HEED_KERNEL_RUN(Name)                                                 \
  HWY_EXPORT(Name##F32);                                                      \
  HWY_EXPORT(Name##F64);                                                      \
  void run(Cpu, const Name<float>& k) { HWY_DYNAMIC_DISPATCH(Name##F32)(k); } \
  void run(Cpu, const Name<double>& k) { HWY_DYNAMIC_DISPATCH(Name##F64)(k); }

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;

// The larger and the smaller of two; y where one of them is no number, which is what x86 does by
// itself.
template <class V>
HWY_INLINE V larger(V x, V y) {
#if HWY_ARCH_X86
  return hn::Max(x, y);
#else
  return hn::IfThenElse(hn::Gt(x, y), x, y);
#endif
}
template <class V>
HWY_INLINE V smaller(V x, V y) {
#if HWY_ARCH_X86
  return hn::Min(x, y);
#else
  return hn::IfThenElse(hn::Lt(x, y), x, y);
#endif
}

// Items a thread takes at a time where the work is a few operations each.
constexpr int64_t kGrain = 16384;

// Bytes from which on a result is taken for larger than what the caches will keep of it.
constexpr int64_t kStreamed = int64_t{12} << 20;

// The rows a thread takes at a time when a row has n items.
inline int64_t row_grain(int64_t n) { return n <= 0 ? 1 : (kGrain + n - 1) / n; }

template <class T>
constexpr T kLog2E = static_cast<T>(1.44269504088896340736);

// e^x = 2^n e^r, |r| <= ln(2)/2: `two_n` receives the bits n << 23, the result is e^r - 1.
// Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits of the sum.
HWY_INLINE Vec<float> exp_parts(Vec<float> x, hn::Vec<hn::RebindToSigned<Tag<float>>>& n_bits) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const auto magic = hn::Set(d, 12582912.0f);
  const auto t = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const auto n = hn::Sub(t, magic);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  n_bits = hn::ShiftLeft<23>(hn::BitCast(di, t));
  auto p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  return hn::MulAdd(p, hn::Mul(r, r), r);
}

HWY_INLINE Vec<float> exp_of(Vec<float> x) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  hn::Vec<decltype(di)> n_bits;
  const auto y = hn::Add(exp_parts(x, n_bits), hn::Set(d, 1.0f));
  // 2^n by adding to the exponent; within the limits below it neither wraps nor leaves the normals.
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, y), n_bits));
  const auto low = hn::Lt(x, hn::Set(d, -87.3365479f)), high = hn::Gt(x, hn::Set(d, 88.7228317f));
  // Adding to the exponent could make a number of a NaN.
  const auto finite = hn::IfThenElse(hn::IsNaN(x), x, scaled);
  return hn::IfThenElse(high, hn::Inf(d), hn::IfThenZeroElse(low, finite));
}
// The same for x <= 0, where 2^n is a number of its own and the product keeps a NaN by itself.
HWY_INLINE Vec<float> exp_of_negative(Vec<float> x) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  hn::Vec<decltype(di)> n_bits;
  const auto y = hn::Add(exp_parts(x, n_bits), hn::Set(d, 1.0f));
  const auto two_n = hn::BitCast(d, hn::Add(n_bits, hn::Set(di, 0x3F800000)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3365479f)), hn::Mul(y, two_n));
}
HWY_INLINE Vec<double> exp_of(Vec<double> x) {
  const Tag<double> d;
  // Highway's Exp makes 0 of a NaN.
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

HWY_INLINE Vec<double> exp_of_negative(Vec<double> x) { return exp_of(x); }

// 2^(x - from) for an integer `from` of less than kMostFrom by a polynomial for 2^r on |r| <= 1/2,
// which is within 5.1e-9 of it; roundings come on top. What would be below 2^-125.5 is 0, and so is
// 2^-inf; what would be above 2^128 is inf.
template <class T>
constexpr T kMostFrom = T(1 << 20);
template <class T>
class Exp2From {
 public:
  HWY_INLINE explicit Exp2From(T from)
      : magic_(hn::Set(Tag<T>(), T(12583038) - from)),
        low_(hn::Set(Tag<T>(), from - T(126))),
        high_(hn::Set(Tag<T>(), from + T(128))) {}

  HWY_INLINE Vec<T> operator()(Vec<T> x) const {
    const Tag<T> d;
    const hn::RebindToSigned<Tag<T>> di;
    const auto y = smaller(high_, larger(low_, x));  // a NaN stays one
    // Adding 1.5 * 2^23 + 126 - from rounds y to an integer, and leaves n + 126 in the low bits:
    // the exponent of 2^(n-1), or of 0. The polynomial is twice 2^r.
    const auto t = hn::Add(y, magic_);
    const auto r = hn::Sub(y, hn::Sub(t, magic_));
    const auto half_two_n = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, t)));
    auto p = hn::Set(d, 2 * 1.5453162942e-4f);
    p = hn::MulAdd(p, r, hn::Set(d, 2 * 1.3390863365e-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 2 * 9.6180825573e-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 2 * 5.5503571142e-2f));
    p = hn::MulAdd(p, r, hn::Set(d, 2 * 2.4022650761e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 2 * 6.9314718803e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 2.0f));
    return hn::Mul(p, half_two_n);
  }

 private:
  Vec<T> magic_, low_, high_;
};
#if HWY_TARGET <= HWY_AVX3
// AVX-512 takes the fraction and multiplies by 2^floor(x) in one instruction each: here r lies in
// [0, 1), and the polynomial is within 8.3e-8 of 2^r, 1 at 0: less than a score's own rounding.
template <>
class Exp2From<float> {
 public:
  HWY_INLINE explicit Exp2From(float from) : from_(hn::Set(Tag<float>(), from)) {}

  HWY_INLINE Vec<float> operator()(Vec<float> x) const {
    const Tag<float> d;
    const auto y = hn::Sub(x, from_);
    const Vec<float> r{_mm512_reduce_ps(y.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
    auto p = hn::Set(d, 1.8671300724e-3f);
    p = hn::MulAdd(p, r, hn::Set(d, 9.0170303159e-3f));
    p = hn::MulAdd(p, r, hn::Set(d, 5.5799913110e-2f));
    p = hn::MulAdd(p, r, hn::Set(d, 2.4016445015e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 6.9315131180e-1f));
    p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
    const auto seen = _mm512_cmp_ps_mask(y.raw, hn::Set(d, -126.0f).raw, _CMP_NLT_UQ);
    return Vec<float>{_mm512_maskz_scalef_ps(seen, p.raw, y.raw)};
  }

 private:
  Vec<float> from_;
};
#endif
template <>
class Exp2From<double> {
 public:
  HWY_INLINE explicit Exp2From(double from) : from_(hn::Set(Tag<double>(), from)) {}
  HWY_INLINE Vec<double> operator()(Vec<double> x) const {
    return exp_of(hn::Mul(hn::Sub(x, from_), hn::Set(Tag<double>(), 0.69314718055994530942)));
  }

 private:
  Vec<double> from_;
};

// 2^x for x <= 0, and a little above.
template <class V>
HWY_INLINE V exp2_of_negative(V x) {
  return Exp2From<hn::TFromV<V>>(0)(x);
}

// Highway's Log is for positive numbers; elsewhere the usual answers.
template <class T>
HWY_INLINE Vec<T> log_of(Vec<T> x) {
  const Tag<T> d;
  const auto y = hn::Log(d, x);
  const auto at_zero = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(hn::Inf(d)), y);
  const auto at_inf = hn::IfThenElse(hn::Eq(x, hn::Inf(d)), x, at_zero);
  return hn::IfThenElse(hn::Ge(x, hn::Zero(d)), at_inf, hn::NaN(d));
}

// tanh|x| = e / (e + 2) with e = exp(2|x|) - 1, which keeps all digits near 0.
HWY_INLINE Vec<float> tanh_of(Vec<float> x) {
  const Tag<float> d;
  const hn::RebindToSigned<Tag<float>> di;
  const auto magnitude = smaller(hn::Set(d, 9.02f), hn::Abs(x));  // a NaN stays one
  hn::Vec<decltype(di)> n_bits;
  const auto p = exp_parts(hn::Add(magnitude, magnitude), n_bits);
  const auto two_n = hn::BitCast(d, hn::Add(n_bits, hn::Set(di, 0x3F800000)));
  const auto e = hn::MulAdd(two_n, p, hn::Sub(two_n, hn::Set(d, 1.0f)));
  return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, 2.0f))), x);
}
HWY_INLINE Vec<double> tanh_of(Vec<double> x) {
  const Tag<double> d;
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
}

template <class T>
HWY_INLINE hn::VFromD<Tag<T>> sigmoid_of(hn::VFromD<Tag<T>> x) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  return hn::Div(one, hn::Add(one, exp_of(hn::Neg(x))));
}

// Philox (base/random.h), one call a lane: the counters are (c0, rest...), the four words of each
// result go to words, words + apart, ...
HWY_INLINE void philox_words(hn::VFromD<Tag<uint32_t>> c0, const std::array<uint32_t, 3>& rest,
                             uint64_t seed, int64_t apart, uint32_t* HWY_RESTRICT words) {
  const Tag<uint32_t> d;
  const hn::RepartitionToWide<Tag<uint32_t>> dw;
  const auto m0 = hn::Set(d, kPhiloxMul0), m1 = hn::Set(d, kPhiloxMul1);
  // The upper halves of the 64-bit products.
  const auto high = [&](auto a, auto b) {
    const auto even = hn::BitCast(d, hn::ShiftRight<32>(hn::MulEven(a, b)));
    const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(dw, a))), b);
    return hn::OddEven(hn::BitCast(d, odd), even);
  };
  auto c1 = hn::Set(d, rest[0]), c2 = hn::Set(d, rest[1]), c3 = hn::Set(d, rest[2]);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const auto h0 = high(c0, m0), h1 = high(c2, m1), l0 = hn::Mul(c0, m0), l1 = hn::Mul(c2, m1);
    c0 = hn::Xor(hn::Xor(h1, c1), hn::Set(d, k0));
    c1 = l1;
    c2 = hn::Xor(hn::Xor(h0, c3), hn::Set(d, k1));
    c3 = l0;
    k0 += kPhiloxWeyl0;
    k1 += kPhiloxWeyl1;
  }
  hn::Store(c0, d, words);
  hn::Store(c1, d, words + apart);
  hn::Store(c2, d, words + 2 * apart);
  hn::Store(c3, d, words + 3 * apart);
}

// The first `count` lanes of memory, zeros after them: never reads past the end of an array.
template <class T>
HWY_INLINE Vec<T> load_part(const T* p, size_t count) {
  const Tag<T> d;
  HWY_ALIGN T lanes[HWY_LANES(T)] = {};
  for (size_t i = 0; i < count; ++i) lanes[i] = p[i];
  return hn::Load(d, lanes);
}
template <class T>
HWY_INLINE void store_part(Vec<T> v, T* p, size_t count) {
  const Tag<T> d;
  HWY_ALIGN T lanes[HWY_LANES(T)];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < count; ++i) p[i] = lanes[i];
}

// y[i] = f(x[i], ...) over a range, or over an array on all threads.
template <class T, class F, class... In>
HWY_INLINE void map_range(int64_t begin, int64_t end, F f, T* y, const In*... x) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i)...), d, y + i);
  if (i < end) {
    const size_t rest = static_cast<size_t>(end - i);
    store_part<T>(f(load_part<T>(x + i, rest)...), y + i, rest);
  }
}

// The same for a result that no cache will hold: written past the caches, whose lines would be read
// first only to be overwritten.
template <class T, class F, class... In>
HWY_INLINE void stream_range(int64_t begin, int64_t end, F f, T* y, const In*... x) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(y + begin) / sizeof(T)) %
                       lanes;  // elements past a vector's border
  int64_t i = std::min(end, begin + (lanes - past) % lanes);
  map_range(begin, i, f, y, x...);
  for (; i + lanes <= end; i += lanes) hn::Stream(f(hn::LoadU(d, x + i)...), d, y + i);
  map_range(i, end, f, y, x...);
  hwy::FlushStream();
}
// Whether a result of n elements, not one of the inputs, is such a one.
template <class T, class... In>
HWY_INLINE bool streams(int64_t n, const T* y, const In*... x) {
  return n * static_cast<int64_t>(sizeof(T)) >= kStreamed && (... && (x != y));
}

template <class T, class F, class... In>
HWY_INLINE void map_array(int64_t n, F f, T* y, const In*... x) {
  const bool past_caches = streams(n, y, x...);
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    if (past_caches)
      stream_range(begin, end, f, y, x...);
    else
      map_range(begin, end, f, y, x...);
  });
}

// The sum of f(x[i]...) over a row, in four chains; the order depends on n alone.
template <class T, class F, class... In>
HWY_INLINE T sum_range(int64_t n, F f, const In*... x) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, f(hn::LoadU(d, x + i)...));
    s1 = hn::Add(s1, f(hn::LoadU(d, x + i + lanes)...));
    s2 = hn::Add(s2, f(hn::LoadU(d, x + i + 2 * lanes)...));
    s3 = hn::Add(s3, f(hn::LoadU(d, x + i + 3 * lanes)...));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, f(hn::LoadU(d, x + i)...));
  if (i < n) {
    // f of the zeros after the end need not be 0: keep the lanes that exist.
    const auto last = f(load_part<T>(x + i, static_cast<size_t>(n - i))...);
    s1 = hn::Add(s1, hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(n - i)), last));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// The largest of a row; a NaN does not count. (Where it must not be hidden, the sum of exponentials
// that follows shows it.)
template <class T>
HWY_INLINE T max_range(int64_t n, const T* x) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto m0 = hn::Neg(hn::Inf(d)), m1 = m0;
  int64_t i = 0;
  // The new one first: a NaN is passed over.
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    m0 = larger(hn::LoadU(d, x + i), m0);
    m1 = larger(hn::LoadU(d, x + i + lanes), m1);
  }
  T most = hn::GetLane(hn::MaxOfLanes(d, larger(m0, m1)));
  for (; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

// Calls body(load, store, j) for every vector of a row of n; at the end of the row load and store
// touch only what exists.
template <class T, class Body>
HWY_INLINE void for_vectors(int64_t n, Body body) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    body([d](const T* p) { return hn::LoadU(d, p); }, [d](Vec<T> v, T* p) { hn::StoreU(v, d, p); },
         j);
  if (const size_t rest = static_cast<size_t>(n - j); rest > 0)
    body([rest](const T* p) { return load_part<T>(p, rest); },
         [rest](Vec<T> v, T* p) { store_part<T>(v, p, rest); }, j);
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
