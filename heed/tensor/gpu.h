// The inside of a context's GPU: for cuda.cpp and cuda_graph.cpp alone.
#pragma once

#include <cuda_runtime_api.h>

#include "heed/kernels/cuda/state.h"
#include "heed/tensor/cuda.h"

namespace heed {

// Where uploads of a captured step are gathered: two blocks of the host's memory in turn, since the
// GPU may still be reading the last step's, and one on the GPU.
struct Uploads {
  static constexpr size_t kBytes = size_t{32} << 20;  // of a step, at most
  std::byte* host[2] = {nullptr, nullptr};
  size_t host_bytes[2] = {0, 0};  // they grow: what the GPU reads by itself takes time to be had
  cudaEvent_t read[2] = {nullptr, nullptr};
  std::byte* device = nullptr;
  int turn = 0;
  size_t used = 0;
};

// Reading later: a ring of small blocks of the host's memory.
struct Ring {
  static constexpr size_t kTickets = 8, kTicketBytes = 16 << 10;
  std::byte* host = nullptr;
  cudaEvent_t done[kTickets] = {};
  int64_t next = 0;
};

// What becomes of the kernels that are launched: they run, become part of a graph, or are left out
// because a graph has them.
enum class GraphMode { none, capture, replay };

class Gpu {
 public:
  Gpu(int index, void* foreign_stream);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const int index;
  cudaStream_t stream = nullptr;
  const bool own_stream;
  kernels::CudaState kernels;
  GraphMode mode = GraphMode::none;
  Uploads uploads;
  Ring ring;
  void* pinned = nullptr;  // what comes from the GPU goes through it
  size_t pinned_bytes = 0;
};

// Of the context in use.
Gpu& current_gpu();

}  // namespace heed
