// What a process may use: limits of control groups, of addresses and of threads.
#include "heed/base/limits.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "heed/base/parallel.h"
#include "heed/data/batch.h"
#include "heed/tensor/tensor.h"
#include "tests/elsewhere.h"
#include "tests/folder.h"
#include "tests/toy.h"

namespace heed {
namespace {

// Of a system whose files are these, as the kernel shows them.
CgroupLimits limits_of(const std::map<std::string, std::string>& files) {
  const Folder root;
  for (const auto& [file, text] : files) {
    std::filesystem::create_directories((root.path() / file).parent_path());
    root.put(file, text);
  }
  return cgroup_limits(root.path());
}

TEST(Limits, OfVersion2AreTheTightestOfAllGroupsAround) {
  const CgroupLimits found = limits_of({{"proc/self/cgroup", "0::/jobs/mine\n"},
                                        {"sys/fs/cgroup/jobs/mine/memory.max", "max\n"},
                                        {"sys/fs/cgroup/jobs/mine/cpu.max", "400000 100000\n"},
                                        {"sys/fs/cgroup/jobs/memory.max", "1073741824\n"},
                                        {"sys/fs/cgroup/jobs/cpu.max", "150000 100000\n"}});
  EXPECT_EQ(found.memory, 1 << 30);
  EXPECT_EQ(found.cores, 1.5);
}

// In a container the path may be that of outside, and the mount the group itself.
TEST(Limits, OfVersion1AreReadByController) {
  const CgroupLimits found = limits_of(
      {{"proc/self/cgroup", "4:memory:/docker/abc\n2:cpu,cpuacct:/\n1:name=systemd:/\n0::/\n"},
       {"sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"},
       {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
       {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(found.memory, 1 << 28);
  EXPECT_EQ(found.cores, 2);
}

TEST(Limits, WhereNothingIsSetThereAreNone) {
  for (const CgroupLimits& found :
       {limits_of({}),
        limits_of({{"proc/self/cgroup", "4:memory:/\n2:cpu:/\nnonsense\n0::/\n"},
                   {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                   {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
                   {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
                   {"sys/fs/cgroup/memory.max", "max\n"},
                   {"sys/fs/cgroup/cpu.max", "max 100000\n"}})}) {
    EXPECT_EQ(found.memory, std::nullopt);
    EXPECT_EQ(found.cores, std::nullopt);
  }
}

TEST(Limits, ThisMachineHasSomethingToUse) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_GT(usable_memory(), 1 << 20);
}

#if !defined(__SANITIZE_ADDRESS__)  // whose own addresses are more than any limit

TEST(Limits, FewAddressesAreEnoughForASmallArena) {
  if (!addresses_can_be_limited()) GTEST_SKIP() << "this system keeps to no limit of addresses";
  EXPECT_TRUE(elsewhere([] {
    limit_addresses(64 << 20);
    const auto first = Arena::make(), second = Arena::make();
    const UseArena use(*first);
    // Small ones, one larger than a chunk, and again: what was given back makes room.
    for (int i = 0; i < 20; ++i) {
      const Tensor x = full({1000}, i), y = full({7 << 20}, i);
      if (x.values().back() != i || y.data<float>()[(7 << 20) - 1] != float(i)) return false;
    }
    for (int64_t size = 1 << 20; size <= 9 << 20; size += 1 << 20)
      if (full({size}, 1).data<float>()[size - 1] != 1) return false;
    return first->used() == 0;
  }));
}

TEST(Limits, TooFewAddressesAreOutOfMemoryInASentence) {
  if (!addresses_can_be_limited()) GTEST_SKIP() << "this system keeps to no limit of addresses";
  EXPECT_TRUE(elsewhere([] {
    limit_addresses(64 << 20);
    const auto arena = Arena::make();
    const UseArena use(*arena);
    const Tensor some = full({1000}, 1);
    try {
      full({100 << 20}, 1);
    } catch (const OutOfMemory& error) {
      const std::string said = error.what();
      // What was there is still there, and what fits still can be had.
      return said.starts_with("arena: out of memory: wanted 400 MiB more") &&
             said.find("ulimit -v") != said.npos && some.values().back() == 1 &&
             full({1 << 20}, 2).values().back() == 2;
    }
    return false;
  }));
}

// ulimit -u does not hold for root: here there are no addresses for their stacks.
TEST(Limits, WhereNoThreadsCanBeStartedTheWorkIsDoneByFewer) {
  if (!addresses_can_be_limited()) GTEST_SKIP() << "this system keeps to no limit of addresses";
  EXPECT_TRUE(elsewhere([] {
    ThreadPool pool(64);
    limit_addresses(1 << 20);
    std::atomic<int64_t> sum = 0;
    pool.run(100, 1, [&](int64_t begin, int64_t) { sum += begin; });
    return sum == 4950 && pool.threads() < 64;
  }));
}

TEST(Limits, WhereNoThreadCanBeStartedBatchesAreMadeWhenTheyAreAskedFor) {
  if (!addresses_can_be_limited()) GTEST_SKIP() << "this system keeps to no limit of addresses";
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  // Over the end of an epoch.
  const auto first_ten = [&] {
    std::vector<std::vector<Id>> out;
    Batches batches(corpus, {.tokens = 400});
    for (int i = 0; i < 10; ++i) out.push_back(batches.next().source);
    return out;
  };
  const auto wanted = first_ten();
  EXPECT_TRUE(elsewhere([&] {
    limit_addresses(4 << 20);
    return first_ten() == wanted;
  }));
}

#endif

}  // namespace
}  // namespace heed
