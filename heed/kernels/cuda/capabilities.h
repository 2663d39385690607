// What kernels may count on: of the GPU in use, and of the code that runs there. The one table that
// they are chosen by; whoever has a choice asks here, and nobody asks the driver.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace heed::kernels {

struct Capabilities {
  int compute = 0;  // of the GPU, times ten: 80, 86, 89, 90, 100, 120
  int code = 0;     // the same of what its code was compiled for: it may be PTX of an older one
  int multiprocessors = 0;
  size_t shared = 0;          // bytes of shared memory that a block can have
  bool cooperative = false;   // blocks of one launch may wait for each other (sequence.cu)
  bool early_launch = false;  // programmatic dependent launch, from 9.0 on (decoder.cu)
  bool wgmma = false;         // warpgroup MMA, TMA and setmaxnreg: 9.0 alone (dot_wgmma*.cu)
};

// Of this thread's GPU. HEED_CUDA_LIKE=8.0, 8.6 or 8.9 makes of a larger one an A100, an A10 or an
// L4, as far as heed's kernels can see: for tests.
const Capabilities& capabilities();

// What every GPU has that heed runs on.
inline constexpr size_t kLeastShared = size_t{99} << 10;
// What a kernel asks for at most that also has small arrays of its own.
inline size_t most_shared() { return capabilities().shared - (size_t{2} << 10); }
inline int multiprocessors() { return capabilities().multiprocessors; }

// What the kernels were compiled for, as CMake has it: "90a-real 80-virtual".
std::string_view architectures();
// Why none of those runs on such a GPU, or nothing where one does. Machine code runs on its own
// kind from its number on (of 90a on 9.0 alone), PTX on all that are as new.
std::string refusal(std::string_view architectures, int compute);

}  // namespace heed::kernels
