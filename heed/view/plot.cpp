#include "heed/view/plot.h"

#include <algorithm>
#include <cmath>

#include "heed/base/check.h"
#include "heed/view/svg.h"

namespace heed {
namespace {

constexpr double kMargin = 16, kWidth = 560, kHeight = 300;  // of what the axes enclose
constexpr size_t kColors = 6;

constexpr std::string_view kStyle =
    ".heed .grid{stroke:currentColor;stroke-opacity:.15}"
    ".heed .s0{color:#0072b2}.heed .s1{color:#d55e00}.heed .s2{color:#00795a}"
    ".heed .s3{color:#b0508a}.heed .s4{color:#8a6d00}.heed .s5{color:#3a8fc4}"
    ".heed .curve{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round}"
    ".heed .dot,.heed .bar{fill:currentColor}"
    "@media (prefers-color-scheme:dark){"
    ".heed .s0{color:#58a6ff}.heed .s1{color:#ff9b57}.heed .s2{color:#3fd19f}"
    ".heed .s3{color:#e7a3cc}.heed .s4{color:#e6b84a}.heed .s5{color:#a5d8ff}}";

std::string series_class(size_t s) { return "s" + std::to_string(s % kColors); }

// From values to pixels, and the values that get a tick.
struct Mapping {
  Scale scale = Scale::linear;
  double low = 0, high = 1;  // logarithms, if so scaled
  double from = 0, to = 1;   // pixels
  std::vector<double> ticks = {};

  bool draws(double value) const {
    return std::isfinite(value) && (scale == Scale::linear || value > 0);
  }
  double operator()(double value) const {
    const double v = scale == Scale::log ? std::log10(value) : value;
    return from + (to - from) * (v - low) / (high - low);
  }
};

Mapping linear(double low, double high, double from, double to) {
  Mapping out{.scale = Scale::linear, .from = from, .to = to, .ticks = nice_ticks(low, high, 6)};
  out.low = out.ticks.front();
  out.high = out.ticks.back();
  return out;
}

// Powers of ten, with 2 and 5 between them where there are few.
Mapping logarithmic(double low, double high, double from, double to) {
  Mapping out{.scale = Scale::log, .from = from, .to = to};
  const int first = static_cast<int>(std::floor(std::log10(low)));
  const int last = static_cast<int>(std::ceil(std::log10(high)));
  const std::vector<double> steps =
      last - first <= 2 ? std::vector<double>{1, 2, 5} : std::vector<double>{1};
  std::vector<double> all;
  for (int e = first; e <= last; ++e)
    for (const double step : steps) all.push_back(step * std::pow(10.0, e));
  // From the last that is not above `low` to the first that is not below `high`.
  const double nearly = 1 + 1e-9;
  auto begin = std::upper_bound(all.begin(), all.end(), low * nearly);
  if (begin != all.begin()) --begin;
  auto end = std::lower_bound(begin, all.end(), high / nearly);
  if (end != all.end()) ++end;
  if (end - begin < 2) end = std::min(begin + 2, all.end());
  out.ticks.assign(begin, end);
  out.low = std::log10(out.ticks.front());
  out.high = std::log10(out.ticks.back());
  if (out.low == out.high) out.high = out.low + 1;
  return out;
}

struct Extent {
  double low, high;
};

// Of all values that can be drawn.
Extent extent(const std::vector<double>& values, Scale scale) {
  const Mapping any{.scale = scale};
  Extent out{INFINITY, -INFINITY};
  for (const double value : values)
    if (any.draws(value)) out = {std::min(out.low, value), std::max(out.high, value)};
  return out.low <= out.high ? out : Extent{1, 10};
}

// An axis from tick to tick.
Mapping fit(const std::vector<double>& values, Scale scale, double from, double to) {
  const auto [low, high] = extent(values, scale);
  return scale == Scale::log ? logarithmic(low, high, from, to) : linear(low, high, from, to);
}

// An axis from the first value to the last, if at least two ticks are between.
Mapping fit_tightly(const std::vector<double>& values, Scale scale, double from, double to) {
  Mapping out = fit(values, scale, from, to);
  const auto [low, high] = extent(values, scale);
  const double nearly = 1e-9 * (high - low);
  std::vector<double> ticks;
  for (const double tick : out.ticks)
    if (tick >= low - nearly && tick <= high + nearly) ticks.push_back(tick);
  if (ticks.size() < 2) return out;
  out.ticks = ticks;
  out.low = scale == Scale::log ? std::log10(low) : low;
  out.high = scale == Scale::log ? std::log10(high) : high;
  return out;
}

std::string tick_label(const Mapping& mapping, double tick) {
  if (tick != 0 && (std::abs(tick) >= 1e6 || std::abs(tick) < 1e-4)) {
    const int exponent = static_cast<int>(std::floor(std::log10(std::abs(tick)) + 1e-9));
    return format_number(tick / std::pow(10.0, exponent), 2) + "e" + std::to_string(exponent);
  }
  const double step =
      mapping.scale == Scale::log ? std::abs(tick) : mapping.ticks[1] - mapping.ticks[0];
  return format_number(tick, std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9))));
}

