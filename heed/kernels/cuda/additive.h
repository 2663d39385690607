// Additive attention on the GPU. run() in attention.cu calls it.
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

template <class T>
void additive_attention(Cuda, const Attention<T>&);
template <class T>
void additive_attention_grad(Cuda, const AttentionGrad<T>&);

}  // namespace heed::kernels
