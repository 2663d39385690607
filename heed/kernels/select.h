// Some outputs of a weight, side by side: for a product that computes no others. On a CPU.
#pragma once

#include "heed/kernels/int8.h"
#include "heed/kernels/kernels.h"

namespace heed::kernels {

// Column j of y [k, n] is column ids[j] of w.
struct SelectColumns {
  int64_t k, n;
  Matrix<const float> w;
  const Id* ids;
  float* y;
};
void run(Cpu, const SelectColumns&);

// The same of a weight of eight bits, into an Int8Weights' memory. Scales and sums are as long as
// whole blocks.
struct SelectInt8Columns {
  int64_t n;
  Int8Weights w;
  const Id* ids;
  int8_t* blocks;
  float* scales;
  int32_t* sums;
};
void run(Cpu, const SelectInt8Columns&);

}  // namespace heed::kernels
