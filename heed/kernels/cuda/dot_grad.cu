// The backward pass of fused attention by dot products, in f32: weights are recomputed from the
// saved log-sum-exp (Dao, 2023, algorithm 2).
//
// With w the weights, z what dropout multiplies them by, g = d context and D = g . context:
//   d value_j = sum_i w_ij z_ij g_i,   d score_ij = w_ij (z_ij g_i . value_j - D_i),
// and from d score on as the form has it. A block of grad_keys owns a tile of keys and goes through
// the rows of their group; where one tile holds all keys it gives dq too, and nothing else is
// launched. Else a block of grad_rows owns a tile of rows and goes through their keys.
#include <algorithm>

#include "heed/kernels/cuda/dot.cuh"

namespace heed::kernels {
namespace {

struct Plan {
  bool q, k, value, context, dcontext, dq, dk, dvalue;  // read or written four elements at a time
  Drop drop;
  float* mean;     // [B, H, Tq]: D, from grad_rows to grad_keys
  float* dscore;   // [.., H, Tq, Tk]: d score of the sentences from `batch0` on; or null
  bool set_bias;   // no two scores share an element of dbias: each is added where it belongs
  int64_t batch0;  // sentences of this launch begin here
};

template <int D, int BK>
struct Tile {  // of shared memory
  float q[kTileRows * (D + 4)], g[kTileRows * (D + 4)], k[BK * (D + 4)], value[BK * (D + 4)];
  float weight[kTileRows * (BK + 4)], dscore[kTileRows * (BK + 4)];
  float mean[kTileRows];
  Rows rows;
};

// Queries and d context of a tile's rows; zeros where a row sees nothing.
template <int D, int BK, int kThreads, class T>
__device__ void take_queries(const AttentionGrad<T>& k, const Plan& plan, const Group<T>& group,
                             Tile<D, BK>& tile) {
  const Attention<T>& a = k.forward;
  const Rows& rows = tile.rows;
  take_rows<D, kThreads, kTileRows, T>(tile.q, static_cast<int>(a.size), plan.q, [&](int r) {
    return rows.empty(r) ? nullptr : rows.row_of(a.q, group.b, r);
  });
  take_rows<D, kThreads, kTileRows, T>(
      tile.g, static_cast<int>(a.value_size), plan.dcontext,
      [&](int r) { return rows.empty(r) ? nullptr : rows.row_of(k.dcontext, group.b, r); });
}
template <int D, int BK, int kThreads, class T>
__device__ bool take_keys(const Attention<T>& a, const Plan& plan, const Group<T>& group, int key,
                          Tile<D, BK>& tile) {
  const int keys = static_cast<int>(a.keys);
  take_rows<D, kThreads, BK, T>(tile.value, static_cast<int>(a.value_size), plan.value, [&](int j) {
    return key + j < keys ? row_at(a.value, group.b, group.g, key + j) : nullptr;
  });
  return take_rows<D, kThreads, BK, T>(tile.k, static_cast<int>(a.size), plan.k, [&](int j) {
    return key + j < keys ? row_at(a.k, group.b, group.g, key + j) : nullptr;
  });
}

// D of a tile's rows, for all to read after the next __syncthreads().
template <int D, int BK, int kThreads, class T>
__device__ void take_means(const Attention<T>& a, const Plan& plan, const Group<T>& group,
                           Tile<D, BK>& tile) {
  constexpr int kLanes = kThreads / kTileRows;
  const int r = static_cast<int>(threadIdx.x) / kLanes;
  const int m = static_cast<int>(a.value_size);
  float sum = 0;
  if (!tile.rows.empty(r)) {
    const T* context = tile.rows.row_of(a.context, group.b, r);
#pragma unroll 4
    for (int c = static_cast<int>(threadIdx.x) % kLanes * 4; c < m; c += kLanes * 4) {
      const float4 x = load4(context + c, plan.context, m - c), y = at4(tile.g + r * (D + 4) + c);
      sum = fmaf(x.x, y.x, sum);
      sum = fmaf(x.y, y.y, sum);
      sum = fmaf(x.z, y.z, sum);
      sum = fmaf(x.w, y.w, sum);
    }
  }
  for (int i = kLanes / 2; i > 0; i /= 2) sum += __shfl_xor_sync(~0u, sum, i);
  if (threadIdx.x % kLanes == 0) tile.mean[r] = sum;
}

// A thread's products q.k become weights (as dropped), its products g.value become d (q.k) but for
// the scale of a dot product. kOwnsRows: what belongs to the rows (dbias, dplace) is this block's.
template <class G, bool kOwnsRows, class T>
__device__ void take_dscores(const AttentionGrad<T>& k, const Plan& plan, const Group<T>& group,
                             const Rows& rows, const float* mean, int key, float (&s)[G::RI][4],
                             float (&dscore)[G::RI][4], float (&dplace)[G::RI]) {
  const Attention<T>& a = k.forward;
  const uint64_t seed = plan.drop.threshold ? key_of(a.seed) : 0;
#pragma unroll
  for (int i = 0; i < G::RI; ++i) {
    const int r = G::row(i);
    if (rows.empty(r)) {
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i][j] = 0, dscore[i][j] = 0;
      continue;
    }
    const int64_t number = rows.number(group, r);
    const float* bias = a.bias.data ? rows.row_of(a.bias, group.b, r) : nullptr;
    const float place = a.place ? a.place[number] : 0;
    const float lse = a.lse[number];
    const float from = lse == -INFINITY ? 0.0f : lse;
    float keep[4] = {1, 1, 1, 1};
    if (plan.drop.threshold) drop_factors<G>(plan.drop, seed, number, key, keep);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = key + G::key(j);
      const float product = s[i][j];
      const bool seen = at >= rows.begin[r] && at < rows.end[r];
      const float w = seen ? exp2f(score_of(a, product, bias, place, at, from)) : 0.0f;
      // What is not seen has weight 0, whatever g . value is there.
      float ds = w != 0 ? w * (dscore[i][j] * keep[j] - mean[r]) : 0.0f;
      s[i][j] = w * keep[j];
      if (kOwnsRows && seen) {
        if (plan.set_bias) rows.row_of(k.dbias, group.b, r)[at] += ds;
        if (plan.dscore)
          plan.dscore[(number - plan.batch0 * a.heads * a.queries) * a.keys + at] = ds;
        if (k.dplace) dplace[i] += ds * 2 * a.falloff * (static_cast<float>(at) - place);
      }
      if (a.form == ScoreForm::log_dot) ds = ds == 0 ? 0.0f : ds * a.scale / product;
      dscore[i][j] = ds;
    }
  }
}
template <int BK, class G>
__device__ void put_tile(const float (&x)[G::RI][4], float* to) {
#pragma unroll
  for (int i = 0; i < G::RI; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) to[G::row(i) * (BK + 4) + G::key(j)] = x[i][j];
}

