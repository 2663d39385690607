// Rows of tables on a GPU: reading them, adding to them, and rotary positions.
#include <algorithm>
#include <cmath>

#include "heed/kernels/bf16.h"
#include "heed/kernels/cuda/launch.cuh"
#include "heed/kernels/cuda/rows.cuh"

namespace heed::kernels {
namespace {

// y[i] = table[id[i]], rows of n moved as bits, a warp each.
template <class S>
__global__ void __launch_bounds__(kThreads)
    gather(int64_t count, int64_t n, const S* table, const Id* id, S* y) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + warp();
  if (i >= count) return;
  const S* from = table + id[i] * n;
#pragma unroll 4
  for (int64_t j = lane(); j < n; j += kWarp) y[i * n + j] = from[j];
}

template <class T>
void launch(Cuda device, const Gather<T>& k) {
  if (k.count == 0 || k.n == 0) return;
  const auto move = [&]<class S>(S) {
    gather<S><<<warp_blocks(k.count), kThreads, 0, stream_of(device)>>>(
        k.count, k.n * int64_t{sizeof(T)} / int64_t{sizeof(S)}, reinterpret_cast<const S*>(k.table),
        k.id, reinterpret_cast<S*>(k.y));
  };
  if (k.n % kPack<T> == 0 && aligned(k.table, 16) && aligned(k.y, 16))
    move(uint4{});
  else if constexpr (sizeof(T) == 2)
    move(uint16_t{});
  else
    move(uint32_t{});
  launched("gather");
}

// The same of a table in bf16.
template <int V>
__global__ void __launch_bounds__(kThreads) gather_wide(const __grid_constant__ Bf16Gather k) {
  const int64_t i = int64_t{blockIdx.x} * kWarps + warp();
  if (i >= k.count) return;
  const bf16* const from = k.table + k.id[i] * k.n;
#pragma unroll 4
  for (int64_t j = lane() * V; j < k.n; j += kWarp * V) {
    float v[V];
    load<V>(from + j, v);
    store<V>(v, k.y + i * k.n + j);
  }
}

// table[id[i]] += x[i] without atomics: the rows are sorted by id, equal ids in rising order, and
// every id's rows are added up in that order, in runs of kRun slots of the sorted list: first each
// run by itself, then over the ends of runs. Which sums are made depends on the ids alone.
constexpr int kRun = 8, kSlice = 16384, kRanked = 4;

// The slot of every i in the sorted list is how many come before it: the ids below its own, and
// the equal ones before i. A warp counts for kRanked i at once; count^2 comparisons, 13,000^2 of
// which are some 15 us, and no pass waits for another.
__global__ void __launch_bounds__(kThreads)
    rank_ids(int count, const Id* id, int* sorted_id, int* sorted_i) {
  const int first = (blockIdx.x * kWarps + warp()) * kRanked;
  if (first >= count) return;
  Id mine[kRanked];
  int before[kRanked] = {};
#pragma unroll
  for (int r = 0; r < kRanked; ++r) mine[r] = id[min(first + r, count - 1)];
  const int diagonal =
      first / kWarp * kWarp;  // kRanked divides kWarp: all of `first` + r lie after it
#pragma unroll 4
  for (int j = lane(); j < diagonal; j += kWarp) {
    const Id other = id[j];
#pragma unroll
    for (int r = 0; r < kRanked; ++r) before[r] += other <= mine[r];
  }
  if (const int j = diagonal + lane(); j < count) {
    const Id other = id[j];
#pragma unroll
    for (int r = 0; r < kRanked; ++r)
      before[r] += j < first + r ? other <= mine[r] : other < mine[r];
  }
#pragma unroll 4
  for (int j = diagonal + kWarp + lane(); j < count; j += kWarp) {
    const Id other = id[j];
#pragma unroll
    for (int r = 0; r < kRanked; ++r) before[r] += other < mine[r];
  }
#pragma unroll
  for (int r = 0; r < kRanked; ++r) {
    const int slot = __reduce_add_sync(~0u, before[r]);
    if (lane() == 0 && first + r < count) sorted_id[slot] = mine[r], sorted_i[slot] = first + r;
  }
}

// table[row] += sum, for V columns.
template <int V>
__device__ void add_to(float* to, const float (&sum)[V]) {
  float v[V];
  load<V>(to, v);
#pragma unroll
  for (int i = 0; i < V; ++i) v[i] += sum[i];
  store<V>(v, to);
}

// A warp takes a run of the sorted list and 32 V columns. An id whose rows all lie in the run is
// done here; of one that came into the run from before (partial[run][0]) or goes on after it
// (partial[run][1]) the sum of this run is left.
template <int V, class T>
__global__ void __launch_bounds__(kThreads)
    scatter_runs(int count, int64_t n, const T* x, const int* sorted_id, const int* sorted_i,
                 float* partial, float* table) {
  constexpr int kAhead = 8;  // rows under way
  const int run = blockIdx.x * kWarps + warp();
  const int begin = run * kRun, length = min(kRun, count - begin);
  if (length <= 0) return;
  const int64_t j = (int64_t{blockIdx.y} * kWarp + lane()) * V;
  const bool inside = j < n;
  const int at = begin + min(lane(), length - 1);
  const int my_id = sorted_id[at], my_i = sorted_i[at];
  const int id_before = begin > 0 ? sorted_id[begin - 1] : -1;
  const int id_after = begin + length < count ? sorted_id[begin + length] : -1;
  float sum[V] = {};
  bool from_before = __shfl_sync(~0u, my_id, 0) == id_before;
  for (int q = 0; q < length; q += kAhead) {
    float v[kAhead][V];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int i = __shfl_sync(~0u, my_i, min(q + a, length - 1));
      if (inside && q + a < length) load<V>(x + i * n + j, v[a]);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (q + a >= length) break;
      const int id = __shfl_sync(~0u, my_id, q + a);
      const int next_id = __shfl_sync(~0u, my_id, min(q + a + 1, length - 1));
#pragma unroll
      for (int c = 0; c < V; ++c) sum[c] += v[a][c];
      const bool end = q + a + 1 == length;
      if (!end && next_id == id) continue;
      if (inside) {
        if (from_before)
          store<V>(sum, partial + 2 * int64_t{run} * n + j);
        else if (end && id_after == id)
          store<V>(sum, partial + (2 * int64_t{run} + 1) * n + j);
        else
          add_to<V>(table + id * n + j, sum);
      }
      from_before = false;
#pragma unroll
      for (int c = 0; c < V; ++c) sum[c] = 0;
    }
  }
}

