#include "heed/kernels/select.h"

#include <algorithm>
#include <cstring>

#include "heed/base/parallel.h"

namespace heed::kernels {

// Along the rows of w, whose lines are read in the order they lie in.
void run(Cpu, const SelectColumns& p) {
  parallel_for(p.k, std::max<int64_t>(1, (1 << 13) / std::max<int64_t>(1, p.n)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const float* const from = p.w.data + i * p.w.row;
                   float* const to = p.y + i * p.n;
                   for (int64_t j = 0; j < p.n; ++j) to[j] = from[p.ids[j] * p.w.col];
                 }
               });
}

void run(Cpu, const SelectInt8Columns& p) {
  constexpr int64_t kLanes = 16, kGroup = 4 * kLanes;  // outputs of a block; its bytes for four k
  const int64_t depth = int8_depth(p.w.k), size = depth * kLanes;
  parallel_for((p.n + kLanes - 1) / kLanes, 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t count = std::min(kLanes, p.n - b * kLanes);
      const Id* const ids = p.ids + b * kLanes;
      int8_t* const to = p.blocks + b * size;
      const int8_t* from[kLanes];
      for (int64_t l = 0; l < kLanes; ++l) {
        const int64_t o = ids[std::min(l, count - 1)];
        from[l] = p.w.blocks + o / kLanes * size + o % kLanes * 4;
        p.scales[b * kLanes + l] = l < count ? p.w.scales[o] : 0;
        p.sums[b * kLanes + l] = l < count ? p.w.sums[o] : 0;
      }
      for (int64_t i = 0; i < size; i += kGroup)
        for (int64_t l = 0; l < kLanes; ++l) std::memcpy(to + i + 4 * l, from[l] + i, 4);
    }
  });
}

}  // namespace heed::kernels
