// Contexts: what belongs to one, and what an operand of another one is told.
#include "heed/tensor/context.h"

#include <gtest/gtest.h>

#include <thread>

#include "heed/ops/ops.h"
#include "heed/ops/tape.h"
#include "tests/folder.h"

namespace heed {
namespace {

TEST(Context, FormulasRunInTheOneInUse) {
  const auto context = Context::make({.threads = 3});
  const int before = threads();
  {
    const UseContext mine(*context);
    EXPECT_EQ(&Context::current(), context.get());
    EXPECT_EQ(threads(), 3);
    EXPECT_EQ(zeros({2}).context(), context->number());
    set_threads(2);
    {
      const UseContext again(*context);  // one that is in use can be used again
      EXPECT_EQ(&Context::current(), context.get());
    }
    EXPECT_EQ(threads(), 2);
  }
  EXPECT_EQ(&Context::current(), &Context::process());
  EXPECT_EQ(threads(), before);
  EXPECT_EQ(zeros({2}).context(), Context::process().number());
}

TEST(Context, AnOperandOfAnotherOneIsToldSo) {
  const auto context = Context::make({.threads = 1});
  const Tensor here = full({2, 2}, 1);
  Tensor there;
  {
    const UseContext mine(*context);
    there = full({2, 2}, 2);
    EXPECT_EQ(message([&] { there + here; }),
              "add: an operand of another context; a tensor is used in the context that it was "
              "made in");
    EXPECT_TRUE(has(message([&] { matmul(there, here); }), "of another context"));
    EXPECT_TRUE(has(message([&] { softmax(here); }), "of another context"));
  }
  EXPECT_TRUE(has(message([&] { here + there; }), "of another context"));
  // What leaves a context is received by another one.
  EXPECT_EQ((here + received(there)).values(), std::vector<double>(4, 3));
  EXPECT_EQ(received(here).raw(), here.raw());
}

TEST(Context, WhatNeverChangesIsReadInAll) {
  const auto shared = Arena::shared(Device::cpu);
  const auto context = Context::make({.threads = 1});
  Tensor constant;
  {
    const UseArena lasting(*shared);
    constant = full({3}, 5);
  }
  EXPECT_EQ(constant.context(), 0u);
  EXPECT_EQ((constant + full({3}, 1)).values(), std::vector<double>(3, 6));
  const UseContext mine(*context);
  EXPECT_EQ((constant + full({3}, 1)).values(), std::vector<double>(3, 6));
}

TEST(Context, AnArenaOfAnotherOneIsRefused) {
  const auto arena = Arena::make();
  const auto context = Context::make({.threads = 1});
  const UseContext mine(*context);
  EXPECT_TRUE(has(message([&] { const UseArena use(*arena); }), "another context"));
}

TEST(Context, OneThreadAtATime) {
  const auto context = Context::make({.threads = 2});
  int inside = 0, most = 0;
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i)
    all.emplace_back([&] {
      for (int again = 0; again < 50; ++again) {
        const UseContext mine(*context);
        most = std::max(most, ++inside);
        softmax(full({8, 8}, 1));
        --inside;
      }
    });
  for (std::thread& t : all) t.join();
  EXPECT_EQ(most, 1);
}

TEST(Context, TensorsMayOutliveIt) {
  Tensor left;
  {
    const auto context = Context::make({.threads = 1});
    const UseContext mine(*context);
    left = full({4}, 7);
  }
  EXPECT_EQ(left.values(), std::vector<double>(4, 7));
  EXPECT_TRUE(has(message([&] { left + left; }), "of another context"));
}

TEST(Context, TwoGpusThatAreNotThereAreToldApart) {
  // In a build or on a machine without a GPU.
  const std::string said = message([] { Context::make({.device = Device::cuda, .index = 99}); });
  EXPECT_TRUE(has(said, "cuda: ")) << said;
}

// ---- memory of somebody else's

TEST(ForeignMemory, IsSeenWithoutACopy) {
  std::vector<float> theirs{1, 2, 3, 4, 5, 6};
  const Tensor x = look_at({.data = theirs.data()}, {2, 3});
  EXPECT_EQ(x.raw(), theirs.data());
  EXPECT_EQ((x * 2.0).values(), (std::vector<double>{2, 4, 6, 8, 10, 12}));
  theirs[0] = 9;
  EXPECT_EQ(x.values()[0], 9);
  const Tensor transposed = look_at({.data = theirs.data()}, {3, 2}, {1, 3}, Type::f32);
  EXPECT_EQ(transposed.values(), (std::vector<double>{9, 4, 2, 5, 3, 6}));
}

TEST(ForeignMemory, ItsOwnerIsKeptAsLongAsSomebodyLooks) {
  auto theirs = std::make_shared<std::vector<double>>(4, 1.5);
  const std::weak_ptr<std::vector<double>> watched = theirs;
  Tensor x = look_at({.data = theirs->data(), .owner = theirs}, {4}, Type::f64);
  theirs.reset();
  const Tensor part = slice(x, 0, 1, 3);
  x = {};
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(part.values(), std::vector<double>(2, 1.5));
}

TEST(ForeignMemory, WhatCannotBeSeenIsExplained) {
  std::vector<float> theirs(8);
  EXPECT_TRUE(has(message([&] { look_at({}, {2}); }), "no memory"));
  EXPECT_TRUE(
      has(message([&] { look_at({.data = reinterpret_cast<char*>(theirs.data()) + 1}, {2}); }),
          "middle of an element"));
  EXPECT_TRUE(has(message([&] {
                    look_at({.data = theirs.data()}, {2, 2}, {1}, Type::f32);
                  }),
                  "numbers of axes"));
  EXPECT_TRUE(
      has(message([&] { look_at({.data = theirs.data()}, {2}, {-1}, Type::f32); }), "negative"));
}

}  // namespace
}  // namespace heed
