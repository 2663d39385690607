// The backward pass of fused attention by dot products of bf16 on tensor cores (after Dao, 2023,
// "FlashAttention-2"): weights are recomputed from the saved log-sum-exp. Two kernels, so that
// every sum has one order: a block of grad_rows has dq of some rows and goes through their keys; a
// block of grad_keys has dk and dvalue of some keys and goes through the rows. Equations:
// dot_grad.cu.
//
// The first also saves D = g . context of each row, and what keys each 64 rows see, for the second.
#include <algorithm>

#include "heed/kernels/cuda/dot_mma.cuh"

namespace heed::kernels {
namespace {

constexpr int kRowStep = 64;  // rows of a tile of grad_keys

struct Plan {
  float* mean;  // [B, H, Tq]: D
  Span* spans;  // [units, steps]: of kRowStep rows each
  int heads;    // of a unit
  int units;    // of a sentence
  int steps;    // of a unit
  Drop drop;
};

// ---- dq

template <int D, int kRowTiles>
struct RowsTile {  // of shared memory
  static constexpr int kRows = kMmaWarps * 16 * kRowTiles;
  static constexpr int kKeys = D == 128 && kRowTiles == 2 ? 32 : 64;  // two blocks fit
  alignas(1024) bf16 q[kRows * D];
  alignas(1024) bf16 g[kRows * D];
  alignas(1024) bf16 k[2][kKeys * D];
  alignas(1024) bf16 value[2][kKeys * D];
  int2 range[kRows];
  float mean[kRows];
  Span span[kMmaWarps], all;
};

template <int D, int kRowTiles, bool kDrop>
__global__ void __launch_bounds__(kMmaThreads, 2)
    grad_rows(const __grid_constant__ AttentionGrad<bf16> k, const Plan plan, int tiles) {
  using S = Swizzled<D>;
  using Tile = RowsTile<D, kRowTiles>;
  constexpr int kRows = Tile::kRows, kKeys = Tile::kKeys;
  constexpr int kChunk = 4;  // tiles of eight keys that are worked on at once
  extern __shared__ __align__(1024) unsigned char shared[];
  Tile& tile = *reinterpret_cast<Tile*>(shared);
  const Attention<bf16>& a = k.forward;
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t index = blockIdx.x / tiles;
  const Unit unit(a, index, plan.heads);
  const int row0 = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * kRows;
  const int own = warp * 16 * kRowTiles;  // this warp's rows of the tile
  const int keys = static_cast<int>(a.keys);
  const uint64_t seed = kDrop ? key_of(a.seed) : 0;

  Span span = Span::none(keys);
#pragma unroll
  for (int r = lane; r < 16 * kRowTiles; r += kWarp) {
    const int2 range = unit.range(a, row0 + own + r);
    tile.range[own + r] = range;
    if (row0 + own + r < unit.rows) span.add(range);
  }
  span.add_warp();
  if (lane == 0) tile.span[warp] = span;
  __syncthreads();
  if (threadIdx.x == 0) {
    constexpr int kWarpsOfStep = kMmaWarps / kRowTiles;
    Span all = Span::none(keys);
    for (int step = 0; step < kRowTiles; ++step) {
      Span some = tile.span[step * kWarpsOfStep];
      for (int i = 1; i < kWarpsOfStep; ++i) some.add(tile.span[step * kWarpsOfStep + i]);
      all.add(some);
      const int at = row0 / kRowStep + step;
      if (at < plan.steps) plan.spans[index * plan.steps + at] = some;
    }
    tile.all = all;
  }
  __syncthreads();

  // Rows that see nothing are zeros.
  {
    constexpr int kStep = kMmaThreads / S::kPieces;
    const int piece = static_cast<int>(threadIdx.x) % S::kPieces;
    const uint32_t q_tile = shared_address(tile.q), g_tile = shared_address(tile.g);
#pragma unroll
    for (int r0 = 0; r0 < kRows; r0 += kStep) {
      const int r = r0 + static_cast<int>(threadIdx.x) / S::kPieces;
      const bool there = tile.range[r].x < tile.range[r].y;
      copy16(q_tile + S::offset(r, piece),
             there ? unit.row_of(a.q, row0 + r) + piece * 8 : a.q.data, there);
      copy16(g_tile + S::offset(r, piece),
             there ? unit.row_of(k.dcontext, row0 + r) + piece * 8 : k.dcontext.data, there);
    }
  }
  copies_end();
  const int first = tile.all.low / kKeys, last = (tile.all.high + kKeys - 1) / kKeys;
  const auto take = [&](int t) {
    const int key = t * kKeys, stage = t % 2;
    const int low = tile.all.low - key, high = tile.all.high - key;
    S::template take<kKeys>(shared_address(tile.k[stage]), row_at(a.k, unit.b, unit.g, key),
                            a.k.row, low, high);
    S::template take<kKeys>(shared_address(tile.value[stage]), row_at(a.value, unit.b, unit.g, key),
                            a.value.row, low, high);
  };
  if (first < last) take(first);
  copies_end();

  copies_wait<1>();
  __syncthreads();
  // D, of this warp's rows.
#pragma unroll
  for (int r0 = 0; r0 < 16 * kRowTiles; r0 += kWarp / S::kPieces) {
    const int r = own + r0 + lane / S::kPieces;
    const float sum = mean_of<S>(
        tile.range[r].x < tile.range[r].y ? unit.row_of(a.context, row0 + r) : nullptr, tile.g, r);
    if (lane % S::kPieces != 0) continue;
    tile.mean[r] = sum;
    if (row0 + r < unit.rows) plan.mean[unit.number(a, row0 + r)] = sum;
  }
  __syncwarp();
  float mean[kRowTiles][2], lse[kRowTiles][2];
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = own + i * 16 + h * 8 + lane / 4;
      mean[i][h] = tile.mean[r];
      lse[i][h] = row0 + r < unit.rows ? a.lse[unit.number(a, row0 + r)] : 0.0f;
    }

