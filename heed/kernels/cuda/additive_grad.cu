// Additive attention on the GPU, the backward pass, in tiles (additive_tile.cuh).
//
// With ds = d score:  b = ds (1 - t^2),  dq = v sum_j b,  dk = v sum_i b,
// dv = sum_ij ds t. `dscores` computes ds for some keys (scores recomputed, weights from the saved
// log-sum-exp, g . value, and d value on the way), `spread` passes over the pairs once: an element
// is 7 operations and a reciprocal, 8 issued in 8 clocks. Pairs would spare half of the reciprocals
// for 1.5 operations: 9 in 9.
// So a training step is 3 evaluations of each element: one for scores forward, one for scores
// backward, and one, twice as dear, for the gradient.
#include "heed/kernels/cuda/additive.h"
#include "heed/kernels/cuda/additive_tile.cuh"

namespace heed::kernels {
namespace {

// The most d scores that are held at once: enough for `spread` to fill a GPU twice.
constexpr int64_t kDScores = 8 << 20;
constexpr int kBatch = 16;  // keys at a time in `spread`
constexpr int kHeld = 8;    // such batches whose sums it has in registers

// Some batch items and some keys of them, which a launch has; with key0 a multiple of kOwn.
template <class T>
struct Back {
  AttentionGrad<T> k;
  Given<T> given;
  Heads<const float> g;  // d context, value_width long, aligned to 16 bytes
  const float* mean;     // [B, H, Tq]: g . context
  int b0, batch, key0, keys;
  bool first, last;  // keys of these batch items

  float* dscore;  // d score [batch, H, dscore_keys, dscore_row]: queries lie side by side
  int dscore_row, dscore_keys;
  int splits;          // of the queries, in `dscores`
  float* value_parts;  // [splits, batch, G, keys, value_width], or null: dvalue itself
  int chunks;          // of the queries, in `spread`
  float* key_parts;    // [H / G, chunks, batch, G, keys, width], or null: dk itself
  float* query_sums;   // [B, H, Tq, width] where dq is summed over several launches, or null
  float* v_parts;      // [B, H, chunks, width]
};

// d score for 32 keys of a block and its share of the queries, and d value.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) dscores(const __grid_constant__ Back<T> p) {
  extern __shared__ __align__(16) float memory[];
  const int columns = kColumns * p.given.parts;
  float *stages = memory, *tile = stages + 2 * kStage, *sums = tile + kOwn * kTileRow,
        *v = sums + kOwn * columns;
  __shared__ Seen ranges[kPass];
  const Given<T>& given = p.given;
  const Attention<T>& a = given.a;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int key_tiles = (p.keys + kOwn - 1) / kOwn;
  const int64_t group = blockIdx.x / key_tiles;  // of this launch
  const int64_t b = p.b0 + group / a.key_heads, g = group % a.key_heads;
  const int key = p.key0 + static_cast<int>(blockIdx.x % key_tiles) * kOwn;
  const int rows = min(kOwn, static_cast<int>(a.keys) - key);
  const int heads = static_cast<int>(a.heads / a.key_heads);
  const int queries = static_cast<int>(a.queries), n = static_cast<int>(a.size);
  const int query_tiles = (queries + kPass - 1) / kPass;
  const int64_t key_row0 = (b * a.key_heads + g) * a.keys + key;
  const Side own{given.f + key_row0 * given.width, given.f_most + key_row0, rows};
  const float own_top = warp_max(lane < rows ? own.most[lane] : 0.0f);
  const RowDrop drop = drop_of(a);
  const int column0 = blockIdx.z * columns, width = min(columns, given.value_width - column0);
  const Place at = place();
  clear_sums(sums, columns);

