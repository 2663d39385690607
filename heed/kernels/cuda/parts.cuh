// Work on many arrays in one launch: the arrays are cut into chunks of the same length, and every
// block takes its share of them, whichever arrays they lie in.
#pragma once

#include "heed/kernels/cuda/device.cuh"

namespace heed::kernels {

inline constexpr int kChunk = 4096;

class Chunks {
 public:
  // The next array; `packed`: whether it can be read 16 bytes at a time.
  void add(int64_t n, bool packed) {
    packed_[parts_ / 64] |= uint64_t{packed} << parts_ % 64;
    first_[parts_ + 1] = first_[parts_] + static_cast<uint32_t>(ceil_div(n, kChunk));
    ++parts_;
  }
  __host__ __device__ int64_t count() const { return first_[parts_]; }
  // Calls body(part, begin) for a block's chunks, where they begin in their arrays. They are
  // neighbours: to search the array of each anew took longer than to read it.
  template <class Body>
  __device__ void each(Body body) const {
    const int64_t begin = count() * blockIdx.x / gridDim.x;
    const int64_t end = count() * (blockIdx.x + 1) / gridDim.x;
    if (begin == end) return;
    int part = 0, high = parts_;  // the last part that begins at or before the first chunk
    while (high - part > 1) {
      const int middle = (part + high) / 2;
      (first_[middle] <= begin ? part : high) = middle;
    }
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      while (first_[part + 1] <= chunk) ++part;
      body(part, (chunk - first_[part]) * kChunk);
    }
  }
  __device__ bool packed(int part) const { return packed_[part / 64] >> part % 64 & 1; }

 private:
  int parts_ = 0;
  uint64_t packed_[(kMaxParts + 63) / 64] = {};
  uint32_t first_[kMaxParts + 1] = {};  // the first chunk of each part, and after the last
};

}  // namespace heed::kernels