  float dq[kRowTiles][D / 8][4];
  zero(dq);
  const float scale = a.scale * kLog2E;
  const uint32_t q_begin = S::left(shared_address(tile.q)),
                 g_begin = S::left(shared_address(tile.g));
#pragma unroll 1
  for (int t = first; t < last; ++t) {
    const int key = t * kKeys;
    copies_wait<0>();
    __syncthreads();  // tile t is there, and t - 1, whose stage the next one takes, was read
    if (t + 1 < last) take(t + 1);
    copies_end();
    if (!tile.all.all_see(key, kKeys)) {
      // 0 * NaN is NaN: what is non-finite in a key is made 0. Rows that see NaN have it as their
      // lse, and get it. (Infinities in a key whose score is -inf count as 0, too.)
      zero_non_finite(tile.k[t % 2], kKeys * D);
      __syncthreads();
    }
    if (!span.sees(key, kKeys)) continue;
    const uint32_t k_tile = shared_address(tile.k[t % 2]),
                   value_tile = shared_address(tile.value[t % 2]);
    const uint32_t k_begin = S::right(k_tile), value_begin = S::right(value_tile),
                   k_transposed = S::right_transposed(k_tile);
    const bool all_see = span.all_see(key, kKeys);
#pragma unroll 1
    for (int j0 = 0; j0 < kKeys; j0 += 8 * kChunk) {
      float s[kRowTiles][kChunk][4], dscore[kRowTiles][kChunk][4];
      multiply_both<D>(q_begin, g_begin, own, k_begin, value_begin, j0, s, dscore);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int2 range =
              all_see ? make_int2(0, keys) : tile.range[own + i * 16 + h * 8 + lane / 4];
          const int64_t number = unit.number(a, row0 + own + i * 16 + h * 8 + lane / 4);
          const uint32_t kept = kDrop ? kept_keys<kChunk>(plan.drop, seed, number, key + j0) : ~0u;
#pragma unroll
          for (int j = 0; j < kChunk; ++j)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; ++e) {
              const float w = power_of_2(fmaf(s[i][j][e], scale, -lse[i][h]));
              const float z = !kDrop ? 1.0f : kept >> (2 * j + e % 2) & 1 ? plan.drop.keep : 0.0f;
              dscore[i][j][e] = w * (dscore[i][j][e] * z - mean[i][h]);
              const int at = key + j0 + j * 8 + lane % 4 * 2 + e % 2;
              if (!all_see && (at < range.x || at >= range.y)) dscore[i][j][e] = 0;
            }
        }
      add_product<D>(dscore, k_transposed, j0, dq);
    }
  }
  copies_wait<0>();

