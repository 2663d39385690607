// A decoder that reads its source before every step (Bahdanau et al., 2015), with a gru, all steps
// of a known target (teacher forcing) as one op: in bf16, on a GPU.
//
//   w_t = softmax_j(v . tanh(h_{t-1} W + k_j)),   h_t = gru(x_t + sum_j w_tj value_j, h_{t-1})
//
// What is read is what the source adds to the gates: values (enc C) instead of (values enc) C. So a
// step has one product with h_{t-1}, [W U], and what is read as such, sum_j w_tj enc_j, is one
// product for all steps after the last.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <span>

#include "heed/ops/ops.h"

namespace heed {

struct Decode {
  Tensor x;                     // [B, T, 3 n]: the target tokens' part of the gates
  Tensor h;                     // [B, n]: the state before the first step
  Tensor keys, values;          // [B, Tk, a], [B, Tk, 3 n]
  std::span<const Id> lengths;  // [B]: keys after them are not seen
  Tensor w, v;                  // [n, a] or [1, n, a]; [1, a] in f32
  Tensor u, bias;               // [n, 3 n], [3 n]
};
struct Decoded {
  Tensor h;        // [B, T, n]: the state after each step
  Tensor weights;  // [B, T, Tk], f32
};
Decoded decode(const Decode& d);

// n and a that it is made for.
constexpr bool decodes(int64_t n) { return n > 0 && n % 64 == 0 && n <= 4096; }

}  // namespace heed
