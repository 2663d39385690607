// Beam search. Each sentence grows a tree of words; a hypothesis is a leaf. All sentences that are
// not finished take a step together.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "heed/ops/weight.h"
#include "heed/search/candidates.h"
#include "heed/search/decoder.h"
#include "heed/search/search.h"

namespace heed {
namespace {

Tensor on_host(const Tensor& x) { return to(contiguous(x), Device::cpu); }

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Node {
  Id word = 0;
  int64_t parent = -1;  // -1: the root
  double log_probability = 0;
  std::vector<float> weights = {};
  bool finished = false;  // the end of a hypothesis, where the search is recorded
};

// The search of one sentence.
struct Tree {
  int64_t sentence = 0, length = 0, longest = 0;  // source's length; most words
  std::vector<Node> nodes = {};
  std::vector<int64_t> leaves = {};  // live hypotheses: nodes, -1 at first; one that is dead: -2
  std::vector<Hypothesis> finished = {};

  double log_probability(int64_t leaf) const {
    return leaf == -1 ? 0 : leaf == -2 ? kNever : nodes[static_cast<size_t>(leaf)].log_probability;
  }
  std::vector<Id> words(int64_t leaf) const {
    std::vector<Id> out;
    for (int64_t n = leaf; n >= 0; n = nodes[static_cast<size_t>(n)].parent)
      out.push_back(nodes[static_cast<size_t>(n)].word);
    std::reverse(out.begin(), out.end());
    return out;
  }
};

double normalized(const SearchOptions& o, double log_probability, size_t words) {
  return log_probability / std::pow(double(words + 1), o.normalize);
}

// beta * sum over source words of log(min(their weights' sum, 1)).
double coverage(const std::vector<std::vector<float>>& weights, int64_t length) {
  double sum = 0;
  for (int64_t j = 0; j < length; ++j) {
    double seen = 0;
    for (const std::vector<float>& row : weights) seen += double(row[static_cast<size_t>(j)]);
    sum += std::log(std::clamp(seen, 1e-6, 1.0));
  }
  return sum;
}

void finish(const SearchOptions& o, Tree& tree, int64_t leaf, double log_probability,
            std::vector<float> last_weights) {
  Hypothesis h{.ids = tree.words(leaf), .log_probability = log_probability};
  for (int64_t n = leaf; n >= 0; n = tree.nodes[static_cast<size_t>(n)].parent)
    h.weights.push_back(tree.nodes[static_cast<size_t>(n)].weights);
  std::reverse(h.weights.begin(), h.weights.end());
  h.weights.push_back(std::move(last_weights));
  h.score = normalized(o, log_probability, h.ids.size());
  if (o.coverage > 0) h.score += o.coverage * coverage(h.weights, tree.length);
  if (!o.want_weights) h.weights.clear();
  // The first of equals stays first.
  const auto at = std::upper_bound(tree.finished.begin(), tree.finished.end(), h,
                                   [](const auto& a, const auto& b) { return a.score > b.score; });
  tree.finished.insert(at, std::move(h));
  if (static_cast<int64_t>(tree.finished.size()) > std::max(o.beam, o.best))
    tree.finished.pop_back();
}

// Can no live hypothesis become better than the worst that is kept any more? Its probability can
// only fall, while the division by its length can help it until the longest.
bool hopeless(const SearchOptions& o, const Tree& tree) {
  if (o.beam == 1 && !tree.finished.empty()) return true;  // greedy: the end was the likeliest
  if (static_cast<int64_t>(tree.finished.size()) < std::max(o.beam, o.best)) return false;
  double best = kNever;
  for (const int64_t leaf : tree.leaves) best = std::max(best, tree.log_probability(leaf));
  return normalized(o, best, static_cast<size_t>(tree.longest)) <= tree.finished.back().score;
}

bool all_dead(const Tree& tree) {
  return std::all_of(tree.leaves.begin(), tree.leaves.end(), [](int64_t n) { return n == -2; });
}

struct Candidate {
  double log_probability;
  int64_t leaf;  // number among the leaves
  Id word;
};

// The new leaves of a tree from the scores of its rows: fills `from` with the leaf each one grew
// from.
void grow(const SearchOptions& o, Tree& tree, std::span<const std::vector<WordScore>> rows,
          const std::vector<std::vector<float>>& weights, std::vector<int64_t>& from) {
  std::vector<Candidate> all;
  for (size_t k = 0; k < rows.size(); ++k)
    for (const WordScore& w : rows[k])
      all.push_back({tree.log_probability(tree.leaves[k]) + w.log_probability,
                     static_cast<int64_t>(k), w.word});
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.log_probability > b.log_probability;
  });
  const std::vector<int64_t> before = tree.leaves;
  tree.leaves.clear();
  from.clear();
  for (const Candidate& c : all) {
    if (static_cast<int64_t>(tree.leaves.size()) == o.beam) break;
    if (c.log_probability == kNever) break;
    const int64_t parent = before[static_cast<size_t>(c.leaf)];
    std::vector<float> row =
        weights.empty() ? std::vector<float>{} : weights[static_cast<size_t>(c.leaf)];
    if (c.word == o.end) {
      if (o.record) tree.nodes.push_back({c.word, parent, c.log_probability, {}, true});
      finish(o, tree, parent, c.log_probability, std::move(row));
      continue;
    }
    tree.nodes.push_back({c.word, parent, c.log_probability, std::move(row)});
    tree.leaves.push_back(static_cast<int64_t>(tree.nodes.size()) - 1);
    from.push_back(c.leaf);
  }
  while (static_cast<int64_t>(tree.leaves.size()) < o.beam) {
    tree.leaves.push_back(-2);
    from.push_back(0);
  }
}

