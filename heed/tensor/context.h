// A context: everything that changes while tensors are computed. Threads, memory and, on a GPU, its
// stream, scratch memory, plans of products, uploads and captured graphs.
//
//   const auto context = Context::make({.threads = 2});
//   const UseContext mine(*context);   // from here on, formulas of this thread run there
//
// Two contexts share nothing that changes, so two threads with a context each never meet. A thread
// that has named none uses the process's default context: formulas do not mention it.
//
// A tensor is used in the context that it was made in; one of no context (Arena::shared) never
// changes and is read in all of them: so are the parameters of a loaded model.
//
// What may be called from where: make() and current() from any thread. A context serves one thread
// at a time, and UseContext waits for its turn. The default context's CPU may be used by any number
// of threads at once (its arena locks, its pool serves the first), its GPU by one, as long as a
// UseDevice(Device::cuda) lives; a second thread is told so, and makes a context of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "heed/base/parallel.h"
#include "heed/tensor/memory.h"

namespace heed {

class Gpu;  // tensor/cuda.cpp

class Context : public std::enable_shared_from_this<Context> {
 public:
  struct Options {
    Device device = Device::cpu;  // where new tensors live
    int index = 0;                // which GPU
    int threads = 0;              // of its pool; 0: as many as the process may run on
    ThreadPool* pool = nullptr;   // or somebody else's, borrowed
    // Somebody else's cudaStream_t to work on; null: one of its own. CUDA's default stream, whose
    // handle is null, is named cudaStreamLegacy.
    void* stream = nullptr;
  };
  // Throws Error, which says what is missing, where there is no such device.
  static std::shared_ptr<Context> make(const Options& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  static Context& current();
  static Context& process();  // the default one
  // Which GPU the default one takes. Throws Error if it has another one already.
  static void set_default_gpu(int index);

  uint64_t number() const { return number_; }  // no two contexts have the same, and none has 0
  Device device() const { return options_.device; }
  int index() const { return index_; }
  ThreadPool& pool() const { return *pool_; }

  // For what lasts: the host's memory, or the GPU's.
  Arena& arena(Device device);
  // Its GPU, made when it is first asked for. Throws Error if there is none.
  Gpu& gpu();
  Gpu* gpu_if_made() const { return made_; }

 private:
  friend class UseContext;
  friend class UseDevice;
  explicit Context(const Options& options);

  const uint64_t number_;
  const Options options_;
  int index_;  // of its GPU
  std::unique_ptr<ThreadPool> own_pool_;
  ThreadPool* pool_;
  std::shared_ptr<Arena> host_, device_;
  std::shared_ptr<Gpu> gpu_;
  std::atomic<Gpu*> made_ = nullptr;  // gpu_, for who only looks
  std::recursive_mutex turn_;         // held by the thread that uses it
};

// While it lives, this thread works in `context`, which it waits for.
class UseContext {
 public:
  explicit UseContext(Context& context);
  ~UseContext();
  UseContext(const UseContext&) = delete;
  UseContext& operator=(const UseContext&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> turn_;
  UsePool pool_;
  Context* previous_;
  Arena* previous_arena_;
};

// While it lives, this thread, one of the context's pool within a parallel_for, helps the one that
// uses the context.
class HelpContext {
 public:
  explicit HelpContext(Context& context);
  ~HelpContext();
  HelpContext(const HelpContext&) = delete;
  HelpContext& operator=(const HelpContext&) = delete;

 private:
  Context* previous_;
};

// While it lives, new tensors of this thread live on `device`, in the context in use. Throws Error
// if this machine has none, this build knows none, or another thread uses the context's GPU.
class UseDevice {
 public:
  explicit UseDevice(Device device);
  ~UseDevice();
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;

 private:
  std::unique_lock<std::recursive_mutex> turn_;
  Arena* previous_;
};

// The arena that new tensors of this thread come from: the one in use, else the context's own.
Arena& current_arena();

// While it lives, new tensors of this thread come from `arena`, of the context in use or of none.
// Tensors may outlive it.
class UseArena {
 public:
  explicit UseArena(Arena& arena);
  ~UseArena();
  UseArena(const UseArena&) = delete;
  UseArena& operator=(const UseArena&) = delete;

 private:
  Arena* previous_;
};

// ---- for ops/weight.h

// What the weights in use by this thread are laid out as, if they do not change; returns what it
// was.
class PackedWeights;
PackedWeights* packed_weights();
PackedWeights* set_packed_weights(PackedWeights* weights);
// ---- for ops/bf16.h: does this thread round operands of products? Returns whether it did.
bool bf16_products();
bool set_bf16_products(bool on);

// ---- for dispatch.h and tensors

// What launch() fills the arguments of a kernel for: each tensor whose memory is asked for
// meanwhile must belong there.
struct Launching {
  Launching(const char* op, Device device);
  ~Launching();
  Launching(const Launching&) = delete;
  Launching& operator=(const Launching&) = delete;

  const char* op;
  Device device;
  const Launching* previous;
};
// Throws Error in a sentence unless memory of this device and context is what the kernel that is
// being launched can use; nothing, where none is.
void check_launching(Device device, uint64_t context);

}  // namespace heed
