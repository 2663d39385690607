// The search of one sentence: a tree of tokens, whose leaves are the live hypotheses. Greedy search
// is a beam of one, and so is sampling.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <vector>

#include "heed/search/candidates.h"
#include "heed/search/search.h"
#include "heed/search/slots.h"

namespace heed {

class Beam {
 public:
  // `length`: tokens of the source; `prefix`: what the target must begin with; `number`: what draws
  // depend on.
  struct Sentence {
    int64_t length = 0;
    std::vector<Id> prefix = {};
    int64_t number = 0;
    std::vector<Id> shortlist = {};
    int64_t context = 0;  // tokens of the prefix that are no part of what is ranked
  };
  Beam(const SearchOptions& options, Sentence sentence);

  // The tokens that a step takes, [beam].
  std::vector<Id> last() const;
  const SearchOptions& options() const { return options_; }
  // Goes on with what a step found for its slot. Which hypothesis each of the new ones grew from:
  // one that others grew from is in its own place again.
  std::vector<Id> grow(Slots& slots, int64_t slot);
  bool over() const { return over_; }
  SearchProgress progress();  // since the last time

  std::vector<Hypothesis> results() const;  // best first
  std::vector<SearchNode> tree() const;     // every token that was kept, if options.want_tree

 private:
  struct Node {
    Id token = 0;
    int64_t parent = kRoot;
    double log_probability = 0;
    std::vector<float> weights = {};
    bool finished = false;             // the end of a hypothesis, where the search is recorded
    std::optional<double> score = {};  // of an end
    std::vector<SearchNode::Candidate> candidates = {};  // there too
  };
  static constexpr int64_t kRoot = -1, kDead = -2;  // leaves that are no nodes

  // What a step found for a hypothesis' next token, as the options change it.
  std::vector<TokenScore> next_tokens(Slots& slots, int64_t slot, int64_t hypothesis,
                                      const Allowed& allowed) const;
  double log_probability(int64_t leaf) const;
  std::vector<SearchNode> tree_from(size_t first) const;
  std::vector<Id> tokens(int64_t leaf) const;
  std::vector<Id> place(std::span<const size_t> parents);
  // Its score.
  double finish(int64_t leaf, double log_probability, std::vector<float> last_weights);
  bool enough() const;
  double best_live() const;  // log-probability
  bool hopeless() const;

  SearchOptions options_;
  Sentence sentence_;
  int64_t longest_ = 0;  // most tokens
  int64_t steps_ = 0;
  bool over_ = false;
  std::vector<Node> nodes_;
  size_t told_ = 0;  // of these, by progress()
  // A hypothesis stays in its parent's place if it can, so that little of what a model keeps of
  // them moves; `order_` has the places of the live ones, likeliest first.
  std::vector<int64_t> leaves_;
  std::vector<size_t> order_;
  std::vector<Hypothesis> finished_;  // the best of them
  int64_t ended_ = 0;                 // all of them
  bool best_ended_ = false;           // was the likeliest of a step an end?
};

// The tokens that a translation of so many may have.
int64_t longest_target(const SearchOptions& options, int64_t source);

// log p / length^normalize, the end counted.
double normalized(const SearchOptions& options, double log_probability, size_t tokens);
// beta's factor of Wu et al. (2016), eq. 14: the sum over source tokens of log(min(their weights'
// sum, 1)).
double coverage(const std::vector<std::vector<float>>& weights, int64_t length);

}  // namespace heed
