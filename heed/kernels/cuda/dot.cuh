// What the tiles of dot-product attention on the GPU share: which rows and keys they hold, how
// these come into shared memory, and what a product becomes before the softmax. Included by dot*.cu
// alone.
//
// As on the CPU (cpu/attention.cpp), the queries of all heads that share a key head are the rows of
// one group, scores are multiplied by log2(e), tiles begin at fixed keys, and every sum has one
// order.
#pragma once

#include <cmath>

#include "heed/kernels/cuda/dot.h"
#include "heed/kernels/cuda/dropout.cuh"

namespace heed::kernels {

inline constexpr int kTileRows = 32;  // queries of a tile: as many as a warp has lanes

// Heads::at() for the device.
template <class T>
__device__ T* row_at(const Heads<T>& x, int64_t b, int64_t head, int64_t row) {
  return x.data + b * x.batch + head * x.head + row * x.row;
}

// ---- elements from memory, four at a time

// Whether rows begin where four elements can be read at once.
template <class T>
bool by_fours(const Heads<T>& x) {
  return reinterpret_cast<uintptr_t>(x.data) % (4 * sizeof(T)) == 0 && x.batch % 4 == 0 &&
         x.head % 4 == 0 && x.row % 4 == 0;
}

__device__ inline float4 four(const float* p) { return __ldg(reinterpret_cast<const float4*>(p)); }
__device__ inline float4 four(const bf16* p) {
  const uint2 u = __ldg(reinterpret_cast<const uint2*>(p));
  return make_float4(__uint_as_float(u.x << 16), __uint_as_float(u.x & 0xFFFF0000u),
                     __uint_as_float(u.y << 16), __uint_as_float(u.y & 0xFFFF0000u));
}
// The elements p[0..left), zeros after them.
template <class T>
__device__ float4 load4(const T* p, bool fours, int left) {
  if (fours && left >= 4) return four(p);
  float4 x = make_float4(0, 0, 0, 0);
  if (left > 0) x.x = wide(p[0]);
  if (left > 1) x.y = wide(p[1]);
  if (left > 2) x.z = wide(p[2]);
  if (left > 3) x.w = wide(p[3]);
  return x;
}
__device__ inline void put_four(float* p, float4 x) { *reinterpret_cast<float4*>(p) = x; }
__device__ inline void put_four(bf16* p, float4 x) {
  uint2 u;
  u.x = uint32_t{narrow<bf16>(x.x).bits} | uint32_t{narrow<bf16>(x.y).bits} << 16;
  u.y = uint32_t{narrow<bf16>(x.z).bits} | uint32_t{narrow<bf16>(x.w).bits} << 16;
  *reinterpret_cast<uint2*>(p) = u;
}
template <class T>
__device__ void store4(T* p, float4 x, bool fours, int left) {
  if (fours && left >= 4) return put_four(p, x);
  if (left > 0) p[0] = narrow<T>(x.x);
  if (left > 1) p[1] = narrow<T>(x.y);
  if (left > 2) p[2] = narrow<T>(x.z);
  if (left > 3) p[3] = narrow<T>(x.w);
}
__device__ inline float4 times(float4 x, float s) {
  return make_float4(x.x * s, x.y * s, x.z * s, x.w * s);
}
__device__ inline void add_times(float4& sum, float s, float4 x) {
  sum.x = fmaf(s, x.x, sum.x);
  sum.y = fmaf(s, x.y, sum.y);
  sum.z = fmaf(s, x.z, sum.z);
  sum.w = fmaf(s, x.w, sum.w);
}
__device__ inline bool all_finite(float4 x) {
  // x - x is 0 for a finite x, else NaN.
  return (x.x - x.x) + (x.y - x.y) + (x.z - x.z) + (x.w - x.w) == 0;
}
__device__ inline const float4& at4(const float* p) { return *reinterpret_cast<const float4*>(p); }
template <int I>
__device__ float part(float4 x) {
  return I == 0 ? x.x : I == 1 ? x.y : I == 2 ? x.z : x.w;
}

// `count` rows of n elements into shared memory, `D + 4` apart; row(r) is where row r lies, or null
// for a row of zeros. Columns up to the next multiple of 4 are zeros. Returns whether all that this
// thread met is finite.
template <int D, int kThreads, int kCount, class T, class Row>
__device__ bool take_rows(float* to, int n, bool fours, Row row) {
  constexpr int kFours = D / 4;
  bool finite = true;
#pragma unroll 4
  for (int x = static_cast<int>(threadIdx.x); x < kCount * kFours; x += kThreads) {
    const int r = x / kFours, c = x % kFours * 4;
    if (c >= n) continue;
    const T* from = row(r);
    const float4 v = from ? load4(from + c, fours, n - c) : make_float4(0, 0, 0, 0);
    finite = finite && all_finite(v);
    *reinterpret_cast<float4*>(to + r * (D + 4) + c) = v;
  }
  return finite;
}

// ---- the rows of a tile

template <class T>
struct Group {  // the queries that share a key head
  const Attention<T>& a;
  int64_t b, g;

