// Fused attention by dot products of bf16 on tensor cores, forward: tiling into 64 or 128 queries
// by 64 keys with an online softmax, keys and values of the next tile on their way (cp.async, two
// stages) while this one is worked on (Dao, 2023, "FlashAttention-2"). The log-sum-exp of each row
// is saved for backward.
#include "heed/kernels/cuda/dot_mma.cuh"

namespace heed::kernels {
namespace {

// How the work is cut: warps with kRowTiles times 16 queries each by tiles of kKeys keys, two of
// which are in shared memory at a time. Up to 32 queries and keys are one small tile: more blocks
// are under way at once.
template <int kRowTiles_, int kWarps_, int kKeys_>
struct Cut {
  static constexpr int kRowTiles = kRowTiles_, kWarps = kWarps_, kKeys = kKeys_;
  static constexpr int kThreads = kWarps * kWarp, kStages = kKeys == 64 ? 2 : 1;
  static constexpr int kRows = kWarps * 16 * kRowTiles;
  static constexpr int blocks(int D) {  // of a multiprocessor: the occupancy
    if (kStages == 1) return D == 128 ? 6 : 8;
    return kRowTiles == 1 && D < 128 ? 3 : 2;
  }
};
using Short = Cut<1, 2, 32>;
using Small = Cut<1, kMmaWarps, 64>;
using Large = Cut<2, kMmaWarps, 64>;

template <int D, class C>
struct Tile {
  alignas(1024) bf16 q[C::kRows * D];
  alignas(1024) bf16 k[C::kStages][C::kKeys * D];
  alignas(1024) bf16 value[C::kStages][C::kKeys * D];
  int2 range[C::kRows];
  Span span[C::kWarps], all;
};

template <int D, class C, bool kDrop>
__global__ void __launch_bounds__(C::kThreads, C::blocks(D))
    attend_mma(const __grid_constant__ Attention<bf16> a, int tiles, int heads, Drop drop) {
  using S = Swizzled<D>;
  constexpr int kRowTiles = C::kRowTiles, kRows = C::kRows, kKeys = C::kKeys;
  constexpr int kSteps = D / 16;      // of a product over columns
  constexpr int kScores = kKeys / 8;  // tiles of scores of 8 keys
  constexpr int kColumns = D / 8;     // tiles of the mean of 8 columns
  constexpr bool kKeepQ = D <= 64;    // in registers
  extern __shared__ __align__(1024) unsigned char shared[];
  Tile<D, C>& tile = *reinterpret_cast<Tile<D, C>*>(shared);
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const Unit unit(a, blockIdx.x / tiles, heads);
  // Under a causal mask the last rows see most keys: they begin.
  const int row0 = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * kRows;
  const int own = warp * 16 * kRowTiles;  // this warp's rows of the tile
  const int keys = static_cast<int>(a.keys);
  const uint64_t seed = kDrop ? key_of(a.seed) : 0;

  const uint32_t q_tile = shared_address(tile.q);
  {
    constexpr int kStep = C::kThreads / S::kPieces;
    const int piece = static_cast<int>(threadIdx.x) % S::kPieces;
#pragma unroll
    for (int r0 = 0; r0 < kRows; r0 += kStep) {
      const int r = r0 + static_cast<int>(threadIdx.x) / S::kPieces;
      const bool there = row0 + r < unit.rows;
      copy16(q_tile + S::offset(r, piece),
             there ? unit.row_of(a.q, row0 + r) + piece * 8 : a.q.data, there);
    }
  }
  // Keys [low, high) of tile t, and zeros.
  const auto take = [&](int t, int low, int high) {
    const int key = t * kKeys, stage = t % C::kStages;
    S::template take<kKeys, C::kThreads>(shared_address(tile.k[stage]),
                                         row_at(a.k, unit.b, unit.g, key), a.k.row, low - key,
                                         high - key);
    S::template take<kKeys, C::kThreads>(shared_address(tile.value[stage]),
                                         row_at(a.value, unit.b, unit.g, key), a.value.row,
                                         low - key, high - key);
  };
  // Where one tile is all, it is asked for before it is known what is seen: what a small launch
  // costs is waiting. Elsewhere what no row sees is not read.
  constexpr bool kAtOnce = C::kStages == 1;
  if (kAtOnce) take(0, 0, keys);

  // Ranges: of each row, of a warp's rows, of all.
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
    Span all = tile.span[0];
    for (int i = 1; i < C::kWarps; ++i) all.add(tile.span[i]);
    tile.all = all;
  }
  __syncthreads();

