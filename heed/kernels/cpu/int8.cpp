// Products of eight-bit weights for the CPU (kernels/int8.h has the layout, docs/decisions/int8.md
// the why). Highway 1.0 has no dot product of bytes and no matrix registers, so instruction sets
// are named here: each path is a loop over the same blocks.
#include "heed/kernels/int8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "heed/kernels/cpu/scratch.h"

namespace heed::kernels {
namespace {

constexpr int64_t kLanes = 16;  // outputs of a block
constexpr int64_t kGroup = 4;   // blocks that a thread works on at a time
constexpr int64_t kApart = 64;  // bytes between quantized rows: not all in one set of the cache
constexpr int64_t kMatrixRows = 32;  // rows and outputs of two by two matrix registers

// The rows of x as whole numbers, `row` bytes apart, zeros beyond k; and their scales.
struct Rows {
  const int8_t* data;
  int64_t row;
  const float* scales;
};

struct Range {
  int64_t begin, end;
};

// Bits of the largest magnitude: those of numbers are ordered as whole numbers are, and infinity
// and NaN are above all of them.
uint32_t largest_bits(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i)
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return most;
}

int8_t rounded(float x) {
  return static_cast<int8_t>(std::clamp(std::nearbyint(x), -127.0f, 127.0f));
}

struct Scaling {
  float scale, inverse;
};
Scaling scaling_of(uint32_t bits) {
  const float most = std::bit_cast<float>(bits);
  if (bits >= 0x7f800000u) return {std::numeric_limits<float>::quiet_NaN(), 0};
  // The inverse of a denormal number would be infinite.
  return most < 1e-30f ? Scaling{0, 0} : Scaling{most / 127, 127 / most};
}

// Each number is added to `plus`, 0 or -128 (which, added to a byte, is 128).
using QuantizeRow = void(const float* x, int64_t k, int64_t depth, int8_t* out, float& scale,
                         int8_t plus);
void quantize_row(const float* x, int64_t k, int64_t depth, int8_t* out, float& scale,
                  int8_t plus) {
  const Scaling by = scaling_of(largest_bits(x, k));
  scale = by.scale;
  if (by.inverse == 0) {
    std::memset(out, plus, static_cast<size_t>(depth));
    return;
  }
  for (int64_t i = 0; i < k; ++i) out[i] = static_cast<int8_t>(rounded(x[i] * by.inverse) + plus);
  std::memset(out + k, plus, static_cast<size_t>(depth - k));
}

// sum * scale of row and output + bias, and relu.
struct Finish {
  const Int8Matmul& p;

