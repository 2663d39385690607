// Fused attention by dot products in f32, forward: tiling into 32 rows by 32 or 64 keys with an
// online softmax (running maximum and sum; Dao et al., 2022, "FlashAttention"), the log-sum-exp of
// each row saved for backward; and for one query alone a block whose warps share its keys.
#include <algorithm>

#include "heed/kernels/cuda/dot.cuh"
#include "heed/kernels/cuda/launch.cuh"

namespace heed::kernels {
namespace {

struct Plan {
  bool q, k, value, context;  // read or written four elements at a time
  Drop drop;
};
template <class T>
Plan plan_of(const Attention<T>& a) {
  return {by_fours(a.q), by_fours(a.k), by_fours(a.value), by_fours(a.context), drop_of(a)};
}

// ---- tiles

constexpr int kThreads = 128;

template <int D, int BK>
struct Tile {  // of shared memory
  float q[kTileRows * (D + 4)], k[BK * (D + 4)], value[BK * (D + 4)], weight[kTileRows * (BK + 4)];
  float factor[kTileRows];  // what a row's sums are brought to the new maximum by, then 1 / sum
  float lse[kTileRows];
  Rows rows;
};

// The scores of a thread, -inf where its rows do not see.
template <int D, int BK, class T>
__device__ void take_scores(const Group<T>& group, const Tile<D, BK>& tile, int key,
                            float (&s)[Grid<BK, kThreads>::RI][4]) {
  using G = Grid<BK, kThreads>;
  const Attention<T>& a = group.a;
  multiply_rows<D, G>(tile.q, tile.k, static_cast<int>(a.size), tile.rows.count, s);
#pragma unroll
  for (int i = 0; i < G::RI; ++i) {
    const int r = G::row(i);
    const bool any = r < tile.rows.count;
    const float* bias = any && a.bias.data ? tile.rows.row_of(a.bias, group.b, r) : nullptr;
    const float place = any && a.place ? a.place[tile.rows.number(group, r)] : 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = key + G::key(j);
      s[i][j] = at >= tile.rows.begin[r] && at < tile.rows.end[r]
                    ? score_of(a, s[i][j], bias, place, at)
                    : -INFINITY;
    }
  }
}

template <class T, int D, int BK>
__global__ void __launch_bounds__(kThreads)
    attend_tile(const __grid_constant__ Attention<T> a, const Plan plan, int tiles) {
  using G = Grid<BK, kThreads>;
  extern __shared__ float4 shared[];
  Tile<D, BK>& tile = *reinterpret_cast<Tile<D, BK>*>(shared);
  Rows& rows = tile.rows;
  const int64_t index = blockIdx.x / tiles;
  const Group<T> group{a, index / a.key_heads, index % a.key_heads};
  const int row0 = static_cast<int>(blockIdx.x % tiles) * kTileRows;
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size);
  const int keys = static_cast<int>(a.keys);
  if (threadIdx.x < kWarp) take_range(group, row0, rows);
  __syncthreads();
  take_rows<D, kThreads, kTileRows, T>(tile.q, n, plan.q, [&](int r) {
    return rows.empty(r) ? nullptr : rows.row_of(a.q, group.b, r);
  });
  const auto take_keys = [&](int key) {
    take_rows<D, kThreads, BK, T>(tile.k, n, plan.k, [&](int j) {
      return key + j < keys ? row_at(a.k, group.b, group.g, key + j) : nullptr;
    });
  };

  // Threads of the mean of the values: four columns of RPT rows each.
  constexpr int CG = D / 4, RG = kThreads / CG, RPT = kTileRows / RG;
  const int column = static_cast<int>(threadIdx.x) % CG * 4;
  const int first = static_cast<int>(threadIdx.x) / CG;
  float4 sums[RPT];
#pragma unroll
  for (int i = 0; i < RPT; ++i) sums[i] = make_float4(0, 0, 0, 0);
  float most[G::RI], sum[G::RI];
#pragma unroll
  for (int i = 0; i < G::RI; ++i) most[i] = -INFINITY, sum[i] = 0;
  const uint64_t seed = plan.drop.threshold ? key_of(a.seed) : 0;

