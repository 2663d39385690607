// Kernels that work row by row on a GPU: sums, softmax, norms, cross entropy, table look-ups. A
// short row is held in the registers of one warp; a long one is the work of a block. What is summed
// over blocks goes through partial sums in scratch memory, in an order that depends on the sizes
// alone.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "heed/kernels/cuda/device.cuh"
#include "heed/kernels/cuda/parts.cuh"

namespace heed::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

__device__ int lane() { return threadIdx.x % kWarp; }
__device__ int warp() { return threadIdx.x / kWarp; }

// ---- a row in the registers of a warp: pack p of a lane holds V columns from (32 p + lane) V on

template <int V>
__device__ int column(int p) {
  return (p * kWarp + lane()) * V;
}
// n is a multiple of V. Behind the end of the row stands `none`.
template <int V, int P, class T>
__device__ void load_row(const T* x, int n, float none, float (&v)[P][V]) {
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (column<V>(p) < n) {
      load<V>(x + column<V>(p), v[p]);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) v[p][i] = none;
    }
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
unsigned warp_blocks(int64_t rows) { return static_cast<unsigned>(ceil_div(rows, kWarps)); }
// Threads for a block that takes a row of n.
int row_threads(int64_t n) { return n >= 16384 ? 1024 : n >= 4096 ? 512 : 256; }

// ---- sums of squares

// Blocks take chunks in turn. A thread squares 16 numbers of a chunk in f32 and adds up in double;
// the block that is done last adds up what all blocks found.
__device__ unsigned squares_done = 0;  // blocks; 0 again at the end of every launch

__global__ void __launch_bounds__(kThreads)
    sum_squares(const __grid_constant__ SumSquares<float> k, const __grid_constant__ Chunks chunks,
                double* partial) {
  __shared__ double room[kWarps];
  __shared__ bool last;
  double sum = 0;
  for (int64_t c = blockIdx.x; c < chunks.count(); c += gridDim.x) {
    const int at = chunks.part_of(c);
    const int64_t begin = chunks.begin(c, at), left = k.part[at].n - begin;
    const float* x = k.part[at].x + begin;
    const int n = static_cast<int>(left < kChunk ? left : kChunk);
    float s = 0;
    if (chunks.packed(at) && n == kChunk) {
      float v[kChunk / kThreads / 4][4];
#pragma unroll
      for (int i = 0; i < kChunk / kThreads / 4; ++i)
        load<4>(x + 4 * (i * kThreads + threadIdx.x), v[i]);
#pragma unroll
      for (int i = 0; i < kChunk / kThreads / 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) s = fmaf(v[i][j], v[i][j], s);
    } else {
      for (int i = threadIdx.x; i < n; i += kThreads) s = fmaf(x[i], x[i], s);
    }
    sum += s;
  }
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = sum;
    __threadfence();
    last = atomicAdd(&squares_done, 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  double total = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += kThreads) total += __ldcg(partial + i);
  total = block_sum(total, room);
  if (threadIdx.x == 0) {
    *k.sum = (k.add ? *k.sum : 0) + total;
    squares_done = 0;
  }
}

// ---- sums along an axis

// y[row, split] = the sum of numbers [split * share, (split + 1) * share) of a row, a warp each.
template <int V, class X, class Y>
__global__ void __launch_bounds__(kThreads)
    row_sums(int64_t rows, int64_t n, int64_t splits, int64_t share, const X* x, Y* y) {
  const int64_t item = int64_t{blockIdx.x} * kWarps + warp();
  if (item >= rows * splits) return;
  const int64_t begin = item % splits * share, end = n < begin + share ? n : begin + share;
  const X* from = x + item / splits * n;
  float sum[V] = {};
#pragma unroll 4
  for (int64_t j = begin + lane() * V; j < end; j += kWarp * V) {
    float v[V];
    load<V>(from + j, v);
#pragma unroll
    for (int i = 0; i < V; ++i) sum[i] += v[i];
  }
  float total = 0;
#pragma unroll
  for (int i = 0; i < V; ++i) total += sum[i];
  total = warp_sum(total);
  if (lane() == 0) y[item] = narrow<Y>(total);
}

template <class X, class Y>
void launch_row_sums(Cuda device, int64_t rows, int64_t n, int64_t splits, int64_t share,
                     const X* x, Y* y) {
  constexpr int V = kPack<X>;
  const bool packed = n % V == 0 && share % V == 0 && aligned(x, 16);
  const auto kernel = packed ? row_sums<V, X, Y> : row_sums<1, X, Y>;
  kernel<<<warp_blocks(rows * splits), kThreads, 0, stream_of(device)>>>(rows, n, splits, share, x,
                                                                         y);
  launched("sum");
}

