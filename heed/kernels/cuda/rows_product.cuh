// Products whose rows do not depend on each other's number: x w + bias for rows x of a model that is
// used, as tf32 on tensor cores (f32 in, 10 bits of precision, f32 sums).
//
// The sum over k is cut into slices, as many as k alone says. Within a slice it is a chain from the
// first element to the last, and slices are added in their order: whatever tile a row falls into,
// whatever rows are beside it, it gets the same bits. For few rows a warp takes a slice, so that a
// small product keeps many loads under way; for many a warp takes a part of a larger tile, one slice
// after the other.
#pragma once

#include "heed/kernels/cuda/device.cuh"
#include "heed/kernels/cuda/instructions.cuh"

namespace heed::kernels {

struct RowsProduct {
  int64_t rows, n, k;
  const float* x;  // [rows, k], a row from the next so far
  int64_t x_row;
  const float* w;  // [k, n] or, transposed, [n, k]
  int64_t w_row;
  float* y;  // [rows, n]
  int64_t y_row;
  const float* bias;  // [n], or null
  bool relu;
  int64_t x_step, w_step, y_step, bias_step;  // from item to item of a batch
};

inline constexpr int kChunk = 32;  // of k, at a time

__device__ inline uint32_t tf32(float x) {
  uint32_t out;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(out) : "f"(x));
  return out;
}
// c += a b: a 16 x 8, b 8 x 8.
__device__ inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A chunk of k of a tile in shared memory: kM rows of x, kN columns of w. Rows are so far apart that
// the lanes of a warp, who read a fragment, find it in different banks.
template <int kM, int kN, bool kTransposed>
struct ChunkOf {
  static constexpr int kXRow = kChunk + 4;
  static constexpr int kWRow = kTransposed ? kChunk + 4 : kN + 8;
  static constexpr int kX = kM * kXRow, kW = (kTransposed ? kN : kChunk) * kWRow;
  static constexpr int kFloats = kX + kW;

  // `threads` of them bring it, of which this is `thread`.
  __device__ static void bring(float* to, const RowsProduct& p, const float* x, const float* w,
                               int64_t row, int64_t column, int64_t at, int thread, int threads) {
    constexpr int kPieces = kChunk / 4;
    for (int i = thread; i < kM * kPieces; i += threads) {
      const int r = i / kPieces, j = i % kPieces * 4;
      const bool there = row + r < p.rows;
      copy16(to + r * kXRow + j, x + (there ? row + r : 0) * p.x_row + at + j, there);
    }
    to += kX;
    if constexpr (kTransposed) {
      for (int i = thread; i < kN * kPieces; i += threads) {
        const int c = i / kPieces, j = i % kPieces * 4;
        const bool there = column + c < p.n;
        copy16(to + c * kWRow + j, w + (there ? column + c : 0) * p.w_row + at + j, there);
      }
    } else {
      for (int i = thread; i < kChunk * kN / 4; i += threads) {
        const int r = i / (kN / 4), j = i % (kN / 4) * 4;
        const bool there = column + j < p.n;
        copy16(to + r * kWRow + j, w + (at + r) * p.w_row + (there ? column + j : 0), there);
      }
    }
  }

  // sum += the product of the chunk's rows from `m` on and columns from `n` on.
  template <int kMi, int kNi>
  __device__ static void multiply(float (&sum)[kMi][kNi][4], const float* chunk, int m, int n,
                                  int lane) {
    const int g = lane / 4, t = lane % 4;
    const float* const x = chunk + (m + g) * kXRow + t;
    const float* const w = chunk + kX + (kTransposed ? (n + g) * kWRow + t : t * kWRow + n + g);
#pragma unroll
    for (int k = 0; k < kChunk; k += 8) {
      uint32_t b[kNi][2];
#pragma unroll
      for (int j = 0; j < kNi; ++j) {
        const float* const at = kTransposed ? w + j * 8 * kWRow + k : w + k * kWRow + j * 8;
        b[j][0] = tf32(at[0]), b[j][1] = tf32(at[kTransposed ? 4 : 4 * kWRow]);
      }
#pragma unroll
      for (int i = 0; i < kMi; ++i) {
        const float* const at = x + i * 16 * kXRow + k;
        const uint32_t a[4] = {tf32(at[0]), tf32(at[8 * kXRow]), tf32(at[4]),
                               tf32(at[8 * kXRow + 4])};
#pragma unroll
        for (int j = 0; j < kNi; ++j) mma_tf32(sum[i][j], a, b[j]);
      }
    }
  }
};

__device__ inline float finished(const RowsProduct& p, float sum, const float* bias, int64_t n) {
  if (bias) sum += bias[n];
  return p.relu ? (sum > 0 || sum != sum ? sum : 0) : sum;
}

// ---- few rows: a warp for each slice

template <int kMi, int kNi, bool kTransposed>
struct FewRows {
  static constexpr int kM = 16 * kMi, kN = 8 * kNi;
  static constexpr int kStages = kMi == 1 ? 4 : kNi == 2 ? 3 : 2;  // at most
  using Chunk = ChunkOf<kM, kN, kTransposed>;
  // How many chunks of a slice lie in shared memory at a time.
  __host__ __device__ static int stages(int chunks) { return chunks < kStages ? chunks : kStages; }
  static size_t shared(int slices, int chunks) {
    return static_cast<size_t>(slices * stages(chunks)) * Chunk::kFloats * sizeof(float);
  }
};

