#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "heed/base/check.h"
#include "heed/tensor/context.h"
#include "heed/tensor/gpu.h"
#include "heed/tensor/graph.h"

namespace heed {
namespace {

constexpr size_t kMost = 256;  // graphs that are kept

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail("cuda graph: ", what, ": ", cudaGetErrorString(error));
}

cudaStream_t stream() { return current_gpu().stream; }

void begin(Uploads& u) {
  if (!u.device) {
    u.device = static_cast<std::byte*>(cuda_allocate(Uploads::kBytes));
    for (cudaEvent_t& event : u.read)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  }
  check(cudaEventSynchronize(u.read[u.turn]), "uploads");
  u.used = 0;
}
// Room for so many bytes of the step, on the host: nobody reads this block now.
void make_room(Uploads& u, size_t bytes) {
  size_t& room = u.host_bytes[u.turn];
  if (bytes <= room) return;
  constexpr size_t kLeast = size_t{256} << 10;
  const size_t wanted = std::min(Uploads::kBytes, std::max({kLeast, 2 * room, bytes}));
  void* block = nullptr;
  check(cudaMallocHost(&block, wanted), "memory for uploads");
  std::byte*& mine = u.host[u.turn];
  if (u.used > 0) std::memcpy(block, mine, u.used);
  if (mine) cudaFreeHost(mine);
  mine = static_cast<std::byte*>(block), room = wanted;
}

void* add(Uploads& u, const void* from, size_t bytes) {
  require(u.used + bytes <= Uploads::kBytes, "cuda graph: a step uploads more than ",
          Uploads::kBytes >> 20, " MiB; a smaller --batch-tokens needs less");
  make_room(u, u.used + bytes);
  std::memcpy(u.host[u.turn] + u.used, from, bytes);
  void* const place = u.device + u.used;
  u.used += (bytes + 255) / 256 * 256;
  return place;
}
void send(Uploads& u) {
  if (u.used > 0)
    check(cudaMemcpyAsync(u.device, u.host[u.turn], u.used, cudaMemcpyHostToDevice, stream()),
          "uploads");
  check(cudaEventRecord(u.read[u.turn], stream()), "uploads");
  u.turn = 1 - u.turn;
}

struct NotCaptured {};  // thrown through a step that turns out not to depend on shapes alone

class InMode {
 public:
  InMode(Gpu& gpu, GraphMode now) : gpu_(gpu) { gpu_.mode = now; }
  ~InMode() { gpu_.mode = GraphMode::none; }

 private:
  Gpu& gpu_;
};

}  // namespace

struct StepGraphs::Captured {
  int seen = 0;
  bool never = false;  // it does other things for the same shape
  cudaGraphExec_t graph = nullptr;
  size_t uploaded = 0;
  uint64_t trace = 0;  // a hash of the memory it took
};

struct StepGraphs::Inside {
  std::map<Shape, Captured> steps;
  size_t kept = 0;

  // Room for the graph of a step that was seen so often: that of one that came half as often goes.
  bool has_room(int seen) {
    if (kept < kMost) return true;
    Captured* rarest = nullptr;
    for (auto& [shape, step] : steps)
      if (step.graph && (!rarest || step.seen < rarest->seen)) rarest = &step;
    if (!rarest || 2 * rarest->seen >= seen) return false;
    cudaGraphExecDestroy(rarest->graph);
    rarest->graph = nullptr;
    --kept;
    return true;
  }
};