  __device__ int heads() const { return static_cast<int>(a.heads / a.key_heads); }
  __device__ int rows() const { return heads() * static_cast<int>(a.queries); }
};

struct Rows {
  int begin[kTileRows], end[kTileRows];  // the keys that each sees; begin >= end: none
  int head[kTileRows], query[kTileRows];
  int low, high;  // keys that some row sees lie in [low, high)
  int count;

  __device__ bool empty(int r) const { return begin[r] >= end[r]; }
  template <class U>
  __device__ U* row_of(const Heads<U>& x, int64_t b, int r) const {
    return row_at(x, b, head[r], query[r]);
  }
  template <class T>
  __device__ int64_t number(const Group<T>& group, int r) const {
    return (group.b * group.a.heads + head[r]) * group.a.queries + query[r];
  }
};

// Called by the first warp; the others may read it after the next __syncthreads().
template <class T>
__device__ void take_range(const Group<T>& group, int row0, Rows& rows) {
  const Attention<T>& a = group.a;
  const int r = static_cast<int>(threadIdx.x), keys = static_cast<int>(a.keys);
  const int count = min(kTileRows, group.rows() - row0);
  int begin = 0, end = 0, head = 0, query = 0;
  if (r < count) {
    const int queries = static_cast<int>(a.queries);
    head = static_cast<int>(group.g) * group.heads() + (row0 + r) / queries;
    query = (row0 + r) % queries;
    end = keys;
    if (a.range) {
      const Id* range = a.range + group.b * a.range_batch + head * a.range_head + 2 * query;
      begin = max(0, static_cast<int>(range[0]));
      end = min(keys, static_cast<int>(range[1]));
    }
  }
  rows.begin[r] = begin, rows.end[r] = end, rows.head[r] = head, rows.query[r] = query;
  int low = begin < end ? begin : keys, high = begin < end ? end : 0;
  for (int i = kWarp / 2; i > 0; i /= 2) {
    low = min(low, __shfl_xor_sync(~0u, low, i));
    high = max(high, __shfl_xor_sync(~0u, high, i));
  }
  if (r == 0) rows.low = low, rows.high = high, rows.count = count;
}

// ---- a tile of products

// Threads of a tile of kTileRows x BK: thread (tx, ty) has keys tx + TX j, j < 4, of rows
// ty + TY i, i < RI. The threads of a row are lanes of one warp.
template <int BK, int kThreads>
struct Grid {
  static constexpr int TX = BK / 4, TY = kThreads / TX, RI = kTileRows / TY;
  static_assert(TX <= kWarp && RI >= 1);
  __device__ static int tx() { return static_cast<int>(threadIdx.x) % TX; }
  __device__ static int ty() { return static_cast<int>(threadIdx.x) / TX; }
  __device__ static int row(int i) { return ty() + TY * i; }
  __device__ static int key(int j) { return tx() + TX * j; }
  __device__ static float row_sum(float x) {
    for (int i = TX / 2; i > 0; i /= 2) x += __shfl_xor_sync(~0u, x, i);
    return x;
  }
  __device__ static float row_max(float x) {
    for (int i = TX / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
    return x;
  }
};

// product[i][j] = x_row(i) . y_key(j), both in shared memory with rows D + 4 apart. Two sums each,
// of every other column: shorter chains, whose roundings add up to less.
template <int D, class G>
__device__ void multiply_rows(const float* x, const float* y, int n, int rows,
                              float (&product)[G::RI][4]) {
  float other[G::RI][4];
#pragma unroll
  for (int i = 0; i < G::RI; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) product[i][j] = other[i][j] = 0;
  x += G::ty() * (D + 4);
  y += G::tx() * (D + 4);
  if (G::ty() >= rows) return;  // of no row; its warp mates may go on
#pragma unroll 2
  for (int c = 0; c < n; c += 4) {
    float4 xs[G::RI], ys[4];
#pragma unroll
    for (int i = 0; i < G::RI; ++i) xs[i] = at4(x + i * G::TY * (D + 4) + c);
#pragma unroll
    for (int j = 0; j < 4; ++j) ys[j] = at4(y + j * G::TX * (D + 4) + c);
#pragma unroll
    for (int i = 0; i < G::RI; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        product[i][j] = fmaf(xs[i].x, ys[j].x, product[i][j]);
        other[i][j] = fmaf(xs[i].y, ys[j].y, other[i][j]);
        product[i][j] = fmaf(xs[i].z, ys[j].z, product[i][j]);
        other[i][j] = fmaf(xs[i].w, ys[j].w, other[i][j]);
      }
  }
#pragma unroll
  for (int i = 0; i < G::RI; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) product[i][j] += other[i][j];
}

// ---- from a product to a score

// q.k as a score times log2(e), less `less`, for a key that the row sees. bias: the row's, or null.
// Taken off at once, a maximum or lse leaves a small number, which keeps its digits.
template <class T>
__device__ float score_of(const Attention<T>& a, float product, const float* bias, float place,
                          int key, float less = 0) {
  float s = a.form == ScoreForm::log_dot ? fmaf(a.scale, log2f(product), -less)
                                         : fmaf(a.scale * kLog2E, product, -less);
  if (bias) s = fmaf(bias[key], kLog2E, s);
  if (a.place) {
    const float away = static_cast<float>(key) - place;
    s = fmaf(-a.falloff * kLog2E * away, away, s);
  }
  return s;
}

// ---- dropout of weights

template <class T>
Drop drop_of(const Attention<T>& a) {
  if (!(a.dropout > 0)) return {0, 1};
  return {static_cast<uint32_t>(std::lround(double{a.dropout} * 65536)), 1.0f / (1.0f - a.dropout)};
}
__device__ inline float drop_factor(const Drop& drop, uint4 call, int key) {
  const uint32_t x = word_of(call, key / 16 % 4);
  return (key / 64 % 2 ? x >> 16 : x & 0xFFFF) >= drop.threshold ? drop.keep : 0.0f;
}
// The factors of a thread's four keys of a tile that begins at `key`.
template <class G>
__device__ void drop_factors(const Drop& drop, uint64_t seed, int64_t row, int key,
                             float (&factor)[4]) {
  static_assert(G::TX == 8 || G::TX == 16);
  const uint4 even = drop_call(seed, row, key + G::key(0));
  const uint4 odd = G::TX == 16 ? even : drop_call(seed, row, key + G::key(1));
#pragma unroll
  for (int j = 0; j < 4; ++j)
    factor[j] = drop_factor(drop, j % 2 == 0 ? even : odd, key + G::key(j));
}

// ---- launching

// Calls f with the size of a tile's rows, 32, 64, 128 or 256, as a constant.
template <class F>
void with_width(int64_t n, F f) {
  if (n <= 32) return f(std::integral_constant<int, 32>());
  if (n <= 64) return f(std::integral_constant<int, 64>());
  if (n <= 128) return f(std::integral_constant<int, 128>());
  if (n <= 256) return f(std::integral_constant<int, 256>());
  fail("attention: heads of ", n, " numbers; on the GPU they have 256 at most");
}

}  // namespace heed::kernels