// y[o, split, j] = the sum over rows [split * share, (split + 1) * share) of x[o, n, inner]. A
// block takes 32 V columns; its warps take rows in turn. What belongs to columns from `first` on
// goes to `more`, where there is one.
template <int V, int W, class X, class Y>
__global__ void __launch_bounds__(W* kWarp)
    column_sums(int64_t n, int64_t inner, int64_t splits, int64_t share, const X* x, Y* y,
                int64_t first, Y* more) {
  __shared__ float room[W][kWarp * V];
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
  for (int c = 0; c < V; ++c) room[warp()][lane() * V + c] = sum[c];
  __syncthreads();
  const int64_t at = tile * kWarp * V + threadIdx.x;
  if (threadIdx.x >= kWarp * V || at >= inner) return;
  float total = 0;
#pragma unroll
  for (int w = 0; w < W; ++w) total += room[w][threadIdx.x];
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

template <class T>
void launch(Cuda device, const Sum<T>& k) {
  if (k.outer == 0 || k.inner == 0) return;
  // Few sums of many numbers are cut, so that there is work for the whole GPU.
  const int64_t room = 132 * 4;
  if (k.inner == 1) {
    const int64_t most = std::max<int64_t>(1, room * kWarps / k.outer);
    const int64_t share = std::max<int64_t>(4096, ceil_div(ceil_div(k.n, most), 1024) * 1024);
    const int64_t splits = std::max<int64_t>(1, ceil_div(k.n, share));
    if (splits == 1) return launch_row_sums(device, k.outer, k.n, 1, share, k.x, k.y);
    auto* partial = static_cast<float*>(cuda_scratch(k.outer * splits * sizeof(float)));
    launch_row_sums(device, k.outer, k.n, splits, share, k.x, partial);
    return launch_row_sums(device, k.outer, splits, 1, splits, static_cast<const float*>(partial),
                           k.y);
  }
  const bool packed = k.inner % 4 == 0 && aligned_to_4(k.x);
  const auto sums = [&](int64_t splits, int64_t share, auto* y) {
    if (packed)
      launch_column_sums<4, kWarps>(device, k.outer, k.n, k.inner, splits, share, k.x, y);
    else
      launch_column_sums<1, kWarps>(device, k.outer, k.n, k.inner, splits, share, k.x, y);
  };
  const int64_t tiles = ceil_div(k.inner, packed ? 4 * kWarp : kWarp);
  const int64_t most = std::max<int64_t>(1, room / (k.outer * tiles));
  const int64_t share = std::max<int64_t>(4 * kWarps, ceil_div(k.n, most));
  const int64_t splits = std::max<int64_t>(1, ceil_div(k.n, share));
  if (splits == 1) return sums(1, share, k.y);
  auto* partial = static_cast<float*>(cuda_scratch(k.outer * splits * k.inner * sizeof(float)));
  sums(splits, share, partial);
  launch_column_sums<1, kWarp>(device, k.outer, splits, k.inner, 1, splits,
                               static_cast<const float*>(partial), k.y);
}

// ---- maxima

// The largest key of what this thread reads of a row: V columns at a time, blockDim.x V apart.
template <int V>
__device__ uint64_t best_key(const float* x, int64_t n) {
  uint64_t best = 0;
#pragma unroll 4
  for (int64_t j = threadIdx.x * V; j < n; j += blockDim.x * V) {
    float v[V];
    load<V>(x + j, v);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const uint64_t key = rank_key(v[i], static_cast<uint32_t>(j + i));
      best = key > best ? key : best;
    }
  }
  return best;
}

template <int V>
__global__ void __launch_bounds__(1024) max_rows(const __grid_constant__ Max<float> k) {
  __shared__ uint64_t room[kWarp];
  const int64_t row = blockIdx.x;
  const uint64_t best = block_max(best_key<V>(k.x + row * k.n, k.n), room);
  if (threadIdx.x == 0) k.index[row] = best ? static_cast<Id>(place_of(best)) : 0;  // all NaN: 0
}

// Sorts m keys (a power of two) in falling order, by the whole block (Batcher's bitonic sort).
__device__ void sort_keys(uint64_t* key, int m) {
  for (int run = 2; run <= m; run *= 2)
    for (int apart = run / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < m; i += blockDim.x) {
        const int j = i ^ apart;
        if (j < i) continue;
        const uint64_t a = key[i], b = key[j];
        if ((a < b) == ((i & run) == 0)) key[i] = b, key[j] = a;
      }
    }
  __syncthreads();
}

__device__ void write_top(const TopK<float>& k, int64_t row, int64_t at, uint64_t key) {
  const int64_t to = row * k.k + at;
  k.value[to] = key ? k.x[row * k.n + place_of(key)] : -INFINITY;
  k.index[to] = key ? static_cast<Id>(place_of(key)) : -1;
}

// Every thread finds the best of its part of the row. The k-th best of these bounds the k best of
// the row from below, and what reaches it lies with the k threads whose best reaches it: their
// parts, `capacity` numbers at most, are all that is looked at again and sorted. k is at most
// kTopThreads.
constexpr int kTopThreads = 1024;

template <int V>
__global__ void __launch_bounds__(kTopThreads) top_k(const __grid_constant__ TopK<float> k) {
  extern __shared__ uint64_t key[];  // [capacity], at least kTopThreads
  __shared__ int found;
  const int64_t row = blockIdx.x;
  const float* x = k.x + row * k.n;
  const uint64_t best = best_key<V>(x, k.n);
  key[threadIdx.x] = best;
  if (threadIdx.x == 0) found = 0;
  sort_keys(key, kTopThreads);
  const uint64_t bound = key[k.k - 1];
  __syncthreads();
  if (best && best >= bound)
    for (int64_t j = threadIdx.x * V; j < k.n; j += kTopThreads * V) {
      float v[V];
      load<V>(x + j, v);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const uint64_t next = rank_key(v[i], static_cast<uint32_t>(j + i));
        if (next && next >= bound) key[atomicAdd(&found, 1)] = next;  // any order: sorted below
      }
    }
  __syncthreads();
  int m = 1;
  while (m < found) m *= 2;
  for (int i = found + threadIdx.x; i < m; i += kTopThreads) key[i] = 0;
  const int count = found;
  sort_keys(key, m);
  for (int64_t i = threadIdx.x; i < k.k; i += kTopThreads)
    write_top(k, row, i, i < count ? key[i] : 0);
}

