// Processes that work together, each a rank of them, as mpirun or srun started them.
//
// One primitive moves bytes: every rank gives a span to every other and gets one from it. Sums are
// never a library's: none promises their order (docs/decisions/ranks.md), and who adds himself, in
// an order of his own, has the same bytes on any number of ranks (training/gradient_sum.h).
//
// Nothing waits in silence: whoever waits for a rank longer than `warn_after` says for whom and
// what for, and past the deadline the call throws an Error that names them.
//
// Threads: one at a time, always the one that joined.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace heed {

// What a launcher's environment says: Open MPI's, MPICH's (PMI), or Slurm's.
struct Launch {
  int rank = 0, count = 1;
};
Launch launched();

struct WaitOptions {
  double warn_after = 10, deadline = 300;  // seconds
  // Called in the lowest of the ranks that wait.
  std::function<void(const std::string& words)> warn = {};
  // Of calls that only MPI can end, at the beginning and at the end of all: called past the
  // deadline, by another thread, to end this process. It does not return.
  std::function<void(const std::string& words)> give_up = {};
};

class Ranks {
 public:
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int count() const { return count_; }
  int on_this_machine() const { return on_this_machine_; }
  int order_on_machine() const;  // of those, which one this is, from 0
  // Where every machine has as many ranks, numbered one after the other, so many; else 1.
  int on_each_machine() const;
  bool first() const { return rank_ == 0; }
  // "rank 3 (node7)".
  std::string name(int rank) const;
  void set_waiting(const WaitOptions& options) { waiting_ = options; }
  const WaitOptions& waiting() const { return waiting_; }
  // Seconds that calls below have taken so far: the others were not there yet, or bytes moved.
  double waited() const { return waited_; }

  // All of what follows is called by every rank, in the same order. `what` is for messages.

  // to[r] goes to rank r, from[r] comes from it; who sends and who receives agree on sizes, an
  // empty span is not sent.
  using Sent = std::span<const std::byte>;
  using Received = std::span<std::byte>;
  void exchange(const std::string& what, std::span<const Sent> to, std::span<const Received> from);

  // The first rank's bytes, for all.
  void broadcast(const std::string& what, std::span<std::byte> bytes);
  // Everybody's words, by rank.
  std::vector<std::string> gather(const std::string& what, const std::string& mine);
  std::vector<std::vector<std::string>> gather(const std::string& what,
                                               const std::vector<std::string>& mine);
  // Of the first rank's texts, one for each rank, this one's.
  std::string scatter(const std::string& what, const std::vector<std::string>& texts);
  // Everybody's words, by rank, at the first; the others get none.
  std::vector<std::string> collect(const std::string& what, const std::string& mine);
  // Everybody's value, by rank.
  template <class T>
  std::vector<T> gather(const std::string& what,
                        const T& mine) requires std::is_trivially_copyable_v<T> {
    std::vector<T> all(static_cast<size_t>(count_));
    gather_bytes(what, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }
  void meet(const std::string& what) { gather(what, char{0}); }
  // Throws Error that names the first rank whose words differ from the first rank's.
  void want_same(const std::string& what, const std::string& mine);

 protected:
  Ranks(int rank, std::vector<std::string> hosts);

 private:
  virtual void move(const std::string& what, std::span<const Sent> to,
                    std::span<const Received> from) = 0;
  void gather_bytes(const std::string& what, Sent mine, Received all);

  int rank_, count_, on_this_machine_;
  std::vector<std::string> hosts_;  // by rank
  WaitOptions waiting_;
  double waited_ = 0;
};

// The only rank there is.
std::shared_ptr<Ranks> alone();

// All that the launcher started, which is one where none did. Throws Error where several were
// started and this library was built without MPI. Waits as `waiting` says, also later.
std::shared_ptr<Ranks> join_ranks(const WaitOptions& waiting);
// Ends all ranks at once, after a failure of this one; itself also where the others cannot be
// reached any more.
[[noreturn]] void abort_ranks(int code);

}  // namespace heed
