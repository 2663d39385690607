#include "heed/heed.h"

// What a Python module would have: a function of C.
extern "C" double softmax_of_first(double a, double b) {
  return heed::softmax(heed::tensor(std::vector<double>{a, b}, {1, 2}, heed::Type::f64))
      .values()[0];
}