#pragma unroll
  for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row0 + own + i * 16 + h * 8 + lane / 4;
      put_row(dq[i], h, a.scale, unit.row_of(k.dq, row), row < unit.rows, false);
    }
}

// ---- dk, dvalue

template <int D, int kKeyTiles>
struct KeysTile {  // of shared memory
  static constexpr int kKeys = kMmaWarps * 16 * kKeyTiles;
  alignas(1024) bf16 k[kKeys * D];
  alignas(1024) bf16 value[kKeys * D];
  alignas(1024) bf16 q[2][kRowStep * D];
  alignas(1024) bf16 g[2][kRowStep * D];
  alignas(16) float lse[2][kRowStep], mean[2][kRowStep];
  alignas(16) int2 range[2][kRowStep];
};

template <int D, int kKeyTiles, bool kDrop>
__global__ void __launch_bounds__(kMmaThreads, 2)
    grad_keys(const __grid_constant__ AttentionGrad<bf16> k, const Plan plan, int tiles) {
  using S = Swizzled<D>;
  using Tile = KeysTile<D, kKeyTiles>;
  constexpr int kKeys = Tile::kKeys;
  constexpr int kChunk = kKeyTiles == 1 ? 8 : 4;  // tiles of eight rows that are worked on at once
  extern __shared__ __align__(1024) unsigned char shared[];
  Tile& tile = *reinterpret_cast<Tile*>(shared);
  const Attention<bf16>& a = k.forward;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const int64_t index = blockIdx.x / tiles, b = index / a.key_heads, g = index % a.key_heads;
  // Under a causal mask the first keys are seen by most rows: they begin.
  const int key = static_cast<int>(blockIdx.x % tiles) * kKeys;
  const int keys = static_cast<int>(a.keys), count = min(kKeys, keys - key);
  const int own = warp * 16 * kKeyTiles;                         // this warp's keys of the tile
  const int units = plan.units / static_cast<int>(a.key_heads);  // of this group
  const int64_t unit0 = b * plan.units + g * units;
  const int steps = units * plan.steps;
  const uint64_t seed = kDrop ? key_of(a.seed) : 0;

  S::template take<kKeys>(shared_address(tile.k), row_at(a.k, b, g, key), a.k.row, 0, count);
  S::template take<kKeys>(shared_address(tile.value), row_at(a.value, b, g, key), a.value.row, 0,
                          count);

  // Steps of 64 rows that see some of the keys.
  const auto span_at = [&](int step) {
    const int4 x = __ldg(reinterpret_cast<const int4*>(plan.spans + unit0 * plan.steps + step));
    return Span{x.x, x.y, x.z, x.w};
  };
  const auto next_from = [&](int step) {
    while (step < steps && !span_at(step).sees(key, count)) ++step;
    return step;
  };
  int2 coming = make_int2(0, 0);  // range of a row of the next step
  const auto take = [&](int step, int stage) {
    const Unit unit(a, unit0 + step / plan.steps, plan.heads);
    const int row0 = step % plan.steps * kRowStep;
    // Rows that see nothing are zeros; where there are any, the span that all see ends at 0.
    const bool some_empty = span_at(step).end == 0;
    const int piece = thread % S::kPieces;
    constexpr int kStep = kMmaThreads / S::kPieces;
    const uint32_t q_tile = shared_address(tile.q[stage]), g_tile = shared_address(tile.g[stage]);
#pragma unroll
    for (int r0 = 0; r0 < kRowStep; r0 += kStep) {
      const int r = r0 + thread / S::kPieces;
      bool there = row0 + r < unit.rows;
      if (some_empty && there) {
        const int2 range = unit.range(a, row0 + r);
        there = range.x < range.y;
      }
      copy16(q_tile + S::offset(r, piece),
             there ? unit.row_of(a.q, row0 + r) + piece * 8 : a.q.data, there);
      copy16(g_tile + S::offset(r, piece),
             there ? unit.row_of(k.dcontext, row0 + r) + piece * 8 : k.dcontext.data, there);
    }
    if (thread < kRowStep) {
      const bool there = row0 + thread < unit.rows;
      const int64_t number = unit.number(a, row0 + (there ? thread : 0));
      copy4(shared_address(&tile.lse[stage][thread]), a.lse + number, there);
      copy4(shared_address(&tile.mean[stage][thread]), plan.mean + number, there);
      if (a.range) coming = unit.range(a, row0 + thread);
    }
  };

  float dk[kKeyTiles][D / 8][4], dvalue[kKeyTiles][D / 8][4];
  zero(dk), zero(dvalue);
  const float scale = a.scale * kLog2E;
  const uint32_t k_begin = S::left(shared_address(tile.k)),
                 value_begin = S::left(shared_address(tile.value));
  int step = next_from(0), stage = 0;
  if (step < steps) take(step, 0);
  copies_end();
#pragma unroll 1
  while (step < steps) {
    if (a.range && thread < kRowStep) tile.range[stage][thread] = coming;
    copies_wait<0>();
    __syncthreads();  // this step is there, and the one before, whose stage the next takes, was
                      // read
    const int next = next_from(step + 1);
    if (next < steps) take(next, stage ^ 1);
    copies_end();
    const uint32_t q_tile = shared_address(tile.q[stage]), g_tile = shared_address(tile.g[stage]);
    const uint32_t q_begin = S::right(q_tile), g_begin = S::right(g_tile),
                   q_transposed = S::right_transposed(q_tile),
                   g_transposed = S::right_transposed(g_tile);
    const bool all_see = span_at(step).all_see(key, kKeys);
    // The number of the first row of this step, for dropout.
    const int64_t number0 =
        Unit(a, unit0 + step / plan.steps, plan.heads).number(a, step % plan.steps * kRowStep);
#pragma unroll 1
    for (int j0 = 0; j0 < kRowStep; j0 += 8 * kChunk) {
      // Scores of keys (rows of these tiles) by queries (columns).
      float s[kKeyTiles][kChunk][4], dscore[kKeyTiles][kChunk][4];
      multiply_both<D>(k_begin, value_begin, own, q_begin, g_begin, j0, s, dscore);
#pragma unroll
      for (int j = 0; j < kChunk; ++j) {
        const int column = j0 + j * 8 + lane % 4 * 2;
        const float2 lse = *reinterpret_cast<const float2*>(&tile.lse[stage][column]);
        const float2 mean = *reinterpret_cast<const float2*>(&tile.mean[stage][column]);
        uint32_t kept[2] = {~0u, ~0u};
        if constexpr (kDrop)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            kept[e] = kept_rows<kKeyTiles>(plan.drop, seed, number0 + column + e, key + own);
#pragma unroll
        for (int i = 0; i < kKeyTiles; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float w = power_of_2(fmaf(s[i][j][e], scale, -(e % 2 ? lse.y : lse.x)));
            const float z = !kDrop                               ? 1.0f
                            : kept[e % 2] >> (2 * i + e / 2) & 1 ? plan.drop.keep
                                                                 : 0.0f;
            dscore[i][j][e] = w * (dscore[i][j][e] * z - (e % 2 ? mean.y : mean.x));
            s[i][j][e] = w * z;
          }
      }
      if (!all_see) {
#pragma unroll
        for (int j = 0; j < kChunk; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            // Without ranges only the last keys of all are not seen.
            const int2 range =
                a.range ? tile.range[stage][j0 + j * 8 + lane % 4 * 2 + e % 2] : make_int2(0, keys);
#pragma unroll
            for (int i = 0; i < kKeyTiles; ++i) {
              const int at = key + own + i * 16 + e / 2 * 8 + lane / 4;
              if (at < range.x || at >= range.y) s[i][j][e] = 0, dscore[i][j][e] = 0;
            }
          }
      }
      add_product<D>(s, g_transposed, j0, dvalue);
      add_product<D>(dscore, q_transposed, j0, dk);
    }
    step = next, stage ^= 1;
  }
  copies_wait<0>();

#pragma unroll
  for (int i = 0; i < kKeyTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int j = own + i * 16 + h * 8 + lane / 4;
      put_row(dk[i], h, a.scale, row_at(k.dk, b, g, key + j), j < count, k.add);
      put_row(dvalue[i], h, 1, row_at(k.dvalue, b, g, key + j), j < count, k.add);
    }
}

