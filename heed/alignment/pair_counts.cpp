#include "heed/alignment/pair_counts.h"

#include <algorithm>

#include "heed/base/check.h"
#include "heed/base/parallel.h"

namespace heed {
namespace {

constexpr int64_t kGrain = 1 << 16;

}  // namespace

void PairCounts::reserve(uint64_t more) {
  const uint64_t wanted = (size() + more) * 10 / 7 + 1;
  if (wanted <= capacity_) return;
  const uint64_t capacity = std::max(wanted, capacity_ + capacity_ / 2);
  std::unique_ptr<Slot[], Free> old(static_cast<Slot*>(std::calloc(capacity, sizeof(Slot))));
  if (!old)
    fail<OutOfMemory>("align: no memory for ", capacity, " pairs of words, ",
                      capacity * sizeof(Slot) >> 20, " MiB");
  old.swap(slots_);
  const auto before = static_cast<int64_t>(std::exchange(capacity_, capacity));
  parallel_for(before, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (old[i].key == 0) continue;
      Slot& slot = slot_of(old[i].key).first;
      slot.count = old[i].count;
      slot.next = old[i].next;
    }
  });
}

std::pair<PairCounts::Slot&, bool> PairCounts::slot_of(uint64_t key) {
  for (uint64_t at = place_of(key, capacity_);; at = after(at)) {
    std::atomic_ref<uint64_t> slot(slots_[at].key);
    uint64_t seen = slot.load(std::memory_order_relaxed);
    if (seen == 0 && slot.compare_exchange_strong(seen, key, std::memory_order_relaxed))
      return {slots_[at], true};
    if (seen == key) return {slots_[at], false};
  }
}

bool PairCounts::insert(uint32_t source, uint32_t target) {
  return slot_of(key_of(source, target)).second;
}

void PairCounts::count(uint32_t source, uint32_t target, uint32_t units) {
  const auto [slot, fresh] = slot_of(key_of(source, target));
  if (fresh) inserted(1);
  slot.count += units;
}

void PairCounts::turn() {
  parallel_for(static_cast<int64_t>(capacity_), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (slots_[i].key == 0) continue;
      slots_[i].count = slots_[i].next;
      slots_[i].next = 0;
    }
  });
}

}  // namespace heed
