// Additive attention for few queries: a block for each query. Every key element meets one query
// element, so tanh is computed where it is needed, and nothing is prepared: one launch. Blocks are
// large, since there are few of them: warps take keys for the scores, threads take features (or
// columns of the values) for the rest.
#include "heed/kernels/cuda/additive.cuh"
#include "heed/kernels/cuda/additive.h"

namespace heed::kernels {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / kWarp;
constexpr int kStepKeys = 512;  // keys at a time; a multiple of what dropout counts in
constexpr int64_t kFewQueries = 4;

static_assert(kStepKeys == kThreads && kStepKeys % 128 == 0);

// sum_x f(x) over [0, n), each lane its own x; every lane gets it.
template <class F>
__device__ float lanes_sum(int n, F f) {
  float sum = 0;
#pragma unroll 4
  for (int x = threadIdx.x % kWarp; x < n; x += kWarp) sum += f(x);
  return warp_sum(sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1) step(const __grid_constant__ Attention<T> a) {
  extern __shared__ __align__(16) float memory[];
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size);
  float *q = memory, *v = q + n, *sums = v + n, *score = sums + m, *weight = score + kStepKeys;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t number = blockIdx.x, i = number % a.queries, h = number / a.queries % a.heads,
                b = number / a.queries / a.heads, g = h / (a.heads / a.key_heads);
  const Seen seen = seen_by(a, b, h, i);
  const Extra extra = extra_of(a, b, h, i);
  const Drop drop = drop_of(a);
  const T* given = row_at(a.q, b, h, i);
  for (int x = threadIdx.x; x < n; x += kThreads) q[x] = wide(given[x]), v[x] = a.v[h * a.size + x];
  for (int c = threadIdx.x; c < m; c += kThreads) sums[c] = 0;
  __syncthreads();

  const auto take_scores = [&](int key, int low, int high) {
    for (int j = low + warp; j < high; j += kWarps) {
      const T* k = row_at(a.k, b, g, j);
      const float s = lanes_sum(n, [&](int x) { return v[x] * tanh_of(q[x] + wide(k[x])); });
      if (lane == 0) score[j - key] = extra(s * kLog2E, j);
    }
  };
  float most = -INFINITY, sum = 0;  // the same in every thread
  const int first = seen.begin / kStepKeys * kStepKeys;
  for (int key = first; key < seen.end; key += kStepKeys) {
    const int low = max(seen.begin, key), high = min(seen.end, key + kStepKeys);
    take_scores(key, low, high);
    __syncthreads();
    float top = -INFINITY;
    for (int j = low + lane; j < high; j += kWarp) top = fmaxf(top, score[j - key]);
    const float now = fmaxf(most, warp_max(top)), from = now == -INFINITY ? 0.0f : now;
    const float factor = most == -INFINITY ? 1.0f : exp2f(most - now);
    sum = sum * factor +
          lanes_sum(high - low, [&](int x) { return exp2f(score[low - key + x] - from); });
    most = now;
    const int j = key + threadIdx.x;
    if (j >= low && j < high) {
      const float z = drop.on ? drop.factor(drop.words(number, j), j) : 1.0f;
      weight[threadIdx.x] = exp2f(score[threadIdx.x] - from) * z;
    }
    __syncthreads();
    for (int c = threadIdx.x; c < m; c += kThreads) {
      float x = sums[c] * factor;
      const T* value = row_at(a.value, b, g, low) + c;
#pragma unroll 8
      for (int u = low; u < high; ++u, value += a.value.row)
        x = fmaf(weight[u - key], wide(*value), x);
      sums[c] = x;
    }
    __syncthreads();  // weights and scores are written again
  }
  const bool none = most == -INFINITY;
  const float log_sum = none ? -INFINITY : most + log2f(sum), share = none ? 0.0f : 1.0f / sum;
  if (threadIdx.x == 0) a.log_sum[number] = log_sum;
  T* context = row_at(a.context, b, h, i);
  for (int c = threadIdx.x; c < m; c += kThreads) context[c] = narrow<T>(sums[c] * share);
  if (!a.weights.data) return;
  float* weights = row_at(a.weights, b, h, i);
  const int keys = static_cast<int>(a.keys);
  const bool again = seen.end - first > kStepKeys;  // score holds the last keys only
  for (int key = 0; key < keys; key += kStepKeys) {
    if (again) {
      __syncthreads();
      if (seen.meets(key, key + kStepKeys))
        take_scores(key, max(seen.begin, key), min(seen.end, key + kStepKeys));
      __syncthreads();
    }
    const int j = key + threadIdx.x;
    if (j < keys) weights[j] = seen.has(j) ? exp2f(score[threadIdx.x] - log_sum) : 0.0f;
  }
}

// dv is a sum over all blocks of a head, and so is dbias where the batch has one. The last block of
// each group adds up its group, the last group adds up the groups: always in the order of the
// blocks. The counts of those that are done begin at 0 and are left at 0.
constexpr int kMostGroups = 32, kMostHeads = 32;
__device__ unsigned done[kMostHeads][kMostGroups + 1];

template <class T>
struct StepGrad {
  AttentionGrad<T> k;
  int width;            // n and, where the batch has one bias, Tk behind it
  int group;            // batch items of a group
  float *parts, *sums;  // [H, B, width], [H, groups, width]
};

// Says to all threads whether this block is the last of `count` to come here.
__device__ bool last_of(unsigned* counter, unsigned count) {
  __shared__ bool last;
  __threadfence();  // what this thread has written is seen before the count
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(counter, count - 1) == count - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}
template <class Put>
__device__ void add_up(int n, int count, const float* from, Put put) {
  for (int x = threadIdx.x; x < n; x += kThreads) {
    float sum = 0;
#pragma unroll 8
    for (int u = 0; u < count; ++u) sum += __ldcg(from + static_cast<int64_t>(u) * n + x);
    put(x, sum);
  }
}

// One query a head, and a key head for each. With D = g . context:
//   d score_j = w_j (z_j g . value_j - D),   dq = v sum_j d score_j (1 - tanh^2).
template <class T>
__global__ void __launch_bounds__(kThreads, 1) step_grad(const __grid_constant__ StepGrad<T> p) {
  extern __shared__ __align__(16) float memory[];
  const AttentionGrad<T>& k = p.k;
  const Attention<T>& a = k.forward;
  const int n = static_cast<int>(a.size), m = static_cast<int>(a.value_size);
  float *q = memory, *v = q + n, *dq = v + n, *dv = dq + n, *g = dv + n, *slope = g + m,
        *weight = slope + kStepKeys;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t number = blockIdx.x, h = number % a.heads, b = number / a.heads;
  const Seen seen = seen_by(a, b, h, 0);
  const Extra extra = extra_of(a, b, h, 0);
  const Drop drop = drop_of(a);
  {
    const T *from = row_at(a.q, b, h, 0), *back = row_at(k.dcontext, b, h, 0);
    for (int x = threadIdx.x; x < n; x += kThreads)
      q[x] = wide(from[x]), v[x] = a.v[h * a.size + x], dq[x] = dv[x] = 0;
    for (int c = threadIdx.x; c < m; c += kThreads) g[c] = wide(back[c]);
  }
  __syncthreads();
  const T* context = row_at(a.context, b, h, 0);
  const float mean = lanes_sum(m, [&](int c) { return g[c] * wide(context[c]); });
  const float log_sum = a.log_sum[number], from = log_sum == -INFINITY ? 0.0f : log_sum;

  float* part = p.parts + (h * a.batch + b) * p.width;
  float dplace = 0;
  const int keys = static_cast<int>(a.keys);
  for (int key = 0; key < keys; key += kStepKeys) {
    const int end = min(keys, key + kStepKeys);
    const int low = min(max(seen.begin, key), end), high = max(min(seen.end, end), low);
    for (int j = low + warp; j < high; j += kWarps) {
      const T *at = row_at(a.k, b, h, j), *value = row_at(a.value, b, h, j);
      const float s = lanes_sum(n, [&](int x) { return v[x] * tanh_of(q[x] + wide(at[x])); });
      const float dot = lanes_sum(m, [&](int c) { return g[c] * wide(value[c]); });
      if (lane == 0) {
        const float w = exp2f(extra(s * kLog2E, j) - from);
        const float z = drop.on ? drop.factor(drop.words(number, j), j) : 1.0f;
        weight[j - key] = w * z;
        slope[j - key] = w != 0 ? w * (dot * z - mean) : 0.0f;
      }
    }
    __syncthreads();
    for (int x = threadIdx.x; x < n; x += kThreads) {
      float dq_x = dq[x], dv_x = dv[x];
      T* to = row_at(k.dk, b, h, 0) + x;
      if (!k.add) {
        for (int j = key; j < low; ++j) to[j * k.dk.row] = narrow<T>(0);
        for (int j = high; j < end; ++j) to[j * k.dk.row] = narrow<T>(0);
      }
      const T* at = row_at(a.k, b, h, 0) + x;
#pragma unroll 4
      for (int j = low; j < high; ++j) {
        const Tanh t(q[x] + wide(at[j * a.k.row]));
        const float ds = slope[j - key], d = ds * t.slope();
        dv_x = fmaf(ds, t.value(), dv_x), dq_x += d;
        const float old = k.add ? wide(to[j * k.dk.row]) : 0.0f;
        to[j * k.dk.row] = narrow<T>(fmaf(v[x], d, old));
      }
      dq[x] = dq_x, dv[x] = dv_x;
    }
    for (int c = threadIdx.x; c < m; c += kThreads) {
      T* to = row_at(k.dvalue, b, h, 0) + c;
      if (!k.add) {
        for (int j = key; j < low; ++j) to[j * k.dvalue.row] = narrow<T>(0);
        for (int j = high; j < end; ++j) to[j * k.dvalue.row] = narrow<T>(0);
      }
#pragma unroll 4
      for (int j = low; j < high; ++j) {
        const float old = k.add ? wide(to[j * k.dvalue.row]) : 0.0f;
        to[j * k.dvalue.row] = narrow<T>(fmaf(weight[j - key], g[c], old));
      }
    }
    if (p.width > n)
      for (int j = key + threadIdx.x; j < end; j += kThreads)
        part[n + j] = j >= low && j < high ? slope[j - key] : 0.0f;
    else if (k.dbias.data)
      for (int j = low + threadIdx.x; j < high; j += kThreads)
        row_at(k.dbias, b, h, 0)[j] += slope[j - key];
    if (k.dplace)
      dplace += lanes_sum(high - low, [&](int x) {
        return slope[low - key + x] * 2 * a.falloff *
               (static_cast<float>(low + x) - a.place[number]);
      });
    __syncthreads();  // slopes and weights are written again
  }
  T* to = row_at(k.dq, b, h, 0);
  for (int x = threadIdx.x; x < n; x += kThreads) {
    to[x] = narrow<T>(v[x] * dq[x]);
    part[x] = dv[x];
  }
  if (k.dplace && threadIdx.x == 0) k.dplace[number] = dplace;

  const int batch = static_cast<int>(a.batch), groups = (batch + p.group - 1) / p.group;
  const int mine = static_cast<int>(b) / p.group, first = mine * p.group;
  const int count = min(p.group, batch - first);
  float* sum = p.sums + (h * groups + mine) * p.width;
  const auto put = [&](int x, float y) {
    if (x < n)
      k.dv[h * n + x] = y;
    else
      row_at(k.dbias, 0, h, 0)[x - n] += y;
  };
  if (!last_of(&done[h][mine], count)) return;
  const float* parts = p.parts + (h * a.batch + first) * p.width;
  if (groups == 1) return add_up(p.width, count, parts, put);
  add_up(p.width, count, parts, [&](int x, float y) { sum[x] = y; });
  if (!last_of(&done[h][kMostGroups], groups)) return;
  add_up(p.width, groups, p.sums + h * groups * p.width, put);
}

template <class T>
size_t shared_of(const Attention<T>& a, bool back) {
  return static_cast<size_t>((back ? 4 : 2) * a.size + a.value_size + 2 * kStepKeys) *
         sizeof(float);
}

}  // namespace

