// Additive attention on the GPU in tiles: score = v . tanh(q + k), softmax, the mean of the values.
// Nothing of size Tq x Tk x n is ever held; of Tq x Tk nothing forward, and backward no more than
// kDScores elements (additive_grad.cu).
//
// tanh(q + k) = 1 - 2 r with r = 1 / (1 + e^(2q) e^(2k)): the exponentials are taken once for each
// query and each key (prepare), and what is left for each pair is
//   score = -2 sum_x v_x (r_x - 1/2),
// for two features at a time with one reciprocal: v / a + w / b = (v b + w a) / (a b). For two
// elements that is 6 operations of the FMA units and one of the unit for reciprocals, which is 8
// times slower: 7 issued in 8 clocks, against 6 in 16 without the pairs. The products of
// exponentials fit into a float while |2q| + |2k| <= 86 and, without a limit that costs 2
// operations more, those of two while it is <= 43; beyond, tanh itself is computed. That is decided
// for each pair and leaves the others' bits alone.
//
// Tiling: tiles begin at fixed keys and every sum has one order: the same bits every time. A row's
// bits depend neither on the rows beside it nor on keys that it does not see, but on whether
// queries are few (additive_step.cu).
//
// Included by additive.cu (forward) and additive_grad.cu (backward) alone.
#pragma once

#include <cfloat>

#include <algorithm>
#include <type_traits>

#include "heed/kernels/cuda/additive.cuh"
#include "heed/kernels/cuda/instructions.cuh"

