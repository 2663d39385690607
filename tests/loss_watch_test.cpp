// Runs that learn nothing or diverge are ended; those that learn never are.
#include "heed/training/loss_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/toy_run.h"

namespace heed {
namespace {

constexpr int64_t kVocabulary = 1000;  // a uniform guess: 6.9
constexpr int64_t kEnough = LossWatch::kBlock * LossWatch::kBlocks;

// The step at which a run of these losses ends, and what is said; 0: never.
struct Ended {
  int64_t step = 0;
  std::string said;
};
Ended watch(const std::function<double(int64_t)>& loss, int64_t steps, int64_t warmup = 0) {
  LossWatch watch(kVocabulary, warmup);
  for (int64_t step = 1; step <= steps; ++step)
    if (const auto said = watch.add(step, loss(step), 50)) return {step, *said};
  return {};
}

TEST(LossWatch, WhatStaysAboveAUniformGuessEndsAfterTheWarmUp) {
  const Ended ended = watch([](int64_t) { return 7.5; }, 5000);
  EXPECT_EQ(ended.step, LossWatch::kBlock + kEnough);  // the first block has no better one
  EXPECT_TRUE(has(ended.said, "above the 6.91 of a guess by chance")) << ended.said;
  EXPECT_EQ(watch([](int64_t) { return 7.5; }, 5000, 1000).step, 1000 + kEnough);
  // Just below it is learning, if little; and what falls, however slowly, goes on.
  EXPECT_EQ(watch([](int64_t) { return 6.9; }, 5000).step, 0);
  EXPECT_EQ(watch([](int64_t step) { return 9 - 1e-4 * double(step); }, 5000).step, 0);
}

TEST(LossWatch, AJumpThatDoesNotComeBackEndsTheRun) {
  const auto jump = [](int64_t back) {
    return [back](int64_t step) { return step <= 1000 || step > back ? 2.0 : 6.5; };
  };
  const Ended ended = watch(jump(99999), 5000);
  EXPECT_EQ(ended.step, 1000 + kEnough);
  EXPECT_TRUE(has(ended.said, "is 6.5, its best was 2, and for 500 updates")) << ended.said;
  EXPECT_EQ(watch(jump(1400), 5000).step, 0);
  // A harder part of a corpus is no divergence.
  EXPECT_EQ(watch([](int64_t step) { return step <= 1000 ? 2.0 : 4.0; }, 5000).step, 0);
  EXPECT_EQ(watch([](int64_t step) { return step % 7 ? 2.0 : 8.0; }, 5000).step, 0);
}

TEST(LossWatch, AModelThatMayBeLostIsNotWorthACheckpoint) {
  LossWatch watch(kVocabulary, 0);
  for (int64_t step = 1; step <= 300; ++step) {
    watch.add(step, 3, 50);
    EXPECT_FALSE(watch.doubtful());
  }
  watch.add(301, 7.5, 50);
  EXPECT_TRUE(watch.doubtful());
  watch.add(302, 3, 50);
  EXPECT_FALSE(watch.doubtful());
}

TEST(LossWatch, GoesOnWhereItWas) {
  const auto loss = [](int64_t step) { return step <= 1050 ? 2.0 : 6.5; };
  LossWatch first(kVocabulary, 0);
  for (int64_t step = 1; step <= 1337; ++step) ASSERT_FALSE(first.add(step, loss(step), 50));
  LossWatch second(kVocabulary, 0);
  second.set_state(first.state());
  int64_t step = 1338;
  while (!second.add(step, loss(step), 50)) ++step;
  EXPECT_EQ(step, watch(loss, 5000).step);
}

// Trained well, then with a rate that no model survives.
TEST(Trainer, ARunThatDivergesEndsWithItsLastGoodCheckpoint) {
  if (kSlow) GTEST_SKIP() << "a thousand updates";
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  TrainConfig config;
  config.rate = 5e-3, config.warmup = 50, config.batch_tokens = 64, config.steps = 300;
  config.save_every = 20, config.average = 0, config.schedule = "constant", config.clip = 0;
  begin(corpus, toy_rnn(), config, folder.path()).trainer->run({});
  config.rate = 3, config.steps = 5000;
  ToyRun lost = begin(corpus, toy_rnn(), config, folder.path());
  ASSERT_TRUE(lost.trainer->resume());
  const std::string said = message([&] { lost.trainer->run({}); });
  EXPECT_TRUE(has(said, "the run has diverged") && has(said, "The last good checkpoint is kept") &&
              has(said, "--rate"))
      << said;
  EXPECT_LT(lost.trainer->steps(), 1500);
  config.rate = 5e-3, config.steps = 301;
  ToyRun again = begin(corpus, toy_rnn(), config, folder.path());
  ASSERT_TRUE(again.trainer->resume());
  EXPECT_EQ(again.trainer->steps(), 300);
  EXPECT_LT(loss_of(again), 1);
}

}  // namespace
}  // namespace heed
