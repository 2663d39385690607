// Elementwise kernels for the CPU: activations, arithmetic with broadcast, copies, dropout, and the
// optimizers' updates, each one pass over memory.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "heed/base/random.h"
#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// ---- activations

// gelu's argument of the sigmoid: 2 sqrt(2/pi) (x + 0.044715 x^3).
constexpr double kGelu1 = 1.5957691216057308, kGelu3 = kGelu1 * 0.044715;

template <class T>
HWY_INLINE hn::VFromD<Tag<T>> gelu_sigmoid(hn::VFromD<Tag<T>> x) {
  const Tag<T> d;
  const auto x2 = hn::Mul(x, x);
  const auto c =
      hn::MulAdd(x2, hn::Set(d, static_cast<T>(kGelu3)), hn::Set(d, static_cast<T>(kGelu1)));
  return sigmoid_of<T>(hn::Mul(x, c));
}

template <class T>
void apply(const Map<T>& k) {
  using V = Vec<T>;
  const Tag<T> d;
  const auto map = [&](auto f) { map_array<T>(k.n, f, k.y, k.x); };
  switch (k.f) {
    case Unary::copy: return map([](V x) { return x; });
    case Unary::negate: return map([](V x) { return hn::Neg(x); });
    case Unary::exp: return map([](V x) { return exp_of(x); });
    case Unary::log: return map([](V x) { return log_of<T>(x); });
    case Unary::sqrt: return map([](V x) { return hn::Sqrt(x); });
    case Unary::square: return map([](V x) { return hn::Mul(x, x); });
    case Unary::tanh: return map([](V x) { return tanh_of(x); });
    case Unary::sigmoid: return map([](V x) { return sigmoid_of<T>(x); });
    case Unary::relu:
      return map([d](V x) {
        // A NaN stays: max(0, x) returns its second operand then.
        return larger(hn::Zero(d), x);
      });
    case Unary::gelu: return map([](V x) { return hn::Mul(x, gelu_sigmoid<T>(x)); });
    case Unary::swish: return map([](V x) { return hn::Mul(x, sigmoid_of<T>(x)); });
  }
}

template <class T>
void apply(const MapGrad<T>& k) {
  using V = Vec<T>;
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  const auto scale = hn::Set(d, k.scale);
  const auto map = [&](auto f) {
    const auto scaled = [f, scale](V x, V dy) { return f(x, hn::Mul(scale, dy)); };
    map_array<T>(k.n, scaled, k.dx, k.x_or_y, k.dy);
  };
  switch (k.f) {
    case Unary::copy: return map([](V, V dy) { return dy; });
    case Unary::negate: return map([](V, V dy) { return hn::Neg(dy); });
    case Unary::exp: return map([](V y, V dy) { return hn::Mul(dy, y); });
    case Unary::log: return map([](V x, V dy) { return hn::Div(dy, x); });
    case Unary::sqrt: return map([](V y, V dy) { return hn::Div(dy, hn::Add(y, y)); });
    case Unary::square: return map([](V x, V dy) { return hn::Mul(dy, hn::Add(x, x)); });
    case Unary::tanh:
      return map([one](V y, V dy) { return hn::Mul(dy, hn::NegMulAdd(y, y, one)); });
    case Unary::sigmoid: return map([](V y, V dy) { return hn::Mul(dy, hn::NegMulAdd(y, y, y)); });
    case Unary::relu:
      return map([d](V x, V dy) { return hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), dy); });
    case Unary::gelu:
      return map([d, one](V x, V dy) {
        const auto s = gelu_sigmoid<T>(x);
        const auto derivative = hn::MulAdd(hn::Mul(x, x), hn::Set(d, static_cast<T>(3 * kGelu3)),
                                           hn::Set(d, static_cast<T>(kGelu1)));  // of its argument
        return hn::Mul(dy, hn::MulAdd(hn::Mul(x, derivative), hn::Mul(s, hn::Sub(one, s)), s));
      });
    case Unary::swish:
      return map([one](V x, V dy) {
        const auto s = sigmoid_of<T>(x);
        return hn::Mul(dy, hn::MulAdd(x, hn::Mul(s, hn::Sub(one, s)), s));
      });
  }
}

