// Products of bf16 operands for the CPU (kernels/bf16.h has the layout and the order of sums,
// docs/decisions/bf16.md the why). Highway 1.0 has no VDPBF16PS, so instruction sets are named
// here: each path is a register tile and the rounding of what it reads; the loops around are
// shared.
#include "heed/kernels/bf16.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "heed/kernels/cpu/scratch.h"

namespace heed::kernels {
namespace {

constexpr int64_t kLanes = 16;        // outputs of a vector of sums
constexpr int64_t kPanel = 64;        // outputs of a panel
constexpr int64_t kApart = 32;        // numbers between rows: not all in one set of the cache
constexpr int64_t kDepth = 256;       // k of a panel that the first-level cache keeps
constexpr int64_t kRowsOfPiece = 96;  // of a thread's piece of work, where there are many
constexpr int64_t kFewRows = 48;      // all in one piece
constexpr int64_t kPacked = 1 << 20;  // numbers of W that are packed at a time

int64_t width_at(int64_t n, int64_t output) {
  return std::min(kPanel, chunk_count(n - output, kLanes) * kLanes);
}

// The rows of x in bf16, `row` numbers apart, zeros beyond k.
struct Rows {
  const bf16* data;
  int64_t row;
};

// A few rows times a panel, or a part of its depth: y (+)= x w.
struct Tile {
  const bf16* x;
  int64_t x_row;
  const bf16* w;
  int64_t width, pairs;  // of w
  float* y;
  int64_t y_row, n;   // columns of y: those of w that exist
  const float* bias;  // or null: [n]
  bool relu, add;
};

// As VDPBF16PS reads numbers.
bf16 rounded(float x) { return bf16(std::fabs(x) < 0x1p-126f ? x * 0 : x); }

// 16 outputs and 32 steps of k of a matrix, from (k0, o0) on; `panel`: as a panel has them, rows of
// `row` numbers, else one output after the other, `row` apart. Zeros beyond [k, n]; no output
// beyond n is written but in a panel.
struct Block {
  Matrix<const float> w;
  int64_t k, n, k0, o0;
  bool panel;
  bf16* out;
  int64_t row;
};

void pack_plain(const Block& b) {
  for (int64_t o = 0; o < (b.panel ? kLanes : std::min(kLanes, b.n - b.o0)); ++o)
    for (int64_t i = 0; i < 32; ++i) {
      const bool inside = b.o0 + o < b.n && b.k0 + i < b.k;
      b.out[b.panel ? i / 2 * b.row + 2 * o + i % 2 : o * b.row + i] =
          inside ? rounded(b.w.data[(b.k0 + i) * b.w.row + (b.o0 + o) * b.w.col]) : bf16();
    }
}

// ---- plain

float finished(const Tile& t, int64_t o, float sum) {
  if (t.bias) sum = sum + t.bias[o];
  return t.relu && 0 > sum ? 0 : sum;  // as the vectors' maximum: a NaN stays
}

void plain(int64_t rows, const Tile& t) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t first = 0; first < t.n; first += kLanes) {
      const int64_t n = std::min(kLanes, t.n - first);
      float* const y = t.y + r * t.y_row + first;
      float sums[kLanes] = {};
      if (t.add) std::copy_n(y, n, sums);
      const bf16* w = t.w + 2 * first;
      for (const bf16 *x = t.x + r * t.x_row, *end = x + 2 * t.pairs; x != end;
           x += 2, w += 2 * t.width) {
        const float even = static_cast<float>(x[0]), odd = static_cast<float>(x[1]);
        for (int64_t o = 0; o < kLanes; ++o) sums[o] += odd * static_cast<float>(w[2 * o + 1]);
        for (int64_t o = 0; o < kLanes; ++o) sums[o] += even * static_cast<float>(w[2 * o]);
      }
      for (int64_t o = 0; o < n; ++o) y[o] = finished(t, first + o, sums[o]);
    }
}

#if defined(__x86_64__)

int32_t pair(const bf16* x) {
  int32_t out;
  std::memcpy(&out, x, sizeof out);
  return out;
}

