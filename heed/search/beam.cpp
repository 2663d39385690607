#include "heed/search/beam.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "heed/search/draw.h"
#include "heed/search/reweigh.h"

namespace heed {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

struct Candidate {
  double log_probability;
  size_t leaf;  // number among the leaves
  Id token;
};

}  // namespace

double normalized(const SearchOptions& o, double log_probability, size_t tokens) {
  return log_probability / std::pow(double(tokens + 1), o.normalize);
}

double coverage(const std::vector<std::vector<float>>& weights, int64_t length) {
  double sum = 0;
  for (int64_t j = 0; j < length; ++j) {
    double seen = 0;
    for (const std::vector<float>& row : weights) seen += double(row[static_cast<size_t>(j)]);
    // Soft weights are never 0; of others, a word that was not read at all counts as a millionth.
    sum += std::log(seen > 0 ? std::min(seen, 1.0) : 1e-6);
  }
  return sum;
}

int64_t longest_target(const SearchOptions& o, int64_t source) {
  const auto longest = static_cast<int64_t>(o.max_ratio * double(source)) + o.max_extra;
  return o.max_length > 0 ? std::min(longest, o.max_length) : longest;
}

Beam::Beam(const SearchOptions& options, Sentence sentence)
    : options_(options), sentence_(std::move(sentence)) {
  longest_ = longest_target(options_, sentence_.length);
  // One that may not be as long as its prefix stops within it.
  if (options_.open_end && std::ssize(sentence_.prefix) > longest_)
    sentence_.prefix.resize(static_cast<size_t>(longest_));
  leaves_.assign(static_cast<size_t>(options_.beam), kDead);
  leaves_[0] = kRoot;
  order_ = {0};
}

double Beam::log_probability(int64_t leaf) const {
  if (leaf == kRoot) return 0;
  return leaf == kDead ? kNever : nodes_[static_cast<size_t>(leaf)].log_probability;
}

std::vector<Id> Beam::tokens(int64_t leaf) const {
  const auto parent = [&](int64_t n) { return nodes_[static_cast<size_t>(n)].parent; };
  size_t count = 0;
  for (int64_t n = leaf; n >= 0; n = parent(n)) ++count;
  std::vector<Id> out(count);
  for (int64_t n = leaf; n >= 0; n = parent(n)) out[--count] = nodes_[static_cast<size_t>(n)].token;
  return out;
}

std::vector<Id> Beam::last() const {
  std::vector<Id> out;
  for (const int64_t leaf : leaves_)
    out.push_back(leaf == kDead   ? options_.pad
                  : leaf == kRoot ? options_.begin
                                  : nodes_[static_cast<size_t>(leaf)].token);
  return out;
}

double Beam::finish(int64_t leaf, double log_probability, std::vector<float> last_weights) {
  const SearchOptions& o = options_;
  ++ended_;
  Hypothesis h{.ids = tokens(leaf), .log_probability = log_probability};
  for (int64_t n = leaf; n >= 0; n = nodes_[static_cast<size_t>(n)].parent)
    h.weights.push_back(nodes_[static_cast<size_t>(n)].weights);
  std::reverse(h.weights.begin(), h.weights.end());
  const int64_t ranked = std::ssize(h.ids) - sentence_.context;
  const bool cut = o.open_end && std::ssize(h.ids) == longest_;  // it has no end
  if (!cut) h.weights.push_back(std::move(last_weights));
  h.score = normalized(o, log_probability,
                       static_cast<size_t>(cut ? std::max<int64_t>(ranked - 1, 0) : ranked));
  if (o.coverage > 0) h.score += o.coverage * coverage(h.weights, sentence_.length);
  if (cut) h.weights.push_back(std::move(last_weights));
  if (!o.want_weights) h.weights.clear();
  shift_weights(h.weights, o.shift);
  const double score = h.score;
  // The first of equals stays first.
  const auto at = std::upper_bound(finished_.begin(), finished_.end(), h,
                                   [](const auto& a, const auto& b) { return a.score > b.score; });
  finished_.insert(at, std::move(h));
  if (static_cast<int64_t>(finished_.size()) > std::max(o.beam, o.best)) finished_.pop_back();
  return score;
}

