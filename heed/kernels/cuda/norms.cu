// Layer norm and RMS norm on a GPU.
#include <algorithm>

#include "heed/kernels/bf16.h"
#include "heed/kernels/cuda/dropout.cuh"
#include "heed/kernels/cuda/launch.cuh"
#include "heed/kernels/cuda/rows.cuh"

namespace heed::kernels {
namespace {

// ---- dropout of what a row is the sum of: the random bits of kernels::Dropout

struct SumDrop {
  uint64_t key;
  Drop by;

  template <class T>
  __device__ explicit SumDrop(const NormOfSum<T>& of)
      : key(key_of(of.seed)),
        by{static_cast<uint32_t>(roundf(of.p * 65536.0f)), 1.0f / (1.0f - of.p)} {}
  __device__ float operator()(float x, uint32_t bits) const { return by(x, bits); }
};
// Items i, i + 1 have the two halves of a word; a call gives the words of items 256 apart.
__device__ uint4 draw(const SumDrop& drop, uint64_t call) {
  return philox_at(make_uint4(static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32), 0, 0),
                   drop.key);
}
// V items from i on, i a multiple of V.
template <int V>
__device__ void drop_items(const SumDrop& drop, int64_t i, float (&v)[V]) {
  if (drop.by.threshold == 0) return;
#pragma unroll
  for (int u = 0; u < V; u += 2) {
    const auto item = static_cast<uint64_t>(i + u);
    const uint4 call = draw(drop, item / 1024 * 128 + item % 256 / 2);
    const int w = static_cast<int>(item / 256 % 4);
    const uint32_t word = w == 0 ? call.x : w == 1 ? call.y : w == 2 ? call.z : call.w;
    if constexpr (V == 1) {
      v[0] = drop(v[0], item % 2 ? word >> 16 : word);
    } else {
      v[u] = drop(v[u], word);
      v[u + 1] = drop(v[u + 1], word >> 16);
    }
  }
}
// The rows of a block's warps, n items each, hold whole calls where n is a multiple of 128: the
// block draws each once, and finds the word of items i, i + 1 at words[i / 2].
__device__ void draw_rows(const SumDrop& drop, int64_t first_row, int n, uint32_t* words) {
  static_assert(kWarps * 128 == 1024);
  for (int c = static_cast<int>(threadIdx.x); c < n; c += kThreads) {
    const uint4 call = draw(drop, static_cast<uint64_t>(first_row * n) / 8 + c);
    uint32_t* to = words + c / 128 * 512 + c % 128;
    to[0] = call.x, to[128] = call.y, to[256] = call.z, to[384] = call.w;
  }
}
// A row of n in the registers of a warp; `words`, if there are, of the block's rows.
template <int V, int P>
__device__ void drop_row(const SumDrop& drop, int64_t row, int n, const uint32_t* words,
                         float (&v)[P][V]) {
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if (V != 4 || !words) {
      drop_items(drop, row * n + column<V>(p), v[p]);
    } else if (column<V>(p) < n) {
      const uint32_t* at = words + (warp() * n + column<V>(p)) / 2;
      const uint2 two = *reinterpret_cast<const uint2*>(at);
#pragma unroll
      for (int u = 0; u < V; ++u) v[p][u] = drop(v[p][u], (u < 2 ? two.x : two.y) >> u % 2 * 16);
    }
  }
}
// As it is read back from memory.
template <class T, int V>
__device__ void round_to(float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] = wide(narrow<T>(v[i]));
}

// ---- forward

template <int V>
__device__ void normalize(float mean, float r, const float (&gain)[V], const float (&bias)[V],
                          float (&v)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] = fmaf((v[i] - mean) * r, gain[i], bias[i]);
}

