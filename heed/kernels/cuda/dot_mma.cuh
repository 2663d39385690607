// What attention by tensor cores (mma.sync m16n8k16, bf16 in, f32 sums) is written with: tiles in
// shared memory, how they come there and how a warp reads them. Included by dot_mma*.cu and
// dot_wgmma.cuh alone.
//
// Fragments, of lane l with g = l / 4 and t = l % 4: sums c of 16 x 8 are (g, 2t), (g, 2t + 1),
// (g + 8, 2t), (g + 8, 2t + 1); so two neighbouring tiles of sums, rounded, are the left operand of
// the next product, and weights never leave the registers (Dao, 2023, "FlashAttention-2").
#pragma once

#include "heed/kernels/cuda/dot.cuh"
#include "heed/kernels/cuda/instructions.cuh"

namespace heed::kernels {

inline constexpr int kMmaWarps = 4, kMmaThreads = kMmaWarps * kWarp;

// 2^x within 2^-22, far below a rounding of bf16; subnormals are 0.
__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A swizzled tile of rows of D elements in shared memory. Rows are whole lines of 128 bytes (half a
// line for D = 32), with their 16-byte pieces swapped by row, so that eight rows of a matrix lie in
// all banks. Tiles begin at multiples of 1024 bytes: piece p of a row lies at the address of piece
// 0, xor 16 p.
template <int D>
struct Swizzled {
  static constexpr int kPieces = D / 8;
  static constexpr int kRowBytes = D * 2;
  __device__ static uint32_t offset(int row, int piece) {
    const int by = D == 32 ? row / 2 % 4 : row % 8;
    return static_cast<uint32_t>(row * kRowBytes + (piece ^ by) * 16);
  }
  // Where a lane begins to read operands of 16 rows; `at` gives columns [16 k, 16 k + 16) of those
  // from row `row` on, a multiple of 8.
  __device__ static uint32_t at(uint32_t begin, int row, int k) {
    return (begin ^ static_cast<uint32_t>(k * 32)) + static_cast<uint32_t>(row * kRowBytes);
  }
  // Left operand: rows are those of the product.
  __device__ static uint32_t left(uint32_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    return tile + offset(lane % 16, lane / 16);
  }
  // Right operand, rows are the columns of the product: registers 0, 1 of what is read are for the
  // first eight rows, 2, 3 for the others.
  __device__ static uint32_t right(uint32_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    return tile + offset(lane / 16 * 8 + lane % 8, lane / 8 % 2);
  }
  // Right operand for load_transposed, rows are summed over: registers 0, 1 are for the first eight
  // columns.
  __device__ static uint32_t right_transposed(uint32_t tile) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    return tile + offset(lane / 8 % 2 * 8 + lane % 8, lane / 16);
  }
  // Left operand for load_transposed: rows are summed over, columns are the rows of the product.
  __device__ static uint32_t left_transposed(uint32_t tile) { return right(tile); }
  // `kRows` rows `stride` elements apart, from `from` on, by kThreads threads; row r is zeros
  // unless low <= r < high.
  template <int kRows, int kThreads = kMmaThreads>
  __device__ static void take(uint32_t tile, const bf16* from, int64_t stride, int low, int high) {
    constexpr int kStep = kThreads / kPieces;
    static_assert(kRows % kStep == 0);
    const int piece = static_cast<int>(threadIdx.x) % kPieces;
    const int first = static_cast<int>(threadIdx.x) / kPieces;
    const bf16* at = from + first * stride + piece * 8;
#pragma unroll
    for (int r = 0; r < kRows; r += kStep) {
      const bool there = r + first >= low && r + first < high;
      copy16(tile + offset(r + first, piece), there ? at : from, there);
      at += kStep * stride;
    }
  }
};

// Two elements of bf16, of which one or both are NaN or infinite.
__device__ inline bool non_finite(uint32_t two) {
  return (two & 0x7F80u) == 0x7F80u || (two & 0x7F800000u) == 0x7F800000u;
}

// ---- products of tiles

template <class T>
__device__ void zero(T& sums) {
  float* x = reinterpret_cast<float*>(&sums);
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(T) / sizeof(float)); ++i) x[i] = 0;
}

// A row of kTiles tiles of sums, times `by`: set, or added to, where `there`; its half h = 0 is
// rows g, 1 rows g + 8. Lanes t and t xor 1 swap, so that four of them write the 32 bytes of two
// tiles at once: memory takes whole sectors. The whole warp calls it; rows begin at multiples of 8
// bytes.
template <int kTiles>
__device__ void put_row(const float (&sums)[kTiles][4], int h, float by, bf16* row, bool there,
                        bool add) {
  static_assert(kTiles % 2 == 0);
  const int t = static_cast<int>(threadIdx.x) % 4;
  const bool odd = t % 2;
#pragma unroll
  for (int c = 0; c < kTiles; c += 2) {
    uint32_t two[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float x = sums[c + i][2 * h] * by, y = sums[c + i][2 * h + 1] * by;
      if (add && there) {
        const float2 old = wide_pair(reinterpret_cast<const uint32_t*>(row)[(c + i) * 4 + t]);
        x += old.x, y += old.y;
      }
      two[i] = narrow_pair(x, y);
    }
    const uint32_t other = __shfl_xor_sync(~0u, odd ? two[0] : two[1], 1);
    if (there)
      reinterpret_cast<uint2*>(row)[(c + odd) * 2 + t / 2] =
          odd ? make_uint2(other, two[1]) : make_uint2(two[0], other);
  }
}

