// What the benchmark knows of a peer (libtorch): for a row of the benchmark, the same work done by
// the peer. A link seam: peer_torch.cpp where libtorch is installed, no_peer.cpp elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace heed::bench {

// Doing it once is one iteration of the row. Setting up (weights, inputs) is not part of it.
using Work = std::function<void()>;

// "libtorch 1.13.1, OpenBLAS OpenMP", or "" where no peer is linked.
std::string peer_name();

// How many threads the peer may use from now on.
void peer_threads(int threads);

// The peer's version of a row, or an empty function where it has none. Rows and their sizes are
// listed in ops_bench.cpp and train_bench.cpp; the name alone says what is computed, such as
// "op/matmul/960x256x1024".
Work peer_work(const std::string& row);

// The most bytes of tensors the peer held at a time while `work` ran, above what it held before.
int64_t peer_peak_bytes(const Work& work);

}  // namespace heed::bench