// Of every id that goes over the end of the run in which it began, adds up what the runs left.
template <int V>
__global__ void __launch_bounds__(kThreads)
    scatter_ends(int count, int64_t n, const int* sorted_id, const float* partial, float* table) {
  const int run = blockIdx.x * kWarps + warp(), begin = run * kRun, after = begin + kRun;
  if (after >= count) return;
  const int id = sorted_id[after];
  if (sorted_id[after - 1] != id || (begin > 0 && sorted_id[begin - 1] == id)) return;
  int last = run + 1;  // the last run that holds the id
  while (true) {
    const int next = last + 1 + lane();
    const bool goes_on = int64_t{next} * kRun < count && sorted_id[next * kRun] == id;
    const unsigned stops = __ballot_sync(~0u, !goes_on);
    last += stops ? __ffs(static_cast<int>(stops)) - 1 : kWarp;
    if (stops) break;
  }
  const int64_t j = (int64_t{blockIdx.y} * kWarp + lane()) * V;
  if (j >= n) return;
  float sum[V];
  load<V>(partial + (2 * int64_t{run} + 1) * n + j, sum);
#pragma unroll 8
  for (int r = run + 1; r <= last; ++r) {
    float v[V];
    load<V>(partial + 2 * int64_t{r} * n + j, v);
#pragma unroll
    for (int c = 0; c < V; ++c) sum[c] += v[c];
  }
  add_to<V>(table + id * n + j, sum);
}

