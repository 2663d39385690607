// Products with weights of eight bits: y = f(x W + b), for inference on a CPU.
//
// W [k, n] is kept as whole numbers from -127 to 127 with a scale for each output, the largest
// magnitude of its column / 127; each row of x gets a scale of its own on the way in, in the same
// way. Products and their sums are whole numbers, so they are exact: the same bits on every
// instruction set, for any batch and any number of threads. What follows, one conversion, two
// multiplications and one addition for each output, is rounded step by step (no fused
// multiply-add), so that it is the same everywhere too.
//
// Blocks: 16 outputs side by side, four steps of k in a row:
//   blocks[((o / 16 * (depth / 4) + i / 4) * 16 + o % 16) * 4 + i % 4] = W[i][o] / scale[o],
//   rounded
// with depth = k rounded up to 64; what is beyond k and n is 0. AMX, VNNI and AVX2 all read this
// one layout as it stands, so it can lie in a file.
#pragma once

#include <optional>
#include <span>

#include "heed/kernels/kernels.h"

namespace heed::kernels {

constexpr int64_t int8_depth(int64_t k) { return (k + 63) / 64 * 64; }
constexpr int64_t int8_bytes(int64_t k, int64_t n) { return int8_depth(k) * ((n + 15) / 16 * 16); }

struct Int8Weights {
  int64_t k = 0, n = 0;
  const int8_t* blocks = nullptr;  // int8_bytes(k, n), 64-byte aligned
  const float* scales = nullptr;   // [n]
  const int32_t* sums = nullptr;   // [n]: of each column
};

// w [k, n] with any strides, into an Int8Weights' memory.
struct QuantizeWeights {
  int64_t k, n;
  Matrix<const float> w;
  int8_t* blocks;
  float* scales;
  int32_t* sums;
};
void run(Cpu, const QuantizeWeights&);

// How sums are made; all give the same bits.
enum class Int8Path { plain, avx2, vnni, amx };
bool runs_here(Int8Path path);
const char* name(Int8Path path);

// y [m, n] = f(x W + b); rows of x and y have unit column stride. A row of x that is not finite
// makes a row of NaN.
struct Int8Matmul {
  int64_t m;
  const float* x;
  int64_t x_row;
  Int8Weights w;
  const float* bias = nullptr;  // [n]
  bool relu = false;
  float* y;
  int64_t y_row;
  std::optional<Int8Path> path = {};  // not given: the fastest here for so many rows
};
void run(Cpu, const Int8Matmul&);

// Several with the same x, which is quantized once.
struct Int8MatmulEach {
  std::span<const Int8Matmul> each;  // at least one
};
void run(Cpu, const Int8MatmulEach&);

// Row i of y [count, k] = column id[i] of W, in f32: the table of an embedding, whose vectors are
// the columns of the output weights.
struct Int8Columns {
  int64_t count;
  const Id* ids;  // each below n
  Int8Weights w;
  float* y;
};
void run(Cpu, const Int8Columns&);

}  // namespace heed::kernels
