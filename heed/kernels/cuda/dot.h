// Attention by dot products on the GPU, forms dot and log_dot. run() in attention.cu chooses.
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

// Every feature, in f32 arithmetic (dot.cu, dot_grad.cu).
template <class T>
void dot_attention(Cuda, const Attention<T>&);
template <class T>
void dot_attention_grad(Cuda, const AttentionGrad<T>&);

}  // namespace heed::kernels