  for (int key = rows.low / BK * BK; key < rows.high; key += BK) {
    take_keys(key);
    const bool finite = take_rows<D, kThreads, BK, T>(tile.value, m, plan.value, [&](int j) {
      return key + j < keys ? row_at(a.value, group.b, group.g, key + j) : nullptr;
    });
    // 0 * NaN is NaN: where there is anything non-finite, each row reads only what it sees.
    const bool careful = __syncthreads_or(!finite);
    float s[G::RI][4];
    take_scores<D, BK>(group, tile, key, s);
#pragma unroll
    for (int i = 0; i < G::RI; ++i) {
      const int r = G::row(i);
      const float now =
          fmaxf(most[i], G::row_max(fmaxf(fmaxf(s[i][0], s[i][1]), fmaxf(s[i][2], s[i][3]))));
      // Where all scores are -inf so far, any finite maximum gives exponentials of 0.
      const float from = now == -INFINITY ? 0.0f : now;
      const float factor = exp2f(most[i] - from);
      most[i] = now;
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = exp2f(s[i][j] - from);
      sum[i] = fmaf(sum[i], factor, G::row_sum((s[i][0] + s[i][1]) + (s[i][2] + s[i][3])));
      if (plan.drop.threshold) {
        float keep[4];
        drop_factors<G>(plan.drop, seed, rows.number(group, r), key, keep);
#pragma unroll
        for (int j = 0; j < 4; ++j) s[i][j] *= keep[j];
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) tile.weight[r * (BK + 4) + G::key(j)] = s[i][j];
      if (G::tx() == 0) tile.factor[r] = factor;
    }
    __syncthreads();
    const int count = min(BK, keys - key);
#pragma unroll
    for (int i = 0; i < RPT; ++i) sums[i] = times(sums[i], tile.factor[first + RG * i]);
    if (column < m && !careful) {
#pragma unroll 1
      for (int j = 0; j < count; j += 4) {
        float4 v[4];
#pragma unroll
        for (int u = 0; u < 4; ++u) v[u] = at4(tile.value + (j + u) * (D + 4) + column);
#pragma unroll
        for (int i = 0; i < RPT; ++i) {
          const float4 w = at4(tile.weight + (first + RG * i) * (BK + 4) + j);
          add_times(sums[i], w.x, v[0]);
          add_times(sums[i], w.y, v[1]);
          add_times(sums[i], w.z, v[2]);
          add_times(sums[i], w.w, v[3]);
        }
      }
    } else if (column < m) {
#pragma unroll 1
      for (int j = 0; j < count; ++j) {
        const float4 v = at4(tile.value + j * (D + 4) + column);
#pragma unroll
        for (int i = 0; i < RPT; ++i) {
          const int r = first + RG * i;
          if (key + j >= rows.begin[r] && key + j < rows.end[r])
            add_times(sums[i], tile.weight[r * (BK + 4) + j], v);
        }
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < G::RI; ++i) {
    const int r = G::row(i);
    if (G::tx() != 0) continue;
    const bool none = most[i] == -INFINITY;
    const float lse = none ? -INFINITY : most[i] + log2f(sum[i]);
    tile.factor[r] = none ? 0.0f : 1 / sum[i];
    tile.lse[r] = lse;
    if (r < rows.count) a.lse[rows.number(group, r)] = lse;
  }
  __syncthreads();
  if (column < m)
#pragma unroll
    for (int i = 0; i < RPT; ++i) {
      const int r = first + RG * i;
      if (r < rows.count)
        store4(rows.row_of(a.context, group.b, r) + column, times(sums[i], tile.factor[r]),
               plan.context, m - column);
    }

  if (!a.weights.data) return;
  // For those who want to see them: scores recomputed, against the known log-sum-exp.
  for (int key = 0; key < keys; key += BK) {
    const bool seen = key < rows.high && key + BK > rows.low;
    float s[G::RI][4];
    if (seen) {
      take_keys(key);
      __syncthreads();
      take_scores<D, BK>(group, tile, key, s);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < G::RI; ++i) {
      const int r = G::row(i);
      if (r >= rows.count) continue;
      float* to = rows.row_of(a.weights, group.b, r) + key;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (key + G::key(j) < keys)
          to[G::key(j)] = seen && s[i][j] != -INFINITY ? exp2f(s[i][j] - tile.lse[r]) : 0.0f;
    }
  }
}

// ---- one row

constexpr int kRowKeys = 512;  // keys of a step

template <int D>
struct RowTile {  // of shared memory
  float weight[kRowKeys];
  float part[kThreads * 4];  // sums of the groups of threads
  float scratch[kWarp];
};

template <class T, int D>
__global__ void __launch_bounds__(kThreads)
    attend_row(const __grid_constant__ Attention<T> a, const Plan plan) {
  __shared__ __align__(16) RowTile<D> tile;
  const int64_t number = blockIdx.x;
  const int64_t query = number % a.queries, head = number / a.queries % a.heads,
                b = number / a.queries / a.heads, g = head / (a.heads / a.key_heads);
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size);
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int keys = static_cast<int>(a.keys);
  int begin = 0, end = keys;
  if (a.range) {
    const Id* range = a.range + b * a.range_batch + head * a.range_head + 2 * query;
    begin = max(0, static_cast<int>(range[0]));
    end = min(keys, static_cast<int>(range[1]));
  }
  float* weights = a.weights.data ? row_at(a.weights, b, head, query) : nullptr;
  const float* bias = a.bias.data ? row_at(a.bias, b, head, query) : nullptr;
  const float place = a.place ? a.place[number] : 0;
  const uint64_t seed = plan.drop.threshold ? key_of(a.seed) : 0;

  // Lanes of a key, each with VPL times four of its elements; keys of a warp at once.
  constexpr int LPK = D / 4 < kWarp ? D / 4 : kWarp, VPL = D / 4 / LPK, KPW = kWarp / LPK;
  constexpr int kWarps = kThreads / kWarp;
  float4 q[VPL];
  if (begin < end)
#pragma unroll
    for (int v = 0; v < VPL; ++v) {
      const int c = (lane % LPK + v * LPK) * 4;
      q[v] = load4(row_at(a.q, b, head, query) + c, plan.q, n - c);
    }
  // Threads of the mean: four columns of every KG-th key.
  constexpr int CG = D / 4, KG = kThreads / CG;
  const int column = static_cast<int>(threadIdx.x) % CG * 4;
  const int first = static_cast<int>(threadIdx.x) / CG;
  float4 sums = make_float4(0, 0, 0, 0);
  float most = -INFINITY, sum = 0;

  for (int key = begin / kRowKeys * kRowKeys; key < end; key += kRowKeys) {
    const int low = max(begin, key), high = min(end, key + kRowKeys);
#pragma unroll 4
    for (int j0 = low + warp * KPW; j0 < high; j0 += kWarps * KPW) {
      const int j = j0 + lane / LPK;
      float product = 0;
      if (j < high) {
        const T* k = row_at(a.k, b, g, j);
#pragma unroll
        for (int v = 0; v < VPL; ++v) {
          const int c = (lane % LPK + v * LPK) * 4;
          const float4 x = load4(k + c, plan.k, n - c);
          product = fmaf(q[v].x, x.x, product);
          product = fmaf(q[v].y, x.y, product);
          product = fmaf(q[v].z, x.z, product);
          product = fmaf(q[v].w, x.w, product);
        }
      }
#pragma unroll
      for (int i = LPK / 2; i > 0; i /= 2) product += __shfl_xor_sync(~0u, product, i);
      if (j < high && lane % LPK == 0) {
        const float s = score_of(a, product, bias, place, j);
        tile.weight[j - key] = s;
        if (weights) weights[j] = s;
      }
    }
    __syncthreads();
    float largest = -INFINITY;
    for (int j = low + static_cast<int>(threadIdx.x); j < high; j += kThreads)
      largest = fmaxf(largest, tile.weight[j - key]);
    const float now = fmaxf(most, block_max(largest, tile.scratch));
    const float from = now == -INFINITY ? 0.0f : now;
    const float factor = exp2f(most - from);
    most = now;
    float added = 0;
    for (int j = low + static_cast<int>(threadIdx.x); j < high; j += kThreads) {
      const float w = exp2f(tile.weight[j - key] - from);
      added += w;
      tile.weight[j - key] =
          plan.drop.threshold ? w * drop_factor(plan.drop, drop_call(seed, number, j), j) : w;
    }
    sum = fmaf(sum, factor, block_sum(added, tile.scratch));  // all have written their weights
    sums = times(sums, factor);
    if (column < m)
#pragma unroll 4
      for (int j = low + first; j < high; j += KG)
        add_times(sums, tile.weight[j - key],
                  load4(row_at(a.value, b, g, j) + column, plan.value, m - column));
    __syncthreads();
  }

  const bool none = most == -INFINITY;
  const float lse = none ? -INFINITY : most + log2f(sum);
  if (threadIdx.x == 0) a.lse[number] = lse;
  *reinterpret_cast<float4*>(tile.part + (first * CG + column / 4) * 4) = sums;
  __syncthreads();
  if (first == 0 && column < m) {
    for (int i = 1; i < KG; ++i) {
      const float4 x = at4(tile.part + (i * CG + column / 4) * 4);
      sums = make_float4(sums.x + x.x, sums.y + x.y, sums.z + x.z, sums.w + x.w);
    }
    store4(row_at(a.context, b, head, query) + column, times(sums, none ? 0.0f : 1 / sum),
           plan.context, m - column);
  }
  if (weights)
    for (int j = static_cast<int>(threadIdx.x); j < keys; j += kThreads)
      weights[j] = j >= begin && j < end && weights[j] != -INFINITY ? exp2f(weights[j] - lse) : 0;
}

// ---- a query of a decoder's step, which has few keys and is not alone: a warp for each

constexpr int kWarpsOfBlock = 4;

// Of D elements each, read by fours, without weights, bias, place and dropout.
template <int D>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarp)
    attend_warp(const __grid_constant__ Attention<float> a) {
  const int64_t number =
      int64_t{blockIdx.x} * kWarpsOfBlock + static_cast<int>(threadIdx.x) / kWarp;
  if (number >= a.batch * a.heads * a.queries) return;
  const int64_t query = number % a.queries, head = number / a.queries % a.heads,
                b = number / a.queries / a.heads, g = head / (a.heads / a.key_heads);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int begin = 0, end = static_cast<int>(a.keys);
  if (a.range) {
    const Id* range = a.range + b * a.range_batch + head * a.range_head + 2 * query;
    begin = max(0, static_cast<int>(range[0]));
    end = min(end, static_cast<int>(range[1]));
  }
  // Lanes of a key, each with four of its elements; keys of the warp at once, and in a turn.
  constexpr int LPK = D / 4, KPW = kWarp / LPK, kLoads = 8, kKeys = kLoads * KPW;
  constexpr int C = D / kWarp;  // columns of the mean that are a lane's
  float4 q = make_float4(0, 0, 0, 0);
  if (begin < end) q = at4(row_at(a.q, b, head, query) + lane % LPK * 4);
  float most = -INFINITY, sum = 0, mean[C] = {};
  for (int low = begin; low < end; low += kKeys) {
    // All that is read is under way at once.
    float4 k[kLoads];
    float value[kKeys][C];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int j = low + i * KPW + lane / LPK;
      k[i] = j < end ? at4(row_at(a.k, b, g, j) + lane % LPK * 4) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int c = 0; c < C; ++c) value[i][c] = 0;
      if (low + i < end) load<C>(row_at(a.value, b, g, low + i) + lane * C, value[i]);
    }
    float mine = -INFINITY;  // the score of key low + lane
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      float product = q.x * k[i].x;
      product = fmaf(q.y, k[i].y, product);
      product = fmaf(q.z, k[i].z, product);
      product = fmaf(q.w, k[i].w, product);
