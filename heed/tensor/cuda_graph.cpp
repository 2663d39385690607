#include <cuda_runtime_api.h>

#include <cstring>
#include <map>

#include "heed/base/check.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/graph.h"

namespace heed {
namespace {

constexpr size_t kUploads = size_t{32} << 20;  // of a step, at most
constexpr size_t kMost = 256;                  // graphs that are kept

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail("cuda graph: ", what, ": ", cudaGetErrorString(error));
}

cudaStream_t stream() { return static_cast<cudaStream_t>(cuda_stream()); }

// Where uploads of a step are gathered: two blocks of the host's memory in turn, since the GPU may
// still be reading the last step's, and one on the GPU.
struct Uploads {
  std::byte* host[2] = {nullptr, nullptr};
  cudaEvent_t read[2] = {nullptr, nullptr};
  std::byte* device = nullptr;
  int turn = 0;
  size_t used = 0;

  void make() {
    if (device) return;
    device = static_cast<std::byte*>(cuda_allocate(kUploads));
    for (int i = 0; i < 2; ++i) {
      void* block = nullptr;
      check(cudaMallocHost(&block, kUploads), "memory for uploads");
      host[i] = static_cast<std::byte*>(block);
      check(cudaEventCreateWithFlags(&read[i], cudaEventDisableTiming), "event");
    }
  }
  void begin() {
    make();
    check(cudaEventSynchronize(read[turn]), "uploads");
    used = 0;
  }
  bool full(size_t bytes) const { return used + bytes > kUploads; }
  void* add(const void* from, size_t bytes) {
    require(used + bytes <= kUploads, "cuda graph: a step uploads more than ", kUploads >> 20,
            " MiB; a smaller --batch-tokens needs less");
    std::memcpy(host[turn] + used, from, bytes);
    void* const place = device + used;
    used += (bytes + 255) / 256 * 256;
    return place;
  }
  void send() {
    if (used > 0)
      check(cudaMemcpyAsync(device, host[turn], used, cudaMemcpyHostToDevice, stream()), "uploads");
    check(cudaEventRecord(read[turn], stream()), "uploads");
    turn = 1 - turn;
  }
};

Uploads uploads;
enum class Mode { none, capture, replay };
thread_local Mode mode = Mode::none;

struct NotCaptured {};  // thrown through a step that turns out not to depend on shapes alone

class InMode {
 public:
  explicit InMode(Mode now) { mode = now; }
  ~InMode() { mode = Mode::none; }
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
  uploads.begin();
  arena_->begin_trace();
  if (!step.graph) {
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeRelaxed), "begin");
    cudaGraph_t made = nullptr;
    try {
      const InMode now(Mode::capture);
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
    {
      const InMode now(Mode::replay);
      body();
    }
    if (step.uploaded != uploads.used || step.trace != arena_->trace()) {
      cudaGraphExecDestroy(step.graph);
      step.graph = nullptr;
      --inside_->kept;
      return body();
    }
    ++replayed_;
  }
  uploads.send();
  check(cudaGraphLaunch(step.graph, stream()), "launch");
}

void cannot_be_captured() {
  if (mode == Mode::capture) throw NotCaptured();
}

bool kernels_left_out() { return mode == Mode::replay; }
void* graph_upload(const void* host, size_t bytes) {
  if (mode == Mode::none) return nullptr;
  if (uploads.full(bytes)) cannot_be_captured();
  return uploads.add(host, bytes);
}

// ---- reading later

namespace {

constexpr size_t kTickets = 8, kTicketBytes = 256;

struct Ring {
  std::byte* host = nullptr;
  cudaEvent_t done[kTickets] = {};
  int64_t next = 0;
};
Ring ring;

}  // namespace

int64_t read_later(const void* device, size_t bytes) {
  require(bytes <= kTicketBytes, "cuda: ", bytes, " bytes to be read later, at most ",
          kTicketBytes);
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
  const size_t at = static_cast<size_t>(ticket) % kTickets;
  require(ticket < ring.next && ring.next - ticket <= static_cast<int64_t>(kTickets),
          "cuda: what was to be read later is gone");
  check(cudaEventSynchronize(ring.done[at]), "a kernel failed");
  std::memcpy(host, ring.host + at * kTicketBytes, bytes);
}

}  // namespace heed
