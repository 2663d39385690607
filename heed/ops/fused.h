// Fused attention without a tape: for who records gradients himself, such as an op of another
// framework. All memory is the caller's. ops.h has the recorded one.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <optional>

#include "heed/ops/ops.h"

namespace heed {

// What the backward pass needs of the forward pass, and is written by it.
struct FusedSaved {
  Tensor context;  // [B, H, Tq, m], as q is; its last axis has stride 1
  Tensor lse;      // [B, H, Tq], contiguous: log-sum-exp of each row
};

// Writes what fused_attention() gives. `attention` has neither dropout nor wanted weights.
void fused_attention_into(const FusedAttention& attention, const FusedSaved& into);

// Where gradients are written: shapes of the inputs, whose batches must all be B; last axes have
// stride 1.
struct FusedGradients {
  Tensor dq, dk, dvalue;
  std::optional<Tensor> dv = {};     // with additive scores: contiguous
  std::optional<Tensor> dbias = {};  // [B or 1, H, Tq, Tk], contiguous; or left out
};
void fused_attention_gradients_into(const FusedAttention& attention, const FusedSaved& saved,
                                    const Tensor& dcontext, const FusedGradients& into);

}  // namespace heed