// Have as many ended as the caller has patience for? In greedy search the first: its end was the
// likeliest. Poor ones may end while a good one goes on: none is waited for unless it is, as it
// stands, better than all that have ended.
bool Beam::enough() const {
  const SearchOptions& o = options_;
  if (o.beam == 1) return ended_ > 0;
  if (o.ending == Ending::shrinking) return false;  // it ends with its last hypothesis
  if (o.ending == Ending::counted && o.normalize == 0 && o.coverage == 0)
    return best_ended_ && ended_ >= o.best;
  if (o.ending == Ending::counted) return double(ended_) >= std::round(o.patience * double(o.beam));
  if (o.ending == Ending::full) {
    if (std::ssize(finished_) < std::max(o.beam, o.best)) return false;
    return normalized(o, best_live(), static_cast<size_t>(steps_ - 1)) <= finished_.back().score;
  }
  const double wanted = std::max(std::round(o.patience * double(o.beam)), double(o.best));
  if (double(ended_) < wanted) return false;
  return normalized(o, best_live(), static_cast<size_t>(steps_)) <= finished_.front().score;
}

double Beam::best_live() const {
  double best = kNever;
  for (const int64_t leaf : leaves_) best = std::max(best, log_probability(leaf));
  return best;
}

// Can no live hypothesis become better than the worst that is kept any more? Its probability can
// only fall, while the division by its length can help it until the longest.
bool Beam::hopeless() const {
  const SearchOptions& o = options_;
  if (static_cast<int64_t>(finished_.size()) < std::max(o.beam, o.best)) return false;
  return normalized(o, best_live(), static_cast<size_t>(longest_)) <= finished_.back().score;
}

std::vector<TokenScore> Beam::next_tokens(Slots& slots, int64_t slot, int64_t hypothesis,
                                          const Allowed& allowed) const {
  const SearchOptions& o = options_;
  const auto& prefix = sentence_.prefix;
  Reweigh how{.repetition_penalty = o.repetition_penalty,
              .said = allowed.tokens,
              .only = slots.listed() ? std::span<const Id>() : sentence_.shortlist};
  if (o.prefix_bias > 0 && steps_ < std::ssize(prefix) &&
      std::equal(allowed.tokens.begin(), allowed.tokens.end(), prefix.begin()))
    how.towards = prefix[static_cast<size_t>(steps_)], how.bias = o.prefix_bias;
  const bool draws = o.sample && !allowed.only;
  // A list is drawn from as a whole: it has no normalizer for a temperature.
  bool changed =
      how.repetition_penalty != 1 || !how.only.empty() || how.towards || (draws && slots.listed());
  // What is forbidden has its probability taken away: mostly little, so that the rest is known.
  std::vector<Id> forbidden;
  double taken = 0;
  if (o.renormalize && !allowed.only) {
    forbidden = allowed.forbidden();
    std::ranges::sort(forbidden);
    forbidden.erase(std::ranges::unique(forbidden).begin(), forbidden.end());
    const std::span<const float> all =
        forbidden.empty() ? std::span<const float>{} : slots.log_probabilities(slot, hypothesis);
    for (const Id w : forbidden)
      if (w >= 0 && w < slots.vocabulary()) taken += std::exp(double(all[static_cast<size_t>(w)]));
    changed = changed || taken > 0.5;
    how.forbidden = forbidden;
  }
  if (!changed) {
    const auto [scores, tokens] = slots.likeliest(slot, hypothesis);
    if (draws) {
      NextToken found{.log_probabilities = scores, .tokens = tokens};
      found.vocabulary = slots.vocabulary();
      if (normalizer_for_draw(o)) found.normalizer = slots.normalizer(slot, hypothesis);
      found.all = [&] { return slots.log_probabilities(slot, hypothesis); };
      return {drawn_token(found, allowed, sentence_.number, steps_)};
    }
    auto best = best_tokens(scores, tokens, allowed, 2 * o.beam);
    if (!best)  // the likeliest were not enough
      best = best_tokens(slots.log_probabilities(slot, hypothesis), allowed, 2 * o.beam);
    const bool stops = std::ssize(allowed.tokens) >= longest_;
    for (TokenScore& w : *best)
      if (taken > 0 && !stops) w.log_probability -= std::log1p(-taken);
    return std::move(*best);
  }
  const std::vector<float> all =
      reweighed(how.repetition_penalty != 1 ? slots.logits(slot, hypothesis)
                                            : slots.log_probabilities(slot, hypothesis),
                how);
  if (!draws) {
    std::vector<TokenScore> best = best_tokens(all, allowed, 2 * o.beam);
    std::erase_if(best, [](const TokenScore& w) { return w.log_probability == kNever; });
    return best;
  }
  const KnownDistribution known(all, o);
  return {drawn_token(known.next, allowed, sentence_.number, steps_)};
}