// sums[i] += sum over the keys of a tile of dscore * k: four columns of rows `first` + RG i.
template <int D, int BK, int RG, int RPT>
__device__ void add_keys(const Tile<D, BK>& tile, int key, int count, bool careful, int first,
                         int column, float4 (&sums)[RPT]) {
  if (!careful) {
#pragma unroll 1
    for (int j = 0; j < count; j += 4) {
      float4 x[4];
#pragma unroll
      for (int u = 0; u < 4; ++u) x[u] = at4(tile.k + (j + u) * (D + 4) + column);
#pragma unroll
      for (int i = 0; i < RPT; ++i) {
        const float4 s = at4(tile.dscore + (first + RG * i) * (BK + 4) + j);
        add_times(sums[i], s.x, x[0]);
        add_times(sums[i], s.y, x[1]);
        add_times(sums[i], s.z, x[2]);
        add_times(sums[i], s.w, x[3]);
      }
    }
    return;
  }
  // 0 * NaN is NaN: where there is anything non-finite, each row reads only what it sees.
#pragma unroll 1
  for (int j = 0; j < count; ++j) {
    const float4 x = at4(tile.k + j * (D + 4) + column);
#pragma unroll
    for (int i = 0; i < RPT; ++i) {
      const int r = first + RG * i;
      if (key + j >= tile.rows.begin[r] && key + j < tile.rows.end[r])
        add_times(sums[i], tile.dscore[r * (BK + 4) + j], x);
    }
  }
}

