// What a kernel sees of memory: bare pointers, sizes and strides. No tensors here.
//
// Threads: a value; different ones may be used by different threads, one by many that only read
// it.
#pragma once

#include <bit>
#include <cstdint>

#include "heed/base/id.h"

namespace heed {

// The upper half of a float: its range with 8 bits of precision. A storage type: arithmetic is f32.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    // Round to nearest even; a NaN stays one.
    bits = x != x ? 0x7FC0 : static_cast<uint16_t>((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

namespace kernels {

// What chooses the device in run(device, kernel). On a GPU kernels run in the order of their
// stream.
struct Cpu {};
class CudaState;  // kernels/cuda/state.h
struct Cuda {
  void* stream = nullptr;  // a cudaStream_t
  CudaState* state = nullptr;
};

// What sums, parameters and statistics beside elements of type T are held in: f32 beside bf16, as
// mixed precision wants it.
template <class T>
struct WideOf {
  using type = T;
};
template <>
struct WideOf<bf16> {
  using type = float;
};
template <class T>
using Wide = typename WideOf<T>::type;

// A matrix: element (i, j) is data[i * row + j * col]. One of the strides is 1: col for a matrix as
// it stands, row for a transposed one.
template <class T>
struct Matrix {
  T* data;
  int64_t row, col = 1;
};

// Where the items of a batch lie: item (i, j) of [outer, inner] begins i * outer + j * inner
// further.
struct BatchStride {
  int64_t outer = 0, inner = 0;
};

inline constexpr int kMaxRank = 6;

}  // namespace kernels
}  // namespace heed
