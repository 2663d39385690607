// Why dot products are divided by sqrt(d_k) (Vaswani et al., 2017, section 3.2.1): of vectors with
// unit variance they have variance d_k, so with d_k the softmax comes to rest on one key, its
// entropy falls, and so does the gradient that passes through it; what starts there learns slowly.
#include <algorithm>
#include <cmath>

#include "heed/attention/attend.h"
#include "heed/nn/layers.h"
#include "heed/studies/study.h"
#include "heed/training/optimizer.h"
#include "heed/view/plot.h"

namespace heed {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Measured {
  double entropy = 0;   // of the weights, in nats
  double gradient = 0;  // |d(r . weights)/d(scores)| with r of unit variance
};

// Of random queries and keys with unit variance: the mean entropy, and the median gradient, which
// is that of a usual query (the mean would be that of the few that are still undecided).
Measured measure(const std::string& name, int64_t d, Random& random) {
  constexpr int64_t kQueries = 512, kKeys = 32;
  const Params params(1);
  const auto score = make_score(name, params, {.query = d, .key = d});
  const Tensor q = normal({1, 1, kQueries, d}, 1, random);
  const Tensor k = normal({1, 1, kKeys, d}, 1, random);
  const Tensor scores = as_parameter((*score)(q, k, 0));
  Tape tape;
  const Tensor w = weigh({}, scores).weights;  // [1, 1, queries, keys]
  Measured out;
  for (const double p : w.values())
    if (p > 0) out.entropy -= p * std::log(p) / kQueries;
  tape.backward(sum(w * normal(w.shape(), 1, random)));
  out.gradient = median(sqrt(sum(square(*scores.parameter_state()->grad), -1)).values());
  return out;
}

// Recall: n keys are shown, each with a value; which value belongs to the key that is asked for?
class Recall {
 public:
  static constexpr int64_t kSymbols = 32, kClasses = 8, kSize = 32, kPairs = 8, kBatch = 64;

  Recall(const std::string& score, int64_t d, uint64_t seed)
      : params_(seed),
        symbols_(params_.add("symbols", {kSymbols, kSize}, normal_values(1))),
        classes_(params_.add("classes", {kClasses, kSize}, normal_values(1))),
        // Queries and keys of unit variance, whatever d is.
        query_(params_.add("query", {kSize, d}, normal_values(1 / std::sqrt(double(kSize))))),
        key_(params_.add("key", {kSize, d}, normal_values(1 / std::sqrt(double(kSize))))),
        output_(params_ / "output", kSize, kClasses),
        score_(make_score(score, params_ / "score", {.query = d, .key = d})),
        random_(seed + 1) {}

  // The loss of a new batch.
  Tensor loss() {
    std::vector<Id> shown, values, asked, wanted;
    for (int64_t b = 0; b < kBatch; ++b) {
      // The first few of a shuffled deck: no key twice.
      std::vector<Id> deck(kSymbols);
      for (size_t i = 0; i < deck.size(); ++i) deck[i] = static_cast<Id>(i);
      for (size_t i = 0; i < kPairs; ++i)
        std::swap(deck[i], deck[i + random_.below(static_cast<uint32_t>(deck.size() - i))]);
      const uint32_t which = random_.below(kPairs);
      for (uint32_t i = 0; i < kPairs; ++i) {
        shown.push_back(deck[i]);
        values.push_back(static_cast<Id>(random_.below(kClasses)));
      }
      asked.push_back(deck[which]);
      wanted.push_back(values[static_cast<size_t>(b) * kPairs + which]);
    }
    const Tensor k = linear(embedding(symbols_, ids(shown, {kBatch, 1, kPairs})), key_);
    const Tensor v = embedding(classes_, ids(values, {kBatch, 1, kPairs}));
    const Tensor q = linear(embedding(symbols_, ids(asked, {kBatch, 1, 1})), query_);
    const Tensor read = attend(*score_, q, k, v).context;  // [B, 1, 1, kSize]
    return cross_entropy(output_(reshape(read, {kBatch, kSize})), ids(wanted, {kBatch}));
  }
  const Params& params() const { return params_; }