// sums[u] += sum over rows of a tile of by[row][u] * x[row]: four columns of KPT keys. The tile's
// sum is made apart where registers allow it: many short sums lose fewer digits than a long one.
template <int D, int BK, int KPT>
__device__ void add_queries(const float* x, const float* by, int rows, float4 (&sums)[KPT]) {
  constexpr bool kApart = KPT <= 8;
  float4 apart[kApart ? KPT : 1];
#pragma unroll
  for (int u = 0; u < (kApart ? KPT : 0); ++u) apart[u] = make_float4(0, 0, 0, 0);
  const auto sum = [&](int u) -> float4& {
    if constexpr (kApart)
      return apart[u];
    else
      return sums[u];
  };
#pragma unroll 2
  for (int r = 0; r < rows; ++r) {
    const float4 v = at4(x + r * (D + 4));
    const float* w = by + r * (BK + 4);
    if constexpr (KPT == 2) {
      const float2 two = *reinterpret_cast<const float2*>(w);
      add_times(sum(0), two.x, v);
      add_times(sum(1), two.y, v);
    } else {
#pragma unroll
      for (int u = 0; u < KPT; u += 4) {
        const float4 four_keys = at4(w + u);
        add_times(sum(u), four_keys.x, v);
        add_times(sum(u + 1), four_keys.y, v);
        add_times(sum(u + 2), four_keys.z, v);
        add_times(sum(u + 3), four_keys.w, v);
      }
    }
  }
#pragma unroll
  for (int u = 0; u < (kApart ? KPT : 0); ++u) add_times(sums[u], 1.0f, apart[u]);
}

// kWhole: the tile holds all keys. The occupancy is 16 warps, where shared memory allows it.
template <class T, int D, int BK, bool kWhole>
__global__ void __launch_bounds__(4 * BK, D > 64 ? 1 : 128 / BK)
    grad_keys(const __grid_constant__ AttentionGrad<T> k, const __grid_constant__ Plan plan,
              int tiles) {
  constexpr int kThreads = 4 * BK;
  using G = Grid<BK, kThreads>;
  extern __shared__ float4 shared[];
  Tile<D, BK>& tile = *reinterpret_cast<Tile<D, BK>*>(shared);
  Rows& rows = tile.rows;
  const Attention<T>& a = k.forward;
  const int64_t index = blockIdx.x / tiles;
  const Group<T> group{a, plan.batch0 + index / a.key_heads, index % a.key_heads};
  const int key = static_cast<int>(blockIdx.x % tiles) * BK;
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size);
  const int keys = static_cast<int>(a.keys), count = min(BK, keys - key), all = group.rows();
  const bool finite = take_keys<D, BK, kThreads>(a, plan, group, key, tile);
  const bool careful = kWhole && __syncthreads_or(!finite);

  constexpr int CG = D / 4, KPT = BK * CG / kThreads, RG = kThreads / CG, RPT = kTileRows / RG;
  const int column = static_cast<int>(threadIdx.x) % CG * 4;
  const int part = static_cast<int>(threadIdx.x) / CG;
  float4 dk[KPT], dvalue[KPT];
