#include "heed/base/check.h"
#include "heed/ranks/nccl.h"

namespace heed {

int gpu_of(const Ranks&) { return 0; }

std::unique_ptr<GpuExchange> join_gpus(Ranks&) {
  fail("ranks: this heed was built without CUDA, and has no GPU's memory to exchange");
}

}  // namespace heed
