// Additive attention for few queries, as a decoder that goes word by word has them: a cluster of
// four blocks for each query. Every key element meets one query element, so tanh is computed where
// it is needed, and nothing is prepared: one launch. Each block has a quarter of the features and a
// quarter of the values' columns; what they find of a key's score (and of g . value) the blocks
// read from each other's shared memory and add in the order of their ranks.
//
// The way back comes in two parts. `slopes` computes d score and dq; `to_keys` what flows to keys,
// values and v, for any number of steps at once.
#include <algorithm>

#include "heed/kernels/cuda/additive.cuh"
#include "heed/kernels/cuda/additive.h"

namespace heed::kernels {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kCluster = 4;
constexpr int kStepKeys = 512;  // keys at a time
constexpr int64_t kFewQueries = 4;

// ---- a cluster

__device__ inline int rank() {
  int r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
// All threads of all blocks of the cluster: what was written before arrive() is seen behind wait().
__device__ inline void arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// The sum over the cluster of the number that each block has at this place of its shared memory.
__device__ inline float cluster_sum(const float* own) {
  const auto here = static_cast<uint32_t>(__cvta_generic_to_shared(own));
  float part[kCluster];
#pragma unroll
  for (int r = 0; r < kCluster; ++r) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(r));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(part[r]) : "r"(there) : "memory");
  }
  return (part[0] + part[1]) + (part[2] + part[3]);
}

// A block's share [begin, begin + width) of n numbers; begins are multiples of 4.
__host__ __device__ inline int share_of(int64_t n) {
  return static_cast<int>((n + 4 * kCluster - 1) / (4 * kCluster) * 4);
}
struct Share {
  int begin, width;
  __device__ Share(int64_t n, int r) {
    begin = min(static_cast<int>(n), r * share_of(n));
    width = min(static_cast<int>(n) - begin, share_of(n));
  }
};

// Sums over keys, by column: a warp has 32 V columns and every `groups`-th key.
struct Units {
  int tiles, groups;
  __host__ __device__ Units(int width, int V)
      : tiles((width + kWarp * V - 1) / (kWarp * V)),
        groups(tiles > 0 && tiles < kWarps ? kWarps / tiles : 1) {}
};
// Numbers of shared memory that they take, for at most `width` columns: 32 V a warp or, where all
// warps are needed for one group, one a column.
int64_t room_of(int64_t width) { return std::max<int64_t>(width, kWarps * kWarp * 4); }
// sums[group, x] = factor * sums[group, x] + sum_j term(j, x, ..)
template <int V, class Term>
__device__ void add_keys(int low, int high, int width, float factor, float* sums, Term term) {
  const Units units(width, V);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int unit = warp; unit < units.tiles * units.groups; unit += kWarps) {
    const int x = (unit % units.tiles * kWarp + lane) * V, group = unit / units.tiles;
    if (x >= width) continue;
    float sum[V] = {};
#pragma unroll 4
    for (int j = low + group; j < high; j += units.groups) term(j, x, sum);
    float* to = sums + group * width + x;
#pragma unroll
    for (int i = 0; i < V; ++i) to[i] = fmaf(to[i], factor, sum[i]);
  }
}
template <int V>
__device__ float sum_of_groups(const float* sums, int width, int x) {
  const Units units(width, V);
  float sum = 0;
  for (int group = 0; group < units.groups; ++group) sum += sums[group * width + x];
  return sum;
}

// put(j, sum_x f(x, row j of `at`)) for each key; four rows of a warp are on their way at once.
template <int V, class T, class F, class Put>
__device__ void dot_keys(int low, int high, int width, const T* at, int64_t row, F f, Put put) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  for (int first = low + warp; first < high; first += 4 * kWarps) {
    float sum[4] = {};
#pragma unroll 2
    for (int x = lane * V; x < width; x += kWarp * V) {
      float numbers[4][V];
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        const int j = first + u * kWarps;
        load<V>(at + (j < high ? j : first) * row + x, numbers[u]);
      }
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const auto g = f(x + i);
#pragma unroll
        for (int u = 0; u < 4; ++u) sum[u] = g(numbers[u][i], sum[u]);
      }
    }
#pragma unroll
    for (int i = kWarp / 2; i > 0; i /= 2)
#pragma unroll
      for (int u = 0; u < 4; ++u) sum[u] += __shfl_xor_sync(~0u, sum[u], i);
#pragma unroll
    for (int u = 0; u < 4; ++u)
      if (lane == 0 && first + u * kWarps < high) put(first + u * kWarps, sum[u]);
  }
}