#pragma unroll
  for (int u = 0; u < KPT; ++u) dk[u] = dvalue[u] = make_float4(0, 0, 0, 0);

  for (int row0 = 0; row0 < all; row0 += kTileRows) {
    __syncthreads();
    if (threadIdx.x < kWarp) take_range(group, row0, rows);
    __syncthreads();
    if (!kWhole && (rows.high <= key || rows.low >= key + count)) continue;
    take_queries<D, BK, kThreads>(k, plan, group, tile);
    if (!kWhole && threadIdx.x < kTileRows)
      tile.mean[threadIdx.x] = static_cast<int>(threadIdx.x) < rows.count
                                   ? plan.mean[rows.number(group, static_cast<int>(threadIdx.x))]
                                   : 0;
    __syncthreads();
    if (kWhole) take_means<D, BK, kThreads>(a, plan, group, tile);
    float s[G::RI][4], dscore[G::RI][4], dplace[G::RI] = {};
    multiply_rows<D, G>(tile.q, tile.k, n, rows.count, s);
    multiply_rows<D, G>(tile.g, tile.value, m, rows.count, dscore);
    if (kWhole) __syncthreads();  // the means are there
    take_dscores<G, kWhole>(k, plan, group, rows, tile.mean, key, s, dscore, dplace);
    put_tile<BK, G>(s, tile.weight);
    put_tile<BK, G>(dscore, tile.dscore);
    if (kWhole && k.dplace)
#pragma unroll
      for (int i = 0; i < G::RI; ++i) {
        const float sum = G::row_sum(dplace[i]);
        if (G::tx() == 0 && G::row(i) < rows.count) k.dplace[rows.number(group, G::row(i))] = sum;
      }
    __syncthreads();
    if (column < m)
      add_queries<D, BK, KPT>(tile.g + column, tile.weight + part * KPT, rows.count, dvalue);
    if (column < n)
      add_queries<D, BK, KPT>(tile.q + column, tile.dscore + part * KPT, rows.count, dk);
    if (kWhole && column < n) {
      float4 sums[RPT];
#pragma unroll
      for (int i = 0; i < RPT; ++i) sums[i] = make_float4(0, 0, 0, 0);
      add_keys<D, BK, RG, RPT>(tile, key, count, careful, part, column, sums);
      const float factor = a.form == ScoreForm::dot ? a.scale : 1.0f;
#pragma unroll
      for (int i = 0; i < RPT; ++i) {
        const int r = part + RG * i;
        if (r < rows.count)
          store4(rows.row_of(k.dq, group.b, r) + column, times(sums[i], factor), plan.dq,
                 n - column);
      }
    }
  }

  const auto put = [&](const Heads<T>& to, float4(&x)[KPT], int width, bool fours, float factor) {
    if (column >= width) return;
#pragma unroll
    for (int u = 0; u < KPT; ++u) {
      const int j = part * KPT + u;
      if (j >= count) continue;
      T* y = row_at(to, group.b, group.g, key + j) + column;
      float4 sum = k.add ? load4(y, fours, width - column) : make_float4(0, 0, 0, 0);
      add_times(sum, factor, x[u]);
      store4(y, sum, fours, width - column);
    }
  };
  put(k.dk, dk, n, plan.dk, a.form == ScoreForm::dot ? a.scale : 1.0f);
  put(k.dvalue, dvalue, m, plan.dvalue, 1);
}

template <class T, int D, int BK>
__global__ void __launch_bounds__(128) grad_rows(const __grid_constant__ AttentionGrad<T> k,
                                                 const __grid_constant__ Plan plan, int tiles) {
  constexpr int kThreads = 128;
  using G = Grid<BK, kThreads>;
  extern __shared__ float4 shared[];
  Tile<D, BK>& tile = *reinterpret_cast<Tile<D, BK>*>(shared);
  Rows& rows = tile.rows;
  const Attention<T>& a = k.forward;
  const int64_t index = blockIdx.x / tiles;
  const Group<T> group{a, plan.batch0 + index / a.key_heads, index % a.key_heads};
  const int row0 = static_cast<int>(blockIdx.x % tiles) * kTileRows;
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size);
  const int keys = static_cast<int>(a.keys);
  if (threadIdx.x < kWarp) take_range(group, row0, rows);
  __syncthreads();
  take_queries<D, BK, kThreads>(k, plan, group, tile);
  __syncthreads();
  take_means<D, BK, kThreads>(a, plan, group, tile);
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < rows.count)
    plan.mean[rows.number(group, static_cast<int>(threadIdx.x))] = tile.mean[threadIdx.x];

  constexpr int CG = D / 4, RG = kThreads / CG, RPT = kTileRows / RG;
  const int column = static_cast<int>(threadIdx.x) % CG * 4;
  const int part = static_cast<int>(threadIdx.x) / CG;
  float4 sums[RPT];
