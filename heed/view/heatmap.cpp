#include "heed/view/heatmap.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>

#include "heed/base/check.h"

namespace heed {
namespace {

// The next code point; a broken byte counts as one of its own.
uint32_t next_code_point(const std::string& text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at++);
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
  uint32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
  for (int i = 0; i < more && at < text.size() && (byte(at) & 0xC0) == 0x80; ++i)
    code = code << 6 | (byte(at++) & 0x3F);
  return code;
}

bool takes_no_column(uint32_t c) {
  return (c >= 0x300 && c <= 0x36F) || (c >= 0x591 && c <= 0x5C7 && c != 0x5BE) ||
         (c >= 0x64B && c <= 0x65F) || (c >= 0x200B && c <= 0x200F) || c == 0xFE0F;
}
bool takes_two_columns(uint32_t c) {
  return (c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
         (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
         (c >= 0xFF00 && c <= 0xFF60) || (c >= 0x1F300 && c <= 0x1FAFF);
}

// A label as it is drawn: control characters would move the cursor, so they become dots.
std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '.' : c;
  return out;
}

std::string padded(const std::string& text, int width) {
  return text + std::string(static_cast<size_t>(std::max(0, width - display_width(text))), ' ');
}

// From white to a deep blue.
std::string cell(double weight, int width, Ink ink) {
  const double w = std::isfinite(weight) ? std::clamp(weight, 0.0, 1.0) : 0;
  if (ink == Ink::plain) {
    static const char* const shades[] = {"·", "░", "▒", "▓", "█"};
    const char* const shade = shades[std::min(4, static_cast<int>(w * 5))];
    std::string out;
    for (int i = 0; i < width - 1; ++i) out += shade;
    return out + " ";
  }
  const auto mix = [&](int from, int to) {
    return static_cast<int>(std::lround(from + (to - from) * w));
  };
  std::ostringstream out;
  out << "\x1b[48;2;" << mix(247, 8) << ';' << mix(251, 48) << ';' << mix(255, 107) << 'm'
      << std::string(static_cast<size_t>(width), ' ') << "\x1b[0m";
  return out.str();
}

}  // namespace

int display_width(const std::string& text) {
  int width = 0;
  for (size_t at = 0; at < text.size();) {
    const uint32_t code = next_code_point(text, at);
    width += takes_no_column(code) ? 0 : takes_two_columns(code) ? 2 : 1;
  }
  return width;
}

std::string draw_terminal(const Heatmap& map, Ink ink) {
  require(map.weights.size() == map.rows.size() * map.columns.size(), "heat map: ", map.rows.size(),
          " rows and ", map.columns.size(), " columns want ", map.rows.size() * map.columns.size(),
          " weights, given ", map.weights.size());
  int left = 0, wide = 2;
  std::vector<std::string> rows, columns;
  for (const std::string& row : map.rows) {
    rows.push_back(printable(row));
    left = std::max(left, display_width(rows.back()));
  }
  for (const std::string& column : map.columns) {
    columns.push_back(printable(column));
    wide = std::max(wide, display_width(columns.back()) + 1);
  }
  std::string out = std::string(static_cast<size_t>(left + 1), ' ');
  for (const std::string& column : columns) out += padded(column, wide);
  out += '\n';
  for (size_t i = 0; i < rows.size(); ++i) {
    out += padded(rows[i], left + 1);
    for (size_t j = 0; j < columns.size(); ++j)
      out += cell(map.weights[i * columns.size() + j], wide, ink);
    out += '\n';
  }
  return out;
}

}  // namespace heed
