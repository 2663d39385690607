#include <cstdio>

#include "heed/heed.h"

int main() {
  const heed::Tensor x = heed::tensor({2, 1, 0}, {1, 3});
  for (const double p : heed::softmax(x).values()) std::printf("%.3f ", p);
  std::printf("\n");
}
