// Attention by dot products of bf16 on Hopper's warpgroup products: two groups with 64 queries each
// by tiles of 128 keys. While a group takes the softmax of one tile's scores, tensor cores weigh
// the values of the tile before for it, or do the other group's products (Shah et al., 2024,
// "FlashAttention-3"). A unit is one head.
//
// Keys and values come through the ring one behind the other: of tile t, use 2 t and 2 t + 1.
#include "heed/kernels/cuda/dot_wgmma.cuh"

namespace heed::kernels {
namespace {

constexpr int kKeys = 2 * kTile;  // of a tile

template <int D>
struct Tile {
  alignas(1024) bf16 q[kMultiply][kTile * D];
  alignas(1024) bf16 keys_values[kFetch][kKeys * D];
  Ring ring;
  int strange[kFetch];  // whether a tile of values had what is no number
  int2 range[kBlockRows];
  Span span[kBlockRows / kWarp];
};

template <int D>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    attend_wgmma(const __grid_constant__ Attention<bf16> a, int tiles) {
  using S = Panels<D>;            // queries
  using Wide = Panels<D, kKeys>;  // keys, values
  extern __shared__ __align__(1024) unsigned char shared[];
  Tile<D>& tile = *reinterpret_cast<Tile<D>*>(shared);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = warp_number();
  const int group = warp / 4;
  const Unit unit(a, blockIdx.x / tiles, 1);
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
  if (thread == 0) tile.ring.begin();
  __syncthreads();
  Span all = tile.span[0];
  for (int i = 1; i < kBlockRows / kWarp; ++i) all.add(tile.span[i]);
  const int first = all.low / kKeys, last = (all.high + kKeys - 1) / kKeys;  // tiles of keys

  if (group == kMultiply) {
    give_registers();
    const int place = warp % 4;
    const bool values = place % 2;
    const Heads<const bf16>& from = values ? a.value : a.k;
#pragma unroll 1
    for (int n = place; n < 2 * (last - first); n += kFetch) {
      const int key = (first + n / 2) * kKeys;
      const uint32_t to = shared_address(tile.keys_values[place]);
      tile.ring.wait_empty(n);
      // What no row sees is not read: it need not be numbers.
#pragma unroll 1
      for (int i = 0; i < kKeys; i += kTile)
        Wide::template take<kWarp>(to, row_at(from, unit.b, unit.g, key + i), from.row,
                                   bits(all.low - key - i, all.high - key - i), lane, i);
      copies_finish();
      if (values) {
        // 0 * NaN is NaN: the product finds 0 in the place of what is no number.
        bool bad = false;
        if (!all.all_see(key, kKeys))
          bad = Wide::template make_numbers<kWarp>(tile.keys_values[place], lane);
        bad = __any_sync(~0u, bad);
        if (lane == 0) tile.strange[place] = bad;
      }
      tile.ring.is_full(n);
    }
    return;
  }

  take_registers();
  const int own = group * kTile;                 // this group's rows of the tile
  const int own_row = warp % 4 * 16 + lane / 4;  // and of these, this lane's first
  Span span = tile.span[2 * group];
  span.add(tile.span[2 * group + 1]);
  {
    const int row = row0 + own < unit.rows ? row0 + own : 0;
    S::template take<kGroupThreads>(shared_address(tile.q[group]), unit.row_of(a.q, row), a.q.row,
                                    bits(0, unit.rows - row0 - own), thread % kGroupThreads);
    copies_finish();
    group_barrier(group);
  }
  uint32_t q[D / 16][4];
  S::keep(shared_address(tile.q[group]), warp % 4, q);

  float s[kKeys / 2], sums[D / 2];
  uint32_t weight[kKeys / 16][4];
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, factor[2];
  zero(sums);
  const float scale = a.scale * kLog2E;
  const auto place_of = [&](int n) { return shared_address(tile.keys_values[n % kFetch]); };
  // Scores of tile t to exponentials; factor: what brings sums to the new maximum.
  const auto softmax = [&](int t) {
    if (!span.all_see(t * kKeys, kKeys)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int2 range = tile.range[own + own_row + h * 8];
        // Of this lane's numbers; all that varies below is known to the compiler.
        const int low = range.x - t * kKeys - lane % 4 * 2, high = range.y - range.x + low;
#pragma unroll
        for (int i = 2 * h; i < kKeys / 2; i += 4)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (i / 4 * 8 + e < low || i / 4 * 8 + e >= high) s[i + e] = -INFINITY;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float now = most[h];
#pragma unroll
      for (int i = 2 * h; i < kKeys / 2; i += 4) now = fmaxf(now, fmaxf(s[i], s[i + 1]));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
      // Where all scores are -inf so far, any finite maximum gives exponentials of 0.
      const float from = now == -INFINITY ? 0.0f : now * scale;
      factor[h] = power_of_2(fmaf(most[h], scale, -from));
      most[h] = now;
      float added[2] = {0, 0};
#pragma unroll
      for (int i = 2 * h; i < kKeys / 2; i += 4)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          s[i + e] = power_of_2(fmaf(s[i + e], scale, -from));
          added[e] += s[i + e];
        }
      sum[h] = fmaf(sum[h], factor[h], added[0] + added[1]);
    }
  };
  // The values of tile t were weighed. Where one is no number, the rows that see it get it here.
  const auto weighed = [&](int t) {
    const int n = 2 * (t - first) + 1;
    const bool strange_ones = tile.strange[n % kFetch];
    tile.ring.is_empty(n);
    if (!strange_ones) return;
#pragma unroll 1
    for (int key = t * kKeys; key < min(t * kKeys + kKeys, keys); ++key)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int2 range = tile.range[own + own_row + h * 8];
        if (key < range.x || key >= range.y) continue;
        const bf16* value = row_at(a.value, unit.b, unit.g, key) + lane % 4 * 2;
#pragma unroll
        for (int i = 2 * h; i < D / 2; i += 4) {
          const float2 x = wide_pair(*reinterpret_cast<const uint32_t*>(value + i / 4 * 8));
          if (x.x - x.x != 0) sums[i] += x.x;
          if (x.y - x.y != 0) sums[i + 1] += x.y;
        }
      }
  };