  void one(int64_t row, float row_scale, int64_t o, int32_t sum) const {
    float y = static_cast<float>(sum) * (row_scale * p.w.scales[o]);
    if (p.bias) y = y + p.bias[o];
    // As the vectors' maximum: a NaN stays.
    if (p.relu) y = 0 > y ? 0 : y;
    p.y[row * p.y_row + o] = y;
  }
};

// ---- plain

void plain(const Int8Matmul& p, const Rows& x, int64_t block0, int64_t block1) {
  const Finish finish{p};
  const int64_t depth = int8_depth(p.w.k);
  for (int64_t b = block0; b < block1; ++b)
    for (int64_t r = 0; r < p.m; ++r) {
      int32_t sums[kLanes] = {};
      const int8_t* w = p.w.blocks + b * kLanes * depth;
      const int8_t* a = x.data + r * x.row;
      for (int64_t i = 0; i < depth; i += 4, w += 4 * kLanes)
        for (int64_t o = 0; o < kLanes; ++o)
          for (int64_t e = 0; e < 4; ++e) sums[o] += int32_t{a[i + e]} * int32_t{w[4 * o + e]};
      for (int64_t o = 0; o < std::min(kLanes, p.w.n - b * kLanes); ++o)
        finish.one(r, x.scales[r], b * kLanes + o, sums[o]);
    }
}

#if defined(__x86_64__)

int32_t four(const int8_t* x) {
  int32_t out;
  std::memcpy(&out, x, sizeof out);
  return out;
}

// ---- AVX2: |x| (w sign x) by pairs, at most 2 * 127 * 127, fits 16 bits

#pragma GCC push_options
#pragma GCC target("avx2")

template <int kRows>
void avx2_tile(const Int8Matmul& p, const Rows& x, int64_t row, int64_t block) {
  const int64_t depth = int8_depth(p.w.k);
  const int8_t* w = p.w.blocks + block * kLanes * depth;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[kRows][2];
  for (auto& s : sums) s[0] = s[1] = _mm256_setzero_si256();
  for (int64_t i = 0; i < depth; i += 4, w += 4 * kLanes) {
    const __m256i w0 = _mm256_load_si256(reinterpret_cast<const __m256i*>(w)),
                  w1 = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + 32));
    for (int r = 0; r < kRows; ++r) {
      const __m256i a = _mm256_set1_epi32(four(x.data + (row + r) * x.row + i)),
                    size = _mm256_abs_epi8(a);
      const __m256i p0 = _mm256_maddubs_epi16(size, _mm256_sign_epi8(w0, a)),
                    p1 = _mm256_maddubs_epi16(size, _mm256_sign_epi8(w1, a));
      sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(p0, ones));
      sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(p1, ones));
    }
  }
  const Finish finish{p};
  const int64_t n = std::min(kLanes, p.w.n - block * kLanes);
  for (int r = 0; r < kRows; ++r) {
    alignas(32) int32_t out[kLanes];
    _mm256_store_si256(reinterpret_cast<__m256i*>(out), sums[r][0]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(out + 8), sums[r][1]);
    for (int64_t o = 0; o < n; ++o)
      finish.one(row + r, x.scales[row + r], block * kLanes + o, out[o]);
  }
}

void avx2(const Int8Matmul& p, const Rows& x, int64_t block0, int64_t block1) {
  for (int64_t b = block0; b < block1; ++b) {
    int64_t r = 0;
    for (; r + 4 <= p.m; r += 4) avx2_tile<4>(p, x, r, b);
    for (; r < p.m; ++r) avx2_tile<1>(p, x, r, b);
  }
}

#pragma GCC pop_options

// ---- AVX-512 with VNNI: four products of an unsigned and a signed byte, added without saturation.
// Rows lie there with 128 added, which is one bit flipped; 128 times a column's sum is taken off.

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")

// What makes results of a block's sums, read once for all rows.
struct Outputs {
  int64_t first;
  __mmask16 in;  // those that there are
  __m512 scale, bias;

  Outputs(const Int8Matmul& p, int64_t block)
      : first(block * kLanes),
        in(p.w.n - first >= kLanes ? __mmask16(0xffff)
                                   : static_cast<__mmask16>((1u << (p.w.n - first)) - 1)),
        scale(_mm512_maskz_loadu_ps(in, p.w.scales + first)),
        bias(p.bias ? _mm512_maskz_loadu_ps(in, p.bias + first) : _mm512_setzero_ps()) {}

  void finish(const Int8Matmul& p, int64_t row, float row_scale, __m512i sums) const {
    __m512 y =
        _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_mul_ps(_mm512_set1_ps(row_scale), scale));
    if (p.bias) y = _mm512_add_ps(y, bias);
    if (p.relu) y = _mm512_max_ps(_mm512_setzero_ps(), y);
    float* const to = p.y + row * p.y_row + first;
    // Writing under a mask is slower, even if all are in.
    if (in == 0xffff)
      _mm512_storeu_ps(to, y);
    else
      _mm512_mask_storeu_ps(to, in, y);
  }
};

// What is taken off the sums of a block.
inline __m512i shift_of(const Int8Matmul& p, int64_t block) {
  const int64_t o = block * kLanes, n = p.w.n - o;
  const __mmask16 in = n >= kLanes ? __mmask16(0xffff) : static_cast<__mmask16>((1u << n) - 1);
  return _mm512_slli_epi32(_mm512_maskz_loadu_epi32(in, p.w.sums + o), 7);
}

