// Products of operands in bf16 with sums in f32, y = f(x W + b), on a CPU: for inference, with
// weights that lie there in bf16, and for training, where both operands are rounded on the way in.
//
// x and W are rounded to the nearest bf16 (ties to even; what is smaller than a normal number is
// 0). A product of two bf16 is exact in f32. An element of y is one chain of f32 additions along k,
// in pairs, the second of each pair first: that is what VDPBF16PS does, and what the other
// instruction sets do here step by step. So there is one order of sums, whatever the number of
// rows, the threads, the blocks and the instruction set, and results have the same bits, but for
// those below the smallest normal number, 1.2e-38, which VDPBF16PS makes 0.
//
// Panels: 64 outputs side by side (the last has what is left, rounded up to 16), two steps of k in
// a row; with w the panel's width, o0 its first output and depth = k rounded up to 32:
//   panels[o0 * depth + (i / 2 * w + o - o0) * 2 + i % 2] = W[i][o]
// What is beyond k and n is 0.
#pragma once

#include <optional>

#include "heed/kernels/kernels.h"

namespace heed::kernels {

constexpr int64_t bf16_depth(int64_t k) { return (k + 31) / 32 * 32; }
constexpr int64_t bf16_count(int64_t k, int64_t n) { return bf16_depth(k) * ((n + 15) / 16 * 16); }

struct Bf16Weights {
  int64_t k = 0, n = 0;
  const bf16* panels = nullptr;  // bf16_count(k, n), 64-byte aligned
};

// How sums are made. VDPBF16PS (AVX-512 BF16) takes two products a lane; the others widen weights
// to f32 as they read them, so that these still take half the memory.
enum class Bf16Path { plain, avx2, avx512 };
bool runs_here(Bf16Path path);
const char* name(Bf16Path path);

// w [k, n], one of whose strides is 1, into a Bf16Weights' memory.
struct PackBf16 {
  int64_t k, n;
  Matrix<const float> w;
  bf16* panels;
  std::optional<Bf16Path> path = {};  // not given: the fastest here
};
void run(Cpu, const PackBf16&);

// y [m, n] = f(x W + b) or, with `accumulate`, y + x W + b; x [m, k], one of whose strides is 1.
struct Bf16Matmul {
  int64_t m = 0;
  Matrix<const float> x = {};
  Bf16Weights w;
  const float* bias = nullptr;  // [n]
  bool relu = false, accumulate = false;
  float* y = nullptr;
  int64_t y_row = 0;
  std::optional<Bf16Path> path = {};
};
void run(Cpu, const Bf16Matmul&);

// The same with weights that are packed for this one product: w [k, n] in f32, one of whose strides
// is 1.
struct Bf16Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix<const float> x = {}, w = {};
  const float* bias = nullptr;
  bool relu = false, accumulate = false;
  float* y = nullptr;
  int64_t y_row = 0;
  std::optional<Bf16Path> path = {};
};
void run(Cpu, const Bf16Product&);

// Row i of y [count, k] = column id[i] of W, in f32: the table of an embedding, whose vectors are
// the columns of the output weights.
struct Bf16Columns {
  int64_t count;
  const Id* ids;  // each below n
  Bf16Weights w;
  float* y;
};
void run(Cpu, const Bf16Columns&);

// ---- on a GPU

// y [m, n] = x W + bias, through relu if wanted, for `items` weights [k, n] and biases that lie
// evenly apart, y [items, m, n]. x [m, k] is rounded to bf16, sums are f32 and have an order that k
// alone says. W lies as matrices do, one of its strides being 1, k and rows or columns of W at
// multiples of 16 bytes (bf16_lies_well()).
template <class X, class Y>
struct Bf16Rows {
  int64_t m = 0, n = 0, k = 0;
  const X* x = nullptr;
  Matrix<const bf16> w = {};
  const float* bias = nullptr;  // [n]
  bool relu = false;
  Y* y = nullptr;
  int64_t items = 1, w_step = 0, bias_step = 0;
};
void run(Cuda, const Bf16Rows<float, float>&);
void run(Cuda, const Bf16Rows<float, bf16>&);  // y for another such product
void run(Cuda, const Bf16Rows<bf16, float>&);
void run(Cuda, const Bf16Rows<bf16, bf16>&);

// A norm, forward and without dropout, whose result is rounded to bf16 for products that would
// round it: norm.y is not written.
struct Bf16Norm {
  Norm<float> norm;
  bf16* y;
};
void run(Cuda, const Bf16Norm&);

// Row i of y [count, n] = row id[i] of a table [.., n], in f32.
struct Bf16Gather {
  int64_t count, n;
  const bf16* table;
  const Id* id;
  float* y;
};
void run(Cuda, const Bf16Gather&);

}  // namespace heed::kernels