  const int64_t total = static_cast<int64_t>(heads) * query_tiles;
  const int begin = static_cast<int>(total * blockIdx.y / gridDim.y);
  const int end = static_cast<int>(total * (blockIdx.y + 1) / gridDim.y);
  for (int t = begin; t < end; ++t) {
    const int64_t h = g * heads + t / query_tiles, head = b * a.heads + h;
    const int q0 = t % query_tiles * kPass, count = min(kPass, queries - q0);
    __syncthreads();  // ranges and v are written again
    if (t == begin || q0 == 0) take_v(a.v + h * a.size, n, given.width, v);
    bool some = false;
    if (threadIdx.x < kPass) {
      const int i = threadIdx.x;
      const Seen seen = i < count ? seen_by(a, b, h, q0 + i) : Seen{0, 0};
      ranges[i] = seen;
      some = seen.meets(key, key + kOwn);
    }
    float* dscore = p.dscore + (((b - p.b0) * a.heads + h) * p.dscore_keys + key - p.key0) *
                                   static_cast<int64_t>(p.dscore_row);
    if (!__syncthreads_or(some)) {
      if (blockIdx.z == 0)
        for (int x = threadIdx.x; x < kOwn * kPass; x += kThreads)
          if (q0 + x % kPass < p.dscore_row)
            dscore[x / kPass * static_cast<int64_t>(p.dscore_row) + q0 + x % kPass] = 0;
      continue;
    }
    const bool busy =
        __any_sync(~0u, lane < kWarpPass &&
                            ranges[warp * kWarpPass + lane % kWarpPass].meets(key, key + kOwn));

    const int64_t number0 = head * a.queries + q0;
    const Side others{given.e + number0 * given.width, given.e_most + number0, count};
    {
      float sum[4][4];
      const bool fit = tile_scores(own, own_top, others, given.width, v, busy, stages, sum);
      if (busy) put_scores(sum, tile);
      if (busy && !fit)
        score_again(
            tile,
            [&](int r, int i) {
              return ranges[i].has(key + r) && own.most[r] + others.most[i] > kFit;
            },
            [&](int r, int i) {
              return far_score(row_at(a.q, b, h, q0 + i), row_at(a.k, b, g, key + r), v, n);
            });
    }
    float dot[4][4] = {};
    const float* g_rows = row_at(p.g, b, h, q0);
    const auto sees_any = [&](int r) { return !ranges[r].none(); };
    in_turn(
        0, (given.value_width + kChunk - 1) / kChunk, stages, kStage,
        [&](int c, float* stage) {
          fetch_rows<kOwn>(stage, row_at(given.value, b, g, key), given.value.row, c * kChunk,
                           given.value_width, [&](int r) { return r < rows; });
          fetch_rows<kPass>(stage + kOwn * kRow, g_rows, p.g.row, c * kChunk, given.value_width,
                            sees_any);
        },
        [&](int, const float* stage) {
          if (!busy) return;
          const float *from = stage + at.own * kRow, *to = stage + (kOwn + at.pass) * kRow;
          float part[4][4] = {};  // short sums: what is left of g . (value - context) is small
#pragma unroll 1
          for (int x = 0; x < kChunk; x += 4) {
            float4 e[4], f[4];
#pragma unroll
            for (int u = 0; u < 4; ++u) {
              e[u] = *reinterpret_cast<const float4*>(from + 8 * u * kRow + x);
              f[u] = *reinterpret_cast<const float4*>(to + 4 * u * kRow + x);
            }
#pragma unroll
            for (int y = 0; y < 4; ++y)
#pragma unroll
              for (int z = 0; z < 4; ++z) {
                float s = part[y][z];
                s = fmaf(e[y].x, f[z].x, s), s = fmaf(e[y].y, f[z].y, s);
                s = fmaf(e[y].z, f[z].z, s), s = fmaf(e[y].w, f[z].w, s);
                part[y][z] = s;
              }
          }
#pragma unroll
          for (int y = 0; y < 4; ++y)
#pragma unroll
            for (int z = 0; z < 4; ++z) dot[y][z] += part[y][z];
        });
#pragma unroll
    for (int z = 0; z < 4; ++z) {
      const int i = at.pass + 4 * z;  // of the tile
      const Seen seen = ranges[i];
      const int64_t number = number0 + i;
      const bool live = busy && !seen.none();
      Extra extra{nullptr, false, 0, 0};
      float from = 0, mean = 0;
      uint4 words[2] = {};
      if (live) {
        const float lse = a.lse[number];
        from = lse == -INFINITY ? 0.0f : lse;
        mean = p.mean[number];
        extra = extra_of(a, b, h, q0 + i);
        if (drop.on)
          words[0] = drop.words(number, key + at.own),
          words[1] = drop.words(number, key + at.own + 8);
      }
#pragma unroll
      for (int y = 0; y < 4; ++y) {
        const int r = at.own + 8 * y, j = key + r;
        float weight = 0, ds = 0;
        if (live && seen.has(j)) {
          const float w = exp2f(extra(tile[r * kTileRow + i], j) - from);
          const float factor = drop.on ? drop.factor(words[y % 2], j) : 1.0f;
          weight = w * factor;
          if (w != 0) ds = w * (dot[y][z] * factor - mean);
        }
        tile[r * kTileRow + i] = weight;
        if (blockIdx.z == 0 && q0 + i < p.dscore_row)
          dscore[r * static_cast<int64_t>(p.dscore_row) + q0 + i] = ds;
      }
    }
    add_products(
        tile, 0, count, g_rows + column0, p.g.row, width, [](int) { return 1.0f; }, sees_any, false,
        [](int, int) { return true; }, stages, sums, columns);
  }