// sum += the four products of bytes in each lane. Not the intrinsic: GCC then moves sums about and
// writes them to memory in every step.
inline void add_products(__m512i& sum, __m512i x, __m512i w) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(x), "v"(w));
}

// Few rows: as fast as the weights come from memory, which is fastest in the order they lie in. One
// block at a time; kSteps chains of sums for each row, so that none waits for another.
template <int kRows, int kSteps>
void vnni_stream(const Int8Matmul& p, const Rows& x, int64_t block0, int64_t block1) {
  static_assert(64 % (4 * kSteps) == 0);
  const int64_t depth = int8_depth(p.w.k);
  const int8_t* w = p.w.blocks + block0 * kLanes * depth;
  for (int64_t block = block0; block < block1; ++block) {
    const int8_t* a = x.data;
    __m512i sums[kRows][kSteps];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int s = 0; s < kSteps; ++s) sums[r][s] = _mm512_setzero_si512();
    for (int64_t i = 0; i < depth; i += 4 * kSteps, a += 4 * kSteps, w += 4 * kSteps * kLanes)
#pragma GCC unroll 8
      for (int s = 0; s < kSteps; ++s) {
        const __m512i in = _mm512_load_si512(w + 4 * s * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          add_products(sums[r][s], _mm512_set1_epi32(four(a + r * x.row + 4 * s)), in);
      }
    const __m512i shift = shift_of(p, block);
    const Outputs outputs(p, block);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      __m512i sum = sums[r][0];
#pragma GCC unroll 8
      for (int s = 1; s < kSteps; ++s) sum = _mm512_add_epi32(sum, sums[r][s]);
      outputs.finish(p, r, x.scales[r], _mm512_sub_epi32(sum, shift));
    }
  }
}

// What a tile of many rows asks for meanwhile: the blocks after its own, a cache line wherever the
// bits of `mask` are 0 in a step along k. The tiles of all rows together ask for all of them.
struct Ahead {
  const int8_t* from;
  int64_t mask;
};

// Sums of kRows rows and kBlocks blocks.
template <int kRows, int kBlocks>
__attribute__((noinline)) void vnni_sums(int64_t depth, const int8_t* a, int64_t row,
                                         const int8_t* w, Ahead ahead, __m512i* out) {
  __m512i sums[kRows][kBlocks];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) sums[r][b] = _mm512_setzero_si512();
  for (int64_t i = 0; i < depth; i += 4) {
    __m512i in[kBlocks];
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b)
      in[b] = _mm512_load_si512(w + b * kLanes * depth + i * kLanes);
    if ((i & ahead.mask) == 0) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead.from), _MM_HINT_T1);
      ahead.from += 64;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i v = _mm512_set1_epi32(four(a + r * row + i));
#pragma GCC unroll 8
      for (int b = 0; b < kBlocks; ++b) add_products(sums[r][b], v, in[b]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < kBlocks; ++b) out[r * kBlocks + b] = sums[r][b];
}

template <int kRows, int kBlocks>
void vnni_tile(const Int8Matmul& p, const Rows& x, int64_t row, int64_t block, Ahead ahead) {
  const int64_t depth = int8_depth(p.w.k);
  __m512i sums[kRows * kBlocks];
  vnni_sums<kRows, kBlocks>(depth, x.data + row * x.row, x.row, p.w.blocks + block * kLanes * depth,
                            ahead, sums);
  for (int b = 0; b < kBlocks; ++b) {
    const __m512i shift = shift_of(p, block + b);
    const Outputs outputs(p, block + b);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
      outputs.finish(p, row + r, x.scales[row + r], _mm512_sub_epi32(sums[r * kBlocks + b], shift));
  }
}