// ---- arithmetic

// One row of c = f(a, b), where a or b may be a single element (stride 0).
template <class T, class F>
HWY_INLINE void zip_row(F f, int64_t n, const T* a, int64_t a_stride, const T* b, int64_t b_stride,
                        T* c) {
  const Tag<T> d;
  if (a_stride != 0 && b_stride != 0) return map_range<T>(0, n, f, c, a, b);
  if (a_stride != 0) {
    const auto v = hn::Set(d, *b);
    return map_range<T>(
        0, n, [&](Vec<T> x) { return f(x, v); }, c, a);
  }
  const auto u = hn::Set(d, *a);
  if (b_stride != 0)
    return map_range<T>(
        0, n, [&](Vec<T> y) { return f(u, y); }, c, b);
  const T value = hn::GetLane(f(u, hn::Set(d, *b)));
  std::fill_n(c, n, value);
}

template <class T, class F>
void zip(const Zip<T>& k, F f) {
  const int64_t n = k.size[k.rank - 1];
  int64_t rows = 1;
  for (int i = 0; i + 1 < k.rank; ++i) rows *= k.size[i];
  if (rows == 1)  // one long row: cut it
    return parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
      const int64_t as = k.a_stride[k.rank - 1], bs = k.b_stride[k.rank - 1];
      zip_row<T>(f, end - begin, k.a + begin * as, as, k.b + begin * bs, bs, k.c + begin);
    });
  parallel_for(rows, row_grain(n), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t rest = r, a = 0, b = 0;
      for (int i = k.rank - 2; i >= 0; --i) {
        const int64_t at = rest % k.size[i];
        rest /= k.size[i];
        a += at * k.a_stride[i];
        b += at * k.b_stride[i];
      }
      zip_row<T>(f, n, k.a + a, k.a_stride[k.rank - 1], k.b + b, k.b_stride[k.rank - 1],
                 k.c + r * n);
    }
  });
}

template <class T>
void apply(const Zip<T>& k) {
  using V = Vec<T>;
  switch (k.f) {
    case Binary::add: return zip(k, [](V a, V b) { return hn::Add(a, b); });
    case Binary::subtract: return zip(k, [](V a, V b) { return hn::Sub(a, b); });
    case Binary::multiply: return zip(k, [](V a, V b) { return hn::Mul(a, b); });
    case Binary::divide: return zip(k, [](V a, V b) { return hn::Div(a, b); });
  }
}

template <class T>
void apply(const Axpby<T>& k) {
  const Tag<T> d;
  const auto alpha = hn::Set(d, k.alpha), beta = hn::Set(d, k.beta);
  if (k.beta == T(0))
    return map_array<T>(
        k.n, [&](Vec<T> x) { return hn::Mul(alpha, x); }, k.y, k.x);
  map_array<T>(
      k.n, [&](Vec<T> x, Vec<T> y) { return hn::MulAdd(alpha, x, hn::Mul(beta, y)); }, k.y, k.x,
      static_cast<const T*>(k.y));
}

template <class T>
void apply(const Fill<T>& k) {
  parallel_for(k.n, 4 * kGrain,
               [&](int64_t begin, int64_t end) { std::fill(k.y + begin, k.y + end, k.value); });
}