#pragma unroll
      for (int apart = LPK / 2; apart > 0; apart /= 2)
        product += __shfl_xor_sync(~0u, product, apart);
      product = __shfl_sync(~0u, product, lane % KPW * LPK);
      if (lane / KPW == i && low + lane < end) mine = score_of(a, product, nullptr, 0, low + lane);
    }
    float largest = mine;
#pragma unroll
    for (int apart = kWarp / 2; apart > 0; apart /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, apart));
    const float now = fmaxf(most, largest), from = now == -INFINITY ? 0.0f : now;
    const float factor = exp2f(most - from);
    most = now;
    const float weight = exp2f(mine - from);
    float added = weight;
#pragma unroll
    for (int apart = kWarp / 2; apart > 0; apart /= 2) added += __shfl_xor_sync(~0u, added, apart);
    sum = fmaf(sum, factor, added);
#pragma unroll
    for (int c = 0; c < C; ++c) mean[c] *= factor;
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const float w = __shfl_sync(~0u, weight, i);
#pragma unroll
      for (int c = 0; c < C; ++c) mean[c] = fmaf(w, value[i][c], mean[c]);
    }
  }
  const bool none = most == -INFINITY;
  if (lane == 0) a.lse[number] = none ? -INFINITY : most + log2f(sum);