  const int m = static_cast<int>(a.value_size);
  for (int x = 0; x < 8; ++x) {
    const int r = threadIdx.x / 64 * 8 + x;
    if (r >= rows) break;
    for (int c = threadIdx.x % 64 * 4; c < width; c += kColumns) {
      float4 sum = *reinterpret_cast<const float4*>(sums + r * columns + c);
      const int at_column = column0 + c;
      if (p.value_parts) {
        const int64_t row =
            (blockIdx.y * static_cast<int64_t>(p.batch) * a.key_heads + group) * p.keys + key -
            p.key0 + r;
        store4(p.value_parts + row * given.value_width + at_column, sum, 4);
        continue;
      }
      T* to = row_at(p.k.dvalue, b, g, key + r) + at_column;
      if (p.k.add) {
        if (at_column < m) sum.x += wide(to[0]);
        if (at_column + 1 < m) sum.y += wide(to[1]);
        if (at_column + 2 < m) sum.z += wide(to[2]);
        if (at_column + 3 < m) sum.w += wide(to[3]);
      }
      store4(to, sum, m - at_column);
    }
  }
}

template <class T>
__device__ __noinline__ float far_tanh(const T* q, const T* k) {
  return tanh_of(wide(*q) + wide(*k));
}

// dq, dk and dv of 32 features. A thread has one feature of 32 queries, whose exponentials and sums
// stay in registers while the keys pass; a block has up to 8 times 32 queries, whose shares of dk
// it adds up. Sums over keys go to shared memory after every 128 of them: one chain of thousands
// would be rounded more than all else is.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) spread(const __grid_constant__ Back<T> p) {
  extern __shared__ __align__(16) float memory[];
  const Given<T>& given = p.given;
  const Attention<T>& a = given.a;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const int mine = warps * kWarp;                               // queries of the block
  const int stage_size = kBatch * (kWarp + mine);               // keys, and after them dscores
  float *stages = memory, *shares = stages + 2 * stage_size;    // [warps, kBatch, 32]
  float* held = shares + warps * kBatch * kWarp + threadIdx.x;  // [32, threads]
  __shared__ int lows[kThreads / kWarp], highs[kThreads / kWarp];

