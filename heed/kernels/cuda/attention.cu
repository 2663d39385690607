// Attention on the GPU: which kernels take it. (FlashAttention 1, 2 and 3: dot.cu, dot_mma.cu,
// dot_wgmma.cu.)
#include <type_traits>

#include "heed/kernels/cuda/additive.h"
#include "heed/kernels/cuda/device.cuh"
#include "heed/kernels/cuda/dot.h"

namespace heed::kernels {
namespace {

template <class T>
void attend(Cuda device, const Attention<T>& a) {
  if (a.form == ScoreForm::additive) return additive_attention(device, a);
  if constexpr (std::is_same_v<T, bf16>)
    if (mma_takes(a)) return mma_attention(device, a);
  dot_attention(device, a);
}

template <class T>
void attend(Cuda device, const AttentionGrad<T>& k) {
  if (k.forward.form == ScoreForm::additive) return additive_attention_grad(device, k);
  if constexpr (std::is_same_v<T, bf16>)
    if (mma_takes(k)) return mma_attention_grad(device, k);
  dot_attention_grad(device, k);
}

template <class T>
bool has_room(const Attention<T>& a) {
  if (a.form == ScoreForm::additive) return additive_fits(a);
  return a.size <= widest_dot() && a.value_size <= widest_dot();
}

}  // namespace

bool fits(Cuda, const Attention<float>& a) { return has_room(a); }
bool fits(Cuda, const Attention<bf16>& a) { return has_room(a); }

void run(Cuda device, const Attention<float>& a) { attend(device, a); }
void run(Cuda device, const Attention<bf16>& a) { attend(device, a); }
void run(Cuda device, const AttentionGrad<float>& k) { attend(device, k); }
void run(Cuda device, const AttentionGrad<bf16>& k) { attend(device, k); }

}  // namespace heed::kernels
