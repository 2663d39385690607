// Memory of GPUs between ranks, by NCCL's sends and receives; sums are ours, as on the host
// (ranks.h). NCCL is loaded when ranks first meet on GPUs: one GPU needs none. A link seam:
// nccl.cpp where the build has CUDA, else no_nccl.cpp.
//
// Threads: one at a time, always the one that made it, in the context it was made in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "heed/ranks/ranks.h"

namespace heed {

class GpuExchange {
 public:
  virtual ~GpuExchange() = default;
  GpuExchange(const GpuExchange&) = delete;
  GpuExchange& operator=(const GpuExchange&) = delete;

  // As Ranks::exchange, of memory of the GPU, put into the context's stream: it sends what kernels
  // launched before leave there, and those launched after find what came.
  virtual void exchange(const std::string& what, std::span<const Ranks::Sent> to,
                        std::span<const Ranks::Received> from) = 0;
  int64_t put() const { return put_; }  // exchanges so far
  // Waits until the first `count` are over, by asking, as ranks do: nothing else of the host may
  // wait for a stream that an exchange is in. Throws Error that names who does not answer.
  virtual void wait(int64_t count) = 0;
  // Seconds that exchanges took on the GPU, of those that were waited for.
  double waited() const { return waited_; }

 protected:
  GpuExchange() = default;
  int64_t put_ = 0;
  double waited_ = 0;
};

// Which GPU of its machine a rank takes: in the order of the ranks there.
int gpu_of(const Ranks& ranks);

// Called by every rank, once its context has its GPU. Throws Error where two ranks have the same
// one, unless HEED_SHARE_GPU says that they share it, for tests: `nccl` (which wants NCCL_HOSTID to
// differ from rank to rank) or `host`, by way of the host's memory and without NCCL.
std::unique_ptr<GpuExchange> join_gpus(Ranks& ranks);

}  // namespace heed
