// Memory that a kernel needs while it works.
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

}  // namespace heed::kernels
