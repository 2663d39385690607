// Launches, and chains of them: each kernel of a chain gets ready before the one before is over
// (programmatic dependent launch). GPUs before 9.0 have no such thing: there it begins after it.
#pragma once

#include "heed/kernels/cuda/device.cuh"

namespace heed::kernels {

// Until what was launched before is over, and what it wrote is there. Every kernel of a chain
// does this before it reads or writes what others do; then the next one may begin.
__device__ inline void await_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// `follows`: it begins early.
template <class... Parameters, class... Arguments>
void launch_in_chain(Cuda device, void (*kernel)(Parameters...), dim3 grid, int threads,
                     size_t shared, bool follows, const Arguments&... arguments) {
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared, config.stream = stream_of(device);
  config.attrs = &early, config.numAttrs = follows && capabilities().early_launch;
  if (shared > 0) allow_shared(kernel, shared);
  if (const cudaError_t error = cudaLaunchKernelEx(&config, kernel, arguments...);
      error != cudaSuccess)
    fail("kernel: cannot be launched on the GPU: ", cudaGetErrorString(error));
}

// Begins when the one before is over.
template <class... Parameters, class... Arguments>
void launch_kernel(Cuda device, void (*kernel)(Parameters...), dim3 grid, int threads,
                   size_t shared, const Arguments&... arguments) {
  launch_in_chain(device, kernel, grid, threads, shared, false, arguments...);
}

}  // namespace heed::kernels
