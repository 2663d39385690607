// What attention by Hopper's warpgroup MMA (wgmma m64nNk16, bf16 in, f32 sums) is written with.
// Included by dot_wgmma*.cu alone; tests/cuda/wgmma_test.cu checks each form by itself.
//
// Warp specialization (Shah et al., 2024, "FlashAttention-3"): a block has two or three consumer
// warpgroups, 64 rows of the product each, and four producer warps, which have the TMA load tiles
// for them into a ring of four stages (forward, one of them prepares what is next): so four tiles
// are on their way or being read, and no group waits for another but where a tile is missing or its
// stage is still read. Consumers have registers that producers gave up (setmaxnreg).
//
// Fragments are those of mma.sync (dot_mma.cuh), one warp after the other: of lane l of warp w,
// g = l / 4 and t = l % 4, elements 4 j + (0, 1, 2, 3) of the sums are rows 16 w + (g, g, g + 8,
// g + 8), columns 8 j + 2 t + (0, 1, 0, 1).
#pragma once

#include <cuda.h>

#include "heed/kernels/cuda/dot_mma.cuh"

namespace heed::kernels {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kConsumerGroups = 2;  // warpgroups, unless said
inline constexpr int kProducerWarps = 4;   // and stages for what they load
inline constexpr int kWgmmaThreads = kConsumerGroups * kGroupThreads + kProducerWarps * kWarp;
inline constexpr int kTile = 64;                            // rows of a tile
inline constexpr int kBlockRows = kConsumerGroups * kTile;  // rows that a block has sums of
inline constexpr int kConsumerWarps = kConsumerGroups * kGroupThreads / kWarp;
template <int D>
inline constexpr int kTileBytes = kTile* D* static_cast<int>(sizeof(bf16));

// setmaxnreg: registers go from the producer warps to the consumer warpgroups, kGroups of them; a
// block with one more has as many each as `all` says, and what is given must be enough for what is
// taken.
template <int kGroups = kConsumerGroups>
struct Registers {
  static_assert(kGroups == 2 || kGroups == 3);
  static constexpr int few = kGroups == 2 ? 40 : 32, many = kGroups == 2 ? 232 : 160;
  static constexpr int all = kGroups == 2 ? 168 : 128;
  static_assert(few + kGroups * many == (1 + kGroups) * all);
};
template <int kGroups = kConsumerGroups>
__device__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers<kGroups>::few));
}
template <int kGroups = kConsumerGroups>
__device__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers<kGroups>::many));
}
// The number of this thread's warp, which the compiler then knows to be the whole warp's.
__device__ inline int warp_number() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarp, 0);
}
__device__ inline void group_barrier(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
}
// Before the barrier after which wgmma reads, or the TMA writes, where this thread wrote in shared
// memory: both are the async proxy.
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- mbarriers and rings of stages in shared memory

// Counts threads that arrive and bytes that the TMA was asked for; waited for by phases, which have
// parities 0, 1, 0, ...
struct Barrier {
  uint64_t state;

  __device__ void begin(int count) {  // by one thread; then barriers_begun(), __syncthreads()
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at()), "r"(count) : "memory");
  }
  __device__ uint32_t at() const { return shared_address(&state); }
  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at()) : "memory");
  }
  __device__ void arrive_and_expect(int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at()), "r"(bytes)
                 : "memory");
  }
  __device__ void expect(int bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(at()), "r"(bytes)
                 : "memory");
  }
  __device__ void arrive_with_copies() {  // when those that this thread asked for so far are there
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at()) : "memory");
  }
  __device__ void wait(int parity) {  // by a warp
    uint32_t done = 0;
    while (!done)
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(at()), "r"(parity)
          : "memory");
    __syncwarp();
  }
};
__device__ inline void barriers_begun() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  fence_proxy_async();
}

// A pipeline of kStages stages between producers and consumers. kFull: how many arrivals say that
// a stage is full. kReaders: how many warps say that it may be written again, by one lane each
// where wgmma alone reads it, by each lane where lanes do.
template <int kStages_, int kFull, int kReaders, bool kLanes>
struct Ring {
  static constexpr int kStages = kStages_;
  Barrier full[kStages], empty[kStages];

  __device__ void begin() {
    for (int i = 0; i < kStages; ++i)
      full[i].begin(kFull), empty[i].begin(kReaders * (kLanes ? kWarp : 1));
  }
  // Of use n of a ring: stage n % kStages. A producer waits until it may be written, a consumer
  // until it may be read.
  __device__ void producer_acquire(int n) { empty[n % kStages].wait((n / kStages & 1) ^ 1); }
  __device__ void consumer_wait(int n) { full[n % kStages].wait(n / kStages & 1); }
  // By all lanes of a warp.
  __device__ void consumer_release(int n) {
    if (!kLanes) __syncwarp();
    if (kLanes || threadIdx.x % kWarp == 0) empty[n % kStages].arrive();
  }
};

