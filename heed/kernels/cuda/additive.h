// Additive attention on the GPU, for attention.cu: what run() does where the form is additive.
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

template <class T>
bool additive_fits(const Attention<T>&);  // forward and backward
template <class T>
void additive_attention(Cuda, const Attention<T>&);
template <class T>
void additive_attention_grad(Cuda, const AttentionGrad<T>&);

// For a query or few, as a decoder that goes token by token has them: one launch
// (additive_step.cu).
template <class T>
bool step_fits(const Attention<T>&);
template <class T>
bool step_fits(const AttentionGrad<T>&);
template <class T>
void additive_step(Cuda, const Attention<T>&);
template <class T>
void additive_step_grad(Cuda, const AttentionGrad<T>&);

}  // namespace heed::kernels