namespace heed::kernels {
namespace {

constexpr int kThreads = 256;
constexpr float kFit = 86, kPairsFit = 43;  // what |2q| + |2k| may be
constexpr float kLimit = 9e18f;             // beyond e^43; its square is a float

// A block has a tile of kOwn rows (queries forward, keys backward) and passes over the others kPass
// at a time. A thread has 4 x 4 pairs of a tile.
constexpr int kOwn = 32, kPass = 128;
constexpr int kWarpPass = kPass / (kThreads / kWarp);  // a warp has 16 of those passed over
constexpr int kChunk = 32;                             // features at a time
constexpr int kRow = kChunk + 4;                       // so that 8 rows have different banks
constexpr int kStage = (kOwn + kPass) * kRow;          // floats of one of two stages
constexpr int kTileRow = kPass + 20;
constexpr int kColumns = 256;  // columns of values that the threads of a block have, 8 x 4 each
constexpr int kProduct = 16;   // rows of values at a time
static_assert(kPass % kProduct == 0 && kProduct * kColumns <= kStage);

// ---- memory

// fetch(c, stage) and then use(c, stage) for c in [first, last), each fetched while the one before
// is used. Begins and ends with all threads done with the stages.
template <class Fetch, class Use>
__device__ inline void in_turn(int first, int last, float* stages, int stage_size, Fetch fetch,
                               Use use) {
  if (first < last) fetch(first, stages);
  copies_end();
  for (int c = first; c < last; ++c) {
    const int now = (c - first) % 2;
    if (c + 1 < last) fetch(c + 1, stages + (1 - now) * stage_size);
    copies_end();
    copies_wait<1>();
    __syncthreads();
    use(c, stages + now * stage_size);
    __syncthreads();
  }
}

// Columns [x, x + kChunk) of kRows rows, zeros where there are none.
template <int kRows, class Valid>
__device__ inline void fetch_rows(float* to, const float* from, int64_t row, int x, int width,
                                  Valid valid) {
  static_assert(kRows * kChunk / 4 % kThreads == 0);
#pragma unroll
  for (int u = 0; u < kRows * kChunk / 4; u += kThreads) {
    const int r = (u + threadIdx.x) / (kChunk / 4), c = (u + threadIdx.x) % (kChunk / 4) * 4;
    const bool there = valid(r) && x + c < width;
    copy16(to + r * kRow + c, there ? from + r * row + x + c : from, there);
  }
}

template <class T>
__device__ void store4(T* to, float4 x, int count) {
  const float each[4] = {x.x, x.y, x.z, x.w};
  T out[4];
#pragma unroll
  for (int u = 0; u < 4; ++u) out[u] = narrow<T>(each[u]);
  using Wide4 = std::conditional_t<sizeof(T) == 4, float4, uint2>;
  if (count >= 4 && reinterpret_cast<uintptr_t>(to) % sizeof(Wide4) == 0) {
    Wide4 all;
    memcpy(&all, out, sizeof all);
    *reinterpret_cast<Wide4*>(to) = all;
    return;
  }
#pragma unroll
  for (int u = 0; u < 4; ++u)
    if (u < count) to[u] = out[u];
}

// ---- what is computed once for each row

template <class T>
struct Prepare {
  Attention<T> a;
  int width, value_width;  // rows of results, with what they are padded by
  float *e, *e_most;       // e^(2q) [B, H, Tq, width], and the largest |2q| of each row
  float *f, *f_most;       // the same of keys [B, G, Tk, width]
  float* value;            // values as floats [B, G, Tk, value_width], or null
  uint8_t* non_finite;     // [B, G, Tk]: 1 where not all of a value is finite; or null
  Heads<const T> g;        // backward: d context, or null
  float *g_copy, *mean;    // as floats, or null; g . context
};

// Ones after the end. An infinite maximum where there is anything non-finite.
template <class T>
__device__ void exponentials(const T* from, int n, int width, float* to, float* most) {
  float top = 0;
#pragma unroll 4
  for (int x = threadIdx.x % kWarp; x < width; x += kWarp) {
    const float given = x < n ? wide(from[x]) : 0.0f, twice = given + given;
    top = fabsf(twice) <= FLT_MAX ? fmaxf(top, fabsf(twice)) : INFINITY;
    to[x] = expf(twice);
  }
  top = warp_max(top);
  if (threadIdx.x % kWarp == 0) *most = top;
}

template <class T>
__global__ void __launch_bounds__(kThreads) prepare(const __grid_constant__ Prepare<T> p) {
  const Attention<T>& a = p.a;
  const int lane = threadIdx.x % kWarp;
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size);
  const int64_t queries = a.batch * a.heads * a.queries, keys = a.batch * a.key_heads * a.keys;
  const bool values = p.value || p.non_finite;
  const int64_t total = queries + keys + (values ? keys : 0) + (p.g.data ? queries : 0);
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kThreads / kWarp);
  for (int64_t u = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       u < total; u += warps) {
    int64_t row = u;
    if (row < queries) {
      const int64_t i = row % a.queries, head = row / a.queries;
      exponentials(row_at(a.q, head / a.heads, head % a.heads, i), n, p.width, p.e + row * p.width,
                   p.e_most + row);
      continue;
    }
    if (row -= queries; row < keys) {
      const int64_t j = row % a.keys, head = row / a.keys;
      exponentials(row_at(a.k, head / a.key_heads, head % a.key_heads, j), n, p.width,
                   p.f + row * p.width, p.f_most + row);
      continue;
    }
    if (row -= keys; values && row < keys) {
      const int64_t j = row % a.keys, head = row / a.keys;
      const T* from = row_at(a.value, head / a.key_heads, head % a.key_heads, j);
      bool non_finite = false;
      for (int x = lane; x < p.value_width; x += kWarp) {
        const float given = x < m ? wide(from[x]) : 0.0f;
        non_finite |= !(fabsf(given) <= FLT_MAX);
        if (p.value) p.value[row * p.value_width + x] = given;
      }
      non_finite = __any_sync(~0u, non_finite);
      if (p.non_finite && lane == 0) p.non_finite[row] = non_finite;
      continue;
    }
    if (values) row -= keys;
    const int64_t i = row % a.queries, b = row / a.queries / a.heads, h = row / a.queries % a.heads;
    const T *from = row_at(p.g, b, h, i), *context = row_at(a.context, b, h, i);
    float sum = 0;
    for (int x = lane; x < p.value_width; x += kWarp) {
      const float given = x < m ? wide(from[x]) : 0.0f;
      if (x < m) sum = fmaf(given, wide(context[x]), sum);
      if (p.g_copy) p.g_copy[row * p.value_width + x] = given;
    }
    sum = warp_sum(sum);
    if (lane == 0) p.mean[row] = sum;
  }
}

// What the tiles are computed from.
template <class T>
struct Given {
  Attention<T> a;
  int width, value_width;
  const float *e, *e_most, *f, *f_most;
  Heads<const float> value;  // value_width long, aligned to 16 bytes
  const uint8_t* non_finite;
  int parts;  // of 256 columns, that a block has
};

// ---- a tile of scores

struct Side {  // rows of exponentials, one after the other
  const float *rows, *most;
  int count;
};

// Which pairs a thread has: rows `own` + 8 a of the own ones, and `pass` + 4 b of those passed
// over.
struct Place {
  int own, pass;
};
__device__ inline Place place() {
  const int thread = threadIdx.x;
  return {thread % 8, thread / kWarp * kWarpPass + thread % kWarp / 8};
}