// ---- AVX2: a pair of bf16 is two f32, one after a shift, one without its lower half

#pragma GCC push_options
#pragma GCC target("avx2,fma")

inline __m256 odd(__m256i v) {
  return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
}
inline __m256 even(__m256i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }

template <int kRows>
void avx2_tile(const Tile& t) {
  for (int64_t first = 0; first < t.n; first += kLanes) {
    const int64_t n = std::min(kLanes, t.n - first);
    alignas(32) float out[kRows][kLanes] = {};
    for (int r = 0; r < kRows && t.add; ++r) std::copy_n(t.y + r * t.y_row + first, n, out[r]);
    __m256 sums[kRows][2];
    for (int r = 0; r < kRows; ++r)
      sums[r][0] = _mm256_load_ps(out[r]), sums[r][1] = _mm256_load_ps(out[r] + 8);
    const bf16 *x = t.x, *w = t.w + 2 * first;
    for (int64_t p = 0; p < t.pairs; ++p, x += 2, w += 2 * t.width) {
      const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(w)),
                    w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + kLanes));
      for (int r = 0; r < kRows; ++r) {
        const __m256i v = _mm256_set1_epi32(pair(x + r * t.x_row));
        sums[r][0] = _mm256_fmadd_ps(odd(v), odd(w0), sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(odd(v), odd(w1), sums[r][1]);
        sums[r][0] = _mm256_fmadd_ps(even(v), even(w0), sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(even(v), even(w1), sums[r][1]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      _mm256_store_ps(out[r], sums[r][0]);
      _mm256_store_ps(out[r] + 8, sums[r][1]);
      for (int64_t o = 0; o < n; ++o)
        t.y[r * t.y_row + first + o] = finished(t, first + o, out[r][o]);
    }
  }
}

void avx2(int64_t rows, const Tile& t) {
  switch (rows) {
    case 1: return avx2_tile<1>(t);
    case 2: return avx2_tile<2>(t);
    case 3: return avx2_tile<3>(t);
    default: return avx2_tile<4>(t);
  }
}

#pragma GCC pop_options

// ---- AVX-512 with BF16

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

__mmask16 first_lanes(int64_t n) {
  return n >= kLanes ? __mmask16(0xffff)
                     : static_cast<__mmask16>((1u << std::max<int64_t>(n, 0)) - 1);
}

// sum += x.odd w.odd, then += x.even w.even. Not the intrinsic: GCC then moves sums about and
// writes them to memory in every step.
inline void add_products(__m512& sum, __m512i x, __m512i w) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
}

template <int kRows, int kBlocks>
void avx512_tile(const Tile& t) {
  __m512 sums[kRows][kBlocks];
  const __mmask16 in = first_lanes(t.n - (kBlocks - 1) * kLanes);  // of the last block
  const auto lanes = [&](int b) { return b + 1 < kBlocks ? __mmask16(0xffff) : in; };
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b)
      sums[r][b] = t.add ? _mm512_maskz_loadu_ps(lanes(b), t.y + r * t.y_row + b * kLanes)
                         : _mm512_setzero_ps();
  const bf16 *x = t.x, *w = t.w;
  for (int64_t p = 0; p < t.pairs; ++p, x += 2, w += 2 * kLanes * kBlocks) {
    __m512i wide[kBlocks];
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) wide[b] = _mm512_load_si512(w + 2 * kLanes * b);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i v = _mm512_set1_epi32(pair(x + r * t.x_row));
#pragma GCC unroll 8
      for (int b = 0; b < kBlocks; ++b) add_products(sums[r][b], v, wide[b]);
    }
  }
#pragma GCC unroll 8
  for (int b = 0; b < kBlocks; ++b) {
    const __m512 bias =
        t.bias ? _mm512_maskz_loadu_ps(lanes(b), t.bias + b * kLanes) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      __m512 y = sums[r][b];
      if (t.bias) y = _mm512_add_ps(y, bias);
      if (t.relu) y = _mm512_max_ps(_mm512_setzero_ps(), y);
      _mm512_mask_storeu_ps(t.y + r * t.y_row + b * kLanes, lanes(b), y);
    }
  }
}

