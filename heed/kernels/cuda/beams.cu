// Beam search on a GPU: a warp for each sentence. One lane takes the choices, few as they are; all
// bring the lists that it chooses from, and write down what the host is to read.
#include "heed/kernels/beams-inl.h"
#include "heed/kernels/cuda/launch.cuh"

namespace heed::kernels {
namespace {

constexpr int kSentences = 4;  // of a block

__global__ void begin_beams(const __grid_constant__ BeginBeams k) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < k.count && k.slot[i] >= 0)
    begin_beam(k.beams, k.slot[i], k.number[i], k.longest[i], k.length[i]);
}

__global__ void __launch_bounds__(kSentences* kWarp)
    grow_beams(const __grid_constant__ GrowBeams k) {
  extern __shared__ float lists[];
  const Beams& b = k.beams;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t slot = int64_t{blockIdx.x} * kSentences + warp;
  if (slot >= b.slots) return;
  const Id number = b.number[slot];
  if (number < 0) return;
  const int64_t size = b.beam * k.likeliest;
  float* const value = lists + warp * 2 * size;
  Id* const index = reinterpret_cast<Id*>(value + size);
  for (int64_t i = lane; i < size; i += kWarp)
    value[i] = k.value[slot * size + i], index[i] = k.index[slot * size + i];
  __syncwarp();
  int count = -2;  // it goes on
  if (lane == 0) {
    BeamStep step(k, slot, value, index);
    bool over = false;
    if (!step.grow(over))
      count = -1;
    else if (over)
      count = step.finished < b.rules.best ? step.finished : static_cast<int>(b.rules.best);
  }
  count = __shfl_sync(0xffffffff, count, 0);
  if (count == -2) return;
  __syncwarp();  // what the first lane wrote is seen by all
  if (b.beam == 1)
    for (int64_t i = 0; i < count; ++i) tell_ended(b, slot, i, lane, kWarp);
  else
    for (int64_t i = lane; i < count; i += kWarp) tell_ended(b, slot, i);
  __threadfence_system();
  __syncwarp();
  if (lane > 0) return;
  b.over.count[slot] = count;
  __threadfence_system();
  *reinterpret_cast<volatile Id*>(b.over.number + slot) = number;  // the host looks for it
  leave_beam(b, slot);
}

}  // namespace

void run(Cuda device, const BeginBeams& k) {
  if (k.count == 0) return;
  begin_beams<<<grid_for(k.count, 128), 128, 0, stream_of(device)>>>(k);
  launched("sentences begin");
}

void run(Cuda device, const GrowBeams& k) {
  const size_t bytes = static_cast<size_t>(kSentences * k.beams.beam * k.likeliest) * 2 * 4;
  const int64_t blocks = ceil_div(k.beams.slots, kSentences);
  launch_kernel(device, grow_beams, static_cast<unsigned>(blocks), kSentences * kWarp, bytes, k);
}

}  // namespace heed::kernels
