// Attention by dot products on the GPU, forms dot and log_dot. run() in attention.cu chooses.
#pragma once

#include "heed/kernels/kernels.h"

namespace heed::kernels {

// Every feature, in f32 arithmetic (dot.cu, dot_grad.cu), of heads up to widest_dot().
int64_t widest_dot();
template <class T>
void dot_attention(Cuda, const Attention<T>&);
template <class T>
void dot_attention_grad(Cuda, const AttentionGrad<T>&);

// By tensor cores (dot_mma*.cu), where mma_takes() says so.
bool mma_takes(const Attention<bf16>&);
bool mma_takes(const AttentionGrad<bf16>&);
void mma_attention(Cuda, const Attention<bf16>&);
void mma_attention_grad(Cuda, const AttentionGrad<bf16>&);
void mma_attention_grad_short(Cuda, const AttentionGrad<bf16>&);  // up to 64 keys
// By Hopper's warpgroup MMA (wgmma) and TMA, where the GPU has them and dot_mma.cu and
// dot_mma_grad.cu say so. dot_wgmma*.cu, compiled for 9.0a alone; no_wgmma.cpp where nothing is.
bool wgmma_is_there();  // for this thread's GPU
void wgmma_attention(Cuda, const Attention<bf16>&);
void wgmma_attention_grad(Cuda, const AttentionGrad<bf16>&);

}  // namespace heed::kernels
