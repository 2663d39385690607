// Work on many arrays in one launch: the arrays are cut into chunks of the same length, and blocks
// take chunks, whichever array they lie in.
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
  __device__ int part_of(int64_t chunk) const {
    int low = 0, high = parts_;  // the last part that begins at or before the chunk
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_[middle] <= chunk ? low : high) = middle;
    }
    return low;
  }
  __device__ int64_t begin(int64_t chunk, int part) const {
    return (chunk - first_[part]) * kChunk;
  }
  __device__ bool packed(int part) const { return packed_[part / 64] >> part % 64 & 1; }

 private:
  int parts_ = 0;
  uint64_t packed_[(kMaxParts + 63) / 64] = {};
  uint32_t first_[kMaxParts + 1] = {};  // the first chunk of each part, and behind the last
};

}  // namespace heed::kernels