template <int kRows>
void avx512_rows(const Tile& t) {
  switch (t.width / kLanes) {
    case 1: return avx512_tile<kRows, 1>(t);
    case 2: return avx512_tile<kRows, 2>(t);
    case 3: return avx512_tile<kRows, 3>(t);
    default: return avx512_tile<kRows, 4>(t);
  }
}

void avx512(int64_t rows, const Tile& t) {
  switch (rows) {
    case 1: return avx512_rows<1>(t);
    case 2: return avx512_rows<2>(t);
    case 3: return avx512_rows<3>(t);
    case 4: return avx512_rows<4>(t);
    case 5: return avx512_rows<5>(t);
    default: return avx512_rows<6>(t);
  }
}

// 16 x 16 pairs, transposed: pairs, then fours, of rows within 128 bits, then the quarters of the
// registers.
inline void transpose(__m512i (&v)[16]) {
  __m512i two[16], four[4][4];  // four[g][c], quarter q: rows 4 g to 4 g + 3 of column 4 q + c
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    two[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    two[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    four[g][0] = _mm512_unpacklo_epi64(two[4 * g], two[4 * g + 2]);
    four[g][1] = _mm512_unpackhi_epi64(two[4 * g], two[4 * g + 2]);
    four[g][2] = _mm512_unpacklo_epi64(two[4 * g + 1], two[4 * g + 3]);
    four[g][3] = _mm512_unpackhi_epi64(two[4 * g + 1], two[4 * g + 3]);
  }
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i even0 = _mm512_shuffle_i32x4(four[0][c], four[1][c], 0x88),
                  odd0 = _mm512_shuffle_i32x4(four[0][c], four[1][c], 0xdd),
                  even1 = _mm512_shuffle_i32x4(four[2][c], four[3][c], 0x88),
                  odd1 = _mm512_shuffle_i32x4(four[2][c], four[3][c], 0xdd);
    v[c] = _mm512_shuffle_i32x4(even0, even1, 0x88);
    v[c + 4] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
    v[c + 8] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
    v[c + 12] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
  }
}

// 16 numbers in bf16, each in the lower half of a lane.
inline __m512i halves(__mmask16 in, const float* x) {
  const __m256bh y = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(in, x));
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(y));
}

void pack_avx512(const Block& b) {
  const int64_t outputs = std::min(kLanes, b.n - b.o0), depth = b.k - b.k0;
  const float* const from = b.w.data + b.k0 * b.w.row + b.o0 * b.w.col;
  __m512i v[16];
  const bool along_k = b.w.row == 1;
  if (along_k) {  // v[o], lane q: pair q of output o
    const __mmask16 low = first_lanes(depth), high = first_lanes(depth - kLanes);
#pragma GCC unroll 16
    for (int64_t o = 0; o < kLanes; ++o) {
      const __mmask16 here = o < outputs ? 0xffff : 0;
      const float* const at = from + o * b.w.col;
      v[o] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
          _mm512_maskz_loadu_ps(high & here, at + kLanes), _mm512_maskz_loadu_ps(low & here, at)));
    }
  } else {  // v[q], lane o: the same
    const __mmask16 in = first_lanes(outputs);
#pragma GCC unroll 16
    for (int64_t q = 0; q < 16; ++q) {
      const float* const at = from + 2 * q * b.w.row;
      const __mmask16 even = 2 * q < depth ? in : 0, odd = 2 * q + 1 < depth ? in : 0;
      v[q] = _mm512_or_si512(halves(even, at), _mm512_slli_epi32(halves(odd, at + b.w.row), 16));
    }
  }
  if (along_k == b.panel) transpose(v);
#pragma GCC unroll 16
  for (int64_t i = 0; i < 16; ++i)
    if (b.panel || i < outputs) _mm512_storeu_si512(b.out + i * b.row, v[i]);
}

#pragma GCC pop_options

// Not by __builtin_cpu_supports(): gcc 12 knows no such name.
bool has_avx512_bf16() {
  uint32_t a = 7, b = 0, c = 1, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return a & (1u << 5);
}

