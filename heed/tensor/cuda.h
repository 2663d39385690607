// NVIDIA GPUs of this machine. A link seam: cuda.cpp where the build has CUDA (HEED_CUDA), else
// no_cuda.cpp, which says what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heed/kernels/view.h"

namespace heed {

struct CudaDevices {
  bool built = false;              // was this library built with CUDA?
  std::vector<std::string> names;  // by index: "NVIDIA H200, compute 9.0, 139 GiB"
  std::string trouble;             // why the first cannot be used, in plain words
};
CudaDevices cuda_devices();

// Throws Error, which says what is missing, unless there is a GPU that heed's kernels run on.
void require_cuda(int index = 0);

// A context's GPU (tensor/context.h): its stream, scratch memory, plans of products, uploads and
// captured graphs. Its work runs in the order of its stream: kernels, copies, and what is freed is
// used again only by what comes after.
class Gpu;
std::shared_ptr<Gpu> make_gpu(int index, void* stream);  // null: a stream of its own
void choose_gpu(Gpu& gpu);                               // for this thread's calls of the driver

// All that follows is of the context in use.
kernels::Cuda cuda_device();  // for kernels
void* cuda_stream();
void cuda_synchronize();  // waits; throws Error for what went wrong meanwhile

void* cuda_allocate(size_t bytes);  // throws Error: what was wanted, what is free
void cuda_free(void* block);
size_t cuda_scratch_bytes();  // what kernels have for themselves
void copy_to_cuda(const void* host, void* device, size_t bytes);    // `host` may change at once
void copy_from_cuda(const void* device, void* host, size_t bytes);  // waits
struct FromCuda {
  const void* device;
  void* host;
  size_t bytes;
};
void copy_from_cuda(std::span<const FromCuda> all);  // waits once

// The host's memory where kernels of the device in use write to it as well. What one of them wrote
// is seen once the host has waited for it. Zeros.
std::shared_ptr<void> shared_memory(size_t bytes);

// Reading without waiting: what lies at `device` when all that was launched so far has run, at most
// 16 KiB of it, for one of the next eight tickets to fetch.
int64_t read_later(const void* device, size_t bytes);
void read_now(int64_t ticket, void* host, size_t bytes);  // waits for that, and for nothing after
// Without bytes it waits alone, and the ticket may be as old as it likes.

// While it lives, kernels' scratch memory of the context's GPU is what `lend` gives, aligned to 256
// bytes and theirs until the lender's own work on the same stream: that of another framework, whose
// allocator knows of its captured graphs. Not for matrix products, which keep theirs.
class LentScratch {
 public:
  using Lend = std::function<void*(size_t bytes)>;
  explicit LentScratch(Lend lend);
  ~LentScratch();
  LentScratch(const LentScratch&) = delete;
  LentScratch& operator=(const LentScratch&) = delete;

 private:
  Gpu* gpu_ = nullptr;
};

// f32 products in full f32 instead of tf32: for checks.
void set_exact_products(bool on);
bool exact_products();

// While it lives, what a row gives on the context's GPU does not depend on how many rows are
// computed beside it: so a translation does not depend on its batch.
class SameForAnyRows {
 public:
  SameForAnyRows();
  ~SameForAnyRows();
  SameForAnyRows(const SameForAnyRows&) = delete;
  SameForAnyRows& operator=(const SameForAnyRows&) = delete;

 private:
  Gpu* gpu_ = nullptr;  // if there is one
  bool before_ = false;
};

}  // namespace heed
