// Additive attention for few queries, as a decoder that goes token by token has them: a block for
// each query, and one launch. Every key element meets one query element, so tanh is computed where
// it is needed, and nothing is prepared. A step is bound by memory (its arithmetic intensity is
// low): a block asks for all keys and values at once, by asynchronous copies into shared memory,
// and computes scores while the values are still on their way. Where shared memory cannot hold all
// keys, they come in tiles, with an online softmax.
//
// The backward pass comes in two parts. `dscores` computes d score and dq, and saves what the other
// needs; `to_keys` what flows to keys, values and v, for any number of steps at once.
#include <algorithm>

#include "heed/kernels/cuda/additive.h"
#include "heed/kernels/cuda/additive_step.cuh"

namespace heed::kernels {
namespace {

constexpr int64_t kFewQueries = 4;

// ---- forward

template <class T>
struct Step {
  Attention<T> a;
  unsigned heads_a_key;  // query heads for each key head
  int tile_keys;         // keys at a time
  bool packed_keys, packed_values;
};

template <class T>
__global__ void __launch_bounds__(kThreads, 2) step(const __grid_constant__ Step<T> p) {
  extern __shared__ __align__(16) float memory[];
  const Attention<T>& a = p.a;
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size),
            tile_keys = p.tile_keys;
  const Units units(m);
  float *q = memory, *v = q + padded(n), *score = v + padded(n),
        *weight = score + padded(tile_keys), *sums = weight + padded(tile_keys);
  T *key_tile = reinterpret_cast<T*>(sums + units.scratch_size()),
    *value_tile = key_tile + tile_keys * padded(n);
  const int lane = threadIdx.x % kWarp;
  const int64_t b = blockIdx.x, h = blockIdx.y, i = blockIdx.z, g = blockIdx.y / p.heads_a_key,
                number = (b * a.heads + h) * a.queries + i;
  const Early<1, T> query(row_at(a.q, b, h, i), n);
  const Early<1, float> v_row(a.v + h * n, n);
  const Extra extra = extra_of(a, b, h, i);
  const RowDrop drop = drop_of(a);
  const Seen seen = seen_by(a, b, h, i);
  const Rows<T> keys{row_at(a.k, b, g, 0), a.k.row, n, p.packed_keys, key_tile};
  const Rows<T> values{row_at(a.value, b, g, 0), a.value.row, m, p.packed_values, value_tile};
  keys.copy(seen.begin, min(tile_keys, seen.end - seen.begin));
  values.copy(seen.begin, min(tile_keys, seen.end - seen.begin));
  query.put(q), v_row.put(v);
#pragma unroll 1
  for (int x = threadIdx.x; x < units.scratch_size(); x += kThreads) sums[x] = 0;
  float* weights = a.weights.data ? row_at(a.weights, b, h, i) : nullptr;
  __syncthreads();