std::vector<Id> Beam::grow(Slots& slots, int64_t slot) {
  const SearchOptions& o = options_;
  const bool weights_needed = o.want_weights || o.coverage > 0;
  std::vector<Candidate> all;
  std::vector<std::vector<float>> weights(leaves_.size());
  std::vector<std::vector<SearchNode::Candidate>> considered(leaves_.size());
  for (const size_t k : order_) {
    const int64_t leaf = leaves_[k], hypothesis = static_cast<int64_t>(k);
    Allowed allowed{.options = o, .tokens = tokens(leaf), .longest = longest_};
    const bool forced = steps_ < std::ssize(sentence_.prefix) && o.prefix_bias == 0;
    if (forced) {
      allowed.only = sentence_.prefix[static_cast<size_t>(steps_)];
      require(*allowed.only >= 0 && *allowed.only < slots.vocabulary(),
              "search: a prefix has token ", *allowed.only, " of ", slots.vocabulary());
    }
    const std::vector<TokenScore> next = next_tokens(slots, slot, hypothesis, allowed);
    const bool counts = !forced || !o.free_prefix;
    for (const TokenScore& w : next)
      all.push_back({log_probability(leaf) + (counts ? w.log_probability : 0), k, w.token});
    // What else was likely is told of a forced token, too.
    std::vector<TokenScore> told = next;
    if (o.want_tree && forced) {
      allowed.only.reset();
      told = best_tokens(slots.log_probabilities(slot, hypothesis), allowed, 2 * o.beam);
      if (!next.empty() &&
          std::ranges::none_of(told, [&](const TokenScore& w) { return w.token == next[0].token; }))
        told.push_back(next[0]);
    }
    for (const TokenScore& w : told)
      if (o.want_tree) considered[k].push_back({w.token, w.log_probability});
    if (weights_needed) {
      const std::span<const float> w = slots.weights(slot, hypothesis);
      weights[k].assign(w.begin(),
                        w.begin() + (sentence_.length > 0 ? sentence_.length : steps_ + 1));
    }
  }
  ++steps_;
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.log_probability > b.log_probability;
  });
  const bool shrinks = o.ending == Ending::shrinking;
  // Nothing takes the place of one that ends with the last token that there may be.
  const bool last = o.open_end && steps_ == longest_;
  const auto places = static_cast<size_t>(shrinks ? std::max<int64_t>(0, o.beam - ended_) : o.beam);
  // With a prefix that costs nothing, one that ends right after it would beat all others: only the
  // likeliest token may be that end, and another has its place and nothing else (CTranslate2's
  // issue 277).
  const bool after_prefix = o.free_prefix && o.prefix_bias == 0 &&
                            std::ssize(sentence_.prefix) > sentence_.context &&
                            steps_ == std::ssize(sentence_.prefix) + 1;
  // What is to be said is, whatever ends others.
  const bool in_prefix = o.prefix_bias == 0 && steps_ <= std::ssize(sentence_.prefix);
  int64_t lost = 0;
  const std::vector<int64_t> before = std::exchange(leaves_, {});
  std::vector<size_t> parents;  // of the new leaves
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Candidate& c = all[rank];
    if ((shrinks || last) && rank == places) break;
    if (std::ssize(leaves_) + lost == o.beam || c.log_probability == kNever) break;
    const int64_t parent = before[c.leaf];
    if (c.token == o.end && !in_prefix) {
      if (after_prefix && rank > 0) {
        lost += static_cast<int64_t>(rank) < o.beam;
        continue;
      }
      best_ended_ = best_ended_ || rank == 0;
      // Those that only fill the places of ended ones do not end: they would use up the patience.
      if (static_cast<int64_t>(rank) >= o.beam) continue;
      const double score = finish(parent, c.log_probability, weights[c.leaf]);
      if (o.want_tree)
        nodes_.push_back({.token = c.token,
                          .parent = parent,
                          .log_probability = c.log_probability,
                          .finished = true,
                          .score = score,
                          .candidates = considered[c.leaf]});
      continue;
    }
    nodes_.push_back({.token = c.token,
                      .parent = parent,
                      .log_probability = c.log_probability,
                      .weights = weights[c.leaf],
                      .candidates = considered[c.leaf]});
    leaves_.push_back(std::ssize(nodes_) - 1);
    parents.push_back(c.leaf);
  }
  over_ = leaves_.empty();
  const std::vector<Id> from = place(parents);
  // Those that are as long as they may be have ended, too, and are yet to be counted.
  over_ = over_ || (!last && (enough() || hopeless()));
  return from;
}