// All nodes, with the way to the best hypothesis: the only end behind its words.
std::vector<SearchNode> recorded(const Tree& tree) {
  std::vector<SearchNode> out;
  for (const Node& n : tree.nodes)
    out.push_back({n.word, n.parent, n.log_probability, n.finished, false});
  for (size_t i = 0; i < out.size() && !tree.finished.empty(); ++i) {
    if (!out[i].finished || tree.words(out[i].parent) != tree.finished.front().ids) continue;
    for (int64_t n = static_cast<int64_t>(i); n >= 0; n = out[static_cast<size_t>(n)].parent)
      out[static_cast<size_t>(n)].best = true;
  }
  return out;
}

}  // namespace

void check(const SearchOptions& o) {
  require(o.beam > 0 && o.best > 0, "search: wants a beam and a number of results above 0, given ",
          o.beam, " and ", o.best);
  require(o.best <= o.beam || o.sample, "search: a beam of ", o.beam, " cannot give ", o.best,
          " results; widen the beam");
  const auto within = [](const char* name, auto value, double least, double most) {
    require(double(value) >= least && double(value) <= most, "search: ", name,
            " wants a number from ", least, " to ", most, ", given ", value);
  };
  within("normalize", o.normalize, 0, 100), within("coverage", o.coverage, 0, 1e6);
  within("min_length", o.min_length, 0, 1e6), within("max_length", o.max_length, 0, 1e6);
  within("max_ratio", o.max_ratio, 0, 1000), within("max_extra", o.max_extra, 0, 1e6);
  within("no_repeat", o.no_repeat, 0, 1e6), within("top_k", o.top_k, 0, 1e18);
  require(o.temperature > 0 && std::isfinite(o.temperature),
          "search: temperature wants a number above 0, given ", o.temperature);
  within("top_p", o.top_p, 0, 1);
}

Tensor chosen_weights(const std::vector<Weights>& all, const SearchOptions& o) {
  require(!all.empty(), "alignment: this model has no attention to show");
  int64_t layer = o.layer.value_or(-1);
  const int64_t head = o.head.value_or(-1);
  if (layer < 0) layer = static_cast<int64_t>(all.size()) - 1;
  require(layer < static_cast<int64_t>(all.size()), "alignment: layer ", layer, " of ", all.size());
  const Tensor& w = all[static_cast<size_t>(layer)].values;  // heads at axis 1
  if (head < 0) return mean(w, 1);
  require(head < w.size(1), "alignment: head ", head, " of ", w.size(1));
  Shape shape = w.shape();
  std::vector<int64_t> rest;
  for (int i = 0; i < w.rank(); ++i)
    if (i != 1) rest.push_back(shape[i]);
  return reshape(slice(w, 1, head, head + 1), Shape(std::span<const int64_t>(rest)));
}

std::vector<std::vector<Hypothesis>> search(const Model& model, const Source& source,
                                            const SearchOptions& options) {
  Decoder decoder(model);
  return search(decoder, source, options);
}