// The frame of a chart: where things stand, and what both kinds of charts have.
struct Frame {
  double left = 0, top = 0, bottom = 0;
  double right() const { return left + kWidth; }
};

// Title and legend, above; returns how far down they reach.
double draw_head(Svg& svg, const std::string& title, const std::vector<std::string>& names) {
  double y = kMargin;
  if (!title.empty()) {
    svg.add(Svg::Text{.x = kMargin, .y = y + kFontSize, .words = to_label(title), .kind = "title"});
    y += 26;
  }
  double x = kMargin;
  bool any = false;
  for (size_t s = 0; s < names.size(); ++s) {
    if (names[s].empty()) continue;
    const std::string name = to_label(names[s]);
    const double width = 20 + text_width(name) + 18;
    if (x > kMargin && x + width > kWidth + 60) x = kMargin, y += 20;
    svg.add("<rect class=\"bar ", series_class(s), "\" x=\"", x, "\" y=\"", y + 3,
            "\" width=\"12\" height=\"10\" rx=\"2\"/>");
    svg.add(Svg::Text{.x = x + 18, .y = y + kFontSize, .words = name});
    x += width;
    any = true;
  }
  return any ? y + 28 : y + 4;
}

// The y axis; ticks' labels end at `frame.left`.
void draw_y(Svg& svg, const Frame& frame, const Mapping& y, const std::string& name) {
  for (const double tick : y.ticks) {
    svg.add("<path class=\"grid\" d=\"M", frame.left, " ", y(tick), "H", frame.right(), "\"/>\n");
    svg.add(Svg::Text{.x = frame.left - 8,
                      .y = y(tick) + 4.5,
                      .words = tick_label(y, tick),
                      .anchor = Svg::Anchor::right});
  }
  if (!name.empty())
    svg.add(Svg::Text{.x = kMargin + kFontSize,
                      .y = (frame.top + frame.bottom) / 2,
                      .words = to_label(name),
                      .anchor = Svg::Anchor::middle,
                      .angle = -90});
}

Frame frame_for(const Mapping& y, const std::string& name, double top) {
  double widest = 0;
  for (const double tick : y.ticks) widest = std::max(widest, text_width(tick_label(y, tick)));
  return {.left = std::ceil(kMargin + (name.empty() ? 0 : 24) + widest + 8),
          .top = top,
          .bottom = top + kHeight};
}

void draw_line(Svg& svg, const LineChart::Line& line, size_t s, const Mapping& x,
               const Mapping& y) {
  // Lines of one colour differ in their dashes.
  const std::string dashes = std::to_string(8 - 2 * std::min<size_t>(s / kColors, 3)) + " 4";
  std::string path;
  bool pen_down = false;
  for (size_t i = 0; i < line.x.size(); ++i) {
    const bool drawn = x.draws(line.x[i]) && y.draws(line.y[i]);
    if (drawn)
      path += (pen_down ? "L" : "M") + format_number(x(line.x[i]), 2) + " " +
              format_number(y(line.y[i]), 2);
    pen_down = drawn;
  }
  svg.add("<g class=\"", series_class(s), "\">\n<path class=\"curve\"");
  if (s >= kColors) svg.add(" stroke-dasharray=\"", dashes, "\"");
  svg.add(" d=\"", path, "\"><title>", escape_xml(to_label(line.name)), "</title></path>\n");
  // Dots where they are few enough to be told apart; a point alone has no line to show it.
  for (size_t i = 0; i < line.x.size() && line.x.size() <= 40; ++i) {
    if (!x.draws(line.x[i]) || !y.draws(line.y[i])) continue;
    svg.add("<circle class=\"dot\" cx=\"", x(line.x[i]), "\" cy=\"", y(line.y[i]),
            "\" r=\"3\"><title>", isolated(line.name), ": ", format_number(line.x[i], 6), ", ",
            format_number(line.y[i], 6), "</title></circle>\n");
  }
  svg.add("</g>\n");
}

}  // namespace

