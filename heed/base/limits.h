// What this process may use: less than the machine has where somebody has set limits, as containers
// and batch systems do by control groups (cgroups, versions 1 and 2) and shells by ulimit.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace heed {

struct CgroupLimits {
  std::optional<int64_t> memory;  // bytes
  std::optional<double> cores;    // how many at a time, on average
};
// The tightest of the process's own group and of those around it. `root` is where the system's
// files are; what cannot be read sets no limit.
CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

// Cores that threads may run on: by affinity, and by the control group, rounded up.
int usable_cores();

// Bytes of memory: the machine's, or what the control group allows.
int64_t usable_memory();

// Whether addresses are limited (ulimit -v): then none are reserved that are not used.
bool addresses_limited();

}  // namespace heed
