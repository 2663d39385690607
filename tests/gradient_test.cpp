// Every case of the table: the gradient agrees with finite differences, in double. And the check
// itself can fail: a gradient broken on purpose is caught.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "heed/ops/gradient_check.h"
#include "tests/cases/ops.h"

namespace heed {
namespace {

TEST(Gradient, OfEveryOpAgreesWithDifferences) {
  for (const cases::Case& c : cases::ops()) {
    const GradientCheck check = check_gradient(c.f, cases::draw(c, Type::f64));
    EXPECT_LT(check.worst, 1e-7) << c.name << ": " << check.where;
  }
}

// x, but what flows back into it is off by one percent in its largest place: as if the op behind
// had one wrong number in its gradient. `seen` is set to how large that number is.
Tensor with_a_slip(const Tensor& x, double& seen) {
  return record("slip", {&x}, x, [&seen](const Tensor& dy) {
    std::vector<double> wrong = dy.values();
    const auto smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
    double& most = *std::max_element(wrong.begin(), wrong.end(), smaller);
    seen = std::abs(most);
    most *= 1.01;
    return Grads{tensor(wrong, dy.shape(), Type::f64)};
  });
}

TEST(Gradient, CheckFailsForEveryInputOfEveryOpWhenOneNumberIsBroken) {
  std::map<std::string, bool> caught;  // by op and input
  for (const cases::Case& c : cases::ops())
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      double seen = 0;
      const auto f = [&](std::vector<Tensor> x) {
        x[i] = with_a_slip(x[i], seen);
        return c.f(x);
      };
      const GradientCheck check = check_gradient(f, cases::draw(c, Type::f64));
      bool& once = caught[c.name + ", input " + std::to_string(i)];
      // The softmax of a single number is constant: nothing flows back that could be wrong. Another
      // case of the same op must catch the slip then.
      if (seen < 1e-9) continue;
      EXPECT_GT(check.worst, 5e-3) << c.name << ", input " << i;
      once = true;
    }
  for (const auto& [what, yes] : caught) EXPECT_TRUE(yes) << what << ": no case has a gradient";
}

}  // namespace
}  // namespace heed
