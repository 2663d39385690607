// Every case of the table: the gradient agrees with finite differences, in double. And the check
// itself can fail: a gradient broken on purpose is caught.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "bench/cases/ops.h"
#include "heed/ops/gradient_check.h"
#include "tests/slip.h"

namespace heed {
namespace {

TEST(Gradient, OfEveryOpAgreesWithDifferences) {
  for (const cases::Case& c : cases::ops()) {
    const GradientCheck check = check_gradient(c.f, cases::draw(c, Type::f64));
    EXPECT_LT(check.worst, 1e-7) << c.name << ": " << check.where;
  }
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