StepGraphs::StepGraphs(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {
  if (arena_->device() == Device::cuda) inside_ = std::make_unique<Inside>();
}

StepGraphs::~StepGraphs() {
  if (!inside_) return;
  for (auto& [shape, step] : inside_->steps)
    if (step.graph) cudaGraphExecDestroy(step.graph);
}

void StepGraphs::run(const Shape& shape, const std::function<void()>& body) {
  const UseArena use(*arena_);
  if (!inside_) return body();
  Captured& step = inside_->steps[shape];
  if (++step.seen == 1 || step.never || (!step.graph && !inside_->has_room(step.seen)))
    return body();
  Gpu& gpu = current_gpu();
  Uploads& uploads = gpu.uploads;
  begin(uploads);
  arena_->begin_trace();
  if (!step.graph) {
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "begin");
    cudaGraph_t made = nullptr;
    try {
      const InMode now(gpu, GraphMode::capture);
      body();
    } catch (const NotCaptured&) {
      cudaStreamEndCapture(stream(), &made);
      if (made) cudaGraphDestroy(made);
      step.never = true;
      return body();
    } catch (...) {
      cudaStreamEndCapture(stream(), &made);
      if (made) cudaGraphDestroy(made);
      throw;
    }
    check(cudaStreamEndCapture(stream(), &made), "end");
    check(cudaGraphInstantiate(&step.graph, made, 0), "instantiate");
    cudaGraphDestroy(made);
    step.uploaded = uploads.used, step.trace = arena_->trace();
    ++inside_->kept;
  } else {
    bool same = true;
    try {
      const InMode now(gpu, GraphMode::replay);
      body();
    } catch (const NotCaptured&) {
      same = false;
    }
    if (!same || step.uploaded != uploads.used || step.trace != arena_->trace()) {
      cudaGraphExecDestroy(step.graph);
      step.graph = nullptr;
      --inside_->kept;
      return body();
    }
    ++replayed_;
  }
  send(uploads);
  check(cudaGraphLaunch(step.graph, stream()), "launch");
}

bool StepGraphs::repeat(const Shape& shape) {
  if (!inside_) return false;
  const auto at = inside_->steps.find(shape);
  if (at == inside_->steps.end() || !at->second.graph || at->second.uploaded > 0) return false;
  ++at->second.seen, ++replayed_;
  check(cudaGraphLaunch(at->second.graph, stream()), "launch");
  return true;
}

namespace {

// How the context in use takes kernels now; who works on the CPU launches none.
GraphMode mode_now() {
  if (current_arena().device() != Device::cuda) return GraphMode::none;
  return current_gpu().mode;
}

}  // namespace

void cannot_be_captured() {
  if (mode_now() != GraphMode::none) throw NotCaptured();
}

bool kernels_left_out() { return mode_now() == GraphMode::replay; }
void* graph_upload(const void* host, size_t bytes) {
  if (mode_now() == GraphMode::none) return nullptr;
  Uploads& uploads = current_gpu().uploads;
  if (uploads.used + bytes > Uploads::kBytes) cannot_be_captured();
  return add(uploads, host, bytes);
}

// ---- reading later

int64_t read_later(const void* device, size_t bytes) {
  constexpr size_t kTickets = Ring::kTickets, kTicketBytes = Ring::kTicketBytes;
  require(bytes <= kTicketBytes, "cuda: ", bytes, " bytes to be read later, at most ",
          kTicketBytes);
  Ring& ring = current_gpu().ring;
  if (!ring.host) {
    void* block = nullptr;
    check(cudaMallocHost(&block, kTickets * kTicketBytes), "memory");
    ring.host = static_cast<std::byte*>(block);
    for (cudaEvent_t& event : ring.done)
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
  }
  const size_t at = static_cast<size_t>(ring.next) % kTickets;
  check(cudaMemcpyAsync(ring.host + at * kTicketBytes, device, bytes, cudaMemcpyDeviceToHost,
                        stream()),
        "reading");
  check(cudaEventRecord(ring.done[at], stream()), "reading");
  return ring.next++;
}

void read_now(int64_t ticket, void* host, size_t bytes) {
  constexpr size_t kTickets = Ring::kTickets, kTicketBytes = Ring::kTicketBytes;
  const Ring& ring = current_gpu().ring;
  const size_t at = static_cast<size_t>(ticket) % kTickets;
  require(
      bytes == 0 || (ticket < ring.next && ring.next - ticket <= static_cast<int64_t>(kTickets)),
      "cuda: what was to be read later is gone");
  // The ticket's own, or a later one's, which waits for more.
  check(cudaEventSynchronize(ring.done[at]), "a kernel failed");
  if (bytes == 0) return;
  std::memcpy(host, ring.host + at * kTicketBytes, bytes);
}

}  // namespace heed