// sum_x f(x) over [0, n), each lane its own x; every lane gets it.
template <class F>
__device__ float lanes_sum(int n, F f) {
  float sum = 0;
#pragma unroll 4
  for (int x = threadIdx.x % kWarp; x < n; x += kWarp) sum += f(x);
  return warp_sum(sum);
}

// v . tanh(q + k) of the block's features.
template <int V, class T, class Put>
__device__ void score_keys(int low, int high, int width, const T* at, int64_t row, const float* q,
                           const float* v, Put put) {
  dot_keys<V>(
      low, high, width, at, row,
      [&](int x) {
        return [a = q[x], w = v[x]](float k, float sum) { return fmaf(w, tanh_of(a + k), sum); };
      },
      put);
}

// ---- forward

template <int V, class T>
__global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 4)
    step(const __grid_constant__ Attention<T> a) {
  extern __shared__ __align__(16) float memory[];
  const int mine = rank();
  const Share features(a.size, mine), columns(a.value_size, mine);
  float *q = memory, *v = q + share_of(a.size), *part = v + share_of(a.size),
        *score = part + kStepKeys, *weight = score + kStepKeys, *sums = weight + kStepKeys;
  const int lane = threadIdx.x % kWarp;
  const int64_t number = blockIdx.x / kCluster, i = number % a.queries,
                h = number / a.queries % a.heads, b = number / a.queries / a.heads,
                g = h / (a.heads / a.key_heads);
  const Seen seen = seen_by(a, b, h, i);
  const Extra extra = extra_of(a, b, h, i);
  const Drop drop = drop_of(a);
  float* weights = a.weights.data && mine == 0 ? row_at(a.weights, b, h, i) : nullptr;
  const T* given = row_at(a.q, b, h, i) + features.begin;
  const T* keys_at = row_at(a.k, b, g, 0) + features.begin;
  const T* values_at = row_at(a.value, b, g, 0) + columns.begin;
  for (int x = threadIdx.x; x < features.width; x += kThreads)
    q[x] = wide(given[x]), v[x] = a.v[h * a.size + features.begin + x];
  for (int x = threadIdx.x; x < columns.width * Units(columns.width, V).groups; x += kThreads)
    sums[x] = 0;
  __syncthreads();

  float most = -INFINITY, sum = 0;  // the same in every thread
  for (int key = seen.begin; key < seen.end; key += kStepKeys) {
    const int end = min(seen.end, key + kStepKeys);
    if (key > seen.begin) wait();  // the others have read `part`
    score_keys<V>(key, end, features.width, keys_at, a.k.row, q, v,
                  [&](int j, float s) { part[j - key] = s; });
    arrive(), wait();
    for (int j = key + threadIdx.x; j < end; j += kThreads) {
      score[j - key] = extra(cluster_sum(part + j - key) * kLog2E, j);
      if (weights) weights[j] = score[j - key];  // made a weight by this thread, at the end
    }
    arrive();  // `part` may be written again
    __syncthreads();
    float top = -INFINITY;
    for (int j = key + lane; j < end; j += kWarp) top = fmaxf(top, score[j - key]);
    const float now = fmaxf(most, warp_max(top)), from = now == -INFINITY ? 0.0f : now;
    const float factor = most == -INFINITY ? 1.0f : exp2f(most - now);
    sum = sum * factor + lanes_sum(end - key, [&](int x) { return exp2f(score[x] - from); });
    most = now;
    for (int j = key + threadIdx.x; j < end; j += kThreads) {
      const float z = drop.on ? drop.factor(drop.words(number, j), j) : 1.0f;
      weight[j - key] = exp2f(score[j - key] - from) * z;
    }
    __syncthreads();
    add_keys<V>(key, end, columns.width, factor, sums, [&](int j, int x, float(&to)[V]) {
      float value[V];
      load<V>(values_at + j * a.value.row + x, value);
#pragma unroll
      for (int u = 0; u < V; ++u) to[u] = fmaf(weight[j - key], value[u], to[u]);
    });
  }
  __syncthreads();
  const bool none = most == -INFINITY;
  const float log_sum = none ? -INFINITY : most + log2f(sum), share = none ? 0.0f : 1.0f / sum;
  if (mine == 0 && threadIdx.x == 0) a.log_sum[number] = log_sum;
  T* context = row_at(a.context, b, h, i) + columns.begin;
  for (int c = threadIdx.x; c < columns.width; c += kThreads)
    context[c] = narrow<T>(sum_of_groups<V>(sums, columns.width, c) * share);
  if (weights) {
    for (int key = seen.begin; key < seen.end; key += kStepKeys)
      for (int j = key + threadIdx.x; j < min(seen.end, key + kStepKeys); j += kThreads)
        weights[j] = exp2f(weights[j] - (none ? 0.0f : log_sum));
    for (int j = threadIdx.x; j < a.keys; j += kThreads)
      if (!seen.has(j)) weights[j] = 0;
  }
  if (!seen.none()) wait();  // no block ends before the others have read its memory
}

