#include "apps/ranks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "heed/base/limits.h"
#include "heed/ranks/nccl.h"

namespace heed::apps {
namespace {

constexpr double kPreparing = 3600;
int own_stderr = STDERR_FILENO;
std::shared_ptr<Ranks> joined;

void say(const std::string& words) {
  const std::string line = "heed: " + words + "\n";
  [[maybe_unused]] const auto written = ::write(own_stderr, line.data(), line.size());
}

WaitOptions waiting(double deadline) {
  return {.deadline = deadline,
          .warn = [](const std::string& words) { say(words); },
          .give_up =
              [](const std::string& words) {
                tell_failure(words);
                std::_Exit(1);
              }};
}

}  // namespace

void silence_other_ranks() {
  if (launched().rank == 0) return;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  own_stderr = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  ::close(nowhere);
}

std::shared_ptr<Ranks> ranks(double joining) {
  if (!joined) {
    joined = join_ranks(waiting(joining));
    set_deadline(kPreparing);
  }
  return joined;
}

void set_deadline(double seconds) { joined->set_waiting(waiting(seconds)); }

namespace {
// So many threads as this rank has cores for; 0: all.
int threads_of_rank() {
  const int here = ranks()->on_this_machine(), cores = usable_cores();
  if (here == 1) return 0;
  // The launcher may have given each rank cores of its own.
  const bool bound = cores < static_cast<int>(std::thread::hardware_concurrency());
  return bound ? cores : std::max(1, cores / here);
}
}  // namespace

void take_share(Machine& machine) {
  if (machine.threads == 0) machine.threads = threads_of_rank();
  machine.gpu = gpu_of(*ranks());
}

void leave_ranks(int code) {
  if (!joined || joined->count() == 1) return;
  if (code != 0) {
    // What all have found alike, the first one says: it is given the time to.
    if (!joined->first()) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    abort_ranks(code);
  }
  joined.reset();
}

void tell_failure(const std::string& words) {
  if (launched().rank == 0) return say(words);
  say((joined ? joined->name(joined->rank()) : "rank " + std::to_string(launched().rank)) + ": " +
      words);
}

}  // namespace heed::apps
