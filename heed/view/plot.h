// Line and bar charts as SVG, for studies: light and dark, colours that colour-blind readers tell
// apart, tooltips with the numbers.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <vector>

namespace heed {

enum class Scale { linear, log };

struct Axis {
  std::string label = "";
  Scale scale = Scale::linear;
};

// A point that is non-finite, or has no logarithm where one is wanted, leaves a gap.
struct LineChart {
  struct Line {
    std::string name;
    std::vector<double> x, y;  // as many of each
  };
  std::string title = "";
  Axis x = {}, y = {};
  std::vector<Line> lines = {};
};

// Groups side by side, in each a bar of every series. The axis begins at 0.
struct BarChart {
  struct Series {
    std::string name;
    std::vector<double> values;  // one a group
  };
  std::string title = "";
  std::string y_label = "";
  std::vector<std::string> groups = {};
  std::vector<Series> series = {};
};

// Both throw Error if sizes do not fit together.
std::string draw_svg(const LineChart& chart);
std::string draw_svg(const BarChart& chart);

// Multiples of 1, 2 or 5 times a power of ten that span [low, high], the first at or below low and
// the last at or above high; about `about` of them.
std::vector<double> nice_ticks(double low, double high, int about);

}  // namespace heed