// For any k: one after the other, a pass over the row each.
__global__ void __launch_bounds__(1024) top_k_slow(const __grid_constant__ TopK<float> k) {
  __shared__ uint64_t room[kWarp];
  const int64_t row = blockIdx.x;
  uint64_t above = ~uint64_t{0};
  for (int64_t i = 0; i < k.k; ++i) {
    uint64_t best = 0;
    for (int64_t j = threadIdx.x; j < k.n; j += blockDim.x) {
      const uint64_t key = rank_key(k.x[row * k.n + j], static_cast<uint32_t>(j));
      if (key < above && key > best) best = key;
    }
    above = block_max(best, room);
    if (threadIdx.x == 0) write_top(k, row, i, above);
  }
}

// ---- softmax

// The largest of some numbers and the sum of exp(x - largest). A NaN shows in the sum; as long as
// all are -inf the sum is 0.
struct Online {
  float most = -INFINITY, sum = 0;
  template <int V>
  __device__ void add(const float (&v)[V]) {
    float larger = most;
#pragma unroll
    for (int i = 0; i < V; ++i) larger = fmaxf(larger, v[i]);
    if (larger == -INFINITY) {
#pragma unroll
      for (int i = 0; i < V; ++i)
        if (v[i] != v[i]) sum = NAN;
      return;
    }
    sum *= expf(most - larger);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += expf(v[i] - larger);
    most = larger;
  }
  __device__ void add(const Online& b) {
    const float larger = fmaxf(most, b.most);
    if (larger == -INFINITY)
      sum += b.sum;
    else
      sum = sum * expf(most - larger) + b.sum * expf(b.most - larger);
    most = larger;
  }
};

__device__ Online warp_online(Online x) {
  for (int i = kWarp / 2; i > 0; i /= 2)
    x.add(Online{__shfl_xor_sync(~0u, x.most, i), __shfl_xor_sync(~0u, x.sum, i)});
  return x;
}
__device__ Online block_online(Online x, float (&room)[2][kWarp]) {
  x = warp_online(x);
  __syncthreads();
  if (lane() == 0) room[0][warp()] = x.most, room[1][warp()] = x.sum;
  __syncthreads();
  return warp_online(lane() < int(blockDim.x) / kWarp ? Online{room[0][lane()], room[1][lane()]}
                                                      : Online{});
}

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

template <int V, int P, bool log, class T>
__global__ void __launch_bounds__(kThreads) softmax_warp(const __grid_constant__ Softmax<T> k) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + warp();
  if (row >= k.rows) return;
  const int n = static_cast<int>(k.n);
  float v[P][V];
  load_row(k.x + row * n, n, -INFINITY, v);
  float most = -INFINITY;
  bool broken = false;
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int i = 0; i < V; ++i) {
      most = fmaxf(most, v[p][i]);
      broken = broken || v[p][i] != v[p][i];
    }
  most = warp_max(most);
  broken = __any_sync(~0u, broken);
  // Nothing but -inf gives 0 (log: -inf), and a NaN makes all of the row one.
  const bool plain = !broken && most != -INFINITY;
  const float other = broken ? NAN : log ? -INFINITY : 0;
  float sum = 0;
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float e = expf(v[p][i] - most);
      if (!log) v[p][i] = e;
      sum += e;
    }
  sum = warp_sum(sum);
  const float factor = 1 / sum, shift = most + logf(sum);
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int i = 0; i < V; ++i)
      v[p][i] = plain ? (log ? v[p][i] - shift : v[p][i] * factor) : other;
  store_row(v, n, k.y + row * n);
}

template <int V, class T>
__global__ void __launch_bounds__(1024) softmax_block(const __grid_constant__ Softmax<T> k) {
  __shared__ float room[2][kWarp];
  const T* x = k.x + blockIdx.x * k.n;
  T* y = k.y + blockIdx.x * k.n;
  Online all;
  for_columns<V>(x, k.n, [&](int64_t, const float(&v)[V]) { all.add(v); });
  all = block_online(all, room);
  const bool plain = all.most != -INFINITY;
  const float other = all.sum != all.sum ? NAN : k.log ? -INFINITY : 0;
  const float factor = 1 / all.sum, shift = all.most + logf(all.sum);
  for_columns<V>(x, k.n, [&](int64_t j, float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i)
      v[i] = !plain ? other : k.log ? v[i] - shift : expf(v[i] - all.most) * factor;
    store<V>(v, y + j);
  });
}

