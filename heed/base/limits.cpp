#include "heed/base/limits.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace heed {
namespace {

namespace fs = std::filesystem;

// The first two words of a file; empty where there are none.
struct Words {
  std::string first, second;
};
Words words_of(const fs::path& file) {
  Words words;
  std::ifstream in(file);
  in >> words.first >> words.second;
  return words;
}

std::optional<double> number(const std::string& word) {  // "max" is none
  std::istringstream in(word);
  double value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

template <class T>
void tighten(std::optional<T>& limit, std::optional<double> other) {
  // Version 1 says "none" by a number that no machine has.
  if (!other || *other <= 0 || *other >= 0x1p62) return;
  const T given = static_cast<T>(*other);
  limit = limit ? std::min(*limit, given) : given;
}

std::optional<double> quota(const std::string& time, const std::string& period) {
  const std::optional<double> part = number(time), whole = number(period);
  return part && whole && *part > 0 && *whole > 0 ? std::optional(*part / *whole) : std::nullopt;
}

// Calls look(folder) for the group's folder below `mount` and for all around it. In a container the
// group's path may be one of outside; then the mount itself is the group.
template <class Look>
void walk_up(const fs::path& mount, fs::path group, const Look& look) {
  for (; group.has_relative_path(); group = group.parent_path())
    look(mount / group.relative_path());
  look(mount);
}

}  // namespace

CgroupLimits cgroup_limits(const fs::path& root) {
  CgroupLimits out;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  // Lines "number:controllers:path"; version 2 has the number 0 and names no controllers.
  for (std::string line; std::getline(groups, line);) {
    const size_t a = line.find(':'), b = a == line.npos ? a : line.find(':', a + 1);
    if (b == line.npos) continue;
    const std::string controllers = "," + line.substr(a + 1, b - a - 1) + ",";
    const fs::path group = line.substr(b + 1);
    const auto has = [&](const char* name) { return controllers.find(name) != line.npos; };
    if (controllers == ",,") {
      for (const fs::path& mount : {mounts, mounts / "unified"})
        walk_up(mount, group, [&](const fs::path& at) {
          tighten(out.memory, number(words_of(at / "memory.max").first));
          const Words cpu = words_of(at / "cpu.max");  // "max 100000" or "150000 100000"
          tighten(out.cores, quota(cpu.first, cpu.second));
        });
    } else if (has(",memory,")) {
      walk_up(mounts / "memory", group, [&](const fs::path& at) {
        tighten(out.memory, number(words_of(at / "memory.limit_in_bytes").first));
      });
    } else if (has(",cpu,")) {
      walk_up(mounts / "cpu", group, [&](const fs::path& at) {
        tighten(out.cores, quota(words_of(at / "cpu.cfs_quota_us").first,
                                 words_of(at / "cpu.cfs_period_us").first));
      });
    }
  }
  return out;
}

int usable_cores() {
  cpu_set_t set;
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
  if (const auto limit = cgroup_limits().cores)
    cores = static_cast<int>(std::min<double>(cores, std::ceil(*limit)));
  return std::max(1, cores);
}

int64_t usable_memory() {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min(machine, cgroup_limits().memory.value_or(machine));
}

bool addresses_limited() {
  rlimit limit{};
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace heed