// The right number of rows, found by counting down.
template <int kRows>
void vnni_tile_of(const Int8Matmul& p, const Rows& x, Range rows, Range blocks, Ahead ahead) {
  if constexpr (kRows > 1)
    if (rows.end - rows.begin < kRows) return vnni_tile_of<kRows - 1>(p, x, rows, blocks, ahead);
  if (blocks.end - blocks.begin == kGroup)
    return vnni_tile<kRows, kGroup>(p, x, rows.begin, blocks.begin, ahead);
  for (int64_t b = blocks.begin; b < blocks.end; ++b)
    vnni_tile<kRows, 1>(p, x, rows.begin, b, ahead);
}

void vnni(const Int8Matmul& p, const Rows& x, int64_t block0, int64_t block1) {
  constexpr int kTall = 6;  // rows whose sums stay in registers
  switch (p.m) {
    case 1: return vnni_stream<1, 8>(p, x, block0, block1);
    case 2: return vnni_stream<2, 8>(p, x, block0, block1);
    case 3: return vnni_stream<3, 4>(p, x, block0, block1);
    case 4: return vnni_stream<4, 4>(p, x, block0, block1);
    case 5: return vnni_stream<5, 4>(p, x, block0, block1);
    case 6: return vnni_stream<6, 4>(p, x, block0, block1);
    default: break;
  }
  const int64_t depth = int8_depth(p.w.k), tiles = chunk_count(p.m, kTall);
  // A group has `depth` cache lines, and a tile depth / 4 steps.
  const int64_t every =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, tiles / 4))));
  const Ahead none{p.w.blocks, -1};  // asks for its first line, once
  for (int64_t b = block0; b < block1; b += kGroup) {
    const int64_t end = std::min(b + kGroup, block1);
    Ahead ahead{p.w.blocks + end * kLanes * depth, 4 * every - 1};
    if (end == block1) ahead = none;
    for (int64_t t = 0; t < tiles; ++t) {  // all of nearly the same height
      vnni_tile_of<kTall>(p, x, {p.m * t / tiles, p.m * (t + 1) / tiles}, {b, end}, ahead);
      if (end != block1) ahead.from += 64 * chunk_count(depth / 4, every);
    }
  }
}

// As quantize_row().
void quantize_row_vnni(const float* x, int64_t k, int64_t depth, int8_t* out, float& scale,
                       int8_t plus) {
  const auto mask = [&](int64_t i) {
    return k - i >= kLanes ? __mmask16(0xffff) : static_cast<__mmask16>((1u << (k - i)) - 1);
  };
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  __m512i most = _mm512_setzero_si512();
  for (int64_t i = 0; i < k; i += kLanes)
    most = _mm512_max_epi32(most,
                            _mm512_and_si512(magnitude, _mm512_maskz_loadu_epi32(mask(i), x + i)));
  const Scaling by = scaling_of(static_cast<uint32_t>(_mm512_reduce_max_epi32(most)));
  scale = by.scale;
  if (by.inverse == 0) {
    std::memset(out, plus, static_cast<size_t>(depth));
    return;
  }
  const __m512 inverse = _mm512_set1_ps(by.inverse);
  const __m512i least = _mm512_set1_epi32(-127), largest = _mm512_set1_epi32(127);
  const __m128i added = _mm_set1_epi8(plus);
  int64_t i = 0;
  for (; i < k; i += kLanes) {
    const __m512i q =
        _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask(i), x + i), inverse));
    const __m128i bytes =
        _mm512_cvtepi32_epi8(_mm512_min_epi32(_mm512_max_epi32(q, least), largest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), _mm_add_epi8(bytes, added));
  }
  std::memset(out + i, plus, static_cast<size_t>(depth - i));
}

#pragma GCC pop_options