template <class T>
void launch(Cuda device, const Softmax<T>& k) {
  if (k.rows == 0 || k.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  const bool held = in_warp(k.n, aligned_to_4(k.x, k.y), [&](auto V, auto P) {
    const auto kernel = k.log ? softmax_warp<V(), P(), true, T> : softmax_warp<V(), P(), false, T>;
    kernel<<<warp_blocks(k.rows), kThreads, 0, stream>>>(k);
  });
  if (!held) {
    constexpr int V = kPack<T>;
    const bool packed = k.n % V == 0 && aligned(k.x, 16) && aligned(k.y, 16);
    const auto kernel = packed ? softmax_block<V, T> : softmax_block<1, T>;
    kernel<<<static_cast<unsigned>(k.rows), row_threads(k.n), 0, stream>>>(k);
  }
  launched("softmax");
}

template <bool log>
__device__ float softmax_term(float y, float dy) {
  return log ? dy : y * dy;
}
template <bool log>
__device__ float softmax_grad(float y, float dy, float sum) {
  return log ? fmaf(-expf(y), sum, dy) : y * (dy - sum);
}

template <int V, int P, bool log, class T>
__global__ void __launch_bounds__(kThreads)
    softmax_grad_warp(const __grid_constant__ SoftmaxGrad<T> k) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + warp();
  if (row >= k.rows) return;
  const int n = static_cast<int>(k.n);
  float y[P][V], dy[P][V];
  load_row(k.y + row * n, n, 0, y);
  load_row(k.dy + row * n, n, 0, dy);
  float sum = 0;
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int i = 0; i < V; ++i) sum += softmax_term<log>(y[p][i], dy[p][i]);
  sum = warp_sum(sum);
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int i = 0; i < V; ++i) dy[p][i] = softmax_grad<log>(y[p][i], dy[p][i], sum);
  store_row(dy, n, k.dx + row * n);
}

template <int V, bool log, class T>
__global__ void __launch_bounds__(1024)
    softmax_grad_block(const __grid_constant__ SoftmaxGrad<T> k) {
  __shared__ float room[kWarp];
  const T *y = k.y + blockIdx.x * k.n, *dy = k.dy + blockIdx.x * k.n;
  T* dx = k.dx + blockIdx.x * k.n;
  float sum = 0;
  for_columns<V>(y, k.n, [&](int64_t j, const float(&v)[V]) {
    float g[V];
    load<V>(dy + j, g);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += softmax_term<log>(v[i], g[i]);
  });
  sum = block_sum(sum, room);
  for_columns<V>(y, k.n, [&](int64_t j, const float(&v)[V]) {
    float g[V];
    load<V>(dy + j, g);
#pragma unroll
    for (int i = 0; i < V; ++i) g[i] = softmax_grad<log>(v[i], g[i], sum);
    store<V>(g, dx + j);
  });
}

template <class T>
void launch(Cuda device, const SoftmaxGrad<T>& k) {
  if (k.rows == 0 || k.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  const bool held = in_warp(k.n, aligned_to_4(k.y, k.dy, k.dx), [&](auto V, auto P) {
    const auto kernel =
        k.log ? softmax_grad_warp<V(), P(), true, T> : softmax_grad_warp<V(), P(), false, T>;
    kernel<<<warp_blocks(k.rows), kThreads, 0, stream>>>(k);
  });
  if (!held) {
    constexpr int V = kPack<T>;
    const bool packed = k.n % V == 0 && aligned(k.y, 16) && aligned(k.dy, 16) && aligned(k.dx, 16);
    const auto kernel =
        packed ? (k.log ? softmax_grad_block<V, true, T> : softmax_grad_block<V, false, T>)
               : (k.log ? softmax_grad_block<1, true, T> : softmax_grad_block<1, false, T>);
    kernel<<<static_cast<unsigned>(k.rows), row_threads(k.n), 0, stream>>>(k);
  }
  launched("softmax_grad");
}

// ---- norms

template <int V, class T>
__device__ void normalize(const Norm<T>& k, int64_t j, float mean, float r, float (&v)[V]) {
  float gain[V], bias[V] = {};
  load<V>(k.gain + j, gain);
  if (k.centered) load<V>(k.bias + j, bias);
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] = fmaf((v[i] - mean) * r, gain[i], bias[i]);
}

template <int V, int P, class T>
__global__ void __launch_bounds__(kThreads) norm_warp(const __grid_constant__ Norm<T> k) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + warp();
  if (row >= k.rows) return;
  const int n = static_cast<int>(k.n);
  float v[P][V];
  load_row(k.x + row * n, n, 0, v);
  float mean = 0;
  if (k.centered) {
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < V; ++i) mean += v[p][i];
    mean = warp_sum(mean) / static_cast<float>(n);
  }
  float squares = 0;
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (column<V>(p) >= n) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) squares = fmaf(v[p][i] - mean, v[p][i] - mean, squares);
  }
  const float r = 1 / sqrtf(warp_sum(squares) / static_cast<float>(n) + k.epsilon);
#pragma unroll
  for (int p = 0; p < P; ++p)
    if (column<V>(p) < n) normalize(k, column<V>(p), mean, r, v[p]);
  store_row(v, n, k.y + row * n);
  if (lane() == 0) k.mean[row] = mean, k.r[row] = r;
}

template <int V, class T>
__global__ void __launch_bounds__(1024) norm_block(const __grid_constant__ Norm<T> k) {
  __shared__ float room[kWarp];
  const T* x = k.x + blockIdx.x * k.n;
  T* y = k.y + blockIdx.x * k.n;
  float mean = 0, squares = 0;
  if (k.centered) {
    for_columns<V>(x, k.n, [&](int64_t, const float(&v)[V]) {
#pragma unroll
      for (int i = 0; i < V; ++i) mean += v[i];
    });
    mean = block_sum(mean, room) / static_cast<float>(k.n);
  }
  for_columns<V>(x, k.n, [&](int64_t, const float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) squares = fmaf(v[i] - mean, v[i] - mean, squares);
  });
  const float r = 1 / sqrtf(block_sum(squares, room) / static_cast<float>(k.n) + k.epsilon);
  for_columns<V>(x, k.n, [&](int64_t j, float(&v)[V]) {
    normalize(k, j, mean, r, v);
    store<V>(v, y + j);
  });
  if (threadIdx.x == 0) k.mean[blockIdx.x] = mean, k.r[blockIdx.x] = r;
}

