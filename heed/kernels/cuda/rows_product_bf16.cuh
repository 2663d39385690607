// Products x w + bias of rows x with weights in bf16, by tensor cores (mma.sync m16n8k16) with f32
// sums; rows of f32 are rounded as they are read. What a row gives does not depend on those beside
// it, as in rows_product.cuh: the sum over k is cut into slices, as many as k alone says, a slice
// is a chain from its first element to its last, and slices are added in their order.
#pragma once

#include <type_traits>

#include "heed/kernels/cuda/rows_product.cuh"

namespace heed::kernels {

// kDepth of k of a tile in shared memory: kM rows of x, kN columns of w; zeros where there is
// nothing. Eight lanes that read a fragment's rows, 16 bytes each, find them in different banks.
template <class X, int kM, int kN, int kDepth, bool kColumns>
struct Bf16Chunk {
  static constexpr bool kWide = std::is_same_v<X, float>;
  static constexpr int kXRow = kDepth + 8;
  static constexpr int kWRow = kColumns ? kDepth + 8 : kN / 8 % 2 ? kN : kN + 8;
  static constexpr int kX = kM * kXRow * static_cast<int>(sizeof(X));  // bytes
  static constexpr int kBytes = kX + (kColumns ? kN : kDepth) * kWRow * 2;
  static constexpr int kXPiece = 16 / sizeof(X), kWPiece = 8;  // elements of a copy

  // What one of kThreads threads brings of every chunk.
  template <class Product, int kThreads>
  class Carrier {
   public:
    __device__ Carrier(const Product& p, int64_t row, int64_t column, int thread)
        : p_(p), x_(p.x + p.item(p.x_step)), w_(p.w + p.item(p.w_step)) {
      x_row_ = thread / kXPieces, x_at_ = thread % kXPieces * kXPiece;
      x_left_ = static_cast<int>(min(p.rows - row, int64_t{kM})) - x_row_;
      x_mine_ = x_ + (row + x_row_) * p.x_row + x_at_;
      w_row_ = thread / kWPieces, w_at_ = thread % kWPieces * kWPiece;
      const int left = static_cast<int>(min(p.n - column, int64_t{kN}));
      w_left_ = kColumns ? left - w_row_ : left - w_at_;  // of what is not k
      w_mine_ = kColumns ? w_ + (column + w_row_) * p.w_col + w_at_
                         : w_ + w_row_ * p.w_row + column + w_at_;
    }
    __device__ void bring(uint32_t to, int64_t at) const {
      const int k = static_cast<int>(min(p_.k - at, int64_t{kDepth}));  // of it there are
      const X* const x = x_mine_ + at;
#pragma unroll
      for (int i = 0; i < kM; i += kXStep) {
        if (kXStep > kM && x_row_ >= kM) break;
        const bool there = i < x_left_ && x_at_ < k;
        copy16(to + ((x_row_ + i) * kXRow + x_at_) * static_cast<uint32_t>(sizeof(X)),
               there ? x + i * p_.x_row : x_, there);
      }
      const bf16* const w = w_mine_ + at * (kColumns ? 1 : p_.w_row);
      constexpr int kRows = kColumns ? kN : kDepth;
#pragma unroll
      for (int i = 0; i < kRows; i += kWStep) {
        if (kWStep > kRows && w_row_ >= kRows) break;
        const bool there = kColumns ? i < w_left_ && w_at_ < k : 0 < w_left_ && w_row_ + i < k;
        copy16(to + kX + ((w_row_ + i) * kWRow + w_at_) * 2,
               there ? w + i * (kColumns ? p_.w_col : p_.w_row) : w_, there);
      }
    }

   private:
    static constexpr int kXPieces = kDepth / kXPiece;  // of a row
    static constexpr int kWPieces = (kColumns ? kDepth : kN) / kWPiece;
    static constexpr int kXStep = kThreads / kXPieces, kWStep = kThreads / kWPieces;  // rows
    static_assert(kThreads % kXPieces == 0 && kThreads % kWPieces == 0);

    const Product& p_;
    const X *x_, *x_mine_;
    const bf16 *w_, *w_mine_;
    int x_row_, x_at_, x_left_, w_row_, w_at_, w_left_;
  };