// ---- back: d score and dq

template <class T>
struct Slopes {
  Attention<T> a;
  Heads<const T> dcontext;
  Heads<T> dq;
  float* left;         // [2, B, H, Tk]: d score, and the weight after dropout
  Heads<float> dbias;  // one for each batch item, or null
  float* dplace;       // or null
};

// One query a head, and a key head for each. With D = g . context:
//   d score_j = w_j (z_j g . value_j - D),   dq = v sum_j d score_j (1 - tanh^2).
template <int V, class T>
__global__ void __cluster_dims__(kCluster) __launch_bounds__(kThreads, 4)
    slopes(const __grid_constant__ Slopes<T> p) {
  extern __shared__ __align__(16) float memory[];
  const Attention<T>& a = p.a;
  const int mine = rank();
  const Share features(a.size, mine), columns(a.value_size, mine);
  float *q = memory, *v = q + share_of(a.size), *g = v + share_of(a.size),
        *part = g + share_of(a.value_size), *part_dot = part + kStepKeys,
        *slope = part_dot + kStepKeys, *sums = slope + kStepKeys;
  __shared__ float part_mean;
  const int warp = threadIdx.x / kWarp;
  const int64_t number = blockIdx.x / kCluster, h = number % a.heads, b = number / a.heads;
  const Seen seen = seen_by(a, b, h, 0);
  const Extra extra = extra_of(a, b, h, 0);
  const Drop drop = drop_of(a);
  const int keys = static_cast<int>(a.keys);
  float *left = p.left + number * keys, *left_weight = left + a.batch * a.heads * keys;
  const T* keys_at = row_at(a.k, b, h, 0) + features.begin;
  const T* values_at = row_at(a.value, b, h, 0) + columns.begin;
  {
    const T *from = row_at(a.q, b, h, 0) + features.begin,
            *back = row_at(p.dcontext, b, h, 0) + columns.begin;
    for (int x = threadIdx.x; x < features.width; x += kThreads)
      q[x] = wide(from[x]), v[x] = a.v[h * a.size + features.begin + x];
    for (int c = threadIdx.x; c < columns.width; c += kThreads) g[c] = wide(back[c]);
    for (int x = threadIdx.x; x < features.width * Units(features.width, V).groups; x += kThreads)
      sums[x] = 0;
  }
  __syncthreads();
  if (warp == kWarps - 1) {
    const T* context = row_at(a.context, b, h, 0) + columns.begin;
    const float s = lanes_sum(columns.width, [&](int c) { return g[c] * wide(context[c]); });
    if (threadIdx.x % kWarp == 0) part_mean = s;
  }
  const float log_sum = a.log_sum[number], from = log_sum == -INFINITY ? 0.0f : log_sum;

  for (int key = seen.begin; key < seen.end; key += kStepKeys) {
    const int end = min(seen.end, key + kStepKeys);
    if (key > seen.begin) wait();  // the others have read the parts
    score_keys<V>(key, end, features.width, keys_at, a.k.row, q, v,
                  [&](int j, float s) { part[j - key] = s; });
    dot_keys<V>(
        key, end, columns.width, values_at, a.value.row,
        [&](int c) { return [d = g[c]](float x, float sum) { return fmaf(d, x, sum); }; },
        [&](int j, float s) { part_dot[j - key] = s; });
    arrive(), wait();
    const float mean = cluster_sum(&part_mean);
    for (int j = key + threadIdx.x; j < end; j += kThreads) {
      const float w = exp2f(extra(cluster_sum(part + j - key) * kLog2E, j) - from);
      const float z = drop.on ? drop.factor(drop.words(number, j), j) : 1.0f;
      const float ds = w != 0 ? w * (cluster_sum(part_dot + j - key) * z - mean) : 0.0f;
      slope[j - key] = ds;
      if (mine == 0) left[j] = ds, left_weight[j] = w * z;
    }
    arrive();  // the parts may be written again
    __syncthreads();
    add_keys<V>(key, end, features.width, 1.0f, sums, [&](int j, int x, float(&to)[V]) {
      float k[V];
      load<V>(keys_at + j * a.k.row + x, k);
      const float ds = slope[j - key];
#pragma unroll
      for (int u = 0; u < V; ++u) to[u] = fmaf(ds, Tanh(q[x + u] + k[u]).slope(), to[u]);
    });
    __syncthreads();  // slopes are written again, sums are read
  }
  T* to = row_at(p.dq, b, h, 0) + features.begin;
  for (int x = threadIdx.x; x < features.width; x += kThreads)
    to[x] = narrow<T>(v[x] * sum_of_groups<V>(sums, features.width, x));
  if (mine == 0) {
    for (int j = threadIdx.x; j < keys; j += kThreads)
      if (!seen.has(j)) left[j] = left_weight[j] = 0;
    if (p.dbias.data) {
      float* dbias = row_at(p.dbias, b, h, 0);
      for (int key = seen.begin; key < seen.end; key += kStepKeys)  // each thread what it has left
        for (int j = key + threadIdx.x; j < min(seen.end, key + kStepKeys); j += kThreads)
          dbias[j] += left[j];
    }
    if (p.dplace && warp == 0) {
      __syncwarp();
      const float sum = lanes_sum(seen.none() ? 0 : seen.end - seen.begin, [&](int x) {
        const int j = seen.begin + x;
        return left[j] * 2 * a.falloff * (static_cast<float>(j) - a.place[number]);
      });
      if (threadIdx.x == 0) p.dplace[number] = sum;
    }
  }
  if (!seen.none()) wait();  // no block ends before the others have read its memory
}

