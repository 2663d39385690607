// The pool hands out chunks through one atomic word, the ticket: the job's number in the upper
// half, the chunks nobody has taken yet in the lower. Taking a chunk is one compare-and-swap that
// succeeds only while that very job is open; the job stays open until every taken chunk is done. So
// a worker that wakes late finds nothing to take and harms nothing, and the caller never waits for
// a worker that has not begun.
#include "heed/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "heed/base/check.h"

namespace heed {
namespace {

// Looks at a condition this often before sleeping: about 100 microseconds, a few times the cost of
// a wake-up (20 to 30 for each side). Longer would burn a core that another process could use.
constexpr int kLooks = 2000;

thread_local bool inside_parallel = false;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class Done>
bool look_for(Done done) {
  for (int i = 0; i < kLooks; ++i) {
    if (done()) return true;
    pause_briefly();
  }
  return false;
}

int cores_of_process() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1u, std::thread::hardware_concurrency());
}

class Pool {
 public:
  Pool() : limit_(cores_of_process()) {}

  ~Pool() {
    stop_ = true;
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  int limit() const { return limit_; }

  void set_limit(int count) {
    const std::lock_guard lock(mutex_);
    limit_ = count;
  }

  void run(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
    const int64_t chunks = chunk_count(n, grain);
    std::unique_lock lock(mutex_, std::defer_lock);
    const bool alone = chunks == 1 || limit_ == 1 || inside_parallel || chunks > UINT32_MAX;
    if (alone || !lock.try_lock()) {
      for (int64_t begin = 0; begin < n; begin += grain) body(begin, std::min(n, begin + grain));
      return;
    }
    start_workers();
    n_ = n;
    grain_ = grain;
    body_ = &body;
    done_.store(0, std::memory_order_relaxed);
    chunks_ = static_cast<uint32_t>(chunks);
    ++job_;
    ticket_.store(uint64_t{job_} << 32 | chunks_, std::memory_order_release);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    inside_parallel = true;
    take_chunks();
    inside_parallel = false;
    if (!look_for([&] { return done_.load(std::memory_order_acquire) == chunks_; }))
      for (uint32_t seen; (seen = done_.load(std::memory_order_acquire)) != chunks_;)
        done_.wait(seen);
  }

 private:
  void start_workers() {
    while (static_cast<int>(workers_.size()) < limit_ - 1)
      workers_.emplace_back([this, index = static_cast<int>(workers_.size())] { work(index); });
  }

  void work(int index) {
    inside_parallel = true;
    uint32_t seen = 0;
    while (true) {
      if (!look_for([&] { return epoch_.load(std::memory_order_acquire) != seen; }))
        epoch_.wait(seen);
      seen = epoch_.load(std::memory_order_acquire);
      if (stop_) return;
      if (index < limit_ - 1) take_chunks();
    }
  }

  void take_chunks() {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(ticket) != 0) {
      if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel)) continue;
      const uint32_t total = chunks_;
      const int64_t begin = (total - static_cast<uint32_t>(ticket)) * grain_;
      (*body_)(begin, std::min(n_, begin + grain_));
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == total) done_.notify_one();
      ticket = ticket_.load(std::memory_order_acquire);
    }
  }

  std::mutex mutex_;  // held by whoever runs a job
  std::atomic<int> limit_;
  std::vector<std::thread> workers_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> epoch_ = 0;  // changes with every job; sleeping workers wait on it

  // The job. Written before the ticket opens it, read only with a chunk in hand.
  int64_t n_ = 0, grain_ = 1;
  const FunctionRef<void(int64_t, int64_t)>* body_ = nullptr;
  uint32_t chunks_ = 0, job_ = 0;
  alignas(64) std::atomic<uint64_t> ticket_ = 0;
  alignas(64) std::atomic<uint32_t> done_ = 0;
};

Pool& pool() {
  static Pool instance;
  return instance;
}

}  // namespace

int threads() { return pool().limit(); }

void set_threads(int count) {
  require(count >= 1 && count <= 1024, "set_threads: wanted 1 to 1024 threads, given ", count);
  pool().set_limit(count);
}

void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  pool().run(n, std::max<int64_t>(1, grain), body);
}

}  // namespace heed