  float most = -INFINITY, sum = 0;  // the same in every thread
#pragma unroll 1
  for (int key = seen.begin; key < seen.end; key += tile_keys) {
    const int count = min(tile_keys, seen.end - key), next = key + count;
    copies_wait<1>();  // keys; the values may still be on their way
    __syncwarp();
    const auto add = [&]<int N>(int, int x, const float(&k)[N][kVector], float(&s)[N]) {
      float a[kVector], w[kVector];
      load<kVector>(q + x, a), load<kVector>(v + x, w);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
#pragma unroll
        for (int r = 0; r < N; ++r) s[r] = fmaf(w[i], tanh_of(a[i] + k[r][i]), s[r]);
    };
    sum_all_rows(keys, count, score, add);
    each_row(count, [&](int u) {
      score[u] = extra(score[u] * kLog2E, key + u);
      if (weights) weights[key + u] = score[u];  // made a weight at the end
    });
    keys.copy(next, min(tile_keys, seen.end - next));
    __syncthreads();
    float top = -INFINITY;
#pragma unroll 1
    for (int u = lane; u < count; u += kWarp) top = fmaxf(top, score[u]);
    const float now = fmaxf(most, warp_max(top)), from = now == -INFINITY ? 0.0f : now;
    const float factor = most == -INFINITY ? 1.0f : exp2f(most - now);
    sum = sum * factor + lanes_sum(count, [&](int u) { return exp2f(score[u] - from); });
    most = now;
#pragma unroll 1
    for (int u = threadIdx.x; u < count; u += kThreads) {
      const float z = drop.on ? drop.factor(drop.words(number, key + u), key + u) : 1.0f;
      weight[u] = exp2f(score[u] - from) * z;
    }
    copies_wait<1>();  // values; the next keys may still be on their way
    __syncthreads();
    add_rows(units, values, count, weight, factor, sums);
    __syncthreads();  // values and weights are read, sums are written
    values.copy(next, min(tile_keys, seen.end - next));
  }
  const bool none = most == -INFINITY;
  const float lse = none ? -INFINITY : most + log2f(sum), share = none ? 0.0f : 1.0f / sum;
  if (threadIdx.x == 0) a.lse[number] = lse;
  T* context = row_at(a.context, b, h, i);
#pragma unroll 1
  for (int c = threadIdx.x; c < m; c += kThreads)
    context[c] = narrow<T>(sum_of_groups(units, sums, c) * share);
  if (weights)
#pragma unroll 1
    for (int j = threadIdx.x; j < a.keys; j += kThreads)
      weights[j] = seen.has(j) ? exp2f(weights[j] - (none ? 0.0f : lse)) : 0.0f;
}

// ---- backward: d score and dq

template <class T>
struct DScores {
  Attention<T> a;
  Heads<const T> dcontext;
  Heads<T> dq;
  float* saved;        // [2, B, H, Tk]: d score, and the weight after dropout
  Heads<float> dbias;  // one for each batch item, or null
  float* dplace;       // or null
  int tile_keys = 0;   // keys at a time
  bool packed_keys = false, packed_values = false;
};

// One query a head, and a key head for each. With D = g . context:
//   d score_j = w_j (z_j g . value_j - D),   dq = v sum_j d score_j (1 - tanh^2).
// Each 1 - tanh^2 is held from the score on; of f32, in place of the key.
template <class T>
__global__ void __launch_bounds__(kThreads, 2) dscores(const __grid_constant__ DScores<T> p) {
  extern __shared__ __align__(16) float memory[];
  __shared__ float means[kWarps];
  const Attention<T>& a = p.a;
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size),
            tile_keys = p.tile_keys;
  const Units units(n);
  float *q = memory, *v = q + padded(n), *g = v + padded(n), *dot = g + padded(m),
        *dscore = dot + padded(tile_keys), *sums = dscore + padded(tile_keys),
        *derivatives_at = sums + units.scratch_size();
  T* key_tile = reinterpret_cast<T*>(derivatives_at + (sizeof(T) == 4 ? 0 : tile_keys * padded(n)));
  T* value_tile = key_tile + tile_keys * padded(n);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t b = blockIdx.x, h = blockIdx.y, number = b * a.heads + h;
  float* saved = p.saved + number * a.keys;
  const Early<1, T> query(row_at(a.q, b, h, 0), n);
  const Early<1, float> v_row(a.v + h * n, n);
  const Early<2, T> back(row_at(p.dcontext, b, h, 0), m), context(row_at(a.context, b, h, 0), m);
  const float lse = a.lse[number], from = lse == -INFINITY ? 0.0f : lse;
  const Extra extra = extra_of(a, b, h, 0);
  const RowDrop drop = drop_of(a);
  const Seen seen = seen_by(a, b, h, 0);
  const Rows<T> keys{row_at(a.k, b, h, 0), a.k.row, n, p.packed_keys, key_tile};
  const Rows<T> values{row_at(a.value, b, h, 0), a.value.row, m, p.packed_values, value_tile};
  const Rows<float> derivatives{nullptr, 0, n, true, derivatives_at};
  keys.copy(seen.begin, min(tile_keys, seen.end - seen.begin));
  values.copy(seen.begin, min(tile_keys, seen.end - seen.begin));
  query.put(q), v_row.put(v);
  back.put(g);
  float part = 0;
  context.each([&](int c, float y) { part = fmaf(g[c], y, part); });
  part = warp_sum(part);
  if (lane == 0) means[warp] = part;
#pragma unroll 1
  for (int x = threadIdx.x; x < units.scratch_size(); x += kThreads) sums[x] = 0;
  __syncthreads();
  const float mean = warp_sum(lane < kWarps ? means[lane] : 0.0f);

#pragma unroll 1
  for (int key = seen.begin; key < seen.end; key += tile_keys) {
    const int count = min(tile_keys, seen.end - key), next = key + count;
    copies_wait<1>();  // keys; the values may still be on their way
    __syncwarp();
    const auto add = [&]<int N>(int u, int x, const float(&k)[N][kVector], float(&s)[N]) {
      float a[kVector], w[kVector], derivative[kVector];
      load<kVector>(q + x, a), load<kVector>(v + x, w);
#pragma unroll
      for (int r = 0; r < N; ++r) {
#pragma unroll
        for (int i = 0; i < kVector; ++i) {
          const Tanh t(a[i] + k[r][i]);
          s[r] = fmaf(w[i], t.value(), s[r]), derivative[i] = t.derivative();
        }
        store<kVector>(derivative, derivatives.at(u + r * kWarps) + x);
      }
    };
    sum_all_rows(keys, count, dscore, add);
    copies_wait<0>();
    __syncwarp();
    const auto add_dot = [&]<int N>(int, int c, const float(&x)[N][kVector], float(&s)[N]) {
      float d[kVector];
      load<kVector>(g + c, d);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
#pragma unroll
        for (int r = 0; r < N; ++r) s[r] = fmaf(d[i], x[r][i], s[r]);
    };
    sum_all_rows(values, count, dot, add_dot);
    each_row(count, [&](int u) {
      const int j = key + u;
      const float w = exp2f(extra(dscore[u] * kLog2E, j) - from);
      const float z = drop.on ? drop.factor(drop.words(number, j), j) : 1.0f;
      const float ds = w != 0 ? w * (dot[u] * z - mean) : 0.0f;
      dscore[u] = ds, saved[j] = ds, saved[a.batch * a.heads * a.keys + j] = w * z;
    });
    __syncthreads();
    add_rows(units, derivatives, count, dscore, 1.0f, sums);
    __syncthreads();  // dscores and derivatives are read, sums are written
    keys.copy(next, min(tile_keys, seen.end - next));
    values.copy(next, min(tile_keys, seen.end - next));
  }
  T* to = row_at(p.dq, b, h, 0);
#pragma unroll 1
  for (int x = threadIdx.x; x < n; x += kThreads)
    to[x] = narrow<T>(v[x] * sum_of_groups(units, sums, x));
#pragma unroll 1
  for (int j = threadIdx.x; j < a.keys; j += kThreads)
    if (!seen.has(j)) saved[j] = saved[a.batch * a.heads * a.keys + j] = 0;
  if (p.dbias.data) {
    float* dbias = row_at(p.dbias, b, h, 0);
#pragma unroll 1
    for (int j = seen.begin + threadIdx.x; j < seen.end; j += kThreads) dbias[j] += saved[j];
  }
  if (p.dplace && warp == 0) {
    const float sum = lanes_sum(seen.none() ? 0 : seen.end - seen.begin, [&](int x) {
      const int j = seen.begin + x;
      return saved[j] * 2 * a.falloff * (static_cast<float>(j) - a.place[number]);
    });
    if (lane == 0) p.dplace[number] = sum;
  }
}

