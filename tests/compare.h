// How far a result is from what is wanted, such that nothing which is no number can pass for one:
// std::max(most, NaN) is `most`, and `NaN > tolerance` is false.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace heed {

// Whether NaN and infinities may be wanted. Where both sides come from what is tested, as of a
// fused form and a composed one, they may not: both could be broken in the same way.
enum class Special { never, as_wanted };

// 0 where both are the same, NaN included; infinite where only one is no number.
inline double difference(double wanted, double given) {
  if (wanted == given || (std::isnan(wanted) && std::isnan(given))) return 0;
  const double d = std::abs(wanted - given);
  return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
}

// The largest difference. Infinite where the sizes differ, or something non-finite is not wanted.
inline double worst(const auto& wanted, const auto& given, Special special = Special::never) {
  if (wanted.size() != given.size()) return std::numeric_limits<double>::infinity();
  double most = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double x = static_cast<double>(wanted[i]), y = static_cast<double>(given[i]);
    if (special == Special::never && !(std::isfinite(x) && std::isfinite(y)))
      return std::numeric_limits<double>::infinity();
    most = std::max(most, difference(x, y));  // which is never NaN
  }
  return most;
}

// The largest of the finite elements by magnitude: what a tolerance is relative to. An infinite one
// would allow everything.
inline double largest(const auto& x) {
  double most = 0;
  for (const auto& v : x)
    if (std::isfinite(static_cast<double>(v)))
      most = std::max(most, std::abs(static_cast<double>(v)));
  return most;
}

// An error of something else that a tolerance is made of. Where that is broken itself it allows
// nothing, rather than everything.
inline double earned(double error) {
  return std::isfinite(error) ? error : -std::numeric_limits<double>::infinity();
}

}  // namespace heed
