#include "heed/view/tree.h"

#include <algorithm>
#include <cmath>

#include "heed/base/check.h"
#include "heed/view/svg.h"

namespace heed {
namespace {

constexpr double kRow = 24, kMargin = 16, kBetween = 34;
constexpr int kLongest = 24;  // columns of a word

double score_of(const SearchTree::Node& node) { return node.score.value_or(node.log_probability); }

struct Branches {
  std::vector<size_t> roots;
  std::vector<std::vector<size_t>> children;  // by node, the winner's first, then by score
};

Branches branches(const SearchTree& tree) {
  Branches out{.roots = {}, .children = std::vector<std::vector<size_t>>(tree.nodes.size())};
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const int parent = tree.nodes[i].parent;
    require(parent >= -1 && parent < static_cast<int>(i), "search tree: node ", i, ", '",
            to_label(tree.nodes[i].word), "', has the parent ", parent,
            "; wanted: a node before it, or -1");
    (parent < 0 ? out.roots : out.children[static_cast<size_t>(parent)]).push_back(i);
  }
  const auto likelier = [&](size_t a, size_t b) {
    const SearchTree::Node &x = tree.nodes[a], &y = tree.nodes[b];
    return x.best != y.best ? x.best : score_of(x) > score_of(y);
  };
  std::ranges::stable_sort(out.roots, likelier);
  for (std::vector<size_t>& list : out.children) std::ranges::stable_sort(list, likelier);
  return out;
}

// ---- terminal

// One line of the tree: words up to the next fork.
struct Stretch {
  std::vector<std::string> words;
  std::string end;
  bool best = false;
};

// Words from `before` on, in lines of at most `width` columns that begin with `after` from the
// second on. U+200E keeps words from right to left on their side of the number.
std::string wrapped(const Stretch& stretch, const std::string& before, const std::string& after,
                    int width) {
  std::string out, row = before;
  const auto put = [&](const std::string& text, bool first) {
    const int gap = first ? 0 : 1;
    if (!first && width > 0 && display_width(row) + gap + display_width(text) > width) {
      out += row + "\n";
      row = after;
    } else if (!first) {
      row += ' ';
    }
    row += text;
  };
  for (size_t i = 0; i < stretch.words.size(); ++i) put(stretch.words[i], i == 0);
  put(stretch.end, false);
  return out + row + "\n";
}

class TerminalTree {
 public:
  TerminalTree(const SearchTree& tree, Ink ink, int width)
      : tree_(tree), ink_(ink), width_(width), branches_(branches(tree)) {}

  std::string draw() {
    struct Waiting {
      size_t node;
      std::string indent;
      bool last;
    };
    std::vector<Waiting> stack;
    const auto push = [&](const std::vector<size_t>& list, const std::string& indent) {
      for (size_t i = list.size(); i-- > 0;)
        stack.push_back({list[i], indent, i + 1 == list.size()});
    };
    std::string out;
    push(branches_.roots, "");
    while (!stack.empty()) {
      const Waiting now = stack.back();
      stack.pop_back();
      const std::string below = now.indent + (now.last ? "   " : "│  ");
      size_t node = now.node;
      const Stretch stretch = collect(node);
      const auto& children = branches_.children[node];
      const std::string text = wrapped(stretch, now.indent + (now.last ? "└─ " : "├─ "),
                                       below + (children.empty() ? "   " : "│  "), width_);
      out += stretch.best && ink_ == Ink::color
                 ? "\x1b[1m" + text.substr(0, text.size() - 1) + "\x1b[0m\n"
                 : text;
      push(children, below);
    }
    return out;
  }

 private:
  // Moves `node` to the last of the stretch. It ends at forks, at ends of hypotheses, and where the
  // best way is left.
  Stretch collect(size_t& node) const {
    Stretch out;
    while (true) {
      const SearchTree::Node& here = tree_.nodes[node];
      const std::string word = to_label(here.word);
      out.words.push_back(has_right_to_left(word) ? word + "\u200E" : word);
      const auto& next = branches_.children[node];
      if (next.size() == 1 && !here.finished && tree_.nodes[next[0]].best == here.best) {
        node = next[0];
        continue;
      }
      out.best = here.best;
      out.end = format_number(score_of(here), 2) + (here.finished ? " end" : "") +
                (here.best ? " *" : "");
      return out;
    }
  }

  const SearchTree& tree_;
  Ink ink_;
  int width_;
  Branches branches_;
};

// ---- SVG

constexpr size_t kLarge = 40;  // nodes of a tree in which folds are worth it
constexpr size_t kRun = 4;     // words in a row that are shown before a fold
constexpr size_t kFold = 3;    // words that are worth one

// A word, or a fold: so many words.
struct Place {
  double x = 0, width = 0;
  size_t lane = 0, node = 0;
  std::string text = {};
  bool fold = false;
};
struct Joint {
  double x = 0;
  size_t from = 0, to = 0;  // lanes
  bool best = false;
};

class Lanes {
 public:
  Lanes(const SearchTree& tree, const Branches& branches)
      : tree_(tree), branches_(branches), folds_(tree.nodes.size() > kLarge) {
    const size_t count = tree.nodes.size();
    height_.assign(count, 1);
    ends_.assign(count, false);
    for (size_t i = count; i-- > 0;) {
      ends_[i] = ends_[i] || tree.nodes[i].finished;
      if (tree.nodes[i].parent < 0) continue;
      const auto parent = static_cast<size_t>(tree.nodes[i].parent);
      height_[parent] = std::max(height_[parent], height_[i] + 1);
      ends_[parent] = ends_[parent] || ends_[i];
    }
    for (const size_t root : branches.roots) add(root, kMargin);
  }

