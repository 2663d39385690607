#include "heed/view/heatmap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "heed/base/check.h"
#include "heed/view/svg.h"

namespace heed {
namespace {

constexpr double kCell = 22, kMargin = 14;
constexpr int kLongest = 32;  // columns of a label; tooltips have all of it

std::string tooltip(const Heatmap& map, size_t i, size_t j) {
  const CellMark mark = mark_at(map, i, j);
  return isolated(map.rows[i]) + " ← " + isolated(map.columns[j]) + ": " +
         format_number(map.weights[i * map.columns.size() + j], 4) +
         (mark.sure       ? "; gold, sure"
          : mark.possible ? "; gold, possible"
                          : "") +
         (mark.predicted ? "; predicted" : "");
}

void draw_weight(Svg& svg, double x, double y, double shade) {
  svg.add("<rect class=\"weight\" x=\"", x, "\"");
  if (y != 0) svg.add(" y=\"", y, "\"");
  svg.add(" width=\"", kCell - 1, "\" height=\"", kCell - 1, "\" fill-opacity=\"",
          format_number(shade, 3), "\"");
}

// Within a cell whose upper left corner is at x, y.
void draw_mark(Svg& svg, double x, double y, const CellMark& mark) {
  if (mark.sure || mark.possible)
    svg.add("<rect class=\"gold", mark.sure ? "" : " possible", "\" x=\"", x + 1.5, "\" y=\"",
            y + 1.5, "\" width=\"", kCell - 4, "\" height=\"", kCell - 4, "\"/>\n");
  if (mark.predicted)
    svg.add("<circle class=\"predicted\" cx=\"", x + (kCell - 1) / 2, "\" cy=\"",
            y + (kCell - 1) / 2, "\" r=\"4\"/>\n");
}

void draw_cell(Svg& svg, const Heatmap& map, size_t i, size_t j) {
  const double x = kCell * static_cast<double>(j), shade = shade_at(map, i, j);
  const bool finite = std::isfinite(shade);
  if (finite) {
    draw_weight(svg, x, 0, shade);
    svg.add(">");
  } else {
    svg.add("<path class=\"line\" pointer-events=\"all\" d=\"M", x + 6, " 6l9 9m0-9l-9 9\">");
  }
  svg.add("<title>", tooltip(map, i, j), "</title>", finite ? "</rect>\n" : "</path>\n");
  if (map.marks) draw_mark(svg, x, 0, mark_at(map, i, j));
}

// What so many columns and rows of cells stand on.
void draw_ground(Svg& svg, double x, double y, double columns, double rows) {
  svg.add("<rect x=\"", x, "\" y=\"", y, "\" width=\"", kCell * columns + 1, "\" height=\"",
          kCell * rows + 1, "\" fill=\"currentColor\" fill-opacity=\"0.06\"/>\n");
}

// The scale and, if there are any, the marks; as wide as comes back.
double draw_legend(Svg& svg, const Heatmap& map, double x0, double y0) {
  const auto text = [&](double x, double y, std::string_view words) {
    svg.add(Svg::Text{.x = x, .y = y + 15, .words = words});
    return x + text_width(words);
  };
  double x = x0;
  for (const double weight : kLegendWeights) {
    draw_ground(svg, x - 1, y0 - 1, 1, 1);
    draw_weight(svg, x, y0, shade_of(weight));
    svg.add("/>\n");
    x = text(x + kCell + 4, y0, format_number(weight, 2)) + 12;
  }
  const double right = text(x, y0, scale_name(map));
  if (!map.marks) return right - x0;
  x = x0;
  const std::pair<CellMark, const char*> kinds[] = {{{.sure = true}, "gold, sure"},
                                                    {{.possible = true}, "gold, possible"},
                                                    {{.predicted = true}, "predicted"}};
  for (const auto& [mark, name] : kinds) {
    draw_mark(svg, x, y0 + kCell + 4, mark);
    x = text(x + kCell + 2, y0 + kCell + 4, name) + 14;
  }
  return std::max(right, x) - x0;
}

constexpr const char* kStyle =
    ".heed .weight:hover,.heed .line:hover{stroke:currentColor;stroke-width:2}"
    ".heed .gold{fill:none;stroke:#d1590a;stroke-width:3}.heed .possible{stroke-dasharray:4 3}"
    ".heed .predicted{fill:#fff;stroke:#1f2328;stroke-width:1.5}"
    ".heed .gold,.heed .predicted{pointer-events:none}"
    "@media (prefers-color-scheme:dark){.heed .gold{stroke:#ffa657}}";

}  // namespace

void check(const Heatmap& map) {
  require(map.weights.size() == map.rows.size() * map.columns.size(), "heat map: ", map.rows.size(),
          " rows and ", map.columns.size(), " columns want ", map.rows.size() * map.columns.size(),
          " weights, given ", map.weights.size());
  if (!map.marks) return;
  for (const Links* links : {&map.marks->predicted, &map.marks->sure, &map.marks->possible})
    for (const Link& link : *links)
      require(link.source >= 0 && std::cmp_less(link.source, map.columns.size()) &&
                  link.target >= 0 && std::cmp_less(link.target, map.rows.size()),
              "heat map: link ", link.source, "-", link.target, " is outside ", map.columns.size(),
              " columns and ", map.rows.size(), " rows");
}

CellMark mark_at(const Heatmap& map, size_t row, size_t column) {
  if (!map.marks) return {};
  const Link link{static_cast<int32_t>(column), static_cast<int32_t>(row)};
  const auto in = [&](const Links& links) { return std::ranges::binary_search(links, link); };
  return {.predicted = in(map.marks->predicted),
          .sure = in(map.marks->sure),
          .possible = in(map.marks->possible)};
}

double shade_of(double weight) { return std::sqrt(std::clamp(weight, 0.0, 1.0)); }

double shade_at(const Heatmap& map, size_t row, size_t column) {
  const double* weights = map.weights.data() + row * map.columns.size();
  if (!std::isfinite(weights[column])) return std::numeric_limits<double>::quiet_NaN();
  double whole = 1;
  if (map.scale_rows) {
    whole = 0;
    for (size_t j = 0; j < map.columns.size(); ++j)
      if (std::isfinite(weights[j])) whole = std::max(whole, weights[j]);
    if (whole <= 0) return 0;
  }
  return shade_of(weights[column] / whole);
}

Heatmap from_the_left(const Heatmap& map) {
  std::string sentence;
  for (const std::string& word : map.columns) sentence += word;
  Heatmap out = map;
  if (!reads_right_to_left(sentence)) return out;
  std::ranges::reverse(out.columns);
  const auto columns = std::ssize(map.columns);
  for (auto row = out.weights.begin(); row != out.weights.end(); row += columns)
    std::reverse(row, row + columns);
  if (!out.marks) return out;
  for (Links* links : {&out.marks->predicted, &out.marks->sure, &out.marks->possible}) {
    for (Link& link : *links) link.source = static_cast<int32_t>(columns) - 1 - link.source;
    std::ranges::sort(*links);
  }
  return out;
}

const char* scale_name(const Heatmap& map) {
  return map.scale_rows ? "share of the row's largest weight" : "weight";
}

std::string draw_svg(const Heatmap& given) {
  check(given);
  const Heatmap map = from_the_left(given);
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
  draw_ground(svg, x0 - 1, y0 - 1, static_cast<double>(columns.size()),
              static_cast<double>(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    const double y = y0 + kCell * static_cast<double>(i);
    svg.add(Svg::Text{.x = x0 - 8,
                      .y = y + 15,
                      .words = shortened(rows[i], kLongest),
                      .anchor = Svg::Anchor::right});
    svg.add("<g transform=\"translate(", x0, " ", y, ")\">\n");
    for (size_t j = 0; j < columns.size(); ++j) draw_cell(svg, map, i, j);
    svg.add("</g>\n");
  }
  const double below = y0 + height + 14;
  const double legend = draw_legend(svg, map, kMargin, below);
  const double right = std::max({x0 + width + std::max(0.0, beyond), kMargin + legend,
                                 title.empty() ? 0 : text_width(title) + kMargin});
  return svg.finish(std::ceil(right + kMargin),
                    std::ceil(below + kCell * (map.marks ? 2 : 1) + kMargin),
                    title.empty() ? "Attention weights" : title, kStyle);
}

}  // namespace heed
