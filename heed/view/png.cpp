// Heat maps as PNG.
#include <algorithm>
#include <cmath>
#include <utility>

#include "heed/base/check.h"
#include "heed/view/font.h"
#include "heed/view/heatmap.h"

namespace heed {
namespace {

constexpr int kCell = 24, kMargin = 16, kGap = 8;
constexpr int kLongest = 32;      // columns of a label
constexpr int kLargest = 10'000;  // dots a side

// The palette: shades of the weights, then the rest.
constexpr int kShades = 201;
constexpr uint8_t kInk = kShades, kFrame = kShades + 1, kPage = kShades + 2, kGold = kShades + 3;

std::vector<Rgb> palette() {
  std::vector<Rgb> colors;
  for (int i = 0; i < kShades; ++i) {
    const auto mix = [&](int from, int to) {
      return static_cast<uint8_t>(std::lround(from + (to - from) * i / (kShades - 1.0)));
    };
    colors.push_back({mix(247, 8), mix(251, 48), mix(255, 107)});
  }
  colors.push_back({31, 35, 40});
  colors.push_back({208, 215, 222});
  colors.push_back({255, 255, 255});
  colors.push_back({209, 89, 10});
  return colors;
}

struct Box {
  int x, y, width, height;
};

void fill(Picture& picture, Box box, uint8_t color) {
  for (int y = box.y; y < box.y + box.height; ++y)
    for (int x = box.x; x < box.x + box.width; ++x) picture.at(x, y) = color;
}

void put_across(Picture& picture, const Picture& text, int left, int top) {
  for (int y = 0; y < text.height; ++y)
    for (int x = 0; x < text.width; ++x)
      if (text.at(x, y)) picture.at(left + x, top + y) = kInk;
}
// Turned to the left, so that it reads upwards from `bottom`.
void put_upwards(Picture& picture, const Picture& text, int left, int bottom) {
  for (int y = 0; y < text.height; ++y)
    for (int x = 0; x < text.width; ++x)
      if (text.at(x, y)) picture.at(left + y, bottom - 1 - x) = kInk;
}

void draw_shade(Picture& picture, int left, int top, double shade) {
  const auto color = std::lround(shade * (kShades - 1));
  fill(picture, {left, top, kCell - 1, kCell - 1}, static_cast<uint8_t>(color));
}

// An outline for a gold link, broken for a possible one; a disc for a predicted one.
void draw_mark(Picture& picture, int left, int top, const CellMark& mark) {
  constexpr int kSize = kCell - 1, kThick = 3, kMiddle = kSize / 2;
  for (int y = 0; y < kSize; ++y)
    for (int x = 0; x < kSize; ++x) {
      const bool edge = std::min({x, y, kSize - 1 - x, kSize - 1 - y}) < kThick;
      if (edge && (mark.sure || (mark.possible && (x + y) % 8 < 5)))
        picture.at(left + x, top + y) = kGold;
      const int far = (x - kMiddle) * (x - kMiddle) + (y - kMiddle) * (y - kMiddle);
      if (mark.predicted && far <= 30) picture.at(left + x, top + y) = far <= 14 ? kPage : kInk;
    }
}

void draw_cell(Picture& picture, int left, int top, double shade) {
  if (std::isfinite(shade)) return draw_shade(picture, left, top, shade);
  fill(picture, {left, top, kCell - 1, kCell - 1}, kPage);
  for (int i = 6; i < kCell - 7; ++i)
    picture.at(left + i, top + i) = picture.at(left + i, top + kCell - 2 - i) = kInk;
}

// The legend: the scale, and below it the marks if there are any.
struct Legend {
  static constexpr int kBetween = 12;
  std::vector<std::pair<double, Picture>> scale;  // weights, and their numbers
  Picture name;
  std::vector<std::pair<CellMark, Picture>> marks;