std::vector<std::vector<Hypothesis>> search(Decoder& decoder, const Source& source,
                                            const SearchOptions& given) {
  SearchOptions o = given;
  check(o);
  const int64_t B = source.ids.size(0);
  require(o.prefixes.empty() || static_cast<int64_t>(o.prefixes.size()) == B,
          "search: ", o.prefixes.size(), " prefixes for ", B, " sentences");
  if (o.sample) o.beam = o.best = 1;
  const bool weights_needed = o.want_weights || o.coverage > 0;
  const NoTape off;
  const FixedWeights fixed;
  Decoding decoding(decoder, source, o);
  std::vector<Tree> trees;
  for (int64_t b = 0; b < B; ++b) {
    const int64_t length = source.lengths[static_cast<size_t>(b)];
    int64_t longest = static_cast<int64_t>(o.max_ratio * double(length)) + o.max_extra;
    if (o.max_length > 0) longest = std::min(longest, o.max_length);
    trees.push_back({.sentence = b, .length = length, .longest = longest, .leaves = {-1}});
  }
  std::vector<std::vector<Hypothesis>> out(static_cast<size_t>(B));
  std::vector<Id> last(static_cast<size_t>(B), o.begin);
  for (int64_t t = 0; !trees.empty(); ++t) {
    decoding.step(last);
    last.clear();
    std::vector<Id> all_from, kept;
    std::vector<Tree> going;
    for (size_t i = 0; i < trees.size(); ++i) {
      Tree& tree = trees[i];
      std::vector<std::vector<WordScore>> rows;
      std::vector<std::vector<float>> row_weights;
      for (int64_t k = 0; k < std::ssize(tree.leaves); ++k) {
        const int64_t leaf = tree.leaves[static_cast<size_t>(k)];
        const auto n = static_cast<int64_t>(i);
        Allowed allowed{.options = o, .words = {}, .longest = tree.longest};
        if (leaf != -2) allowed.words = tree.words(leaf);
        const std::vector<Id>* prefix =
            o.prefixes.empty() ? nullptr : &o.prefixes[static_cast<size_t>(tree.sentence)];
        const bool forced = prefix && t < static_cast<int64_t>(prefix->size());
        if (forced) {
          allowed.only = (*prefix)[static_cast<size_t>(t)];
          require(*allowed.only >= 0 && *allowed.only < decoding.words(), "search: prefix ",
                  tree.sentence, " has word ", *allowed.only, " of ", decoding.words());
        }
        const int64_t number =
            o.numbers.empty() ? tree.sentence : o.numbers[static_cast<size_t>(tree.sentence)];
        if (leaf == -2) {
          rows.emplace_back();
        } else if (o.sample && !forced) {
          rows.push_back({drawn_word(decoding.log_probabilities(n, k), allowed, number, t)});
        } else {
          const auto [scores, words] = decoding.likeliest(n, k);
          auto best = best_words(scores, words, allowed, 2 * o.beam);
          if (!best)  // the likeliest were not enough
            best = best_words(decoding.log_probabilities(n, k), allowed, 2 * o.beam);
          rows.push_back(std::move(*best));
        }
        if (weights_needed) {
          const std::span<const float> w = decoding.weights(n, k);
          row_weights.emplace_back(w.begin(), w.begin() + (tree.length > 0 ? tree.length : t + 1));
        }
      }
      std::vector<int64_t> from;
      grow(o, tree, rows, row_weights, from);
      if (all_dead(tree) || hopeless(o, tree)) {
        if (o.record) o.record(tree.sentence, recorded(tree));
        tree.finished.resize(std::min(tree.finished.size(), static_cast<size_t>(o.best)));
        out[static_cast<size_t>(tree.sentence)] = std::move(tree.finished);
        continue;
      }
      for (size_t k = 0; k < from.size(); ++k) {
        const int64_t leaf = tree.leaves[k];
        last.push_back(leaf == -2 ? o.pad : tree.nodes[static_cast<size_t>(leaf)].word);
        all_from.push_back(static_cast<Id>(from[k]));
      }
      kept.push_back(static_cast<Id>(i));
      going.push_back(std::move(tree));
    }
    trees = std::move(going);
    if (!trees.empty()) decoding.choose(all_from, kept);
  }
  return out;
}

std::vector<Hypothesis> score_targets(const Model& model, const Source& source,
                                      const std::vector<std::vector<Id>>& targets,
                                      const SearchOptions& o) {
  require(static_cast<int64_t>(targets.size()) == source.ids.size(0),
          "score_targets: ", targets.size(), " targets for ", source.ids.size(0), " sentences");
  const NoTape off;
  size_t longest = 0;
  for (const auto& t : targets) longest = std::max(longest, t.size());
  const int64_t B = source.ids.size(0), T = static_cast<int64_t>(longest) + 1;
  std::vector<Id> in(static_cast<size_t>(B * T), o.pad);
  for (int64_t b = 0; b < B; ++b) {
    in[static_cast<size_t>(b * T)] = o.begin;
    const auto& t = targets[static_cast<size_t>(b)];
    std::copy(t.begin(), t.end(), in.begin() + b * T + 1);
  }
  const bool weights_needed = o.want_weights || o.coverage > 0;
  const TeacherForced forced = model.forward(source, ids(in, {B, T}), weights_needed);
  const Tensor log_probabilities =
      on_host(log_softmax(linear(forced.hidden, model.output_weight())));
  const int64_t V = log_probabilities.size(2);
  std::optional<Tensor> weights;
  if (weights_needed) weights = on_host(chosen_weights(forced.weights, o));
  std::vector<Hypothesis> out;
  for (int64_t b = 0; b < B; ++b) {
    Hypothesis h{.ids = targets[static_cast<size_t>(b)]};
    const int64_t words = static_cast<int64_t>(h.ids.size());
    for (int64_t t = 0; t <= words; ++t) {
      const Id word = t < words ? h.ids[static_cast<size_t>(t)] : o.end;
      h.log_probability += double(log_probabilities.data<float>()[(b * T + t) * V + word]);
      if (weights) {
        const float* w = weights->data<float>() + (b * T + t) * weights->size(2);
        const int64_t length = source.lengths[static_cast<size_t>(b)];
        h.weights.emplace_back(w, w + (length > 0 ? length : t + 1));
      }
    }
    h.score = normalized(o, h.log_probability, h.ids.size());
    if (o.coverage > 0)
      h.score += o.coverage * coverage(h.weights, source.lengths[static_cast<size_t>(b)]);
    if (!o.want_weights) h.weights.clear();
    out.push_back(std::move(h));
  }
  return out;
}

}  // namespace heed
