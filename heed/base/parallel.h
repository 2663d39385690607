// Threads: pools of them, and one way to use them, parallel_for.
//
// A pool belongs to a context (tensor/context.h); a thread that has named none uses the process's
// default one. parallel_for may be called from any thread.
//
// A range is cut into chunks of `grain` items. Where the cuts are depends on the range and the
// grain alone, never on the number of threads, so whatever is computed or summed chunk by chunk has
// the same bits on any number of threads. Threads take chunks as they become free: one that another
// process keeps off its core holds up at most the chunk it has begun (docs/decisions/threads.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace heed {

// A borrowed callable: two words, no allocation. It must not outlive what it was made from.
template <class Signature>
class FunctionRef;

template <class Result, class... Args>
class FunctionRef<Result(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: made to be converted to
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> Result {
          return (*static_cast<std::remove_reference_t<F>*>(object))(args...);
        }) {}
  Result operator()(Args... args) const { return call_(object_, args...); }

 private:
  void* object_;
  Result (*call_)(void*, Args...);
};

// Memory that a thread's kernels need while they work: a few blocks, each of which grows and keeps
// its memory between calls. It belongs to a pool and serves one thread at a time.
class Workspace {
 public:
  static constexpr int kBlocks = 5;
  // At least so many bytes of this block, aligned to 64; what was there before is gone.
  void* at_least(int block, size_t bytes);
  size_t bytes() const;  // in all blocks; for the thread that uses it

 private:
  struct Free {
    void operator()(void* p) const;
  };
  std::unique_ptr<void, Free> data_[kBlocks];
  size_t size_[kBlocks] = {};
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads = 0);  // 0: as many as there are cores for (base/limits.h)
  ~ThreadPool();                         // nothing runs any more
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // How many threads a job may use, the calling one included; fewer than were asked for where the
  // system would not start so many when the first job ran. Not to be set while a job runs.
  int threads() const;
  void set_threads(int count);

  // parallel_for on this pool. Any thread may call it; where another one's job is under way, the
  // calling thread does its own alone.
  void run(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

  int64_t workspace_bytes() const;  // of all threads

  static ThreadPool& process();  // the default one
  static ThreadPool& current();  // the one in use by this thread

 private:
  friend class UsePool;
  friend Workspace& workspace();
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

// While it lives, parallel_for of this thread uses `pool`.
class UsePool {
 public:
  explicit UsePool(ThreadPool& pool);
  ~UsePool();
  UsePool(const UsePool&) = delete;
  UsePool& operator=(const UsePool&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> previous_;
};

// While it lives, parallel_for of this thread runs on it alone: others have work of their own.
class OnThisThread {
 public:
  OnThisThread();
  ~OnThisThread();
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;

 private:
  const bool before_;
};

// This thread's, of the pool in use.
Workspace& workspace();

// Of the pool in use.
int threads();
void set_threads(int count);

// Calls body(begin, end) for every chunk of [0, n), on several threads of the pool in use, and
// returns when all are done. Inside a body, or while another thread is in parallel_for of the same
// pool, it runs on the calling thread alone. What a body throws, the caller gets: the exception of
// the first chunk that threw, when no chunk is under way any more; those after it may not be done.
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

// How many chunks parallel_for makes: the size of a buffer with one partial result for each.
constexpr int64_t chunk_count(int64_t n, int64_t grain) { return (n + grain - 1) / grain; }

}  // namespace heed
