// Ends a long computation that nobody waits for any more.
#pragma once

#include <atomic>

namespace heed {

// While it lives, parallel_for of this thread throws Error where it would begin a chunk and `asked`
// is true, and so does stop_if_asked().
class StopWhen {
 public:
  explicit StopWhen(const std::atomic<bool>& asked);
  ~StopWhen();
  StopWhen(const StopWhen&) = delete;
  StopWhen& operator=(const StopWhen&) = delete;

 private:
  const std::atomic<bool>* const before_;
};

// For long loops that are no parallel_for's.
void stop_if_asked();

}  // namespace heed
