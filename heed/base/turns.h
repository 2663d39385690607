// A mutex that its holder may lock again, and whose others get it in the order in which they came:
// who locks it a thousand times a second keeps nobody out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace heed {

class Turns {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    if (again()) return;
    const uint64_t mine = last_++;
    changed_.wait(lock, [&] { return now_ == mine; });
    take();
  }
  bool try_lock() {
    const std::lock_guard lock(mutex_);
    if (again()) return true;
    if (now_ != last_) return false;
    ++last_;
    take();
    return true;
  }
  void unlock() {
    const std::lock_guard lock(mutex_);
    if (--depth_ > 0) return;
    holder_ = {};
    if (++now_ != last_) changed_.notify_all();
  }

 private:
  bool again() {
    if (holder_ != std::this_thread::get_id()) return false;
    ++depth_;
    return true;
  }
  void take() { holder_ = std::this_thread::get_id(), depth_ = 1; }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread::id holder_;
  int64_t depth_ = 0;
  uint64_t now_ = 0, last_ = 0;  // whose turn it is, and the number of who comes next
};

}  // namespace heed