// ---- backward: what flows to keys, values and v from all steps

constexpr int kKeyThreads = 128;  // features or columns of a block
constexpr int kTileKeys = 32, kTileSteps = 32;

template <class T>
struct ToKeys {
  StepsGrad<T> k;
  int feature_blocks;  // the first ones, of gridDim.y; the others have columns of the values
  float* v_parts;      // [H, B, n]
};

// With s what a step saved for a key, add(u, s, x) for x at step t, for each key u of the tile: the
// steps go by in order.
template <class T, class Add>
__device__ void over_steps(const float* saved, int64_t keys, int key, int64_t steps, const T* at,
                           int64_t row, bool real, float (&tile)[kTileSteps][kTileKeys], Add add) {
  const int count = static_cast<int>(min(int64_t{kTileKeys}, keys - key));
  for (int64_t t0 = 0; t0 < steps; t0 += kTileSteps) {
    const int some = static_cast<int>(min(int64_t{kTileSteps}, steps - t0));
    __syncthreads();  // the tile before has been read
    for (int x = threadIdx.x; x < some * kTileKeys; x += kKeyThreads) {
      const int t = x / kTileKeys, u = x % kTileKeys;
      tile[t][u] = u < count ? saved[(t0 + t) * keys + key + u] : 0.0f;
    }
    __syncthreads();
    if (!real) continue;
    float next = wide(at[t0 * row]);
#pragma unroll 1
    for (int t = 0; t < some; ++t) {
      const float x = next;
      if (t + 1 < some) next = wide(at[(t0 + t + 1) * row]);
#pragma unroll
      for (int u = 0; u < kTileKeys; u += 4) {
        if (u >= count) break;
        const float4 s = *reinterpret_cast<const float4*>(&tile[t][u]);
        add(u, s.x, x), add(u + 1, s.y, x), add(u + 2, s.z, x), add(u + 3, s.w, x);
      }
    }
  }
}

