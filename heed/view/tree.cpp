#include "heed/view/tree.h"

#include <algorithm>
#include <cmath>

#include "heed/base/check.h"
#include "heed/view/svg.h"

namespace heed {
namespace {

constexpr double kRow = 24, kMargin = 16, kBetween = 34;
constexpr int kLongest = 24;  // columns of a word

struct Branches {
  std::vector<size_t> roots;
  std::vector<std::vector<size_t>> children;  // by node, the likeliest first
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
    return tree.nodes[a].log_probability > tree.nodes[b].log_probability;
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
      out.end = format_number(here.log_probability, 2) + (here.finished ? " end" : "") +
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

struct Place {
  double x = 0, y = 0;
  size_t depth = 0;
};
struct Layout {
  std::vector<Place> places;  // by node
  double bottom = 0;
};

// Leaves one below the other in the order of the tree, a parent midway between its first and last
// child; words of one step in one column.
Layout lay_out(const SearchTree& tree, const Branches& branches) {
  std::vector<Place> out(tree.nodes.size());
  std::vector<double> widest;
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    if (tree.nodes[i].parent >= 0)
      out[i].depth = out[static_cast<size_t>(tree.nodes[i].parent)].depth + 1;
    if (widest.size() <= out[i].depth) widest.push_back(0);
    double& wide = widest[out[i].depth];
    wide = std::max(wide, text_width(shortened(to_label(tree.nodes[i].word), kLongest)));
  }
  double y = kMargin + kRow / 2;
  std::vector<size_t> stack(branches.roots.rbegin(), branches.roots.rend());
  while (!stack.empty()) {
    const size_t node = stack.back();
    stack.pop_back();
    const auto& children = branches.children[node];
    if (children.empty()) out[node].y = y, y += kRow;
    stack.insert(stack.end(), children.rbegin(), children.rend());
  }
  for (size_t i = tree.nodes.size(); i-- > 0;) {
    const auto& children = branches.children[i];
    if (!children.empty()) out[i].y = (out[children.front()].y + out[children.back()].y) / 2;
    out[i].x = kMargin;
    for (size_t d = 0; d < out[i].depth; ++d) out[i].x += widest[d] + kBetween;
  }
  return {out, y - kRow / 2};
}

}  // namespace

std::string draw_terminal(const SearchTree& tree, Ink ink, int width) {
  return TerminalTree(tree, ink, width).draw();
}

std::string draw_svg(const SearchTree& tree) {
  const Branches all = branches(tree);
  const auto [place, bottom] = lay_out(tree, all);
  double right = kMargin;
  Svg svg;
  for (size_t i = 0; i < tree.nodes.size(); ++i) {
    const SearchTree::Node& node = tree.nodes[i];
    const std::string word = shortened(to_label(node.word), kLongest);
    const double width = text_width(word);
    const auto [x, y, depth] = place[i];
    const char* const kind = node.best ? "best" : node.finished ? "ended" : "other";
    svg.add("<g class=\"", kind, "\">");
    double step = node.log_probability;
    if (node.parent >= 0) {
      const size_t parent = static_cast<size_t>(node.parent);
      const double from =
          place[parent].x + text_width(shortened(to_label(tree.nodes[parent].word), kLongest)) + 5;
      step -= tree.nodes[parent].log_probability;
      svg.add("<path class=\"line\" d=\"M", from, " ", place[parent].y, "H", x - kBetween + 5, "C",
              x - kBetween / 2, " ", place[parent].y, " ", x - kBetween / 2, " ", y, " ", x - 5,
              " ", y, "\"/>");
    }
    svg.add("<title>", isolated(node.word), ": ", format_number(step, 4), "; up to here ",
            format_number(node.log_probability, 4), node.finished ? "; an end" : "", "</title>");
    svg.add(Svg::Text{.x = x, .y = y + 4.5, .words = word});
    right = std::max(right, x + width);
    if (node.finished) {
      const std::string score = format_number(node.log_probability, 2);
      svg.add("<circle class=\"weight\" cx=\"", x + width + 10, "\" cy=\"", y, "\" r=\"4\"/>");
      if (all.children[i].empty())
        svg.add(Svg::Text{.x = x + width + 20, .y = y + 4.5, .words = score});
      right = std::max(right, x + width + 20 + text_width(score));
    }
    svg.add("</g>\n");
  }
  return svg.finish(std::ceil(right + kMargin), std::ceil(bottom + kMargin), "The beam as a tree",
                    ".heed .other{opacity:.6}.heed .best .line{stroke-width:2.5}"
                    ".heed .best text{font-weight:bold}");
}

}  // namespace heed
