#include "heed/view/svg.h"

namespace heed {
namespace {

// Rules are of the picture's class, for a picture may be put into a page with rules of its own.
constexpr std::string_view kStyle =
    ".heed{color:#1f2328}"
    ".heed text{fill:currentColor;font:13px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,"
    "monospace;white-space:pre}"
    ".heed .title{font-weight:bold}"
    ".heed .page{fill:#fff}"
    ".heed .weight{fill:#08519c}"
    ".heed .line{fill:none;stroke:currentColor}"
    "@media (prefers-color-scheme:dark){"
    ".heed{color:#e6edf3}.heed .page{fill:#0d1117}.heed .weight{fill:#79b8ff}}";

}  // namespace

std::string isolated(std::string_view word) {
  return "\u2068" + escape_xml(to_label(word)) + "\u2069";
}

void Svg::add(const Text& text) {
  add("<text");
  if (text.angle != 0)
    add(" transform=\"translate(", text.x, " ", text.y, ") rotate(", text.angle, ")\"");
  else
    add(" x=\"", text.x, "\" y=\"", text.y, "\"");
  if (!text.kind.empty()) add(" class=\"", text.kind, "\"");
  if (text.anchor == Anchor::middle) add(" text-anchor=\"middle\"");
  if (text.anchor == Anchor::right) add(" text-anchor=\"end\"");
  // Not the attribute `direction`: with it the anchor's ends change sides, and not all readers of
  // SVG agree on that. An isolate from right to left (U+2067, U+2069) turns the words alone.
  const bool reversed = reads_right_to_left(text.words);
  add(">", reversed ? "\u2067" : "", escape_xml(text.words), reversed ? "\u2069" : "", "</text>\n");
}

std::string Svg::finish(double width, double height, std::string_view name,
                        std::string_view style) const {
  Svg whole;
  whole.add("<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"heed\" role=\"img\" aria-label=\"",
            escape_xml(name), "\" width=\"", width, "\" height=\"", height, "\" viewBox=\"0 0 ",
            width, " ", height, "\">\n<style>", kStyle, style,
            "</style>\n<rect class=\"page\" width=\"", width, "\" height=\"", height,
            "\" rx=\"6\"/>\n", body_, "</svg>\n");
  return whole.body_;
}

}  // namespace heed