// ---- AMX: matrix registers of 16 rows of 64 bytes

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8")

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, unused[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

// Two by two registers of sums, so that each that is loaded is used twice. Rows up to the next
// multiple of 32 are there, and are not written.
void amx(const Int8Matmul& p, const Rows& x, int64_t block0, int64_t block1) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) config.bytes[i] = 64, config.rows[i] = 16;
  _tile_loadconfig(&config);
  const int64_t depth = int8_depth(p.w.k);
  alignas(64) int32_t sums[2][2][16][16];
  for (int64_t b = block0; b < block1; b += 2) {
    const int64_t both = b + 1 < block1 ? kLanes * depth : 0;  // an odd one is done twice
    for (int64_t row = 0; row < p.m; row += kMatrixRows) {
      const int64_t lower = p.m - row > 16 ? 16 * x.row : 0;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      const int8_t* w = p.w.blocks + b * kLanes * depth;
      const int8_t* a = x.data + row * x.row;
      for (int64_t i = 0; i < depth; i += 64, w += 64 * kLanes, a += 64) {
        _tile_loadd(4, a, x.row);
        _tile_loadd(6, w, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(7, w + both, 64);
        _tile_dpbssd(1, 4, 7);
        if (lower == 0) continue;
        _tile_loadd(5, a + lower, x.row);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      }
      _tile_stored(0, sums[0][0], 64);
      _tile_stored(1, sums[0][1], 64);
      if (lower != 0) {
        _tile_stored(2, sums[1][0], 64);
        _tile_stored(3, sums[1][1], 64);
      }
      for (int64_t j = 0; j < (both ? 2 : 1); ++j) {
        const Outputs outputs(p, b + j);
        for (int64_t r = 0; r < std::min(kMatrixRows, p.m - row); ++r)
          outputs.finish(p, row + r, x.scales[row + r], _mm512_load_si512(sums[r / 16][j][r % 16]));
      }
    }
  }
  _tile_release();
}

#pragma GCC pop_options

// The kernel gives a process AMX's registers when it asks for them.
bool amx_is_granted() {
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

bool has_amx_int8() {
  uint32_t a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  return (d & (1u << 24)) && (d & (1u << 25));  // AMX-TILE, AMX-INT8
}

#endif

// How a product is made: the sums, how rows are quantized for them, and of how many rows.
struct Way {
  void (*multiply)(const Int8Matmul&, const Rows&, int64_t block0, int64_t block1) = plain;
  QuantizeRow* quantize = quantize_row;
  int8_t plus = 0;
  int64_t rows = 1;
};
Way way_of([[maybe_unused]] Int8Path path) {
#if defined(__x86_64__)
  switch (path) {
    case Int8Path::plain: break;
    case Int8Path::avx2: return {.multiply = avx2};
    case Int8Path::vnni: return {vnni, quantize_row_vnni, -128};
    case Int8Path::amx: return {amx, quantize_row_vnni, 0, kMatrixRows};
  }
#endif
  return {};
}

// Matrix registers are set up and emptied once for a few blocks: so much work makes up for it.
Int8Path fastest(int64_t rows, int64_t depth) {
  if (rows >= 4 && rows * depth >= 2048 && runs_here(Int8Path::amx)) return Int8Path::amx;
  if (runs_here(Int8Path::vnni)) return Int8Path::vnni;
  return runs_here(Int8Path::avx2) ? Int8Path::avx2 : Int8Path::plain;
}

}  // namespace

bool runs_here(Int8Path path) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2");
  static const bool has_vnni =
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
  static const bool has_amx = has_vnni && has_amx_int8() && amx_is_granted();
  switch (path) {
    case Int8Path::plain: break;
    case Int8Path::avx2: return has_avx2;
    case Int8Path::vnni: return has_vnni;
    case Int8Path::amx: return has_amx;
  }
#endif
  return path == Int8Path::plain;  // elsewhere compilers make vectors of the plain loops
}

const char* name(Int8Path path) {
  constexpr const char* names[] = {"plain", "avx2", "vnni", "amx"};
  return names[static_cast<size_t>(path)];
}

