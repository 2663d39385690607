// Open MPI or MPICH starts the ranks and moves their bytes. Messages are posted without waiting and
// asked for until they are there: so it is known who is missing, and nobody waits for ever. The few
// calls that wait inside MPI are looked at from another thread.
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>

#include "heed/base/check.h"
#include "heed/ranks/ranks.h"

namespace heed {
namespace {

void want(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail("ranks: ", call, " failed: ", std::string(text.data(), static_cast<size_t>(length)));
}

// While it lives, the calling thread is in a call that waits for all ranks, does not say for whom
// and cannot be left: what is said of it, and its end, come from a thread beside.
class LookOn {
 public:
  LookOn(std::string what, const WaitOptions& options)
      : thread_([this, what = std::move(what), options] { look(what, options); }) {}
  ~LookOn() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_all();
    thread_.join();
  }
  LookOn(const LookOn&) = delete;
  LookOn& operator=(const LookOn&) = delete;

 private:
  void look(const std::string& what, const WaitOptions& options) {
    using Seconds = std::chrono::duration<double>;
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    for (double next = std::min(options.warn_after, options.deadline);
         !ended_.wait_until(lock, begin + Seconds(next), [&] { return over_; });
         next = std::min(next + options.warn_after, options.deadline)) {
      const std::string words = what + " for " + std::to_string(static_cast<int64_t>(next)) + " s";
      if (next >= options.deadline) {
        if (options.give_up) options.give_up("ranks: " + words + " (--deadline)");
        return;
      }
      // Nobody knows here who waits: of the first two, one does.
      if (options.warn && launched().rank <= 1) options.warn(words);
    }
  }

  std::mutex mutex_;  // guards the next
  bool over_ = false;
  std::condition_variable ended_;
  std::thread thread_;  // last: it uses all of the above
};

// Joins, and knows where everybody is.
std::vector<std::string> hosts(const WaitOptions& waiting) {
  const LookOn looking("waiting for the other ranks to begin", waiting);
  int given = 0, count = 0;
  want(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &given), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  require(given >= MPI_THREAD_FUNNELED,
          "ranks: this MPI is for programs of one thread; take one with MPI_THREAD_FUNNELED");
  want(MPI_Comm_size(MPI_COMM_WORLD, &count), "MPI_Comm_size");
  constexpr int kLongest = 64;
  std::array<char, kLongest> own{};
  ::gethostname(own.data(), own.size() - 1);
  std::vector<char> all(static_cast<size_t>(count) * kLongest);
  want(
      MPI_Allgather(own.data(), kLongest, MPI_CHAR, all.data(), kLongest, MPI_CHAR, MPI_COMM_WORLD),
      "MPI_Allgather");
  std::vector<std::string> names;
  for (int r = 0; r < count; ++r) names.emplace_back(all.data() + r * kLongest);
  return names;
}

int own_rank() {
  int rank = 0;
  want(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  return rank;
}

class Mpi : public Ranks {
 public:
  Mpi(std::vector<std::string> names, const WaitOptions& waiting)
      : Ranks(own_rank(), std::move(names)) {
    set_waiting(waiting);
  }
  ~Mpi() override {
    const LookOn looking("waiting for the other ranks to end", waiting());
    MPI_Finalize();
  }

 private:
  struct Pending {
    MPI_Request request = MPI_REQUEST_NULL;
    int rank = 0;
  };

  void move(const std::string& what, std::span<const Sent> to,
            std::span<const Received> from) override {
    // A count is an int; smaller pieces also let both sides go on earlier.
    constexpr size_t kPiece = size_t{16} << 20;
    std::vector<Pending> pending;
    const auto post = [&](auto spans, auto call) {
      for (int r = 0; r < count(); ++r) {
        auto rest = spans[static_cast<size_t>(r)];
        if (r == rank()) continue;
        for (; !rest.empty(); rest = rest.subspan(std::min(rest.size(), kPiece)))
          call(rest.first(std::min(rest.size(), kPiece)), r,
               pending.emplace_back(Pending{.rank = r}));
      }
    };
    post(from, [](Received bytes, int r, Pending& p) {
      want(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, r, 0, MPI_COMM_WORLD,
                     &p.request),
           "MPI_Irecv");
    });
    post(to, [](Sent bytes, int r, Pending& p) {
      want(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, r, 0, MPI_COMM_WORLD,
                     &p.request),
           "MPI_Isend");
    });
    finish(what, pending);
  }

  void finish(const std::string& what, std::vector<Pending>& pending) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    double warned = 0;
    std::set<int> together{rank()};  // who exchange: not all do each time
    for (const Pending& p : pending) together.insert(p.rank);
    while (true) {
      std::erase_if(pending, [&](Pending& p) {
        int done = 0;
        const int code = MPI_Test(&p.request, &done, MPI_STATUS_IGNORE);
        require(code == MPI_SUCCESS, "ranks: ", what, ": ", name(p.rank),
                " is gone (its connection was closed)");
        return done != 0;
      });
      if (pending.empty()) return;
      const double waited = std::chrono::duration<double>(Clock::now() - begin).count();
      // At first another rank may be at work on the same core; then there is time to sleep.
      if (waited < 0.005)
        ::sched_yield();
      else
        std::this_thread::sleep_for(std::chrono::microseconds(waited < 1 ? 50 : 2000));
      if (waited < std::min(waiting().warn_after, waiting().deadline)) continue;
      std::set<int> missing;
      for (const Pending& p : pending) missing.insert(p.rank);
      std::string words;
      for (const int r : missing) words += (words.empty() ? "" : ", ") + name(r);
      if (waited >= waiting().deadline)
        fail("ranks: ", what, ": nothing came from ", words, " for ", static_cast<int64_t>(waited),
             " s (--deadline); it is stopped, stuck or cut off");
      if (waited < warned + waiting().warn_after) continue;
      warned = waited;
      const auto lowest =
          std::ranges::find_if(together, [&](int r) { return !missing.contains(r); });
      if (waiting().warn && *lowest == rank())
        waiting().warn((first() ? "" : name(rank()) + ": ") + what + ": waiting for " + words +
                       " for " + std::to_string(static_cast<int64_t>(waited)) + " s");
    }
  }
};

}  // namespace

std::shared_ptr<Ranks> join_ranks(const WaitOptions& waiting) {
  if (launched().count == 1) return alone();
  return std::make_shared<Mpi>(hosts(waiting), waiting);
}

void abort_ranks(int code) {
  // Where the launcher cannot be reached, MPI_Abort waits for it.
  std::thread([code] {
    std::this_thread::sleep_for(std::chrono::seconds(3));
    std::_Exit(code);
  }).detach();
  int begun = 0;
  if (MPI_Initialized(&begun) == MPI_SUCCESS && begun) MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}

}  // namespace heed
