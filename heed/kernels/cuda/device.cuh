// What every CUDA kernel of heed is written with. Included by .cu files alone.
//
// Nothing here or in a kernel adds floating-point numbers with atomics: a sum has one order, so a
// run gives the same bits every time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "heed/base/check.h"
#include "heed/kernels/cuda/capabilities.h"
#include "heed/kernels/cuda/state.h"
#include "heed/kernels/kernels.h"

namespace heed::kernels {

inline cudaStream_t stream_of(Cuda device) { return static_cast<cudaStream_t>(device.stream); }

// After every launch.
inline void launched(const char* kernel) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    fail(kernel, ": cannot be launched on the GPU: ", cudaGetErrorString(error));
}

// Blocks with more than 48 KiB of shared memory, what a kernel itself declares counted, must be
// asked for. What was allowed is never taken back: another thread may be about to launch with it.
template <class Kernel>
void allow_shared(Kernel* kernel, size_t bytes) {
  const Capabilities& gpu = capabilities();
  static std::mutex mutex;
  static std::map<std::pair<Kernel*, const Capabilities*>, size_t> allowed;
  const std::lock_guard lock(mutex);
  size_t& most = allowed[{kernel, &gpu}];
  if (bytes <= most) return;
  if (bytes > gpu.shared)
    fail("kernel: wants ", bytes, " bytes of shared memory; a block of this GPU has ", gpu.shared);
  if (const cudaError_t e = cudaFuncSetAttribute(
          kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
      e != cudaSuccess)
    fail("kernel: ", bytes, " bytes of shared memory cannot be had: ", cudaGetErrorString(e));
  most = bytes;
}

inline constexpr int kWarp = 32;
inline constexpr float kLog2E = 1.44269504088896340736f;
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// Blocks for a loop over n items that strides by the whole grid: enough to fill the GPU, so many a
// multiprocessor.
inline unsigned grid_for(int64_t n, int64_t block, int64_t each = 16) {
  const int64_t blocks = ceil_div(n, block), most = each * multiprocessors();
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

// ---- V elements at once (1, 4 or 8), widened; but for V = 1 by vectorized accesses of 8 or 16
// bytes, to which the address must be aligned

template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));  // elements in one 16-byte access

// Whether p can be read `bytes` at a time (a power of two).
inline bool aligned(const void* p, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
}

template <int V>
__device__ inline void load(const float* p, float (&v)[V]) {
  if constexpr (V == 1) {
    v[0] = *p;
  } else if constexpr (V == 2) {
    const float2 x = *reinterpret_cast<const float2*>(p);
    v[0] = x.x, v[1] = x.y;
  } else {
    static_assert(V % 4 == 0);
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const float4 x = *reinterpret_cast<const float4*>(p + i);
      v[i] = x.x, v[i + 1] = x.y, v[i + 2] = x.z, v[i + 3] = x.w;
    }
  }
}
__device__ inline float2 wide_pair(uint32_t x) {
  return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xFFFF0000u));
}
template <int V>
__device__ inline void load(const bf16* p, float (&v)[V]) {
  if constexpr (V == 1) {
    v[0] = wide(*p);
  } else if constexpr (V == 2) {
    const float2 x = wide_pair(*reinterpret_cast<const uint32_t*>(p));
    v[0] = x.x, v[1] = x.y;
  } else if constexpr (V == 4) {
    const uint2 x = *reinterpret_cast<const uint2*>(p);
    const float2 a = wide_pair(x.x), b = wide_pair(x.y);
    v[0] = a.x, v[1] = a.y, v[2] = b.x, v[3] = b.y;
  } else {
    static_assert(V == 8);
    const uint4 x = *reinterpret_cast<const uint4*>(p);
    const float2 a = wide_pair(x.x), b = wide_pair(x.y), c = wide_pair(x.z), d = wide_pair(x.w);
    v[0] = a.x, v[1] = a.y, v[2] = b.x, v[3] = b.y, v[4] = c.x, v[5] = c.y, v[6] = d.x, v[7] = d.y;
  }
}
template <int V>
__device__ inline void store(const float (&v)[V], float* p) {
  if constexpr (V == 1) {
    *p = v[0];
  } else if constexpr (V == 2) {
    *reinterpret_cast<float2*>(p) = make_float2(v[0], v[1]);
  } else {
    static_assert(V % 4 == 0);
#pragma unroll
    for (int i = 0; i < V; i += 4)
      *reinterpret_cast<float4*>(p + i) = make_float4(v[i], v[i + 1], v[i + 2], v[i + 3]);
  }
}
__device__ inline uint32_t narrow_pair(float low, float high) {
  const __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&x);
}
template <int V>
__device__ inline void store(const float (&v)[V], bf16* p) {
  if constexpr (V == 1) {
    *p = narrow<bf16>(v[0]);
  } else if constexpr (V == 2) {
    *reinterpret_cast<uint32_t*>(p) = narrow_pair(v[0], v[1]);
  } else if constexpr (V == 4) {
    *reinterpret_cast<uint2*>(p) = make_uint2(narrow_pair(v[0], v[1]), narrow_pair(v[2], v[3]));
  } else {
    static_assert(V == 8);
    *reinterpret_cast<uint4*>(p) = make_uint4(narrow_pair(v[0], v[1]), narrow_pair(v[2], v[3]),
                                              narrow_pair(v[4], v[5]), narrow_pair(v[6], v[7]));
  }
}

