// Kernels that work row by row on a GPU: sums, maxima, softmax, cross entropy. A short row is held
// in the registers of one warp; a long one is the work of a block, which takes its maximum and sum
// of exponentials in one pass (online softmax, Milakov and Gimelshein, 2018). What is summed over
// blocks goes through partial sums in scratch memory, in an order that depends on the sizes alone.
#include "heed/kernels/cuda/rows.cuh"

#include <algorithm>

#include "heed/kernels/cuda/parts.cuh"

namespace heed::kernels {
namespace {

// ---- sums of squares

// Blocks take chunks. A thread squares 16 elements of a chunk in f32 and adds up in double;
// the block that is done last adds up what all blocks found.
__device__ unsigned squares_done = 0;  // blocks; 0 again at the end of every launch

__global__ void __launch_bounds__(kThreads)
    sum_squares(const __grid_constant__ SumSquares<float> k, const __grid_constant__ Chunks chunks,
                double* partial) {
  __shared__ double scratch[kWarps];
  __shared__ bool last;
  double sum = 0;
  chunks.each([&](int part, int64_t begin) {
    const float* x = k.part[part].x + begin;
    const int n = static_cast<int>(min(k.part[part].n - begin, int64_t{kChunk}));
    float s = 0;
    if (chunks.packed(part) && n == kChunk) {
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
  });
  sum = block_sum(sum, scratch);
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
  total = block_sum(total, scratch);
  if (threadIdx.x == 0) {
    *k.sum = (k.add ? *k.sum : 0) + total;
    squares_done = 0;
  }
}

// ---- sums along an axis

// y[row, split] = the sum of elements [split * share, (split + 1) * share) of a row, a warp each.
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

template <class T>
void launch(Cuda device, const Sum<T>& k) {
  if (k.outer == 0 || k.inner == 0) return;
  // Few sums of many elements are cut, so that there is work for the whole GPU.
  const int64_t resident = 4 * multiprocessors();  // blocks
  if (k.inner == 1) {
    const int64_t most = std::max<int64_t>(1, resident * kWarps / k.outer);
    const int64_t share = std::max<int64_t>(4096, ceil_div(ceil_div(k.n, most), 1024) * 1024);
    const int64_t splits = std::max<int64_t>(1, ceil_div(k.n, share));
    if (splits == 1) return launch_row_sums(device, k.outer, k.n, 1, share, k.x, k.y);
    auto* partial = static_cast<float*>(cuda_scratch(device, k.outer * splits * sizeof(float)));
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
  const int64_t most = std::max<int64_t>(1, resident / (k.outer * tiles));
  const int64_t share = std::max<int64_t>(4 * kWarps, ceil_div(k.n, most));
  const int64_t splits = std::max<int64_t>(1, ceil_div(k.n, share));
  if (splits == 1) return sums(1, share, k.y);
  auto* partial =
      static_cast<float*>(cuda_scratch(device, k.outer * splits * k.inner * sizeof(float)));
  sums(splits, share, partial);
  launch_column_sums<1, kWarp>(device, k.outer, splits, k.inner, 1, splits,
                               static_cast<const float*>(partial), k.y);
}

// ---- sums of rows of many matrices

// A block takes 32 columns of one matrix. A warp reads four rows of them at a time, and warps take
// rows in turn, in a fixed order.
constexpr int kSumColumns = 32, kSumWarps = 16;
struct SumTiles {  // of each matrix the first tile, and after the last
  int parts;
  int first[kMaxParts + 1];
};
template <class T>
__global__ void __launch_bounds__(kSumWarps* kWarp, 2)
    sum_rows(const __grid_constant__ SumRowsEach<T> k, const __grid_constant__ SumTiles tiles) {
  constexpr int V = 4, kLanes = kSumColumns / V, kRows = kWarp / kLanes;
  __shared__ float scratch[kSumWarps * kRows][kSumColumns];
  int at = 0, after = tiles.parts;
  while (after - at > 1) {
    const int middle = (at + after) / 2;
    (tiles.first[middle] <= static_cast<int>(blockIdx.x) ? at : after) = middle;
  }
  const int tile = static_cast<int>(blockIdx.x) - tiles.first[at];
  const RowsPart<T>& p = k.part[at];
  const int64_t first = int64_t{tile} * kSumColumns, column = first + lane() % kLanes * V;
  const bool packed = column + V <= p.n && p.x_row % V == 0 &&
                      reinterpret_cast<uintptr_t>(p.x) % (V * sizeof(T)) == 0;
  float sum[V] = {};
  constexpr int kAhead = 8, kStep = kSumWarps * kRows;  // rows under way, and from one to the next
  const int rows = static_cast<int>(p.rows);
  const T* x = p.x + column;
  int row = warp() * kRows + lane() / kLanes;
  if (packed) {
    // Nothing is decided between these loads: all of them are under way at once.
    for (; row + (kAhead - 1) * kStep < rows; row += kAhead * kStep) {
      float v[kAhead][V];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) load<V>(x + (row + a * kStep) * p.x_row, v[a]);
#pragma unroll
      for (int a = 0; a < kAhead; ++a)
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += v[a][i];
    }
  }
  for (; row < rows; row += kStep)
#pragma unroll
    for (int i = 0; i < V; ++i)
      if (column + i < p.n) sum[i] += wide(x[row * p.x_row + i]);
#pragma unroll
  for (int i = 0; i < V; ++i)
    scratch[warp() * kRows + lane() / kLanes][lane() % kLanes * V + i] = sum[i];
  __syncthreads();
  // Each warp adds four of the sums of its column, then the first one adds the warps'.
  float total = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) total += scratch[warp() * kRows + i][lane()];
  __syncthreads();
  scratch[warp()][lane()] = total;
  __syncthreads();
  if (warp() > 0 || first + lane() >= p.n) return;
  total = 0;
#pragma unroll
  for (int w = 0; w < kSumWarps; ++w) total += scratch[w][lane()];
  p.y[first + lane()] = total;
}

template <class T>
void launch(Cuda device, const SumRowsEach<T>& k) {
  SumTiles tiles{.parts = k.count, .first = {}};
  for (int i = 0; i < k.count; ++i)
    tiles.first[i + 1] = tiles.first[i] + static_cast<int>(ceil_div(k.part[i].n, kSumColumns));
  const auto blocks = static_cast<unsigned>(tiles.first[k.count]);
  if (blocks == 0) return;
  sum_rows<<<blocks, kSumWarps * kWarp, 0, stream_of(device)>>>(k, tiles);
  launched("sum_rows");
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
  __shared__ uint64_t scratch[kWarp];
  const int64_t row = blockIdx.x;
  const uint64_t best = block_max(best_key<V>(k.x + row * k.n, k.n), scratch);
  if (threadIdx.x == 0) k.index[row] = best ? static_cast<Id>(index_of(best)) : 0;  // all NaN: 0
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
  k.value[to] = key ? k.x[row * k.n + index_of(key)] : -INFINITY;
  k.index[to] = key ? static_cast<Id>(index_of(key)) : -1;
}

// Every thread finds the best of its part of the row. The k-th best of these bounds the k best of
// the row from below, and what reaches it lies with the k threads whose best reaches it: their
// parts, `capacity` elements at most, are all that is looked at again and sorted. k is at most
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
  __shared__ uint64_t scratch[kWarp];
  const int64_t row = blockIdx.x;
  uint64_t above = ~uint64_t{0};
  for (int64_t i = 0; i < k.k; ++i) {
    uint64_t best = 0;
    for (int64_t j = threadIdx.x; j < k.n; j += blockDim.x) {
      const uint64_t key = rank_key(k.x[row * k.n + j], static_cast<uint32_t>(j));
      if (key < above && key > best) best = key;
    }
    above = block_max(best, scratch);
    if (threadIdx.x == 0) write_top(k, row, i, above);
  }
}

// ---- softmax

// The online softmax: the largest of some elements and the sum of exp(x - largest). A NaN shows in
// the sum; as long as all are -inf the sum is 0.
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
__device__ Online block_online(Online x, float (&scratch)[2][kWarp]) {
  x = warp_online(x);
  __syncthreads();
  if (lane() == 0) scratch[0][warp()] = x.most, scratch[1][warp()] = x.sum;
  __syncthreads();
  return warp_online(
      lane() < int(blockDim.x) / kWarp ? Online{scratch[0][lane()], scratch[1][lane()]} : Online{});
}

template <int V, int P, bool log, class T>
__global__ void __launch_bounds__(kThreads) softmax_warp(const __grid_constant__ Softmax<T> k) {
  const int64_t row = int64_t{blockIdx.x} * kWarps + warp();
  if (row >= k.rows) return;
  const int n = static_cast<int>(k.n);
  float v[P][V];
  load_row(k.x + row * n, n, -INFINITY, v);
  float most = -INFINITY;
  bool has_nan = false;
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int i = 0; i < V; ++i) {
      most = fmaxf(most, v[p][i]);
      has_nan = has_nan || v[p][i] != v[p][i];
    }
  most = warp_max(most);
  has_nan = __any_sync(~0u, has_nan);
  // Nothing but -inf gives 0 (log: -inf), and a NaN makes all of the row one.
  const bool plain = !has_nan && most != -INFINITY;
  const float other = has_nan ? NAN : log ? -INFINITY : 0;
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
  __shared__ float scratch[2][kWarp];
  const T* x = k.x + blockIdx.x * k.n;
  T* y = k.y + blockIdx.x * k.n;
  Online all;
  for_columns<V>(x, k.n, [&](int64_t, const float(&v)[V]) { all.add(v); });
  all = block_online(all, scratch);
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
  __shared__ float scratch[kWarp];
  const T *y = k.y + blockIdx.x * k.n, *dy = k.dy + blockIdx.x * k.n;
  T* dx = k.dx + blockIdx.x * k.n;
  float sum = 0;
  for_columns<V>(y, k.n, [&](int64_t j, const float(&v)[V]) {
    float g[V];
    load<V>(dy + j, g);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += softmax_term<log>(v[i], g[i]);
  });
  sum = block_sum(sum, scratch);
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

// ---- cross entropy

// A block reads its row twice; the second time it lies in the L2 cache, since no more than two rows
// a multiprocessor are under way.
template <int V, class T>
__global__ void __launch_bounds__(1024) cross_entropy(const __grid_constant__ CrossEntropy<T> k) {
  __shared__ float scratch[2][kWarp];
  __shared__ float sum_scratch[kWarp];
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
  all = block_online(all, scratch);
  if (smooth) sum = block_sum(sum, sum_scratch);
  const float e = k.smoothing, lse = logf(all.sum);
  // -log p_j = lse - (x_j - most)
  if (threadIdx.x == 0)
    k.loss[row] = (1 - e) * (lse - (x_target - all.most)) +
                  (smooth ? e * (lse - (sum / static_cast<float>(k.n) - all.most)) : 0);
  if (!dx) return;
  const float scale = *k.scale, factor = scale / all.sum,
              less = scale * (e / static_cast<float>(k.n));
  const float hit = scale * (1 - e);
  for_columns<V>(x, k.n, [&](int64_t j, float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) {
      v[i] = fmaf(expf(v[i] - all.most), factor, -less);
      if (j + i == target) v[i] -= hit;
    }
    store<V>(v, dx + j);
  });
}

