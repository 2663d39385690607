// The register tile of a matrix product, and the layout it reads: shared by the products and by
// attention, whose tiles of scores are products too. Included once for each instruction set.
#if defined(HEED_KERNELS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_TILE_INL_H_
#undef HEED_KERNELS_CPU_TILE_INL_H_
#else
#define HEED_KERNELS_CPU_TILE_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>

#include "heed/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// The register tile of a product: 6 rows of four vectors of sums where there are 32 registers
// (which leaves room for b and a), of two where there are 16. Panels of b are as wide. The first
// loads less for each multiply-add than 14 rows of two vectors, which serve a narrow c, and
// attention where only two are left.
constexpr int kTall = 6;
#if HWY_TARGET <= HWY_AVX3 || HWY_TARGET == HWY_NEON
constexpr int kWide = 4, kMr = 14;
#else
constexpr int kWide = 2, kMr = 6;
#endif
template <class T>
constexpr int64_t kPanel = kWide* HWY_LANES(T);
constexpr int kVectors = 2;
template <class T>
constexpr int64_t kNr = kVectors* HWY_LANES(T);

// c (+)= a[M x k] b[k x V vectors]. Element (i, p) of a is a[i * a_row + p * a_col]; rows
// of b lie b_row apart. Three rows share a pointer: x86 can add a stride once or twice by itself.
// kAsks: also asks for what is read later, from `ahead` on a vector for each k; that costs 2 %
// where it is not needed. Not inline: the loops around it would take its registers.
template <int M, int V, bool kAsks, class T>
HWY_NOINLINE void tile(int64_t k, const T* HWY_RESTRICT a, int64_t a_row, int64_t a_col,
                       const T* HWY_RESTRICT b, int64_t b_row, T* HWY_RESTRICT c, int64_t c_row,
                       bool add, const T* ahead) {
  const Tag<T> d;
  constexpr int kLanes = HWY_LANES(T);
  Vec<T> sum[M][V];
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < V; ++j) sum[i][j] = hn::Zero(d);
  constexpr int kPointers = (M + 2) / 3;
  const T* rows[kPointers];
#pragma GCC unroll 8
  for (int g = 0; g < kPointers; ++g) rows[g] = a + 3 * g * a_row;
#pragma GCC unroll 4
  for (int64_t p = 0; p < k; ++p) {
    Vec<T> bv[V];
#pragma GCC unroll 4
    for (int j = 0; j < V; ++j) bv[j] = hn::LoadU(d, b + j * kLanes);
    b += b_row;
    if constexpr (kAsks) {
      __builtin_prefetch(ahead, 0, 2);  // into the second-level cache: the first is full
      ahead += kLanes;
    }
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const auto av = hn::Set(d, rows[i / 3][(i % 3) * a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < V; ++j) sum[i][j] = hn::MulAdd(av, bv[j], sum[i][j]);
    }
#pragma GCC unroll 8
    for (int g = 0; g < kPointers; ++g) rows[g] += a_col;
  }
  T* at = c;
#pragma GCC unroll 16
  for (int i = 0; i < M; ++i, at += c_row)
#pragma GCC unroll 4
    for (int j = 0; j < V; ++j) {
      const auto v = add ? hn::Add(sum[i][j], hn::LoadU(d, at + j * kLanes)) : sum[i][j];
      hn::StoreU(v, d, at + j * kLanes);
    }
}

template <class T>
struct Strip {  // rows of a, as tile() reads them
  const T* a;
  int64_t row, col;
};

// A tile of `m` <= M rows: the right instantiation, found by counting down.
template <int M, int V, bool kAsks = false, class T>
HWY_INLINE void tile_of(int64_t m, int64_t k, Strip<T> a, const T* b, int64_t b_row, T* c,
                        int64_t c_row, bool add, const T* ahead = nullptr) {
  if constexpr (M == 1) {
    tile<1, V, kAsks>(k, a.a, a.row, a.col, b, b_row, c, c_row, add, ahead);
  } else {
    if (m == M) return tile<M, V, kAsks>(k, a.a, a.row, a.col, b, b_row, c, c_row, add, ahead);
    tile_of<M - 1, V, kAsks>(m, k, a, b, b_row, c, c_row, add, ahead);
  }
}

// y = x^T, both 4 x 4 with their own row strides.
HWY_INLINE void transpose_4x4(const float* x, int64_t x_row, float* y, int64_t y_row) {
  const hn::FixedTag<float, 4> d;
  const auto a = hn::LoadU(d, x), b = hn::LoadU(d, x + x_row), c = hn::LoadU(d, x + 2 * x_row),
             e = hn::LoadU(d, x + 3 * x_row);
  const auto ab_low = hn::InterleaveLower(d, a, b), ab_high = hn::InterleaveUpper(d, a, b);
  const auto ce_low = hn::InterleaveLower(d, c, e), ce_high = hn::InterleaveUpper(d, c, e);
  hn::StoreU(hn::ConcatLowerLower(d, ce_low, ab_low), d, y);
  hn::StoreU(hn::ConcatUpperUpper(d, ce_low, ab_low), d, y + y_row);
  hn::StoreU(hn::ConcatLowerLower(d, ce_high, ab_high), d, y + 2 * y_row);
  hn::StoreU(hn::ConcatUpperUpper(d, ce_high, ab_high), d, y + 3 * y_row);
}

