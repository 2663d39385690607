// From scores to weights on a GPU, other than by softmax: masks, sparse normalizations (sparsemax,
// entmax), the largest alone (hard attention). A warp takes a row.
#include "heed/kernels/cuda/device.cuh"

namespace heed::kernels {
namespace {

constexpr int kThreads = 256;

// The row of this warp, and the thread's first column.
__device__ int64_t row_of_warp() {
  return int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
}
__device__ int lane() { return threadIdx.x % kWarp; }
unsigned blocks(int64_t rows) { return static_cast<unsigned>(ceil_div(rows, kThreads / kWarp)); }

template <int V, class T>
__global__ void __launch_bounds__(kThreads) limit(const __grid_constant__ Limit<T> k) {
  const int64_t row = row_of_warp();
  if (row >= k.batch * k.heads * k.queries) return;
  const int64_t b = row / (k.heads * k.queries), h = row / k.queries % k.heads;
  const Id* range = k.range + b * k.range_batch + h * k.range_head + 2 * (row % k.queries);
  const int64_t begin = range[0], end = range[1];
  for (int64_t j = lane() * V; j < k.n; j += kWarp * V) {
    float x[V];
    load<V>(k.x + row * k.n + j, x);
#pragma unroll
    for (int i = 0; i < V; ++i) x[i] = j + i >= begin && j + i < end ? x[i] : k.outside;
    store<V>(x, k.y + row * k.n + j);
  }
}

// The threshold t for which the weights max(0, z - t)^p sum to one, p = 1 for sparsemax and 2 for
// 1.5-entmax (whose z are halved), where z <= 0 are the scores less the largest. Their sum falls
// with t and is convex, so Newton's steps from t = -1, where it is at least one, rise to the
// solution without passing it; they end when a step no longer rises. For sparsemax that is
// Michelot's algorithm (1986), exact after as many steps as the support shrinks.
template <bool sparsemax>
__device__ double threshold(int64_t n, const float* x, float most) {
  double t = -1;
  while (true) {
    double over = 0, derivative = 0;
    for (int64_t j = lane(); j < n; j += kWarp) {
      const float z = (x[j] - most) * (sparsemax ? 1.0f : 0.5f);
      const double d = z - t;
      if (d <= 0) continue;
      over += sparsemax ? d : d * d;
      derivative += sparsemax ? 1 : 2 * d;
    }
    over = warp_sum(over) - 1;
    derivative = warp_sum(derivative);
    const double next = t + over / derivative;
    if (!(next > t)) return t;
    t = next;
  }
}

template <bool sparsemax>
__global__ void __launch_bounds__(kThreads) entmax(const __grid_constant__ Entmax<float> k) {
  const int64_t row = row_of_warp();
  if (row >= k.rows) return;
  const float* x = k.x + row * k.n;
  float* y = k.y + row * k.n;
  float most = -INFINITY;
  bool non_finite = false;
  for (int64_t j = lane(); j < k.n; j += kWarp) {
    most = fmaxf(most, x[j]);
    non_finite = non_finite || x[j] != x[j] || x[j] == INFINITY;
  }
  most = warp_max(most);
  non_finite = __any_sync(~0u, non_finite);
  if (most == -INFINITY) {
    for (int64_t j = lane(); j < k.n; j += kWarp) y[j] = 0;
    return;
  }
  const float t = non_finite ? NAN : static_cast<float>(threshold<sparsemax>(k.n, x, most));
  for (int64_t j = lane(); j < k.n; j += kWarp) {
    const float over = (x[j] - most) * (sparsemax ? 1.0f : 0.5f) - t;
    y[j] = over <= 0 ? 0 : sparsemax ? over : over * over;
  }
}

template <bool sparsemax>
__global__ void __launch_bounds__(kThreads)
    entmax_grad(const __grid_constant__ EntmaxGrad<float> k) {
  const int64_t row = row_of_warp();
  if (row >= k.rows) return;
  const float *y = k.y + row * k.n, *dy = k.dy + row * k.n;
  float* dx = k.dx + row * k.n;
  const auto derivative = [](float weight) {
    return weight == 0 ? 0.0f : sparsemax ? 1.0f : sqrtf(weight);
  };
  float sum = 0, weighted = 0;
  for (int64_t j = lane(); j < k.n; j += kWarp) {
    const float s = derivative(y[j]);
    sum += s;
    weighted = fmaf(s, dy[j], weighted);
  }
  sum = warp_sum(sum);
  weighted = warp_sum(weighted);
  const float mean = sum == 0 ? 0 : weighted / sum;
  for (int64_t j = lane(); j < k.n; j += kWarp) dx[j] = derivative(y[j]) * (dy[j] - mean);
}

__global__ void __launch_bounds__(kThreads) one_hot(const __grid_constant__ OneHot<float> k) {
  const int64_t row = row_of_warp();
  if (row >= k.rows) return;
  uint64_t best = 0;
  for (int64_t j = lane(); j < k.n; j += kWarp) {
    const uint64_t key = rank_key(k.x[row * k.n + j], static_cast<uint32_t>(j));
    best = key > best ? key : best;
  }
  best = warp_max(best);
  const int64_t index = best > kInfKey ? int64_t{index_of(best)} : -1;
  for (int64_t j = lane(); j < k.n; j += kWarp) k.y[row * k.n + j] = j == index ? 1 : 0;
}

template <class T>
void launch(Cuda device, const Limit<T>& k) {
  const int64_t rows = k.batch * k.heads * k.queries;
  if (rows == 0 || k.n == 0) return;
  constexpr int V = kPack<T>;
  const auto kernel =
      k.n % V == 0 && aligned(k.x, 16) && aligned(k.y, 16) ? limit<V, T> : limit<1, T>;
  kernel<<<blocks(rows), kThreads, 0, stream_of(device)>>>(k);
  launched("limit");
}

}  // namespace

void run(Cuda device, const Limit<float>& k) { launch(device, k); }
void run(Cuda device, const Limit<bf16>& k) { launch(device, k); }

void run(Cuda device, const Entmax<float>& k) {
  if (k.rows == 0 || k.n == 0) return;
  const auto kernel = k.sparsemax ? entmax<true> : entmax<false>;
  kernel<<<blocks(k.rows), kThreads, 0, stream_of(device)>>>(k);
  launched("entmax");
}

void run(Cuda device, const EntmaxGrad<float>& k) {
  if (k.rows == 0 || k.n == 0) return;
  const auto kernel = k.sparsemax ? entmax_grad<true> : entmax_grad<false>;
  kernel<<<blocks(k.rows), kThreads, 0, stream_of(device)>>>(k);
  launched("entmax_grad");
}

void run(Cuda device, const OneHot<float>& k) {
  if (k.rows == 0 || k.n == 0) return;
  one_hot<<<blocks(k.rows), kThreads, 0, stream_of(device)>>>(k);
  launched("one_hot");
}

}  // namespace heed::kernels