// The same with the row in registers, P packs a thread: it is read once, and each exponential is
// taken once.
template <int V, int P, class T>
__global__ void __launch_bounds__(1024)
    cross_entropy_held(const __grid_constant__ CrossEntropy<T> k) {
  __shared__ float scratch[2][kWarp];
  __shared__ float sum_scratch[2][kWarp];
  const int64_t row = blockIdx.x;
  const int n = static_cast<int>(k.n);
  const T* x = k.logits + row * n;
  T* dx = k.d_logits ? k.d_logits + row * n : nullptr;
  const Id target = k.target[row];
  const auto place = [&](int p) { return static_cast<int>(p * blockDim.x + threadIdx.x) * V; };
  float v[P][V];
  if (target < 0) {
    if (threadIdx.x == 0) k.loss[row] = 0;
    const float zero[V] = {};
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (dx && place(p) < n) store<V>(zero, dx + place(p));
    return;
  }
  const float x_target = wide(x[target]);
  Online all;
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (place(p) < n) {
      load<V>(x + place(p), v[p]);
    } else {
#pragma unroll
      for (int i = 0; i < V; ++i) v[p][i] = -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < V; ++i) all.most = fmaxf(all.most, v[p][i]);
  }
  const float most = block_online(all, scratch).most;
  float sum = 0, plain = 0;  // of exp(x - most), and of x - most
