// A matrix of weights with labels, drawn. Knows no tensors: numbers and words in, text out.
#pragma once

#include <string>
#include <vector>

namespace heed {

// Rows are target words (who attends), columns source words (what is attended to), weights in [0,
// 1].
struct Heatmap {
  std::vector<std::string> rows, columns;
  std::vector<double> weights;  // rows.size() * columns.size(), row by row
};

enum class Ink {
  color,  // 24-bit ANSI colours: the darker the cell, the larger the weight
  plain   // shades of block characters, for files and pipes
};

// One line a row. Throws Error if the sizes do not fit together.
std::string draw_terminal(const Heatmap& map, Ink ink);

// How many columns of a terminal a UTF-8 text takes: wide and combining characters counted as such.
int display_width(const std::string& text);

}  // namespace heed