template <class T>
void apply(const Copy<T>& k) {
  constexpr int64_t grain = kGrain / 2;  // a recurrent step's tensors are work for two threads
  const int last = k.rank - 1;
  const int64_t n = k.size[last], xs = k.x_stride[last], ys = k.y_stride[last];
  const auto line = [&](int64_t count, const T* x, T* y) {
    if (xs == 1 && ys == 1 && k.add)
      map_range<T>(
          0, count, [](Vec<T> a, Vec<T> b) { return hn::Add(a, b); }, y, x,
          static_cast<const T*>(y));
    else if (xs == 1 && ys == 1)
      std::copy_n(x, count, y);
    else if (k.add)
      for (int64_t j = 0; j < count; ++j) y[j * ys] += x[j * xs];
    else
      for (int64_t j = 0; j < count; ++j) y[j * ys] = x[j * xs];
  };
  int64_t rows = 1;
  for (int i = 0; i < last; ++i) rows *= k.size[i];
  if (rows == 1)  // one long row: cut it
    return parallel_for(n, grain, [&](int64_t begin, int64_t end) {
      line(end - begin, k.x + begin * xs, k.y + begin * ys);
    });
  parallel_for(rows, chunk_count(grain, std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int64_t rest = r, x = 0, y = 0;
      for (int i = last - 1; i >= 0; --i) {
        const int64_t at = rest % k.size[i];
        rest /= k.size[i];
        x += at * k.x_stride[i];
        y += at * k.y_stride[i];
      }
      line(n, k.x + x, k.y + y);
    }
  });
}

// ---- dropout

// Random bits for a group of 1024 items, 16 each: 128 Philox calls, whose four words stand apart,
// words[w * 128 + j] for call j, so that vectors of any length can store them. Item i of a group
// has the i-th 16 bits of `words`.
constexpr int64_t kDropoutGroup = 1024, kCalls = kDropoutGroup / 8;

void philox_group(uint64_t group, uint64_t seed, uint32_t* HWY_RESTRICT words) {
  const Tag<uint32_t> d;
  const uint64_t first = group * kCalls;
  for (int64_t j = 0; j < kCalls; j += static_cast<int64_t>(hn::Lanes(d)))
    philox_words(hn::Iota(d, static_cast<uint32_t>(first) + static_cast<uint32_t>(j)),
                 {static_cast<uint32_t>(first >> 32), 0, 0}, seed, kCalls, words + j);
}

// y = (number >= threshold ? x * keep : 0) + residual.
template <class T>
HWY_INLINE void drop(int64_t n, const uint16_t* number, int32_t threshold, T keep, const T* x,
                     const T* residual, T* y) {
  int64_t i = 0;
  if constexpr (sizeof(T) == 4) {
    const Tag<T> d;
    const hn::RebindToSigned<Tag<T>> di;
    const hn::Rebind<uint16_t, Tag<T>> du;
    const auto factor = hn::Set(d, keep);
    const auto below = hn::Set(di, threshold - 1);
    for (; i + static_cast<int64_t>(hn::Lanes(d)) <= n; i += static_cast<int64_t>(hn::Lanes(d))) {
      const auto keeps = hn::Gt(hn::PromoteTo(di, hn::LoadU(du, number + i)), below);
      const auto kept = hn::Mul(hn::LoadU(d, x + i), factor);
      auto out = hn::IfThenElseZero(hn::RebindMask(d, keeps), kept);
      if (residual) out = hn::Add(out, hn::LoadU(d, residual + i));
      hn::StoreU(out, d, y + i);
    }
  }
  for (; i < n; ++i)
    y[i] = (number[i] >= threshold ? x[i] * keep : T(0)) + (residual ? residual[i] : T(0));
}

template <class T>
void apply(const Dropout<T>& k) {
  const T keep = T(1) / (T(1) - static_cast<T>(k.p));
  const int32_t threshold = static_cast<int32_t>(std::lround(k.p * 65536.0));
  static_assert(kGrain % kDropoutGroup == 0);
  parallel_for(k.n, kGrain, [&](int64_t begin, int64_t end) {
    HWY_ALIGN uint32_t words[kDropoutGroup / 2];
    for (int64_t at = begin; at < end; at += kDropoutGroup) {
      philox_group(static_cast<uint64_t>(at / kDropoutGroup), value(k.seed), words);
      HWY_ALIGN uint16_t number[kDropoutGroup];
      std::memcpy(number, words, sizeof number);
      drop(std::min(kDropoutGroup, end - at), number, threshold, keep, k.x + at,
           k.residual ? k.residual + at : nullptr, k.y + at);
    }
  });
}

// ---- storage types