  const int first = tile.all.low / kKeys,
            last = (tile.all.high + kKeys - 1) / kKeys;  // tiles of keys
  if (!kAtOnce && first < last) take(first, tile.all.low, tile.all.high);
  copies_end();

  uint32_t q[kKeepQ ? kRowTiles : 1][kKeepQ ? kSteps : 1][4];
  float sums[kRowTiles][kColumns][4];
  float most[kRowTiles][2], sum[kRowTiles][2];
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][c][e] = 0;
    most[i][0] = most[i][1] = -INFINITY;
    sum[i][0] = sum[i][1] = 0;
  }
  const float scale = a.scale * kLog2E;
  const uint32_t q_begin = S::left(q_tile);

#pragma unroll 1
  for (int t = first; t < last; ++t) {
    const int key = t * kKeys;
    copies_wait<0>();
    __syncthreads();  // tile t is there, and t - 1, whose stage the next one takes, was read
    if (kKeepQ && t == first) {
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int k = 0; k < kSteps; ++k)
          load_matrices(q[kKeepQ ? i : 0][kKeepQ ? k : 0], S::at(q_begin, own + i * 16, k));
    }
    if (t + 1 < last) take(t + 1, tile.all.low, tile.all.high);
    copies_end();
    const uint32_t k_begin = S::right(shared_address(tile.k[t % C::kStages])),
                   value_begin = S::right_transposed(shared_address(tile.value[t % C::kStages]));
    const bool mine = span.sees(key, kKeys);
    uint32_t weight[kRowTiles][kScores / 2][4];
    if (mine) {
      float s[kRowTiles][kScores][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < kScores; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) s[i][j][e] = 0;
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint32_t left[kRowTiles][4];
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          if constexpr (kKeepQ) {
#pragma unroll
            for (int e = 0; e < 4; ++e) left[i][e] = q[i][k][e];
          } else {
            load_matrices(left[i], S::at(q_begin, own + i * 16, k));
          }
        }
#pragma unroll
        for (int j = 0; j < kScores; j += 2) {
          uint32_t right[4];
          load_matrices(right, S::at(k_begin, j * 8, k));
#pragma unroll
          for (int i = 0; i < kRowTiles; ++i) {
            mma(s[i][j], left[i], right[0], right[1]);
            mma(s[i][j + 1], left[i], right[2], right[3]);
          }
        }
      }
      if (!span.all_see(key, kKeys)) {
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int2 range = tile.range[own + i * 16 + h * 8 + lane / 4];
#pragma unroll
            for (int j = 0; j < kScores; ++j)
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                const int at = key + j * 8 + lane % 4 * 2 + e;
                if (at < range.x || at >= range.y) s[i][j][2 * h + e] = -INFINITY;
              }
          }
      }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float now = most[i][h];
#pragma unroll
          for (int j = 0; j < kScores; ++j)
            now = fmaxf(now, fmaxf(s[i][j][2 * h], s[i][j][2 * h + 1]));
          now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
          now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
          // Where all scores are -inf so far, any finite maximum gives exponentials of 0.
          const float from = now == -INFINITY ? 0.0f : now * scale;
          // Exactly 1 where the maximum stays: a tile of which a row sees nothing changes nothing.
          const float factor =
              now == most[i][h] ? 1.0f : power_of_2(fmaf(most[i][h], scale, -from));
          most[i][h] = now;
          float added = 0;
