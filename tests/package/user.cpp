#include <cstdio>
#include <iostream>

#include "heed/heed.h"

int main() {
  const heed::Tensor x = heed::tensor({2, 1, 0}, {1, 3});
  for (const double p : heed::softmax(x).values()) std::printf("%.3f ", p);
  std::printf("\n");
  std::fflush(stdout);

  // A tensor is printed, and numbers go with it.
  std::cout << (1.0 - x) / 2.0 << '\n' << heed::abs(x - 1.5) << '\n' << heed::max(x, 1) << '\n';

  // Two queries, two keys, and a bias that lets each see its own key alone.
  const heed::Params params(1);
  const auto dot = heed::make_score("dot", params, {.query = 1, .key = 1});
  const heed::Tensor ones = heed::full({1, 1, 2, 1}, 1);
  const heed::Tensor values = heed::tensor({3, 4}, {1, 1, 2, 1});
  const heed::Tensor own = heed::tensor({0, -HUGE_VALF, -HUGE_VALF, 0}, {2, 2});
  std::cout << reshape(attend(*dot, ones, ones, values, {.score_bias = own}).context, {2}) << '\n';

  // Stochastic gradient descent, by a schedule: w becomes 5.
  const heed::Tensor w = params.add("w", {1}, heed::constant(0));
  heed::Sgd sgd(params, {.momentum = 0.5});
  const heed::Schedule schedule{.kind = "cosine", .rate = 0.2, .warmup = 5, .steps = 100};
  for (int64_t step = 1; step <= 100; ++step) {
    heed::Tape tape;
    tape.backward(sum(square(w - 5)));
    sgd.step(rate_at(schedule, step));
  }
  std::printf("%.3f\n", w.item());
}
