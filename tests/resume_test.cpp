// Training that is stopped or killed and goes on ends as if it had never been.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <set>
#include <thread>

#include "heed/base/parallel.h"
#include "heed/files/checksum.h"
#include "heed/ops/bf16.h"
#include "tests/toy_run.h"

namespace heed {
namespace {

// Everything that a run depends on, in the smallest size.
TrainConfig eventful(int64_t average_last = 0) {
  TrainConfig c;
  c.average_last = average_last;
  c.rate = 5e-3, c.schedule = "plateau", c.warmup = 5, c.batch_tokens = 64, c.accumulate = 2;
  c.average = 0.9, c.steps = 41, c.validate_every = 7, c.save_every = 3, c.guided = 0.3;
  c.stop_on = "loss", c.decay = 0.01;
  return c;
}
ModelConfig with_dropout(ModelConfig c) {
  c.size = 16, c.inner = 24, c.dropout = 0.2, c.attention_dropout = c.inner_dropout = 0.1;
  return c;
}

// Gets better and worse, by the step alone, so that the best, the plateau and the rate all move.
Trainer::Hooks eventful_hooks(const ToyRun& run) {
  Trainer::Hooks hooks;
  hooks.validate = [&run] {
    const double wave = std::cos(double(run.trainer->steps()));  // the best at the last step, 41
    return Validation{.loss = 3 + wave + 1e-3 * loss_of(run), .bleu = {}};
  };
  return hooks;
}

void expect_the_same_bytes_when_stopped(const ModelConfig& model, const TrainConfig& config,
                                        double sampling = 0) {
  const Folder data, whole;
  const auto corpus = toy_corpus(data, {.sentences = 60, .sampling = sampling});
  const ToyRun never = begin(corpus, model, config, whole.path());
  EXPECT_EQ(never.trainer->run(eventful_hooks(never)), Trainer::End::limit);
  const std::string wanted = read(whole / "model.safetensors"),
                    wanted_state = read(whole / "checkpoint/last.safetensors");
  // At steps that validate (7, 14), that save (3, 6), that do both or neither, and at the last.
  std::vector<std::vector<int64_t>> stops{{1, 14, 40, 41}};
  if (!kSlow) stops.insert(stops.end(), {{7}, {2, 3, 6}, {15, 21, 28}, {41}});
  for (const std::vector<int64_t>& at : stops) {
    const Folder folder;
    size_t parts = 0;
    for (;;) {
      const ToyRun run = begin(corpus, model, config, folder.path());
      EXPECT_EQ(run.trainer->resume(), parts > 0);
      Trainer::Hooks hooks = eventful_hooks(run);
      hooks.stop = [&] { return parts < at.size() && run.trainer->steps() == at[parts]; };
      if (run.trainer->run(hooks) == Trainer::End::limit) {
        EXPECT_TRUE(read(folder / "checkpoint/last.safetensors") == wanted_state)
            << "stopped first at " << at[0];
        break;
      }
      ASSERT_LT(++parts, 10u);
    }
    EXPECT_EQ(parts, at.size());
    EXPECT_TRUE(read(folder / "model.safetensors") == wanted) << "stopped first at " << at[0];
  }
}

// Who asks to stop while a model is validated does not wait for that.
TEST(Trainer, AValidationThatIsGivenUpIsMadeAnewByWhatIsResumed) {
  for (const int64_t average_last : {0, 3}) {
    const Folder data, whole, folder;
    const auto corpus = toy_corpus(data, {.sentences = 60});
    const ModelConfig model = with_dropout(toy_rnn());
    const ToyRun never = begin(corpus, model, eventful(average_last), whole.path());
    never.trainer->run(eventful_hooks(never));
    std::set<int64_t> given_up;
    for (int parts = 0;; ++parts) {
      ASSERT_LT(parts, 5);
      const ToyRun run = begin(corpus, model, eventful(average_last), folder.path());
      EXPECT_EQ(run.trainer->resume(), parts > 0);
      Trainer::Hooks hooks = eventful_hooks(run);
      hooks.validate = [&, whole_one = hooks.validate]() -> std::optional<Validation> {
        const int64_t step = run.trainer->steps();
        if ((step == 7 || step == 28 || step == 41) && given_up.insert(step).second) return {};
        return whole_one();
      };
      const int64_t before = run.trainer->steps();
      if (run.trainer->run(hooks) == Trainer::End::limit) break;
      EXPECT_TRUE(given_up.contains(run.trainer->steps())) << before;
    }
    EXPECT_EQ(given_up, (std::set<int64_t>{7, 28, 41}));
    for (const char* file : {"model.safetensors", "checkpoint/last.safetensors"})
      EXPECT_TRUE(read(folder / file) == read(whole / file)) << file << ", " << average_last;
  }
}

TEST(Trainer, TwoEqualRunsHaveEqualCheckpoints) {
  const Folder data, first, second;
  const auto corpus = toy_corpus(data, {.sentences = 60});
  for (const Folder* folder : {&first, &second}) {
    const ToyRun run = begin(corpus, with_dropout(toy_rnn()), eventful(3), folder->path());
    run.trainer->run(eventful_hooks(run));
  }
  const auto names = [](const Folder& folder) {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "checkpoint"))
      out.insert(entry.path().filename().string());
    return out;
  };
  EXPECT_EQ(names(first),
            (std::set<std::string>{"last.safetensors", "seconds.json", "step-28.safetensors",
                                   "step-35.safetensors", "step-41.safetensors"}));
  EXPECT_EQ(names(first), names(second));
  for (const std::string& name : names(first)) {
    if (name == "seconds.json") continue;
    EXPECT_TRUE(read(first / "checkpoint/" + name) == read(second / "checkpoint/" + name)) << name;
  }
}

