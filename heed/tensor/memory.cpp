#include "heed/tensor/memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "heed/base/check.h"
#include "heed/base/limits.h"
#include "heed/tensor/context.h"
#include "heed/tensor/cuda.h"

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

constexpr size_t kCudaAlign = 256;
constexpr size_t kCudaChunk = size_t{256} << 20;
constexpr size_t kHostChunk = size_t{16} << 20;

size_t align_of(Device device) { return device == Device::cpu ? kAlign : kCudaAlign; }

// The sanitizer knows nothing of a GPU's memory.
void poison(Device device, void* begin, size_t size) {
  if (device == Device::cpu) ASAN_POISON_MEMORY_REGION(begin, size);
}
void unpoison(Device device, void* begin, size_t size) {
  if (device == Device::cpu) ASAN_UNPOISON_MEMORY_REGION(begin, size);
}

// So many bytes of the host's addresses, or null.
std::byte* mapped(size_t bytes) {
  void* const base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  madvise(base, bytes, MADV_HUGEPAGE);  // fewer pages to find; no harm if refused
  return static_cast<std::byte*>(base);
}

}  // namespace

std::shared_ptr<Arena> Arena::make(Device device) {
  return make(device, Context::current().number());
}
std::shared_ptr<Arena> Arena::make(Device device, uint64_t context) {
  return std::shared_ptr<Arena>(new Arena(device, context));
}

Arena::Arena(Device device, uint64_t context) : device_(device), context_(context) {
  if (device != Device::cpu) return;
  static const size_t usable = static_cast<size_t>(usable_memory());
  most_ = usable;
  // Addresses that are reserved count where they are limited, and where memory is promised only
  // once (vm.overcommit_memory = 2): there it grows by chunks.
  if (addresses_limited()) return;
  if (std::byte* const base = mapped(most_)) {
    add_chunk(base, most_);
    reserved_ = true;
  }
}

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) {
    if (device_ == Device::cuda) {
      cuda_free(chunk.begin);
      continue;
    }
    // Only what was given out can be poisoned, and that lies before the last free block.
    const size_t touched = chunk.free.empty()
                               ? chunk.size
                               : static_cast<size_t>(chunk.free.back().begin - chunk.begin);
    unpoison(device_, chunk.begin, touched);
    munmap(chunk.begin, chunk.size);
  }
}

void Arena::add_chunk(std::byte* begin, size_t size) {
  // The last bytes are never given out: two chunks side by side do not become one block.
  chunks_.push_back({begin, size, {{begin, size - align_of(device_)}}});
}

// A chunk with room for a block of this size, if there is memory for one.
void Arena::grow(size_t size) {
  const size_t least = size + align_of(device_);
  if (device_ == Device::cuda) {
    const size_t chunk = std::max(kCudaChunk, least);
    return add_chunk(static_cast<std::byte*>(cuda_allocate(chunk)), chunk);
  }
  size_t mapped_now = 0;
  for (const Chunk& chunk : chunks_) mapped_now += chunk.size;
  // Chunks in which nothing is left make room for one that is large enough.
  const auto unused = [&](const Chunk& chunk) {
    if (chunk.free.size() != 1 || chunk.free[0].size != chunk.size - kAlign) return false;
    unpoison(device_, chunk.begin, chunk.size);
    munmap(chunk.begin, chunk.size);
    return true;
  };
  for (const size_t chunk : {std::max(kHostChunk, least), least}) {
    if (mapped_now + chunk > most_) continue;
    if (std::byte* const begin = mapped(chunk)) return add_chunk(begin, chunk);
  }
  if (std::erase_if(chunks_, unused) > 0) grow(size);
}

size_t Arena::block_size(size_t bytes) const {
  const size_t align = align_of(device_);
  return (std::max<size_t>(bytes, 1) + align - 1) / align * align + kFence;
}

void* Arena::allocate(size_t bytes) {
  const size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  std::byte* begin = nullptr;
  const auto take = [&](Chunk& chunk) {
    auto best = chunk.free.end();
    for (auto it = chunk.free.begin(); it != chunk.free.end(); ++it) {
      if (it->size >= size && (best == chunk.free.end() || it->size < best->size)) best = it;
      if (it->size == size) break;
    }
    if (best == chunk.free.end()) return false;
    begin = best->begin;
    best->begin += size, best->size -= size;
    if (best->size == 0) chunk.free.erase(best);
    return true;
  };
  bool found = std::any_of(chunks_.begin(), chunks_.end(), take);
  if (!found && (device_ == Device::cuda || !reserved_)) {
    grow(size);
    found = !chunks_.empty() && take(chunks_.back());
  }
  if (!found)
    fail<OutOfMemory>("arena: out of memory: wanted ", bytes >> 20, " MiB more, ", used_ >> 20,
                      " of ", most_ >> 20, " MiB are in use",
                      reserved_ ? "" : " and no more can be mapped (ulimit -v)",
                      "; a smaller batch needs less");
  trace_ = (trace_ ^ reinterpret_cast<uintptr_t>(begin) ^ size) * 0x100000001b3;
  used_ += static_cast<int64_t>(size);
  peak_ = std::max(peak_, used_);
  unpoison(device_, begin, bytes);
  poison(device_, begin + bytes, size - bytes);
  return begin;
}

void Arena::release(void* block, size_t bytes) {
  auto* const begin = static_cast<std::byte*>(block);
  size_t size = block_size(bytes);
  const std::lock_guard lock(mutex_);
  used_ -= static_cast<int64_t>(size);
  trace_ = (trace_ ^ reinterpret_cast<uintptr_t>(begin)) * 0x100000001b3;
  poison(device_, begin, size);
  const auto chunk = std::find_if(chunks_.begin(), chunks_.end(), [&](const Chunk& c) {
    return begin >= c.begin && begin < c.begin + c.size;
  });
  HEED_ASSERT(chunk != chunks_.end());
  auto& free = chunk->free;
  const auto next = std::ranges::lower_bound(free, begin, {}, &Block::begin);
  const auto before = next == free.begin() ? free.end() : std::prev(next);
  const bool joins_next = next != free.end() && next->begin == begin + size,
             joins_before = before != free.end() && before->begin + before->size == begin;
  if (joins_before && joins_next) {
    before->size += size + next->size;
    free.erase(next);
  } else if (joins_before) {
    before->size += size;
  } else if (joins_next) {
    next->begin = begin, next->size += size;
  } else {
    free.insert(next, {begin, size});
  }
}

void Arena::begin_trace() {
  const std::lock_guard lock(mutex_);
  trace_ = 0;
}
uint64_t Arena::trace() const {
  const std::lock_guard lock(mutex_);
  return trace_;
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

}  // namespace heed
