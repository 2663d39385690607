// A training step beside a process that keeps one core busy: it may get slower, not stall.
// Meaningful with two cores or more; on one there is no core to share.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "heed/base/parallel.h"
#include "heed/nn/layers.h"
#include "heed/tensor/context.h"
#include "heed/training/optimizer.h"

namespace heed {
namespace {

// The mean of some steps of a small network: many short parallel pieces, as in a real one.
double step_seconds() {
  const Params params(1);
  const FeedForward ff(params, 128, 512);
  Adam adam(params);
  const auto arena = Arena::make();
  Random random(1);
  const Tensor x = normal({256, 128}, 1, random);
  std::vector<double> times;
  for (int i = 0; i < 150; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const UseArena use(*arena);
    Tape tape;
    Tensor y = x;
    for (int layer = 0; layer < 4; ++layer) y = y + ff(y);
    tape.backward(mean(square(y)));
    adam.step(1e-5);
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  double total = 0;  // the mean: a median would hide stalls
  for (size_t i = 20; i < times.size(); ++i) total += times[i];
  return total / static_cast<double>(times.size() - 20);
}

TEST(Load, ABusyNeighbourCostsAtMostTwoAndAHalfTimes) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core: nothing to share";
  set_threads(2);
  double best = 1e9;
  for (int attempt = 0; attempt < 4; ++attempt) {  // the machine's other load comes and goes
    const double alone = step_seconds();
    const pid_t neighbour = fork();
    if (neighbour == 0) {
      alarm(60);  // never outlives the test
      std::atomic<uint64_t> spin = 0;
      while (true) spin.fetch_add(1, std::memory_order_relaxed);
    }
    ASSERT_GT(neighbour, 0);
    const double beside = step_seconds();
    kill(neighbour, SIGKILL);
    waitpid(neighbour, nullptr, 0);
    best = std::min(best, beside / alone);
    if (best <= 2.5) break;
  }
  RecordProperty("slower", std::to_string(best));
  EXPECT_LE(best, 2.5);
}

}  // namespace
}  // namespace heed