TEST(Trainer, TheSecondsOfARunAreKeptBesideItsCheckpointAndMayBeLost) {
  const Folder data, folder;
  const auto corpus = toy_corpus(data, {.sentences = 60});
  TrainConfig config = eventful();
  config.steps = 5;
  begin(corpus, toy_rnn(), config, folder.path()).trainer->run({});
  const std::string file =
      folder.put("checkpoint/seconds.json", with_own_checksum("{\n \"seconds\": 1000.0\n}"));
  config.steps = 6;
  const auto seconds = [&] {
    const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
    EXPECT_TRUE(run.trainer->resume());
    double last = -1;
    Trainer::Hooks hooks;
    hooks.validate = [] { return Validation{}; };
    hooks.log = [&](const Progress& p) { last = p.seconds; };
    run.trainer->run(hooks);
    ++config.steps;
    return last;
  };
  EXPECT_GE(seconds(), 1000);
  EXPECT_GE(seconds(), 1000);
  std::filesystem::remove(file);
  EXPECT_LT(seconds(), 1000);
  folder.put("checkpoint/seconds.json", with_own_checksum("{\n \"seconds\": \"many\"\n}"));
  EXPECT_TRUE(has(message([&] { seconds(); }), "seconds.json: has no seconds of a training"));
}

TEST(Trainer, StoppedAndResumedEndsWithTheSameBytes) {
  for (const ModelConfig& family : {toy_rnn(), toy_transformer()}) {
    SCOPED_TRACE(family.family);
    expect_the_same_bytes_when_stopped(with_dropout(family), eventful());
  }
}

TEST(Trainer, StoppedAndResumedEndsWithTheSameBytesOfAPlainMean) {
  expect_the_same_bytes_when_stopped(with_dropout(toy_rnn()), eventful(/*average_last=*/3));
}

TEST(Trainer, StoppedAndResumedEndsWithTheSameBytesOfPiecesThatAreDrawn) {
  expect_the_same_bytes_when_stopped(with_dropout(toy_rnn()), eventful(), /*sampling=*/0.3);
}

TEST(Trainer, StoppedAndResumedEndsWithTheSameBytesInBf16) {
  if (!bf16_products_are_fast()) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  TrainConfig config = eventful();
  config.precision = "bf16";
  for (const ModelConfig& family : {toy_rnn(), toy_transformer()}) {
    SCOPED_TRACE(family.family);
    expect_the_same_bytes_when_stopped(with_dropout(family), config);
  }
}