// ---- functions

// Within 3 ulp: 2 of expf, 1 of the reciprocal, which is 0 where the result is below 2^-126.
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// A value and its index as one integer: larger for larger values and, of equal ones, for the
// first. 0 for a NaN, which so never wins.
__device__ inline uint64_t rank_key(float x, uint32_t index) {
  if (x != x) return 0;
  const uint32_t bits = __float_as_uint(x + 0.0f);  // -0 is 0
  const uint32_t rising = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{rising} << 32 | (0xFFFFFFFFu - index);
}
__device__ inline uint32_t index_of(uint64_t key) {
  return 0xFFFFFFFFu - static_cast<uint32_t>(key);
}
// The key of -inf at index 0: what is larger is not -inf.
inline constexpr uint64_t kInfKey = uint64_t{0x007FFFFF} << 32 | 0xFFFFFFFFu;

// ---- sums and maxima over a warp or a block, every thread gets the result

__device__ inline float warp_sum(float x) {
  for (int i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(~0u, x, i);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int i = kWarp / 2; i > 0; i /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, i));
  return x;
}
__device__ inline double warp_sum(double x) {
  for (int i = kWarp / 2; i > 0; i /= 2) x += __shfl_xor_sync(~0u, x, i);
  return x;
}
__device__ inline uint64_t warp_max(uint64_t x) {
  for (int i = kWarp / 2; i > 0; i /= 2) {
    const uint64_t y = __shfl_xor_sync(~0u, static_cast<unsigned long long>(x), i);
    x = y > x ? y : x;
  }
  return x;
}
// `scratch`: shared memory for one value a warp. All threads of the block call it.
template <class X, class Op>
__device__ X block_reduce(X x, X none, X* scratch, Op over_warp) {
  x = over_warp(x);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int warps = (blockDim.x + kWarp - 1) / kWarp;
  __syncthreads();  // scratch may still be read from the call before
  if (lane == 0) scratch[warp] = x;
  __syncthreads();
  return over_warp(lane < warps ? scratch[lane] : none);
}
__device__ inline float block_sum(float x, float* scratch) {
  return block_reduce(x, 0.0f, scratch, [](float v) { return warp_sum(v); });
}
__device__ inline double block_sum(double x, double* scratch) {
  return block_reduce(x, 0.0, scratch, [](double v) { return warp_sum(v); });
}
__device__ inline float block_max(float x, float* scratch) {
  return block_reduce(x, -INFINITY, scratch, [](float v) { return warp_max(v); });
}
__device__ inline uint64_t block_max(uint64_t x, uint64_t* scratch) {
  return block_reduce(x, uint64_t{0}, scratch, [](uint64_t v) { return warp_max(v); });
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