 private:
  Params params_;
  Tensor symbols_, classes_, query_, key_;
  Linear output_;
  std::unique_ptr<Score> score_;
  Random random_;
};

// Updates until the mean loss of ten is at most `goal`; `most` if it never is.
double steps_to(double goal, const std::string& score, int64_t d, uint64_t seed, int64_t most) {
  Recall task(score, d, seed);
  Adam adam(task.params(), {.clip_norm = 1});
  double recent = std::log(double(Recall::kClasses));
  for (int64_t step = 1; step <= most; ++step) {
    Tape tape(seed * 1'000'003 + static_cast<uint64_t>(step));
    const Tensor loss = task.loss();
    tape.backward(loss);
    adam.step(3e-3);
    recent += (loss.item() - recent) / 10;
    if (recent <= goal) return double(step);
  }
  return double(most);
}

}  // namespace

Study scale_study(const StudyOptions& o) {
  const std::vector<int64_t> sizes =
      o.small ? std::vector<int64_t>{4, 64, 1024}
              : std::vector<int64_t>{2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  const int64_t most = o.small ? 600 : 2000, runs = 5;
  constexpr double kGoal = 0.5;
  Study study;
  StudyTable table{.name = "d_k",
                   .title =
                       "32 random keys: mean entropy, median gradient; updates until recall "
                       "has a loss of 0.5, median of " +
                       std::to_string(runs) + " runs, " + std::to_string(most) + " at most",
                   .columns = {"score", "d_k", "entropy", "gradient", "steps"}};
  const std::vector<std::string> names = {"dot", "scaled_dot"};
  for (const std::string& name : names)
    for (const int64_t d : sizes) {
      if (o.tell) o.tell(name + ", d_k " + std::to_string(d));
      Random random(o.seed);  // the same vectors for both
      const Measured m = measure(name, d, random);
      std::vector<double> steps;
      for (int64_t run = 0; run < runs; ++run)
        steps.push_back(steps_to(kGoal, name, d, o.seed + static_cast<uint64_t>(run), most));
      table.rows.push_back({name, double(d), m.entropy, m.gradient, median(steps)});
    }
  const auto chart = [&](const char* title, const char* column, const Axis& y) {
    LineChart out;
    out.title = title, out.x = {"d_k", Scale::log}, out.y = y;
    for (const std::string& name : names)
      out.lines.push_back({name, std::vector<double>(sizes.begin(), sizes.end()),
                           table.numbers(column, {{"score", name}})});
    return draw_svg(out);
  };
  study.pictures = {
      {"scale-entropy", chart("Entropy of the weights over 32 keys", "entropy", {"nats"})},
      {"scale-gradient", chart("Gradient through the softmax", "gradient",
                               {"d weights / d scores, median", Scale::log})},
      {"scale-steps", chart("Learning to recall", "steps", {"updates to a loss of 0.5"})}};
  const auto first = [&](const char* column, const char* name) {
    return table.numbers(column, {{"score", name}}).front();
  };
  const auto last = [&](const char* column, const char* name) {
    return table.numbers(column, {{"score", name}}).back();
  };
  study.claims = {
      {"with d_k the entropy of dot falls to less than a third; that of scaled dot changes by less "
       "than a fifth",
       last("entropy", "dot") < first("entropy", "dot") / 3 &&
           std::abs(last("entropy", "scaled_dot") / first("entropy", "scaled_dot") - 1) < 0.2},
      {"at the largest d_k, the gradient through dot's softmax is less than a tenth of that "
       "through "
       "scaled dot's",
       last("gradient", "dot") < last("gradient", "scaled_dot") / 10},
      {"at the largest d_k, dot takes at least twice as many steps to learn as scaled dot",
       last("steps", "dot") >= 2 * last("steps", "scaled_dot")}};
  study.tables.push_back(std::move(table));
  return study;
}

}  // namespace heed