// A key that a step does not see has a dscore and a weight of 0 there, whatever stands in it.
template <class T>
__global__ void __launch_bounds__(kKeyThreads) to_keys(const __grid_constant__ ToKeys<T> p) {
  __shared__ __align__(16) float tile[kTileSteps][kTileKeys];
  const StepsGrad<T>& k = p.k;
  const int64_t head = blockIdx.x, b = head / k.heads, h = head % k.heads;
  const float* saved = k.saved + head * k.steps * k.keys;
  const bool for_keys = static_cast<int>(blockIdx.y) < p.feature_blocks;
  const int part = for_keys ? blockIdx.y : blockIdx.y - p.feature_blocks;
  const int64_t x = static_cast<int64_t>(part) * kKeyThreads + threadIdx.x;
  const bool real = x < (for_keys ? k.size : k.value_size);
  const Heads<T>& out = for_keys ? k.dk : k.dvalue;
  const float v = for_keys && real ? k.v[h * k.size + x] : 1.0f;
  float dv = 0;
  for (int key = 0; key < k.keys; key += kTileKeys) {
    const int count = static_cast<int>(min(int64_t{kTileKeys}, k.keys - key));
    float sum[kTileKeys] = {}, dv_here = 0;  // many short sums lose fewer digits than a long one
    if (for_keys) {
      float own[kTileKeys];
#pragma unroll
      for (int u = 0; u < kTileKeys; ++u)
        own[u] = real && u < count ? wide(row_at(k.k, b, h, key + u)[x]) : 0.0f;
      over_steps(saved, k.keys, key, k.steps, row_at(k.q, b, h, 0) + x, k.q.row, real, tile,
                 [&](int u, float ds, float q) {
                   const Tanh t(q + own[u]);
                   sum[u] += ds != 0 ? ds * t.derivative() : 0.0f;
                   dv_here += ds != 0 ? ds * t.value() : 0.0f;
                 });
    } else {
      over_steps(saved + k.batch * k.heads * k.steps * k.keys, k.keys, key, k.steps,
                 row_at(k.dcontext, b, h, 0) + x, k.dcontext.row, real, tile,
                 [&](int u, float w, float g) { sum[u] += w != 0 ? w * g : 0.0f; });
    }
    dv += dv_here;
    if (!real) continue;
#pragma unroll
    for (int u = 0; u < kTileKeys; ++u) {
      if (u >= count) break;
      T* to = row_at(out, b, h, key + u) + x;
      *to = narrow<T>(fmaf(v, sum[u], k.add ? wide(*to) : 0.0f));
    }
  }
  if (for_keys && real) p.v_parts[(h * k.batch + b) * k.size + x] = dv;
}