template <class T>
void launch(Cuda device, const Norm<T>& k) {
  if (k.rows == 0 || k.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  const bool packed = aligned_to_4(k.x, k.y) && aligned_to_4(k.gain, k.bias);
  const bool held = in_warp(k.n, packed, [&](auto V, auto P) {
    norm_warp<V(), P(), T><<<warp_blocks(k.rows), kThreads, 0, stream>>>(k);
  });
  if (!held) {
    const auto kernel = packed && k.n % 4 == 0 ? norm_block<4, T> : norm_block<1, T>;
    kernel<<<static_cast<unsigned>(k.rows), row_threads(k.n), 0, stream>>>(k);
  }
  launched("norm");
}

// With xh = (x - mean) r and g = dy gain:  dx = r (g - mean(g) - xh mean(g xh)); RMS norm has no
// mean(g). dgain = sum over rows of dy xh, dbias of dy: every block leaves a partial row of both,
// [dgain | dbias], which column_sums then adds up. Block b takes rows b kWarps + warp, + all warps,
// ...
template <int V, int P, class T>
__global__ void __launch_bounds__(kThreads)
    norm_grad_warp(const __grid_constant__ NormGrad<T> k, float* partial) {
  __shared__ float room[kWarps][kWarp * V * P];
  const int n = static_cast<int>(k.n);
  float gain[P][V], dgain[P][V] = {}, dbias[P][V] = {};
  load_row(k.gain, n, 0, gain);
  for (int64_t row = int64_t{blockIdx.x} * kWarps + warp(); row < k.rows;
       row += int64_t{gridDim.x} * kWarps) {
    float x[P][V], dy[P][V];
    load_row(k.x + row * n, n, 0, x);
    load_row(k.dy + row * n, n, 0, dy);
    const float mean = k.mean[row], r = k.r[row];
    float a = 0, b = 0;
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float xh = (x[p][i] - mean) * r, g = dy[p][i] * gain[p][i];
        a += g;
        b = fmaf(g, xh, b);
        dgain[p][i] = fmaf(dy[p][i], xh, dgain[p][i]);
        dbias[p][i] += dy[p][i];
        x[p][i] = xh;
        dy[p][i] = g;
      }
    a = k.centered ? warp_sum(a) / static_cast<float>(n) : 0;
    b = warp_sum(b) / static_cast<float>(n);
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < V; ++i) x[p][i] = r * fmaf(-x[p][i], b, dy[p][i] - a);
    store_row(x, n, k.dx + row * n);
  }
  const auto leave = [&](const float(&sum)[P][V], float* to) {
    __syncthreads();
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < V; ++i) room[warp()][column<V>(p) + i] = sum[p][i];
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += kThreads) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += room[w][j];
      to[j] = total;
    }
  };
  partial += int64_t{blockIdx.x} * (k.dbias ? 2 : 1) * n;
  leave(dgain, partial);
  if (k.dbias) leave(dbias, partial + n);
}

// Long rows: a block takes a row after the other, and a thread adds to its own columns of
// `partial`.
template <int V, class T>
__global__ void __launch_bounds__(1024)
    norm_grad_block(const __grid_constant__ NormGrad<T> k, float* partial) {
  __shared__ float room[kWarp];
  float* dgain = partial + int64_t{blockIdx.x} * (k.dbias ? 2 : 1) * k.n;
  for (int64_t row = blockIdx.x; row < k.rows; row += gridDim.x) {
    const T *x = k.x + row * k.n, *dy = k.dy + row * k.n;
    T* dx = k.dx + row * k.n;
    const float mean = k.mean[row], r = k.r[row];
    const bool first = row == blockIdx.x;
    float a = 0, b = 0;
    for_columns<V>(x, k.n, [&](int64_t j, const float(&v)[V]) {
      float dv[V], gain[V], dg[V] = {}, db[V] = {};
      load<V>(dy + j, dv);
      load<V>(k.gain + j, gain);
      if (!first) load<V>(dgain + j, dg);
      if (!first && k.dbias) load<V>(dgain + k.n + j, db);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float xh = (v[i] - mean) * r, g = dv[i] * gain[i];
        a += g;
        b = fmaf(g, xh, b);
        dg[i] = fmaf(dv[i], xh, dg[i]);
        db[i] += dv[i];
      }
      store<V>(dg, dgain + j);
      if (k.dbias) store<V>(db, dgain + k.n + j);
    });
    a = block_sum(a, room);
    b = block_sum(b, room) / static_cast<float>(k.n);
    a = k.centered ? a / static_cast<float>(k.n) : 0;
    for_columns<V>(x, k.n, [&](int64_t j, float(&v)[V]) {
      float dv[V], gain[V];
      load<V>(dy + j, dv);
      load<V>(k.gain + j, gain);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float xh = (v[i] - mean) * r;
        v[i] = r * fmaf(-xh, b, fmaf(dv[i], gain[i], -a));
      }
      store<V>(v, dx + j);
    });
  }
}

