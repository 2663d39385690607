#include "heed/training/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "heed/base/check.h"

namespace heed {

std::vector<std::string> schedule_kinds() {
  return {"inverse_sqrt", "cosine", "constant", "plateau"};
}

double rate_at(const Schedule& s, int64_t t) {
  const double step = double(std::max<int64_t>(t, 1)),
               warmup = double(std::max<int64_t>(s.warmup, 1));
  if (step < warmup) return s.rate * s.factor * step / warmup;
  // Vaswani et al. (2017), eq. 3, with the peak as a parameter of its own.
  if (s.kind == "inverse_sqrt") return s.rate * std::sqrt(warmup / step);
  if (s.kind == "cosine") {
    require(s.steps > s.warmup, "schedule 'cosine': wants more steps than the warm-up's ", s.warmup,
            ", given ", s.steps, "; set the number of steps");
    const double share = std::min(1.0, (step - warmup) / (double(s.steps) - warmup));
    return s.rate * 0.5 * (1 + std::cos(std::numbers::pi * share));
  }
  return s.rate * s.factor;
}

}  // namespace heed