// ---- TMA

// A bulk tensor copy by the TMA (tensor memory accelerator): a box of an array of four dimensions,
// as `map` has it, from those indices on; what lies outside of the array is zeros. `barrier`, an
// mbarrier, counts its bytes. By one thread.
__device__ inline void tma_load(uint32_t to, const CUtensorMap& map, int i, int j, int k, int l,
                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
      "%3, %4, %5}], [%6];" ::"r"(to),
      "l"(&map), "r"(i), "r"(j), "r"(k), "r"(l), "r"(barrier)
      : "memory");
}

// How it finds queries, keys, values: boxes of kRows rows by 64 columns of [D, rows, heads, batch].
template <int kRows>
struct TensorMap {
  CUtensorMap map;
  int head_bits, batch_bits;  // of an index, those that count: none where there is one for all
};
template <int kRows>
TensorMap<kRows> tensor_map_of(const Heads<const bf16>& x, int64_t batch, int64_t heads,
                               int64_t rows, int64_t size) {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                         &result) != cudaSuccess ||
        !found)
      fail(
          "attention: the GPU's driver has no cuTensorMapEncodeTiled; install one for CUDA 12 or "
          "later");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  const auto number = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t sizes[] = {number(size), number(rows), number(x.head ? heads : 1),
                              number(x.batch ? batch : 1)};
  const cuuint64_t strides[] = {number(2 * x.row), number(2 * (x.head ? x.head : size)),
                                number(2 * (x.batch ? x.batch : size))};  // bytes
  const cuuint32_t box[] = {64, kRows, 1, 1}, steps[] = {1, 1, 1, 1};
  TensorMap<kRows> tensor_map{{}, x.head ? -1 : 0, x.batch ? -1 : 0};
  const CUresult error =
      encode(&tensor_map.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<bf16*>(x.data), sizes,
             strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS)
    fail("attention: the TMA cannot be given an array of ", batch, " x ", heads, " x ", rows, " x ",
         size, ": error ", static_cast<int>(error));
  return tensor_map;
}

// ---- tiles in shared memory

// Two elements of bf16, 0 for what is non-finite.
__device__ inline uint32_t zero_if_non_finite(uint32_t two) {
  if ((two & 0x7F80u) == 0x7F80u) two &= 0xFFFF0000u;
  if ((two & 0x7F800000u) == 0x7F800000u) two &= 0xFFFFu;
  return two;
}

// any += 0 x, of two elements each.
__device__ inline void add_zero_times(uint32_t& any, uint32_t x) {
  asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(any) : "r"(x), "r"(0u));
}

// Rows of D elements, 64 unless said: panels of 64 columns, whose rows are lines of 128 bytes with
// their 16-byte pieces swapped by row, as wgmma's swizzle of 128 bytes has it. Tiles begin at
// multiples of 1024 bytes.
template <int D, int kRows = kTile>
struct Panels {
  static_assert(D % 64 == 0 && kRows % 64 == 0);
  static constexpr int kPieces = D / 8, kPanel = kRows * 128;  // bytes
  __device__ static uint32_t offset(int row, int piece) {
    return static_cast<uint32_t>(piece / 8 * kPanel + row * 128 + (piece % 8 ^ row % 8) * 16);
  }
  // The rows from (b, head, row) on, by the TMA; by one thread.
  __device__ static void take(bf16* tile, const TensorMap<kRows>& from, int64_t b, int64_t head,
                              int row, Barrier& there) {
#pragma unroll
    for (int p = 0; p < D / 64; ++p)
      tma_load(shared_address(tile) + p * kPanel, from.map, p * 64, row,
               static_cast<int>(head) & from.head_bits, static_cast<int>(b) & from.batch_bits,
               there.at());
  }
  // What is non-finite becomes 0, in this thread's share of the tile. Returns whether there was
  // any.
  template <int kThreads>
  __device__ static bool zero_non_finite(bf16* tile, int thread) {
    constexpr int kStep = kThreads / kPieces;
    const auto at = [&](int r) -> uint4& {
      return *reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(tile) +
                                       offset(r + thread / kPieces, thread % kPieces));
    };
    uint4 any = make_uint4(0, 0, 0, 0);  // the sum of 0 x: NaN if any x is non-finite
#pragma unroll 4
    for (int r = 0; r < kRows; r += kStep) {
      const uint4 x = at(r);
      add_zero_times(any.x, x.x), add_zero_times(any.y, x.y);
      add_zero_times(any.z, x.z), add_zero_times(any.w, x.w);
    }
    if (!non_finite(any.x) && !non_finite(any.y) && !non_finite(any.z) && !non_finite(any.w))
      return false;
#pragma unroll 1
    for (int r = 0; r < kRows; r += kStep) {
      uint4& x = at(r);
      x = make_uint4(zero_if_non_finite(x.x), zero_if_non_finite(x.y), zero_if_non_finite(x.z),
                     zero_if_non_finite(x.w));
    }
    return true;
  }
  // Rows of `which` bits become zeros; by a warp.
  __device__ static void make_zeros(bf16* tile, uint64_t which, int lane) {
    static_assert(kRows == 64);
#pragma unroll 1
    for (int r = 0; r < kRows; ++r)
      if (which >> r & 1 && lane < kPieces)
        *reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(tile) + offset(r, lane)) =
            make_uint4(0, 0, 0, 0);
  }
};