std::vector<double> nice_ticks(double low, double high, int about) {
  require(std::isfinite(low) && std::isfinite(high) && low <= high && about >= 2,
          "nice_ticks: from ", low, " to ", high, " in ", about,
          "; wanted: two numbers in order, and at least 2");
  if (low == high) {
    const double room = low == 0 ? 1 : std::abs(low) * 0.1;
    low -= room, high += room;
  }
  const double raw = (high - low) / (about - 1);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double nice : {5.0, 2.0, 1.0})
    if (nice * power >= raw * (1 - 1e-9)) step = nice * power;
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string draw_svg(const LineChart& chart) {
  std::vector<double> xs, ys;
  std::vector<std::string> names;
  for (const LineChart::Line& line : chart.lines) {
    require(line.x.size() == line.y.size(), "line chart: line '", line.name, "' has ",
            line.x.size(), " x and ", line.y.size(), " y; wanted: as many of each");
    xs.insert(xs.end(), line.x.begin(), line.x.end());
    ys.insert(ys.end(), line.y.begin(), line.y.end());
    names.push_back(line.name);
  }
  Svg svg;
  const double top = draw_head(svg, chart.title, names);
  const Mapping y = fit(ys, chart.y.scale, top + kHeight, top);
  const Frame frame = frame_for(y, chart.y.label, top);
  const Mapping x = fit_tightly(xs, chart.x.scale, frame.left, frame.right());
  draw_y(svg, frame, y, chart.y.label);
  for (const double tick : x.ticks) {
    svg.add("<path class=\"grid\" d=\"M", x(tick), " ", frame.top, "V", frame.bottom, "\"/>\n");
    svg.add(Svg::Text{.x = x(tick),
                      .y = frame.bottom + 20,
                      .words = tick_label(x, tick),
                      .anchor = Svg::Anchor::middle});
  }
  if (!chart.x.label.empty())
    svg.add(Svg::Text{.x = (frame.left + frame.right()) / 2,
                      .y = frame.bottom + 44,
                      .words = to_label(chart.x.label),
                      .anchor = Svg::Anchor::middle});
  for (size_t s = 0; s < chart.lines.size(); ++s) draw_line(svg, chart.lines[s], s, x, y);
  const double below = chart.x.label.empty() ? 20 : 44;
  const double wide = std::max(frame.right() + 28, 2 * kMargin + text_width(to_label(chart.title)));
  return svg.finish(std::ceil(wide), std::ceil(frame.bottom + below + kMargin),
                    chart.title.empty() ? "Line chart" : to_label(chart.title), kStyle);
}

std::string draw_svg(const BarChart& chart) {
  std::vector<double> values = {0};
  std::vector<std::string> names;
  for (const BarChart::Series& series : chart.series) {
    require(series.values.size() == chart.groups.size(), "bar chart: series '", series.name,
            "' has ", series.values.size(), " values; wanted: one for each of ",
            chart.groups.size(), " groups");
    values.insert(values.end(), series.values.begin(), series.values.end());
    names.push_back(series.name);
  }
  Svg svg;
  const double top = draw_head(svg, chart.title, names);
  const Mapping y = fit(values, Scale::linear, top + kHeight, top);
  const Frame frame = frame_for(y, chart.y_label, top);
  draw_y(svg, frame, y, chart.y_label);

  const double group = kWidth / static_cast<double>(std::max<size_t>(1, chart.groups.size()));
  const double bar = 0.8 * group / static_cast<double>(std::max<size_t>(1, chart.series.size()));
  double widest = 0;
  for (const std::string& name : chart.groups)
    widest = std::max(widest, text_width(to_label(name)));
  const bool slanted = widest + 6 > group;
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    const double left = frame.left + group * static_cast<double>(g);
    for (size_t s = 0; s < chart.series.size(); ++s) {
      const double value = chart.series[s].values[g];
      if (!y.draws(value)) continue;
      const double high = std::min(y(value), y(0)), low = std::max(y(value), y(0));
      svg.add("<rect class=\"bar ", series_class(s), "\" x=\"",
              left + 0.1 * group + bar * static_cast<double>(s), "\" y=\"", high, "\" width=\"",
              0.94 * bar, "\" height=\"", low - high, "\"><title>", isolated(chart.groups[g]), ", ",
              isolated(chart.series[s].name), ": ", format_number(value, 6), "</title></rect>\n");
    }
    svg.add(Svg::Text{.x = left + group / 2 + (slanted ? 4 : 0),
                      .y = frame.bottom + (slanted ? 14 : 20),
                      .words = to_label(chart.groups[g]),
                      .anchor = slanted ? Svg::Anchor::right : Svg::Anchor::middle,
                      .angle = slanted ? -45.0 : 0});
  }
  svg.add("<path class=\"line\" d=\"M", frame.left, " ", y(0), "H", frame.right(), "\"/>\n");
  const double below = slanted ? 14 + 0.71 * (widest + kFontSize) : 20;
  const double wide =
      std::max(frame.right() + kMargin, 2 * kMargin + text_width(to_label(chart.title)));
  return svg.finish(std::ceil(wide), std::ceil(frame.bottom + below + kMargin),
                    chart.title.empty() ? "Bar chart" : to_label(chart.title), kStyle);
}

}  // namespace heed