template <class T>
void launch(Cuda device, const ScatterAdd<T>& k) {
  if (k.count == 0 || k.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  const bool packed = k.n % 4 == 0 && aligned_to_4(k.x) && aligned_to_4(k.table);
  // The sort is quadratic: slices, one after the other.
  for (int64_t first = 0; first < k.count; first += kSlice) {
    const int count = static_cast<int>(std::min<int64_t>(kSlice, k.count - first));
    const int runs = static_cast<int>(ceil_div(count, kRun));
    auto* partial = static_cast<float*>(
        cuda_scratch(device, 2 * sizeof(float) * runs * k.n + 2 * sizeof(int) * count));
    auto *sorted_id = reinterpret_cast<int*>(partial + 2 * runs * k.n),
         *sorted_i = sorted_id + count;
    rank_ids<<<static_cast<unsigned>(ceil_div(count, kWarps * kRanked)), kThreads, 0, stream>>>(
        count, k.id + first, sorted_id, sorted_i);
    const auto add = [&](auto V) {
      const dim3 grid(warp_blocks(runs), static_cast<unsigned>(ceil_div(k.n, kWarp * V())));
      scatter_runs<V(), T><<<grid, kThreads, 0, stream>>>(count, k.n, k.x + first * k.n, sorted_id,
                                                          sorted_i, partial, k.table);
      scatter_ends<V()><<<grid, kThreads, 0, stream>>>(count, k.n, sorted_id, partial, k.table);
    };
    packed ? add(Int<4>{}) : add(Int<1>{});
    launched("scatter_add");
  }
}

// ---- rotary positions

// A thread has one pair of columns of one position, for all heads: the angle is made once, in
// double.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rotary(const __grid_constant__ Rotary<T> k, double log2_base) {
  const int64_t half = k.n / 2, item = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= k.batch * k.length * half) return;
  const int64_t i = item % half, position = item / half, t = position % k.length;
  const double theta = exp2(-2.0 * static_cast<double>(i) / static_cast<double>(k.n) * log2_base);
  double s, c;
  sincos(static_cast<double>(k.first[position / k.length * k.first_step] + t) * theta, &s, &c);
  const float cosine = static_cast<float>(c), sine = static_cast<float>(k.backward ? -s : s);
  const T* x = k.x + position * k.heads * k.n + i;
  T* y = k.y + position * k.heads * k.n + i;
#pragma unroll 4
  for (int64_t h = 0; h < k.heads; ++h) {
    const float a = wide(x[h * k.n]), b = wide(x[h * k.n + half]);
    y[h * k.n] = narrow<T>(a * cosine - b * sine);
    y[h * k.n + half] = narrow<T>(a * sine + b * cosine);
  }
}

template <class T>
void launch(Cuda device, const Rotary<T>& k) {
  const int64_t items = k.batch * k.length * (k.n / 2);
  if (items == 0 || k.heads == 0) return;
  rotary<<<static_cast<unsigned>(ceil_div(items, kThreads)), kThreads, 0, stream_of(device)>>>(
      k, std::log2(static_cast<double>(k.base)));
  launched("rotary");
}

}  // namespace

// ---- run

void run(Cuda device, const Bf16Gather& k) {
  if (k.count == 0 || k.n == 0) return;
  const bool packed = k.n % 4 == 0 && aligned(k.table, 16) && aligned(k.y, 16);
  const auto kernel = packed ? gather_wide<4> : gather_wide<1>;
  launch_kernel(device, kernel, warp_blocks(k.count), kThreads, 0, k);
}

#define HEED_RUN(Name)                                               \
  void run(Cuda device, const Name<float>& k) { launch(device, k); } \
  void run(Cuda device, const Name<bf16>& k) { launch(device, k); }
HEED_RUN(Gather)
HEED_RUN(ScatterAdd)
HEED_RUN(Rotary)
#undef HEED_RUN

}  // namespace heed::kernels
