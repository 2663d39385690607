// A matrix of weights with labels, drawn. Knows no tensors: numbers and words in, a picture out.
//
// Words may hold anything (label.h). A weight that is non-finite is drawn as a gap or a cross, one
// outside [0, 1] as the nearer end; where numbers are shown, they are shown as they are.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/base/alignment.h"
#include "heed/view/label.h"

namespace heed {

// Rows are target words (who attends), columns source words (what is attended to), weights in [0,
// 1].
struct Heatmap {
  std::vector<std::string> rows, columns;
  std::vector<double> weights;  // rows.size() * columns.size(), row by row
  std::string title = "";
  // Links drawn over the weights, each from a column (its source) to a row (its target): those that
  // were predicted as a dot, those of a gold alignment as outlines.
  struct Marks {
    Links predicted = {}, sure = {}, possible = {};
  };
  std::optional<Marks> marks = {};
  bool scale_rows = false;  // shades are of the row's largest weight instead of 1
};

// What a cell shows beside its weight.
struct CellMark {
  bool predicted = false, sure = false, possible = false;
};
CellMark mark_at(const Heatmap& map, size_t row, size_t column);
// How dark a weight is, of 0 to 1: its root, since in proportion weak ones would not be seen.
double shade_of(double weight);
// Of a cell: its weight's, or that of its share of the row's largest. NaN where the weight is
// non-finite.
double shade_at(const Heatmap& map, size_t row, size_t column);
// Those that a legend shows.
inline constexpr double kLegendWeights[] = {0, 0.05, 0.25, 0.5, 1};
// The same with its columns as they are read from left to right: of a sentence from right to left
// the last word comes first.
Heatmap from_the_left(const Heatmap& map);
// What shades stand for: "weight", "share of the row's largest weight".
const char* scale_name(const Heatmap& map);

enum class Ink {
  color,  // 24-bit ANSI colours: the darker the cell, the larger the weight
  plain   // shades of block characters, for files and pipes
};

// One line a row, under the columns' words. Where that would take more than `width` columns of the
// terminal (0: as many as it takes), words are written downwards, and the map is cut into blocks of
// columns, one below the other.
std::string draw_terminal(const Heatmap& map, Ink ink, int width = 0);
// A line that says what its shades and marks mean: one is enough for several maps.
std::string terminal_legend(const Heatmap& map, Ink ink);

// A picture that stands alone, with a tooltip on every cell and a legend below; for light and dark
// pages.
std::string draw_svg(const Heatmap& map);

// The bytes of a PNG file; always on white. The built-in font has the letters of Western and
// Central European languages and what ASCII has; any other character is drawn as a box with its
// code in hexadecimal (U+732B: 73 over 2B). Draw SVG for other scripts. At most about 370 words a
// side.
std::string draw_png(const Heatmap& map);

// Throws Error if the sizes do not fit together or a mark is outside, as every drawing does.
void check(const Heatmap& map);

}  // namespace heed
