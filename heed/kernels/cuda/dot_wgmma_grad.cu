// The backward pass of fused attention by dot products of bf16 on Hopper: producer warps and the
// TMA, consumer warpgroups and wgmma (dot_wgmma.cuh; Shah et al., 2024, "FlashAttention-3"),
// weights recomputed from the saved log-sum-exp. Cut as in dot_mma_grad.cu: a block of grad_rows
// has dq of 128 rows and goes through their keys, a block of grad_keys has dk and dvalue of 128
// keys and goes through the rows, 64 at a time; every sum has one order. A unit is one head.
// Equations: dot_grad.cu.
//
// Where registers are enough (dq; kAhead of dk), the last sums of a step go on while the scores of
// the next are begun, and the tile that they read is given back then.
#include "heed/kernels/cuda/dot_wgmma.cuh"

namespace heed::kernels {
namespace {

struct Plan {
  float* mean;  // [B, H, Tq]: D = g . context
  Span* spans;  // [B, H, steps]: of kTile rows each
  int steps;    // of a head
};

struct TensorMaps {
  TensorMap<kTile> q, g, k, value;
};

// By one thread, before the first __syncthreads().
template <class Tile>
__device__ void begin_barriers(Tile& tile) {
  tile.ring.begin();
  tile.own.begin(1);
  for (Barrier& x : tile.landed) x.begin(1);
  barriers_begun();
}
// A block's own rows of two arrays, from `row` on; by one thread.
template <int D>
__device__ void take_own(bf16 (&x)[kConsumerGroups][kTile * D], const TensorMap<kTile>& from_x,
                         bf16 (&y)[kConsumerGroups][kTile * D], const TensorMap<kTile>& from_y,
                         int64_t b, int64_t head, int row, Barrier& there) {
  there.arrive_and_expect(2 * kConsumerGroups * kTileBytes<D>);
  for (int i = 0; i < kConsumerGroups; ++i) {
    Panels<D>::take(x[i], from_x, b, head, row + i * kTile, there);
    Panels<D>::take(y[i], from_y, b, head, row + i * kTile, there);
  }
}

// 64 rows of sums to memory, times a factor; those of this warp, rows below `count`.
template <int n>
__device__ void put_rows(const float (&sums)[n], float factor, bf16* to, int64_t stride, int count,
                         bool add) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = warp * 16 + h * 8 + lane / 4;
    put_row(reinterpret_cast<const float(&)[n / 4][4]>(sums), h, factor, to + r * stride, r < count,
            add);
  }
}

// ---- dq

template <int D>
struct RowsTile {  // of shared memory
  alignas(1024) bf16 q[kConsumerGroups][kTile * D];
  alignas(1024) bf16 g[kConsumerGroups][kTile * D];
  alignas(1024) bf16 k[kProducerWarps][kTile * D];
  alignas(1024) bf16 value[kProducerWarps][kTile * D];
  Ring<kProducerWarps, 1, kConsumerWarps, false> ring;
  Barrier own;                     // queries and what flows to their context are there
  Barrier landed[kProducerWarps];  // keys that are looked at before they are given on
  int2 range[kBlockRows];
  float mean[kBlockRows];
  Span span[kBlockRows / kWarp], all;
};

