// Some outputs of a linear layer, for inference on a CPU: where few of many are wanted, as words of
// a shortlist are, no product is made with the others.
//
// Threads: what is made never changes; it may be called from any number at once.
#pragma once

#include <optional>
#include <span>

#include "heed/ops/ops.h"

namespace heed {

class OutputColumns {
 public:
  // Of w [K, N], f32, i8 (ops/int8.h) or bf16 (ops/bf16.h), also transposed, and a bias [N], the
  // columns `ids`: at least one, each below N. In memory of the arena in use, laid out for
  // products.
  OutputColumns(const Tensor& w, const std::optional<Tensor>& bias, std::span<const Id> ids);

  // x [rows, K] to [rows, number of ids]: the bits that linear(x, w, bias) has there, whatever else
  // is among the ids. No gradient.
  Tensor operator()(const Tensor& x) const;

 private:
  int64_t count_;
  Tensor weight_;  // [K, n]: of f32 as packed() has it, to be read by `packed_` alone
  std::optional<Tensor> packed_;  // of f32
  std::optional<Tensor> bias_;    // [n]
};

}  // namespace heed
