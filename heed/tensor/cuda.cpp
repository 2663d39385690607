#include "heed/tensor/cuda.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <sstream>
#include <utility>

#include "heed/base/check.h"
#include "heed/kernels/cuda/capabilities.h"
#include "heed/tensor/context.h"
#include "heed/tensor/gpu.h"
#include "heed/tensor/graph.h"

namespace heed {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail("cuda: ", what, ": ", cudaGetErrorString(error));
}

}  // namespace

namespace {

std::string described(const cudaDeviceProp& about) {
  std::ostringstream text;
  text << about.name << ", compute " << about.major << '.' << about.minor << ", "
       << (about.totalGlobalMem >> 30) << " GiB";
  return text.str();
}

// What CUDA says of a machine without a GPU or its driver helps nobody who has none.
std::string words_of(cudaError_t error) {
  if (error == cudaErrorNoDevice) return "no NVIDIA GPU on this machine";
  if (error == cudaErrorInsufficientDriver)
    return "no NVIDIA GPU or driver on this machine, or a driver older than heed's CUDA";
  return cudaGetErrorString(error);
}

// Why GPU `index` cannot be used, or nothing.
std::string trouble_of(int index, int count) {
  if (count == 0) return "no device found";
  if (index < 0 || index >= count)
    return "no GPU " + std::to_string(index) + "; there are " + std::to_string(count);
  cudaDeviceProp about{};
  if (const cudaError_t error = cudaGetDeviceProperties(&about, index); error != cudaSuccess)
    return cudaGetErrorString(error);
  const std::string why =
      kernels::refusal(kernels::architectures(), 10 * about.major + about.minor);
  return why.empty() ? "" : described(about) + ": " + why;
}

}  // namespace

CudaDevices cuda_devices() {
  CudaDevices found{.built = true, .names = {}, .trouble = {}};
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    found.trouble = words_of(error);
    return found;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp about{};
    if (cudaGetDeviceProperties(&about, i) == cudaSuccess) found.names.push_back(described(about));
  }
  found.trouble = trouble_of(0, count);
  return found;
}

void require_cuda(int index) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  const std::string trouble = error == cudaSuccess ? trouble_of(index, count) : words_of(error);
  require(trouble.empty(), "cuda: ", trouble, "; use --device cpu");
}

// ---- a context's GPU

Gpu::Gpu(int which, void* foreign_stream)
    : index(which), stream(static_cast<cudaStream_t>(foreign_stream)), own_stream(!foreign_stream) {
  int before = 0;
  check(cudaGetDevice(&before), "no GPU");
  check(cudaSetDevice(index), "no such GPU");
  if (own_stream) check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no stream");
  check(cudaSetDevice(before), "no GPU");
}

Gpu::~Gpu() {
  int before = 0;
  cudaGetDevice(&before);
  cudaSetDevice(index);
  cudaStreamSynchronize(stream);
  for (std::byte* block : uploads.host) cudaFreeHost(block);
  for (cudaEvent_t event : uploads.read)
    if (event) cudaEventDestroy(event);
  cudaFree(uploads.device);
  cudaFreeHost(ring.host);
  for (cudaEvent_t event : ring.done)
    if (event) cudaEventDestroy(event);
  cudaFreeHost(pinned);
  if (own_stream) cudaStreamDestroy(stream);
  cudaSetDevice(before);
}

std::shared_ptr<Gpu> make_gpu(int index, void* stream) {
  require_cuda(index);
  return std::make_shared<Gpu>(index, stream);
}
void choose_gpu(Gpu& gpu) { check(cudaSetDevice(gpu.index), "no such GPU"); }
Gpu& current_gpu() { return Context::current().gpu(); }

kernels::Cuda cuda_device() {
  Gpu& gpu = current_gpu();
  return {gpu.stream, &gpu.kernels};
}
void* cuda_stream() { return current_gpu().stream; }

void cuda_synchronize() { check(cudaStreamSynchronize(current_gpu().stream), "a kernel failed"); }

void* cuda_allocate(size_t bytes) {
  void* block = nullptr;
  if (cudaMalloc(&block, bytes) == cudaSuccess) return block;
  cudaGetLastError();  // it has been told
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "memory");
  fail<OutOfMemory>("cuda: out of memory: wanted ", bytes >> 20, " MiB more, ", free >> 20, " of ",
                    total >> 20, " MiB are free; a smaller --batch-tokens or --batch needs less");
}

void cuda_free(void* block) { cudaFree(block); }  // nothing to be done if it fails
size_t cuda_scratch_bytes() { return current_gpu().kernels.scratch_bytes(); }

void copy_to_cuda(const void* host, void* device, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, current_gpu().stream),
        "copy to the GPU");
}

void copy_from_cuda(const void* device, void* host, size_t bytes) {
  cannot_be_captured();
  if (bytes > 0)
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, current_gpu().stream),
          "copy from the GPU");
  cuda_synchronize();
}

void copy_from_cuda(std::span<const FromCuda> all) {
  cannot_be_captured();
  // Through memory that the GPU can write to by itself.
  Gpu& gpu = current_gpu();
  size_t wanted = 0;
  for (const FromCuda& c : all) wanted += c.bytes;
  if (wanted > gpu.pinned_bytes) {
    if (gpu.pinned) cudaFreeHost(gpu.pinned);
    gpu.pinned = nullptr, gpu.pinned_bytes = 0;
    check(cudaMallocHost(&gpu.pinned, 2 * wanted), "memory for results");
    gpu.pinned_bytes = 2 * wanted;
  }
  std::byte* at = static_cast<std::byte*>(gpu.pinned);
  for (const FromCuda& c : all) {
    if (c.bytes == 0) continue;
    check(cudaMemcpyAsync(at, c.device, c.bytes, cudaMemcpyDeviceToHost, current_gpu().stream),
          "copy from the GPU");
    at += c.bytes;
  }
  cuda_synchronize();
  at = static_cast<std::byte*>(gpu.pinned);
  for (const FromCuda& c : all) {
    if (c.bytes > 0) std::memcpy(c.host, at, c.bytes);
    at += c.bytes;
  }
}

LentScratch::LentScratch(Lend lend) : gpu_(&current_gpu()) {
  gpu_->kernels.lender = std::move(lend);
}
LentScratch::~LentScratch() { gpu_->kernels.lender = nullptr; }

std::shared_ptr<void> shared_memory(size_t bytes) {
  if (current_arena().device() != Device::cuda)
    return std::shared_ptr<std::byte[]>(new std::byte[bytes]());
  void* block = nullptr;
  check(cudaMallocHost(&block, bytes), "memory for results");
  std::memset(block, 0, bytes);
  return {block, [](void* mine) { cudaFreeHost(mine); }};
}

void set_exact_products(bool on) { current_gpu().kernels.exact_products = on; }
bool exact_products() { return current_gpu().kernels.exact_products; }

SameForAnyRows::SameForAnyRows() {
  if (current_arena().device() != Device::cuda) return;
  gpu_ = &current_gpu();
  before_ = std::exchange(gpu_->kernels.same_for_any_rows, true);
}
SameForAnyRows::~SameForAnyRows() {
  if (gpu_) gpu_->kernels.same_for_any_rows = before_;
}

}  // namespace heed
