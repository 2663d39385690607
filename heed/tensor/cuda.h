// The NVIDIA GPUs of this machine. A link seam: cuda.cpp where the build has CUDA (HEED_CUDA), else
// no_cuda.cpp.
#pragma once

#include <string>
#include <vector>

namespace heed {

struct CudaDevices {
  bool built = false;              // was this library built with CUDA?
  std::vector<std::string> names;  // "NVIDIA H200, compute 9.0, 139 GiB"
  std::string trouble;             // why there are none, in the driver's words
};
CudaDevices cuda_devices();

}  // namespace heed