template <class T>
void launch(Cuda device, const NormGrad<T>& k) {
  if (k.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  const int64_t width = (k.dbias ? 2 : 1) * k.n;
  const auto room = [&](int64_t count) {
    return static_cast<float*>(cuda_scratch(std::max<int64_t>(1, count) * width * sizeof(float)));
  };
  const bool packed = aligned_to_4(k.x, k.dy, k.dx) && aligned_to_4(k.gain);
  int64_t blocks = 0;
  float* partial = nullptr;
  const bool held = in_warp(k.n, packed, [&](auto V, auto P) {
    blocks = std::min<int64_t>(ceil_div(k.rows, kWarps), V() * P() > 16 ? 132 : 264);
    partial = room(blocks);
    if (blocks > 0)
      norm_grad_warp<V(), P(), T>
          <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(k, partial);
  });
  if (!held) {
    blocks = std::min<int64_t>(k.rows, 264);
    partial = room(blocks);
    const auto kernel = packed && k.n % 4 == 0 ? norm_grad_block<4, T> : norm_grad_block<1, T>;
    if (blocks > 0)
      kernel<<<static_cast<unsigned>(blocks), row_threads(k.n), 0, stream>>>(k, partial);
  }
  launched("norm_grad");
  launch_column_sums<1, kWarp>(device, 1, blocks, width, 1, blocks,
                               static_cast<const float*>(partial), k.dgain, k.n, k.dbias);
}

// ---- cross entropy

// A block reads its row twice; the second time it lies in the L2 cache, since no more than two rows
// a multiprocessor are under way.
template <int V, class T>
__global__ void __launch_bounds__(1024) cross_entropy(const __grid_constant__ CrossEntropy<T> k) {
  __shared__ float room[2][kWarp];
  __shared__ float sum_room[kWarp];
  const int64_t row = blockIdx.x;
  const T* x = k.logits + row * k.n;
  T* dx = k.d_logits ? k.d_logits + row * k.n : nullptr;
  const Id target = k.target[row];
  if (target < 0) {
    if (threadIdx.x == 0) k.loss[row] = 0;
    const float zero[V] = {};
    if (dx)
      for (int64_t j = threadIdx.x * V; j < k.n; j += blockDim.x * V) store<V>(zero, dx + j);
    return;
  }
  const float x_target = wide(x[target]);
  const bool smooth = k.smoothing != 0;
  Online all;
  float sum = 0;
  for_columns<V>(x, k.n, [&](int64_t, const float(&v)[V]) {
    all.add(v);
    if (!smooth) return;
#pragma unroll
    for (int i = 0; i < V; ++i) sum += v[i];
  });
  all = block_online(all, room);
  if (smooth) sum = block_sum(sum, sum_room);
  const float e = k.smoothing, log_sum = logf(all.sum);
  // -log p_j = log_sum - (x_j - most)
  if (threadIdx.x == 0)
    k.loss[row] = (1 - e) * (log_sum - (x_target - all.most)) +
                  (smooth ? e * (log_sum - (sum / static_cast<float>(k.n) - all.most)) : 0);
  if (!dx) return;
  const float factor = k.scale / all.sum, less = k.scale * (e / static_cast<float>(k.n));
  const float hit = k.scale * (1 - e);
  for_columns<V>(x, k.n, [&](int64_t j, float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      v[i] = fmaf(expf(v[i] - all.most), factor, -less);
      if (j + i == target) v[i] -= hit;
    }
    store<V>(v, dx + j);
  });
}

template <class T>
void launch(Cuda device, const CrossEntropy<T>& k) {
  if (k.rows == 0) return;
  constexpr int V = kPack<T>;
  const bool packed = k.n % V == 0 && aligned(k.logits, 16) && aligned(k.d_logits, 16);
  const auto kernel = packed ? cross_entropy<V, T> : cross_entropy<1, T>;
  kernel<<<static_cast<unsigned>(k.rows), row_threads(k.n), 0, stream_of(device)>>>(k);
  launched("cross_entropy");
}

// ---- tables

// y[i] = table[id[i]], rows of n moved as bits, a warp each.
template <class S>
__global__ void __launch_bounds__(kThreads)
    gather(int64_t count, int64_t n, const S* table, const Id* id, S* y) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + warp();
  if (i >= count) return;
  const S* from = table + id[i] * n;
#pragma unroll 4
  for (int64_t j = lane(); j < n; j += kWarp) y[i * n + j] = from[j];
}

template <class T>
void launch(Cuda device, const Gather<T>& k) {
  if (k.count == 0 || k.n == 0) return;
  const auto move = [&]<class S>(S) {
    gather<S><<<warp_blocks(k.count), kThreads, 0, stream_of(device)>>>(
        k.count, k.n * int64_t{sizeof(T)} / int64_t{sizeof(S)}, reinterpret_cast<const S*>(k.table),
        k.id, reinterpret_cast<S*>(k.y));
  };
  if (k.n % kPack<T> == 0 && aligned(k.table, 16) && aligned(k.y, 16))
    move(uint4{});
  else if constexpr (sizeof(T) == 2)
    move(uint16_t{});
  else
    move(uint32_t{});
  launched("gather");
}

// table[id[i]] += x[i] without atomics: the rows are sorted by id, equal ids in rising order, and
// every id's rows are added up in that order, in runs of kRun places of the sorted list: first each
// run by itself, then over the ends of runs. Which sums are made depends on the ids alone.
constexpr int kRun = 32, kSlice = 16384, kRanked = 4;

