// Memory for tensors: arenas.
//
// An arena is one reserved range of addresses, of which pages become real when first touched and
// stay so. Blocks are given out best fit, lowest address first, and joined again when freed. That
// is deterministic: the same requests in the same order get the same addresses, so a training step
// whose shapes come back finds its memory warm, and on a GPU can be replayed as a graph
// (docs/decisions/memory.md). There is a process-wide arena for what lasts, and a trainer uses
// another one for its steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace heed {

// Thread-safe. Kept alive by the tensors in it.
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Reserves as many addresses as the machine has memory; uses none yet.
  static std::shared_ptr<Arena> make();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned to 64 bytes. Throws Error when the machine's memory would not suffice.
  void* allocate(size_t bytes);
  void release(void* block);

  int64_t used() const;  // bytes in blocks now
  int64_t peak() const;  // the most there were since the last reset_peak()
  void reset_peak();

 private:
  Arena();

  mutable std::mutex mutex_;
  std::byte* base_ = nullptr;
  size_t reserved_ = 0, touched_ = 0;  // touched: no byte behind was ever given out
  std::map<size_t, size_t> free_;      // offset -> size, no two adjacent
  std::map<size_t, size_t> held_;      // offset -> size
  int64_t used_ = 0, peak_ = 0;
};

// The arena that new tensors of this thread come from: the one in use, else the process-wide one.
Arena& current_arena();

// While it lives, new tensors of this thread come from `arena`. Tensors may outlive it.
class UseArena {
 public:
  explicit UseArena(Arena& arena);
  ~UseArena();
  UseArena(const UseArena&) = delete;
  UseArena& operator=(const UseArena&) = delete;

 private:
  Arena* previous_;
};

}  // namespace heed