  const int64_t head_here = blockIdx.x / p.chunks;  // of this launch
  const int chunk = static_cast<int>(blockIdx.x % p.chunks);
  const int64_t b = p.b0 + head_here / a.heads, h = head_here % a.heads;
  const int64_t heads = a.heads / a.key_heads, g = h / heads, head = b * a.heads + h;
  const int i0 = chunk * mine + warp * kWarp, queries = static_cast<int>(a.queries);
  const int f = blockIdx.y * kWarp + lane;  // the feature
  const bool real = f < a.size;
  const float v = real ? a.v[h * a.size + f] : 0.0f;

  const Seen seen = i0 + lane < queries ? seen_by(a, b, h, i0 + lane) : Seen{0, 0};
  const int64_t number0 = head * a.queries + i0;
  const float my_most = seen.none() ? 0.0f : given.e_most[number0 + lane];
  const float top = warp_max(my_most);
  const unsigned some = __ballot_sync(~0u, !seen.none());
  // Rows that see nothing are zeros: whatever stands there, it takes no part.
  float e[kWarp], dq[kWarp];
#pragma unroll
  for (int u = 0; u < kWarp; ++u) {
    e[u] = some >> u & 1 ? given.e[(number0 + u) * given.width + f] : 0.0f;
    dq[u] = held[u * mine] = 0;
  }
  const int end_of_keys = p.key0 + p.keys;
  const int low = __reduce_min_sync(~0u, seen.none() ? end_of_keys : seen.begin);
  const int high = __reduce_max_sync(~0u, seen.end);
  if (lane == 0) lows[warp] = low, highs[warp] = high;
  __syncthreads();
  int block_low = end_of_keys, block_high = 0;
  for (int w = 0; w < warps; ++w)
    block_low = min(block_low, lows[w]), block_high = max(block_high, highs[w]);
  const int batches = (p.keys + kBatch - 1) / kBatch;
  const int first = min(batches, max(0, block_low - p.key0) / kBatch);
  const int last =
      max(first, (min(p.keys, block_high - p.key0) + kBatch - 1) / kBatch);  // < 0: no keys here

  const int64_t group = (b - p.b0) * a.key_heads + g, key_row0 = (b * a.key_heads + g) * a.keys;
  const int64_t part = (h % heads) * p.chunks + chunk;
  const auto put = [&](int j, float x) {  // j of this launch
    if (!real || j >= p.keys) return;
    if (p.key_parts) {
      p.key_parts[((part * p.batch * a.key_heads + group) * p.keys + j) * given.width + f] = x;
      return;
    }
    T* to = row_at(p.k.dk, b, g, p.key0 + j) + f;
    *to = narrow<T>(p.k.add ? wide(*to) + x : x);
  };
  if (p.key_parts || !p.k.add) {
    for (int j = warp; j < first * kBatch; j += warps) put(j, 0);
    for (int j = last * kBatch + warp; j < p.keys; j += warps) put(j, 0);
  }

