#include "heed/kernels/cuda/capabilities.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "heed/base/check.h"
#include "heed/kernels/cuda/dot.h"

namespace heed::kernels {
namespace {

// Compiled as most kernels are: asked for what its code is of.
__global__ void of_all() {}

void check(cudaError_t error) {
  if (error != cudaSuccess)
    fail("cuda: the GPU does not say what it offers: ", cudaGetErrorString(error));
}

// What HEED_CUDA_LIKE makes of a larger GPU.
struct Like {
  std::string_view name;
  int compute, multiprocessors;
  size_t shared;
};
constexpr Like kLike[] = {{"8.0", 80, 108, size_t{163} << 10},
                          {"8.6", 86, 72, size_t{99} << 10},
                          {"8.9", 89, 58, size_t{99} << 10}};

Capabilities read(int device) {
  const auto attribute = [&](cudaDeviceAttr name) {
    int found = 0;
    check(cudaDeviceGetAttribute(&found, name, device));
    return found;
  };
  cudaFuncAttributes about{};
  if (const cudaError_t error = cudaFuncGetAttributes(&about, of_all); error != cudaSuccess)
    fail("cuda: kernels compiled for ", architectures(),
         " do not run here: ", cudaGetErrorString(error));
  Capabilities c{.compute = 10 * attribute(cudaDevAttrComputeCapabilityMajor) +
                            attribute(cudaDevAttrComputeCapabilityMinor),
                 .code = about.ptxVersion,
                 .multiprocessors = attribute(cudaDevAttrMultiProcessorCount),
                 .shared = static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
                 .cooperative = attribute(cudaDevAttrCooperativeLaunch) != 0};
  if (const char* const wanted = std::getenv("HEED_CUDA_LIKE")) {
    const auto like = std::ranges::find(kLike, std::string_view(wanted), &Like::name);
    require(like != std::end(kLike), "HEED_CUDA_LIKE: given '", wanted,
            "', wanted 8.0, 8.6 or 8.9");
    c.compute = std::min(c.compute, like->compute);
    c.multiprocessors = std::min(c.multiprocessors, like->multiprocessors);
    c.shared = std::min(c.shared, like->shared);
  }
  c.early_launch = std::min(c.compute, c.code) >= 90;
  c.wgmma = c.compute == 90 && wgmma_is_there();
  return c;
}

}  // namespace

const Capabilities& capabilities() {
  constexpr int kMost = 64;  // GPUs of a machine
  static std::once_flag known[kMost];
  static Capabilities all[kMost];
  int device = 0;
  check(cudaGetDevice(&device));
  require(device < kMost, "cuda: given GPU ", device, ", wanted one of the first ", kMost);
  std::call_once(known[device], [&] { all[device] = read(device); });
  return all[device];
}

std::string_view architectures() { return HEED_CUDA_ARCHITECTURES; }

std::string refusal(std::string_view architectures, int compute) {
  if (compute < 80) return "heed's kernels want compute 8.0 or later (Ampere or newer)";
  const auto runs = [&](std::string_view one) {
    const std::string digits(one.substr(0, one.find_first_not_of("0123456789")));
    if (digits.empty()) return false;
    const int number = std::stoi(digits);
    if (one.substr(digits.size()).starts_with('a')) return number == compute;
    const bool ptx = !one.ends_with("-real"), machine_code = !one.ends_with("-virtual");
    return number <= compute && (ptx || (machine_code && number / 10 == compute / 10));
  };
  for (std::string_view left = architectures; !left.empty();) {
    const size_t end = std::min(left.find(' '), left.size());
    if (runs(left.substr(0, end))) return "";
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return "this heed was built for " + std::string(architectures) +
         "; build it where the GPU is, or with the preset cuda-all";
}

}  // namespace heed::kernels