// to[h, x] = (or, with `add`, +=) the sum over the batch of parts[h, b, x]: a warp every 16th b.
__global__ void __launch_bounds__(kThreads)
    over_batch(int64_t batch, int64_t part_head, int64_t part_row, int64_t n, const float* parts,
               int64_t to_head, bool add, float* to) {
  __shared__ float sums[kWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t x = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  const float* from = parts + blockIdx.y * part_head + x;
  float sum = 0;
  if (x < n)
#pragma unroll 8
    for (int64_t b = warp; b < batch; b += kWarps) sum += from[b * part_row];
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || x >= n) return;
  sum = sums[0][lane];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += sums[w][lane];
  float* y = to + blockIdx.y * to_head + x;
  *y = add ? *y + sum : sum;
}

// ---- launches

// Shared memory of `step` or, backward, of `dscores`, for tiles of so many keys.
template <class T>
size_t shared_of(const Attention<T>& a, bool back, int64_t tile_keys) {
  const int64_t n = padded(a.size), m = padded(a.value_size);
  const int64_t derivatives = back && sizeof(T) < sizeof(float) ? n : 0;
  const int64_t floats =
      2 * n + (back ? m + Units(a.size).scratch_size() : Units(a.value_size).scratch_size()) +
      2 * padded(tile_keys);
  return static_cast<size_t>((floats + tile_keys * derivatives) * 4 +
                             tile_keys * (n + m) * static_cast<int64_t>(sizeof(T)));
}
// Keys at a time: as many as fit where an SM holds two blocks (one computes while the keys of the
// other arrive) or, if these are too few, one. Not by the number of sentences or the longest of
// them: the softmax of a row is summed tile by tile, and should not depend on others.
template <class T>
int tile_keys_of(const Attention<T>& a, bool back) {
  const size_t half = (most_shared() >> 1) - 1024;  // 1 KB a block is the driver's
  const auto fits = [&](int64_t tile_keys, size_t most) {
    return shared_of(a, back, tile_keys) <= most;
  };
  const size_t most = fits(kWarps, half) ? half : most_shared();
  int64_t tile_keys = 1, above = int64_t{1} << 16;  // the largest one that fits
  while (above - tile_keys > 1) {
    const int64_t middle = (tile_keys + above) / 2;
    (fits(middle, most) ? tile_keys : above) = middle;
  }
  if (tile_keys > kWarps) tile_keys = tile_keys / kWarps * kWarps;
  return static_cast<int>(std::min(tile_keys, std::max<int64_t>(1, a.keys)));
}

template <class T>
dim3 blocks_of(const Attention<T>& a) {
  return dim3(static_cast<unsigned>(a.batch), static_cast<unsigned>(a.heads),
              static_cast<unsigned>(a.queries));
}

template <class T>
void launch(cudaStream_t stream, DScores<T> p) {
  const Attention<T>& a = p.a;
  p.tile_keys = tile_keys_of(a, true);
  p.packed_keys = in_packs(a.k, a.size), p.packed_values = in_packs(a.value, a.value_size);
  const size_t shared = shared_of(a, true, p.tile_keys);
  allow_shared(dscores<T>, shared);
  dscores<T><<<blocks_of(a), kThreads, shared, stream>>>(p);
  launched("gradient of additive attention, one query");
}

template <class T>
int64_t v_parts_of(const StepsGrad<T>& k) {
  return k.heads * k.batch * k.size;
}
template <class T>
void launch(cudaStream_t stream, const StepsGrad<T>& k, float* v_parts) {
  const ToKeys<T> p{k, static_cast<int>(ceil_div(k.size, kKeyThreads)), v_parts};
  const auto parts = static_cast<unsigned>(p.feature_blocks + ceil_div(k.value_size, kKeyThreads));
  to_keys<T><<<dim3(static_cast<unsigned>(k.batch * k.heads), parts), kKeyThreads, 0, stream>>>(p);
  launched("gradient of additive attention, keys and values");
  if (k.size == 0) return;
  over_batch<<<dim3(static_cast<unsigned>(ceil_div(k.size, kWarp)), static_cast<unsigned>(k.heads)),
               kThreads, 0, stream>>>(k.batch, k.batch * k.size, k.size, k.size, v_parts, k.size,
                                      false, k.dv);
  launched("gradient of additive attention, v");
}

}  // namespace

