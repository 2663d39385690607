// Attention in ten lines: three matrices in, context and weights out, by two scores.
#include <cstdio>

#include "heed/heed.h"

using namespace heed;

int main() {
  Random random(7);
  const Tensor q = normal({1, 1, 4, 8}, 1, random);  // [B, heads, T, size]
  const Tensor k = normal({1, 1, 6, 8}, 1, random), v = normal({1, 1, 6, 3}, 1, random);
  const Params params(/*seed=*/1);
  for (const char* name : {"additive", "scaled_dot"}) {
    const auto score = make_score(name, params / name, {.query = 8, .key = 8});
    const Attended read = attend(*score, q, k, v, {.want_weights = true});
    const Heatmap map{
        {"q1", "q2", "q3", "q4"}, {"k1", "k2", "k3", "k4", "k5", "k6"}, read.weights->values()};
    const std::vector<double> c = read.context.values();
    std::printf("%s\n%sc1 = %.3f %.3f %.3f\n\n", name, draw_terminal(map, Ink::plain).c_str(), c[0],
                c[1], c[2]);
  }
}