  if (first < last) {
    tile.ring.wait_full(0);
    products_begin();
    multiply<D>(s, q, matrix(place_of(0)));
    products_end();
    products_wait<0>(s);
    tile.ring.is_empty(0);
    softmax(first);
    round_left(s, weight);
#pragma unroll 1
    for (int t = first + 1; t < last; ++t) {
      const int n = 2 * (t - first);
      tile.ring.wait_full(n);
      products_begin();
      multiply<D>(s, q, matrix(place_of(n)));
      products_end();
      tile.ring.wait_full(n - 1);
      products_begin();
      add_product(sums, weight, turned<kKeys>(place_of(n - 1)));
      products_end();
      products_wait<1>(s);
      tile.ring.is_empty(n);
      softmax(t);
      products_wait<0>(sums);
      weighed(t - 1);
#pragma unroll
      for (int i = 0; i < D / 2; ++i) sums[i] *= factor[i / 2 % 2];
      round_left(s, weight);
    }
    const int n = 2 * (last - 1 - first) + 1;
    tile.ring.wait_full(n);
    products_begin();
    add_product(sums, weight, turned<kKeys>(place_of(n)));
    products_end();
    products_wait<0>(sums);
    weighed(last - 1);
  }

  // This warp's queries are in its registers: the context takes their place, to go to memory in
  // whole pieces.
  __syncwarp();
  unsigned char* const to = reinterpret_cast<unsigned char*>(tile.q[group]);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = sum[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const bool none = most[h] == -INFINITY;
    const float share = none ? 0.0f : 1 / total;
    const int r = own_row + h * 8;
    if (lane % 4 == 0 && row0 + own + r < unit.rows)
      a.log_sum[unit.number(a, row0 + own + r)] =
          none ? -INFINITY : fmaf(most[h], scale, log2f(total));
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
      *reinterpret_cast<uint32_t*>(to + S::offset(r, j) + lane % 4 * 4) =
          narrow_pair(sums[4 * j + 2 * h] * share, sums[4 * j + 2 * h + 1] * share);
  }
  __syncwarp();
#pragma unroll 4
  for (int x = lane; x < 16 * S::kPieces; x += kWarp) {
    const int r = warp % 4 * 16 + x / S::kPieces, piece = x % S::kPieces;
    if (row0 + own + r < unit.rows)
      *reinterpret_cast<uint4*>(unit.row_of(a.context, row0 + own + r) + piece * 8) =
          *reinterpret_cast<const uint4*>(to + S::offset(r, piece));
  }
}

template <int D>
void launch(Cuda device, const Attention<bf16>& a) {
  const auto tiles = static_cast<int>(ceil_div(a.queries, kBlockRows));
  allow_shared(attend_wgmma<D>, sizeof(Tile<D>));
  attend_wgmma<D><<<static_cast<unsigned>(a.batch * a.heads * tiles), kWgmmaThreads,
                    sizeof(Tile<D>), stream_of(device)>>>(a, tiles);
  launched("attention");
}

}  // namespace

void wgmma_attention(Cuda device, const Attention<bf16>& a) {
  return a.size == 64 ? launch<64>(device, a) : launch<128>(device, a);
}

}  // namespace heed::kernels
