// What the kernels of additive attention share: where rows lie, which keys a query sees, what is
// added to scores, which weights are dropped. Included by .cu files alone.
#pragma once

#include "heed/kernels/cuda/dropout.cuh"

namespace heed::kernels {

template <class T>
__device__ inline T* row_at(const Heads<T>& x, int64_t b, int64_t h, int64_t t) {
  return x.data + b * x.batch + h * x.head + t * x.row;
}

// 1 / x within one unit in the last place; 0 for x beyond 2^126.
__device__ inline float reciprocal(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// tanh x for any x, within 1e-7, and 1 - tanh^2, of which all digits are right where x is large.
// With r = 1 / (1 + e^(2|x|)) they are 1 - 2 r, with the sign of x, and 4 r (1 - r).
struct Tanh {
  float r, x;
  __device__ explicit Tanh(float x) : r(reciprocal(1.0f + expf(2 * fabsf(x)))), x(x) {}
  __device__ float value() const { return copysignf(fmaf(-2.0f, r, 1.0f), x); }
  __device__ float derivative() const { return 4 * fmaf(-r, r, r); }
};
__device__ inline float tanh_of(float x) { return Tanh(x).value(); }

struct Seen {  // the keys [begin, end)
  int begin, end;
  __device__ bool none() const { return begin >= end; }
  __device__ bool has(int j) const { return j >= begin && j < end; }
  __device__ bool meets(int first, int last) const { return begin < last && end > first; }
};

template <class T>
__device__ Seen seen_by(const Attention<T>& a, int64_t b, int64_t h, int64_t i) {
  const int keys = static_cast<int>(a.keys);
  if (!a.range) return {0, keys};
  const Id* range = a.range + b * a.range_batch + h * a.range_head + 2 * i;
  const Seen seen{max(0, range[0]), min(keys, range[1])};
  return seen.none() ? Seen{0, 0} : seen;
}

// What comes on top of the score of key j, in units of log2(e).
struct Extra {
  const float* bias;  // the query's row, or null
  bool placed;
  float place, falloff;
  __device__ float operator()(float score, int j) const {
    if (bias) score = fmaf(bias[j], kLog2E, score);
    if (placed) {
      const float away = static_cast<float>(j) - place;
      score -= falloff * away * away;
    }
    return score;
  }
};
template <class T>
__device__ Extra extra_of(const Attention<T>& a, int64_t b, int64_t h, int64_t i) {
  return {a.bias.data ? row_at(a.bias, b, h, i) : nullptr, a.place != nullptr,
          a.place ? a.place[(b * a.heads + h) * a.queries + i] : 0.0f, a.falloff * kLog2E};
}

// Dropout of a row's weights.
struct RowDrop {
  bool on;
  Drop by;
  uint64_t key;
  __device__ uint4 words(int64_t row, int j) const { return drop_call(key, row, j); }
  __device__ float factor(const uint4& w, int j) const {
    const uint32_t word = word_of(w, j / 16 % 4);
    return (j % 128 < 64 ? word & 0xFFFF : word >> 16) >= by.threshold ? by.keep : 0.0f;
  }
};
template <class T>
__device__ RowDrop drop_of(const Attention<T>& a) {
  if (!(a.dropout > 0)) return {false, {0, 1.0f}, 0};
  return {true,
          {static_cast<uint32_t>(lround(static_cast<double>(a.dropout) * 65536)),
           1.0f / (1.0f - a.dropout)},
          key_of(a.seed)};
}

}  // namespace heed::kernels