// Gives the new leaves, which stand by rank, their places. The first child of each hypothesis has
// its parent's, the others have those that are left.
std::vector<Id> Beam::place(std::span<const size_t> parents) {
  const std::vector<int64_t> by_rank = std::exchange(leaves_, {});
  leaves_.assign(static_cast<size_t>(options_.beam), kDead);
  order_.assign(by_rank.size(), leaves_.size());
  std::vector<Id> from(leaves_.size());
  std::iota(from.begin(), from.end(), 0);
  const auto put = [&](size_t rank, size_t at) {
    leaves_[at] = by_rank[rank], from[at] = static_cast<Id>(parents[rank]), order_[rank] = at;
  };
  for (size_t rank = 0; rank < by_rank.size(); ++rank)
    if (leaves_[parents[rank]] == kDead) put(rank, parents[rank]);
  size_t free = 0;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (order_[rank] < leaves_.size()) continue;
    while (leaves_[free] != kDead) ++free;
    put(rank, free);
  }
  return from;
}

std::vector<Hypothesis> Beam::results() const {
  return {finished_.begin(),
          finished_.begin() + std::min(std::ssize(finished_), std::ptrdiff_t{options_.best})};
}

std::vector<SearchNode> Beam::tree_from(size_t first) const {
  std::vector<SearchNode> out;
  for (size_t i = first; options_.want_tree && i < nodes_.size(); ++i) {
    const Node& n = nodes_[i];
    out.push_back({.token = n.token,
                   .parent = n.parent,
                   .log_probability = n.log_probability,
                   .finished = n.finished,
                   .score = n.score.value_or(
                       normalized(options_, n.log_probability, tokens(n.parent).size())),
                   .candidates = n.candidates});
  }
  return out;
}

SearchProgress Beam::progress() {
  return {tokens(order_.empty() ? kDead : leaves_[order_.front()]),
          tree_from(std::exchange(told_, nodes_.size()))};
}

// With the way to the best hypothesis: the only end after its tokens.
std::vector<SearchNode> Beam::tree() const {
  std::vector<SearchNode> out = tree_from(0);
  for (size_t i = 0; i < out.size() && !finished_.empty(); ++i) {
    if (!out[i].finished || tokens(out[i].parent) != finished_.front().ids) continue;
    for (int64_t n = static_cast<int64_t>(i); n >= 0; n = out[static_cast<size_t>(n)].parent)
      out[static_cast<size_t>(n)].best = true;
  }
  return out;
}

}  // namespace heed