template <int D, int kRowTiles, int kKeyTiles, bool kDrop>
void launch(Cuda device, const AttentionGrad<bf16>& k, const Plan& plan) {
  const Attention<bf16>& a = k.forward;
  constexpr size_t rows_bytes = sizeof(RowsTile<D, kRowTiles>),
                   keys_bytes = sizeof(KeysTile<D, kKeyTiles>);
  const auto row_tiles =
      static_cast<int>(ceil_div(plan.heads * a.queries, RowsTile<D, kRowTiles>::kRows));
  allow_shared(grad_rows<D, kRowTiles, kDrop>, rows_bytes);
  grad_rows<D, kRowTiles, kDrop>
      <<<static_cast<unsigned>(a.batch * plan.units * row_tiles), kMmaThreads, rows_bytes,
         stream_of(device)>>>(k, plan, row_tiles);
  launched("attention, the backward pass: queries");
  const auto key_tiles = static_cast<int>(ceil_div(a.keys, KeysTile<D, kKeyTiles>::kKeys));
  allow_shared(grad_keys<D, kKeyTiles, kDrop>, keys_bytes);
  grad_keys<D, kKeyTiles, kDrop>
      <<<static_cast<unsigned>(a.batch * a.key_heads * key_tiles), kMmaThreads, keys_bytes,
         stream_of(device)>>>(k, plan, key_tiles);
  launched("attention, the backward pass: keys");
}
template <int D, int kRowTiles, int kKeyTiles>
void launch(Cuda device, const AttentionGrad<bf16>& k, const Plan& plan) {
  return plan.drop.threshold ? launch<D, kRowTiles, kKeyTiles, true>(device, k, plan)
                             : launch<D, kRowTiles, kKeyTiles, false>(device, k, plan);
}

}  // namespace

