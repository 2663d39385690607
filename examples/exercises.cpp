// The exercises of the lecture notes on sequence-to-sequence models, worked out by the library. The
// notes' own answers are right but for two: (3) rounds 0.2447 and 0.0900 wrongly, and none of the
// answers offered for (5) is right.
#include <cmath>
#include <cstdio>

#include "heed/heed.h"

using namespace heed;

namespace {

void print(const char* what, const Tensor& x, int places) {
  std::printf("%s [", what);
  const std::vector<double> values = x.values();
  for (size_t i = 0; i < values.size(); ++i)
    std::printf("%s%.*f", i ? ", " : "", places, values[i]);
  std::printf("]\n");
}

// A chain of words with given probabilities: after the beginning A (0.6) or B (0.4); after A one of
// two words alike, after B nearly always the same. Then the sentence ends. It has no parameters and
// reads no source; search sees it as it sees every model.
class Chain final : public Model {
 public:
  enum Word : Id { pad, unknown, begin, end, A, B, C, D, words };

  State start(const Source& source) const override { return State(source); }
  Step step(State& state, const Tensor& last, bool) const override {
    std::vector<float> logits;
    for (const Id word : last.host_ids()) {
      std::vector<double> p(words, 1e-9);
      if (word == begin) p[A] = 0.6, p[B] = 0.4;
      if (word == A) p[C] = p[D] = 0.5;
      if (word == B) p[C] = 0.9, p[D] = 0.1;
      if (word == C || word == D) p[end] = 1;
      for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
    }
    state.advance();
    return {.hidden = tensor(logits, {last.size(0), words})};
  }
  TeacherForced forward(const Source&, const Tensor&, const WantWeights&) const override {
    fail("chain: made for search alone");
  }
  Tensor logits(const Tensor& hidden) const override { return hidden; }
  Tensor output_weight() const override { fail("chain: made for search alone"); }
};

// The probability of the best translation that a beam of this width finds.
double found_by(int64_t beam) {
  const Source source{ids(std::vector<Id>{Chain::end}, {1, 1}), {1}};
  const auto found = search(Chain(), source, {.beam = beam, .normalize = 0});
  return std::exp(found[0][0].log_probability);
}

}  // namespace

int main() {
  // 1. The context is the mean of the states by the weights: c = 0.3 h1 + 0.7 h2.
  const Tensor weights = tensor({0.3f, 0.7f}, {1, 2}), h = tensor({1, 1, 2, 0}, {2, 2});
  print("1. context", matmul(weights, h), 2);

  // 2. Greedy search keeps one hypothesis, beam search several. In this chain the likeliest first
  // word (0.6) leads nowhere: 0.6 * 0.5 = 0.30, while the second (0.4) goes on surely: 0.4 * 0.9.
  std::printf("2. greedy search finds %.2f, a beam of two %.2f: (b)\n", found_by(1), found_by(2));

  // 3. Weights are the softmax of the scores.
  print("3. weights", softmax(tensor({2, 1, 0}, {1, 3})), 3);

  // 4. Attention removes the bottleneck of one vector, and so helps with long-range dependencies
  // and with what came early; it does not replace data.
  std::printf("4. (a), (b), (c)\n");

  // 5. The score without v: tanh(W1 h + W2 s). Vectors are rows here, so the matrices are
  // transposed.
  const Tensor w1 = tensor({0.5f, -0.3f, 0.2f, 0.4f}, {2, 2});
  const Tensor w2 = tensor({0.1f, 0.2f, -0.3f, 0.1f}, {2, 2});
  const Tensor state = tensor({1, 2}, {1, 2}), s = tensor({0.5f, 1}, {1, 2});
  const Tensor sum = matmul(state, transpose(w1, 0, 1)) + matmul(s, transpose(w2, 0, 1));
  print("5. W1 h + W2 s =", sum, 3);
  print("   score", tanh(sum), 3);
}