  // sum += the product of the chunk's rows from `m` on and columns from `n` on.
  template <int kMi, int kNi>
  __device__ static void multiply(float (&sum)[kMi][kNi][4], const unsigned char* chunk, int m,
                                  int n, int lane) {
    const int g = lane / 4, t = lane % 4;
    const float* const wide = reinterpret_cast<const float*>(chunk) + (m + g) * kXRow + 2 * t;
    const uint32_t x = shared_address(chunk) + ((m + lane % 16) * kXRow + lane / 16 * 8) * 2;
    const uint32_t w = shared_address(chunk) + kX;
    // Of columns two tiles of eight, or of eight columns alone two steps of 16, in one go.
    const uint32_t right =
        kNi == 1   ? w + (kColumns ? (n + lane % 8) * kWRow + lane / 8 * 8 : lane * kWRow + n) * 2
        : kColumns ? w + ((n + lane / 16 * 8 + lane % 8) * kWRow + lane / 8 % 2 * 8) * 2
                   : w + (lane % 16 * kWRow + n + lane / 16 * 8) * 2;
    uint32_t four[4];
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t a[kMi][4], b[kNi][2];
#pragma unroll
      for (int i = 0; i < kMi; ++i)
        if constexpr (kWide) {
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            const float2 two = *reinterpret_cast<const float2*>(
                wide + (i * 16 + q % 2 * 8) * kXRow + k + q / 2 * 8);
            a[i][q] = narrow_pair(two.x, two.y);
          }
        } else {
          load_matrices(a[i], x + static_cast<uint32_t>(i * 16 * kXRow + k) * 2);
        }
      const auto load_right = [&](uint32_t at) {
        if constexpr (kColumns)
          load_matrices(four, at);
        else
          load_transposed(four, at);
      };
      if constexpr (kNi == 1) {
        if (k % 32 == 0) load_right(right + static_cast<uint32_t>(kColumns ? k : k * kWRow) * 2);
        b[0][0] = four[k % 32 / 8], b[0][1] = four[k % 32 / 8 + 1];
      } else {
#pragma unroll
        for (int j = 0; j < kNi; j += 2) {
          load_right(right +
                     static_cast<uint32_t>(kColumns ? j * 8 * kWRow + k : k * kWRow + j * 8) * 2);
          b[j][0] = four[0], b[j][1] = four[1], b[j + 1][0] = four[2], b[j + 1][1] = four[3];
        }
      }
#pragma unroll
      for (int i = 0; i < kMi; ++i)
#pragma unroll
        for (int j = 0; j < kNi; ++j) mma(sum[i][j], a[i], b[j][0], b[j][1]);
    }
  }
};

// Two neighbours of y, once their sums are known; `column` is even.
template <class Product>
__device__ inline void finish_pair(const Product& p, float low, float high, int64_t row,
                                   int64_t column) {
  if (row >= p.rows || column >= p.n) return;
  const bool both = column + 1 < p.n;
  if (p.bias) {
    const float* const bias = p.bias + blockIdx.z * p.bias_step + column;
    low += bias[0], high += both ? bias[1] : 0;
  }
  if (p.relu) low = low <= 0 ? 0 : low, high = high <= 0 ? 0 : high;  // NaN stays
  auto* const y = p.y + p.item(p.y_step) + row * p.y_row + column;
  const float pair[2] = {low, high};
  if (both && p.y_row % 2 == 0)
    store<2>(pair, y);
  else
    for (int i = 0; i < 1 + both; ++i) {
      const float one[1] = {pair[i]};
      store<1>(one, y + i);
    }
}

// ---- few rows: a warp for each slice

inline constexpr int kFewDepth = 32;

template <class X, class Y, int kMi, int kNi, bool kColumns>
__global__ void __launch_bounds__(256)
    bf16_few_rows(const __grid_constant__ RowsProduct<X, bf16, Y> p, int chunks, int stages) {
  constexpr int kM = 16 * kMi, kN = 8 * kNi;
  using Chunk = Bf16Chunk<X, kM, kN, kFewDepth, kColumns>;
  extern __shared__ __align__(16) unsigned char tiles[];
  const int slices = blockDim.x / kWarp, slice = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t column = int64_t{blockIdx.x} * kN, row = int64_t{blockIdx.y} * kM;
  const typename Chunk::template Carrier<RowsProduct<X, bf16, Y>, kWarp> carrier(p, row, column,
                                                                                 lane);
  unsigned char* const mine = tiles + slice * stages * Chunk::kBytes;
  const int64_t first = int64_t{slice} * chunks * kFewDepth;
  int in = 0, out = 0;  // stages
  const auto bring = [&](int i) {
    if (i < chunks)
      carrier.bring(shared_address(mine + in * Chunk::kBytes), first + int64_t{i} * kFewDepth);
    copies_end();
    in = in + 1 == stages ? 0 : in + 1;
  };
  float sum[kMi][kNi][4] = {};
  for (int i = 0; i < stages - 1; ++i) bring(i);
  for (int i = 0; i < chunks; ++i) {
    bring(i + stages - 1);
    copies_wait(stages - 1);
    __syncwarp();
    Chunk::multiply(sum, mine + out * Chunk::kBytes, 0, 0, lane);
    __syncwarp();
    out = out + 1 == stages ? 0 : out + 1;
  }
  // Sums of all slices side by side, then added in their order.
  __syncthreads();
  constexpr int kElements = kM * kN;
  static_assert(kElements * 4 <= Chunk::kBytes);
  float* const sums = reinterpret_cast<float*>(tiles);
  float* const own = sums + slice * kElements;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < kMi; ++i)