template <int D>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    grad_rows(const __grid_constant__ AttentionGrad<bf16> k,
              const __grid_constant__ TensorMaps maps, const Plan plan, int tiles) {
  using S = Panels<D>;
  extern __shared__ __align__(1024) unsigned char shared[];
  RowsTile<D>& tile = *reinterpret_cast<RowsTile<D>*>(shared);
  const Attention<bf16>& a = k.forward;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = warp_number();
  const int group = warp / 4;
  const int64_t index = blockIdx.x / tiles;
  const Unit unit(a, index, 1);
  // Under a causal mask the last rows see most keys: they begin.
  const int row0 = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * kBlockRows;
  const int keys = static_cast<int>(a.keys);

  if (warp < kBlockRows / kWarp) {
    const int2 range = unit.range(a, row0 + thread);
    tile.range[thread] = range;
    Span span = Span::none(keys);
    if (row0 + thread < unit.rows) span.add(range);
    span.add_warp();
    if (lane == 0) tile.span[warp] = span;
  }
  if (thread == 0) {
    begin_barriers(tile);
    take_own<D>(tile.q, maps.q, tile.g, maps.g, unit.b, unit.first_head, row0, tile.own);
  }
  __syncthreads();
  if (thread == 0) {
    Span all = Span::none(keys);
    for (int i = 0; i < kConsumerGroups; ++i) {
      Span some = tile.span[2 * i];
      some.add(tile.span[2 * i + 1]);
      all.add(some);
      const int at = row0 / kTile + i;
      if (at < plan.steps) plan.spans[index * plan.steps + at] = some;
    }
    tile.all = all;
  }
  __syncthreads();
  const int first = tile.all.low / kTile, last = (tile.all.high + kTile - 1) / kTile;

  if (group == kConsumerGroups) {
    setmaxnreg_dec();
    const int stage = warp % 4;
    int looks = 0;
#pragma unroll 1
    for (int t = first + stage; t < last; t += kProducerWarps) {
      const int key = t * kTile, n = t - first;
      // 0 * NaN is NaN: what is non-finite in a key that not all see is made 0. Rows that see NaN
      // have it as their lse, and get it. (Infinities in a key whose score is -inf count as 0,
      // too.)
      const bool look = !tile.all.all_see(key, kTile);
      Barrier& there = look ? tile.landed[stage] : tile.ring.full[stage];
      tile.ring.producer_acquire(n);
      if (lane == 0) {
        there.arrive_and_expect(2 * kTileBytes<D>);
        S::take(tile.k[stage], maps.k, unit.b, unit.g, key, there);
        S::take(tile.value[stage], maps.value, unit.b, unit.g, key, there);
      }
      if (!look) continue;
      there.wait(looks++ & 1);
      S::template zero_non_finite<kWarp>(tile.k[stage], lane);
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) tile.ring.full[stage].arrive();
    }
    return;
  }

  setmaxnreg_inc();
  const int own = group * kTile;  // this group's rows of the tile
  const int own_warp = warp % 4;
  // D, of this warp's rows: context comes while the tiles do. Of a row that sees nothing it need
  // not be finite; what it gives is made 0.
  constexpr int kAtOnce = kWarp / S::kPieces;
  uint4 context[16 / kAtOnce];
#pragma unroll
  for (int i = 0; i < 16 / kAtOnce; ++i) {
    const int r = own + own_warp * 16 + i * kAtOnce + lane / S::kPieces;
    const int2 range = tile.range[r];
    context[i] = piece_of<S>(range.x < range.y ? unit.row_of(a.context, row0 + r) : nullptr);
  }
  tile.own.wait(0);
#pragma unroll
  for (int i = 0; i < 16 / kAtOnce; ++i) {
    const int r = own_warp * 16 + i * kAtOnce + lane / S::kPieces;
    const float sum = mean_of<S>(context[i], tile.g[group], r);
    if (lane % S::kPieces != 0) continue;
    tile.mean[own + r] = sum;
    if (row0 + own + r < unit.rows) plan.mean[unit.number(a, row0 + own + r)] = sum;
  }
  __syncwarp();
  float mean[2], lse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = own + own_warp * 16 + h * 8 + lane / 4;
    mean[h] = tile.mean[r];
    lse[h] = row0 + r < unit.rows ? a.lse[unit.number(a, row0 + r)] : 0.0f;
  }
  Span span = tile.span[2 * group];
  span.add(tile.span[2 * group + 1]);

  // Left operands are read where they lie: from registers it is no faster at 128 columns, and at 64
  // the products were wrong on an H200.
  const uint64_t q = matrix(shared_address(tile.q[group])),
                 g = matrix(shared_address(tile.g[group]));
  float dq[D / 2];
  zero(dq);
  const float scale = a.scale * kLog2E;
  int held = -1;  // the tile that dq still reads
  const auto finish = [&] {
    if (held < 0) return;
    products_wait<0>(dq);
    tile.ring.consumer_release(held);
    held = -1;
  };
