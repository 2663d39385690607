// Additive attention (Bahdanau et al., 2015) on the GPU, forward: an online softmax over tiles of
// keys (Milakov and Gimelshein, 2018; additive_tile.cuh).
#include "heed/kernels/cuda/additive.h"
#include "heed/kernels/cuda/additive_tile.cuh"

namespace heed::kernels {
namespace {

// A block has 32 queries, and of the values' columns p.parts times 256.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) attend(const __grid_constant__ Given<T> p) {
  extern __shared__ __align__(16) float memory[];
  const int columns = kColumns * p.parts;
  float *stages = memory, *tile = stages + 2 * kStage, *sums = tile + kOwn * kTileRow,
        *scale = sums + kOwn * columns, *v = scale + kOwn;
  const Attention<T>& a = p.a;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t tiles = (a.queries + kOwn - 1) / kOwn, head = blockIdx.x / tiles;
  const int64_t b = head / a.heads, h = head % a.heads, g = h / (a.heads / a.key_heads);
  const int q0 = static_cast<int>(blockIdx.x % tiles) * kOwn;
  const int rows = static_cast<int>(min(int64_t{kOwn}, a.queries - q0));
  const int keys = static_cast<int>(a.keys), n = static_cast<int>(a.size);
  const int64_t number0 = head * a.queries + q0, key_row0 = (b * a.key_heads + g) * a.keys;

  // Lane r has what row r sees, in every warp.
  const Seen seen = lane < rows ? seen_by(a, b, h, q0 + lane) : Seen{0, 0};
  const int low = __reduce_min_sync(~0u, seen.none() ? keys : seen.begin);
  const int high = __reduce_max_sync(~0u, seen.end);
  const auto seen_of = [&](int r) {
    return Seen{__shfl_sync(~0u, seen.begin, r), __shfl_sync(~0u, seen.end, r)};
  };
  __shared__ Seen ranges[kOwn];
  if (warp == 0) ranges[lane] = seen;
  take_v(a.v + h * a.size, n, p.width, v);
  const Side own{p.e + number0 * p.width, p.e_most + number0, rows};
  const float own_top = warp_max(seen.none() ? 0.0f : own.most[lane]);
  const RowDrop drop = drop_of(a);

  // For the softmax 16 lanes have a row, and of it the keys of one call of Philox.
  const int call = lane % 16;
  float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, lse[2];
  const int column0 = blockIdx.y * columns, width = min(columns, p.value_width - column0);
  clear_sums(sums, columns);

