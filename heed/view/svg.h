// A picture in SVG, written piece by piece. Shared by the drawings of this folder.
//
// Pictures stand alone: their style is inside, with a second set of colours for readers who prefer
// dark ones, and they bring the background that these were chosen for. Text has one font of fixed
// width, so that what a label takes is known without measuring it.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <string>
#include <string_view>

#include "heed/view/label.h"

namespace heed {

constexpr double kFontSize = 13, kLetter = 7.8;  // of one column, in pixels

// How many pixels wide a label is drawn.
inline double text_width(std::string_view text) { return kLetter * display_width(text); }

// A word within the text of a tooltip, escaped, and isolated so that one from right to left does
// not turn the rest around.
std::string isolated(std::string_view word);

class Svg {
 public:
  enum class Anchor { left, middle, right };  // which end of a text stands at its point

  struct Text {
    double x = 0, y = 0;
    std::string_view words;
    Anchor anchor = Anchor::left;
    double angle = 0;            // degrees, clockwise
    std::string_view kind = "";  // a class of the style
  };

  // Markup as it is, numbers with at most two decimals.
  template <class... Parts>
  void add(const Parts&... parts) {
    (put(parts), ...);
  }

  // A text, escaped, and drawn from right to left if it reads so.
  void add(const Text& text);

  // The whole picture. `name` is what a screen reader says it is, `style` more rules of CSS.
  std::string finish(double width, double height, std::string_view name,
                     std::string_view style = "") const;

 private:
  void put(std::string_view markup) { body_ += markup; }
  void put(double number) { body_ += format_number(number, 2); }

  std::string body_;
};

}  // namespace heed
