#include "heed/view/heatmap.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "heed/base/check.h"
#include "heed/view/svg.h"

namespace heed {
namespace {

constexpr double kCell = 22, kMargin = 14;
constexpr int kLongest = 32;  // columns of a label; tooltips have all of it

std::string tooltip(const std::string& row, const std::string& column, double weight) {
  return isolated(row) + " ← " + isolated(column) + ": " + format_number(weight, 4);
}

void draw_cell(Svg& svg, double x, double weight) {
  if (std::isfinite(weight)) {
    svg.add("<rect class=\"weight\" x=\"", x, "\" width=\"", kCell - 1, "\" height=\"", kCell - 1,
            "\" fill-opacity=\"", format_number(std::clamp(weight, 0.0, 1.0), 3), "\">");
    return;
  }
  svg.add("<path class=\"line\" pointer-events=\"all\" d=\"M", x + 6, " 6l9 9m0-9l-9 9\">");
}

}  // namespace

void check(const Heatmap& map) {
  require(map.weights.size() == map.rows.size() * map.columns.size(), "heat map: ", map.rows.size(),
          " rows and ", map.columns.size(), " columns want ", map.rows.size() * map.columns.size(),
          " weights, given ", map.weights.size());
}

std::string draw_svg(const Heatmap& map) {
  check(map);
  std::vector<std::string> rows, columns;
  double left = 0, above = 0, beyond = 0;
  for (const std::string& word : map.rows) {
    rows.push_back(to_label(word));
    left = std::max(left, text_width(shortened(rows.back(), kLongest)));
  }
  // Words of columns rise to the right at 45 degrees, so the last ones reach beyond the cells.
  for (const std::string& word : map.columns) {
    columns.push_back(to_label(word));
    const double rise =
        (text_width(shortened(columns.back(), kLongest)) + kFontSize) / std::numbers::sqrt2;
    const double from_end = kCell * static_cast<double>(map.columns.size() - columns.size() + 1);
    above = std::max(above, rise);
    beyond = std::max(beyond, rise - from_end + kCell / 2);
  }
  const std::string title = to_label(map.title);
  const double width = kCell * static_cast<double>(columns.size());
  const double height = kCell * static_cast<double>(rows.size());
  const double x0 = std::ceil(kMargin + left + 8);
  const double y0 = std::ceil(kMargin + (title.empty() ? 0 : 2 * kFontSize) + above);

  Svg svg;
  if (!title.empty())
    svg.add(Svg::Text{.x = kMargin, .y = kMargin + kFontSize, .words = title, .kind = "title"});
  for (size_t j = 0; j < columns.size(); ++j)
    svg.add(Svg::Text{.x = x0 + kCell * (static_cast<double>(j) + 0.5) + 4,
                      .y = y0 - 6,
                      .words = shortened(columns[j], kLongest),
                      .angle = -45});
  svg.add("<rect x=\"", x0 - 1, "\" y=\"", y0 - 1, "\" width=\"", width + 1, "\" height=\"",
          height + 1, "\" fill=\"currentColor\" fill-opacity=\"0.06\"/>\n");
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = y0 + kCell * static_cast<double>(i);
    svg.add(Svg::Text{.x = x0 - 8,
                      .y = y + 15,
                      .words = shortened(rows[i], kLongest),
                      .anchor = Svg::Anchor::right});
    svg.add("<g transform=\"translate(", x0, " ", y, ")\">\n");
    for (size_t j = 0; j < columns.size(); ++j) {
      const double weight = map.weights[i * columns.size() + j];
      draw_cell(svg, kCell * static_cast<double>(j), weight);
      svg.add("<title>", tooltip(rows[i], columns[j], weight), "</title>",
              std::isfinite(weight) ? "</rect>\n" : "</path>\n");
    }
    svg.add("</g>\n");
  }
  const double drawn =
      std::max(width + std::max(0.0, beyond), title.empty() ? 0 : text_width(title) + kMargin - x0);
  return svg.finish(std::ceil(x0 + drawn + kMargin), std::ceil(y0 + height + kMargin),
                    title.empty() ? "Attention weights" : title,
                    ".heed .weight:hover,.heed .line:hover{stroke:currentColor;stroke-width:2}");
}

}  // namespace heed
