// How often words of two languages are thought to be linked: a hash table of pairs that occur
// together, with an expected count each.
//
// Counts are whole numbers of a small unit, so that threads can add to them in any order and the
// sum is the same to the last bit. Each has two values: the one that is read during a pass over the
// corpus, and the one that grows meanwhile; turn() puts the second in the place of the first.
//
// Memory: 16 bytes a slot, at most 70 % of which are used; while it grows, half as much again.
//
// Threads: insert() and Slot::add() may be called from any number at once, after reserve() for all
// that they can insert; all else from one.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>

namespace heed {

class PairCounts {
 public:
  struct Slot {
    uint64_t key = 0;  // source and target; no pair has both 0, so 0 is an empty slot
    uint32_t count = 0, next = 0;

    uint32_t source() const { return static_cast<uint32_t>(key >> 32); }
    uint32_t target() const { return static_cast<uint32_t>(key); }
    void add(uint32_t units) {
      std::atomic_ref<uint32_t>(next).fetch_add(units, std::memory_order_relaxed);
    }
  };

  PairCounts() { reserve(700); }

  uint64_t size() const { return used_; }
  std::span<const Slot> slots() const { return {slots_.get(), capacity_}; }

  // Room for so many pairs more.
  void reserve(uint64_t more);
  // True if it was not there. Who inserts says with inserted() how many were new, seldom: a number
  // that all threads change with every pair would cost more than the table.
  bool insert(uint32_t source, uint32_t target);
  void inserted(uint64_t pairs) {
    std::atomic_ref<uint64_t>(used_).fetch_add(pairs, std::memory_order_relaxed);
  }
  // insert() and inserted(), and so many units more that hold.
  void count(uint32_t source, uint32_t target, uint32_t units);

  // Where to begin to look for a pair, and from there the slot; null if it is not there. In two
  // steps, so that the memory for many pairs can be asked for before the first is looked at.
  uint64_t place(uint32_t source, uint32_t target) const {
    return place_of(key_of(source, target), capacity_);
  }
  void prefetch(uint64_t place) const { __builtin_prefetch(&slots_[place]); }
  Slot* find(uint64_t place, uint32_t source, uint32_t target) {
    return const_cast<Slot*>(std::as_const(*this).find(place, source, target));
  }
  const Slot* find(uint64_t place, uint32_t source, uint32_t target) const {
    const uint64_t key = key_of(source, target);
    for (;; place = after(place)) {
      if (slots_[place].key == key) return &slots_[place];
      if (slots_[place].key == 0) return nullptr;
    }
  }

  void turn();

  // A hash that depends on nothing but the pair.
  static uint64_t hash(uint64_t key) {
    key *= 0x9E3779B97F4A7C15;
    key ^= key >> 32;
    return key * 0xD6E8FEB86659FD93;
  }
  static uint64_t key_of(uint32_t source, uint32_t target) {
    return uint64_t{source} << 32 | target;
  }
  static uint64_t place_of(uint64_t key, uint64_t slots) {
    return (hash(key) >> 32) * slots >> 32;  // evenly over fewer than 2^32 slots
  }

 private:
  struct Free {
    void operator()(Slot* slots) const { std::free(slots); }
  };
  uint64_t after(uint64_t place) const { return place + 1 == capacity_ ? 0 : place + 1; }
  // The slot of a pair, which is given one if it has none, and whether it had none.
  std::pair<Slot&, bool> slot_of(uint64_t key);

  // From calloc: empty slots that nobody has touched take no memory, and no time.
  std::unique_ptr<Slot[], Free> slots_;
  uint64_t capacity_ = 0;
  uint64_t used_ = 0;
};

}  // namespace heed
