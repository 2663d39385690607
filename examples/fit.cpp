// A small network learns tanh: parameters, a tape, an optimizer. The example of the README.
#include <cstdio>

#include "heed/heed.h"

using namespace heed;

int main() {
  const Params params(/*seed=*/1);
  const FeedForward model(params, 8, 32);
  Adam adam(params);
  Random random(2);
  const Tensor x = normal({16, 8}, 1, random), y = tanh(x);
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    Tape tape;  // from here on, ops are recorded
    const Tensor error = mean(square(model(x) - y));
    tape.backward(error);  // every parameter now has its gradient
    adam.step(1e-2);
    loss = error.item();
  }
  std::printf("mean squared error after 200 steps: %.5f\n", loss);
  return loss < 0.01 ? 0 : 1;
}
