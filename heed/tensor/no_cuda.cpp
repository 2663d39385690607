#include "heed/base/check.h"
#include "heed/tensor/cuda.h"

namespace heed {
namespace {

[[noreturn]] void missing() {
  fail("cuda: this heed was built without it; build with 'make cuda', or use --device cpu");
}

}  // namespace

CudaDevices cuda_devices() { return {}; }
void require_cuda() { missing(); }
void* cuda_stream() { missing(); }
void cuda_synchronize() {}
void* cuda_allocate(size_t) { missing(); }
void cuda_free(void*) {}
void copy_to_cuda(const void*, void*, size_t) { missing(); }
void copy_from_cuda(const void*, void*, size_t) { missing(); }
void set_exact_products(bool) {}

}  // namespace heed
