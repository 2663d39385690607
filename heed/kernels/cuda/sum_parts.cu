// Sums of gradients: many arrays into one, or one into another.
#include "heed/kernels/cuda/device.cuh"
#include "heed/kernels/cuda/parts.cuh"

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

}  // namespace

void run(Cuda device, const SumParts& k) {
  Chunks chunks;
  for (int i = 0; i < k.count; ++i)
    chunks.add(k.part[i].n, aligned(k.part[i].x, 16) && aligned(k.part[i].y, 16));
  if (chunks.count() == 0) return;
  sum_parts<<<grid_for(chunks.count(), 1, 8), kThreads, 0, stream_of(device)>>>(k, chunks);
  launched("sum of parts");
}

}  // namespace heed::kernels