  float dv = 0;
  in_turn(
      first, last, stages, stage_size,
      [&](int c, float* stage) {
        const int j0 = c * kBatch;
        const float* keys = given.f + (key_row0 + p.key0 + j0) * given.width + blockIdx.y * kWarp;
        for (int u = threadIdx.x; u < kBatch * kWarp / 4; u += blockDim.x) {
          const int r = u / (kWarp / 4), x = u % (kWarp / 4) * 4;
          const bool there = j0 + r < p.keys;
          copy16(stage + r * kWarp + x,
                 there ? keys + r * static_cast<int64_t>(given.width) + x : given.f, there);
        }
        const float* dscore =
            p.dscore + (head_here * p.dscore_keys + j0) * p.dscore_row + chunk * mine;
        for (int u = threadIdx.x; u < kBatch * mine / 4; u += blockDim.x) {
          const int r = u / (mine / 4), x = u % (mine / 4) * 4;
          const bool there = chunk * mine + x < p.dscore_row;
          copy16(stage + kBatch * kWarp + r * mine + x,
                 there ? dscore + r * static_cast<int64_t>(p.dscore_row) + x : p.dscore, there);
        }
      },
      [&](int c, const float* stage) {
        const int key = p.key0 + c * kBatch;
        float* share = shares + warp * kBatch * kWarp + lane;
        if (low >= key + kBatch || high <= key) {
#pragma unroll
          for (int j = 0; j < kBatch; ++j) share[j * kWarp] = 0;
        } else {
          const float far = lane < kBatch && key + lane < end_of_keys
                                ? given.f_most[key_row0 + key + lane]
                                : 0.0f;
          const float* keys = stage + lane;
          const float* dscore = stage + kBatch * kWarp + warp * kWarp;
          float dv_batch = 0;
          if (top + warp_max(far) <= kFit) {
#pragma unroll 1
            for (int j = 0; j < kBatch; ++j) {
              const float k = keys[j * kWarp];
              float dk = 0, dv_key = 0;
#pragma unroll
              for (int u = 0; u < kWarp; u += 4) {
                const float4 all = *reinterpret_cast<const float4*>(dscore + j * mine + u);
                const float ds[4] = {all.x, all.y, all.z, all.w};
#pragma unroll
                for (int x = 0; x < 4; ++x) {
                  const float t = fmaf(-2.0f, reciprocal(fmaf(e[u + x], k, 1.0f)), 1.0f);
                  const float y = ds[x] * t, z = fmaf(-y, t, ds[x]);
                  dv_key += y, dk += z, dq[u + x] += z;
                }
              }
              share[j * kWarp] = dk;
              dv_batch += dv_key;
            }
          } else {  // the same, pair by pair, with tanh itself where exponentials do not fit
#pragma unroll 1
            for (int j = 0; j < kBatch; ++j) {
              const float k = keys[j * kWarp], k_most = __shfl_sync(~0u, far, j);
              const T *q_at = row_at(a.q, b, h, i0) + f, *k_at = row_at(a.k, b, g, key + j) + f;
              float dk = 0, dv_key = 0;
#pragma unroll
              for (int u = 0; u < kWarp; ++u, q_at += a.q.row) {
                const float ds = dscore[j * mine + u];
                const bool fit = __shfl_sync(~0u, my_most, u) + k_most <= kFit;
                if (!fit && ds == 0) continue;  // the same for all lanes
                float t = fmaf(-2.0f, reciprocal(fmaf(e[u], k, 1.0f)), 1.0f);
                if (!fit) t = real ? far_tanh(q_at, k_at) : 0.0f;
                const float y = ds * t, z = fmaf(-y, t, ds);
                dv_key += y, dk += z, dq[u] += z;
              }
              share[j * kWarp] = dk;
              dv_batch += dv_key;
            }
          }
          dv += dv_batch;
        }
        if (c % kHeld == kHeld - 1) {
#pragma unroll
          for (int u = 0; u < kWarp; ++u) held[u * mine] += dq[u], dq[u] = 0;
        }
        __syncthreads();
        for (int j = warp; j < kBatch; j += warps) {
          float sum = 0;
          for (int w = 0; w < warps; ++w) sum += shares[(w * kBatch + j) * kWarp + lane];
          put(c * kBatch + j, v * sum);
        }
      });

#pragma unroll
  for (int u = 0; u < kWarp; ++u) {
    if (i0 + u >= queries) break;
    float x = v * (held[u * mine] + dq[u]);
    if (p.query_sums) {
      float* sum = p.query_sums + (number0 + u) * given.width + f;
      if (!p.first) x += *sum;
      if (!p.last) *sum = x;
    }
    if (real && p.last) row_at(p.k.dq, b, h, i0 + u)[f] = narrow<T>(x);
  }
  shares[warp * kWarp + lane] = dv;
  __syncthreads();
  if (warp > 0) return;
  float sum = 0;
  for (int w = 0; w < warps; ++w) sum += shares[w * kWarp + lane];
  float* to = p.v_parts + (head * p.chunks + chunk) * given.width + f;
  *to = p.first ? sum : *to + sum;
}

