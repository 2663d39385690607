// The kernels of a decoder that reads its source before every step (ops/decoder.h), in bf16 on a
// GPU. B sentences, T steps, Tk keys, states of n, keys of a numbers; arrays of all steps are
// [B, T, ..], so that step t of sentence b is row b T + t.
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

// c = a b for few rows, where one launch must fill the GPU: the sum over k is cut into slices of
// kSlice, and the slices of c [slices, m, n] are left to be added up by who reads them. a [m, k]
// has rows `a_row` apart; b is [k, n] or, turned, [n, k]. n is a multiple of 32, k of 64, rows are
// aligned to 16 bytes.
struct SlicedProduct {
  static constexpr int64_t kSlice = 512;
  static constexpr int64_t slices(int64_t k) { return (k + kSlice - 1) / kSlice; }
  int64_t m, n, k;
  const bf16* a;
  int64_t a_row;
  const bf16* b;
  bool turned;
  float* c;
  bool follows;  // the launch before is a step of the same decoder, which does not write b
};
void run(Cuda, const SlicedProduct&);

struct DecoderSizes {
  int64_t batch, steps, keys, size, key_size;  // B, T, Tk, n, a
  const Id* range;                             // [B, 2]: the keys that are seen; null: all
  const bf16 *k, *value;                       // [B, Tk, a], [B, Tk, 3 n]
  const float* v;                              // [a]
};

// Step t, from [q | u] = h_{t-1} [W U], in `slices`, on:
//   w = softmax_j(v . tanh(q + k_j)),  gates = x + sum_j w_j value_j,  h_t = gru(gates, u + bias).
struct DecoderStep {
  DecoderSizes s;
  int64_t step, slices;
  const float* qu;       // [slices, B, a + 3 n]
  const bf16 *x, *bias;  // [B, T, 3 n], [3 n]
  float* state;          // [B, n]: h_{t-1}, which becomes h_t; it is not rounded on its way
  bf16* q;               // [B, T, a]
  bf16 *before, *h;      // [B, T, n]: h_{t-1} and h_t of every step
  float* gates;          // [B, T, 4 n]: r, z, c and u_c
  float* weights;        // [B, T, Tk]
};                       // The launch before is its SlicedProduct.
void run(Cuda, const DecoderStep&);

// The way back of step t. The gradient of h_t is `dh` plus the sum of `carried`, of which the first
// plane is then what goes around the cell to h_{t-1}; what goes through [W U], [dq | du] [W U]^T,
// is the others', and left to SlicedProduct.
struct DecoderStepGrad {
  DecoderSizes s;
  int64_t step, planes;
  const bf16 *q, *before;
  const float *gates, *weights;
  const bf16* dh;         // [B, T, n]
  const float* dweights;  // [B, T, Tk], or null: nothing else reads the weights
  float* carried;         // [planes, B, n]
  bf16 *dx, *dqu;         // [B, T, 3 n], [B, T, a + 3 n]
  float* slopes;          // [B, T, Tk]: of the scores
  bool follows;           // the launch before is the product of step t + 1
};
void run(Cuda, const DecoderStepGrad&);

// Whether both can: sizes are multiples of 64, and there is room for the keys' weights.
bool fits(Cuda, const DecoderSizes&);

}  // namespace heed::kernels