// The place of every i in the sorted list is how many come before it: the ids below its own, and
// the equal ones before i. A warp counts for kRanked i at once; count^2 comparisons, 13,000^2 of
// which are some 15 us, and no pass waits for another.
__global__ void __launch_bounds__(kThreads)
    rank_ids(int count, const Id* id, int* sorted_id, int* sorted_i) {
  const int first = (blockIdx.x * kWarps + warp()) * kRanked;
  if (first >= count) return;
  Id mine[kRanked];
  int before[kRanked] = {};
#pragma unroll
  for (int r = 0; r < kRanked; ++r) mine[r] = id[min(first + r, count - 1)];
  const int diagonal =
      first / kWarp * kWarp;  // kRanked divides kWarp: all of `first` + r lie behind it
#pragma unroll 4
  for (int j = lane(); j < diagonal; j += kWarp) {
    const Id other = id[j];
#pragma unroll
    for (int r = 0; r < kRanked; ++r) before[r] += other <= mine[r];
  }
  if (const int j = diagonal + lane(); j < count) {
    const Id other = id[j];
#pragma unroll
    for (int r = 0; r < kRanked; ++r)
      before[r] += j < first + r ? other <= mine[r] : other < mine[r];
  }
#pragma unroll 4
  for (int j = diagonal + kWarp + lane(); j < count; j += kWarp) {
    const Id other = id[j];
#pragma unroll
    for (int r = 0; r < kRanked; ++r) before[r] += other < mine[r];
  }
#pragma unroll
  for (int r = 0; r < kRanked; ++r) {
    const int place = __reduce_add_sync(~0u, before[r]);
    if (lane() == 0 && first + r < count) sorted_id[place] = mine[r], sorted_i[place] = first + r;
  }
}

// table[row] += sum, for V columns.
template <int V>
__device__ void add_to(float* to, const float (&sum)[V]) {
  float v[V];
  load<V>(to, v);
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] += sum[i];
  store<V>(v, to);
}

// A warp takes a run of the sorted list and 32 V columns. An id whose rows all lie in the run is
// done here; of one that came into the run from before (partial[run][0]) or goes on behind it
// (partial[run][1]) the sum of this run is left.
template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    scatter_runs(int count, int64_t n, const T* x, const int* sorted_id, const int* sorted_i,
                 float* partial, float* table) {
  constexpr int kAhead = 8;  // rows under way
  const int run = blockIdx.x * kWarps + warp();
  const int begin = run * kRun, length = min(kRun, count - begin);
  if (length <= 0) return;
  const int64_t j = (int64_t{blockIdx.y} * kWarp + lane()) * V;
  const bool inside = j < n;
  const int at = begin + min(lane(), length - 1);
  const int my_id = sorted_id[at], my_i = sorted_i[at];
  const int id_before = begin > 0 ? sorted_id[begin - 1] : -1;
  const int id_behind = begin + length < count ? sorted_id[begin + length] : -1;
  float sum[V] = {};
  bool from_before = __shfl_sync(~0u, my_id, 0) == id_before;
  for (int q = 0; q < length; q += kAhead) {
    float v[kAhead][V];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int i = __shfl_sync(~0u, my_i, min(q + a, length - 1));
      if (inside && q + a < length) load<V>(x + i * n + j, v[a]);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (q + a >= length) break;
      const int id = __shfl_sync(~0u, my_id, q + a);
      const int next_id = __shfl_sync(~0u, my_id, min(q + a + 1, length - 1));
#pragma unroll
      for (int c = 0; c < V; ++c) sum[c] += v[a][c];
      const bool end = q + a + 1 == length;
      if (!end && next_id == id) continue;
      if (inside) {
        if (from_before)
          store<V>(sum, partial + 2 * int64_t{run} * n + j);
        else if (end && id_behind == id)
          store<V>(sum, partial + (2 * int64_t{run} + 1) * n + j);
        else
          add_to<V>(table + id * n + j, sum);
      }
      from_before = false;
#pragma unroll
      for (int c = 0; c < V; ++c) sum[c] = 0;
    }
  }
}

// Of every id that goes over the end of the run in which it began, adds up what the runs left.
template <int V>
__global__ void __launch_bounds__(kThreads)
    scatter_ends(int count, int64_t n, const int* sorted_id, const float* partial, float* table) {
  const int run = blockIdx.x * kWarps + warp(), begin = run * kRun, behind = begin + kRun;
  if (behind >= count) return;
  const int id = sorted_id[behind];
  if (sorted_id[behind - 1] != id || (begin > 0 && sorted_id[begin - 1] == id)) return;
  int last = run + 1;  // the last run that holds the id
  while (true) {
    const int next = last + 1 + lane();
    const bool goes_on = int64_t{next} * kRun < count && sorted_id[next * kRun] == id;
    const unsigned stops = __ballot_sync(~0u, !goes_on);
    last += stops ? __ffs(static_cast<int>(stops)) - 1 : kWarp;
    if (stops) break;
  }
  const int64_t j = (int64_t{blockIdx.y} * kWarp + lane()) * V;
  if (j >= n) return;
  float sum[V];
  load<V>(partial + (2 * int64_t{run} + 1) * n + j, sum);
#pragma unroll 8
  for (int r = run + 1; r <= last; ++r) {
    float v[V];
    load<V>(partial + 2 * int64_t{r} * n + j, v);
#pragma unroll
    for (int c = 0; c < V; ++c) sum[c] += v[c];
  }
  add_to<V>(table + id * n + j, sum);
}

