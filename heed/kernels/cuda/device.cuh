// What every CUDA kernel of heed is written with. Included by .cu files alone.
//
// Nothing here or in a kernel adds floating-point numbers with atomics: a sum has one order, so a run
// gives the same bits every time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "heed/base/check.h"
#include "heed/kernels/cuda/scratch.h"
#include "heed/kernels/kernels.h"

namespace heed::kernels {

inline cudaStream_t stream_of(Cuda device) { return static_cast<cudaStream_t>(device.stream); }

// Behind every launch.
inline void launched(const char* kernel) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    fail(kernel, ": cannot be launched on the GPU: ", cudaGetErrorString(error));
}

inline constexpr int kWarp = 32;
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Blocks for a loop over n items that strides by the whole grid: enough to fill the GPU.
inline unsigned grid_for(int64_t n, int64_t block, int64_t most = 132 * 16) {
  const int64_t blocks = ceil_div(n, block);
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

// ---- numbers: bf16 is a storage type, arithmetic is f32

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(bf16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }
template <class T>
__device__ T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline bf16 narrow<bf16>(float x) {
  const __nv_bfloat16 y = __float2bfloat16_rn(x);
  return __builtin_bit_cast(bf16, y);
}

// ---- sums and maxima over a warp or a block, every thread gets the result

__device__ inline float warp_sum(float x) {
  for (int i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(~0u, x, i);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int i = kWarp / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
  return x;
}
// `room`: shared memory for one number a warp. All threads of the block call it.
template <class Op>
__device__ float block_reduce(float x, float none, float* room, Op over_warp) {
  x = over_warp(x);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int warps = (blockDim.x + kWarp - 1) / kWarp;
  __syncthreads();  // room may still be read from the call before
  if (lane == 0) room[warp] = x;
  __syncthreads();
  return over_warp(lane < warps ? room[lane] : none);
}
__device__ inline float block_sum(float x, float* room) {
  return block_reduce(x, 0, room, [](float v) { return warp_sum(v); });
}
__device__ inline float block_max(float x, float* room) {
  return block_reduce(x, -INFINITY, room, [](float v) { return warp_max(v); });
}

// ---- random numbers: Philox as in base/random.h, the same on every device

__device__ inline uint64_t key_of(const Seed& s) { return s.number + (s.key ? *s.key : 0); }

__device__ inline uint4 philox_at(uint4 c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
  for (int round = 0; round < 7; ++round) {
    const uint32_t h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
    const uint32_t h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
    c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace heed::kernels
