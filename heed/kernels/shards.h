// What ranks need that share out a sum of gradients (training/shards.h): squares by blocks, which
// can be added up in one order wherever they were computed; and parameters that came from others.
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

// y[b] = the sum of the squares of x's block b, so many elements counted from its first, for many
// arrays at once.
inline constexpr int kSquaresBlock = 4096;
template <class T>
struct BlockSquaresPart {
  int64_t n;
  const T* x;
  T* y;
};
template <class T>
struct BlockSquares {
  int count;
  BlockSquaresPart<T> part[kMaxParts];
};
HEED_F32_KERNEL(BlockSquares);

// *sum = the sum of x [n], in double.
template <class T>
struct Total {
  int64_t n;
  const T* x;
  double* sum;
};
HEED_F32_KERNEL(Total);

// y = x and, where there is one, compute_copy = y in bf16, for many arrays at once. For a GPU.
struct TakePart {
  int64_t n;
  const float* x;
  float* y;
  bf16* compute_copy;
};
struct TakeParts {
  int count;
  TakePart part[kMaxParts];
};
void run(Cuda, const TakeParts&);

}  // namespace heed::kernels