#pragma unroll 1
  for (int t = first; t < last; ++t) {
    const int key = t * kTile, n = t - first, stage = n % kProducerWarps;
    tile.ring.consumer_wait(n);
    if (!span.sees(key, kTile)) {
      finish();
      tile.ring.consumer_release(n);
      continue;
    }
    const uint32_t k_tile = shared_address(tile.k[stage]);
    float s[32], dscore[32];
    products_begin();
    multiply<D>(s, q, matrix(k_tile));
    products_end();
    products_wait<1>(dq);
    if (held >= 0) tile.ring.consumer_release(held);
    held = n;
    products_begin();
    multiply<D>(dscore, g, matrix(shared_address(tile.value[stage])));
    products_end();
    products_wait<1>(s);
#pragma unroll
    for (int i = 0; i < 32; ++i) s[i] = power_of_2(fmaf(s[i], scale, -lse[i / 2 % 2]));
    products_wait<0>(dscore);
#pragma unroll
    for (int i = 0; i < 32; ++i) dscore[i] = s[i] * (dscore[i] - mean[i / 2 % 2]);
    if (!span.all_see(key, kTile)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int2 range = tile.range[own + own_warp * 16 + h * 8 + lane / 4];
        const int low = range.x - key - lane % 4 * 2, high = range.y - range.x + low;
#pragma unroll
        for (int i = 2 * h; i < 32; i += 4)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (i / 4 * 8 + e < low || i / 4 * 8 + e >= high) dscore[i + e] = 0;
      }
    }
    uint32_t left[4][4];
    round_left(dscore, left);
    products_begin();
    add_product(dq, left, transposed<>(k_tile));
    products_end();
  }
  products_wait<0>(dq);
  if (row0 + own < unit.rows)
    put_rows(dq, a.scale, unit.row_of(k.dq, row0 + own), k.dq.row, unit.rows - row0 - own, false);
}

// ---- dk, dvalue

template <int D>
struct KeysTile {  // of shared memory
  alignas(1024) bf16 k[kConsumerGroups][kTile * D];
  alignas(1024) bf16 value[kConsumerGroups][kTile * D];
  alignas(1024) bf16 q[kProducerWarps][kTile * D];
  alignas(1024) bf16 g[kProducerWarps][kTile * D];
  alignas(16) float lse[kProducerWarps][kTile], mean[kProducerWarps][kTile];
  alignas(16) int2 range[kProducerWarps][kTile];
  // A lane arrives, and so does what it copies.
  Ring<kProducerWarps, 2 * kWarp, kConsumerWarps, true> ring;
  Barrier own;                     // keys and values are there
  Barrier landed[kProducerWarps];  // rows some of which are made zeros first
};

