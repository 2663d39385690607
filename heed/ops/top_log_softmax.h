// The largest log-probabilities of a step.
//
// Threads: may be called from any number at once.
#pragma once

#include "heed/ops/ops.h"

namespace heed {

// top_k(log_softmax(x), k), and log_sum [..., 1], with which x - log_sum is log_softmax(x): all of
// it is computed only where more than the largest are wanted. Of f32; on a GPU of 64 at most. No
// gradient.
struct TopLogSoftmax {
  Ranked top;
  Tensor log_sum;
};
TopLogSoftmax top_log_softmax(const Tensor& x, int64_t k);
// Has the device room for it? Rows may be too wide for a GPU; there log_softmax() and top_k()
// serve.
bool top_log_softmax_fits(const Tensor& x, int64_t k);

}  // namespace heed
