// The built-in letters of PNG pictures, read from font.txt; and the bytes of such a picture.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// Dots, row by row; what a number stands for, a palette says.
struct Picture {
  int width = 0, height = 0;
  std::vector<uint8_t> dots;

  Picture(int w, int h)
      : width(w), height(h), dots(static_cast<size_t>(w) * static_cast<size_t>(h)) {}
  uint8_t& at(int x, int y) {
    return dots[static_cast<size_t>(y) * static_cast<size_t>(width) + static_cast<size_t>(x)];
  }
  uint8_t at(int x, int y) const { return const_cast<Picture*>(this)->at(x, y); }
};

constexpr int kGlyphWidth = 12, kGlyphHeight = 24;  // of one column of text, in dots

// A label in dots of 0 and 1. A character that the font lacks is a box with its code.
Picture draw_text(std::string_view label);

struct Rgb {
  uint8_t red, green, blue;
};
// A PNG file. Dots are numbers of `palette`, which has at most 256 colours.
std::string encode_png(const Picture& picture, std::span<const Rgb> palette);

}  // namespace heed
