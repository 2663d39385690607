#include "heed/training/loss.h"

#include "heed/search/search.h"

namespace heed {
namespace {

// Padding does not count.
Tensor targets(const Batch& b) {
  std::vector<Id> out = b.target;
  for (int64_t i = 0; i < b.rows; ++i)
    for (int64_t t = b.target_lengths[static_cast<size_t>(i)]; t < b.target_width; ++t)
      out[static_cast<size_t>(i * b.target_width + t)] = -1;
  return ids(out, {b.rows, b.target_width});
}

// How far the taught attention w(t, s) is from links with probabilities pi(t, s): the mean over
// target words of -sum over s of pi log p, and the mean over source words of -sum over t of
// pi log q. p = w(t, s), and q = w(t, s) / (sum over t' of w(t', s)) is how much of what is on s
// comes from t: links are made where both are large (data/word_weights.h). A word counts as much as
// its most probable link, however many it has. What has none may weigh what it likes, where it is
// not in the way of q: aligners miss more links than they invent, and a model that is left free
// finds some of them.
Tensor alignment_loss(const Batch& b, const TeacherForced& forced, const AlignmentHead& taught) {
  require(!forced.weights.empty(), "guided alignment: this model has no attention to guide");
  const int64_t B = b.rows, T = b.target_width, S = b.source_width;
  std::vector<double> links(static_cast<size_t>(B * T * S));
  std::vector<double> words(static_cast<size_t>(B * T));  // 1 for one, 0 for padding
  const auto each_link = [&](auto visit) {
    for (int64_t i = 0; i < B; ++i)
      for (const Link& link : b.links[static_cast<size_t>(i)])
        if (const int64_t t = link.target + taught.shift;
            t < b.target_lengths[static_cast<size_t>(i)])
          visit(static_cast<size_t>(i * T + t), static_cast<size_t>(i * S + link.source),
                static_cast<size_t>((i * T + t) * S + link.source), double(link.weight));
  };
  struct Words {  // of one side: what their links sum up to, and the most probable
    std::vector<double> sum, most;
    double all = 0;
    explicit Words(int64_t count)
        : sum(static_cast<size_t>(count)), most(static_cast<size_t>(count)) {}
    void add(size_t word, double weight) {
      sum[word] += weight;
      all += std::max(0.0, weight - most[word]), most[word] = std::max(most[word], weight);
    }
    double share(size_t word) const { return most[word] / sum[word] / all; }
  };
  Words targets(B * T), sources(B * S);
  each_link([&](size_t target, size_t source, size_t, double weight) {
    targets.add(target, weight), sources.add(source, weight);
  });
  // How many links there are is not to be seen in a shape: all of this goes where elements go
  // (heed/tensor/graph.h).
  std::vector<double> of_source(static_cast<size_t>(B * S));
  each_link([&](size_t target, size_t source, size_t at, double weight) {
    links[at] = weight * (targets.share(target) + sources.share(source));
    of_source[source] += weight * sources.share(source);
  });
  for (int64_t i = 0; i < B; ++i)
    for (int64_t t = taught.shift; t < b.target_lengths[static_cast<size_t>(i)]; ++t)
      words[static_cast<size_t>(i * T + t)] = 1;
  const auto of = [&](const std::vector<Weights>& weights) {
    const Tensor w = chosen_weights(weights, -1, taught.head);  // [B, T, S]
    const auto log_of = [](const Tensor& x) { return log(x + 1e-9); };
    const Tensor on = sum(w * tensor(words, {B, T, 1}, w.type()), 1);  // [B, S]
    return sum(log_of(on) * tensor(of_source, {B, S}, w.type())) -
           sum(log_of(w) * tensor(links, {B, T, S}, w.type()));
  };
  return forced.whole ? (of(forced.weights) + of({*forced.whole})) * 0.5 : of(forced.weights);
}

// Every row twice, for two draws of dropout: all of them, then all again.
Batch twice(const Batch& b) {
  Batch out = b;
  out.rows *= 2;
  const auto again = [](auto& all, const auto& once) {
    all.insert(all.end(), once.begin(), once.end());
  };
  again(out.source, b.source), again(out.target_in, b.target_in), again(out.target, b.target);
  again(out.source_lengths, b.source_lengths), again(out.target_lengths, b.target_lengths);
  again(out.links, b.links), again(out.lines, b.lines);
  return out;
}

// The mean over target tokens of KL(p || q) + KL(q || p) = sum (p - q) (log p - log q), the two
// halves of `logits` [2 B, Tt, V] being those of one token.
Tensor divergence(const Batch& b, const Tensor& logits) {
  const int64_t half = logits.size(0) / 2;
  std::vector<double> counts(static_cast<size_t>(half * b.target_width));
  double count = 0;
  for (int64_t i = 0; i < half; ++i)
    for (int64_t t = 0; t < b.target_lengths[static_cast<size_t>(i)]; ++t, ++count)
      counts[static_cast<size_t>(i * b.target_width + t)] = 1;
  for (double& c : counts) c /= std::max(count, 1.0);
  const std::vector<Tensor> both =
      unstack(reshape(log_softmax(logits), {2, half, b.target_width, logits.size(-1)}));
  const Tensor &p = both[0], &q = both[1];
  const Tensor each = sum((exp(p) - exp(q)) * (p - q), -1);  // [B, Tt]
  return sum(each * tensor(counts, {half, b.target_width}, each.type()));
}

// Where the output has a bias all logits are held; else never.
Tensor token_loss(const Model& model, const Prediction& p, double smoothing) {
  if (!model.output_bias())
    return linear_cross_entropy(p.hidden, model.output_weight(), p.words, smoothing);
  const Tensor narrow = model.logits(p.hidden);
  return cross_entropy(cast(narrow, wide(narrow.type())), p.words, smoothing);
}

}  // namespace

Source source_of(const Batch& b) {
  return {ids(b.source, {b.rows, b.source_width}), b.source_lengths};
}

BatchLoss batch_loss(const Model& model, const Batch& given, const LossOptions& o) {
  const bool draws_twice = o.rdrop > 0;
  const Batch doubled = draws_twice ? twice(given) : Batch();
  const Batch& b = draws_twice ? doubled : given;
  const bool guided = o.guided > 0 && !b.links.empty();
  // Teacher forcing: all steps of the target at once.
  const AlignmentHead taught = model.guided_head();
  WantWeights wanted = !guided            ? WantWeights(false)
                       : taught.layer < 0 ? WantWeights(true)
                                          : WantWeights::of_layer(taught.layer);
  if (guided && taught.whole) wanted.and_whole(taught.layer, b.target_lengths);
  const TeacherForced forced =
      model.forward(source_of(b), ids(b.target_in, {b.rows, b.target_width}), wanted);
  BatchLoss loss;
  if (draws_twice) {
    // What both terms are of is held: [2 B, Tt, V].
    const Tensor narrow = model.logits(forced.hidden);
    const Tensor logits = cast(narrow, wide(narrow.type()));
    const Tensor tokens = cross_entropy(logits, targets(b), o.smoothing);
    loss = {.total = tokens + divergence(b, logits) * (o.rdrop / 4),
            .cross_entropy = tokens.detached()};
  } else {
    const Tensor tokens = token_loss(model, {forced.hidden, targets(b)}, o.smoothing);
    loss = {.total = tokens, .cross_entropy = tokens.detached()};
  }
  for (const Prediction& p : forced.also)
    loss.total = loss.total + token_loss(model, p, o.smoothing);
  if (guided) loss.total = loss.total + alignment_loss(b, forced, taught) * o.guided;
  return loss;
}

double negative_log_likelihood(const Model& model, const Batch& b) {
  const NoTape off;
  return batch_loss(model, b, {.smoothing = 0}).cross_entropy.item() * double(b.target_tokens());
}

}  // namespace heed