#pragma unroll
  for (int i = 0; i < RPT; ++i) sums[i] = make_float4(0, 0, 0, 0);
  float dplace[G::RI] = {};
  for (int key = rows.low / BK * BK; key < rows.high; key += BK) {
    const bool finite = take_keys<D, BK, kThreads>(a, plan, group, key, tile);
    const bool careful = __syncthreads_or(!finite);
    float s[G::RI][4], dscore[G::RI][4];
    multiply_rows<D, G>(tile.q, tile.k, n, rows.count, s);
    multiply_rows<D, G>(tile.g, tile.value, m, rows.count, dscore);
    take_dscores<G, true>(k, plan, group, rows, tile.mean, key, s, dscore, dplace);
    put_tile<BK, G>(dscore, tile.dscore);
    __syncthreads();
    if (column < n)
      add_keys<D, BK, RG, RPT>(tile, key, min(BK, keys - key), careful, part, column, sums);
    __syncthreads();
  }
  if (column < n)
#pragma unroll
    for (int i = 0; i < RPT; ++i) {
      const int r = part + RG * i;
      if (r < rows.count)
        store4(rows.row_of(k.dq, group.b, r) + column,
               times(sums[i], a.form == ScoreForm::dot ? a.scale : 1.0f), plan.dq, n - column);
    }
  if (k.dplace)
#pragma unroll
    for (int i = 0; i < G::RI; ++i) {
      const float sum = G::row_sum(dplace[i]);
      if (G::tx() == 0 && G::row(i) < rows.count) k.dplace[rows.number(group, G::row(i))] = sum;
    }
}

// ---- dbias where scores share its elements: sentences (batch stride 0) or, by distance, rows

struct Bias {
  float* data;
  int64_t batch, head, row;
  const float* dscore;  // [sentences, H, Tq, Tk]
  int64_t sentences, heads, queries, keys;
  int64_t low, elements;  // those of a head lie at offsets [low, low + elements)
};

// Rows that do not share: a thread for each element, which adds up the sentences.
__global__ void __launch_bounds__(256) sum_sentences(const Bias d) {
  const int64_t size = d.heads * d.queries * d.keys;
  for (int64_t x = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; x < size;
       x += int64_t{gridDim.x} * blockDim.x) {
    float sum = 0;
#pragma unroll 8
    for (int64_t b = 0; b < d.sentences; ++b) sum += d.dscore[b * size + x];
    d.data[x / d.keys / d.queries * d.head + x / d.keys % d.queries * d.row + x % d.keys] += sum;
  }
}
// Rows that share: a block for each element, and for each sentence if these do not share.
__global__ void __launch_bounds__(128) sum_diagonals(const Bias d) {
  __shared__ float scratch[kWarp];
  const int64_t offset = d.low + blockIdx.x % d.elements, head = blockIdx.x / d.elements % d.heads;
  const int64_t own = blockIdx.x / d.elements / d.heads;  // sentence, if they do not share
  const int64_t first = d.batch == 0 ? 0 : own, last = d.batch == 0 ? d.sentences : own + 1;
  float sum = 0;
  for (int64_t x = first * d.queries + threadIdx.x; x < last * d.queries; x += blockDim.x) {
    const int64_t b = x / d.queries, i = x % d.queries, j = offset - i * d.row;
    if (j >= 0 && j < d.keys) sum += d.dscore[((b * d.heads + head) * d.queries + i) * d.keys + j];
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) d.data[own * d.batch + head * d.head + offset] += sum;
}

// Of d score at once, where it must be held: a quarter of a GiB.
constexpr int64_t kMostDScores = int64_t{1} << 26;