#endif

struct Way {
  void (*multiply)(int64_t rows, const Tile&) = plain;
  int64_t tall = 1;  // most rows of a tile
  void (*pack)(const Block&) = pack_plain;
};
Way way_of([[maybe_unused]] Bf16Path path) {
#if defined(__x86_64__)
  switch (path) {
    case Bf16Path::plain: break;
    case Bf16Path::avx2: return {.multiply = avx2, .tall = 4};
    case Bf16Path::avx512: return {avx512, 6, pack_avx512};
  }
#endif
  return {};
}
Way way_of(std::optional<Bf16Path> path) {
  static const Bf16Path best = runs_here(Bf16Path::avx512) ? Bf16Path::avx512
                               : runs_here(Bf16Path::avx2) ? Bf16Path::avx2
                                                           : Bf16Path::plain;
  return way_of(path.value_or(best));
}

// Steps [k0, k0 + k) of W, packed as a matrix of its own.
void pack(const Way& way, const PackBf16& p) {
  const int64_t depth = bf16_depth(p.k), blocks = chunk_count(p.n, kLanes);
  // Along the rows of w as they lie in memory: a few panels, then the next 32 of k.
  constexpr int64_t kSide = 4 * kPanel / kLanes;
  const int64_t groups = chunk_count(blocks, kSide);
  parallel_for(groups * (depth / 32), 4, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t k0 = t % (depth / 32) * 32, first = t / (depth / 32) * kSide;
      for (int64_t b = first; b < std::min(blocks, first + kSide); ++b) {
        const int64_t o = b * kLanes, panel = o / kPanel * kPanel, width = width_at(p.n, panel);
        way.pack({p.w, p.k, p.n, k0, o, true,
                  p.panels + panel * depth + k0 * width + 2 * (o - panel), 2 * width});
      }
    }
  });
}

// x [m, k] in bf16, in this thread's scratch.
Rows round_rows(const Way& way, int64_t m, int64_t k, Matrix<const float> x) {
  const int64_t depth = bf16_depth(k), row = depth + kApart, chunks = chunk_count(depth, kDepth);
  bf16* const out = scratch<Scratch::product_left, bf16>(chunk_count(m, kLanes) * kLanes * row);
  const Matrix<const float> transposed{x.data, x.col, x.row};
  parallel_for(chunk_count(m, kLanes) * chunks, 2, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t r = t / chunks * kLanes, first = t % chunks * kDepth;
      for (int64_t k0 = first; k0 < std::min(depth, first + kDepth); k0 += 32)
        way.pack({transposed, k, m, k0, r, false, out + r * row + k0, row});
    }
  });
  return {out, row};
}

// Rows and outputs that a thread works on at a time.
struct Piece {
  int64_t row0, row1, o0, o1;
};

void multiply_piece(const Way& way, const Bf16Matmul& p, const Rows& x, const Piece& piece) {
  const int64_t depth = bf16_depth(p.w.k), rows = piece.row1 - piece.row0;
  const int64_t strips = chunk_count(rows, way.tall);
  // Rows of one tile go through the weights in the order they lie in. More come back to a panel, a
  // part of it that the cache keeps: a sum goes on where it was, so its order is the same.
  const int64_t part = strips == 1 ? std::max<int64_t>(depth, 1) : kDepth;
  for (int64_t k0 = 0; k0 == 0 || k0 < depth; k0 += part) {
    const bool last = k0 + part >= depth;
    for (int64_t o = piece.o0; o < piece.o1; o += kPanel) {
      const int64_t width = width_at(p.w.n, o);
      for (int64_t s = 0; s < strips; ++s) {  // all of nearly the same height
        const int64_t r = piece.row0 + rows * s / strips,
                      next = piece.row0 + rows * (s + 1) / strips;
        way.multiply(next - r, {.x = x.data + r * x.row + k0,
                                .x_row = x.row,
                                .w = p.w.panels + o * depth + k0 * width,
                                .width = width,
                                .pairs = std::min(part, depth - k0) / 2,
                                .y = p.y + r * p.y_row + o,
                                .y_row = p.y_row,
                                .n = std::min(width, p.w.n - o),
                                .bias = last && p.bias ? p.bias + o : nullptr,
                                .relu = last && p.relu,
                                .add = p.accumulate || k0 > 0});
      }
    }
  }
}

