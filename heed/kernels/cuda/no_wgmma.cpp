// Where no kernel is compiled for 9.0: attention without warpgroup MMA.
#include "heed/base/check.h"
#include "heed/kernels/cuda/dot.h"

namespace heed::kernels {

bool wgmma_is_there() { return false; }
void wgmma_attention(Cuda, const Attention<bf16>&) { fail("attention: built without wgmma"); }
void wgmma_attention_grad(Cuda, const AttentionGrad<bf16>&) {
  fail("attention: built without wgmma");
}

}  // namespace heed::kernels
