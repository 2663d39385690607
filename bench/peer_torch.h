// What the two halves of the libtorch peer share: peer_torch.cpp has the interface of peer.h and
// the single operations, peer_torch_models.cpp whole training steps.
#pragma once

#include "bench/peer.h"

namespace heed::bench {

// The "train/..." rows; empty for others.
Work torch_train_work(const std::string& row);

}  // namespace heed::bench