#pragma unroll
  for (int c = 0; c < C; ++c) mean[c] = none ? 0.0f : mean[c] / sum;
  store<C>(mean, row_at(a.context, b, head, query) + lane * C);
}

// What a warp can do, and for so few queries of a key does better than a tile.
constexpr int64_t kFewQueries = 12;
bool suits_warp(const Attention<float>& a, const Plan& plan, int width) {
  return width <= 128 && a.size == width && a.value_size == width && plan.q && plan.k &&
         plan.value && plan.context && !a.weights.data && !a.bias.data && !a.place &&
         plan.drop.threshold == 0 && a.heads / a.key_heads * a.queries < kFewQueries;
}

constexpr int64_t kFewRows = 4;  // from here on a tile costs less than a block for each row

}  // namespace

template <class T>
void dot_attention(Cuda device, const Attention<T>& a) {
  const Plan plan = plan_of(a);
  const int64_t rows = a.heads / a.key_heads * a.queries;
  if (a.batch * a.heads * a.queries == 0) return;
  with_width(std::max(a.size, a.value_size), [&]<int D>(std::integral_constant<int, D>) {
    if constexpr (std::is_same_v<T, float> && D <= 128)
      if (suits_warp(a, plan, D)) {
        const auto blocks = ceil_div(a.batch * a.heads * a.queries, kWarpsOfBlock);
        return launch_kernel(device, attend_warp<D>, static_cast<unsigned>(blocks),
                             kWarpsOfBlock * kWarp, 0, a);
      }
    if (rows < kFewRows) {
      const auto blocks = static_cast<unsigned>(a.batch * a.heads * a.queries);
      return launch_kernel(device, attend_row<T, D>, blocks, kThreads, 0, a, plan);
    }
    const auto tiles = static_cast<int>(ceil_div(rows, kTileRows));
    const auto blocks = static_cast<unsigned>(tiles * a.batch * a.key_heads);
    const auto launch = [&]<int BK>() {
      constexpr size_t bytes = sizeof(Tile<D, BK>);
      allow_shared(attend_tile<T, D, BK>, bytes);
      attend_tile<T, D, BK><<<blocks, kThreads, bytes, stream_of(device)>>>(a, plan, tiles);
      launched("attention");
    };
    if (a.keys <= 32 || sizeof(Tile<D, 64>) > capabilities().shared)
      launch.template operator()<32>();
    else
      launch.template operator()<64>();
  });
}

template void dot_attention(Cuda, const Attention<float>&);
template void dot_attention(Cuda, const Attention<bf16>&);

}  // namespace heed::kernels