// The products of two rows of tiles, both with what they are multiplied by: s = x . right, and
// dscore = y . other, over all columns. `kLeft` times 16 rows from `row` on by kRight times 8.
template <int D, int kLeft, int kRight>
__device__ void multiply_both(uint32_t x, uint32_t y, int row, uint32_t right, uint32_t other,
                              int right_row, float (&s)[kLeft][kRight][4],
                              float (&dscore)[kLeft][kRight][4]) {
  using S = Swizzled<D>;
  zero(s), zero(dscore);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    uint32_t left[kLeft][4], b[4];
#pragma unroll
    for (int i = 0; i < kLeft; ++i) load_matrices(left[i], S::at(x, row + i * 16, k));
#pragma unroll
    for (int j = 0; j < kRight; j += 2) {
      load_matrices(b, S::at(right, right_row + j * 8, k));
#pragma unroll
      for (int i = 0; i < kLeft; ++i) {
        mma(s[i][j], left[i], b[0], b[1]);
        mma(s[i][j + 1], left[i], b[2], b[3]);
      }
    }
#pragma unroll
    for (int i = 0; i < kLeft; ++i) load_matrices(left[i], S::at(y, row + i * 16, k));
#pragma unroll
    for (int j = 0; j < kRight; j += 2) {
      load_matrices(b, S::at(other, right_row + j * 8, k));
#pragma unroll
      for (int i = 0; i < kLeft; ++i) {
        mma(dscore[i][j], left[i], b[0], b[1]);
        mma(dscore[i][j + 1], left[i], b[2], b[3]);
      }
    }
  }
}

// sums += x . right, where x are kSteps times 16 columns of sums and right's rows are summed over.
template <int D, int kLeft, int kTiles>
__device__ void add_product(const float (&x)[kLeft][kTiles][4], uint32_t right, int right_row,
                            float (&sums)[kLeft][D / 8][4]) {
#pragma unroll
  for (int j = 0; j < kTiles; j += 2) {
    uint32_t left[kLeft][4];
#pragma unroll
    for (int i = 0; i < kLeft; ++i) {
      left[i][0] = narrow_pair(x[i][j][0], x[i][j][1]);
      left[i][1] = narrow_pair(x[i][j][2], x[i][j][3]);
      left[i][2] = narrow_pair(x[i][j + 1][0], x[i][j + 1][1]);
      left[i][3] = narrow_pair(x[i][j + 1][2], x[i][j + 1][3]);
    }
#pragma unroll
    for (int c = 0; c < D / 8; c += 2) {
      uint32_t b[4];
      load_transposed(b, Swizzled<D>::at(right, right_row + j * 8, c / 2));
#pragma unroll
      for (int i = 0; i < kLeft; ++i) {
        mma(sums[i][c], left[i], b[0], b[1]);
        mma(sums[i][c + 1], left[i], b[2], b[3]);
      }
    }
  }
}

// ---- dropout of weights

// Which of a row's weights for kTiles times 8 keys from `key` on, a multiple of as many, are kept:
// bit 2 j + e is that of this lane's element e of tile j. A lane has keys 2 t and 2 t + 1 of eight,
// so no two lanes of a warp make the same call. The word that an element has in it is a constant
// but for a half, so that all calls stay in registers.
template <int kTiles>
__device__ uint32_t kept_keys(const Drop& drop, uint64_t seed, int64_t row, int key) {
  static_assert(kTiles == 4 || kTiles == 8);
  uint32_t kept = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {  // element i % 2 of even or odd tiles
    const uint4 call =
        drop_call(seed, row, key + i / 2 * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2);
#pragma unroll
    for (int j = 0; j < kTiles / 2; ++j) {
      const uint32_t word =
          kTiles == 8 || key / 32 % 2 == 0 ? word_of(call, j) : word_of(call, 2 + j % 2);
      const uint32_t bits = key / 64 % 2 ? word >> 16 : word & 0xFFFF;
      kept |= static_cast<uint32_t>(bits >= drop.threshold) << (4 * j + i);
    }
  }
  return kept;
}

// The same where keys are rows of the tiles and queries columns: bit 2 i + h, for keys 16 i + 8 h
// + g from `key` on, a multiple of 16 kTiles, of the weights of one query.
template <int kTiles>
__device__ uint32_t kept_rows(const Drop& drop, uint64_t seed, int64_t row, int key) {
  static_assert(kTiles == 1 || kTiles == 2);
  uint32_t kept = 0;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int at = key + h * 8 + static_cast<int>(threadIdx.x) % kWarp / 4;
    // All of them are keys of the same 128.
    const uint4 call = drop_call(seed, row, at);
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
      kept |= static_cast<uint32_t>(drop_factor(drop, call, at + 16 * i) != 0) << (2 * i + h);
  }
  return kept;
}

