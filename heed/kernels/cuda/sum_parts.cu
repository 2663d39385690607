// Sums of gradients: many arrays into one, or one into another; their squares by blocks; and what
// other ranks made of parameters.
#include "heed/kernels/cuda/device.cuh"
#include "heed/kernels/cuda/parts.cuh"
#include "heed/kernels/shards.h"

namespace heed::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = kChunk / kThreads / 4;  // of 16 bytes, by a thread, of a chunk

// A whole chunk: all of it is asked for before any of it is used.
__device__ void sum_chunk(bool add, const float* x, float* y) {
  float a[kLoads][4] = {}, b[kLoads][4] = {};
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int at = 4 * (i * kThreads + static_cast<int>(threadIdx.x));
    if (x) load<4>(x + at, a[i]);
    if (add) load<4>(y + at, b[i]);
  }
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    if (add)
#pragma unroll
      for (int j = 0; j < 4; ++j) a[i][j] += b[i][j];
    store<4>(a[i], y + 4 * (i * kThreads + static_cast<int>(threadIdx.x)));
  }
}

__global__ void __launch_bounds__(kThreads)
    sum_parts(const __grid_constant__ SumParts k, const __grid_constant__ Chunks chunks) {
  chunks.each([&](int part, int64_t begin) {
    const SumPart& p = k.part[part];
    const float* const x = p.x ? p.x + begin : nullptr;
    float* const y = p.y + begin;
    const int n = static_cast<int>(min(p.n - begin, int64_t{kChunk}));
    if (chunks.packed(part) && n == kChunk) return sum_chunk(k.add, x, y);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
      const float a = x ? x[i] : 0;
      y[i] = k.add ? y[i] + a : a;
    }
  });
}

static_assert(kSquaresBlock == kChunk);

__global__ void __launch_bounds__(kThreads)
    block_squares(const __grid_constant__ BlockSquares<float> k,
                  const __grid_constant__ Chunks chunks) {
  __shared__ float scratch[kThreads / kWarp];
  chunks.each([&](int part, int64_t begin) {
    const BlockSquaresPart<float>& p = k.part[part];
    const float* const x = p.x + begin;
    const int n = static_cast<int>(min(p.n - begin, int64_t{kChunk}));
    float sum = 0;
    if (chunks.packed(part) && n == kChunk) {
      float v[kLoads][4];
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
        load<4>(x + 4 * (i * kThreads + static_cast<int>(threadIdx.x)), v[i]);
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum = fmaf(v[i][j], v[i][j], sum);
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) sum = fmaf(x[i], x[i], sum);
    }
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) p.y[begin / kChunk] = sum;
  });
}

// One block: there are few numbers, and one order.
__global__ void __launch_bounds__(kThreads) total(int64_t n, const float* x, double* sum) {
  __shared__ double scratch[kThreads / kWarp];
  double own = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < n; i += kThreads) own += x[i];
  own = block_sum(own, scratch);
  if (threadIdx.x == 0) *sum = own;
}

__global__ void __launch_bounds__(kThreads)
    take_parts(const __grid_constant__ TakeParts k, const __grid_constant__ Chunks chunks) {
  chunks.each([&](int part, int64_t begin) {
    const TakePart& p = k.part[part];
    const int n = static_cast<int>(min(p.n - begin, int64_t{kChunk}));
    const int packed = chunks.packed(part) ? n / 4 : 0;
    const auto take = [&]<int V>(int64_t at, float(&v)[V]) {
      load<V>(p.x + at, v);
      store<V>(v, p.y + at);
      if (p.compute_copy) store<V>(v, p.compute_copy + at);
    };
    for (int i = static_cast<int>(threadIdx.x); i < packed; i += kThreads) {
      float v[4];
      take(begin + 4 * i, v);
    }
    for (int i = 4 * packed + static_cast<int>(threadIdx.x); i < n; i += kThreads) {
      float v[1];
      take(begin + i, v);
    }
  });
}

}  // namespace

void run(Cuda device, const BlockSquares<float>& k) {
  Chunks chunks;
  for (int i = 0; i < k.count; ++i) chunks.add(k.part[i].n, aligned(k.part[i].x, 16));
  if (chunks.count() == 0) return;
  block_squares<<<grid_for(chunks.count(), 1, 8), kThreads, 0, stream_of(device)>>>(k, chunks);
  launched("squares by blocks");
}

void run(Cuda device, const Total<float>& k) {
  total<<<1, kThreads, 0, stream_of(device)>>>(k.n, k.x, k.sum);
  launched("total");
}

void run(Cuda device, const TakeParts& k) {
  Chunks chunks;
  for (int i = 0; i < k.count; ++i) {
    const TakePart& p = k.part[i];
    chunks.add(p.n, aligned(p.x, 16) && aligned(p.y, 16) && aligned(p.compute_copy, 8));
  }
  if (chunks.count() == 0) return;
  take_parts<<<grid_for(chunks.count(), 1, 8), kThreads, 0, stream_of(device)>>>(k, chunks);
  launched("parameters of others");
}

void run(Cuda device, const SumParts& k) {
  Chunks chunks;
  for (int i = 0; i < k.count; ++i)
    chunks.add(k.part[i].n, aligned(k.part[i].x, 16) && aligned(k.part[i].y, 16));
  if (chunks.count() == 0) return;
  sum_parts<<<grid_for(chunks.count(), 1, 8), kThreads, 0, stream_of(device)>>>(k, chunks);
  launched("sum of parts");
}

}  // namespace heed::kernels