// What is read together is asked for together, also where it is not used (x once more, or the gain
// instead of a bias): a branch would wait for what came before it.
template <int V, int P, class T, class Y>
__global__ void __launch_bounds__(kThreads, P* V > 16 ? 2 : 4)
    norm_warp(const __grid_constant__ Norm<T> k, Y* y) {
  __shared__ alignas(8) uint32_t words[kWarps * P * V * kWarp / 2];
  const int64_t first_row = int64_t{blockIdx.x} * kWarps;
  const int64_t row = first_row + warp();
  const int n = static_cast<int>(k.n);
  const SumDrop drop(k.of);
  const bool drawn = V == 4 && n % 128 == 0 && k.of.more && drop.by.threshold != 0;
  if (drawn) {
    draw_rows(drop, first_row, n, words);
    __syncthreads();
  }
  if (row >= k.rows) return;
  float v[P][V], more[P][V];
  load_row(k.x + row * n, n, 0, v);
  load_row((k.of.more ? k.of.more : k.x) + row * n, n, 0, more);
  if (k.of.more) {
    drop_row(drop, row, n, drawn ? words : nullptr, more);
#pragma unroll
    for (int p = 0; p < P; ++p) {
#pragma unroll
      for (int i = 0; i < V; ++i) v[p][i] += more[p][i];
      round_to<T>(v[p]);
    }
    store_row(v, n, k.of.sum + row * n);
  }
  float gain[P][V], bias[P][V];
  load_row(k.gain, n, 0, gain);
  load_row(k.centered ? k.bias : k.gain, n, 0, bias);
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
  for (int p = 0; p < P; ++p) {
#pragma unroll
    for (int i = 0; i < V; ++i) bias[p][i] = k.centered ? bias[p][i] : 0;
    normalize(mean, r, gain[p], bias[p], v[p]);
  }
  store_row(v, n, y + row * n);
  if (lane() == 0) k.mean[row] = mean, k.r[row] = r;
}

template <int V, class T, class Y>
__global__ void __launch_bounds__(1024) norm_block(const __grid_constant__ Norm<T> k, Y* all) {
  __shared__ float scratch[kWarp];
  const T* x = k.x + blockIdx.x * k.n;
  Y* const y = all + blockIdx.x * k.n;
  if (k.of.more) {  // each thread reads again what it wrote itself
    const SumDrop drop(k.of);
    const int64_t first = blockIdx.x * k.n;
    for_columns<V>(x, k.n, [&](int64_t j, float(&v)[V]) {
      float more[V];
      load<V>(k.of.more + first + j, more);
      drop_items(drop, first + j, more);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] += more[i];
      store<V>(v, k.of.sum + first + j);
    });
    x = k.of.sum + first;
  }
  float mean = 0, squares = 0;
  if (k.centered) {
    for_columns<V>(x, k.n, [&](int64_t, const float(&v)[V]) {
#pragma unroll
      for (int i = 0; i < V; ++i) mean += v[i];
    });
    mean = block_sum(mean, scratch) / static_cast<float>(k.n);
  }
  for_columns<V>(x, k.n, [&](int64_t, const float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) squares = fmaf(v[i] - mean, v[i] - mean, squares);
  });
  const float r = 1 / sqrtf(block_sum(squares, scratch) / static_cast<float>(k.n) + k.epsilon);
  for_columns<V>(x, k.n, [&](int64_t j, float(&v)[V]) {
    float gain[V], bias[V] = {};
    load<V>(k.gain + j, gain);
    if (k.centered) load<V>(k.bias + j, bias);
    normalize(mean, r, gain, bias, v);
    store<V>(v, y + j);
  });
  if (threadIdx.x == 0) k.mean[blockIdx.x] = mean, k.r[blockIdx.x] = r;
}