void multiply(const Way& way, const Bf16Matmul& p, const Rows& x) {
  const int64_t depth = std::max<int64_t>(1, bf16_depth(p.w.k));
  const int64_t height = p.m <= kFewRows ? p.m : kRowsOfPiece, tall = chunk_count(p.m, height);
  const int64_t width = p.m <= kFewRows ? kPanel : 4 * kPanel, wide = chunk_count(p.w.n, width);
  const int64_t cost = std::max<int64_t>(1, height * width * depth);
  parallel_for(
      tall * wide, std::max<int64_t>(1, (1 << 20) / cost), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {  // down the rows first: a panel stays in the cache
          const int64_t row = t % tall * height, o = t / tall * width;
          multiply_piece(way, p, x,
                         {row, std::min(p.m, row + height), o, std::min(p.w.n, o + width)});
        }
      });
}

}  // namespace

bool runs_here(Bf16Path path) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  static const bool has_bf16 = __builtin_cpu_supports("avx512bw") &&
                               __builtin_cpu_supports("avx512vl") &&
                               __builtin_cpu_supports("avx512dq") && has_avx512_bf16();
  switch (path) {
    case Bf16Path::plain: break;
    case Bf16Path::avx2: return has_avx2;
    case Bf16Path::avx512: return has_bf16;
  }
#endif
  return path == Bf16Path::plain;
}

const char* name(Bf16Path path) {
  constexpr const char* names[] = {"plain", "avx2", "avx512"};
  return names[static_cast<size_t>(path)];
}

void run(Cpu, const PackBf16& p) { pack(way_of(p.path), p); }

void run(Cpu, const Bf16Matmul& p) {
  if (p.m == 0 || p.w.n == 0) return;
  const Way way = way_of(p.path);
  multiply(way, p, round_rows(way, p.m, p.w.k, p.x));
}

void run(Cpu, const Bf16Product& p) {
  if (p.m == 0 || p.n == 0) return;
  const Way way = way_of(p.path);
  // A part of k at a time, so that what is packed stays in the cache; sums go on where they were.
  const int64_t part =
      std::max<int64_t>(kDepth, kPacked / bf16_count(1, p.n) * 32 / kDepth * kDepth);
  for (int64_t k0 = 0; k0 == 0 || k0 < p.k; k0 += part) {
    const int64_t k = std::min(part, p.k - k0);
    const bool last = k0 + part >= p.k;
    bf16* const panels = scratch<Scratch::product_right, bf16>(bf16_count(k, p.n));
    pack(way, {k, p.n, {p.w.data + k0 * p.w.row, p.w.row, p.w.col}, panels});
    const Bf16Matmul product{.m = p.m,
                             .x = {p.x.data + k0 * p.x.col, p.x.row, p.x.col},
                             .w = {k, p.n, panels},
                             .bias = last ? p.bias : nullptr,
                             .relu = last && p.relu,
                             .accumulate = p.accumulate || k0 > 0,
                             .y = p.y,
                             .y_row = p.y_row};
    multiply(way, product, round_rows(way, p.m, k, product.x));
  }
}

void run(Cpu, const Bf16Columns& p) {
  const int64_t depth = bf16_depth(p.w.k);
  parallel_for(p.count, std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, depth)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t c = begin; c < end; ++c) {
                   const int64_t o = p.ids[c], panel = o / kPanel * kPanel;
                   const int64_t width = width_at(p.w.n, panel);
                   const bf16* const w = p.w.panels + panel * depth + 2 * (o - panel);
                   for (int64_t i = 0; i < p.w.k; ++i)
                     p.y[c * p.w.k + i] = static_cast<float>(w[i / 2 * 2 * width + i % 2]);
                 }
               });
}

}  // namespace heed::kernels
