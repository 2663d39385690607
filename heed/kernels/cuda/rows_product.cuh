// Products whose rows do not depend on each other's number: x w + bias for rows x of a model that
// is used, as tf32 on tensor cores (the upper 19 bits of an f32, f32 sums) or, exact, in f32.
//
// The sum over k is cut into slices, as many as k alone says. Within a slice it is a chain from the
// first element to the last, and slices are added in their order: whatever tile a row falls into,
// whatever rows are beside it, it gets the same bits. For few rows a warp takes a slice, so that a
// small product keeps many loads under way; for many a warp takes a part of a larger tile, one
// slice after the other.
#pragma once

#include "heed/kernels/cuda/device.cuh"
#include "heed/kernels/cuda/instructions.cuh"

namespace heed::kernels {

// What lies from item to item of a batch [outer, inner].
struct ItemStep {
  int64_t outer, inner;
};

template <class X = float, class W = float, class Y = float>
struct RowsProduct {
  int64_t rows, n, k;
  const X* x;  // [rows, k]
  int64_t x_row, x_col;
  const W* w;  // [k, n]
  int64_t w_row, w_col;
  Y* y;  // [rows, n]
  int64_t y_row;
  const float* bias;  // [n], or null
  bool relu, accumulate;
  int64_t inner;
  ItemStep x_step, w_step, y_step;
  int64_t bias_step;  // from item to item

  __device__ int64_t item(ItemStep step) const {
    return blockIdx.z / inner * step.outer + blockIdx.z % inner * step.inner;
  }
};

// How a product is read: four elements of a row of w at a time, or of a column, x by fours as well;
// or one by one, whatever the strides. Or so, and in f32.
enum class Reads { by_rows, by_columns, singly, exactly };

inline constexpr int kChunk = 32;  // of k, at a time

// c += a b: a 16 x 8, b 8 x 8.
__device__ inline void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A chunk of k of a tile in shared memory: kM rows of x, kN columns of w; zeros where there is
// nothing. Rows are so far apart that the lanes of a warp, who read a fragment, find it in
// different banks.
template <int kM, int kN, Reads kReads>
struct ChunkOf {
  static constexpr bool kColumns = kReads == Reads::by_columns, kFours = kReads < Reads::singly;
  static constexpr int kXRow = kChunk + 4;
  static constexpr int kWRow = kColumns ? kChunk + 4 : kN + 8;
  static constexpr int kX = kM * kXRow, kW = (kColumns ? kN : kChunk) * kWRow;
  static constexpr int kFloats = kX + kW;

  static constexpr int kPiece = kFours ? 4 : 1, kPieces = kChunk / kPiece;

  // What one of kThreads threads brings of every chunk: pieces of some rows of x, and of some rows
  // or columns of w.
  template <int kThreads>
  class Carrier {
   public:
    __device__ Carrier(const RowsProduct<>& p, int64_t row, int64_t column, int thread)
        : p_(p), x_(p.x + p.item(p.x_step)), w_(p.w + p.item(p.w_step)) {
      x_row_ = thread / kPieces, x_at_ = thread % kPieces * kPiece;
      x_left_ = static_cast<int>(min(p.rows - row, int64_t{kM})) - x_row_;
      x_mine_ = x_ + (row + x_row_) * p.x_row + x_at_ * p.x_col;
      w_row_ = thread / kWPieces, w_at_ = thread % kWPieces * kPiece;
      const int left = static_cast<int>(min(p.n - column, int64_t{kN}));
      w_left_ = kColumns ? left - w_row_ : left - w_at_;  // of what is not k
      w_mine_ = kColumns ? w_ + (column + w_row_) * p.w_col + w_at_
                         : w_ + w_row_ * p.w_row + (column + w_at_) * p.w_col;
    }

    __device__ void bring(float* to, int64_t at) const {
      const int k = static_cast<int>(min(p_.k - at, int64_t{kChunk}));  // of it there are
      const float* const x = x_mine_ + at * (kFours ? 1 : p_.x_col);
#pragma unroll
      for (int i = 0; i < kM; i += kXStep) {
        if (kXStep > kM && x_row_ >= kM) break;
        const bool there = i < x_left_ && x_at_ < k;
        copy(to + (x_row_ + i) * kXRow + x_at_, there ? x + i * p_.x_row : x_, there);
      }
      const float* const w = w_mine_ + at * (kColumns ? 1 : p_.w_row);
      constexpr int kRows = kColumns ? kN : kChunk;
#pragma unroll
      for (int i = 0; i < kRows; i += kWStep) {
        if (kWStep > kRows && w_row_ >= kRows) break;
        const bool there = kColumns ? i < w_left_ && w_at_ < k : 0 < w_left_ && w_row_ + i < k;
        copy(to + kX + (w_row_ + i) * kWRow + w_at_,
             there ? w + i * (kColumns ? p_.w_col : p_.w_row) : w_, there);
      }
    }