template <class T>
void launch(Cuda device, const ScatterAdd<T>& k) {
  if (k.count == 0 || k.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  const bool packed = k.n % 4 == 0 && aligned_to_4(k.x) && aligned_to_4(k.table);
  // The sort is quadratic: slices, one behind the other.
  for (int64_t first = 0; first < k.count; first += kSlice) {
    const int count = static_cast<int>(std::min<int64_t>(kSlice, k.count - first));
    const int runs = static_cast<int>(ceil_div(count, kRun));
    auto* partial =
        static_cast<float*>(cuda_scratch(2 * sizeof(float) * runs * k.n + 2 * sizeof(int) * count));
    auto *sorted_id = reinterpret_cast<int*>(partial + 2 * runs * k.n),
         *sorted_i = sorted_id + count;
    rank_ids<<<static_cast<unsigned>(ceil_div(count, kWarps * kRanked)), kThreads, 0, stream>>>(
        count, k.id + first, sorted_id, sorted_i);
    const auto add = [&](auto V) {
      const dim3 grid(warp_blocks(runs), static_cast<unsigned>(ceil_div(k.n, kWarp * V())));
      scatter_runs<V(), T><<<grid, kThreads, 0, stream>>>(count, k.n, k.x + first * k.n, sorted_id,
                                                          sorted_i, partial, k.table);
      scatter_ends<V()><<<grid, kThreads, 0, stream>>>(count, k.n, sorted_id, partial, k.table);
    };
    packed ? add(Int<4>{}) : add(Int<1>{});
    launched("scatter_add");
  }
}

// ---- rotary positions

// A thread has one pair of columns of one place, for all heads: the angle is made once, in double.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotary(const __grid_constant__ Rotary<T> k, double log2_base) {
  const int64_t half = k.n / 2, item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= k.batch * k.length * half) return;
  const int64_t i = item % half, place = item / half, t = place % k.length;
  const double turn = exp2(-2.0 * static_cast<double>(i) / static_cast<double>(k.n) * log2_base);
  double s, c;
  sincos(static_cast<double>(k.first + t) * turn, &s, &c);
  const float cosine = static_cast<float>(c), sine = static_cast<float>(k.backward ? -s : s);
  const T* x = k.x + place * k.heads * k.n + i;
  T* y = k.y + place * k.heads * k.n + i;
#pragma unroll 4
  for (int64_t h = 0; h < k.heads; ++h) {
    const float a = wide(x[h * k.n]), b = wide(x[h * k.n + half]);
    y[h * k.n] = narrow<T>(a * cosine - b * sine);
    y[h * k.n + half] = narrow<T>(a * sine + b * cosine);
  }
}

template <class T>
void launch(Cuda device, const Rotary<T>& k) {
  const int64_t items = k.batch * k.length * (k.n / 2);
  if (items == 0 || k.heads == 0) return;
  rotary<<<static_cast<unsigned>(ceil_div(items, kThreads)), kThreads, 0, stream_of(device)>>>(
      k, std::log2(static_cast<double>(k.base)));
  launched("rotary");
}

}  // namespace

// ---- run

#define HEED_RUN(Name)                                               \
  void run(Cuda device, const Name<float>& k) { launch(device, k); } \
  void run(Cuda device, const Name<bf16>& k) { launch(device, k); }
HEED_RUN(Sum)
HEED_RUN(Softmax)
HEED_RUN(SoftmaxGrad)
HEED_RUN(Norm)
HEED_RUN(NormGrad)
HEED_RUN(CrossEntropy)
HEED_RUN(Gather)
HEED_RUN(ScatterAdd)
HEED_RUN(Rotary)
#undef HEED_RUN

void run(Cuda device, const SumSquares<float>& k) {
  Chunks chunks;
  for (int i = 0; i < k.count; ++i) chunks.add(k.part[i].n, aligned(k.part[i].x, 16));
  const unsigned grid = grid_for(chunks.count(), 1, 132 * 8);
  auto* partial = static_cast<double*>(cuda_scratch(grid * sizeof(double)));
  sum_squares<<<grid, kThreads, 0, stream_of(device)>>>(k, chunks, partial);
  launched("sum_squares");
}

void run(Cuda device, const Max<float>& k) {
  if (k.rows == 0 || k.n == 0) return;
  const auto kernel = k.n % 4 == 0 && aligned(k.x, 16) ? max_rows<4> : max_rows<1>;
  kernel<<<static_cast<unsigned>(k.rows), row_threads(k.n), 0, stream_of(device)>>>(k);
  launched("max");
}

void run(Cuda device, const TopK<float>& k) {
  if (k.rows == 0 || k.k == 0) return;
  const bool packed = k.n % 4 == 0 && aligned(k.x, 16);
  const int V = packed ? 4 : 1;
  // What k threads can hold, up to the power of two that is sorted.
  int64_t capacity = kTopThreads;
  while (capacity < k.k * ceil_div(k.n, kTopThreads * V) * V) capacity *= 2;
  const int64_t bytes = capacity * int64_t{sizeof(uint64_t)};
  if (k.k > kTopThreads || bytes > 200 << 10) {
    top_k_slow<<<static_cast<unsigned>(k.rows), row_threads(k.n), 0, stream_of(device)>>>(k);
  } else {
    const auto kernel = packed ? top_k<4> : top_k<1>;
    if (bytes > 40 << 10)
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(bytes));
    kernel<<<static_cast<unsigned>(k.rows), kTopThreads, static_cast<size_t>(bytes),
             stream_of(device)>>>(k);
  }
  launched("top_k");
}

}  // namespace heed::kernels