// The parts of dk and of dvalue, a row a block; after them, with `dv`, the parts of dv.
template <class T>
__global__ void __launch_bounds__(kThreads) collect(const __grid_constant__ Back<T> p, bool dv) {
  const Attention<T>& a = p.given.a;
  const int64_t rows = p.key_parts || p.value_parts ? p.batch * a.key_heads * p.keys : 0;
  const int64_t heads = a.heads / a.key_heads;
  for (int64_t row = blockIdx.x; row < rows + (dv ? a.heads : 0); row += gridDim.x) {
    if (row >= rows) {
      const int64_t h = row - rows;
      for (int x = threadIdx.x; x < a.size; x += kThreads) {
        float sum = 0;
        for (int64_t b = 0; b < a.batch; ++b) {
          const float* from = p.v_parts + (b * a.heads + h) * p.chunks * p.given.width + x;
#pragma unroll 4
          for (int c = 0; c < p.chunks; ++c) sum += from[c * static_cast<int64_t>(p.given.width)];
        }
        p.k.dv[h * a.size + x] = sum;
      }
      continue;
    }
    const int64_t j = row % p.keys, group = row / p.keys;
    const int64_t b = p.b0 + group / a.key_heads, g = group % a.key_heads;
    const auto gather = [&](const float* parts, int64_t count, int64_t width, int64_t n, T* to) {
      for (int64_t x = threadIdx.x; x < n; x += kThreads) {
        float sum = 0;
#pragma unroll 4
        for (int64_t c = 0; c < count; ++c) sum += parts[(c * rows + row) * width + x];
        to[x] = narrow<T>(p.k.add ? wide(to[x]) + sum : sum);
      }
    };
    if (p.key_parts)
      gather(p.key_parts, heads * p.chunks, p.given.width, a.size,
             row_at(p.k.dk, b, g, p.key0 + j));
    if (p.value_parts)
      gather(p.value_parts, p.splits, p.given.value_width, a.value_size,
             row_at(p.k.dvalue, b, g, p.key0 + j));
  }
}

// dbias += d score for a tile of 32 x 32, transposed; the sum over the batch where it has one bias.
template <class T>
__global__ void __launch_bounds__(kThreads) add_to_bias(const __grid_constant__ Back<T> p) {
  __shared__ float tile[kWarp][kWarp + 1];
  const Attention<T>& a = p.given.a;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const bool shared = p.k.dbias.batch == 0;
  const int query_tiles = static_cast<int>((a.queries + kWarp - 1) / kWarp);
  const int key_tiles = (p.keys + kWarp - 1) / kWarp;
  const int64_t total = (shared ? 1 : p.batch) * a.heads * query_tiles * key_tiles;
  for (int64_t u = blockIdx.x; u < total; u += gridDim.x) {
    const int i0 = static_cast<int>(u % query_tiles) * kWarp;
    const int j0 = static_cast<int>(u / query_tiles % key_tiles) * kWarp;
    const int64_t head = u / query_tiles / key_tiles, h = head % a.heads, b = head / a.heads;
    for (int r = warp; r < kWarp; r += kThreads / kWarp) {
      float sum = 0;
      for (int64_t c = shared ? 0 : b; c < (shared ? p.batch : b + 1); ++c)
        sum += p.dscore[((c * a.heads + h) * p.dscore_keys + j0 + r) * p.dscore_row + i0 + lane];
      tile[r][lane] = sum;
    }
    __syncthreads();
    for (int r = warp; r < kWarp; r += kThreads / kWarp)
      if (i0 + r < a.queries && j0 + lane < p.keys)
        row_at(p.k.dbias, p.b0 + b, h, i0 + r)[p.key0 + j0 + lane] += tile[lane][r];
    __syncthreads();
  }
}