#if HWY_TARGET <= HWY_AVX3
// 16 columns of `rows` rows, 16 of them where there are more, which begin at row(i): with zeros
// where rows are missing. Pairs, then fours, of rows within 128 bits, then the quarters of the
// registers.
template <class Row>
HWY_INLINE void transposed_16x16(Row row, int64_t rows, __m512* y) {
  __m512 in[16], two[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) in[i] = i < rows ? _mm512_loadu_ps(row(i)) : _mm512_setzero_ps();
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    two[i] = _mm512_unpacklo_ps(in[i], in[i + 1]);
    two[i + 1] = _mm512_unpackhi_ps(in[i], in[i + 1]);
  }
  __m512 four[4][4];  // four[g][c], quarter q: rows 4 g to 4 g + 3 of column 4 q + c
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const auto pairs = [](__m512 v) HWY_ATTR { return _mm512_castps_pd(v); };
    const __m512d a = pairs(two[4 * g]), b = pairs(two[4 * g + 1]), c = pairs(two[4 * g + 2]),
                  d = pairs(two[4 * g + 3]);
    four[g][0] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    four[g][1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    four[g][2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    four[g][3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 even0 = _mm512_shuffle_f32x4(four[0][c], four[1][c], 0x88),
                 odd0 = _mm512_shuffle_f32x4(four[0][c], four[1][c], 0xdd),
                 even1 = _mm512_shuffle_f32x4(four[2][c], four[3][c], 0x88),
                 odd1 = _mm512_shuffle_f32x4(four[2][c], four[3][c], 0xdd);
    y[c] = _mm512_shuffle_f32x4(even0, even1, 0x88);
    y[c + 4] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
    y[c + 8] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
    y[c + 12] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
  }
}
// y = x^T of `rows` <= 16 rows of x and 16 columns; y is written 16 wide.
HWY_INLINE void transpose_16x16(const float* x, int64_t x_row, int64_t rows, float* y,
                                int64_t y_row) {
  __m512 columns[16];
  transposed_16x16([&](int64_t i) { return x + i * x_row; }, rows, columns);
#pragma GCC unroll 16
  for (int c = 0; c < 16; ++c) _mm512_storeu_ps(y + c * y_row, columns[c]);
}
#endif

// y = x^T for x [rows x columns].
template <class T>
void transpose(int64_t rows, int64_t columns, const T* x, int64_t x_row, T* y, int64_t y_row) {
  int64_t i = 0;
  if constexpr (sizeof(T) == 4)
    for (; i + 4 <= rows; i += 4) {
      int64_t j = 0;
      for (; j + 4 <= columns; j += 4)
        transpose_4x4(x + i * x_row + j, x_row, y + j * y_row + i, y_row);
      for (; j < columns; ++j)
        for (int64_t u = i; u < i + 4; ++u) y[j * y_row + u] = x[u * x_row + j];
    }
  for (; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) y[j * y_row + i] = x[i * x_row + j];
}

// b[k x n] to a panel, k rows long, filled up with zeros: its whole width, or `width` of it where
// no more is read.
template <class T>
void pack_panel(int64_t k, int64_t n, Matrix<const T> b, T* HWY_RESTRICT out,
                int64_t width = kPanel<T>) {
  const Tag<T> d;
  constexpr int64_t lanes = HWY_LANES(T), nr = kPanel<T>;
  if (b.col == 1 && n == nr) {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < nr; j += lanes)
        hn::StoreU(hn::LoadU(d, b.data + p * b.row + j), d, out + p * nr + j);
  } else if (b.col == 1) {
    for (int64_t p = 0; p < k; ++p) {
      std::copy_n(b.data + p * b.row, n, out + p * nr);
      std::fill(out + p * nr + n, out + (p + 1) * nr, T(0));
    }
  } else {
    // Transposed. A few rows of k at a time, so that the cache lines of `out` are filled at once.
    int64_t first = 0;
#if HWY_TARGET <= HWY_AVX3
    if constexpr (sizeof(T) == 4)
      for (; first + 16 <= k; first += 16)
        for (int64_t j = 0; j < width; j += 16)
          transpose_16x16(b.data + j * b.col + first, b.col, n - j, out + first * nr + j, nr);
#endif
    for (int64_t p0 = first; p0 < k; p0 += 16) {
      const int64_t p1 = std::min(k, p0 + 16);
      int64_t j = 0;
      if constexpr (sizeof(T) == 4)
        for (; j + 4 <= n && p1 - p0 == 16; j += 4)
          for (int64_t p = p0; p < p1; p += 4)
            transpose_4x4(b.data + j * b.col + p, b.col, out + p * nr + j, nr);
      for (; j < n; ++j)
        for (int64_t p = p0; p < p1; ++p) out[p * nr + j] = b.data[j * b.col + p];
    }
    if (n < width)
      for (int64_t p = first; p < k; ++p) std::fill(out + p * nr + n, out + p * nr + width, T(0));
  }
}

// The height of the strips that a tile of so many rows is cut into: all nearly equal.
inline int64_t strip_height(int64_t rows, int64_t most = kTall) {
  return chunk_count(rows, chunk_count(rows, most));
}

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