template <class T>
bool step_fits(const Attention<T>& a) {
  return a.queries <= kFewQueries && shared_of(a, false, 1) <= most_shared();
}
template <class T>
bool step_fits(const AttentionGrad<T>& k) {
  const Attention<T>& a = k.forward;
  return a.queries == 1 && a.heads == a.key_heads && shared_of(a, true, 1) <= most_shared();
}

template <class T>
void additive_step(Cuda device, const Attention<T>& a) {
  const Step<T> p{a, static_cast<unsigned>(a.heads / a.key_heads), tile_keys_of(a, false),
                  in_packs(a.k, a.size), in_packs(a.value, a.value_size)};
  const size_t shared = shared_of(a, false, p.tile_keys);
  allow_shared(step<T>, shared);
  step<T><<<blocks_of(a), kThreads, shared, stream_of(device)>>>(p);
  launched("additive attention, few queries");
}

template <class T>
void additive_step_grad(Cuda device, const AttentionGrad<T>& k) {
  const Attention<T>& a = k.forward;
  const cudaStream_t stream = stream_of(device);
  StepsGrad<T> all{.batch = a.batch,
                   .heads = a.heads,
                   .steps = 1,
                   .keys = a.keys,
                   .size = a.size,
                   .value_size = a.value_size,
                   .q = a.q,
                   .k = a.k,
                   .dcontext = k.dcontext,
                   .v = a.v,
                   .saved = nullptr,
                   .dk = k.dk,
                   .dvalue = k.dvalue,
                   .add = k.add,
                   .dv = k.dv};
  const int64_t rows = a.batch * a.heads;
  auto* saved = static_cast<float*>(cuda_scratch(
      device, static_cast<size_t>(2 * rows * a.keys + v_parts_of(all)) * sizeof(float)));
  const bool one_bias = k.dbias.data && k.dbias.batch == 0;
  launch(stream,
         DScores<T>{a, k.dcontext, k.dq, saved, one_bias ? Heads<float>{} : k.dbias, k.dplace});
  if (one_bias) {
    over_batch<<<dim3(static_cast<unsigned>(ceil_div(a.keys, kWarp)),
                      static_cast<unsigned>(a.heads)),
                 kThreads, 0, stream>>>(a.batch, a.keys, a.heads * a.keys, a.keys, saved,
                                        k.dbias.head, true, k.dbias.data);
    launched("gradient of additive attention, bias");
  }
  all.saved = saved;
  launch(stream, all, saved + 2 * rows * a.keys);
}

namespace {

template <class T>
void start(Cuda device, const StepGrad<T>& k) {
  if (k.forward.batch * k.forward.heads == 0) return;
  launch(stream_of(device), DScores<T>{k.forward, k.dcontext, k.dq, k.saved, {}, nullptr});
}
template <class T>
void start(Cuda device, const StepsGrad<T>& k) {
  if (k.batch * k.heads == 0) return;
  auto* v_parts =
      static_cast<float*>(cuda_scratch(device, static_cast<size_t>(v_parts_of(k)) * sizeof(float)));
  launch(stream_of(device), k, v_parts);
}

}  // namespace

bool fits(Cuda, const StepGrad<float>& k) { return step_fits(AttentionGrad<float>{k.forward}); }
bool fits(Cuda, const StepGrad<bf16>& k) { return step_fits(AttentionGrad<bf16>{k.forward}); }
void run(Cuda device, const StepGrad<float>& k) { start(device, k); }
void run(Cuda device, const StepGrad<bf16>& k) { start(device, k); }
void run(Cuda device, const StepsGrad<float>& k) { start(device, k); }
void run(Cuda device, const StepsGrad<bf16>& k) { start(device, k); }

template bool step_fits(const Attention<float>&);
template bool step_fits(const Attention<bf16>&);
template bool step_fits(const AttentionGrad<float>&);
template bool step_fits(const AttentionGrad<bf16>&);
template void additive_step(Cuda, const Attention<float>&);
template void additive_step(Cuda, const Attention<bf16>&);
template void additive_step_grad(Cuda, const AttentionGrad<float>&);
template void additive_step_grad(Cuda, const AttentionGrad<bf16>&);

}  // namespace heed::kernels
