// What the parts of the libtorch peer share: peer_torch.cpp has the interface of peer.h and the
// single operations, peer_torch_attention.cpp attention, peer_torch_models.cpp training steps.
#pragma once

#include "bench/peer.h"

namespace heed::bench {

// The "train/..." rows; empty for others.
Work torch_train_work(const std::string& row);

// The "attention/..." rows; empty for others.
Work torch_attention_work(const std::string& row);

}  // namespace heed::bench
