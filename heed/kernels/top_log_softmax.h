// The largest of log softmax(x) by row: what a search asks of a step's scores, in one pass.
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

// The k largest of log softmax(x) in falling order, and where they stand, of equals the first; and
// the logarithm of each row's sum of exponentials, by which x is more. Where that is no number,
// nothing is found: values of -inf.
struct TopLogSoftmax {
  int64_t rows, n, k;
  const float* x;
  float* value;
  Id* index;
  float* log_sum;  // [rows]
};
void run(Cpu, const TopLogSoftmax&);
void run(Cuda, const TopLogSoftmax&);   // of kMostTop at most
bool fits(Cuda, const TopLogSoftmax&);  // in the shared memory of this thread's GPU
inline constexpr int64_t kMostTop = 64;

}  // namespace heed::kernels
