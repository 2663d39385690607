// What kernels with a block for each query are written with: rows of keys and values that are
// copied into shared memory, sums along them and over them. Included by .cu files alone.
#pragma once

#include "heed/kernels/cuda/additive.cuh"
#include "heed/kernels/cuda/instructions.cuh"

namespace heed::kernels {
namespace {

// Loops that seldom turn more than once or twice are not unrolled: what a launch of few
// microseconds also waits for is its code.
inline constexpr int kThreads = 512, kWarps = kThreads / kWarp;
inline constexpr int kVector = 4;  // elements that a thread reads from shared memory at once

// Rows in shared memory are as long as this: whole accesses of 16 bytes.
__host__ __device__ inline int padded(int64_t n) { return static_cast<int>((n + 7) / 8 * 8); }

// ---- copies into shared memory

// Rows `first`, `first` + 1 .. of keys or values, of which a warp has every kWarps-th.
template <class T>
struct Rows {
  const T* from;
  int64_t row;
  int n;
  bool packed;  // rows begin and end at multiples of 16 bytes
  T* to;
  // Copies this warp's rows of `count` (none where it is not positive) and closes the group.
  __device__ void copy(int first, int count) const {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll 1
    for (int u = warp; u < count; u += kWarps) {
      const T* source = from + (first + u) * row;
      T* target = at(u);
      if (packed) {
#pragma unroll 4
        for (int x = lane * kPack<T>; x < n; x += kWarp * kPack<T>)
          copy_pack(source + x, target + x);
      } else {
#pragma unroll 1
        for (int x = lane; x < padded(n); x += kWarp) target[x] = x < n ? source[x] : narrow<T>(0);
      }
    }
    copies_end();
  }
  __device__ T* at(int u) const { return to + u * padded(n); }
};

// ---- sums along rows and columns

// sum[r] = the sum along row u + r kWarps, for N rows of a warp: add(x, elements, sum) adds what
// the kVector elements from x on of each give.
template <int N, class T, class Add>
__device__ void sum_rows(const Rows<T>& rows, int u, float (&sum)[N], Add add) {
#pragma unroll 1  // enough other warps compute while one waits
  for (int x = threadIdx.x % kWarp * kVector; x < rows.n; x += kWarp * kVector) {
    float elements[N][kVector];
#pragma unroll
    for (int r = 0; r < N; ++r) load<kVector>(rows.at(u + r * kWarps) + x, elements[r]);
    add(x, elements, sum);
  }
#pragma unroll
  for (int i = kWarp / 2; i > 0; i /= 2)
#pragma unroll
    for (int r = 0; r < N; ++r) sum[r] += __shfl_xor_sync(~0u, sum[r], i);
}
// to[u] = the sum along row u, for this warp's rows of `count`: two at a time share what they meet.
template <class T, class Add>
__device__ void sum_all_rows(const Rows<T>& rows, int count, float* to, Add add) {
  const bool first = threadIdx.x % kWarp == 0;
#pragma unroll 1
  for (int u = threadIdx.x / kWarp; u < count; u += 2 * kWarps) {
    const auto here = [&](int x, auto& elements, auto& sum) { add(u, x, elements, sum); };
    if (u + kWarps < count) {
      float sum[2] = {};
      sum_rows(rows, u, sum, here);
      if (first) to[u] = sum[0], to[u + kWarps] = sum[1];
    } else {
      float sum[1] = {};
      sum_rows(rows, u, sum, here);
      if (first) to[u] = sum[0];
    }
  }
}
// f(u) for this warp's rows of `count`, by one lane each.
template <class F>
__device__ void each_row(int count, F f) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  __syncwarp();  // sums along rows were written by one lane
#pragma unroll 1
  for (int u = warp + lane * kWarps; u < count; u += kWarp * kWarps) f(u);
  __syncwarp();
}

// Sums over rows, by column: a warp has 32 kVector columns and every `groups`-th row.
struct Units {
  int width, tiles, groups;
  __host__ __device__ explicit Units(int64_t n)
      : width(padded(n)),
        tiles((width + kWarp * kVector - 1) / (kWarp * kVector)),
        groups(tiles > 0 && tiles < kWarps ? kWarps / tiles : 1) {}
  __host__ __device__ int scratch_size() const { return groups * width; }
};
// sums[group, x] = factor * sums[group, x] + sum_u weight[u] rows[u, x]
template <class T>
__device__ void add_rows(const Units& units, const Rows<T>& rows, int count, const float* weight,
                         float factor, float* sums) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
#pragma unroll 1
  for (int unit = warp; unit < units.tiles * units.groups; unit += kWarps) {
    const int x = (unit % units.tiles * kWarp + lane) * kVector, group = unit / units.tiles;
    if (x >= rows.n) continue;
    float sum[kVector], elements[kVector];
    load<kVector>(sums + group * units.width + x, sum);
#pragma unroll
    for (int i = 0; i < kVector; ++i) sum[i] *= factor;
#pragma unroll 4
    for (int u = group; u < count; u += units.groups) {
      load<kVector>(rows.at(u) + x, elements);
#pragma unroll
      for (int i = 0; i < kVector; ++i) sum[i] = fmaf(weight[u], elements[i], sum[i]);
    }
    store<kVector>(sum, sums + group * units.width + x);
  }
}
__device__ inline float sum_of_groups(const Units& units, const float* sums, int x) {
  float sum = 0;
#pragma unroll 1
  for (int group = 0; group < units.groups; ++group) sum += sums[group * units.width + x];
  return sum;
}

// sum_x f(x) over [0, n), each lane its own x; every lane gets it.
template <class F>
__device__ float lanes_sum(int n, F f) {
  float sum = 0;
#pragma unroll 1
  for (int x = threadIdx.x % kWarp; x < n; x += kWarp) sum += f(x);
  return warp_sum(sum);
}

// A thread's elements of a row, padded by zeros. The first K are asked for at once: before keys and
// values are, after which they would wait.
template <int K, class T>
struct Early {
  const T* row;
  int n;
  float first[K];
  __device__ Early(const T* row, int n) : row(row), n(n) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int x = k * kThreads + threadIdx.x;
      first[k] = x < n ? wide(row[x]) : 0.0f;
    }
  }
  template <class F>
  __device__ void each(F f) const {  // f(x, element)
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (const int x = k * kThreads + threadIdx.x; x < padded(n)) f(x, first[k]);
#pragma unroll 1
    for (int x = K * kThreads + threadIdx.x; x < padded(n); x += kThreads)
      f(x, x < n ? wide(row[x]) : 0.0f);
  }
  __device__ void put(float* to) const {
    each([to](int x, float y) { to[x] = y; });
  }
};

// Whether rows begin and end at multiples of 16 bytes.
template <class T>
bool in_packs(const Heads<const T>& x, int64_t n) {
  const int64_t pack = 16 / static_cast<int64_t>(sizeof(T));
  return n % pack == 0 && x.batch % pack == 0 && x.head % pack == 0 && x.row % pack == 0 &&
         aligned(x.data, 16);
}

}  // namespace
}  // namespace heed::kernels