template <class T>
bool step_fits(const Attention<T>& a) {
  return a.queries <= kFewQueries && shared_of(a, false) <= kMostShared;
}
template <class T>
bool step_fits(const AttentionGrad<T>& k) {
  const Attention<T>& a = k.forward;
  return a.queries == 1 && a.heads == a.key_heads && a.heads <= kMostHeads &&
         shared_of(a, true) <= kMostShared;
}

template <class T>
void additive_step(Cuda device, const Attention<T>& a) {
  const size_t shared = shared_of(a, false);
  allow_shared(step<T>, shared);
  step<T><<<static_cast<unsigned>(a.batch * a.heads * a.queries), kThreads, shared,
            stream_of(device)>>>(a);
  launched("additive attention, few queries");
}

template <class T>
void additive_step_grad(Cuda device, const AttentionGrad<T>& k) {
  const Attention<T>& a = k.forward;
  StepGrad<T> p{k, 0, 0, nullptr, nullptr};
  p.width = static_cast<int>(a.size + (k.dbias.data && k.dbias.batch == 0 ? a.keys : 0));
  p.group = static_cast<int>(a.batch <= 16 * kMostGroups ? 16 : ceil_div(a.batch, kMostGroups));
  const int64_t parts = a.batch * a.heads * p.width;
  p.parts = static_cast<float*>(
      cuda_scratch(static_cast<size_t>(parts + a.heads * kMostGroups * p.width) * sizeof(float)));
  p.sums = p.parts + parts;
  const size_t shared = shared_of(a, true);
  allow_shared(step_grad<T>, shared);
  step_grad<T>
      <<<static_cast<unsigned>(a.batch * a.heads), kThreads, shared, stream_of(device)>>>(p);
  launched("gradient of additive attention, one query");
}

template bool step_fits(const Attention<float>&);
template bool step_fits(const Attention<bf16>&);
template bool step_fits(const AttentionGrad<float>&);
template bool step_fits(const AttentionGrad<bf16>&);
template void additive_step(Cuda, const Attention<float>&);
template void additive_step(Cuda, const Attention<bf16>&);
template void additive_step_grad(Cuda, const AttentionGrad<float>&);
template void additive_step_grad(Cuda, const AttentionGrad<bf16>&);

}  // namespace heed::kernels