template <int D>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    grad_keys(const __grid_constant__ AttentionGrad<bf16> k,
              const __grid_constant__ TensorMaps maps, const Plan plan, int tiles) {
  using S = Panels<D>;
  constexpr bool kAhead = D == 64;
  extern __shared__ __align__(1024) unsigned char shared[];
  KeysTile<D>& tile = *reinterpret_cast<KeysTile<D>*>(shared);
  const Attention<bf16>& a = k.forward;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = warp_number();
  const int group = warp / 4;
  const int64_t index = blockIdx.x / tiles, b = index / a.key_heads, g = index % a.key_heads;
  // Under a causal mask the first keys are seen by most rows: they begin.
  const int key = static_cast<int>(blockIdx.x % tiles) * kBlockRows;
  const int keys = static_cast<int>(a.keys), count = min(kBlockRows, keys - key);
  const int heads = static_cast<int>(a.heads / a.key_heads);
  const int64_t unit0 = b * a.heads + g * heads;
  const int steps = heads * plan.steps;

  // Steps of 64 rows that see some of the keys.
  const auto span_at = [&](int step) {
    const int4 x = __ldg(reinterpret_cast<const int4*>(plan.spans + unit0 * plan.steps + step));
    return Span{x.x, x.y, x.z, x.w};
  };
  const auto next_from = [&](int step) {
    while (step < steps && !span_at(step).sees(key, count)) ++step;
    return step;
  };
  if (threadIdx.x == 0) {
    begin_barriers(tile);
    take_own<D>(tile.k, maps.k, tile.value, maps.value, b, g, key, tile.own);
  }
  __syncthreads();

  if (group == kConsumerGroups) {
    setmaxnreg_dec();
    const int stage = warp % 4;
    int looks = 0;
#pragma unroll 1
    for (int step = next_from(0), n = 0; step < steps; step = next_from(step + 1), ++n) {
      if (n % kProducerWarps != stage) continue;
      const Unit unit(a, unit0 + step / plan.steps, 1);
      const int row0 = step % plan.steps * kTile;
      // Rows are summed over, and 0 * NaN is NaN: those that see nothing are made zeros.
      const bool look = span_at(step).end == 0;
      Barrier& full = tile.ring.full[stage];
      Barrier& there = look ? tile.landed[stage] : full;
      tile.ring.producer_acquire(n);
      if (lane == 0) {
        look ? there.arrive_and_expect(2 * kTileBytes<D>) : there.expect(2 * kTileBytes<D>);
        S::take(tile.q[stage], maps.q, unit.b, unit.first_head, row0, there);
        S::take(tile.g[stage], maps.g, unit.b, unit.first_head, row0, there);
      }
      uint64_t seeing = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = i * kWarp + lane;
        const bool exists = row0 + r < unit.rows;
        const int64_t number = unit.number(a, row0 + (exists ? r : 0));
        copy4(shared_address(&tile.lse[stage][r]), a.lse + number, exists);
        copy4(shared_address(&tile.mean[stage][r]), plan.mean + number, exists);
        const int2 range = unit.range(a, row0 + r);
        tile.range[stage][r] = range;
        seeing |= uint64_t{__ballot_sync(~0u, range.x < range.y)} << i * kWarp;
      }
      full.arrive_with_copies();
      if (look) {
        there.wait(looks++ & 1);
        S::make_zeros(tile.q[stage], ~seeing, lane);
        S::make_zeros(tile.g[stage], ~seeing, lane);
        fence_proxy_async();
      }
      full.arrive();
    }
    return;
  }

  setmaxnreg_inc();
  const int own = key + group * kTile;  // the first of this group's keys
  const int own_row = warp % 4 * 16 + lane / 4;
  tile.own.wait(0);
  const uint64_t own_k = matrix(shared_address(tile.k[group])),
                 own_value = matrix(shared_address(tile.value[group]));
  float dk[D / 2], dvalue[D / 2];
  zero(dk), zero(dvalue);
  const float scale = a.scale * kLog2E;
  int held = -1;  // the step whose rows dk still reads
  const auto finish = [&] {
    if (held < 0) return;
    products_wait<0>(dk);
    tile.ring.consumer_release(held);
    held = -1;
  };