bool mma_takes(const AttentionGrad<bf16>& k) {
  return mma_takes(k.forward) && by_pieces(k.dcontext) && by_pieces(k.dq) && by_pieces(k.dk) &&
         by_pieces(k.dvalue);
}

void mma_attention_grad(Cuda device, const AttentionGrad<bf16>& k) {
  const Attention<bf16>& a = k.forward;
  if (a.keys <= 64) return mma_attention_grad_short(device, k);
  const bool tma = tma_takes(a.q) && tma_takes(a.k) && tma_takes(a.value) && tma_takes(k.dcontext);
  if (capabilities().wgmma && a.queries > 64 && tma && a.size >= 64 && !(a.dropout > 0))
    return wgmma_attention_grad(device, k);
  // What is left where there is wgmma: 32 columns; few queries, or those of a group of heads
  // together; dropout; rows that all are one, or go backwards.
  Plan plan{};
  plan.drop = drop_of(a);
  plan.heads = a.queries >= 64 ? 1 : static_cast<int>(a.heads / a.key_heads);
  plan.units = static_cast<int>(a.heads / plan.heads);
  plan.steps = static_cast<int>(ceil_div(plan.heads * a.queries, kRowStep));
  const int64_t means = ceil_div(a.batch * a.heads * a.queries, 64) * 64;
  const int64_t spans = a.batch * plan.units * plan.steps;
  plan.mean =
      static_cast<float*>(cuda_scratch(device, static_cast<size_t>(means) * sizeof(float) +
                                                   static_cast<size_t>(spans) * sizeof(Span)));
  plan.spans = reinterpret_cast<Span*>(plan.mean + means);
  const bool few = plan.heads * a.queries <= 64;
  if (a.size == 32)
    return few ? launch<32, 1, 2>(device, k, plan) : launch<32, 2, 2>(device, k, plan);
  if (a.size == 64)
    return few ? launch<64, 1, 2>(device, k, plan) : launch<64, 2, 2>(device, k, plan);
  return few ? launch<128, 1, 1>(device, k, plan) : launch<128, 2, 1>(device, k, plan);
}

}  // namespace heed::kernels
