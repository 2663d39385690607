// Heat maps in a terminal.
//
// Terminals that know bidirectional text reorder a line by itself: two Hebrew words side by side
// would change places, and with them their columns. A left-to-right mark (U+200E, no width) after
// every label keeps each to its own place.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "heed/view/heatmap.h"

namespace heed {
namespace {

constexpr const char* kMark = "\u200E";
constexpr int kTallest = 12;  // letters of a word written downwards

std::string spaces(int count) { return std::string(static_cast<size_t>(std::max(0, count)), ' '); }

std::string padded(const std::string& text, int width) {
  return text + (has_right_to_left(text) ? kMark : "") + spaces(width - display_width(text));
}

// A line that holds words; its direction is that of its first letter, unless it is told.
std::string line(const std::string& text) {
  return (has_right_to_left(text) ? kMark + text : text) + "\n";
}

constexpr const char* kShades[] = {"·", "░", "▒", "▓", "█"};

int least_cell(const Heatmap& map) { return map.marks ? 4 : 2; }  // "[*] "

// What stands in a cell without its last column: marks, and `ground` where there are none.
std::string inside(const CellMark& mark, int width, const char* ground) {
  const bool gold = mark.sure || mark.possible;
  std::string out;
  for (int i = 0; i < width; ++i) {
    if (gold && i == 0)
      out += mark.sure ? "[" : "(";
    else if (gold && i + 1 == width)
      out += mark.sure ? "]" : ")";
    else if (mark.predicted && i == width / 2)
      out += "*";
    else
      out += ground;
  }
  return out;
}

// A non-finite shade is a gap.
std::string cell(double shade, const CellMark& mark, int width, Ink ink) {
  const double w = std::isfinite(shade) ? shade : 0;
  if (ink == Ink::plain)
    return inside(mark, width - 1, kShades[std::min(4, static_cast<int>(w * 5))]) + " ";
  const std::string text = inside(mark, width - 1, " ") + " ";
  if (!std::isfinite(shade)) return text;
  // From white to a deep blue.
  const auto mix = [&](int from, int to) {
    return std::to_string(std::lround(from + (to - from) * w));
  };
  const bool marked = mark.predicted || mark.sure || mark.possible;
  return "\x1b[48;2;" + mix(247, 8) + ';' + mix(251, 48) + ';' + mix(255, 107) +
         (!marked   ? "m"
          : w > 0.5 ? ";1;97m"
                    : ";1;30m") +
         text + "\x1b[0m";
}

struct Labels {
  std::vector<std::string> words;
  int widest = 0;
};

Labels labels(const std::vector<std::string>& words) {
  Labels out;
  for (const std::string& word : words) {
    out.words.push_back(to_label(word));
    out.widest = std::max(out.widest, display_width(out.words.back()));
  }
  return out;
}

// Where the columns of a block begin and end, and how wide each is drawn.
struct Block {
  size_t first, last;
  std::vector<int> cells;  // of the whole map
};

// Columns are as wide as the widest word among the short ones; a long word widens its own alone.
std::vector<int> column_widths(const Labels& columns, int least) {
  constexpr int kShort = 12;
  int even = least;
  for (const std::string& word : columns.words)
    if (const int width = display_width(word); width <= kShort) even = std::max(even, width + 1);
  std::vector<int> out;
  for (const std::string& word : columns.words)
    out.push_back(std::max(even, display_width(word) + 1));
  return out;
}

std::string draw_rows(const Heatmap& map, const Labels& rows, int left, Block block, Ink ink) {
  std::string out;
  for (size_t i = 0; i < rows.words.size(); ++i) {
    std::string text = padded(shortened(rows.words[i], left - 1), left);
    for (size_t j = block.first; j < block.last; ++j)
      text += cell(shade_at(map, i, j), mark_at(map, i, j), block.cells[j], ink);
    out += line(text);
  }
  return out;
}

// The words of a block's columns, each written downwards and standing on the cells.
std::string draw_downwards(const Labels& columns, int left, Block block) {
  std::vector<std::vector<std::string>> words;
  size_t tallest = 0;
  for (size_t j = block.first; j < block.last; ++j) {
    words.push_back(clusters(columns.words[j]));
    if (words.back().size() > kTallest) {
      words.back().resize(kTallest);
      words.back().back() = "⋮";
    }
    tallest = std::max(tallest, words.back().size());
  }
  std::string out;
  for (size_t row = 0; row < tallest; ++row) {
    std::string text = spaces(left);
    for (size_t j = 0; j < words.size(); ++j) {
      const size_t empty = tallest - words[j].size();
      text += padded(row < empty ? "" : words[j][row - empty], block.cells[block.first + j]);
    }
    out += line(text);
  }
  return out;
}

}  // namespace

std::string draw_terminal(const Heatmap& given, Ink ink, int width) {
  check(given);
  const Heatmap map = from_the_left(given);
  const Labels rows = labels(map.rows), columns = labels(map.columns);
  const size_t count = map.columns.size();
  std::string out = map.title.empty() ? "" : line(to_label(map.title));
  const std::vector<int> wide = column_widths(columns, least_cell(map));
  if (width <= 0 || rows.widest + 1 + std::accumulate(wide.begin(), wide.end(), 0) <= width) {
    const int left = rows.widest + 1;
    std::string words = spaces(left);
    for (size_t j = 0; j < count; ++j) words += padded(columns.words[j], wide[j]);
    return out + line(words) + draw_rows(map, rows, left, {0, count, wide}, ink);
  }
  // Two columns a cell, with marks four: wide characters fit. Words of rows get at most a third.
  const int each = least_cell(map);
  const int left = std::min(rows.widest, std::max(1, width / 3)) + 1;
  const size_t at_once = static_cast<size_t>(std::max(1, (width - left) / each));
  for (size_t first = 0; first < count; first += at_once) {
    const Block block{first, std::min(count, first + at_once), std::vector<int>(count, each)};
    if (first > 0) out += "\n";
    out += draw_downwards(columns, left, block) + draw_rows(map, rows, left, block, ink);
  }
  return out;
}

std::string terminal_legend(const Heatmap& map, Ink ink) {
  std::string out = scale_name(map);
  const char* between = ": ";
  if (ink == Ink::color)
    for (const double weight : kLegendWeights)
      out += std::exchange(between, "  ") + cell(shade_of(weight), {}, 3, ink) + " " +
             format_number(weight, 2);
  else  // a shade begins at a fifth of the way to black, or two, ...
    for (int i = 0; i < 5; ++i)
      out += std::exchange(between, "  ") + std::string(kShades[i]) + " " +
             (i == 0 ? "less than 0.04" : "from " + format_number(i * i / 25.0, 2));
  if (map.marks) out += "; links: [ ] gold, sure  ( ) gold, possible  * predicted";
  return out + "\n";
}

}  // namespace heed
