#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/view/heatmap.h"
#include "heed/view/page.h"
#include "heed/view/plot.h"
#include "heed/view/tree.h"
#include "tests/folder.h"

namespace heed {
namespace {

const std::string kEvil = "</script><script>alert(1)</script><!-- & \"' \xE2\x80\xA8 \x1b[31m \xFF";
const std::string kHebrew = "שלום", kArabic = "مرحبا";

Heatmap small_map() {
  return {.rows = {"le", "chat", "noir"},
          .columns = {"the", "black", "cat"},
          .weights = {0.9, 0.06, 0.04, 0.1, 0.2, 0.7, 0.05, 0.85, 0.1},
          .title = "le chat noir"};
}

// A band around the diagonal, words of differing length.
Heatmap large_map(size_t size) {
  Heatmap map;
  for (size_t i = 0; i < size; ++i) {
    map.rows.push_back("▁row" + std::to_string(i * i));
    map.columns.push_back("▁c" + std::to_string(i));
    for (size_t j = 0; j < size; ++j) {
      const double far = static_cast<double>(i) - static_cast<double>(j);
      map.weights.push_back(std::exp(-far * far / 4) / 3.5);
    }
  }
  return map;
}

Heatmap wild_map() {
  return {.rows = {kEvil, kHebrew, "猫", "e\xCC\x81t\xC3\xA9"},
          .columns = {kArabic, "été", "😀", kHebrew + " 12", ""},
          .weights = {1, 0,   NAN, 0.5,  0.25, -3,  7,   INFINITY, 0.1, 0.2,
                      0, 0.1, 0.2, 0.25, 0.3,  0.4, 0.5, 0.6,      0.7, 0.8}};
}

SearchTree small_tree() {
  return {
      .nodes = {{.word = "il", .parent = -1, .log_probability = -0.1, .best = true},
                {.word = "elle", .parent = -1, .log_probability = -2.5},
                {.word = "m'", .parent = 0, .log_probability = -0.3, .best = true},
                {.word = "<b>", .parent = 0, .log_probability = -1.9},
                {.word = "a", .parent = 2, .log_probability = -0.4, .best = true},
                {.word = "est", .parent = 2, .log_probability = -2.2},
                {.word = "entarté", .parent = 4, .log_probability = -0.9, .best = true},
                {.word = ".", .parent = 6, .log_probability = -1, .finished = true, .best = true},
                {.word = kHebrew, .parent = 1, .log_probability = -3, .finished = true}}};
}

AttentionPage page() {
  const Heatmap small = small_map(), wild = wild_map(), large = large_map(100);
  AttentionPage out{.title = "Attention of " + kEvil, .sentences = {}};
  out.sentences.push_back({.source = small.columns,
                           .target = small.rows,
                           .layers = {{.heads = {small.weights, std::vector<double>(9, 1.0 / 3)}},
                                      {.heads = {small.weights}, .name = "last"}},
                           .note = "log probability -1",
                           .tree = small_tree()});
  out.sentences.push_back({.source = wild.columns,
                           .target = wild.rows,
                           .layers = {{.heads = {wild.weights}}},
                           .note = kEvil});
  out.sentences.push_back({.source = large.columns,
                           .target = large.rows,
                           .layers = {{.heads = {large.weights, large.weights}}}});
  out.sentences.push_back({.source = {}, .target = {}, .layers = {{.heads = {{}}}}});
  return out;
}

LineChart curves() {
  return {.title = "Loss < 3 & falling",
          .x = {.label = "step", .scale = Scale::log},
          .y = {.label = "loss"},
          .lines = {{.name = "additive",
                     .x = {10, 30, 100, 300, 1000, 3000},
                     .y = {6.1, 4.9, 3.2, NAN, 1.6, 1.31}},
                    {.name = "dot", .x = {10, 100, 1000, 0}, .y = {6.3, 4, 2.2, 1}},
                    {.name = "none", .x = {10, 100, 1000, 3000}, .y = {6.5, 5.1, 4.4, 4.2}}}};
}

BarChart bars() {
  return {.title = "BLEU by score",
          .y_label = "BLEU",
          .groups = {"additive", "general", "dot", "scaled dot", "location", "none"},
          .series = {{.name = "GRU", .values = {91.2, 90.1, 88.4, 90.6, 61, -4}},
                     {.name = "LSTM", .values = {92.5, 90.9, NAN, 91.7, 66.3, 35.2}}}};
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

int widest_line(const std::string& text) {
  int widest = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) widest = std::max(widest, display_width(line));
  return widest;
}

// ---- words

TEST(Label, WidthsAreThoseOfTerminals) {
  EXPECT_EQ(display_width("été"), 3);
  EXPECT_EQ(display_width("e\xCC\x81"), 1);  // e and a combining accent
  EXPECT_EQ(display_width("猫"), 2);
  EXPECT_EQ(display_width("한국"), 4);
  EXPECT_EQ(display_width("😀"), 2);
  EXPECT_EQ(display_width("שָׁ"), 1);  // a letter and two points
  EXPECT_EQ(display_width("हिन्दी"), 5);
  EXPECT_EQ(display_width(kHebrew), 4);
  EXPECT_EQ(display_width("\xFF\xFE"), 2);  // not UTF-8: each byte a column, nothing read too far
}

TEST(Label, NothingThatSteersIsLeft) {
  EXPECT_EQ(to_label("a\x1b[31m\n\x7F"), "a.[31m..");
  EXPECT_EQ(to_label("\xC2\x9B"), ".");                  // CSI as one character
  EXPECT_EQ(to_label("a\u202Eb\u2066\u2028"), "a.b..");  // overrides, isolates, line separators
  EXPECT_EQ(to_label("\xFF\xC3"), "\uFFFD\uFFFD");
  EXPECT_EQ(to_label("\xEF\xBF\xBE"), "\uFFFD");  // U+FFFE is allowed in UTF-8, but not in XML
  EXPECT_EQ(to_label("👨‍👩‍👧 été " + kHebrew), "👨‍👩‍👧 été " + kHebrew);
}

TEST(Label, ShorteningKeepsAccentsAndWidth) {
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdef", 4), "abc…");
  EXPECT_EQ(shortened("猫猫猫", 4), "猫…");
  EXPECT_EQ(shortened("e\xCC\x81"
                      "e\xCC\x81"
                      "e",
                      2),
            "e\xCC\x81…");
  EXPECT_EQ(shortened("abc", 0), "");
}

TEST(Label, DirectionIsThatOfTheFirstLetter) {
  EXPECT_TRUE(reads_right_to_left(kHebrew));
  EXPECT_TRUE(reads_right_to_left("12 «" + kArabic + " abc"));
  EXPECT_FALSE(reads_right_to_left("abc " + kArabic));
  EXPECT_FALSE(reads_right_to_left("12 ."));
}

TEST(Label, NumbersAreShort) {
  EXPECT_EQ(format_number(0.25, 4), "0.25");
  EXPECT_EQ(format_number(100, 2), "100");
  EXPECT_EQ(format_number(-0.001, 2), "0");
  EXPECT_EQ(format_number(NAN, 2), "nan");
  EXPECT_EQ(format_number(1200, 0), "1200");
}

// ---- terminal

TEST(Heatmap, PlainDrawingShadesByWeight) {
  const Heatmap map{.rows = {"a", "bb"}, .columns = {"x", "yy"}, .weights = {1, 0, 0.5, 0.5}};
  EXPECT_EQ(draw_terminal(map, Ink::plain),
            "   x  yy \n"
            "a  ██ ·· \n"
            "bb ▓▓ ▓▓ \n");
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
  EXPECT_EQ(count(draw_terminal(map, Ink::color), "\x1b[48"), 1);
}

TEST(Heatmap, ALongWordWidensItsOwnColumnAlone) {
  const std::string longest(25, 'x');
  const Heatmap map{.rows = {"a"}, .columns = {"b", longest, "cc"}, .weights = {1, 0, 1}};
  EXPECT_EQ(
      draw_terminal(map, Ink::plain), "  b  " + longest + " cc \na ██ " + [] {
        std::string dots;
        for (int i = 0; i < 25; ++i) dots += "·";
        return dots;
      }() + " ██ \n");
}

TEST(Heatmap, ColumnsThatDoNotFitGoBelowWithTheirWordsDownwards) {
  const Heatmap map{
      .rows = {"r", "s"}, .columns = {"abc", "猫e\xCC\x81", "z"}, .weights = {1, 0, 0, 0, 1, 1}};
  EXPECT_EQ(draw_terminal(map, Ink::plain, 6),
            "  a   \n"
            "  b 猫\n"
            "  c e\xCC\x81 \n"
            "r █ · \n"
            "s · █ \n"
            "\n"
            "  z \n"
            "r · \n"
            "s █ \n");
}

TEST(Heatmap, LongSentencesKeepToTheWidth) {
  const Heatmap map = large_map(100);
  for (const int width : {1, 40, 80, 132}) {
    const std::string drawn = draw_terminal(map, Ink::plain, width);
    EXPECT_LE(widest_line(drawn), std::max(width, 4)) << drawn.substr(0, 2000);
    EXPECT_GE(count(drawn, "░"), 100);
  }
}

// A weight of 0.04 can be told from nothing.
TEST(Heatmap, WeakWeightsAreSeen) {
  const Heatmap map{.rows = {"a"}, .columns = {"x", "y", "z"}, .weights = {0.92, 0.04, 0.03}};
  EXPECT_EQ(draw_terminal(map, Ink::plain), "  x y z \na █ ░ · \n");
  EXPECT_TRUE(has(terminal_legend(map, Ink::plain),
                  "weight: · less than 0.04  ░ from 0.04  ▒ from 0.16  ▓ from 0.36  █ from 0.64"));
  EXPECT_TRUE(has(draw_svg(map), "fill-opacity=\"0.2\""));
  EXPECT_TRUE(has(draw_svg(map), ">0.05</text>"));
}

// Their first word is the rightmost column, with its weights and links.
TEST(Heatmap, ColumnsOfASentenceFromRightToLeftRunSo) {
  Heatmap map{.rows = {kHebrew}, .columns = {kHebrew, kArabic}, .weights = {1, 0}};
  // A mark before the line, and one behind every word.
  EXPECT_EQ(draw_terminal(map, Ink::plain), "\u200E     " + kArabic + "\u200E " + kHebrew +
                                                "\u200E  \n\u200E" + kHebrew +
                                                "\u200E ····· █████ \n");
  map.marks = Heatmap::Marks{.sure = {{0, 0}}};
  EXPECT_TRUE(has(draw_terminal(map, Ink::plain), " ····· [███] \n"))
      << draw_terminal(map, Ink::plain);
  const std::string svg = draw_svg(map);
  EXPECT_LT(svg.find(kArabic), svg.find(kHebrew));  // words of columns come first
  map.columns[0] = "12";  // punctuation and digits have no direction, the first letter decides
  EXPECT_TRUE(has(draw_terminal(map, Ink::plain), " ····· [███] \n"));
  map.columns[0] = "abc";
  EXPECT_TRUE(has(draw_terminal(map, Ink::plain), " [███] ····· \n"));
}

TEST(Heatmap, SizesMustFitTogether) {
  const Heatmap map{.rows = {"a"}, .columns = {"x"}, .weights = {}};
  EXPECT_THROW(draw_terminal(map, Ink::color), Error);
  EXPECT_THROW(draw_svg(map), Error);
  EXPECT_THROW(draw_png(map), Error);
  EXPECT_TRUE(has(
      message([] {
        draw_html(
            {.title = "",
             .sentences = {{.source = {"x"}, .target = {"a", "b"}, .layers = {{.heads = {{1}}}}}}});
      }),
      "sentence 0, layer 0, head 0: 2 target and 1 source words want 2 weights"));
}

TEST(Heatmap, EmptySentencesAreDrawn) {
  const Heatmap none{.rows = {}, .columns = {}, .weights = {}}, rows{{"a", "b"}, {}, {}};
  EXPECT_EQ(draw_terminal(none, Ink::plain, 80), " \n");
  EXPECT_EQ(draw_terminal(rows, Ink::plain), "  \na \nb \n");
  EXPECT_TRUE(has(draw_svg(none), "</svg>"));
  EXPECT_TRUE(has(draw_svg(rows), ">b</text>"));
  EXPECT_TRUE(has(draw_png(none), "IEND"));
  EXPECT_TRUE(has(draw_html({.title = "", .sentences = {}}), "\"sentences\":[]}</script>"));
}

Heatmap marked_map() {
  Heatmap map = small_map();
  map.marks =
      Heatmap::Marks{.predicted = {{0, 0}, {1, 1}}, .sure = {{0, 0}, {1, 2}}, .possible = {{2, 1}}};
  return map;
}

TEST(Heatmap, LinksStandInTheirCells) {
  EXPECT_EQ(draw_terminal(marked_map(), Ink::plain),
            "le chat noir\n"
            "     the   black cat   \n"
            "le   [█*█] ░░░░░ ░░░░░ \n"
            "chat ░░░░░ ▒▒*▒▒ (███) \n"
            "noir ░░░░░ [███] ░░░░░ \n");
  // Where words are written downwards there is still room for both marks.
  const std::string narrow = draw_terminal(marked_map(), Ink::plain, 18);
  EXPECT_TRUE(has(narrow, "le   [*] ░░░ ░░░ \n")) << narrow;
  EXPECT_TRUE(has(narrow, "noir ░░░ [█] ░░░ \n")) << narrow;
  EXPECT_EQ(count(draw_terminal(marked_map(), Ink::color), "*"), 2);
  EXPECT_TRUE(has(terminal_legend(marked_map(), Ink::plain),
                  "[ ] gold, sure  ( ) gold, possible  * predicted"));
  EXPECT_FALSE(has(terminal_legend(small_map(), Ink::plain), "gold"));
  const std::string svg = draw_svg(marked_map());
  EXPECT_EQ(count(svg, "class=\"gold\""), 2 + 1);  // and the legend's
  EXPECT_EQ(count(svg, "class=\"gold possible\""), 1 + 1);
  EXPECT_EQ(count(svg, "class=\"predicted\""), 2 + 1);
  EXPECT_TRUE(has(svg, ": 0.9; gold, sure; predicted</title>"));
  EXPECT_TRUE(has(svg, ": 0.7; gold, possible</title>"));
  EXPECT_TRUE(has(svg, ">gold, possible</text>"));
  EXPECT_NE(draw_png(marked_map()), draw_png(small_map()));
  Heatmap outside = marked_map();
  outside.marks->sure.push_back({3, 0});
  EXPECT_TRUE(has(message([&] { draw_svg(outside); }), "link 3-0 is outside 3 columns and 3 rows"));
}

TEST(Heatmap, RowsAreScaledIfAsked) {
  Heatmap map{.rows = {"a", "b", "c"},
              .columns = {"x", "y"},
              .weights = {0.3, 0.1, 0, 0, NAN, 0.2},
              .scale_rows = true};
  EXPECT_EQ(draw_terminal(map, Ink::plain), "  x y \na █ ▒ \nb · · \nc · █ \n");
  EXPECT_TRUE(has(draw_svg(map), "fill-opacity=\"0.577\""));
  EXPECT_TRUE(has(draw_svg(map), ": 0.3</title>"));  // numbers are as they are
  EXPECT_TRUE(has(draw_svg(map), "share of the row&#39;s largest weight"));
  EXPECT_TRUE(has(terminal_legend(map, Ink::plain), "share of the row's largest weight"));
  map.scale_rows = false;
  EXPECT_TRUE(has(draw_svg(map), "fill-opacity=\"0.548\""));
  EXPECT_TRUE(has(draw_svg(map), ">weight</text>"));
}

TEST(Page, TellsLinksEndsAndWhereToBegin) {
  AttentionPage one{
      .title = "t",
      .sentences = {{.source = {"a", "</s>"},
                     .target = {"x", "</s>"},
                     .layers = {{.heads = {{0.9, 0.1, 0.2, 0.8}}}},
                     .ends = true,
                     .marks =
                         Heatmap::Marks{.predicted = {{0, 0}}, .sure = {{0, 1}}, .possible = {}}}},
      .start = {.layer = 2, .head = 1, .shift = 1, .hide_ends = true}};
  const std::string html = draw_html(one);
  EXPECT_TRUE(has(html,
                  "{\"start\":{\"layer\":2,\"head\":1,\"shift\":1,\"scale_rows\":false,"
                  "\"hide_ends\":true,\"words\":false},\"sentences\":["));
  EXPECT_TRUE(has(html, "\"gold\":{\"text\":\"0-1 \",\"predicted\":\"0-0 \"}"));
  EXPECT_TRUE(has(html, "\"ends\":true"));
  EXPECT_TRUE(has(html, "\"source\":{\"pieces\":[\"a\"]}"));  // the end is told apart
  EXPECT_TRUE(has(html, "\"end\":\"\\u003c/s\\u003e\""));
  EXPECT_TRUE(has(html, "\"heads\":[[[0.9,0.1],[0.2,0.8]]]"));
  // The head that aligns, where none is named.
  EXPECT_TRUE(has(draw_html(page()), "\"layer\":-1,\"head\":-1,\"shift\":null"));
  one.sentences[0].marks->sure = {{2, 0}};
  EXPECT_TRUE(has(message([&] { draw_html(one); }), "link 2-0 is outside"));
}

// ---- pictures

TEST(Svg, IsTheGoldenOne) {
  EXPECT_EQ(draw_svg(small_map()),
            read(std::filesystem::path(__FILE__).parent_path() / "golden" / "heatmap.svg"));
}

TEST(Svg, WordsAreOnlyText) {
  for (const std::string& svg : {draw_svg(wild_map()), draw_svg(small_tree())}) {
    EXPECT_FALSE(has(svg, "<script"));
    EXPECT_FALSE(has(svg, "<b>"));
    EXPECT_FALSE(has(svg, "\x1b"));
    EXPECT_TRUE(is_utf8(svg));
  }
  EXPECT_EQ(count(draw_svg(wild_map()), ": nan<"), 1);
}

TEST(Svg, WordsFromRightToLeftAreTurnedAndNothingElseIs) {
  const std::string svg = draw_svg({.rows = {kHebrew}, .columns = {kArabic}, .weights = {1}});
  EXPECT_TRUE(has(svg, "text-anchor=\"end\">\u2067" + kHebrew + "\u2069</text>"));
  EXPECT_TRUE(has(svg, "rotate(-45)\">\u2067" + kArabic + "\u2069</text>"));
  EXPECT_FALSE(has(draw_svg(small_map()), "\u2067"));
}

TEST(Svg, EveryCellOfALongSentenceIsThere) {
  EXPECT_EQ(count(draw_svg(large_map(100)), "class=\"weight\""), 100 * 100 + 5);  // the legend's
}

TEST(Png, TooManyWordsAreRefused) {
  const std::vector<std::string> words(1000, "a");
  EXPECT_TRUE(has(message([&] {
                    draw_png({words, {"x"}, std::vector<double>(1000)});
                  }),
                  "1000 rows and 1 columns; at most"));
}

TEST(Page, DataCannotEndItsScript) {
  const std::string html = draw_html(page());
  const size_t begin = html.find("id=\"data\">"), end = html.find("</script>", begin);
  const std::string data = html.substr(begin + 10, end - begin - 10);
  EXPECT_TRUE(data.ends_with("]}"));  // it ends where the data does
  EXPECT_FALSE(has(data, "<"));
  EXPECT_FALSE(has(data, "\u2028"));
  EXPECT_TRUE(has(data, "\\u003c/script\\u003e\\u003cscript\\u003ealert(1)"));
  EXPECT_TRUE(has(data, "[1,0,null,0.5,0.25],[-3,7,null"));
  EXPECT_FALSE(has(html, "<script>alert"));
  EXPECT_TRUE(is_utf8(html));
}

TEST(Page, LoadsNothing) {
  std::string html = draw_html(page());
  // Names of formats, not of files.
  for (const std::string name :
       {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"})
    for (size_t at; (at = html.find(name)) != html.npos;) html.erase(at, name.size());
  for (const char* const outside :
       {"http:", "https:", "src=", "<link", "url(", "@import", "import {", "export "})
    EXPECT_FALSE(has(html, outside)) << outside;
  EXPECT_TRUE(has(html, "content=\"default-src 'none'; style-src"));  // nor could it
}

TEST(Page, LiveFilesAreThoseOfTheFile) {
  EXPECT_TRUE(has(live_page(), "<script type=\"module\" src=\"web/page.js\"></script>"));
  EXPECT_TRUE(has(live_page(), "id=\"data\">null</script>"));
  EXPECT_TRUE(has(empty_page(), "id=\"data\">null</script>"));
  EXPECT_FALSE(page_file("../page.h") || page_file("") || page_file("page.html"));
  const std::string joined = draw_html(page());
  for (const char* const name : {"ribbons.js", "arcs.js", "why.js"}) {
    const auto content = page_file(name);
    ASSERT_TRUE(content) << name;
    // Its first declaration is in the file as it is.
    const size_t comment = content->find("\n\nconst ");
    ASSERT_NE(comment, content->npos) << name;
    EXPECT_TRUE(has(joined, std::string(content->substr(comment, 30)))) << name;
  }
  EXPECT_TRUE(has(joined, "const ribbons_js = (() => {"));
  EXPECT_TRUE(has(joined, "} = dom_js;"));
}

TEST(Page, WordsCandidatesAndTermsAreThere) {
  AttentionPage one{.title = "t",
                    .sentences = {{.source = {"▁a", "b", "</s>"},
                                   .target = {"x", "</s>"},
                                   .layers = {},
                                   .number = 7,
                                   .ends = true,
                                   .source_words = AttentionPage::Words{{"ab"}, {0, 0}},
                                   .log_probability = -1.5,
                                   .candidates = {{{"x", 0.75}, {"y", 0.125}}},
                                   .why = AttentionPage::Why{"dot",
                                                             "soft",
                                                             1,
                                                             {{{.form = "dot",
                                                                .size = 1,
                                                                .value_size = 2,
                                                                .q = {3, 4},
                                                                .k = {5, 6, 7},
                                                                .v = {},
                                                                .bias = {1, 2, 3, 4, 5, 6},
                                                                .values = {1, 2, 3, 4, 5, 6}}}},
                                                             1}}}};
  const std::string html = draw_html(one);
  EXPECT_TRUE(has(html, "\"words\":[\"ab\"],\"piece_words\":[0,0]"));
  EXPECT_TRUE(has(html, "\"number\":7"));
  EXPECT_TRUE(has(html, "\"log_probability\":-1.5"));
  EXPECT_TRUE(has(html, "{\"piece\":\"y\",\"probability\":0.125}"));
  EXPECT_TRUE(has(html, "\"q\":[[3],[4]],\"k\":[[5],[6],[7]]"));
  EXPECT_TRUE(has(html, "\"bias\":[[1,2,3],[4,5,6]],\"values\":[[1,2],[3,4],[5,6]]"));
  EXPECT_TRUE(has(html, "\"temperature\":1,\"before\":1,"));
  one.sentences[0].source_words->of.pop_back();
  EXPECT_TRUE(has(message([&] { draw_html(one); }), "2 tokens want as many numbers of words"));
}

// ---- the beam

TEST(SearchTree, TerminalDrawingForksWhereTheBeamDid) {
  EXPECT_EQ(draw_terminal(small_tree(), Ink::plain),
            "├─ il -0.1 *\n"
            "│  ├─ m' -0.3 *\n"
            "│  │  ├─ a entarté . -1 end *\n"
            "│  │  └─ est -2.2\n"
            "│  └─ <b> -1.9\n"
            "└─ elle " +
                kHebrew + "\u200E -3 end\n");
  EXPECT_EQ(draw_terminal(SearchTree{}, Ink::plain), "");
}

TEST(SearchTree, LongStretchesAreWrapped) {
  SearchTree tree;
  for (int i = 0; i < 100; ++i)
    tree.nodes.push_back({.word = "word", .parent = i - 1, .log_probability = -0.1 * i});
  const std::string drawn = draw_terminal(tree, Ink::plain, 40);
  EXPECT_LE(widest_line(drawn), 40);
  EXPECT_EQ(count(drawn, "word"), 100);
  // In a picture words along which nothing happens are folded.
  EXPECT_LT(count(draw_svg(tree), "<text"), 12);
  EXPECT_TRUE(has(draw_svg(tree), "⋯"));
}

TEST(SearchTree, ScoresThatDecideAreShownAndTheWinnerIsOnTop) {
  const SearchTree tree{
      .nodes = {
          {.word = "a", .parent = -1, .log_probability = -9.74, .score = -3, .finished = true},
          {.word = "b", .parent = -1, .log_probability = -9.85, .score = -1, .best = true},
          {.word = "c",
           .parent = 1,
           .log_probability = -9.85,
           .score = -1,
           .finished = true,
           .best = true}}};
  EXPECT_EQ(draw_terminal(tree, Ink::plain), "├─ b c -1 end *\n└─ a -3 end\n");
  const std::string svg = draw_svg(tree);
  EXPECT_TRUE(has(svg, ">-1</text>"));
  EXPECT_FALSE(has(svg, ">-9.74</text>"));
  EXPECT_LT(svg.find(">b</text>"), svg.find(">a</text>"));
}

TEST(SearchTree, ALongOneIsOfAUsableSize) {
  // A beam of five over 120 tokens, of which four lose at every step.
  SearchTree tree;
  int before = -1;
  for (int i = 0; i < 120; ++i) {
    const int first = static_cast<int>(tree.nodes.size());
    for (int k = 0; k < 5; ++k)
      tree.nodes.push_back({.word = "word" + std::to_string(i),
                            .parent = before,
                            .log_probability = -0.1 * i - k,
                            .finished = k == 0 && i == 119,
                            .best = k == 0});
    before = first;
  }
  const std::string svg = draw_svg(tree);
  const auto number = [&](const char* name) {
    return std::stod(svg.substr(svg.find(name) + std::string(name).size()));
  };
  EXPECT_LT(number(" width=\""), 2000);
  EXPECT_LT(number(" height=\""), 1000);
}

TEST(SearchTree, ParentsComeFirst) {
  const SearchTree tree{.nodes = {{.word = "a", .parent = 0}}};
  EXPECT_EQ(message([&] { draw_terminal(tree, Ink::plain); }),
            "search tree: node 0, 'a', has the parent 0; wanted: a node before it, or -1");
  EXPECT_THROW(draw_svg(tree), Error);
}

// ---- charts

TEST(Plot, TicksAreRoundNumbers) {
  EXPECT_EQ(nice_ticks(0, 10, 6), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(nice_ticks(3, 97, 6), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(nice_ticks(-1, 1, 3), (std::vector<double>{-1, 0, 1}));
  EXPECT_EQ(nice_ticks(5, 5, 3), (std::vector<double>{4.5, 5, 5.5}));
  EXPECT_THROW(nice_ticks(0, NAN, 5), Error);
}

TEST(Plot, SizesMustFitTogether) {
  EXPECT_THROW(draw_svg(LineChart{.lines = {{.name = "a", .x = {1}, .y = {}}}}), Error);
  EXPECT_THROW(draw_svg(BarChart{.groups = {"a"}, .series = {{.name = "b", .values = {}}}}), Error);
}

TEST(Plot, WhatCannotBeDrawnLeavesAGap) {
  const std::string svg = draw_svg(curves());
  EXPECT_FALSE(has(svg, "nan"));
  EXPECT_FALSE(has(svg, "inf"));
  EXPECT_EQ(count(svg, "<circle"), 5 + 3 + 4);
  EXPECT_EQ(count(draw_svg(bars()), "<rect class=\"bar"), 11 + 2);
  EXPECT_TRUE(has(draw_svg(LineChart{}), "</svg>"));
  EXPECT_TRUE(has(draw_svg(BarChart{}), "</svg>"));
}

// Files for view_test.py, which reads them with parsers that are not ours.
TEST(View, WritesFilesForOtherReaders) {
  const Folder own;
  const char* const asked = std::getenv("HEED_VIEW_FOLDER");
  const std::filesystem::path folder = asked ? asked : own.path();
  const auto put = [&](const std::string& name, const std::string& content) {
    std::ofstream(folder / name, std::ios::binary) << content;
    EXPECT_EQ(read(folder / name), content);
  };
  put("small.svg", draw_svg(small_map()));
  put("wild.svg", draw_svg(wild_map()));
  put("large.svg", draw_svg(large_map(100)));
  put("empty.svg", draw_svg(Heatmap{.rows = {}, .columns = {}, .weights = {}}));
  put("tree.svg", draw_svg(small_tree()));
  put("curves.svg", draw_svg(curves()));
  put("bars.svg", draw_svg(bars()));
  put("marked.svg", draw_svg(marked_map()));
  put("marked.png", draw_png(marked_map()));
  put("small.png", draw_png(small_map()));
  put("wild.png", draw_png(wild_map()));
  put("large.png", draw_png(large_map(100)));
  put("page.html", draw_html(page()));
}

}  // namespace
}  // namespace heed
