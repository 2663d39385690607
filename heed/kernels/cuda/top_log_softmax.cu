// The largest of log softmax by row: one pass over the scores, and another look at what a few
// threads have read.
#include "heed/kernels/cuda/launch.cuh"
#include "heed/kernels/cuda/rows.cuh"
#include "heed/kernels/top_log_softmax.h"

namespace heed::kernels {
namespace {

constexpr int kThreadsOfRow = 256;

// Each thread finds the best of its part, and the part's largest element and sum of exponentials.
// The k-th best of the bests bounds the k best of the row from below: what reaches it lies with k
// threads, and is ranked. `capacity` is what k threads can have read.
template <int V>
__global__ void __launch_bounds__(kThreadsOfRow)
    top_log_softmax(const __grid_constant__ TopLogSoftmax k) {
  extern __shared__ uint64_t key[];  // [capacity], at least kThreadsOfRow
  __shared__ float most_of[kThreadsOfRow / kWarp], sum_of[kThreadsOfRow / kWarp];
  __shared__ uint64_t bound_of;
  __shared__ int found;
  const int64_t row = blockIdx.x;
  const float* const x = k.x + row * k.n;
  const int thread = static_cast<int>(threadIdx.x);
  uint64_t best = 0;
  float most = -INFINITY, sum = 0;
#pragma unroll 4
  for (int64_t j = thread * V; j < k.n; j += kThreadsOfRow * V) {
    float v[V];
    load<V>(x + j, v);
    float larger = most;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const uint64_t next = rank_key(v[i], static_cast<uint32_t>(j + i));
      best = next > best ? next : best;
      larger = fmaxf(larger, v[i]);
    }
    if (larger > most) sum *= __expf(most - larger), most = larger;
#pragma unroll
    for (int i = 0; i < V; ++i) sum += v[i] == -INFINITY ? 0 : expf(v[i] - most);
  }
  key[thread] = best;
  if (thread == 0) found = 0, bound_of = 1;
  for (int i = kWarp / 2; i > 0; i /= 2) {
    const float other = __shfl_xor_sync(~0u, most, i), more = __shfl_xor_sync(~0u, sum, i);
    const float larger = fmaxf(most, other);
    if (larger > -INFINITY) sum = sum * expf(most - larger) + more * expf(other - larger);
    most = larger;
  }
  if (thread % kWarp == 0) most_of[thread / kWarp] = most, sum_of[thread / kWarp] = sum;
  __syncthreads();
  int rank = 0;
  for (int i = 0; i < kThreadsOfRow; ++i) rank += key[i] > best;
  if (best && rank == k.k - 1) bound_of = best;
  float largest = -INFINITY, total = 0;
  for (int w = 0; w < kThreadsOfRow / kWarp; ++w) largest = fmaxf(largest, most_of[w]);
  for (int w = 0; w < kThreadsOfRow / kWarp; ++w)
    if (most_of[w] > -INFINITY || sum_of[w] != 0) total += sum_of[w] * expf(most_of[w] - largest);
  const float log_sum = largest + logf(total);
  __syncthreads();
  const uint64_t bound = bound_of;
  if (best >= bound)
    for (int64_t j = thread * V; j < k.n; j += kThreadsOfRow * V) {
      float v[V];
      load<V>(x + j, v);
#pragma unroll
      for (int i = 0; i < V; ++i) {
        const uint64_t next = rank_key(v[i], static_cast<uint32_t>(j + i));
        if (next >= bound) key[atomicAdd(&found, 1)] = next;  // any order: ranked below
      }
    }
  __syncthreads();
  const bool numbers = fabsf(log_sum) < INFINITY;
  const int count = found;
  for (int i = thread; i < count; i += kThreadsOfRow) {
    const uint64_t mine = key[i];
    int at = 0;
    for (int j = 0; j < count; ++j) at += key[j] > mine;
    if (at >= k.k || !numbers) continue;
    const auto index = index_of(mine);
    k.value[row * k.k + at] = x[index] - log_sum;
    k.index[row * k.k + at] = static_cast<Id>(index);
  }
  for (int64_t i = (numbers ? count : 0) + thread; i < k.k; i += kThreadsOfRow)
    k.value[row * k.k + i] = -INFINITY, k.index[row * k.k + i] = -1;
  if (thread == 0) k.log_sum[row] = log_sum;
}

bool packs(const TopLogSoftmax& k) { return k.n % 4 == 0 && aligned(k.x, 16); }

// What each thread may offer of its part of a row.
size_t key_bytes(const TopLogSoftmax& k) {
  const int64_t V = packs(k) ? 4 : 1;
  return static_cast<size_t>(
             max(int64_t{kThreadsOfRow}, k.k * ceil_div(k.n, kThreadsOfRow * V) * V)) *
         sizeof(uint64_t);
}

}  // namespace

bool fits(Cuda, const TopLogSoftmax& k) { return key_bytes(k) <= most_shared(); }

void run(Cuda device, const TopLogSoftmax& k) {
  if (k.rows == 0) return;
  const bool packed = packs(k);
  const auto kernel = packed ? top_log_softmax<4> : top_log_softmax<1>;
  launch_kernel(device, kernel, static_cast<unsigned>(k.rows), kThreadsOfRow, key_bytes(k), k);
}

}  // namespace heed::kernels