// The descriptors by which wgmma finds a tile. Rows of the operand are rows of the tile: `matrix`,
// whose eight rows are 1024 bytes apart. Rows are summed over: `transposed`, whose eight rows are
// that, and whose panels of 64 columns lie as far apart as they are long.
inline constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
inline constexpr uint64_t kEightRows = uint64_t{1024 / 16} << 32;
__device__ inline uint64_t matrix(uint32_t tile) {
  return kSwizzle128 | kEightRows | uint64_t{1} << 16 | tile / 16;
}
template <int kRows = kTile>
__device__ uint64_t transposed(uint32_t tile) {
  return kSwizzle128 | kEightRows | uint64_t{kRows * 128 / 16} << 16 | tile / 16;
}

// ---- wgmma

#define HEED_4(x, i) x(i), x(i + 1), x(i + 2), x(i + 3)
#define HEED_16(x, i) HEED_4(x, i), HEED_4(x, i + 4), HEED_4(x, i + 8), HEED_4(x, i + 12)
#define HEED_SUM(i) "+f"(c[i])
#define HEED_SUMS_32                                                                            \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define HEED_SUMS_64                                                                            \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "  \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "  \
  "%56, %57, %58, %59, %60, %61, %62, %63}"

// c (+)= a . b of 16 columns, b's rows those of the product's columns; add: whether c counts.
__device__ inline void wgmma(float (&c)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " HEED_SUMS_32
      ", %32, %33, p, 1, 1, 0, 0;}"
      : HEED_16(HEED_SUM, 0), HEED_16(HEED_SUM, 16)
      : "l"(a), "l"(b), "r"(add));
}
__device__ inline void wgmma(float (&c)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " HEED_SUMS_64
      ", %64, %65, p, 1, 1, 0, 0;}"
      : HEED_16(HEED_SUM, 0), HEED_16(HEED_SUM, 16), HEED_16(HEED_SUM, 32), HEED_16(HEED_SUM, 48)
      : "l"(a), "l"(b), "r"(add));
}
// a in registers, b's rows are summed over.
__device__ inline void wgmma(float (&c)[32], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " HEED_SUMS_32
      ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;}"
      : HEED_16(HEED_SUM, 0), HEED_16(HEED_SUM, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
__device__ inline void wgmma(float (&c)[64], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " HEED_SUMS_64
      ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;}"
      : HEED_16(HEED_SUM, 0), HEED_16(HEED_SUM, 16), HEED_16(HEED_SUM, 32), HEED_16(HEED_SUM, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#undef HEED_4
#undef HEED_16
#undef HEED_SUM
#undef HEED_SUMS_32
#undef HEED_SUMS_64

// Before the first product that reads or adds to registers written by other instructions.
__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// All but the last kLater groups of products are there; `sums` may be read.
template <int kLater, int n>
__device__ void products_wait(float (&sums)[n]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLater) : "memory");
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// Where columns [16 k, 16 k + 16) of a matrix of kRows rows begin, in 16 bytes.
template <int kRows>
__device__ constexpr uint32_t columns_at(int k) {
  return static_cast<uint32_t>(k / 4 * kRows * 128 + k % 4 * 32) / 16;
}
// s = left . right over D columns: 64 rows by 2 n.
template <int D, int n>
__device__ void multiply(float (&s)[n], uint64_t left, uint64_t right) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    wgmma(s, left + columns_at<kTile>(k), right + columns_at<2 * n>(k), k > 0);
}
// Sums as a left operand: neighbouring columns, rounded.
template <int kSteps>
__device__ void round_left(const float (&x)[8 * kSteps], uint32_t (&left)[kSteps][4]) {
#pragma unroll
  for (int i = 0; i < 4 * kSteps; ++i) left[i / 4][i % 4] = narrow_pair(x[2 * i], x[2 * i + 1]);
}
// sums += left . right, whose rows are summed over, 16 a step.
template <int n, int kSteps>
__device__ void add_product(float (&sums)[n], const uint32_t (&left)[kSteps][4], uint64_t right) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    wgmma(sums, left[k], right + static_cast<uint32_t>(k * 16 * 128 / 16), 1);
}

}  // namespace heed::kernels