#pragma unroll
          for (int j = 0; j < kScores; ++j)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; ++e) {
              s[i][j][e] = power_of_2(fmaf(s[i][j][e], scale, -from));
              added += s[i][j][e];
            }
          sum[i][h] = fmaf(sum[i][h], factor, added);
          if constexpr (kDrop) {  // what is kept is multiplied by 1 / (1 - p) at the end
            const int row = row0 + own + i * 16 + h * 8 + lane / 4;
            const uint32_t kept = kept_keys<kScores>(drop, seed, unit.number(a, row), key);
#pragma unroll
            for (int j = 0; j < kScores; ++j)
#pragma unroll
              for (int e = 0; e < 2; ++e)
                if (!(kept >> (2 * j + e) & 1)) s[i][j][2 * h + e] = 0;
          }
#pragma unroll
          for (int c = 0; c < kColumns; ++c)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; ++e) sums[i][c][e] *= factor;
        }
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < kScores / 2; ++j) {
          weight[i][j][0] = narrow_pair(s[i][2 * j][0], s[i][2 * j][1]);
          weight[i][j][1] = narrow_pair(s[i][2 * j][2], s[i][2 * j][3]);
          weight[i][j][2] = narrow_pair(s[i][2 * j + 1][0], s[i][2 * j + 1][1]);
          weight[i][j][3] = narrow_pair(s[i][2 * j + 1][2], s[i][2 * j + 1][3]);
        }
    }
    if (!tile.all.all_see(key, kKeys)) {
      // 0 * NaN is NaN: where a value is non-finite, the rows that see it get it here, and the
      // product finds 0 instead.
      const auto pieces = reinterpret_cast<uint4*>(tile.value[t % C::kStages]);
      bool bad = false;
      for (int x = static_cast<int>(threadIdx.x); x < kKeys * S::kPieces; x += C::kThreads) {
        const uint4 p = pieces[x];
        bad = bad || non_finite(p.x) || non_finite(p.y) || non_finite(p.z) || non_finite(p.w);
      }
      if (__syncthreads_or(bad)) {
        const auto bytes = reinterpret_cast<const unsigned char*>(tile.value[t % C::kStages]);
#pragma unroll 1
        for (int j = 0; j < kKeys; ++j)
#pragma unroll
          for (int c = 0; c < kColumns; ++c) {
            const uint32_t two =
                *reinterpret_cast<const uint32_t*>(bytes + S::offset(j, c) + lane % 4 * 4);
            if (!non_finite(two)) continue;
#pragma unroll
            for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
              for (int e = 0; e < 4; ++e) {
                const float x = __uint_as_float(e % 2 ? two & 0xFFFF0000u : two << 16);
                const int2 r = tile.range[own + i * 16 + e / 2 * 8 + lane / 4];
                if (x - x != 0 && key + j >= r.x && key + j < r.y) sums[i][c][e] += x;
              }
          }
        __syncthreads();
        zero_non_finite(tile.value[t % C::kStages], kKeys * D);
        __syncthreads();
      }
    }
    if (mine) {
#pragma unroll
      for (int j = 0; j < kScores / 2; ++j)
#pragma unroll
        for (int c = 0; c < kColumns; c += 2) {
          uint32_t right[4];
          load_transposed(right, S::at(value_begin, j * 16, c / 2));
#pragma unroll
          for (int i = 0; i < kRowTiles; ++i) {
            mma(sums[i][c], weight[i][j], right[0], right[1]);
            mma(sums[i][c + 1], weight[i][j], right[2], right[3]);
          }
        }
    }
  }
  copies_wait<0>();
  __syncwarp();

  // This warp's rows of the queries were read by this warp alone: the context goes where they were,
  // to go to memory in whole pieces. Without any tile of keys, other warps' copies of q may still
  // come.
  if (first >= last) __syncthreads();
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[i][h];
      total += __shfl_xor_sync(~0u, total, 1);
      total += __shfl_xor_sync(~0u, total, 2);
      const bool none = most[i][h] == -INFINITY;
      const float share = none ? 0.0f : (kDrop ? drop.keep : 1.0f) / total;
      const int r = own + i * 16 + h * 8 + lane / 4;
      if (lane % 4 == 0 && row0 + r < unit.rows)
        a.lse[unit.number(a, row0 + r)] = none ? -INFINITY : fmaf(most[i][h], scale, log2f(total));
      unsigned char* to = reinterpret_cast<unsigned char*>(tile.q);
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        *reinterpret_cast<uint32_t*>(to + S::offset(r, c) + lane % 4 * 4) =
            narrow_pair(sums[i][c][2 * h] * share, sums[i][c][2 * h + 1] * share);
    }
  __syncwarp();
  constexpr int kWarpPieces = 16 * kRowTiles * S::kPieces;