template <bool kLimited>
__device__ inline void add_scores(const float* own, const float* pass, const float* v, float half,
                                  float (&sum)[4][4]) {
  const auto pair = [](float e, float f, float e1, float f1, float v0, float v1, float before) {
    float x = fmaf(e, f, 1.0f), y = fmaf(e1, f1, 1.0f);
    if (kLimited) x = fminf(x, kLimit), y = fminf(y, kLimit);
    return fmaf(fmaf(v0, y, v1 * x), reciprocal(x * y), before);
  };
  // Each sum begins at minus half of what it comes to where r is 1/2: so it stays small on its way,
  // and is rounded less.
  half /= 2;
  float part[4][4];
#pragma unroll
  for (int a = 0; a < 4; ++a)
#pragma unroll
    for (int b = 0; b < 4; ++b) part[a][b] = -half;
#pragma unroll 2
  for (int x = 0; x < kChunk; x += 4) {
    float4 e[4], f[4];
    const float4 w = *reinterpret_cast<const float4*>(v + x);
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      e[u] = *reinterpret_cast<const float4*>(own + 8 * u * kRow + x);
      f[u] = *reinterpret_cast<const float4*>(pass + 4 * u * kRow + x);
    }
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
      for (int b = 0; b < 4; ++b)
        part[a][b] = pair(e[a].x, f[b].x, e[a].y, f[b].y, w.x, w.y, part[a][b]);
#pragma unroll
    for (int a = 0; a < 4; ++a)
#pragma unroll
      for (int b = 0; b < 4; ++b)
        part[a][b] = pair(e[a].z, f[b].z, e[a].w, f[b].w, w.z, w.w, part[a][b]);
  }
#pragma unroll
  for (int a = 0; a < 4; ++a)
#pragma unroll
    for (int b = 0; b < 4; ++b) sum[a][b] += part[a][b] - half;
}

// sum_x v_x (r_x - 1/2) for the pairs of a thread: -1/2 of the score. Says whether all pairs of the
// warp fit. All threads of the block call it; a warp that is not `busy` only helps fetching.
__device__ inline bool tile_scores(const Side& own, float own_top, const Side& pass, int width,
                                   const float* v, bool busy, float* stages, float (&sum)[4][4]) {
  const Place at = place();
  const int lane = threadIdx.x % kWarp, mine = threadIdx.x / kWarp * kWarpPass + lane;
  const float top =
      own_top + warp_max(lane < kWarpPass && mine < pass.count ? pass.most[mine] : 0.0f);
#pragma unroll
  for (int a = 0; a < 4; ++a)
#pragma unroll
    for (int b = 0; b < 4; ++b) sum[a][b] = 0;
  in_turn(
      0, width / kChunk, stages, kStage,
      [&](int c, float* stage) {
        fetch_rows<kOwn>(stage, own.rows, width, c * kChunk, width,
                         [&](int r) { return r < own.count; });
        fetch_rows<kPass>(stage + kOwn * kRow, pass.rows, width, c * kChunk, width,
                          [&](int r) { return r < pass.count; });
      },
      [&](int c, const float* stage) {
        if (!busy) return;
        const float *from = stage + at.own * kRow, *to = stage + (kOwn + at.pass) * kRow;
        if (top <= kPairsFit)
          add_scores<false>(from, to, v + c * kChunk, v[width + c], sum);
        else
          add_scores<true>(from, to, v + c * kChunk, v[width + c], sum);
      });
  return top <= kFit;
}

// In units of log2(e).
__device__ inline void put_scores(const float (&sum)[4][4], float* tile) {
  const Place at = place();
#pragma unroll
  for (int a = 0; a < 4; ++a)
#pragma unroll
    for (int b = 0; b < 4; ++b)
      tile[(at.own + 8 * a) * kTileRow + at.pass + 4 * b] = -2 * kLog2E * sum[a][b];
}