// ---- back: what flows to keys, values and v from all steps

constexpr int kKeyThreads = 128;  // features or columns of a block
constexpr int kTileKeys = 32, kTileSteps = 32;

template <class T>
struct ToKeys {
  StepsGrad<T> k;
  int feature_blocks;  // the first ones, of gridDim.y; the others have columns of the values
  float* v_parts;      // [H, B, n]
};

// With s the number that a step left for a key, add(u, s, x) for x at step t, for each key u of the
// tile: the steps go by in order.
template <class T, class Add>
__device__ void over_steps(const float* left, int64_t keys, int key, int64_t steps, const T* at,
                           int64_t row, bool real, float (&tile)[kTileSteps][kTileKeys], Add add) {
  const int count = static_cast<int>(min(int64_t{kTileKeys}, keys - key));
  for (int64_t t0 = 0; t0 < steps; t0 += kTileSteps) {
    const int some = static_cast<int>(min(int64_t{kTileSteps}, steps - t0));
    __syncthreads();  // the tile is read from the turn before
    for (int x = threadIdx.x; x < some * kTileKeys; x += kKeyThreads) {
      const int t = x / kTileKeys, u = x % kTileKeys;
      tile[t][u] = u < count ? left[(t0 + t) * keys + key + u] : 0.0f;
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

// A key that a step does not see has a slope and a weight of 0 there, whatever stands in it.
template <class T>
__global__ void __launch_bounds__(kKeyThreads) to_keys(const __grid_constant__ ToKeys<T> p) {
  __shared__ __align__(16) float tile[kTileSteps][kTileKeys];
  const StepsGrad<T>& k = p.k;
  const int64_t head = blockIdx.x, b = head / k.heads, h = head % k.heads;
  const float* left = k.left + head * k.steps * k.keys;
  const bool for_keys = static_cast<int>(blockIdx.y) < p.feature_blocks;
  const int part = for_keys ? blockIdx.y : blockIdx.y - p.feature_blocks;
  const int64_t x = static_cast<int64_t>(part) * kKeyThreads + threadIdx.x;
  const bool real = x < (for_keys ? k.size : k.value_size);
  const Heads<T>& out = for_keys ? k.dk : k.dvalue;
  const float v = for_keys && real ? k.v[h * k.size + x] : 1.0f;
  float dv = 0;
  for (int key = 0; key < k.keys; key += kTileKeys) {
    const int count = static_cast<int>(min(int64_t{kTileKeys}, k.keys - key));
    float sum[kTileKeys] = {};
    if (for_keys) {
      float own[kTileKeys];
#pragma unroll
      for (int u = 0; u < kTileKeys; ++u)
        own[u] = real && u < count ? wide(row_at(k.k, b, h, key + u)[x]) : 0.0f;
      over_steps(left, k.keys, key, k.steps, row_at(k.q, b, h, 0) + x, k.q.row, real, tile,
                 [&](int u, float ds, float q) {
                   const Tanh t(q + own[u]);
                   sum[u] += ds != 0 ? ds * t.slope() : 0.0f;
                   dv += ds != 0 ? ds * t.value() : 0.0f;
                 });
    } else {
      over_steps(left + k.batch * k.heads * k.steps * k.keys, k.keys, key, k.steps,
                 row_at(k.dcontext, b, h, 0) + x, k.dcontext.row, real, tile,
                 [&](int u, float w, float g) { sum[u] += w != 0 ? w * g : 0.0f; });
    }
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

// to[h, x] = (or, with `add`, +=) the sum over the batch of parts[h, b, x]: a warp every eighth b.
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

template <class T>
size_t shared_of(const Attention<T>& a, bool back) {
  const int64_t features = share_of(a.size), columns = share_of(a.value_size);
  return static_cast<size_t>(2 * features + 3 * kStepKeys +
                             (back ? columns + room_of(features) : room_of(columns))) *
         sizeof(float);
}

// Whether rows can be read four numbers at a time.
template <class T>
bool by_fours(const Heads<const T>& x, int64_t n) {
  return n % 4 == 0 && x.batch % 4 == 0 && x.head % 4 == 0 && x.row % 4 == 0 &&
         aligned(x.data, 4 * sizeof(T));
}
template <class T>
bool by_fours(const Attention<T>& a) {
  return by_fours(a.k, a.size) && by_fours(a.value, a.value_size);
}

template <class T>
void launch(cudaStream_t stream, const Slopes<T>& p) {
  const Attention<T>& a = p.a;
  const auto kernel = by_fours(a) ? slopes<4, T> : slopes<1, T>;
  const size_t shared = shared_of(a, true);
  allow_shared(kernel, shared);
  kernel<<<static_cast<unsigned>(a.batch * a.heads * kCluster), kThreads, shared, stream>>>(p);
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
  return a.queries <= kFewQueries && shared_of(a, false) <= kMostShared;
}
template <class T>
bool step_fits(const AttentionGrad<T>& k) {
  const Attention<T>& a = k.forward;
  return a.queries == 1 && a.heads == a.key_heads && shared_of(a, true) <= kMostShared;
}

template <class T>
void additive_step(Cuda device, const Attention<T>& a) {
  const auto kernel = by_fours(a) ? step<4, T> : step<1, T>;
  const size_t shared = shared_of(a, false);
  allow_shared(kernel, shared);
  kernel<<<static_cast<unsigned>(a.batch * a.heads * a.queries * kCluster), kThreads, shared,
           stream_of(device)>>>(a);
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
                   .left = nullptr,
                   .dk = k.dk,
                   .dvalue = k.dvalue,
                   .add = k.add,
                   .dv = k.dv};
  const int64_t rows = a.batch * a.heads;
  auto* left = static_cast<float*>(
      cuda_scratch(static_cast<size_t>(2 * rows * a.keys + v_parts_of(all)) * sizeof(float)));
  const bool one_bias = k.dbias.data && k.dbias.batch == 0;
  launch(stream,
         Slopes<T>{a, k.dcontext, k.dq, left, one_bias ? Heads<float>{} : k.dbias, k.dplace});
  if (one_bias) {
    over_batch<<<dim3(static_cast<unsigned>(ceil_div(a.keys, kWarp)),
                      static_cast<unsigned>(a.heads)),
                 kThreads, 0, stream>>>(a.batch, a.keys, a.heads * a.keys, a.keys, left,
                                        k.dbias.head, true, k.dbias.data);
    launched("gradient of additive attention, bias");
  }
  all.left = left;
  launch(stream, all, left + 2 * rows * a.keys);
}

namespace {

template <class T>
void start(Cuda device, const StepGrad<T>& k) {
  if (k.forward.batch * k.forward.heads == 0) return;
  launch(stream_of(device), Slopes<T>{k.forward, k.dcontext, k.dq, k.left, {}, nullptr});
}
template <class T>
void start(Cuda device, const StepsGrad<T>& k) {
  if (k.batch * k.heads == 0) return;
  auto* v_parts =
      static_cast<float*>(cuda_scratch(static_cast<size_t>(v_parts_of(k)) * sizeof(float)));
  launch(stream_of(device), k, v_parts);
}

}  // namespace

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
