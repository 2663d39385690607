// The inputs of a case with something special among them, for tests on every device.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bench/cases/ops.h"

namespace heed::cases {

// Cases with an axis of size 0: of all that sums or reads, and of all that is read.
std::vector<Case> empty();

inline std::vector<Tensor> planted(std::vector<Tensor> x, size_t input, size_t at, double value) {
  std::vector<double> values = x[input].values();
  values[at] = value;
  x[input] = tensor(values, x[input].shape(), x[input].type());
  return x;
}

inline std::vector<Tensor> scaled(std::vector<Tensor> x, double factor) {
  for (Tensor& t : x) {
    std::vector<double> values = t.values();
    for (double& v : values) v *= factor;
    t = tensor(values, t.shape(), t.type());
  }
  return x;
}

// Calls f(name, input, at, value) for NaN and the infinities at the first, a middle and the last
// place of each input: of a padded batch the last stands where nobody looks.
inline void for_each_planted(
    const Case& c, const std::function<void(const std::string&, size_t, size_t, double)>& f) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (size_t input = 0; input < c.inputs.size(); ++input) {
    const auto count = static_cast<size_t>(c.inputs[input].shape.count());
    for (const size_t at : {size_t{0}, count / 2, count - 1})
      for (const double value : {std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity})
        f(c.name + ", " + std::to_string(value) + " at element " + std::to_string(at) +
              " of input " + std::to_string(input),
          input, at, value);
  }
}

}  // namespace heed::cases