void ToBf16Body(const ToBf16& k) {
  parallel_for(k.n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) k.y[i] = bf16(k.x[i]);
  });
}
void FromBf16Body(const FromBf16& k) {
  parallel_for(k.n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) k.y[i] = static_cast<float>(k.x[i]);
  });
}

// ---- optimizers

template <class T>
void apply(const Adam<T>& k) {
  const AdamNumbers& o = *k.numbers;
  const double norm = std::sqrt(*k.squares);
  if (!std::isfinite(norm)) return;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto set = [&](double x) { return hn::Set(d, static_cast<T>(x)); };
  const double c1 = 1 - std::pow(o.beta1, double(o.step)),
               c2 = 1 - std::pow(o.beta2, double(o.step));
  const auto b1 = set(o.beta1), b2 = set(o.beta2), a1 = set(1 - o.beta1), a2 = set(1 - o.beta2);
  const auto scale = set(o.clip > 0 && norm > o.clip ? o.clip / norm : 1);
  // rate/c1 * m / (sqrt(v)/sqrt(c2) + epsilon): the corrections cost nothing here.
  const auto rate = set(o.rate / c1), root = set(1 / std::sqrt(c2));
  const auto epsilon = set(o.epsilon), keep = set(1 - o.rate * o.decay);
  const auto f = set(o.average), f1 = set(1 - o.average);
  for (int part = 0; part < k.count; ++part) {
    const AdamPart<T>& p = k.part[part];
    const auto step = [&](int64_t i, auto load, auto store) {
      const auto g = hn::Mul(load(p.grad + i), scale);
      const auto m = hn::MulAdd(b1, load(p.m + i), hn::Mul(a1, g));
      const auto v = hn::MulAdd(b2, load(p.v + i), hn::Mul(a2, hn::Mul(g, g)));
      const auto below = hn::MulAdd(hn::Sqrt(v), root, epsilon);
      const auto w = hn::NegMulAdd(rate, hn::Div(m, below), hn::Mul(keep, load(p.w + i)));
      store(m, p.m + i);
      store(v, p.v + i);
      store(w, p.w + i);
      if (p.average) store(hn::MulAdd(f, load(p.average + i), hn::Mul(f1, w)), p.average + i);
    };
    parallel_for(p.n, kGrain, [&](int64_t begin, int64_t end) {
      int64_t i = begin;
      for (; i + lanes <= end; i += lanes)
        step(
            i, [&](const T* x) { return hn::LoadU(d, x); },
            [&](auto v, T* x) { hn::StoreU(v, d, x); });
      if (const size_t rest = static_cast<size_t>(end - i); rest > 0)
        step(
            i, [&](const T* x) { return load_part<T>(x, rest); },
            [&](auto v, T* x) { store_part<T>(v, x, rest); });
    });
  }
}

HEED_KERNEL_BODIES(Map)
HEED_KERNEL_BODIES(MapGrad)
HEED_KERNEL_BODIES(Zip)
HEED_KERNEL_BODIES(Axpby)
HEED_KERNEL_BODIES(Fill)
HEED_KERNEL_BODIES(Copy)
HEED_KERNEL_BODIES(Dropout)
HEED_KERNEL_BODIES(Adam)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(Map)
HEED_KERNEL_RUN(MapGrad)
HEED_KERNEL_RUN(Zip)
HEED_KERNEL_RUN(Axpby)
HEED_KERNEL_RUN(Fill)
HEED_KERNEL_RUN(Copy)
HEED_KERNEL_RUN(Dropout)
HEED_KERNEL_RUN(Adam)

HWY_EXPORT(ToBf16Body);
HWY_EXPORT(FromBf16Body);
void run(Cpu, const ToBf16& k) { HWY_DYNAMIC_DISPATCH(ToBf16Body)(k); }
void run(Cpu, const FromBf16& k) { HWY_DYNAMIC_DISPATCH(FromBf16Body)(k); }

bool gradient_reads_result(Unary f) {
  return f == Unary::exp || f == Unary::sqrt || f == Unary::tanh || f == Unary::sigmoid;
}

}  // namespace heed::kernels
#endif