TEST(Trainer, InBf16ARunHasTheSameBytesOnAnyNumberOfThreads) {
  if (!bf16_products_are_fast()) GTEST_SKIP() << "this CPU has no AVX-512 BF16";
  const int before = threads();
  TrainConfig config = eventful();
  config.steps = 10, config.precision = "bf16";
  for (const ModelConfig& family : {toy_rnn(), toy_transformer()}) {
    SCOPED_TRACE(family.family);
    const auto trained = [&](int count, const std::string& precision) {
      set_threads(count);
      config.precision = precision;
      const Folder data, folder;
      const ToyRun run =
          begin(toy_corpus(data, {.sentences = 60}), with_dropout(family), config, folder.path());
      run.trainer->run(eventful_hooks(run));
      return read(folder / "model.safetensors");
    };
    const std::string wanted = trained(1, "bf16");
    EXPECT_TRUE(trained(2, "bf16") == wanted);
    EXPECT_TRUE(trained(4, "bf16") == wanted);
    EXPECT_FALSE(trained(1, "f32") == wanted) << "is it f32?";
  }
  set_threads(before);
}

// The child of the next test: trains in the folder that the environment names.
TEST(Trainer, DISABLED_RunToBeKilled) {
  const char* folder = std::getenv("HEED_KILL_FOLDER");
  ASSERT_TRUE(folder);
  set_threads(1);
  const Folder data;
  TrainConfig config = eventful(std::atoll(std::getenv("HEED_KILL_AVERAGE_LAST")));
  config.steps = std::atoll(std::getenv("HEED_KILL_STEPS"));
  const ToyRun run =
      begin(toy_corpus(data, {.sentences = 60}), with_dropout(toy_rnn()), config, folder);
  run.trainer->resume();
  run.trainer->run(eventful_hooks(run));
}

// A child that is killed removes nothing: its own files lie in `scratch`.
pid_t start_child(const Folder& scratch, const Folder& folder, int64_t steps,
                  int64_t average_last) {
  std::vector<std::string> environment{"TEST_TMPDIR=" + scratch.path().string(),
                                       "HEED_KILL_FOLDER=" + folder.path().string(),
                                       "HEED_KILL_STEPS=" + std::to_string(steps),
                                       "HEED_KILL_AVERAGE_LAST=" + std::to_string(average_last)};
  for (char** e = environ; *e; ++e)
    if (std::string(*e).rfind("GTEST_", 0) != 0) environment.emplace_back(*e);
  std::vector<char*> env;
  for (std::string& e : environment) env.push_back(e.data());
  env.push_back(nullptr);
  std::string self = "/proc/self/exe", filter = "--gtest_filter=Trainer.DISABLED_RunToBeKilled",
              also = "--gtest_also_run_disabled_tests", brief = "--gtest_brief=1";
  char* arguments[] = {self.data(), filter.data(), also.data(), brief.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int error = posix_spawn(&child, self.c_str(), &actions, nullptr, arguments, env.data());
  posix_spawn_file_actions_destroy(&actions);
  require(error == 0, "cannot start ", self);
  return child;
}

int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

void expect_the_same_bytes_when_killed(int64_t average_last) {
  const int kills = kSlow ? 3 : 20;
  const int64_t steps = kSlow ? 40 : 300;
  const Folder scratch, whole, killed;
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  ASSERT_EQ(wait_for(start_child(scratch, whole, steps, average_last)), 0);
  const std::chrono::duration<double> seconds = Clock::now() - start;
  // Early moments, when nothing is saved yet, to late ones. On average each gets less than a tenth
  // of the way, so that more than half are killed before it is done.
  Random random(3);
  int hit = 0;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = start_child(scratch, killed, steps, average_last);
    const double share = double(random.uniform()) * 0.15;
    std::this_thread::sleep_for(seconds * share);
    kill(child, SIGKILL);
    hit += WIFSIGNALED(wait_for(child));
  }
  EXPECT_GE(hit, kills / 2) << "most had ended before they were killed";
  ASSERT_EQ(wait_for(start_child(scratch, killed, steps, average_last)), 0);
  EXPECT_FALSE(read(whole / "model.safetensors").empty());
  EXPECT_TRUE(read(whole / "model.safetensors") == read(killed / "model.safetensors"));
  const std::string last = "checkpoint/last.safetensors";
  EXPECT_TRUE(read(whole / last) == read(killed / last));
}

TEST(Trainer, KilledAtAnyMomentAndResumedEndsWithTheSameBytes) {
  expect_the_same_bytes_when_killed(/*average_last=*/0);
}

TEST(Trainer, KilledAtAnyMomentAndResumedEndsWithTheSameBytesOfAPlainMean) {
  expect_the_same_bytes_when_killed(/*average_last=*/3);
}

}  // namespace
}  // namespace heed