// The same for a bias by distance, whose rows are one step back from each other: a block has one
// distance of a head, hence one element.
template <class T>
__global__ void __launch_bounds__(kThreads) add_to_distances(const __grid_constant__ Back<T> p) {
  __shared__ float workspace[kThreads / kWarp];
  const Attention<T>& a = p.given.a;
  const int queries = static_cast<int>(a.queries), distances = queries + p.keys - 1;
  const bool shared = p.k.dbias.batch == 0;
  const int64_t total = (shared ? 1 : p.batch) * a.heads * distances;
  for (int64_t u = blockIdx.x; u < total; u += gridDim.x) {
    const int away = static_cast<int>(u % distances) - (queries - 1);  // j - i, j of this launch
    const int64_t head = u / distances, h = head % a.heads, b = head / a.heads;
    const int first = max(0, -away), last = min(queries, p.keys - away);
    float sum = 0;
    for (int64_t c = shared ? 0 : b; c < (shared ? p.batch : b + 1); ++c)
      for (int i = first + threadIdx.x; i < last; i += kThreads)
        sum += p.dscore[((c * a.heads + h) * p.dscore_keys + i + away) * p.dscore_row + i];
    sum = block_sum(sum, workspace);
    if (threadIdx.x == 0) row_at(p.k.dbias, p.b0 + b, h, 0)[p.key0 + away] += sum;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) take_place(const __grid_constant__ Back<T> p) {
  const Attention<T>& a = p.given.a;
  const int64_t total = p.batch * a.heads * a.queries;
  for (int64_t u = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; u < total;
       u += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t head = u / a.queries, i = u % a.queries;
    const int64_t number = (p.b0 * a.heads + head) * a.queries + i;
    const float place = a.place[number];
    const float* dscore = p.dscore + head * p.dscore_keys * p.dscore_row + i;
    float sum = 0;
#pragma unroll 4
    for (int j = 0; j < p.keys; ++j)
      sum += dscore[j * static_cast<int64_t>(p.dscore_row)] * 2 * a.falloff *
             (static_cast<float>(p.key0 + j) - place);
    p.k.dplace[number] = p.first ? sum : p.k.dplace[number] + sum;
  }
}

}  // namespace

