// The pool hands out chunks through one atomic word, the ticket: the job's number in the upper
// half, the chunks nobody has taken yet in the lower. Taking a chunk is one compare-and-swap that
// succeeds only while that very job is open; the job stays open until every taken chunk is done. So
// a worker that wakes late finds nothing to take and harms nothing, and the caller never waits for
// a worker that has not begun.
//
// A body that throws takes the chunks that nobody has begun off the ticket. They are handed out in
// order, so those before it are all begun: the first that throws is the same on any number of
// threads.
#include "heed/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "heed/base/check.h"
#include "heed/base/limits.h"
#include "heed/base/stop.h"

namespace heed {
namespace {

// Looks at a condition this often before sleeping: about 100 microseconds, a few times the cost of
// a wake-up (20 to 30 for each side). Longer would burn a core that another process could use; in
// between, whoever else is ready to run goes first.
constexpr int kLooks = 2000, kLooksBetween = 100;

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class Done>
bool look_for(Done done) {
  for (int i = 0; i < kLooks; ++i) {
    if (done()) return true;
    if (i % kLooksBetween == kLooksBetween - 1) std::this_thread::yield();
    pause_briefly();
  }
  return false;
}

constexpr std::align_val_t kAlign{64};

// The workspaces of a pool: what a thread gives back, the next one takes.
struct Workspaces {
  std::mutex mutex;
  std::vector<std::unique_ptr<Workspace>> all;
  std::vector<Workspace*> free;

  Workspace* take() {
    const std::lock_guard lock(mutex);
    if (free.empty()) return all.emplace_back(std::make_unique<Workspace>()).get();
    Workspace* const found = free.back();
    free.pop_back();
    return found;
  }
  void give_back(Workspace* workspace) {
    const std::lock_guard lock(mutex);
    free.push_back(workspace);
  }
};

// What a thread is to the pool that it uses.
struct Seat {
  ThreadPool* pool = nullptr;  // null: the process's
  std::shared_ptr<Workspaces> from = nullptr;
  Workspace* workspace = nullptr;  // once it was asked for
  bool inside = false;             // of a job, or alone

  void leave() {
    if (workspace) from->give_back(workspace);
    workspace = nullptr, from = nullptr;
  }
};
struct SeatOfThread : Seat {
  ~SeatOfThread() { leave(); }
};
thread_local SeatOfThread seat;
thread_local const std::atomic<bool>* stop_asked = nullptr;
[[noreturn]] void end_as_asked() { fail("stopped, as was asked"); }

}  // namespace

void Workspace::Free::operator()(void* p) const { ::operator delete(p, kAlign); }

void* Workspace::at_least(int block, size_t bytes) {
  if (bytes > size_[block]) {
    data_[block].reset();
    size_[block] = 0;
    data_[block].reset(::operator new(bytes, kAlign));
    size_[block] = bytes;
  }
  return data_[block].get();
}

size_t Workspace::bytes() const {
  size_t sum = 0;
  for (const size_t size : size_) sum += size;
  return sum;
}

struct ThreadPool::Inside {
  Inside(ThreadPool& pool, int threads) : pool_(pool), limit_(threads) {}

  ~Inside() {
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
    const bool alone = chunks == 1 || limit_ == 1 || seat.inside || chunks > UINT32_MAX;
    if (alone || !lock.try_lock()) {
      for (int64_t begin = 0; begin < n; begin += grain) body(begin, std::min(n, begin + grain));
      return;
    }
    start_workers();
    n_ = n;
    grain_ = grain;
    body_ = &body;
    error_ = nullptr;
    done_.store(0, std::memory_order_relaxed);
    chunks_ = static_cast<uint32_t>(chunks);
    ++job_;
    ticket_.store(uint64_t{job_} << 32 | chunks_, std::memory_order_release);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    seat.inside = true;
    take_chunks();
    seat.inside = false;
    if (!look_for([&] { return done_.load(std::memory_order_acquire) == chunks_; }))
      for (uint32_t seen; (seen = done_.load(std::memory_order_acquire)) != chunks_;)
        done_.wait(seen);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

  // Where the system starts no more threads (ulimit -u), those that there are do the work.
  void start_workers() {
    workers_.reserve(static_cast<size_t>(std::max(0, limit_ - 1)));
    try {
      while (static_cast<int>(workers_.size()) < limit_ - 1)
        workers_.emplace_back([this, index = static_cast<int>(workers_.size())] { work(index); });
    } catch (const std::system_error&) {
      limit_ = static_cast<int>(workers_.size()) + 1;
    }
  }

  void work(int index) {
    seat.pool = &pool_, seat.inside = true;
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
      const uint32_t chunk = total - static_cast<uint32_t>(ticket);
      const int64_t begin = chunk * grain_;
      uint32_t over = 1;  // chunks that nobody will work at any more
      try {
        (*body_)(begin, std::min(n_, begin + grain_));
      } catch (...) {
        over += give_up(chunk, std::current_exception());
      }
      if (done_.fetch_add(over, std::memory_order_acq_rel) + over == total) done_.notify_one();
      ticket = ticket_.load(std::memory_order_acquire);
    }
  }

