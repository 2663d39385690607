#include "heed/alignment/pair_counts.h"

#include <algorithm>

#include "heed/base/parallel.h"

namespace heed {

void PairCounts::reserve(uint64_t more) {
  const uint64_t wanted = (size() + more) * 10 / 7 + 1;
  if (wanted <= slots_.size()) return;
  std::vector<Slot> old(std::max(wanted, slots_.size() + slots_.size() / 2));
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.key == 0) continue;
    uint64_t at = place_of(slot.key, slots_.size());
    while (slots_[at].key != 0) at = at + 1 == slots_.size() ? 0 : at + 1;
    slots_[at] = slot;
  }
}

void PairCounts::insert(uint32_t source, uint32_t target) {
  const uint64_t key = key_of(source, target);
  for (uint64_t at = place_of(key, slots_.size());; at = at + 1 == slots_.size() ? 0 : at + 1) {
    std::atomic_ref<uint64_t> slot(slots_[at].key);
    uint64_t seen = slot.load(std::memory_order_relaxed);
    if (seen == 0 && slot.compare_exchange_strong(seen, key, std::memory_order_relaxed)) {
      std::atomic_ref<uint64_t>(used_).fetch_add(1, std::memory_order_relaxed);
      return;
    }
    if (seen == key) return;
  }
}

void PairCounts::count(uint32_t source, uint32_t target, uint32_t units) {
  insert(source, target);
  find(place(source, target), source, target)->count += units;
}

void PairCounts::turn() {
  parallel_for(static_cast<int64_t>(slots_.size()), 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Slot& slot = slots_[static_cast<size_t>(i)];
      slot.count = slot.next;
      slot.next = 0;
    }
  });
}

}  // namespace heed
