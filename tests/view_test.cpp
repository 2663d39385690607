#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heed/base/check.h"
#include "heed/view/heatmap.h"

namespace heed {
namespace {

TEST(Heatmap, PlainDrawingShadesByWeight) {
  const Heatmap map{.rows = {"a", "bb"}, .columns = {"x", "yy"}, .weights = {1, 0, 0.5, 0.5}};
  EXPECT_EQ(draw_terminal(map, Ink::plain),
            "   x  yy \n"
            "a  ██ ·· \n"
            "bb ▒▒ ▒▒ \n");
}

TEST(Heatmap, WordsOfAnyScriptKeepTheColumnsStraight) {
  EXPECT_EQ(display_width("été"), 3);
  EXPECT_EQ(display_width("e\xCC\x81"), 1);  // e and a combining accent
  EXPECT_EQ(display_width("猫"), 2);
  EXPECT_EQ(display_width("שלום"), 4);
  EXPECT_EQ(display_width("\xFF\xFE"), 2);  // not UTF-8: each byte a column, nothing read too far
}

TEST(Heatmap, ControlCharactersDoNotReachTheTerminal) {
  const Heatmap map{.rows = {"\x1b[31m"}, .columns = {"\n"}, .weights = {0.5}};
  const std::string drawn = draw_terminal(map, Ink::plain);
  EXPECT_EQ(drawn.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 2);
}

TEST(Heatmap, WeightsThatAreNoNumbersAreDrawnAsNothing) {
  const Heatmap map{.rows = {"a"}, .columns = {"x", "y"}, .weights = {NAN, 7}};
  EXPECT_EQ(draw_terminal(map, Ink::plain), "  x y \na · █ \n");
}

TEST(Heatmap, SizesMustFitTogether) {
  EXPECT_THROW(draw_terminal({.rows = {"a"}, .columns = {"x"}, .weights = {}}, Ink::color), Error);
}

}  // namespace
}  // namespace heed