  // What `chunk` threw is told if none before it did. How many chunks nobody has begun; they are
  // taken.
  uint32_t give_up(uint32_t chunk, std::exception_ptr thrown) {
    const std::lock_guard lock(failing_);
    if (!error_ || chunk < failed_) error_ = std::move(thrown), failed_ = chunk;
    return static_cast<uint32_t>(ticket_.fetch_and(~uint64_t{UINT32_MAX}));
  }

  ThreadPool& pool_;
  const std::shared_ptr<Workspaces> workspaces_ = std::make_shared<Workspaces>();
  std::mutex mutex_;  // held by whoever runs a job
  std::atomic<int> limit_;
  std::vector<std::thread> workers_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint32_t> epoch_ = 0;  // changes with every job; sleeping workers wait on it

  // The job. Written before the ticket opens it, read only with a chunk in hand.
  int64_t n_ = 0, grain_ = 1;
  const FunctionRef<void(int64_t, int64_t)>* body_ = nullptr;
  uint32_t chunks_ = 0, job_ = 0;
  std::mutex failing_;        // guards the next two while chunks are under way
  std::exception_ptr error_;  // what is thrown when the job is over
  uint32_t failed_ = 0;       // the chunk that threw it
  alignas(64) std::atomic<uint64_t> ticket_ = 0;
  alignas(64) std::atomic<uint32_t> done_ = 0;
};

namespace {

int checked(int count) {
  require(count >= 1 && count <= 1024, "set_threads: wanted 1 to 1024 threads, given ", count);
  return count;
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : inside_(std::make_unique<Inside>(*this, threads == 0 ? usable_cores() : checked(threads))) {}
ThreadPool::~ThreadPool() = default;
int ThreadPool::threads() const { return inside_->limit(); }
void ThreadPool::set_threads(int count) { inside_->set_limit(checked(count)); }

void ThreadPool::run(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (n <= 0) return;
  grain = std::max<int64_t>(1, grain);
  if (!stop_asked) return inside_->run(n, grain, body);
  inside_->run(n, grain, [&, asked = stop_asked](int64_t begin, int64_t end) {
    if (*asked) end_as_asked();
    body(begin, end);
  });
}

int64_t ThreadPool::workspace_bytes() const {
  const std::lock_guard lock(inside_->workspaces_->mutex);
  size_t sum = 0;
  for (const auto& workspace : inside_->workspaces_->all) sum += workspace->bytes();
  return static_cast<int64_t>(sum);
}

ThreadPool& ThreadPool::process() {
  static ThreadPool pool;
  return pool;
}
ThreadPool& ThreadPool::current() { return seat.pool ? *seat.pool : process(); }

struct UsePool::Saved {
  Seat seat;
};
UsePool::UsePool(ThreadPool& pool) : previous_(std::make_unique<Saved>(Saved{seat})) {
  static_cast<Seat&>(seat) = {.pool = &pool, .inside = previous_->seat.inside};
}
UsePool::~UsePool() {
  seat.leave();
  static_cast<Seat&>(seat) = previous_->seat;
}

OnThisThread::OnThisThread() : before_(std::exchange(seat.inside, true)) {}
OnThisThread::~OnThisThread() { seat.inside = before_; }

StopWhen::StopWhen(const std::atomic<bool>& asked) : before_(std::exchange(stop_asked, &asked)) {}
StopWhen::~StopWhen() { stop_asked = before_; }
void stop_if_asked() {
  if (stop_asked && *stop_asked) end_as_asked();
}

Workspace& workspace() {
  if (!seat.workspace) {
    seat.from = ThreadPool::current().inside_->workspaces_;
    seat.workspace = seat.from->take();
  }
  return *seat.workspace;
}

int threads() { return ThreadPool::current().threads(); }
void set_threads(int count) { ThreadPool::current().set_threads(count); }
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  ThreadPool::current().run(n, grain, body);
}

}  // namespace heed
