// Dropout on the GPU. Whether an element is dropped depends on the seed and its index alone, by
// Philox as on the CPU: the backward pass draws the mask again, nothing is saved, and both devices
// drop the same. Included by .cu files alone.
#pragma once

#include "heed/kernels/cuda/device.cuh"

namespace heed::kernels {

// An element has 16 random bits, the low ones of a word or of one shifted: below the threshold it
// is dropped, else multiplied by `keep`.
struct Drop {
  uint32_t threshold;  // 0: nothing is dropped
  float keep;

  // What is dropped is 0, be it finite or not.
  __device__ float operator()(float x, uint32_t bits) const {
    return (bits & 0xFFFF) >= threshold ? x * keep : 0.0f;
  }
};
__device__ inline uint32_t word_of(const uint4& call, int i) {
  return i == 0 ? call.x : i == 1 ? call.y : i == 2 ? call.z : call.w;
}

// The call for a key of a row of attention weights, as drop_factors() in cpu/attention.cpp: of 128
// keys, key j has word j / 16 % 4, half j / 64, of call j % 16.
__device__ inline uint4 drop_call(uint64_t seed, int64_t row, int key) {
  const auto call = static_cast<uint32_t>(key / 128 * 16 + key % 16);
  return philox_at(make_uint4(call, static_cast<uint32_t>(row),
                              static_cast<uint32_t>(static_cast<uint64_t>(row) >> 32), 1),
                   seed);
}

}  // namespace heed::kernels