template <class T, class Y>
void launch(Cuda device, const Norm<T>& k, Y* y) {
  if (k.rows == 0 || k.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  const bool packed =
      aligned_to_4(k.x, k.of.more, k.of.sum) && aligned_to_4(y) && aligned_to_4(k.gain, k.bias);
  const bool held = in_warp(k.n, packed, [&](auto V, auto P) {
    launch_kernel(device, norm_warp<V(), P(), T, Y>, warp_blocks(k.rows), kThreads, 0, k, y);
  });
  if (!held) {
    const auto kernel = packed && k.n % 4 == 0 ? norm_block<4, T, Y> : norm_block<1, T, Y>;
    kernel<<<static_cast<unsigned>(k.rows), row_threads(k.n), 0, stream>>>(k, y);
  }
  launched("norm");
}

// ---- backward

// With xh = (x - mean) r and g = dy gain:  dx = r (g - mean(g) - xh mean(g xh)); RMS norm has no
// mean(g). dgain = sum over rows of dy xh, dbias of dy: every block leaves a partial row of both,
// [dgain | dbias], which column_sums then adds up. Block b takes rows b kWarps + warp, + all warps,
// ...
template <int V, int P, class T>
__global__ void __launch_bounds__(kThreads, P* V > 16 ? 1 : 2)
    norm_grad_warp(const __grid_constant__ NormGrad<T> k, float* partial) {
  __shared__ alignas(8) float scratch[kWarps][kWarp * V * P];
  const int n = static_cast<int>(k.n);
  const SumDrop drop(k.of);
  const bool drawn = V == 4 && n % 128 == 0 && k.of.sum && drop.by.threshold != 0;
  auto* words = reinterpret_cast<uint32_t*>(scratch);
  float gain[P][V], dgain[P][V] = {}, dbias[P][V] = {};
  load_row(k.gain, n, 0, gain);
  for (int64_t first_row = int64_t{blockIdx.x} * kWarps; first_row < k.rows;
       first_row += int64_t{gridDim.x} * kWarps) {
    const int64_t row = first_row + warp();
    if (drawn) {
      __syncthreads();  // those of the rows before were read
      draw_rows(drop, first_row, n, words);
      __syncthreads();
    }
    if (row >= k.rows) continue;
    float x[P][V], dy[P][V], before[P][V];
    load_row(k.x + row * n, n, 0, x);
    load_row(k.dy + row * n, n, 0, dy);
    load_row((k.add ? k.dx : k.dy) + row * n, n, 0, before);
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
      for (int i = 0; i < V; ++i) {
        x[p][i] = r * fmaf(-x[p][i], b, dy[p][i] - a);
        if (k.add) x[p][i] += before[p][i];
      }
    store_row(x, n, k.dx + row * n);
    if (k.of.sum) {
#pragma unroll
      for (int p = 0; p < P; ++p) round_to<T>(x[p]);
      drop_row(drop, row, n, drawn ? words : nullptr, x);
      store_row(x, n, k.of.sum + row * n);
    }
  }
  const auto leave = [&](const float(&sum)[P][V], float* to) {
    __syncthreads();
#pragma unroll
    for (int p = 0; p < P; ++p)
#pragma unroll
      for (int i = 0; i < V; ++i) scratch[warp()][column<V>(p) + i] = sum[p][i];
    __syncthreads();
    for (int j = threadIdx.x; j < n; j += kThreads) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += scratch[w][j];
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
  __shared__ float scratch[kWarp];
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
    a = block_sum(a, scratch);
    b = block_sum(b, scratch) / static_cast<float>(k.n);
    a = k.centered ? a / static_cast<float>(k.n) : 0;
    for_columns<V>(x, k.n, [&](int64_t j, float(&v)[V]) {
      float dv[V], gain[V], before[V] = {};
      load<V>(dy + j, dv);
      load<V>(k.gain + j, gain);
      if (k.add) load<V>(dx + j, before);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const float xh = (v[i] - mean) * r;
        v[i] = fmaf(r, fmaf(-xh, b, fmaf(dv[i], gain[i], -a)), before[i]);
      }
      store<V>(v, dx + j);
      if (!k.of.sum) return;
      round_to<T>(v);
      drop_items(SumDrop(k.of), row * k.n + j, v);
      store<V>(v, k.of.sum + row * k.n + j);
    });
  }
}

template <class T>
void launch(Cuda device, const NormGrad<T>& k) {
  if (k.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  const int64_t width = (k.dbias ? 2 : 1) * k.n;
  const auto scratch = [&](int64_t count) {
    if (k.partial) return k.partial;
    return static_cast<float*>(
        cuda_scratch(device, std::max<int64_t>(1, count) * width * sizeof(float)));
  };
  const bool packed = aligned_to_4(k.x, k.dy, k.dx, k.of.sum) && aligned_to_4(k.gain);
  int64_t blocks = 0;
  float* partial = nullptr;
  const bool held = in_warp(k.n, packed, [&](auto V, auto P) {
    blocks = norm_parts(k.rows);
    partial = scratch(blocks);
    if (blocks > 0)
      norm_grad_warp<V(), P(), T>
          <<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(k, partial);
  });
  if (!held) {
    blocks = norm_parts(k.rows);
    partial = scratch(blocks);
    const auto kernel = packed && k.n % 4 == 0 ? norm_grad_block<4, T> : norm_grad_block<1, T>;
    if (blocks > 0)
      kernel<<<static_cast<unsigned>(blocks), row_threads(k.n), 0, stream>>>(k, partial);
  }
  launched("norm_grad");
  if (k.partial) return;
  launch_column_sums<1, kWarp>(device, 1, blocks, width, 1, blocks,
                               static_cast<const float*>(partial), k.dgain, k.n, k.dbias);
}

}  // namespace

// ---- run

void run(Cuda device, const Norm<float>& k) { launch(device, k, k.y); }
void run(Cuda device, const Norm<bf16>& k) { launch(device, k, k.y); }
void run(Cuda device, const Bf16Norm& k) { launch(device, k.norm, k.y); }
void run(Cuda device, const NormGrad<float>& k) { launch(device, k); }
void run(Cuda device, const NormGrad<bf16>& k) { launch(device, k); }

}  // namespace heed::kernels