// tile = score(own, pass) for the warp's pairs that are `wanted`, one by one: those whose
// exponentials do not fit. Hardly ever called.
template <class Wanted, class Score>
__device__ inline void score_again(float* tile, Wanted wanted, Score score) {
  __syncwarp();
#pragma unroll 1
  for (int u = threadIdx.x % kWarp; u < kOwn * kWarpPass; u += kWarp) {
    const int r = u / kWarpPass, i = threadIdx.x / kWarp * kWarpPass + u % kWarpPass;
    if (wanted(r, i)) tile[r * kTileRow + i] = score(r, i);
  }
  __syncwarp();
}
template <class T>
__device__ inline float far_score(const T* q, const T* k, const float* v, int n) {
  float sum = 0;
#pragma unroll 1
  for (int x = 0; x < n; ++x) sum = fmaf(v[x], tanh_of(wide(q[x]) + wide(k[x])), sum);
  return sum * kLog2E;
}

// v of a head into shared memory, zeros after the end, and half the sum of each chunk after it.
__device__ inline void take_v(const float* from, int n, int width, float* v) {
  for (int x = threadIdx.x; x < width; x += kThreads) v[x] = x < n ? from[x] : 0.0f;
  __syncthreads();
  for (int c = threadIdx.x / kWarp; c < width / kChunk; c += kThreads / kWarp) {
    const float sum = warp_sum(v[c * kChunk + threadIdx.x % kWarp]);
    if (threadIdx.x % kWarp == 0) v[width + c] = sum / 2;
  }
  __syncthreads();
}

// ---- a tile of weights times rows

// sums [own][column] = scale[own] * sums + sum_p tile[own][p] rows[p][column], p in [first, last).
// A thread has 8 rows and 4 columns of each 256, its sums in shared memory: a tile's sum is made in
// registers, which the scores need at other times, and errors stay those of short sums. Where
// `careful`, only pairs that sees(own, p) says yes to: 0 times what is non-finite is not 0.
template <class Scale, class Valid, class Sees>
__device__ inline void add_products(const float* tile, int first, int last, const float* rows,
                                    int64_t row, int width, Scale scale, Valid valid, bool careful,
                                    Sees sees, float* stages, float* sums, int sums_row) {
  const int column = threadIdx.x % 64 * 4, own = threadIdx.x / 64 * 8;
  for (int part = 0; part < width; part += kColumns) {
    const bool busy = part + column < width;
    float acc[8][4] = {};
    in_turn(
        first / kProduct, (last + kProduct - 1) / kProduct, stages, kStage,
        [&](int c, float* stage) {
#pragma unroll
          for (int u = 0; u < kProduct * kColumns / 4; u += kThreads) {
            const int r = (u + threadIdx.x) / (kColumns / 4),
                      x = (u + threadIdx.x) % (kColumns / 4) * 4;
            const int i = c * kProduct + r;
            const bool there = i < last && valid(i) && part + x < width;
            copy16(stage + r * kColumns + x, there ? rows + i * row + part + x : rows, there);
          }
        },
        [&](int c, const float* stage) {
          if (!busy) return;
#pragma unroll
          for (int i = 0; i < kProduct; i += 4) {
            float w[8][4];
#pragma unroll
            for (int a = 0; a < 8; ++a) {
              const float4 all =
                  *reinterpret_cast<const float4*>(tile + (own + a) * kTileRow + c * kProduct + i);
              w[a][0] = all.x, w[a][1] = all.y, w[a][2] = all.z, w[a][3] = all.w;
            }
#pragma unroll
            for (int u = 0; u < 4; ++u) {
              const float4 x =
                  *reinterpret_cast<const float4*>(stage + (i + u) * kColumns + column);
#pragma unroll
              for (int a = 0; a < 8; ++a) {
                if (careful && !sees(own + a, c * kProduct + i + u)) continue;
                acc[a][0] = fmaf(w[a][u], x.x, acc[a][0]),
                acc[a][1] = fmaf(w[a][u], x.y, acc[a][1]);
                acc[a][2] = fmaf(w[a][u], x.z, acc[a][2]),
                acc[a][3] = fmaf(w[a][u], x.w, acc[a][3]);
              }
            }
          }
        });
    if (!busy) continue;
#pragma unroll
    for (int a = 0; a < 8; ++a) {
      float4* to = reinterpret_cast<float4*>(sums + (own + a) * sums_row + part + column);
      const float factor = scale(own + a);
      const float4 old = *to;
      *to = make_float4(fmaf(old.x, factor, acc[a][0]), fmaf(old.y, factor, acc[a][1]),
                        fmaf(old.z, factor, acc[a][2]), fmaf(old.w, factor, acc[a][3]));
    }
  }
}
// Each thread those that it will add to.
__device__ inline void clear_sums(float* sums, int sums_row) {
  for (int x = threadIdx.x % 64 * 4; x < sums_row; x += kColumns)
#pragma unroll
    for (int a = 0; a < 8; ++a)
      *reinterpret_cast<float4*>(sums + (threadIdx.x / 64 * 8 + a) * sums_row + x) =
          make_float4(0, 0, 0, 0);
}

