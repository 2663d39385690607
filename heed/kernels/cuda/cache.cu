// A decoder's key/value cache (KV cache) on a GPU: rows that are moved as bits, and positions that
// are appended.
#include "heed/kernels/cuda/launch.cuh"

namespace heed::kernels {
namespace {

// ---- rows that are moved

// Which part a block belongs to.
struct Blocks {
  unsigned first[kMaxParts + 1];  // the first block of each part, and after the last
};

// One item of `outer` of one group, in units of S. A thread reads its column of all rows before it
// writes one: that is what lets rows of a group change their slots.
template <class S>
__device__ void move(const MoveRows<float>& k, const MovePart<float>& p, int64_t group, int64_t o,
                     uint4* shared) {
  constexpr int64_t kWords = sizeof(S) / sizeof(float);
  S* const read = reinterpret_cast<S*>(shared);  // [group][threads]
  const int64_t first = group * k.group, units = k.length[group] * p.n / kWords;
  const int64_t x_step = p.x_capacity * p.n / kWords, y_step = p.y_capacity * p.n / kWords;
  const S* const x = reinterpret_cast<const S*>(p.x);
  S* const y = reinterpret_cast<S*>(p.y);
  if (k.to) {  // a row to another one
    const int64_t to = k.to[first];
    if (to < 0) return;
    const S* const source = x + (k.from[first] * p.outer + o) * x_step;
    for (int64_t u = threadIdx.x; u < units; u += blockDim.x)
      y[(to * p.outer + o) * y_step + u] = source[u];
    return;
  }
  const bool in_place = p.x == p.y;
  for (int64_t u = threadIdx.x; u < units; u += blockDim.x) {
#pragma unroll 4
    for (int i = 0; i < k.group; ++i) {
      const int64_t from = k.from[first + i];
      if (!in_place || from != first + i)
        read[i * blockDim.x + threadIdx.x] = x[(from * p.outer + o) * x_step + u];
    }
#pragma unroll 4
    for (int i = 0; i < k.group; ++i)
      if (!in_place || k.from[first + i] != first + i)
        y[((first + i) * p.outer + o) * y_step + u] = read[i * blockDim.x + threadIdx.x];
  }
}

__global__ void __launch_bounds__(128)
    move_rows(const __grid_constant__ MoveRows<float> k, const __grid_constant__ Blocks blocks) {
  extern __shared__ uint4 shared[];
  int part = 0;
  while (blocks.first[part + 1] <= blockIdx.x) ++part;
  const MovePart<float>& p = k.part[part];
  const int64_t item = blockIdx.x - blocks.first[part], group = item / p.outer,
                o = item - group * p.outer;
  const bool wide = p.n % 4 == 0;  // arrays begin at a multiple of 256 bytes
  if (wide)
    move<uint4>(k, p, group, o, shared);
  else
    move<uint32_t>(k, p, group, o, shared);
}

// ---- positions that are appended

__global__ void __launch_bounds__(256) append_rows(const __grid_constant__ AppendRows<float> k) {
  const AppendPart<float>& p = k.part[blockIdx.y];
  const int64_t count = p.positions * p.n;
  for (int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x; i < k.rows * p.outer * count;
       i += int64_t{gridDim.x} * 256) {
    const int64_t row = i / count;
    p.y[(row * p.capacity + k.at[row / p.outer]) * p.n + (i - row * count)] = p.x[i];
  }
}

}  // namespace

void run(Cuda device, const MoveRows<float>& k) {
  Blocks blocks{};
  for (int i = 0; i < k.count; ++i)
    blocks.first[i + 1] = blocks.first[i] + static_cast<unsigned>(k.groups * k.part[i].outer);
  if (blocks.first[k.count] == 0) return;
  // A column of 16 bytes for each thread and row, in 48 KiB.
  const unsigned threads = k.group <= 24 ? 128 : 32;
  const size_t bytes = static_cast<size_t>(k.group) * threads * sizeof(uint4);
  move_rows<<<blocks.first[k.count], threads, bytes, stream_of(device)>>>(k, blocks);
  launched("rows of a cache");
}

void run(Cuda device, const AppendRows<float>& k) {
  int64_t most = 0;
  for (int i = 0; i < k.count; ++i)
    most = max(most, k.rows * k.part[i].outer * k.part[i].positions * k.part[i].n);
  if (most == 0) return;
  const dim3 grid(grid_for(most, 256), static_cast<unsigned>(k.count));
  launch_kernel(device, append_rows, grid, 256, 0, k);
}

}  // namespace heed::kernels
