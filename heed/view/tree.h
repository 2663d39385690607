// A beam search as a tree: every token that was kept at some step, with those that followed it.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/view/heatmap.h"

namespace heed {

struct SearchTree {
  struct Node {
    std::string word;
    int parent = -1;             // the node of the token before; -1: the first token
    double log_probability = 0;  // of all tokens up to this one
    // What hypotheses are ranked by, of the tokens up to this one; not given: log_probability.
    std::optional<double> score = {};
    bool finished = false;  // a hypothesis ends here
    bool best = false;      // on the way to the hypothesis that won
  };
  std::vector<Node> nodes;  // every parent before its children
};

// A line for each stretch of words without a fork, its score at the end, "end" where a hypothesis
// does; the winner's first, marked '*' and bold in colour. Lines longer than `width` (0: none
// is) go on in the next. Throws Error if a parent does not stand before its child.
std::string draw_terminal(const SearchTree& tree, Ink ink, int width = 0);

// From left to right: the winner as the straight line on top, below it what forked, late forks
// first. In a large tree, ways that ended at once are a number, and so are words along which
// nothing happens. Tooltips have the probabilities.
std::string draw_svg(const SearchTree& tree);

}  // namespace heed
