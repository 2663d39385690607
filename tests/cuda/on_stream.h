// A stream with what kernels keep between launches, for programs that test kernels by themselves.
#pragma once

#include "heed/kernels/cuda/state.h"

namespace heed::kernels {

inline Cuda on_stream(void* stream = nullptr) {
  static CudaState state;
  return {stream, &state};
}

}  // namespace heed::kernels
