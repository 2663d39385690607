#include "heed/tensor/cuda.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <sstream>

#include "heed/base/check.h"
#include "heed/kernels/cuda/gemm.h"
#include "heed/kernels/cuda/scratch.h"
#include "heed/tensor/graph.h"

namespace heed {
namespace {

constexpr int kMajor = 9;  // Hopper: its own instructions are what the kernels are built for

bool exact = false;  // products

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail("cuda: ", what, ": ", cudaGetErrorString(error));
}

}  // namespace

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
    if (i == 0 && about.major != kMajor)
      found.trouble = text.str() + ": heed's kernels want compute 9.0 (Hopper: H100, H200, GH200)";
  }
  if (found.names.empty()) found.trouble = "no device found";
  return found;
}

void require_cuda() {
  static const CudaDevices found = cuda_devices();
  require(found.trouble.empty(), "cuda: ", found.trouble, "; use --device cpu");
}

void* cuda_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t s = nullptr;
    check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "no stream");
    return s;
  }();
  return stream;
}

void cuda_synchronize() {
  check(cudaStreamSynchronize(static_cast<cudaStream_t>(cuda_stream())), "a kernel failed");
}

void* cuda_allocate(size_t bytes) {
  void* block = nullptr;
  if (cudaMalloc(&block, bytes) == cudaSuccess) return block;
  cudaGetLastError();  // it has been told
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "memory");
  fail("cuda: out of memory: wanted ", bytes >> 20, " MiB more, ", free >> 20, " of ", total >> 20,
       " MiB are free; a smaller --batch-tokens or --batch needs less");
}

void cuda_free(void* block) { cudaFree(block); }  // nothing to be done if it fails
size_t cuda_scratch_bytes() { return kernels::cuda_scratch_bytes(); }

void copy_to_cuda(const void* host, void* device, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice,
                        static_cast<cudaStream_t>(cuda_stream())),
        "copy to the GPU");
}

void copy_from_cuda(const void* device, void* host, size_t bytes) {
  cannot_be_captured();
  if (bytes > 0)
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost,
                          static_cast<cudaStream_t>(cuda_stream())),
          "copy from the GPU");
  cuda_synchronize();
}

void copy_from_cuda(std::span<const FromCuda> all) {
  cannot_be_captured();
  // Through memory that the GPU can write to by itself.
  static void* block = nullptr;
  static size_t size = 0;
  size_t wanted = 0;
  for (const FromCuda& c : all) wanted += c.bytes;
  if (wanted > size) {
    if (block) cudaFreeHost(block);
    block = nullptr, size = 0;
    check(cudaMallocHost(&block, 2 * wanted), "memory for results");
    size = 2 * wanted;
  }
  std::byte* at = static_cast<std::byte*>(block);
  for (const FromCuda& c : all) {
    if (c.bytes == 0) continue;
    check(cudaMemcpyAsync(at, c.device, c.bytes, cudaMemcpyDeviceToHost,
                          static_cast<cudaStream_t>(cuda_stream())),
          "copy from the GPU");
    at += c.bytes;
  }
  cuda_synchronize();
  at = static_cast<std::byte*>(block);
  for (const FromCuda& c : all) {
    if (c.bytes > 0) std::memcpy(c.host, at, c.bytes);
    at += c.bytes;
  }
}

void set_exact_products(bool on) {
  exact = on;
  kernels::set_exact_products(on);
}
bool exact_products() { return exact; }

}  // namespace heed
