// Results into a given tensor, for ops that are made of several steps (cross entropy, recurrent
// cells) and for the tape. Nothing here is recorded; the caller checks shapes.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <optional>

#include "heed/ops/ops.h"

namespace heed {

struct ProductOptions {
  bool accumulate = false;  // c += a b instead of c = a b
  std::optional<Tensor> bias = {};
  Activation activation = Activation::none;
  std::optional<Tensor> packed_b = {};  // b by packed()
};

// c = f(a b + bias): a [.., M, K], b [.., K, N], c [.., M, N] whose last stride is 1; 2 to 4 axes.
// c has the type of a and b or, for bf16, f32.
void multiply(const char* op, const Tensor& a, const Tensor& b, const Tensor& c,
              const ProductOptions& options = {});

// b [K, N] laid out as products read it: worth it for a matrix that is used many times.
Tensor packed(const char* op, const Tensor& b);

// y = x and y += x: two tensors of one shape, with any strides.
void copy_into(const Tensor& x, const Tensor& y);
void add_into(const Tensor& x, const Tensor& y);

// y = a y + b x, both contiguous.
void blend(const Tensor& y, double a, const Tensor& x, double b);

}  // namespace heed
