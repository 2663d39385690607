#include "heed/tensor/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "heed/base/check.h"

#if defined(__has_feature)  // clang's way to say it
#if __has_feature(address_sanitizer) && !defined(__SANITIZE_ADDRESS__)
#define __SANITIZE_ADDRESS__
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

namespace heed {
namespace {

constexpr size_t kAlign = 64;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kFence = 64;  // never given out, so that the sanitizer sees a step too far
#else
constexpr size_t kFence = 0;
#endif

thread_local Arena* in_use = nullptr;

}  // namespace

std::shared_ptr<Arena> Arena::make() { return std::shared_ptr<Arena>(new Arena); }

Arena::Arena() {
  reserved_ =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* base = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(base != MAP_FAILED, "arena: cannot reserve ", reserved_ >> 20,
          " MiB of addresses: ", std::strerror(errno));
  madvise(base, reserved_, MADV_HUGEPAGE);  // fewer pages to find; no harm if refused
  base_ = static_cast<std::byte*>(base);
  free_[0] = reserved_;
}

Arena::~Arena() {
  ASAN_UNPOISON_MEMORY_REGION(base_, touched_);
  munmap(base_, reserved_);
}

void* Arena::allocate(size_t bytes) {
  const size_t size = (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign + kFence;
  const std::lock_guard lock(mutex_);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it)
    if (it->second >= size && (best == free_.end() || it->second < best->second)) best = it;
  require(best != free_.end(), "arena: out of memory: wanted ", bytes >> 20, " MiB more, ",
          used_ >> 20, " of ", reserved_ >> 20, " MiB are in use; a smaller batch needs less");
  const auto [offset, available] = *best;
  free_.erase(best);
  if (available > size) free_[offset + size] = available - size;
  held_[offset] = size;
  used_ += static_cast<int64_t>(size);
  peak_ = std::max(peak_, used_);
  touched_ = std::max(touched_, offset + size);
  ASAN_UNPOISON_MEMORY_REGION(base_ + offset, bytes);
  ASAN_POISON_MEMORY_REGION(base_ + offset + bytes, size - bytes);
  return base_ + offset;
}

void Arena::release(void* block) {
  const std::lock_guard lock(mutex_);
  const auto it = held_.find(static_cast<size_t>(static_cast<std::byte*>(block) - base_));
  HEED_ASSERT(it != held_.end());
  auto [offset, size] = *it;
  held_.erase(it);
  used_ -= static_cast<int64_t>(size);
  ASAN_POISON_MEMORY_REGION(base_ + offset, size);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  free_[offset] = size;
}

int64_t Arena::used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}
int64_t Arena::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}
void Arena::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = used_;
}

Arena& current_arena() {
  static const std::shared_ptr<Arena> process = Arena::make();
  return in_use ? *in_use : *process;
}

UseArena::UseArena(Arena& arena) : previous_(in_use) { in_use = &arena; }
UseArena::~UseArena() { in_use = previous_; }

}  // namespace heed