template <class T, int D>
void launch_grad(Cuda device, const AttentionGrad<T>& k, const Plan& plan, int64_t batch) {
  const Attention<T>& a = k.forward;
  const int64_t groups = batch * a.key_heads, rows = a.heads / a.key_heads * a.queries;
  const auto keys_kernel = [&]<int BK, bool kWhole>() {
    constexpr size_t bytes = sizeof(Tile<D, BK>);
    const auto tiles = static_cast<int>(std::max<int64_t>(1, ceil_div(a.keys, BK)));
    allow_shared(grad_keys<T, D, BK, kWhole>, bytes);
    grad_keys<T, D, BK, kWhole>
        <<<static_cast<unsigned>(groups * tiles), 4 * BK, bytes, stream_of(device)>>>(k, plan,
                                                                                      tiles);
    launched("attention, the backward pass");
  };
  const auto both_kernels = [&]<int BK>() {
    if (rows > 0) {
      constexpr size_t bytes = sizeof(Tile<D, BK>);
      const auto tiles = static_cast<int>(ceil_div(rows, kTileRows));
      allow_shared(grad_rows<T, D, BK>, bytes);
      grad_rows<T, D, BK><<<static_cast<unsigned>(groups * tiles), 128, bytes, stream_of(device)>>>(
          k, plan, tiles);
      launched("attention, the backward pass");
    }
    keys_kernel.template operator()<BK, false>();
  };
  if (a.keys <= 32) return keys_kernel.template operator()<32, true>();
  if constexpr (sizeof(Tile<D, 64>) > kLeastShared)
    if (sizeof(Tile<D, 64>) > capabilities().shared) return both_kernels.template operator()<32>();
  if (a.keys <= 64) return keys_kernel.template operator()<64, true>();
  both_kernels.template operator()<64>();
}

}  // namespace

// Of which there is room for the smallest tile.
int64_t widest_dot() { return sizeof(Tile<256, 32>) <= capabilities().shared ? 256 : 128; }

template <class T>
void dot_attention_grad(Cuda device, const AttentionGrad<T>& k) {
  const Attention<T>& a = k.forward;
  if (a.batch * a.heads == 0) return;
  Plan plan{by_fours(a.q),
            by_fours(a.k),
            by_fours(a.value),
            by_fours(a.context),
            by_fours(k.dcontext),
            by_fours(k.dq),
            by_fours(k.dk),
            by_fours(k.dvalue),
            drop_of(a),
            nullptr,
            nullptr,
            false,
            0};
  const bool scores = a.queries > 0 && a.keys > 0;
  const bool apart = a.queries <= 1 || std::abs(k.dbias.row) >= a.keys;  // rows of dbias
  plan.set_bias = k.dbias.data && scores && apart && (k.dbias.batch != 0 || a.batch == 1);
  const bool keep = k.dbias.data && scores && !plan.set_bias;
  const int64_t per_sentence = a.heads * a.queries * a.keys;
  const int64_t batch =
      keep ? std::clamp<int64_t>(kMostDScores / per_sentence, 1, a.batch) : a.batch;
  const int64_t means = ceil_div(a.batch * a.heads * a.queries, 64) * 64;
  const int64_t dscores = keep ? batch * per_sentence : 0;
  plan.mean = static_cast<float*>(
      cuda_scratch(device, static_cast<size_t>(means + dscores) * sizeof(float)));
  if (keep) plan.dscore = plan.mean + means;
  for (int64_t b = 0; b < a.batch; b += batch) {
    const int64_t count = std::min(batch, a.batch - b);
    plan.batch0 = b;
    // What is not seen is not written.
    if (keep)
      cudaMemsetAsync(plan.dscore, 0, static_cast<size_t>(dscores) * sizeof(float),
                      stream_of(device));
    with_width(std::max(a.size, a.value_size), [&]<int D>(std::integral_constant<int, D>) {
      launch_grad<T, D>(device, k, plan, count);
    });
    if (!keep) continue;
    const Heads<float>& to = k.dbias;
    Bias d{to.data + b * to.batch,
           to.batch,
           to.head,
           to.row,
           plan.dscore,
           count,
           a.heads,
           a.queries,
           a.keys,
           0,
           0};
    if (apart && to.batch == 0) {
      sum_sentences<<<grid_for(per_sentence, 256), 256, 0, stream_of(device)>>>(d);
    } else {
      d.low = std::min<int64_t>(0, (a.queries - 1) * to.row);
      d.elements = std::abs((a.queries - 1) * to.row) + a.keys;
      const int64_t blocks = d.elements * a.heads * (to.batch == 0 ? 1 : count);
      sum_diagonals<<<static_cast<unsigned>(blocks), 128, 0, stream_of(device)>>>(d);
    }
    launched("attention, the backward pass: dbias");
  }
}

template void dot_attention_grad(Cuda, const AttentionGrad<float>&);
template void dot_attention_grad(Cuda, const AttentionGrad<bf16>&);

}  // namespace heed::kernels