#pragma unroll
    for (int j = 0; j < kNi; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<float2*>(own + (i * 16 + g + h * 8) * kN + j * 8 + 2 * t) =
            make_float2(sum[i][j][2 * h], sum[i][j][2 * h + 1]);
  __syncthreads();
  for (int i = 2 * threadIdx.x; i < kElements; i += 2 * blockDim.x) {
    float low = 0, high = 0;
    for (int s = 0; s < slices; ++s) {
      const float2 two = *reinterpret_cast<const float2*>(sums + s * kElements + i);
      low += two.x, high += two.y;
    }
    finish_pair(p, low, high, row + i / kN, column + i % kN);
  }
}

// ---- many rows: warps side by side, one slice after the other

template <class X, class Y, int kMi, int kNi, int kDown, int kAcross, int kDepth, bool kColumns>
struct Bf16Tile {
  static constexpr int kM = 16 * kMi * kDown, kN = 8 * kNi * kAcross;
  static constexpr int kThreads = kDown * kAcross * kWarp;
  using Chunk = Bf16Chunk<X, kM, kN, kDepth, kColumns>;
};

template <class X, class Y, int kMi, int kNi, int kDown, int kAcross, int kDepth, bool kColumns>
__global__ void __launch_bounds__(kDown* kAcross* kWarp)
    bf16_many_rows(const __grid_constant__ RowsProduct<X, bf16, Y> p, int slices,
                   int chunks_of_slice, int stages) {
  using Tile = Bf16Tile<X, Y, kMi, kNi, kDown, kAcross, kDepth, kColumns>;
  using Chunk = typename Tile::Chunk;
  extern __shared__ __align__(16) unsigned char tiles[];
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int m = warp / kAcross * 16 * kMi, n = warp % kAcross * 8 * kNi;
  const int64_t column = int64_t{blockIdx.x} * Tile::kN, row = int64_t{blockIdx.y} * Tile::kM;
  const typename Chunk::template Carrier<RowsProduct<X, bf16, Y>, Tile::kThreads> carrier(
      p, row, column, static_cast<int>(threadIdx.x));
  const int chunks = slices * chunks_of_slice;
  int in = 0, out = 0;  // stages
  const auto bring = [&](int i) {
    if (i < chunks) carrier.bring(shared_address(tiles + in * Chunk::kBytes), int64_t{i} * kDepth);
    copies_end();
    in = in + 1 == stages ? 0 : in + 1;
  };
  float total[kMi][kNi][4] = {}, sum[kMi][kNi][4] = {};
  for (int i = 0; i < stages - 1; ++i) bring(i);
  for (int i = 0, left = chunks_of_slice; i < chunks; ++i) {
    copies_wait(stages - 2);
    __syncthreads();  // the chunk is there, and nobody reads the one before it any more
    bring(i + stages - 1);
    Chunk::multiply(sum, tiles + out * Chunk::kBytes, m, n, lane);
    out = out + 1 == stages ? 0 : out + 1;
    if (--left > 0) continue;
    left = chunks_of_slice;
#pragma unroll
    for (int a = 0; a < kMi; ++a)
#pragma unroll
      for (int b = 0; b < kNi; ++b)
#pragma unroll
        for (int e = 0; e < 4; ++e) total[a][b][e] += sum[a][b][e], sum[a][b][e] = 0;
  }
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int a = 0; a < kMi; ++a)
#pragma unroll
    for (int b = 0; b < kNi; ++b)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        finish_pair(p, total[a][b][2 * h], total[a][b][2 * h + 1], row + m + a * 16 + g + h * 8,
                    column + n + b * 8 + 2 * t);
}

}  // namespace heed::kernels