void run(Cpu, const QuantizeWeights& p) {
  const int64_t depth = int8_depth(p.k), blocks = chunk_count(p.n, kLanes);
  const int64_t grain = std::max<int64_t>(1, (1 << 14) / depth);
  parallel_for(blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      int8_t* const out = p.blocks + b * kLanes * depth;
      std::memset(out, 0, static_cast<size_t>(kLanes * depth));
      const int64_t n = std::min(kLanes, p.n - b * kLanes);
      const float* const w = p.w.data + b * kLanes * p.w.col;
      uint32_t most[kLanes] = {};
      for (int64_t i = 0; i < p.k; ++i)
        for (int64_t o = 0; o < n; ++o)
          most[o] = std::max(most[o],
                             std::bit_cast<uint32_t>(w[i * p.w.row + o * p.w.col]) & 0x7fffffffu);
      Scaling by[kLanes] = {};
      for (int64_t o = 0; o < n; ++o) by[o] = scaling_of(most[o]);
      int32_t sums[kLanes] = {};
      for (int64_t i = 0; i < p.k; ++i)
        for (int64_t o = 0; o < n; ++o) {
          const int8_t q = by[o].inverse == 0
                               ? int8_t{0}
                               : rounded(w[i * p.w.row + o * p.w.col] * by[o].inverse);
          out[(i / 4 * kLanes + o) * 4 + i % 4] = q;
          sums[o] += q;
        }
      for (int64_t o = 0; o < n; ++o) {
        p.scales[b * kLanes + o] = by[o].scale;
        p.sums[b * kLanes + o] = sums[o];
      }
    }
  });
}

void run(Cpu, const Int8MatmulEach& all) {
  const Int8Matmul& first = all.each[0];
  const int64_t m = first.m, depth = int8_depth(first.w.k), row = depth + kApart;
  if (m == 0) return;
  const Way way = way_of(first.path.value_or(fastest(m, depth)));
  const int64_t rows = chunk_count(m, way.rows) * way.rows;
  int8_t* const quantized = scratch<Scratch::product_left, int8_t>(rows * row);
  float* const scales = scratch<Scratch::product_right, float>(m);
  parallel_for(rows, std::max<int64_t>(1, (1 << 15) / depth), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      int8_t* const out = quantized + r * row;
      if (r < m)
        way.quantize(first.x + r * first.x_row, first.w.k, depth, out, scales[r], way.plus);
      else
        std::memset(out, 0, static_cast<size_t>(depth));
    }
  });
  const Rows x{quantized, row, scales};
  const auto blocks_of = [](const Int8Matmul& p) { return chunk_count(p.w.n, kLanes); };
  int64_t groups = 0;
  for (const Int8Matmul& p : all.each) groups += chunk_count(blocks_of(p), kGroup);
  const int64_t cost = std::max<int64_t>(1, kGroup * kLanes * depth * chunk_count(m, 4));
  parallel_for(groups, std::max<int64_t>(1, (1 << 18) / cost), [&](int64_t begin, int64_t end) {
    for (const Int8Matmul& p : all.each) {
      const int64_t blocks = blocks_of(p), own = chunk_count(blocks, kGroup);
      if (begin < own && end > 0)
        way.multiply(p, x, std::max<int64_t>(0, begin) * kGroup,
                     std::min(blocks, std::min(own, end) * kGroup));
      begin -= own, end -= own;
    }
  });
}

void run(Cpu, const Int8Matmul& p) { run(Cpu{}, Int8MatmulEach{{&p, 1}}); }

void run(Cpu, const Int8Columns& p) {
  const int64_t depth = int8_depth(p.w.k);
  parallel_for(p.count, std::max<int64_t>(1, (1 << 14) / depth), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t o = p.ids[c];
      const int8_t* const w = p.w.blocks + o / kLanes * kLanes * depth + o % kLanes * 4;
      const float scale = p.w.scales[o];
      for (int64_t i = 0; i < p.w.k; ++i)
        p.y[c * p.w.k + i] = static_cast<float>(w[i / 4 * 4 * kLanes + i % 4]) * scale;
    }
  });
}

}  // namespace heed::kernels
