// What attention by Hopper's warpgroup products (wgmma m64nNk16, bf16 in, f32 sums) is written
// with. Included by dot_wgmma*.cu alone; tests/cuda/wgmma_test.cu checks each form by itself.
//
// A block has two warpgroups that multiply, 64 rows of the product each, and four warps that fetch
// tiles for them, each into a place of its own, round and round: so four tiles are on their way or
// being read, and the three groups never wait for one another but where a tile is missing or its
// place is still read.
//
// Fragments are those of mma.sync (dot_mma.cuh), one warp behind the other: of lane l of warp w,
// g = l / 4 and t = l % 4, numbers 4 j + (0, 1, 2, 3) of the sums are rows 16 w + (g, g, g + 8,
// g + 8), columns 8 j + 2 t + (0, 1, 0, 1).
#pragma once

#include "heed/kernels/cuda/dot_mma.cuh"

namespace heed::kernels {

inline constexpr int kGroupThreads = 128;  // of a warpgroup
inline constexpr int kMultiply = 2;        // warpgroups that multiply
inline constexpr int kFetch = 4;           // warps that fetch, and places for what they fetch
inline constexpr int kWgmmaThreads = kMultiply * kGroupThreads + kFetch * kWarp;
inline constexpr int kTile = 64;                      // rows of a tile
inline constexpr int kBlockRows = kMultiply * kTile;  // rows that a block has sums of

// Registers go from those who fetch to those who multiply; with kWgmmaThreads threads a block has
// 168 each, and what is given must be enough for what is taken.
inline constexpr int kFewRegisters = 40, kManyRegisters = 232;
static_assert(kFewRegisters + kMultiply * kManyRegisters == (1 + kMultiply) * 168);
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFewRegisters));
}
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kManyRegisters));
}
// The number of this thread's warp, which the compiler then knows to be the whole warp's.
__device__ inline int warp_number() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarp, 0);
}
__device__ inline void group_barrier(int group) {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(kGroupThreads) : "memory");
}
// Before the barrier behind which wgmma reads what this thread wrote into shared memory.
__device__ inline void written_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- tiles in shared memory

// Two numbers of bf16, 0 for what is none.
__device__ inline uint32_t numbers(uint32_t two) {
  if ((two & 0x7F80u) == 0x7F80u) two &= 0xFFFF0000u;
  if ((two & 0x7F800000u) == 0x7F800000u) two &= 0xFFFFu;
  return two;
}

// Rows of D numbers, 64 unless said: panels of 64 columns, whose rows are lines of 128 bytes with
// their 16-byte pieces swapped by row, as wgmma's swizzle of 128 bytes has it. Tiles begin at
// multiples of 1024 bytes.
template <int D, int kRows = kTile>
struct Panels {
  static_assert(D % 64 == 0 && kRows % 64 == 0);
  static constexpr int kPieces = D / 8, kPanel = kRows * 128;  // bytes
  __device__ static uint32_t offset(int row, int piece) {
    return static_cast<uint32_t>(piece / 8 * kPanel + row * 128 + (piece % 8 ^ row % 8) * 16);
  }
  // Rows `stride` numbers apart from `from` on, by kThreads threads, 64 of them from `row0` on;
  // bits of `there`: else zeros.
  template <int kThreads>
  __device__ static void take(uint32_t tile, const bf16* from, int64_t stride, uint64_t there,
                              int thread, int row0 = 0) {
    constexpr int kStep = kThreads / kPieces;
    const int first = thread / kPieces, piece = thread % kPieces;
    from += first * stride + piece * 8;
    there >>= first;
#pragma unroll 4
    for (int r = 0; r < kTile; r += kStep) {
      copy16(tile + offset(row0 + r + first, piece), from, there & 1);
      from += kStep * stride, there >>= kStep;
    }
  }
  // What is no number becomes 0, where this thread took it. Returns whether there was any.
  template <int kThreads>
  __device__ static bool make_numbers(bf16* tile, int thread) {
    constexpr int kStep = kThreads / kPieces;
    bool any = false;
#pragma unroll 1
    for (int r = thread / kPieces; r < kRows; r += kStep) {
      uint4& x = *reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(tile) +
                                           offset(r, thread % kPieces));
      if (!strange(x.x) && !strange(x.y) && !strange(x.z) && !strange(x.w)) continue;
      x = make_uint4(numbers(x.x), numbers(x.y), numbers(x.z), numbers(x.w));
      any = true;
    }
    return any;
  }
  // A left operand's 16 rows of this warp of the group, all columns.
  __device__ static void keep(uint32_t tile, int warp, uint32_t (&x)[D / 16][4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      load_matrices(x[k], tile + offset(warp * 16 + lane % 16, 2 * k + lane / 16));
  }
};
// Bits [low, high) of 64.
__device__ inline uint64_t bits(int low, int high) {
  low = max(low, 0), high = min(high, 64);
  if (low >= high) return 0;
  return (~uint64_t{0} >> (64 - (high - low))) << low;
}

