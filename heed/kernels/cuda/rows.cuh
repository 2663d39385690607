// What the kernels that work row by row share: rows in the registers of a warp, rows of a block,
// sums down columns.
#pragma once

#include <type_traits>

#include "heed/kernels/cuda/device.cuh"

namespace heed::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

__device__ inline int lane() { return threadIdx.x % kWarp; }
__device__ inline int warp() { return threadIdx.x / kWarp; }

// ---- a row in the registers of a warp: pack p of a lane holds V columns from (32 p + lane) V on

template <int V>
__device__ int column(int p) {
  return (p * kWarp + lane()) * V;
}
// n is a multiple of V and not 0. Behind the end of the row stands `none`; the row's beginning is
// read there, since with branches each load would wait for the one before.
template <int V, int P, class T>
__device__ void load_row(const T* x, int n, float none, float (&v)[P][V]) {
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const bool inside = column<V>(p) < n;
    load<V>(x + (inside ? column<V>(p) : 0), v[p]);
#pragma unroll
    for (int i = 0; i < V; ++i) v[p][i] = inside ? v[p][i] : none;
  }
}
template <int V, int P, class T>
__device__ void store_row(const float (&v)[P][V], int n, T* y) {
#pragma unroll
  for (int p = 0; p < P; ++p)
    if (column<V>(p) < n) store<V>(v[p], y + column<V>(p));
}

template <int x>
using Int = std::integral_constant<int, x>;

// Calls body(V, P) with a shape that holds rows of n in a warp; false where they are too long.
template <class Body>
bool in_warp(int64_t n, bool packed, Body body) {
  if (packed && n % 4 == 0) {
    if (n <= 128) return body(Int<4>{}, Int<1>{}), true;
    if (n <= 256) return body(Int<4>{}, Int<2>{}), true;
    if (n <= 512) return body(Int<4>{}, Int<4>{}), true;
    if (n <= 1024) return body(Int<4>{}, Int<8>{}), true;
    return false;
  }
  if (n <= 64) return body(Int<1>{}, Int<2>{}), true;
  if (n <= 256) return body(Int<1>{}, Int<8>{}), true;
  return false;
}
template <class... T>
bool aligned_to_4(const T*... p) {
  return (... && aligned(p, 4 * int64_t{sizeof(T)}));
}
inline unsigned warp_blocks(int64_t rows) { return static_cast<unsigned>(ceil_div(rows, kWarps)); }
// Threads for a block that takes a row of n.
inline int row_threads(int64_t n) { return n >= 16384 ? 1024 : n >= 4096 ? 512 : 256; }

// ---- a row that is the work of a block

// Calls body(j, v) for the V columns from j on of all that is this thread's, two loads at a time.
template <int V, class T, class Body>
__device__ void for_columns(const T* x, int64_t n, Body body) {
  const int64_t step = blockDim.x * V;
  for (int64_t j = threadIdx.x * V; j < n; j += 2 * step) {
    float a[V], b[V];
    const bool two = j + step < n;
    load<V>(x + j, a);
    if (two) load<V>(x + j + step, b);
    body(j, a);
    if (two) body(j + step, b);
  }
}

// ---- sums down columns

// y[o, split, j] = the sum over rows [split * share, (split + 1) * share) of x[o, n, inner]. A
// block takes 32 V columns; its warps take rows in turn. What belongs to columns from `first` on
// goes to `more`, where there is one.
template <int V, int W, class X, class Y>
__global__ void __launch_bounds__(W* kWarp)
    column_sums(int64_t n, int64_t inner, int64_t splits, int64_t share, const X* x, Y* y,
                int64_t first, Y* more) {
  __shared__ float scratch[W][kWarp * V];
  const int64_t tiles = (inner + kWarp * V - 1) / (kWarp * V);
  const int64_t tile = blockIdx.x % tiles, item = blockIdx.x / tiles;  // item: (o, split)
  const int64_t begin = item % splits * share, end = n < begin + share ? n : begin + share;
  const int64_t j = (tile * kWarp + lane()) * V;
  float sum[V] = {};
  if (j < inner) {
    const X* from = x + item / splits * n * inner + j;
#pragma unroll 4
    for (int64_t i = begin + warp(); i < end; i += W) {
      float v[V];
      load<V>(from + i * inner, v);
#pragma unroll
      for (int c = 0; c < V; ++c) sum[c] += v[c];
    }
  }
#pragma unroll
  for (int c = 0; c < V; ++c) scratch[warp()][lane() * V + c] = sum[c];
  __syncthreads();
  const int64_t at = tile * kWarp * V + threadIdx.x;
  if (threadIdx.x >= kWarp * V || at >= inner) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < W; ++w) total += scratch[w][threadIdx.x];
  Y* to = more && at >= first ? more + (at - first) : y + item * inner + at;
  *to = narrow<Y>(total);
}

template <int V, int W, class X, class Y>
void launch_column_sums(Cuda device, int64_t outer, int64_t n, int64_t inner, int64_t splits,
                        int64_t share, const X* x, Y* y, int64_t first = 0, Y* more = nullptr) {
  const int64_t blocks = outer * splits * ceil_div(inner, kWarp * V);
  column_sums<V, W><<<static_cast<unsigned>(blocks), W * kWarp, 0, stream_of(device)>>>(
      n, inner, splits, share, x, y, first, more);
  launched("sum");
}

}  // namespace
}  // namespace heed::kernels