template <class T>
void additive_attention_grad(Cuda device, const AttentionGrad<T>& k) {
  const Attention<T>& a = k.forward;
  const cudaStream_t stream = stream_of(device);
  if (a.batch * a.heads == 0) return;
  if (a.queries > 0 && a.keys > 0 && step_fits(k)) return additive_step_grad(device, k);

  Prepare<T> prepared = plan(a, k.dcontext);
  Back<T> p{};
  p.k = k;
  // What a launch has: whole batch items or, where one has too many pairs, some of its keys.
  p.dscore_row = static_cast<int>(rounded_up(a.queries, kWarp));
  const int64_t all_keys = rounded_up(a.keys, kOwn);
  const int64_t item = std::max<int64_t>(1, a.heads * p.dscore_row * all_keys);
  int64_t batch = 1, keys = std::max<int64_t>(kOwn, all_keys);
  if (item <= kDScores)
    batch = std::min(a.batch, kDScores / item);
  else
    keys = std::min(all_keys,
                    std::max<int64_t>(kPass, kDScores / (a.heads * p.dscore_row) / kPass * kPass));
  const int64_t heads = a.heads / a.key_heads;
  p.dscore_keys = static_cast<int>(keys);
  const int64_t warps = std::clamp<int64_t>(ceil_div(a.queries, kWarp), 1, kThreads / kWarp);
  p.chunks = static_cast<int>(std::max<int64_t>(1, ceil_div(a.queries, warps * kWarp)));
  // Blocks of `dscores`: two on each multiprocessor, if the keys alone do not fill them.
  const int64_t blocks = std::max<int64_t>(1, batch * a.key_heads * (keys / kOwn));
  p.splits = static_cast<int>(std::clamp<int64_t>(
      2 * multiprocessors() / blocks, 1, std::max<int64_t>(1, heads * ceil_div(a.queries, kPass))));
  Workspace workspace;
  const auto count_all = [&] {
    count(workspace, prepared, false);
    workspace.wants(p.dscore, batch * a.heads * p.dscore_keys * p.dscore_row);
    if (p.splits > 1)
      workspace.wants(p.value_parts, p.splits * batch * a.key_heads * keys * prepared.value_width);
    if (heads * p.chunks > 1)
      workspace.wants(p.key_parts, heads * p.chunks * batch * a.key_heads * keys * prepared.width);
    if (keys < a.keys)
      workspace.wants(p.query_sums, a.batch * a.heads * a.queries * prepared.width);
    workspace.wants(p.v_parts, a.batch * a.heads * p.chunks * prepared.width);
  };
  count_all();
  workspace.take(device);
  count_all();
  p.given = launch(stream, prepared);
  p.g = as_floats(k.dcontext, prepared.g_copy, a.heads, a.queries, prepared.value_width);
  p.mean = prepared.mean;

  const size_t spread_shared =
      static_cast<size_t>(kBatch * kWarp * (2 * (1 + warps) + warps) + warps * kWarp * kWarp) *
      sizeof(float);
  allow_shared(spread<T>, spread_shared);
  const size_t dscores_shared = tile_shared(p.given.width, p.given.parts);
  allow_shared(dscores<T>, dscores_shared);
  for (int64_t b = 0; b < a.batch; b += batch)
    for (int64_t key = 0; key == 0 || key < a.keys; key += keys) {
      p.b0 = static_cast<int>(b), p.batch = static_cast<int>(std::min(batch, a.batch - b));
      p.key0 = static_cast<int>(key), p.keys = static_cast<int>(std::min(keys, a.keys - key));
      p.first = key == 0, p.last = key + keys >= a.keys;
      if (p.keys > 0) {
        const dim3 grid(static_cast<unsigned>(p.batch * a.key_heads * ceil_div(p.keys, kOwn)),
                        static_cast<unsigned>(p.splits), column_blocks(p.given));
        dscores<T><<<grid, kThreads, dscores_shared, stream>>>(p);
        launched("gradient of additive attention, d score");
      }
      if (a.size > 0) {
        spread<T><<<dim3(static_cast<unsigned>(p.batch * a.heads * p.chunks),
                         static_cast<unsigned>(prepared.width / kWarp)),
                    static_cast<unsigned>(warps * kWarp), spread_shared, stream>>>(p);
        launched("gradient of additive attention, queries and keys");
      }
      const bool end = b + p.batch >= a.batch && p.last;
      const int64_t rows = p.key_parts || p.value_parts ? p.batch * a.key_heads * p.keys : 0;
      if (rows > 0 || end) {
        collect<T><<<grid_for(rows + (end ? a.heads : 0), 1, 64), kThreads, 0, stream>>>(p, end);
        launched("gradient of additive attention, sums");
      }
      if (k.dbias.data && p.keys > 0 && a.queries > 0) {
        const int64_t elements = p.batch * a.heads * a.queries * p.keys;
        if (k.dbias.row == -1)
          add_to_distances<T><<<grid_for(elements, kThreads), kThreads, 0, stream>>>(p);
        else
          add_to_bias<T><<<grid_for(elements, kWarp * kWarp), kThreads, 0, stream>>>(p);
        launched("gradient of additive attention, bias");
      }
      if (k.dplace && a.queries > 0) {
        take_place<T>
            <<<grid_for(p.batch * a.heads * a.queries, kThreads), kThreads, 0, stream>>>(p);
        launched("gradient of additive attention, places");
      }
    }
}

template void additive_attention_grad(Cuda, const AttentionGrad<float>&);
template void additive_attention_grad(Cuda, const AttentionGrad<bf16>&);

}  // namespace heed::kernels
