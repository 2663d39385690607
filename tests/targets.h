// Tests that run once for each instruction set.
#pragma once

#include <hwy/targets.h>

#include <functional>

namespace heed {

// Runs `check` once for each instruction set that this machine has.
inline void on_every_target(const std::function<void(const char*)>& check) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    check(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace heed
