#include "heed/kernels/cuda/scratch.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "heed/base/check.h"

namespace heed::kernels {
namespace {

size_t held = 0;  // all blocks, earlier ones too

}  // namespace

size_t cuda_scratch_bytes() { return held; }

void* cuda_scratch(size_t bytes) {
  static void* block = nullptr;
  static size_t size = 0;
  if (bytes <= size) return block;
  const size_t wanted = std::max(bytes + bytes / 4, size_t{32} << 20);
  void* larger = nullptr;
  if (const cudaError_t error = cudaMalloc(&larger, wanted); error != cudaSuccess)
    fail("cuda: ", wanted >> 20,
         " MiB for a kernel's intermediate results: ", cudaGetErrorString(error),
         "; a smaller --batch-tokens needs less");
  block = larger;
  size = wanted;
  held += wanted;
  return block;
}

}  // namespace heed::kernels