#pragma unroll 1
  for (int step = next_from(0), n = 0; step < steps; ++n) {
    const Span span = span_at(step);
    const int stage = n % kProducerWarps;
    step = next_from(step + 1);
    tile.ring.consumer_wait(n);
    if (!span.sees(own, kTile)) {
      finish();
      tile.ring.consumer_release(n);
      continue;
    }
    const uint32_t q_tile = shared_address(tile.q[stage]), g_tile = shared_address(tile.g[stage]);
    // Scores of keys (rows) by queries (columns).
    float s[32], dscore[32];
    products_begin();
    multiply<D>(s, own_k, matrix(q_tile));
    products_end();
    if (kAhead) products_wait<1>(dk);
    if (kAhead && held >= 0) tile.ring.consumer_release(held);
    held = n;
    products_begin();
    multiply<D>(dscore, own_value, matrix(g_tile));
    products_end();
    products_wait<1>(s);
    const bool all_see = span.all_see(own, kTile);
    uint32_t seen = ~0u;  // bit i: element i of the scores
    if (!all_see) {
      seen = 0;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int2 range = tile.range[stage][i / 4 * 8 + lane % 4 * 2 + i % 2];
        const int at = own + i / 2 % 2 * 8 + own_row;
        if (at >= range.x && at < range.y) seen |= 1u << i;
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 x = *reinterpret_cast<const float2*>(&tile.lse[stage][j * 8 + lane % 4 * 2]);
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i)
        s[i] = power_of_2(fmaf(s[i], scale, -(i % 2 ? x.y : x.x)));
    }
    if (!all_see) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (!(seen >> i & 1)) s[i] = 0;
    }
    // A left operand in registers must be there before a group of products begins, else the
    // compiler puts them one after the other.
    products_wait<0>(dscore);
    uint32_t left[4][4], dscores[4][4];
    round_left(s, left);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 x = *reinterpret_cast<const float2*>(&tile.mean[stage][j * 8 + lane % 4 * 2]);
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) dscore[i] = s[i] * (dscore[i] - (i % 2 ? x.y : x.x));
    }
    if (!all_see) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (!(seen >> i & 1)) dscore[i] = 0;
    }
    round_left(dscore, dscores);
    products_begin();
    add_product(dvalue, left, transposed<>(g_tile));
    add_product(dk, dscores, transposed<>(q_tile));
    products_end();
    if (!kAhead) finish();
  }
  products_wait<0>(dk);
  products_wait<0>(dvalue);
  if (own < keys) {
    put_rows(dk, a.scale, row_at(k.dk, b, g, own), k.dk.row, keys - own, k.add);
    put_rows(dvalue, 1.0f, row_at(k.dvalue, b, g, own), k.dvalue.row, keys - own, k.add);
  }
}

template <int D>
void launch(Cuda device, const AttentionGrad<bf16>& k, const Plan& plan) {
  const Attention<bf16>& a = k.forward;
  const TensorMaps maps{tensor_map_of<kTile>(a.q, a.batch, a.heads, a.queries, D),
                        tensor_map_of<kTile>(k.dcontext, a.batch, a.heads, a.queries, D),
                        tensor_map_of<kTile>(a.k, a.batch, a.key_heads, a.keys, D),
                        tensor_map_of<kTile>(a.value, a.batch, a.key_heads, a.keys, D)};
  const auto row_tiles = static_cast<int>(ceil_div(a.queries, kBlockRows));
  allow_shared(grad_rows<D>, sizeof(RowsTile<D>));
  grad_rows<D><<<static_cast<unsigned>(a.batch * a.heads * row_tiles), kWgmmaThreads,
                 sizeof(RowsTile<D>), stream_of(device)>>>(k, maps, plan, row_tiles);
  launched("attention, the backward pass: queries");
  const auto key_tiles = static_cast<int>(ceil_div(a.keys, kBlockRows));
  allow_shared(grad_keys<D>, sizeof(KeysTile<D>));
  grad_keys<D><<<static_cast<unsigned>(a.batch * a.key_heads * key_tiles), kWgmmaThreads,
                 sizeof(KeysTile<D>), stream_of(device)>>>(k, maps, plan, key_tiles);
  launched("attention, the backward pass: keys");
}

}  // namespace

void wgmma_attention_grad(Cuda device, const AttentionGrad<bf16>& k) {
  const Attention<bf16>& a = k.forward;
  Plan plan{};
  plan.steps = static_cast<int>(ceil_div(a.queries, kTile));
  const int64_t means = ceil_div(a.batch * a.heads * a.queries, 64) * 64;
  const int64_t spans = a.batch * a.heads * plan.steps;
  plan.mean =
      static_cast<float*>(cuda_scratch(device, static_cast<size_t>(means) * sizeof(float) +
                                                   static_cast<size_t>(spans) * sizeof(Span)));
  plan.spans = reinterpret_cast<Span*>(plan.mean + means);
  return a.size == 64 ? launch<64>(device, k, plan) : launch<128>(device, k, plan);
}

}  // namespace heed::kernels
