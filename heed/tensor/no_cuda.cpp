#include "heed/base/check.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/graph.h"

namespace heed {
namespace {

[[noreturn]] void missing() {
  fail("cuda: this heed was built without it; build with 'make cuda', or use --device cpu");
}

}  // namespace

CudaDevices cuda_devices() { return {}; }
void require_cuda(int) { missing(); }
class Gpu {};
std::shared_ptr<Gpu> make_gpu(int, void*) { missing(); }
void choose_gpu(Gpu&) {}
kernels::Cuda cuda_device() { missing(); }
void* cuda_stream() { missing(); }
void cuda_synchronize() {}
void* cuda_allocate(size_t) { missing(); }
void cuda_free(void*) {}
size_t cuda_scratch_bytes() { return 0; }
void copy_to_cuda(const void*, void*, size_t) { missing(); }
void copy_from_cuda(const void*, void*, size_t) { missing(); }
void copy_from_cuda(std::span<const FromCuda>) { missing(); }
std::shared_ptr<void> shared_memory(size_t bytes) {
  return std::shared_ptr<std::byte[]>(new std::byte[bytes]());
}
int64_t read_later(const void*, size_t) { missing(); }
void read_now(int64_t, void*, size_t) { missing(); }
LentScratch::LentScratch(Lend) { missing(); }
LentScratch::~LentScratch() = default;
void set_exact_products(bool) {}
bool exact_products() { return true; }
SameForAnyRows::SameForAnyRows() = default;
SameForAnyRows::~SameForAnyRows() = default;

struct StepGraphs::Inside {};
StepGraphs::StepGraphs(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}
StepGraphs::~StepGraphs() = default;
void StepGraphs::run(const Shape&, const std::function<void()>& body) {
  const UseArena use(*arena_);
  body();
}
bool StepGraphs::repeat(const Shape&) { return false; }
void cannot_be_captured() {}
bool kernels_left_out() { return false; }
void* graph_upload(const void*, size_t) { return nullptr; }

}  // namespace heed
