// Where libtorch is not installed: no peer, so its columns of the benchmark stay empty.
#include "bench/peer.h"

namespace heed::bench {

std::string peer_name() { return {}; }

void peer_threads(int /*threads*/) {}

Work peer_work(const std::string& /*row*/) { return {}; }

int64_t peer_peak_bytes(const Work& /*work*/) { return 0; }

}  // namespace heed::bench