#pragma unroll 4
  for (int x = lane; x < kWarpPieces; x += kWarp) {
    const int r = own + x / S::kPieces, piece = x % S::kPieces;
    if (row0 + r < unit.rows)
      *reinterpret_cast<uint4*>(unit.row_of(a.context, row0 + r) + piece * 8) =
          *reinterpret_cast<const uint4*>(reinterpret_cast<const unsigned char*>(tile.q) +
                                          S::offset(r, piece));
  }
}

template <int D, class C, bool kDrop>
void launch(Cuda device, const Attention<bf16>& a, int heads) {
  constexpr size_t bytes = sizeof(Tile<D, C>);
  const int64_t rows = heads * a.queries;
  const auto tiles = static_cast<int>(ceil_div(rows, C::kRows));
  const auto blocks = static_cast<unsigned>(a.batch * (a.heads / heads) * tiles);
  allow_shared(attend_mma<D, C, kDrop>, bytes);
  attend_mma<D, C, kDrop>
      <<<blocks, C::kThreads, bytes, stream_of(device)>>>(a, tiles, heads, drop_of(a));
  launched("attention");
}
template <int D, class C>
void launch(Cuda device, const Attention<bf16>& a, int heads) {
  return drop_of(a).threshold ? launch<D, C, true>(device, a, heads)
                              : launch<D, C, false>(device, a, heads);
}
template <int D>
void launch(Cuda device, const Attention<bf16>& a, int heads) {
  const int64_t rows = heads * a.queries;
  if (rows <= Short::kRows && a.keys <= Short::kKeys) return launch<D, Short>(device, a, heads);
  return rows <= Small::kRows ? launch<D, Small>(device, a, heads)
                              : launch<D, Large>(device, a, heads);
}

}  // namespace

bool mma_takes(const Attention<bf16>& a) {
  const bool plain =
      a.form == ScoreForm::dot && !a.bias.data && !a.place && !a.weights.data && a.scale > 0;
  const bool sizes = (a.size == 32 || a.size == 64 || a.size == 128) && a.value_size == a.size &&
                     a.keys > 0 && a.batch > 0 && a.heads / a.key_heads * a.queries >= 8;
  return plain && sizes && by_pieces(a.q) && by_pieces(a.k) && by_pieces(a.value) &&
         by_pieces(a.context);
}

void mma_attention(Cuda device, const Attention<bf16>& a) {
  const bool many = a.queries > 64 && a.keys > 64;
  const bool tma = tma_takes(a.q) && tma_takes(a.k) && tma_takes(a.value);
  if (capabilities().wgmma && many && tma && a.size >= 64 && !(a.dropout > 0))
    return wgmma_attention(device, a);
  // What is left where there is wgmma: 32 columns; few keys; few queries, or those of a group of
  // heads together; dropout; rows that all are one, or go backwards.
  const auto group = static_cast<int>(a.heads / a.key_heads);
  const int heads = a.queries >= 64 ? 1 : group;  // of a unit
  if (a.size == 32) return launch<32>(device, a, heads);
  if (a.size == 64) return launch<64>(device, a, heads);
  return launch<128>(device, a, heads);
}

}  // namespace heed::kernels