// How wgmma finds a tile. Rows of the operand are rows of the tile: `matrix`, whose eight rows are
// 1024 bytes apart. Rows are summed over: `turned`, whose eight rows are that, and whose panels of
// 64 columns lie as far apart as they are long.
inline constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
inline constexpr uint64_t kEightRows = uint64_t{1024 / 16} << 32;
__device__ inline uint64_t matrix(uint32_t tile) {
  return kSwizzle128 | kEightRows | uint64_t{1} << 16 | tile / 16;
}
template <int kRows = kTile>
__device__ uint64_t turned(uint32_t tile) {
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
// a in registers; kTurned: b's rows are summed over.
template <int kTurned>
__device__ void wgmma(float (&c)[32], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " HEED_SUMS_32
      ", {%32, %33, %34, %35}, %36, p, 1, 1, %38;}"
      : HEED_16(HEED_SUM, 0), HEED_16(HEED_SUM, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTurned));
}
template <int kTurned>
__device__ void wgmma(float (&c)[64], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " HEED_SUMS_64
      ", {%64, %65, %66, %67}, %68, p, 1, 1, %70;}"
      : HEED_16(HEED_SUM, 0), HEED_16(HEED_SUM, 16), HEED_16(HEED_SUM, 32), HEED_16(HEED_SUM, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(kTurned));
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
// s = left . right over D columns: 64 rows by 64, or, with left in registers, by 2 n.
template <int D>
__device__ void multiply(float (&s)[32], uint64_t left, uint64_t right) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    wgmma(s, left + columns_at<kTile>(k), right + columns_at<kTile>(k), k > 0);
}
template <int D, int n>
__device__ void multiply(float (&s)[n], const uint32_t (&left)[D / 16][4], uint64_t right) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k) wgmma<0>(s, left[k], right + columns_at<2 * n>(k), k > 0);
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
    wgmma<1>(sums, left[k], right + static_cast<uint32_t>(k * 16 * 128 / 16), 1);
}

// ---- the ring of tiles

struct Ring {
  uint64_t full[kFetch], empty[kFetch];

  __device__ void begin() {  // by one thread, before __syncthreads()
    for (int i = 0; i < kFetch; ++i) {
      init(full[i], kWarp);  // all lanes that fetch
      init(empty[i], kMultiply * kGroupThreads / kWarp);
    }
  }
  // Of use n of a ring's places: place n % kFetch. Who fetches waits until it may be written, who
  // multiplies until it may be read.
  __device__ void wait_empty(int n) { wait(empty[n % kFetch], (n / kFetch & 1) ^ 1); }
  __device__ void wait_full(int n) { wait(full[n % kFetch], n / kFetch & 1); }
  // By each lane, when what it wrote is there.
  __device__ void is_full(int n) {
    written_for_wgmma();
    arrive(full[n % kFetch]);
  }
  // By all lanes of a warp that multiplies.
  __device__ void is_empty(int n) {
    __syncwarp();
    if (threadIdx.x % kWarp == 0) arrive(empty[n % kFetch]);
  }

 private:
  __device__ static void init(uint64_t& at, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&at)), "r"(count)
                 : "memory");
  }
  __device__ static void arrive(uint64_t& at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&at)) : "memory");
  }
  __device__ static void wait(uint64_t& at, int parity) {
    uint32_t done = 0;
    while (!done)
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(shared_address(&at)), "r"(parity)
          : "memory");
    __syncwarp();
  }
};

}  // namespace heed::kernels