// A lane's piece of a row of context; null, for a row that sees nothing: zeros.
template <class S>
__device__ uint4 piece_of(const bf16* context) {
  if (!context) return make_uint4(0, 0, 0, 0);
  return __ldg(reinterpret_cast<const uint4*>(context) + threadIdx.x % S::kPieces);
}
// D = g . context of row r of a tile of g, by as many lanes as a row has pieces, each of which
// gives its own of context; all of them get it. S: how the tile lies.
template <class S>
__device__ float mean_of(uint4 x, const bf16* g, int r) {
  const uint4 y =
      *reinterpret_cast<const uint4*>(reinterpret_cast<const unsigned char*>(g) +
                                      S::offset(r, static_cast<int>(threadIdx.x) % S::kPieces));
  float sum = 0;
  const auto add = [&](uint32_t u, uint32_t v) {
    const float2 left = wide_pair(u), right = wide_pair(v);
    sum = fmaf(left.x, right.x, sum);
    sum = fmaf(left.y, right.y, sum);
  };
  add(x.x, y.x), add(x.y, y.y), add(x.z, y.z), add(x.w, y.w);
#pragma unroll
  for (int i = S::kPieces / 2; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  return sum;
}
template <class S>
__device__ float mean_of(const bf16* context, const bf16* g, int r) {
  return mean_of<S>(piece_of<S>(context), g, r);
}

// What is non-finite in a tile becomes 0.
__device__ inline void zero_non_finite(bf16* tile, int count) {
  const auto pieces = reinterpret_cast<uint4*>(tile);
  for (int x = static_cast<int>(threadIdx.x); x < count / 8; x += static_cast<int>(blockDim.x)) {
    const uint4 p = pieces[x];
    if (!non_finite(p.x) && !non_finite(p.y) && !non_finite(p.z) && !non_finite(p.w)) continue;
    for (int i = 8 * x; i < 8 * x + 8; ++i)
      if ((tile[i].bits & 0x7F80) == 0x7F80) tile[i].bits = 0;
  }
}

// ---- rows

// The rows of a unit: the queries of `heads` heads that share a key head. Long sequences are taken
// head by head (heads = 1), so that a tile's rows see nearly the same keys.
struct Unit {
  int64_t b, first_head, g;
  int queries, rows;

  template <class T>
  __device__ Unit(const Attention<T>& a, int64_t index, int heads) {
    const int64_t units = a.heads / heads;
    b = index / units, first_head = index % units * heads;
    g = first_head / (a.heads / a.key_heads);
    queries = static_cast<int>(a.queries), rows = heads * queries;
  }
  template <class U>
  __device__ U* row_of(const Heads<U>& x, int row) const {
    return row_at(x, b, first_head + row / queries, row % queries);
  }
  template <class T>
  __device__ int64_t number(const Attention<T>& a, int row) const {
    return (b * a.heads + first_head) * a.queries + row;
  }
  // The keys that a row sees; none: {0, 0}.
  template <class T>
  __device__ int2 range(const Attention<T>& a, int row) const {
    const int keys = static_cast<int>(a.keys);
    if (row >= rows) return make_int2(0, 0);
    if (!a.range) return make_int2(0, keys);
    const Id* x = a.range + b * a.range_batch + (first_head + row / queries) * a.range_head +
                  2 * (row % queries);
    const int begin = max(0, static_cast<int>(x[0])), end = min(keys, static_cast<int>(x[1]));
    return begin < end ? make_int2(begin, end) : make_int2(0, 0);
  }
};

// Of some rows: keys that any sees lie in [low, high), those that all see in [begin, end).
struct Span {
  int low, high, begin, end;

  __device__ static Span none(int keys) { return {keys, 0, 0, keys}; }
  __device__ void add(int2 range) {
    if (range.x < range.y) low = min(low, range.x), high = max(high, range.y);
    begin = max(begin, range.x), end = min(end, range.y);
  }
  __device__ void add(const Span& x) {
    low = min(low, x.low), high = max(high, x.high);
    begin = max(begin, x.begin), end = min(end, x.end);
  }
  __device__ void add_warp() {
    for (int i = kWarp / 2; i > 0; i /= 2)
      add(Span{__shfl_xor_sync(~0u, low, i), __shfl_xor_sync(~0u, high, i),
               __shfl_xor_sync(~0u, begin, i), __shfl_xor_sync(~0u, end, i)});
  }
  __device__ bool sees(int key, int count) const { return key < high && key + count > low; }
  __device__ bool all_see(int key, int count) const { return key >= begin && key + count <= end; }
};

// ---- what tensor cores take: plain dot products of rows that lie on 16 bytes

template <class T>
bool by_pieces(const Heads<T>& x) {
  return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.batch % 8 == 0 && x.head % 8 == 0 &&
         x.row % 8 == 0;
}
// And the TMA, which wants rows apart from one another, and goes forward only.
template <class T>
bool tma_takes(const Heads<T>& x) {
  return x.row > 0 && x.head >= 0 && x.batch >= 0;
}

}  // namespace heed::kernels