#pragma unroll
  for (int p = 0; p < P; ++p)
#pragma unroll
    for (int i = 0; i < V; ++i) {
      v[p][i] -= most;
      if (place(p) < n) plain += v[p][i];
      v[p][i] = expf(v[p][i]);
      sum += v[p][i];
    }
  sum = block_sum(sum, sum_scratch[0]);
  const bool smooth = k.smoothing != 0;
  if (smooth) plain = block_sum(plain, sum_scratch[1]);
  const float e = k.smoothing, lse = logf(sum);
  if (threadIdx.x == 0)
    k.loss[row] = (1 - e) * (lse - (x_target - most)) +
                  (smooth ? e * (lse - plain / static_cast<float>(n)) : 0);
  if (!dx) return;
  const float scale = *k.scale, factor = scale / sum, less = scale * (e / static_cast<float>(n));
  const float hit = scale * (1 - e);
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const int j = place(p);
    if (j >= n) continue;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      v[p][i] = fmaf(v[p][i], factor, -less);
      if (j + i == target) v[p][i] -= hit;
    }
    store<V>(v[p], dx + j);
  }
}

template <class T>
void launch(Cuda device, const CrossEntropy<T>& k) {
  if (k.rows == 0) return;
  constexpr int V = kPack<T>;
  const bool packed = k.n % V == 0 && aligned(k.logits, 16) && aligned(k.d_logits, 16);
  constexpr int P = 32 / V;
  const int64_t held = ceil_div(ceil_div(k.n, V * P), kWarp) * kWarp;  // threads
  if (packed && k.n >= 1024 && held <= 1024) {
    cross_entropy_held<V, P, T>
        <<<static_cast<unsigned>(k.rows), static_cast<unsigned>(held), 0, stream_of(device)>>>(k);
    return launched("cross_entropy");
  }
  const auto kernel = packed ? cross_entropy<V, T> : cross_entropy<1, T>;
  kernel<<<static_cast<unsigned>(k.rows), row_threads(k.n), 0, stream_of(device)>>>(k);
  launched("cross_entropy");
}

}  // namespace

// ---- run

#define HEED_RUN(Name)                                               \
  void run(Cuda device, const Name<float>& k) { launch(device, k); } \
  void run(Cuda device, const Name<bf16>& k) { launch(device, k); }
HEED_RUN(Sum)
HEED_RUN(SumRowsEach)
HEED_RUN(Softmax)
HEED_RUN(SoftmaxGrad)
HEED_RUN(CrossEntropy)
#undef HEED_RUN

void run(Cuda device, const SumSquares<float>& k) {
  Chunks chunks;
  for (int i = 0; i < k.count; ++i) chunks.add(k.part[i].n, aligned(k.part[i].x, 16));
  const unsigned grid = grid_for(chunks.count(), 1, 4);
  auto* partial = static_cast<double*>(cuda_scratch(device, grid * sizeof(double)));
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
    allow_shared(kernel, static_cast<size_t>(bytes));
    kernel<<<static_cast<unsigned>(k.rows), kTopThreads, static_cast<size_t>(bytes),
             stream_of(device)>>>(k);
  }
  launched("top_k");
}

}  // namespace heed::kernels
