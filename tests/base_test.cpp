#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <new>
#include <numeric>
#include <set>
#include <thread>

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/base/random.h"
#include "heed/base/stop.h"

namespace heed {
namespace {

TEST(Check, MessageIsPutTogetherFromItsParts) {
  try {
    require(false, "matmul: a is ", 8, ", b is ", 'x');
    FAIL() << "nothing was thrown";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "matmul: a is 8, b is x");
  }
  EXPECT_NO_THROW(require(true, "never"));
}

TEST(Check, UnknownNameComesWithTheNearestAndTheList) {
  EXPECT_EQ(unknown_name("score", "cosin", {"additive", "cosine", "dot"}),
            "unknown score 'cosin'; did you mean 'cosine'? have: additive, cosine, dot");
  EXPECT_EQ(unknown_name("score", "xyzzyx", {"additive", "dot"}),
            "unknown score 'xyzzyx'; have: additive, dot");
  EXPECT_EQ(nearest("", {"a"}), "a");
  EXPECT_EQ(nearest("dot", {}), "");
}

TEST(Parallel, EveryItemIsDoneOnce) {
  const int before = threads();
  for (const int count : {1, 2, 4}) {
    set_threads(count);
    for (const int64_t n : {0, 1, 7, 1000, 100001})
      for (const int64_t grain : {1, 3, 1000}) {
        std::vector<std::atomic<int>> done(static_cast<size_t>(n));
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          EXPECT_EQ(begin % grain, 0);
          EXPECT_LE(end - begin, grain);
          for (int64_t i = begin; i < end; ++i) ++done[static_cast<size_t>(i)];
        });
        for (const auto& times : done) ASSERT_EQ(times, 1);
      }
  }
  set_threads(before);
}

TEST(Parallel, InsideABodyItRunsOnThatThread) {
  set_threads(2);
  std::atomic<int> sum = 0;
  parallel_for(8, 1, [&](int64_t, int64_t) {
    const std::thread::id me = std::this_thread::get_id();
    parallel_for(10, 1, [&](int64_t begin, int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), me);
      sum += static_cast<int>(begin);
    });
  });
  EXPECT_EQ(sum, 8 * 45);
}

TEST(Parallel, TwoThreadsOfTheProgramMayUseItAtOnce) {
  set_threads(2);
  const auto work = [] {
    for (int i = 0; i < 300; ++i) {
      std::atomic<int64_t> sum = 0;
      parallel_for(100, 7, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) sum += j;
      });
      ASSERT_EQ(sum, 4950);
    }
  };
  std::thread other(work);
  work();
  other.join();
}

TEST(Parallel, WhatABodyThrowsReachesTheCaller) {
  for (const int count : {1, 2, 4}) {
    ThreadPool pool(count);
    for (int time = 0; time < 200; ++time) {
      EXPECT_THROW(pool.run(64, 1,
                            [](int64_t begin, int64_t) {
                              if (begin == 17) throw std::bad_alloc();
                            }),
                   std::bad_alloc);
      std::atomic<int64_t> sum = 0;  // the pool goes on
      pool.run(100, 7, [&](int64_t begin, int64_t end) {
        for (int64_t j = begin; j < end; ++j) sum += j;
      });
      ASSERT_EQ(sum, 4950);
    }
  }
}

TEST(Parallel, OfSeveralBodiesThatThrowTheFirstChunkIsTold) {
  for (const int count : {1, 2, 4}) {
    ThreadPool pool(count);
    for (int time = 0; time < 200; ++time) try {
        pool.run(1000, 1, [](int64_t begin, int64_t) {
          if (begin >= 5) fail("chunk ", begin);
        });
        FAIL() << "nothing was thrown";
      } catch (const Error& error) {
        ASSERT_STREQ(error.what(), "chunk 5");
      }
  }
}

TEST(Parallel, ABodyThatThrowsIsOverBeforeTheCallerGoesOn) {
  ThreadPool pool(4);
  for (int time = 0; time < 50; ++time) {
    std::atomic<int> inside = 0;
    EXPECT_THROW(pool.run(64, 1,
                          [&](int64_t begin, int64_t) {
                            ++inside;
                            std::this_thread::sleep_for(std::chrono::microseconds(begin * 20));
                            --inside;
                            if (begin % 3 == 1) fail("chunk ", begin);
                          }),
                 Error);
    ASSERT_EQ(inside, 0);
  }
}

TEST(Parallel, EndsBetweenChunksOnceItIsNotWantedAnyMore) {
  std::atomic<bool> stop = false;
  std::atomic<int> done = 0;
  {
    const StopWhen not_wanted(stop);
    parallel_for(100, 1, [&](int64_t, int64_t) { ++done; });
    EXPECT_EQ(done, 100);
    EXPECT_THROW(parallel_for(1000, 1,
                              [&](int64_t, int64_t) {
                                if (++done == 110) stop = true;
                              }),
                 Error);
    EXPECT_LT(done, 110 + threads());
    EXPECT_THROW(parallel_for(1, 1, [&](int64_t, int64_t) { FAIL(); }), Error);
    EXPECT_THROW(stop_if_asked(), Error);
  }
  stop_if_asked();
  done = 0;
  parallel_for(100, 1, [&](int64_t, int64_t) { ++done; });
  EXPECT_EQ(done, 100);
}

TEST(Parallel, RefusesANumberOfThreadsThatMakesNoSense) {
  EXPECT_THROW(set_threads(0), Error);
  EXPECT_THROW(set_threads(-1), Error);
}

TEST(Random, PhiloxOfSevenRoundsGivesTheKnownNumbers) {
  const std::array<uint32_t, 4> known{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48};
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), known);
}

TEST(Random, APlaceInTheStreamCanBeComeBackTo) {
  Random random(7);
  for (int i = 0; i < 10; ++i) random.next();
  Random again(random.seed(), random.position());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(again.next(), random.next());
}

TEST(Random, NumbersAreSpreadAsTheyShould) {
  Random random(1);
  double sum = 0, squares = 0, uniform = 0;
  constexpr int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = static_cast<double>(random.normal());
    sum += x, squares += x * x;
    uniform += static_cast<double>(random.uniform());
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.03);
  EXPECT_NEAR(uniform / n, 0.5, 0.01);
  std::set<uint32_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint32_t x = random.below(10);
    ASSERT_LT(x, 10u);
    seen.insert(x);
  }
  EXPECT_EQ(seen.size(), 10u);
}

}  // namespace
}  // namespace heed
