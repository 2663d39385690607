// A score of one's own: -gamma |q - k|^2, the nearer a key the larger its weight, with a learned
// gamma. One class, outside of heed; it masks, decodes, trains and is checked like the built-in
// ones (docs/recipes/add-a-score.md).
#include <cstdio>

#include "heed/heed.h"

using namespace heed;

// |q - k|^2 = |q|^2 - 2 q.k + |k|^2. The first term is the same for all keys and cancels in the
// softmax; the others are a dot product of [2 gamma q, -gamma] and [k, |k|^2]: a form that the
// fused kernel knows.
class Distance final : public Score {
 public:
  explicit Distance(const Params& params) : gamma_(params.add("gamma", {1}, constant(0.1))) {}
  Tensor prepare(const Tensor& k) const override {  // once for each key
    return concat({k, squares(k)}, -1);
  }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    const Tensor ones = full({q.size(0), q.size(1), q.size(2), 1}, 1, q.type());
    return ScoreTerms{.q = concat({q * 2.0, -ones}, -1) * gamma_, .k = k};
  }

 private:
  static Tensor squares(const Tensor& x) {
    return reshape(sum(square(x), -1), {x.size(0), x.size(1), x.size(2), 1});
  }
  Tensor gamma_;
};

int main() {
  // Its gradient, against finite differences: in f64, with a causal mask and two heads.
  Random random(5);
  const Params checked(1, Type::f64);
  const Distance for_check(checked);
  const GradientCheck check = check_gradient(
      [&](const std::vector<Tensor>& x) {
        return attend(for_check, x[0], x[1], x[2], {.mask = Mask::causal()}).context;
      },
      {normal({2, 2, 5, 3}, 1, random, Type::f64), normal({2, 2, 5, 3}, 1, random, Type::f64),
       normal({2, 2, 5, 4}, 1, random, Type::f64)});
  std::printf("gradient: off by %.0e of its size\n", check.worst);

  // It learns to look up: each query is a key with some noise, wanted is that key's value.
  const Params params(1);
  const Distance score(params);
  Adam adam(params);
  const Tensor keys = normal({1, 1, 8, 4}, 1, random), values = normal({1, 1, 8, 2}, 1, random);
  const Tensor queries = keys + normal({1, 1, 8, 4}, 0.1, random);
  double loss = 0, before = 0;
  for (int step = 0; step < 200; ++step) {
    Tape tape;
    const Tensor error = mean(square(attend(score, queries, keys, values).context - values));
    tape.backward(error);
    adam.step(5e-2);
    loss = error.item();
    if (step == 0) before = loss;
  }
  std::printf("look-up: mean squared error %.3f before, %.3f after 200 steps; gamma %.1f\n", before,
              loss, params.at("gamma").value.item());
  Heatmap map;
  for (int i = 1; i <= 8; ++i) {
    map.rows.push_back("q" + std::to_string(i));
    map.columns.push_back("k" + std::to_string(i));
  }
  map.weights = attend(score, queries, keys, values, {.want_weights = true}).weights->values();
  std::printf("%s", draw_terminal(map, Ink::plain).c_str());
  return check.worst < 1e-6 && loss < 0.1 * before ? 0 : 1;
}
