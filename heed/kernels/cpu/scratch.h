// The workspace of the CPU's kernels: scratch memory that one needs while it works.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace heed::kernels {

// Bytes that all threads keep so.
inline std::atomic<int64_t> scratch_held = 0;
inline int64_t scratch_bytes() { return scratch_held; }

// Memory that a thread keeps between calls; it grows and is never given back.
template <class T>
class Scratch {
 public:
  T* at_least(int64_t count) {
    if (count > count_) {
      data_.reset(static_cast<T*>(::operator new(static_cast<size_t>(count) * sizeof(T), kAlign)));
      scratch_held += (count - count_) * static_cast<int64_t>(sizeof(T));
      count_ = count;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(T* p) const { ::operator delete(p, kAlign); }
  };
  int64_t count_ = 0;
  std::unique_ptr<T, Free> data_;
};

// What a thread's memory is used for. Two that are needed at the same time have two names.
enum class Workspace {
  product_left,     // a product's packed operands
  product_right,    //
  rows,             // sums over rows, or one row
  attention_block,  // attention: what a thread works on
  attention_whole   // and what all threads read, or save for the last step
};
template <Workspace, class T>
T* scratch(int64_t count) {
  thread_local Scratch<T> kept;
  return kept.at_least(count);
}

}  // namespace heed::kernels