  explicit Legend(const Heatmap& map) : name(draw_text(scale_name(map))) {
    for (const double weight : kLegendWeights)
      scale.emplace_back(weight, draw_text(format_number(weight, 2)));
    if (!map.marks) return;
    marks.emplace_back(CellMark{.sure = true}, draw_text("gold, sure"));
    marks.emplace_back(CellMark{.possible = true}, draw_text("gold, possible"));
    marks.emplace_back(CellMark{.predicted = true}, draw_text("predicted"));
  }
  int width() const {
    int above = name.width, below = 0;
    for (const auto& [weight, text] : scale) above += kCell + kGap + text.width + kBetween;
    for (const auto& [mark, text] : marks) below += kCell + kGap + text.width + kBetween;
    return std::max(above, below);
  }
  int height() const { return marks.empty() ? kCell : 2 * kCell + kGap; }
  void draw(Picture& picture, int left, int top) const {
    int x = left;
    for (const auto& [weight, text] : scale) {
      fill(picture, {x - 1, top - 1, kCell + 1, kCell + 1}, kFrame);
      draw_shade(picture, x, top, shade_of(weight));
      put_across(picture, text, x + kCell + kGap, top);
      x += kCell + kGap + text.width + kBetween;
    }
    put_across(picture, name, x, top);
    x = left;
    for (const auto& [mark, text] : marks) {
      draw_mark(picture, x, top + kCell + kGap, mark);
      put_across(picture, text, x + kCell + kGap, top + kCell + kGap);
      x += kCell + kGap + text.width + kBetween;
    }
  }
};

struct Texts {
  std::vector<Picture> pictures;
  int widest = 0;
};

Texts draw_texts(const std::vector<std::string>& words) {
  Texts out;
  for (const std::string& word : words) {
    out.pictures.push_back(draw_text(shortened(to_label(word), kLongest)));
    out.widest = std::max(out.widest, out.pictures.back().width);
  }
  return out;
}

}  // namespace

std::string draw_png(const Heatmap& given) {
  check(given);
  const Heatmap map = from_the_left(given);
  const size_t most = (kLargest - 1000) / kCell;
  require(map.rows.size() <= most && map.columns.size() <= most, "PNG: ", map.rows.size(),
          " rows and ", map.columns.size(), " columns; at most ", most,
          " fit into a picture. Draw SVG or the page instead");
  const Texts rows = draw_texts(map.rows), columns = draw_texts(map.columns);
  const Picture title = draw_text(shortened(to_label(map.title), 100));
  const int count_x = static_cast<int>(map.columns.size()), width = count_x * kCell;
  const int count_y = static_cast<int>(map.rows.size()), height = count_y * kCell;
  const int x0 = kMargin + rows.widest + kGap;
  const int y0 = kMargin + (title.width > 0 ? 2 * kGlyphHeight : 0) + columns.widest + kGap;

  const Legend legend(map);
  const int below = y0 + height + 2 * kGap;
  Picture picture(std::max({x0 + width, kMargin + title.width, kMargin + legend.width()}) + kMargin,
                  below + legend.height() + kMargin);
  fill(picture, {0, 0, picture.width, picture.height}, kPage);
  put_across(picture, title, kMargin, kMargin);
  if (count_x > 0 && count_y > 0) fill(picture, {x0 - 1, y0 - 1, width + 1, height + 1}, kFrame);
  for (int j = 0; j < count_x; ++j)
    put_upwards(picture, columns.pictures[static_cast<size_t>(j)], x0 + j * kCell, y0 - kGap);
  for (int i = 0; i < count_y; ++i) {
    const Picture& text = rows.pictures[static_cast<size_t>(i)];
    put_across(picture, text, x0 - kGap - text.width, y0 + i * kCell);
    for (int j = 0; j < count_x; ++j) {
      const auto row = static_cast<size_t>(i), column = static_cast<size_t>(j);
      draw_cell(picture, x0 + j * kCell, y0 + i * kCell, shade_at(map, row, column));
      draw_mark(picture, x0 + j * kCell, y0 + i * kCell, mark_at(map, row, column));
    }
  }
  legend.draw(picture, kMargin, below);
  return encode_png(picture, palette());
}

}  // namespace heed