   private:
    // Pieces of a row of w, or of x; rows from piece to piece.
    static constexpr int kWPieces = (kColumns ? kChunk : kN) / kPiece;
    static constexpr int kXStep = kThreads / kPieces, kWStep = kThreads / kWPieces;
    static_assert(kThreads % kPieces == 0 && kThreads % kWPieces == 0);

    const RowsProduct<>& p_;
    const float *x_, *w_, *x_mine_, *w_mine_;
    int x_row_, x_at_, x_left_, w_row_, w_at_, w_left_;
  };

  // sum += the product of the chunk's rows from `m` on and columns from `n` on.
  template <int kMi, int kNi>
  __device__ static void multiply(float (&sum)[kMi][kNi][4], const float* chunk, int m, int n,
                                  int lane) {
    const int g = lane / 4, t = lane % 4;
    if constexpr (kReads == Reads::exactly) {
      const float* const x = chunk + (m + g) * kXRow;
      const float* const w = chunk + kX + n + 2 * t;
#pragma unroll 4
      for (int k = 0; k < kChunk; ++k)
#pragma unroll
        for (int i = 0; i < kMi; ++i)
#pragma unroll
          for (int j = 0; j < kNi; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
              sum[i][j][e] = fmaf(x[(i * 16 + e / 2 * 8) * kXRow + k], w[k * kWRow + j * 8 + e % 2],
                                  sum[i][j][e]);
    } else {
      // Lanes by eights give the rows of four matrices of 8 x 4 (ldmatrix).
      const uint32_t x = shared_address(chunk + (m + lane % 16) * kXRow + lane / 16 * 4);
      const uint32_t w =
          shared_address(chunk + kX + (n + lane / 16 * 8 + lane % 8) * kWRow + lane / 8 % 2 * 4);
      const float* const row = chunk + kX + (kColumns ? (n + g) * kWRow + t : t * kWRow + n + g);
#pragma unroll
      for (int k = 0; k < kChunk; k += 8) {
        uint32_t a[kMi][4], b[kNi][2];
#pragma unroll
        for (int i = 0; i < kMi; ++i)
          load_matrices(a[i], x + static_cast<uint32_t>(i * 16 * kXRow + k) * 4);
        if constexpr (kColumns && kNi % 2 == 0) {
#pragma unroll
          for (int j = 0; j < kNi; j += 2) {
            uint32_t both[4];
            load_matrices(both, w + static_cast<uint32_t>(j * 8 * kWRow + k) * 4);
            b[j][0] = both[0], b[j][1] = both[1], b[j + 1][0] = both[2], b[j + 1][1] = both[3];
          }
        } else {
#pragma unroll
          for (int j = 0; j < kNi; ++j) {
            const float* const at = kColumns ? row + j * 8 * kWRow + k : row + k * kWRow + j * 8;
            b[j][0] = __float_as_uint(at[0]);
            b[j][1] = __float_as_uint(at[kColumns ? 4 : 4 * kWRow]);
          }
        }
#pragma unroll
        for (int i = 0; i < kMi; ++i)
#pragma unroll
          for (int j = 0; j < kNi; ++j) mma_tf32(sum[i][j], a[i], b[j]);
      }
    }
  }

 private:
  __device__ static void copy(float* to, const float* from, bool there) {
    if constexpr (kFours)
      copy16(to, from, there);
    else
      copy4(shared_address(to), from, there);
  }
};

// An element of y, once its sum is known.
__device__ inline void finish(const RowsProduct<>& p, float sum, int64_t row, int64_t column) {
  if (row >= p.rows || column >= p.n) return;
  float& y = p.y[p.item(p.y_step) + row * p.y_row + column];
  if (p.bias) sum += p.bias[blockIdx.z * p.bias_step + column];
  if (p.accumulate) sum += y;
  y = p.relu && sum <= 0 ? 0 : sum;
}

// ---- few rows: a warp for each slice

template <int kMi, int kNi, Reads kReads>
struct FewRows {
  static constexpr int kM = 16 * kMi, kN = 8 * kNi, kStages = 4;  // at most
  using Chunk = ChunkOf<kM, kN, kReads>;
  // How many chunks of each slice lie in shared memory at a time.
  static int stages(int slices, int chunks, size_t room) {
    const auto fit = static_cast<int>(room / (static_cast<size_t>(slices) * kBytes));
    return chunks < fit ? (chunks < kStages ? chunks : kStages) : (fit < kStages ? fit : kStages);
  }
  static constexpr size_t kBytes = Chunk::kFloats * sizeof(float);  // of a slice and stage
};

// Waits until all but the last `later` groups of copies are there: 3 at most.
__device__ inline void copies_wait(int later) {
  switch (later) {
    case 0: return copies_wait<0>();
    case 1: return copies_wait<1>();
    case 2: return copies_wait<2>();
    default: return copies_wait<3>();
  }
}

template <int kMi, int kNi, Reads kReads>
__global__ void __launch_bounds__(256)
    few_rows(const __grid_constant__ RowsProduct<> p, int chunks, int stages) {
  using Tile = FewRows<kMi, kNi, kReads>;
  using Chunk = typename Tile::Chunk;
  extern __shared__ float4 memory[];
  float* const shared = reinterpret_cast<float*>(memory);
  const int slices = blockDim.x / kWarp, slice = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t column = int64_t{blockIdx.x} * Tile::kN, row = int64_t{blockIdx.y} * Tile::kM;
  const typename Chunk::template Carrier<kWarp> carrier(p, row, column, lane);
  float* const mine = shared + slice * stages * Chunk::kFloats;
  const int64_t first = int64_t{slice} * chunks * kChunk;
  const auto place = [&](int i) { return mine + i % stages * Chunk::kFloats; };
  const auto bring = [&](int i) {
    if (i < chunks) carrier.bring(place(i), first + int64_t{i} * kChunk);
    copies_end();
  };
  float sum[kMi][kNi][4] = {};
  for (int i = 0; i < stages - 1; ++i) bring(i);
  for (int i = 0; i < chunks; ++i) {
    bring(i + stages - 1);
    copies_wait(stages - 1);
    __syncwarp();
    Chunk::multiply(sum, place(i), 0, 0, lane);
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
  for (int i = threadIdx.x; i < kElements; i += blockDim.x) {
    float total = 0;
    for (int s = 0; s < slices; ++s) total += shared[s * kElements + i];
    finish(p, total, row + i / Tile::kN, column + i % Tile::kN);
  }
}

// ---- many rows: 64 x 64, four warps, one slice after the other

template <Reads kReads>
struct ManyRows {
  static constexpr int kM = 64, kN = 64, kStages = 4, kThreads = 128;
  using Chunk = ChunkOf<kM, kN, kReads>;
  static constexpr size_t kShared = kStages * Chunk::kFloats * sizeof(float);
};

template <Reads kReads>
__global__ void __launch_bounds__(128, 3)
    many_rows(const __grid_constant__ RowsProduct<> p, int slices, int chunks_of_slice) {
  using Tile = ManyRows<kReads>;
  using Chunk = typename Tile::Chunk;
  extern __shared__ float4 memory[];
  float* const shared = reinterpret_cast<float*>(memory);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int m = warp / 2 * 32, n = warp % 2 * 32;
  const int64_t column = int64_t{blockIdx.x} * Tile::kN, row = int64_t{blockIdx.y} * Tile::kM;
  const typename Chunk::template Carrier<Tile::kThreads> carrier(p, row, column,
                                                                 static_cast<int>(threadIdx.x));
  const int chunks = slices * chunks_of_slice;
  const auto bring = [&](int i) {
    if (i < chunks) carrier.bring(shared + i % Tile::kStages * Chunk::kFloats, int64_t{i} * kChunk);
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
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int a = 0; a < 2; ++a)
#pragma unroll
    for (int b = 0; b < 4; ++b)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        finish(p, total[a][b][e], row + m + a * 16 + g + e / 2 * 8,
               column + n + b * 8 + 2 * t + e % 2);
}

}  // namespace heed::kernels