template <int kMi, int kNi, bool kTransposed>
__global__ void __launch_bounds__(256) few_rows(const __grid_constant__ RowsProduct p) {
  using Tile = FewRows<kMi, kNi, kTransposed>;
  using Chunk = typename Tile::Chunk;
  extern __shared__ float4 memory[];
  float* const shared = reinterpret_cast<float*>(memory);
  const int slices = blockDim.x / kWarp, slice = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t column = int64_t{blockIdx.x} * Tile::kN, row = int64_t{blockIdx.y} * Tile::kM;
  const float* const x = p.x + blockIdx.z * p.x_step;
  const float* const w = p.w + blockIdx.z * p.w_step;
  const int64_t part = p.k / slices, first = slice * part;
  const int chunks = static_cast<int>(part / kChunk);
  float* const mine = shared + slice * Tile::stages(chunks) * Chunk::kFloats;
  const auto bring = [&](int i) {
    if (i < chunks)
      Chunk::bring(mine + i % Tile::kStages * Chunk::kFloats, p, x, w, row, column,
                   first + int64_t{i} * kChunk, lane, kWarp);
    copies_end();
  };
  float sum[kMi][kNi][4] = {};
#pragma unroll
  for (int i = 0; i < Tile::kStages - 1; ++i) bring(i);
  for (int i = 0; i < chunks; ++i) {
    bring(i + Tile::kStages - 1);
    copies_wait<Tile::kStages - 1>();
    __syncwarp();
    Chunk::multiply(sum, mine + i % Tile::kStages * Chunk::kFloats, 0, 0, lane);
    __syncwarp();
  }
  // Sums of all slices side by side, then added in their order.
  __syncthreads();
  constexpr int kElements = Tile::kM * Tile::kN;
  static_assert(kElements <= Chunk::kFloats);
  float* const own = shared + slice * kElements;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < kMi; ++i)
#pragma unroll
    for (int j = 0; j < kNi; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        own[(i * 16 + g + e / 2 * 8) * Tile::kN + j * 8 + 2 * t + e % 2] = sum[i][j][e];
  __syncthreads();
  const float* const bias = p.bias ? p.bias + blockIdx.z * p.bias_step : nullptr;
  for (int i = threadIdx.x; i < kElements; i += blockDim.x) {
    const int64_t r = row + i / Tile::kN, c = column + i % Tile::kN;
    if (r >= p.rows || c >= p.n) continue;
    float total = 0;
    for (int s = 0; s < slices; ++s) total += shared[s * kElements + i];
    p.y[blockIdx.z * p.y_step + r * p.y_row + c] = finished(p, total, bias, c);
  }
}

// ---- many rows: 64 x 64, four warps, one slice after the other

template <bool kTransposed>
struct ManyRows {
  static constexpr int kM = 64, kN = 64, kStages = 4, kThreads = 128;
  using Chunk = ChunkOf<kM, kN, kTransposed>;
  static constexpr size_t kShared = kStages * Chunk::kFloats * sizeof(float);
};

template <bool kTransposed>
__global__ void __launch_bounds__(128)
    many_rows(const __grid_constant__ RowsProduct p, int chunks_of_slice) {
  using Tile = ManyRows<kTransposed>;
  using Chunk = typename Tile::Chunk;
  extern __shared__ float4 memory[];
  float* const shared = reinterpret_cast<float*>(memory);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int m = warp / 2 * 32, n = warp % 2 * 32;
  const int64_t column = int64_t{blockIdx.x} * Tile::kN, row = int64_t{blockIdx.y} * Tile::kM;
  const float* const x = p.x + blockIdx.z * p.x_step;
  const float* const w = p.w + blockIdx.z * p.w_step;
  const int chunks = static_cast<int>(p.k / kChunk);
  const auto bring = [&](int i) {
    if (i < chunks)
      Chunk::bring(shared + i % Tile::kStages * Chunk::kFloats, p, x, w, row, column,
                   int64_t{i} * kChunk, static_cast<int>(threadIdx.x), Tile::kThreads);
    copies_end();
  };
  float total[2][4][4] = {}, sum[2][4][4] = {};
#pragma unroll
  for (int i = 0; i < Tile::kStages - 1; ++i) bring(i);
  for (int i = 0, left = chunks_of_slice; i < chunks; ++i) {
    copies_wait<Tile::kStages - 2>();
    __syncthreads();  // the chunk is there, and nobody reads the one before it any more
    bring(i + Tile::kStages - 1);
    Chunk::multiply(sum, shared + i % Tile::kStages * Chunk::kFloats, m, n, lane);
    if (--left > 0) continue;
    left = chunks_of_slice;
#pragma unroll
    for (int a = 0; a < 2; ++a)
#pragma unroll
      for (int b = 0; b < 4; ++b)
#pragma unroll
        for (int e = 0; e < 4; ++e) total[a][b][e] += sum[a][b][e], sum[a][b][e] = 0;
  }
  const float* const bias = p.bias ? p.bias + blockIdx.z * p.bias_step : nullptr;
  float* const y = p.y + blockIdx.z * p.y_step;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int a = 0; a < 2; ++a)
#pragma unroll
    for (int b = 0; b < 4; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t r = row + m + a * 16 + g + e / 2 * 8, c = column + n + b * 8 + 2 * t + e % 2;
        if (r < p.rows && c < p.n) y[r * p.y_row + c] = finished(p, total[a][b][e], bias, c);
      }
}

}  // namespace heed::kernels
