// Attention needs memory in proportion to the lengths, not to their product: 16,384 queries against
// 16,384 keys, whose scores alone would take a gigabyte.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "heed/attention/attend.h"

namespace heed {
namespace {

// The most memory that was resident at once since the last reset, in bytes.
std::optional<double> most_resident() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      double kilobytes = 0;
      if (status >> kilobytes) return kilobytes * 1024;
    }
  return std::nullopt;
}
// From here on the most is what is resident now.
bool reset_most_resident() {
  std::ofstream clear("/proc/self/clear_refs");
  return static_cast<bool>(clear << "5" << std::flush);
}

// How much more memory was resident at once while `f` ran on what `make` had made, in bytes; none
// if that cannot be known. In a process of its own, which finds nothing to use again.
template <class Make, class F>
std::optional<double> most_added(Make make, F f) {
  int ends[2];
  if (pipe(ends) != 0) return std::nullopt;
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);  // never outlives the test
    const auto made = make();
    double added = -1;
    if (reset_most_resident()) {
      const std::optional<double> before = most_resident();
      f(made);
      const std::optional<double> after = most_resident();
      if (before && after) added = *after - *before;
    }
    const bool told = write(ends[1], &added, sizeof added) == sizeof added;
    _exit(told ? 0 : 1);
  }
  double added = -1;
  close(ends[1]);
  const bool told = child > 0 && read(ends[0], &added, sizeof added) == sizeof added;
  close(ends[0]);
  int status = 1;
  if (child > 0) waitpid(child, &status, 0);
  EXPECT_TRUE(told && status == 0) << "the process that measures ended early";
  return added < 0 ? std::nullopt : std::optional(added);
}

struct Inputs {
  std::unique_ptr<Score> score;
  Tensor q, k, v;
  Inputs(const std::string& name, int64_t length, int64_t size) {
    score = make_score(name, Params(1), {.query = size, .key = size});
    Random random(1);
    for (Tensor* x : {&q, &k, &v}) *x = as_parameter(normal({1, 1, length, size}, 0.3, random));
  }
};

void expect_little_memory(const char* name) {
  const std::optional<double> added =
      most_added([&] { return Inputs(name, 16384, 64); },
                 [](const Inputs& in) {
                   Tape tape;
                   tape.backward(mean(square(attend(*in.score, in.q, in.k, in.v).context)));
                 });
  if (!added) GTEST_SKIP() << "this system does not tell how much memory was used at most";
  testing::Test::RecordProperty("megabytes", std::to_string(*added / 1e6));
  EXPECT_LT(*added, 200e6);
  // The context and three gradients are 4 MB each: they were seen.
  EXPECT_GT(*added, 16e6);
}

TEST(AttentionMemory, OfAdditiveScoresGrowsWithTheLengthAlone) { expect_little_memory("additive"); }
TEST(AttentionMemory, OfScaledDotGrowsWithTheLengthAlone) { expect_little_memory("scaled_dot"); }

// The measure is one: plain ops, which keep all scores, need far more.
TEST(AttentionMemory, OfPlainOpsGrowsWithTheProductOfTheLengths) {
  const std::optional<double> added = most_added(
      [] { return Inputs("scaled_dot", 4096, 4); },
      [](const Inputs& in) {
        Tape tape;
        const Attended read = attend(*in.score, in.q, in.k, in.v, {.want_weights = true});
        tape.backward(mean(square(read.context)));
      });
  if (!added) GTEST_SKIP() << "this system does not tell how much memory was used at most";
  EXPECT_GT(*added, 2 * 4096.0 * 4096.0 * 4);
}

}  // namespace
}  // namespace heed
