// Words as labels of a drawing: made harmless, measured, cut to size, escaped.
//
// A corpus has everything in it: bytes that are no UTF-8, control characters, `<script>`. What is
// drawn goes through to_label() first; after that it is UTF-8 that neither moves a terminal's
// cursor nor is forbidden in XML.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed {

// `word` fit to be drawn: U+FFFD for bytes that are not UTF-8, a dot for every control character,
// line break and directional override, which would reach beyond the word.
std::string to_label(std::string_view word);

// How many columns of a terminal a text takes: wide and combining characters counted as such,
// bytes that are not UTF-8 as the U+FFFD that stands for them.
int display_width(std::string_view text);

// At most `width` columns of `text`, which ends in an ellipsis if there was more.
std::string shortened(std::string_view text, int width);

// `text` in pieces that a reader takes for one character: each with the accents that follow it.
std::vector<std::string> clusters(std::string_view text);

// Whether the first letter with a direction is one of Hebrew, Arabic or another such script; and
// whether any is.
bool reads_right_to_left(std::string_view text);
bool has_right_to_left(std::string_view text);

// For text and quoted attributes of XML and HTML.
std::string escape_xml(std::string_view text);

// `value` with at most `decimals` digits after the point, in no locale: 0.25, 3, nan.
std::string format_number(double value, int decimals);

}  // namespace heed
