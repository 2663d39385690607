// Memory for tensors: arenas.
//
// On a CPU an arena is one reserved range of addresses, of which pages become real when first
// touched and stay so; on a GPU, and where addresses are limited (ulimit -v), it grows by chunks,
// which stay, and the older ones are used first: what fitted before a chunk came gets the same
// addresses after. Blocks are given out best fit,
// lowest address first, and joined again when freed. That is deterministic: the same requests in
// the same order get the same addresses, so a training step whose shapes come back finds its memory
// warm, and on a GPU can be replayed as a graph (docs/decisions/memory.md). A context has one for
// what lasts (tensor/context.h), and a trainer uses another one for its steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "heed/tensor/device.h"

namespace heed {

// Thread-safe. Kept alive by the tensors in it.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Of the context in use. Uses no memory yet.
  static std::shared_ptr<Arena> make(Device device = Device::cpu);
  static std::shared_ptr<Arena> make(Device device, uint64_t context);
  // Of no context: for what never changes once others see it, and is read in every context.
  static std::shared_ptr<Arena> shared(Device device) { return make(device, 0); }
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Device device() const { return device_; }
  uint64_t context() const { return context_; }  // its number, or 0

  // Aligned to 64 bytes (256 on a GPU). Throws OutOfMemory where there is no more: by the device,
  // or by what the process may use (base/limits.h).
  void* allocate(size_t bytes);
  void release(void* block, size_t bytes);  // as many as it was asked for

  // The allocation trace: a hash of all that was asked for and given back since begin_trace(), the
  // same for two steps that took the same memory.
  void begin_trace();
  uint64_t trace() const;

  int64_t used() const;  // bytes in blocks now
  int64_t peak() const;  // the most there were since the last reset_peak()
  void reset_peak();

 private:
  Arena(Device device, uint64_t context);
  void add_chunk(std::byte* begin, size_t size);
  void grow(size_t size);
  size_t block_size(size_t bytes) const;

  struct Block {
    std::byte* begin;
    size_t size;
  };
  struct Chunk {
    std::byte* begin;
    size_t size;
    std::vector<Block> free;  // by address, no two adjacent
  };

  const Device device_;
  const uint64_t context_;
  mutable std::mutex mutex_;
  size_t most_ = 0;        // bytes on a CPU, in all chunks
  bool reserved_ = false;  // all of them, as one chunk
  std::vector<Chunk> chunks_;
  int64_t used_ = 0, peak_ = 0;
  uint64_t trace_ = 0;
};

}  // namespace heed
