#include "heed/tensor/cuda.h"

#include <cuda_runtime_api.h>

#include <sstream>

namespace heed {

CudaDevices cuda_devices() {
  CudaDevices found{.built = true, .names = {}, .trouble = {}};
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    found.trouble = cudaGetErrorString(error);
    return found;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp about{};
    if (cudaGetDeviceProperties(&about, i) != cudaSuccess) continue;
    std::ostringstream text;
    text << about.name << ", compute " << about.major << '.' << about.minor << ", "
         << (about.totalGlobalMem >> 30) << " GiB";
    found.names.push_back(text.str());
  }
  if (found.names.empty()) found.trouble = "no device found";
  return found;
}

}  // namespace heed
