#include "heed/ops/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "heed/ops/ops.h"

namespace heed {
namespace {

// sum_i w_i y_i with weights between 0.5 and 1.5 that repeat nowhere near.
Tensor weighted(const Tensor& y) {
  std::vector<double> weights(static_cast<size_t>(y.count()));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = 1 + 0.5 * std::sin(1.7 * static_cast<double>(i) + 0.3);
  return sum(y * tensor(weights, y.shape(), Type::f64));
}

}  // namespace

GradientCheck check_gradient(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                             const std::vector<Tensor>& inputs, double step) {
  std::vector<Tensor> x;
  for (const Tensor& input : inputs) {
    require(input.type() == Type::f64, "check_gradient: wants f64 inputs, given ",
            name(input.type()));
    x.push_back(as_parameter(tensor(input.values(), input.shape(), Type::f64)));
  }
  {
    Tape tape;
    const Tensor loss = weighted(f(x));
    tape.backward(loss);
  }
  const NoTape off;
  GradientCheck result;
  for (size_t i = 0; i < x.size(); ++i) {
    const std::shared_ptr<Tensor> grad = x[i].parameter_state()->grad;
    const std::vector<double> by_tape =
        grad ? grad->values() : std::vector<double>(static_cast<size_t>(x[i].count()));
    std::vector<double> by_difference(by_tape.size());
    double* elements = x[i].data<double>();
    for (size_t j = 0; j < by_tape.size(); ++j) {
      const double kept = elements[j];
      elements[j] = kept + step;
      const double up = weighted(f(x)).item();
      elements[j] = kept - step;
      const double down = weighted(f(x)).item();
      elements[j] = kept;
      by_difference[j] = (up - down) / (2 * step);
    }
    double largest = 1e-3;  // gradients that are all near 0 are compared as they are
    for (const double g : by_difference) largest = std::max(largest, std::abs(g));
    for (size_t j = 0; j < by_tape.size(); ++j) {
      const double error = std::abs(by_tape[j] - by_difference[j]) / largest;
      if (error <= result.worst && !std::isnan(error)) continue;
      result.worst = std::isnan(error) ? INFINITY : error;
      std::ostringstream where;
      where << "input " << i << ", number " << j << ": " << by_tape[j] << " by the tape, "
            << by_difference[j] << " by differences";
      result.where = where.str();
    }
  }
  return result;
}

}  // namespace heed