// Shared memory for tiles: stages, a tile, sums, a float for each own row, v and its chunks' sums.
size_t tile_shared(int width, int parts) {
  return (2 * kStage + kOwn * kTileRow + kOwn * kColumns * parts + kOwn + width + width / kChunk) *
         sizeof(float);
}

// Beside what the kernels declare themselves.
bool tile_fits(int width, int parts) {
  constexpr size_t kDeclared = kPass * sizeof(Seen);
  return tile_shared(width, parts) + kDeclared <= capabilities().shared;
}

// ---- launches

int64_t rounded_up(int64_t n, int64_t step) { return ceil_div(n, step) * step; }

// A kernel's workspace in scratch memory, first counted and then given out.
class Workspace {
 public:
  template <class U>
  void wants(U*& pointer, int64_t count) {
    if (base_) pointer = reinterpret_cast<U*>(base_ + used_);
    used_ += static_cast<size_t>(rounded_up(count * static_cast<int64_t>(sizeof(U)), 256));
  }
  void take(Cuda device) { base_ = static_cast<char*>(cuda_scratch(device, used_)), used_ = 0; }

 private:
  char* base_ = nullptr;
  size_t used_ = 0;
};

// Rows that can be copied 16 bytes at a time, as they stand.
template <class T>
bool ready(const Heads<const T>& x, int64_t n) {
  return std::is_same_v<T, float> && n % 4 == 0 && x.batch % 4 == 0 && x.head % 4 == 0 &&
         x.row % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}
template <class T>
Heads<const float> as_floats(const Heads<const T>& x, const float* copy, int64_t heads,
                             int64_t rows, int64_t width) {
  if constexpr (std::is_same_v<T, float>)
    if (!copy) return x;
  return {copy, heads * rows * width, rows * width, width};
}

template <class T>
Prepare<T> plan(const Attention<T>& a, const Heads<const T>& g) {
  Prepare<T> p{};
  p.a = a, p.g = g;
  p.width = static_cast<int>(rounded_up(a.size, kChunk));
  p.value_width = static_cast<int>(rounded_up(a.value_size, 4));
  return p;
}
template <class T>
void count(Workspace& workspace, Prepare<T>& p, bool non_finite) {
  const Attention<T>& a = p.a;
  const int64_t queries = a.batch * a.heads * a.queries, keys = a.batch * a.key_heads * a.keys;
  workspace.wants(p.e, queries * p.width), workspace.wants(p.e_most, queries);
  workspace.wants(p.f, keys * p.width), workspace.wants(p.f_most, keys);
  if (!ready(a.value, a.value_size)) workspace.wants(p.value, keys * p.value_width);
  if (non_finite) workspace.wants(p.non_finite, keys);
  if (!p.g.data) return;
  if (!ready(p.g, a.value_size)) workspace.wants(p.g_copy, queries * p.value_width);
  workspace.wants(p.mean, queries);
}
template <class T>
Given<T> launch(cudaStream_t stream, const Prepare<T>& p) {
  const Attention<T>& a = p.a;
  const int64_t queries = a.batch * a.heads * a.queries, keys = a.batch * a.key_heads * a.keys;
  const int64_t rows = queries * (p.g.data ? 2 : 1) + keys * (p.value || p.non_finite ? 2 : 1);
  prepare<T><<<grid_for(rows, kThreads / kWarp), kThreads, 0, stream>>>(p);
  launched("additive attention, exponentials");
  int parts = static_cast<int>(std::clamp<int64_t>(ceil_div(a.value_size, kColumns), 1, 4));
  while (parts > 1 && !tile_fits(p.width, parts)) --parts;
  return {a,
          p.width,
          p.value_width,
          p.e,
          p.e_most,
          p.f,
          p.f_most,
          as_floats(a.value, p.value, a.key_heads, a.keys, p.value_width),
          p.non_finite,
          parts};
}

// Blocks for all columns of the values: more than one only where shared memory does not hold them.
template <class T>
unsigned column_blocks(const Given<T>& given) {
  return static_cast<unsigned>(
      std::max<int64_t>(1, ceil_div(given.a.value_size, kColumns * given.parts)));
}

}  // namespace
}  // namespace heed::kernels
