#include "heed/tensor/cuda.h"

#include <cuda_runtime_api.h>

#include <sstream>

#include "heed/base/check.h"
#include "heed/kernels/cuda/gemm.h"
#include "heed/kernels/cuda/scratch.h"
#include "heed/tensor/graph.h"

namespace heed {
namespace {

constexpr int kOldest = 9;  // Hopper: its instructions are what the kernels are built for

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
    if (i == 0 && about.major < kOldest)
      found.trouble = text.str() + ": heed's kernels want compute 9.0 (Hopper) or newer";
  }
  if (found.names.empty()) found.trouble = "no device found";
  return found;
}

void require_cuda() {
  static const CudaDevices found = cuda_devices();
  require(found.trouble.empty(), "cuda: ", found.trouble, "; use --device cpu");
}

namespace {

cudaStream_t new_stream() {
  cudaStream_t s = nullptr;
  check(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "no stream");
  return s;
}

// Makes one stream wait for what the other has been given so far.
void wait_for(cudaStream_t waiting, cudaStream_t other) {
  static const cudaEvent_t event = [] {
    cudaEvent_t e = nullptr;
    check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "no event");
    return e;
  }();
  check(cudaEventRecord(event, other), "event");
  check(cudaStreamWaitEvent(waiting, event, 0), "event");
}

cudaStream_t main_stream() {
  static const cudaStream_t stream = new_stream();
  return stream;
}
cudaStream_t second_stream() {
  static const cudaStream_t stream = new_stream();
  return stream;
}

thread_local bool is_beside = false, to_be_joined = false;

}  // namespace

void* cuda_stream() { return is_beside ? second_stream() : main_stream(); }

Beside::Beside() {
  if (!kernels_left_out()) wait_for(second_stream(), main_stream());
  is_beside = to_be_joined = true;
  kernels::use_second_scratch(true);
}
Beside::~Beside() {
  is_beside = false;
  kernels::use_second_scratch(false);
}

void join_beside() {
  if (to_be_joined && !kernels_left_out()) wait_for(main_stream(), second_stream());
  to_be_joined = false;
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

void copy_to_cuda(const void* host, void* device, size_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice,
                        static_cast<cudaStream_t>(cuda_stream())),
        "copy to the GPU");
}

void copy_from_cuda(const void* device, void* host, size_t bytes) {
  if (bytes > 0)
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost,
                          static_cast<cudaStream_t>(cuda_stream())),
          "copy from the GPU");
  cuda_synchronize();
}

void set_exact_products(bool on) {
  exact = on;
  kernels::set_exact_products(on);
}
bool exact_products() { return exact; }

}  // namespace heed
