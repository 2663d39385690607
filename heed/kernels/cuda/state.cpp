#include "heed/kernels/cuda/state.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "heed/base/check.h"

namespace heed::kernels {

CudaState::CudaState() = default;
CudaState::~CudaState() {
  for (const Block& block : blocks_) cudaFree(block.data);
}

size_t CudaState::scratch_bytes() const {
  size_t sum = 0;
  for (const Block& block : blocks_) sum += block.size;
  return sum;
}

void* CudaState::scratch(size_t bytes) {
  if (lender) return lender(bytes);
  if (!blocks_.empty() && bytes <= blocks_.back().size) return blocks_.back().data;
  const size_t wanted = std::max(bytes + bytes / 4, size_t{32} << 20);
  void* larger = nullptr;
  if (const cudaError_t error = cudaMalloc(&larger, wanted); error != cudaSuccess)
    fail("cuda: ", wanted >> 20,
         " MiB for a kernel's intermediate results: ", cudaGetErrorString(error),
         "; a smaller --batch-tokens needs less");
  blocks_.push_back({larger, wanted});
  return larger;
}

}  // namespace heed::kernels
