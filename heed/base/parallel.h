// Threads: one pool for the process, and one way to use it, parallel_for.
//
// A range is cut into chunks of `grain` items. Where the cuts are depends on the range and the
// grain alone, never on the number of threads, so whatever is computed or summed chunk by chunk has
// the same bits on any number of threads. Threads take chunks as they become free: one that another
// process keeps off its core holds up at most the chunk it has begun (docs/decisions/threads.md).
#pragma once

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

// How many threads parallel_for may use, the calling one included. At first: as many as the process
// may run on. Thread-safe, but not while a parallel_for runs.
int threads();
void set_threads(int count);

// Calls body(begin, end) for every chunk of [0, n), on several threads, and returns when all are
// done. Inside a body, or while another thread of the program is in parallel_for, it runs on the
// calling thread alone. The body must not throw.
void parallel_for(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body);

// How many chunks parallel_for makes: the size of a buffer with one partial result for each.
constexpr int64_t chunk_count(int64_t n, int64_t grain) { return (n + grain - 1) / grain; }

}  // namespace heed