  std::vector<Place> places;
  std::vector<Joint> joints;
  size_t lanes = 0;

 private:
  struct Fork {
    double x = 0;
    size_t lane = 0;
    std::vector<size_t> children = {};
  };

  // A way along first children, and below it, late forks first, what left it.
  void add(size_t root, double left) {
    std::vector<Fork> waiting{{left - kBetween, lanes, {root}}};
    bool first = true;
    while (!waiting.empty()) {
      Fork& fork = waiting.back();
      if (fork.children.empty()) {
        waiting.pop_back();
        continue;
      }
      const size_t node = fork.children.front();
      fork.children.erase(fork.children.begin());
      const double x = fork.x + kBetween;
      if (!first) joints.push_back({fork.x, fork.lane, lanes, tree_.nodes[node].best});
      first = false;
      for (Fork& f : add_lane(node, x)) waiting.push_back(std::move(f));
    }
  }

  // Of the ways that leave a node's first, those that do not end at once: folded, where folds are
  // worth it.
  std::vector<size_t> leaving(size_t node) const {
    std::vector<size_t> out;
    const auto& children = branches_.children[node];
    for (size_t i = 1; i < children.size(); ++i)
      if (!folds_ || height_[children[i]] >= 2 || ends_[children[i]]) out.push_back(children[i]);
    return out;
  }
  // Nothing happens at words that lead to one other only: so many from this one on.
  size_t quiet(size_t node) const {
    size_t out = 0;
    for (; !branches_.children[node].empty() && leaving(node).empty(); ++out)
      node = branches_.children[node].front();
    return out;
  }

  // In the order of the words, so that the last is taken from the stack first.
  std::vector<Fork> add_lane(size_t node, double x) {
    std::vector<Fork> forks;
    size_t run = 0;  // words since something happened
    for (bool first = true;; first = false) {
      const auto& children = branches_.children[node];
      const size_t ahead = folds_ && !first ? quiet(node) : 0;
      run = ahead > 0 ? run + 1 : 0;
      if (run > kRun && ahead >= kFold) {
        const std::string text = "⋯" + std::to_string(ahead);
        places.push_back({.x = x, .lane = lanes, .node = node, .text = text, .fold = true});
        places.back().width = text_width(text);
        x += places.back().width + kGap;
        for (size_t i = 0; i < ahead; ++i) node = branches_.children[node].front();
        run = 0;
        continue;
      }
      Fork fork{.lane = lanes, .children = leaving(node)};
      Place place{.x = x, .lane = lanes, .node = node};
      place.text = shortened(to_label(tree_.nodes[node].word), kLongest);
      const size_t shut = children.empty() ? 0 : children.size() - 1 - fork.children.size();
      if (shut > 0) place.text += " +" + std::to_string(shut);
      place.width = text_width(place.text);
      x += place.width + kGap;
      places.push_back(std::move(place));
      if (!fork.children.empty()) {
        fork.x = x - kGap + 5;
        forks.push_back(std::move(fork));
      }
      if (children.empty()) break;
      node = children.front();
    }
    ++lanes;
    return forks;
  }

  static constexpr double kGap = 12;
  const SearchTree& tree_;
  const Branches& branches_;
  const bool folds_;
  std::vector<size_t> height_;  // words of the longest way from a node
  std::vector<bool> ends_;      // whether one of its ways ends as a translation
};

}  // namespace

std::string draw_terminal(const SearchTree& tree, Ink ink, int width) {
  return TerminalTree(tree, ink, width).draw();
}

std::string draw_svg(const SearchTree& tree) {
  const Branches all = branches(tree);
  const Lanes lanes(tree, all);
  const auto y_of = [](size_t lane) { return kMargin + kRow / 2 + double(lane) * kRow; };
  double right = kMargin;
  Svg svg;
  for (const Joint& j : lanes.joints)
    svg.add("<path class=\"line\" d=\"M", j.x, " ", y_of(j.from) + 7, "V", y_of(j.to) - 7,
            "q0 7 7 7h", kBetween - 12, "\"/>\n");
  for (const Place& place : lanes.places) {
    const SearchTree::Node& node = tree.nodes[place.node];
    const double y = y_of(place.lane);
    svg.add("<g class=\"", node.best ? "best" : node.finished ? "ended" : "other", "\">");
    double step = node.log_probability;
    if (node.parent >= 0) step -= tree.nodes[static_cast<size_t>(node.parent)].log_probability;
    if (!place.fold)
      svg.add("<title>", isolated(node.word), ": ", format_number(step, 4), "; up to here ",
              format_number(node.log_probability, 4), node.finished ? "; an end" : "", "</title>");
    svg.add(Svg::Text{.x = place.x, .y = y + 4.5, .words = place.text});
    double end = place.x + place.width;
    if (node.finished)
      svg.add("<circle class=\"weight\" cx=\"", end + 10, "\" cy=\"", y, "\" r=\"4\"/>");
    if (node.finished || all.children[place.node].empty()) {
      const std::string score = format_number(score_of(node), 2);
      if (all.children[place.node].empty())
        svg.add(Svg::Text{.x = end + 20, .y = y + 4.5, .words = score});
      end += 20 + text_width(score);
    }
    right = std::max(right, end);
    svg.add("</g>\n");
  }
  return svg.finish(std::ceil(right + kMargin), std::ceil(2 * kMargin + double(lanes.lanes) * kRow),
                    "The beam as a tree",
                    ".heed .other{opacity:.75}.heed .best text{font-weight:bold}");
}

}  // namespace heed
