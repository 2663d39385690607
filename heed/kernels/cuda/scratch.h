// The workspace of the GPU's kernels, scratch memory that one needs while it runs: one block, which
// all kernels of the stream use in turn. What a run() leaves there is gone with the next one.
#pragma once

#include <cstddef>

namespace heed::kernels {

// At least `bytes`, aligned to 256. Grows; what was given out before stays valid, since a captured
// graph may still name it.
void* cuda_scratch(size_t bytes);
size_t cuda_scratch_bytes();  // all that was taken for it

}  // namespace heed::kernels
