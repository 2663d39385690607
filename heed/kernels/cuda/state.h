// What the kernels of one stream keep between launches: scratch memory, and the handles and plans
// of matrix products. It belongs to a context (tensor/context.h) and serves one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "heed/kernels/view.h"

namespace heed::kernels {

class CudaState {
 public:
  CudaState();
  ~CudaState();  // nothing runs on the stream any more
  CudaState(const CudaState&) = delete;
  CudaState& operator=(const CudaState&) = delete;

  // Memory of the GPU that a kernel needs while it runs: one block, which all kernels of the stream
  // use in turn. At least `bytes`, aligned to 256; what a run() leaves there is gone with the next
  // one. Grows; what was given out before stays valid, since a captured graph may still name it.
  void* scratch(size_t bytes);
  size_t scratch_bytes() const;  // all that was taken for it
  // Gives that memory instead, where it is set (tensor/cuda.h, LentScratch).
  std::function<void*(size_t bytes)> lender;

  bool exact_products = false;  // f32 products in full f32 instead of tf32: for checks
  bool same_for_any_rows = false;  // a row of one depends on no other row (rows_product.h)

  struct Products;  // gemm.cpp
  Products& products();

 private:
  struct Block {
    void* data;
    size_t size;
  };
  std::vector<Block> blocks_;  // the last one is in use
  std::shared_ptr<Products> products_;
};

inline void* cuda_scratch(Cuda device, size_t bytes) { return device.state->scratch(bytes); }

}  // namespace heed::kernels