  const int passes = a.weights.data && blockIdx.y == 0 ? 2 : 1;
  for (int pass = 0; pass < passes; ++pass) {
    const int first = pass == 0 ? low / kPass * kPass : 0, last = pass == 0 ? high : keys;
    for (int key = first; key < last; key += kPass) {
      const bool some = key < high && key + kPass > low;
      if (some) {
        float sum[4][4];
        const int from = key + warp * kWarpPass;
        const bool busy = from < high && from + kWarpPass > low;
        const Side others{p.f + (key_row0 + key) * p.width, p.f_most + key_row0 + key,
                          min(kPass, keys - key)};
        const bool fit = tile_scores(own, own_top, others, p.width, v, busy, stages, sum);
        if (busy) {
          put_scores(sum, tile);
          if (!fit)
            score_again(
                tile,
                [&](int r, int j) {
                  return ranges[r].has(key + j) && own.most[r] + others.most[j] > kFit;
                },
                [&](int r, int j) {
                  return far_score(row_at(a.q, b, h, q0 + r), row_at(a.k, b, g, key + j), v, n);
                });
        }
        __syncthreads();
      }
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const int r = 4 * warp + 2 * u + lane / 16;
        const Seen row = seen_of(r);
        const Extra extra = r < rows ? extra_of(a, b, h, q0 + r) : Extra{nullptr, false, 0, 0};
        float s[8];
#pragma unroll
        for (int x = 0; x < 8; ++x) {
          const int j = call + 16 * x;
          s[x] = row.has(key + j) ? extra(tile[r * kTileRow + j], key + j) : -INFINITY;
        }
        if (pass == 1) {
          if (r < rows) {
            float* to = row_at(a.weights, b, h, q0 + r) + key;
#pragma unroll
            for (int x = 0; x < 8; ++x) {
              const int j = call + 16 * x;
              if (key + j < keys) to[j] = row.has(key + j) ? exp2f(s[x] - lse[u]) : 0.0f;
            }
          }
          continue;
        }
        float top = most[u];
#pragma unroll
        for (int x = 0; x < 8; ++x) top = fmaxf(top, s[x]);
#pragma unroll
        for (int x = 8; x > 0; x /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, x));
        const float base = top == -INFINITY ? 0.0f : top;
        const float factor = most[u] == -INFINITY ? 1.0f : exp2f(most[u] - top);
        float sum = 0;
#pragma unroll
        for (int x = 0; x < 8; ++x) s[x] = exp2f(s[x] - base), sum += s[x];
#pragma unroll
        for (int x = 8; x > 0; x /= 2) sum += __shfl_xor_sync(~0u, sum, x);
        most[u] = top, total[u] = total[u] * factor + sum;
        if (drop.on) {
          const uint4 words = drop.words(number0 + r, key + call);
#pragma unroll
          for (int x = 0; x < 8; ++x) s[x] *= drop.factor(words, call + 16 * x);
        }
#pragma unroll
        for (int x = 0; x < 8; ++x) tile[r * kTileRow + call + 16 * x] = s[x];
        if (call == 0) scale[r] = factor;
      }
      __syncthreads();
      if (pass == 1) continue;
      const int count = min(kPass, keys - key);
      bool careful = false;
      if (p.non_finite && !__all_sync(~0u, seen.begin <= key && seen.end >= key + count)) {
        bool non_finite = false;
        for (int j = lane; j < count; j += kWarp)
          non_finite |= p.non_finite[key_row0 + key + j] != 0;
        careful = __any_sync(~0u, non_finite);
      }
      add_products(
          tile, max(0, low - key), min(count, high - key), row_at(p.value, b, g, key) + column0,
          p.value.row, width, [&](int r) { return scale[r]; }, [](int) { return true; }, careful,
          [&](int r, int j) { return ranges[r].has(key + j); }, stages, sums, columns);
      __syncthreads();  // scale is written again
    }
    if (pass == 1) break;
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const int r = 4 * warp + 2 * u + lane / 16;
      const bool none = most[u] == -INFINITY;
      lse[u] = none ? -INFINITY : most[u] + log2f(total[u]);
      if (call == 0) {
        scale[r] = none ? 0.0f : 1.0f / total[u];
        if (r < rows && blockIdx.y == 0) a.lse[number0 + r] = lse[u];
      }
    }
    __syncthreads();
    for (int x = 0; x < 8; ++x) {
      const int r = threadIdx.x / 64 * 8 + x;
      if (r >= rows) break;
      const float share = scale[r];
      for (int c = threadIdx.x % 64 * 4; c < width; c += kColumns) {
        const float4 sum = *reinterpret_cast<const float4*>(sums + r * columns + c);
        store4(row_at(a.context, b, h, q0 + r) + column0 + c,
               make_float4(sum.x * share, sum.y * share, sum.z * share, sum.w * share),
               static_cast<int>(a.value_size) - column0 - c);
      }
    }
  }
}

}  // namespace

template <class T>
bool additive_fits(const Attention<T>& a) {
  const bool one = step_fits(a) && step_fits(AttentionGrad<T>{.forward = a});
  return one || tile_fits(plan(a, Heads<const T>{}).width, 1);
}

template <class T>
void additive_attention(Cuda device, const Attention<T>& a) {
  if (a.batch * a.heads * a.queries == 0) return;
  if (step_fits(a)) return additive_step(device, a);
  Prepare<T> p = plan(a, Heads<const T>{});
  Workspace workspace;
  count(workspace, p, a.range != nullptr);
  workspace.take(device);
  count(workspace, p, a.range != nullptr);
  const Given<T> given = launch(stream_of(device), p);
  const size_t shared = tile_shared(given.width, given.parts);
  allow_shared(attend<T>, shared);
  const dim3 grid(static_cast<unsigned>(a.batch * a.heads * ceil_div(a.queries, kOwn)),
                  column_blocks(given));
  attend<T><<<grid, kThreads, shared, stream_of(device)>>>(given);
  launched("additive attention");
}

template bool additive_fits(const Attention<float>&);
template bool additive_fits(const Attention<bf16>&);
template void additive_attention(Cuda, const Attention<float>&);
template void additive_attention(Cuda, const Attention<bf16>&);

}  // namespace heed::kernels
