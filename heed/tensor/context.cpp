#include "heed/tensor/context.h"

#include <atomic>
#include <utility>

#include "heed/base/check.h"
#include "heed/tensor/cuda.h"

namespace heed {
namespace {

// What this thread works in. Null: the process's default context, and its host's arena.
struct Current {
  Context* context = nullptr;
  Arena* arena = nullptr;
  const Launching* launching = nullptr;
  PackedWeights* packed = nullptr;
  bool bf16_products = false;
};
thread_local Current current_of_thread;

uint64_t next_number() {
  static std::atomic<uint64_t> made = 0;
  return ++made;
}

}  // namespace

Context::Context(const Options& options)
    : number_(next_number()),
      options_(options),
      index_(options.index),
      own_pool_(options.pool ? nullptr : std::make_unique<ThreadPool>(options.threads)),
      pool_(options.pool ? options.pool : own_pool_.get()),
      host_(Arena::make(Device::cpu, number_)) {
  if (options.device == Device::cuda) gpu();
}

std::shared_ptr<Context> Context::make(const Options& options) {
  return std::shared_ptr<Context>(new Context(options));
}

Context::~Context() = default;

Context& Context::process() {
  // Never taken down: tensors of static life would outlast it, and a GPU's driver ends on its own.
  static const auto& context =
      *new std::shared_ptr<Context>(new Context({.pool = &ThreadPool::process()}));
  return *context;
}

void Context::set_default_gpu(int index) {
  Context& context = process();
  require(!context.gpu_ || context.index_ == index, "cuda: the default context works on GPU ",
          context.index_, " already, and cannot take GPU ", index);
  context.index_ = index;
}

Context& Context::current() {
  return current_of_thread.context ? *current_of_thread.context : process();
}

Gpu& Context::gpu() {
  if (!gpu_) {
    gpu_ = make_gpu(index_, options_.stream);
    device_ = Arena::make(Device::cuda, number_);
    made_ = gpu_.get();
  }
  return *gpu_;
}

Arena& Context::arena(Device device) {
  if (device == Device::cpu) return *host_;
  gpu();
  return *device_;
}

// ---- the current one

UseContext::UseContext(Context& context)
    : turn_(context.turn_),
      pool_(context.pool()),
      previous_(current_of_thread.context),
      previous_arena_(current_of_thread.arena) {
  current_of_thread.context = &context;
  current_of_thread.arena = &context.arena(context.device());
  if (context.gpu_) choose_gpu(*context.gpu_);
}
UseContext::~UseContext() {
  current_of_thread.context = previous_;
  current_of_thread.arena = previous_arena_;
  if (Gpu* const before = Context::current().gpu_if_made()) choose_gpu(*before);
}

HelpContext::HelpContext(Context& context)
    : previous_(std::exchange(current_of_thread.context, &context)) {}
HelpContext::~HelpContext() { current_of_thread.context = previous_; }

UseDevice::UseDevice(Device device) : previous_(current_of_thread.arena) {
  Context& context = Context::current();
  if (device == Device::cuda) {
    turn_ = std::unique_lock(context.turn_, std::try_to_lock);
    require(turn_.owns_lock(),
            "cuda: another thread uses the GPU of this context; make a Context for each thread");
  }
  current_of_thread.arena = &context.arena(device);
  if (device == Device::cuda) choose_gpu(context.gpu());
}
UseDevice::~UseDevice() { current_of_thread.arena = previous_; }

Arena& current_arena() {
  return current_of_thread.arena ? *current_of_thread.arena : Context::process().arena(Device::cpu);
}

UseArena::UseArena(Arena& arena) : previous_(current_of_thread.arena) {
  require(arena.context() == 0 || arena.context() == Context::current().number(),
          "arena: it belongs to another context than the one in use");
  current_of_thread.arena = &arena;
}
UseArena::~UseArena() { current_of_thread.arena = previous_; }

PackedWeights* packed_weights() { return current_of_thread.packed; }
PackedWeights* set_packed_weights(PackedWeights* weights) {
  return std::exchange(current_of_thread.packed, weights);
}

bool bf16_products() { return current_of_thread.bf16_products; }
bool set_bf16_products(bool on) { return std::exchange(current_of_thread.bf16_products, on); }

// ---- operands

Launching::Launching(const char* op_name, Device on)
    : op(op_name), device(on), previous(current_of_thread.launching) {
  current_of_thread.launching = this;
}
Launching::~Launching() { current_of_thread.launching = previous; }

void check_launching(Device device, uint64_t context) {
  const Launching* const now = current_of_thread.launching;
  if (!now) return;
  require(device == now->device, now->op, ": operands on different devices, ", name(now->device),
          " and ", name(device), "; bring them to one with to(x, device)");
  require(context == 0 || context == Context::current().number(), now->op,
          ": an operand of another context; a tensor is used in the context that it was made in");
}

}  // namespace heed
