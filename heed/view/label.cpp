#include "heed/view/label.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "heed/base/unicode.h"

namespace heed {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

std::u32string decode_leniently(std::string_view text) { return decode_utf8(repaired_utf8(text)); }

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029;
}
// Embeddings, overrides and isolates; plain marks (U+200E, U+200F) do no harm.
bool steers_direction(char32_t c) {
  return (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}
// Has a direction of its own; digits and punctuation have none.
bool is_left_to_right(char32_t c) {
  return !is_right_to_left(c) && !is_number(c) && !is_punctuation(c) && !is_symbol(c) &&
         !is_white_space(c) && columns_of(c) > 0 && c != kReplacement;
}

}  // namespace

std::string to_label(std::string_view word) {
  std::u32string out = decode_leniently(word);
  for (char32_t& c : out) {
    if (is_control(c) || steers_direction(c)) c = U'.';
    if ((c & 0xFFFE) == 0xFFFE) c = kReplacement;  // no characters, and not allowed in XML
  }
  return encode_utf8(out);
}

int display_width(std::string_view text) {
  int width = 0;
  for (const char32_t c : decode_leniently(text)) width += columns_of(c);
  return width;
}

std::string shortened(std::string_view text, int width) {
  if (display_width(text) <= width) return std::string(text);
  std::string out;
  int used = 1;  // the ellipsis
  for (const std::string& cluster : clusters(text)) {
    used += display_width(cluster);
    if (used > width) break;
    out += cluster;
  }
  return width > 0 ? out + "…" : "";
}

std::vector<std::string> clusters(std::string_view text) {
  std::vector<std::string> out;
  for (const char32_t c : decode_leniently(text)) {
    if (columns_of(c) > 0 || out.empty()) out.emplace_back();
    out.back() += encode_utf8({&c, 1});
  }
  return out;
}

bool reads_right_to_left(std::string_view text) {
  for (const char32_t c : decode_leniently(text)) {
    if (is_right_to_left(c)) return true;
    if (is_left_to_right(c)) return false;
  }
  return false;
}

bool has_right_to_left(std::string_view text) {
  return std::ranges::any_of(decode_leniently(text), is_right_to_left);
}

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string format_number(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[400];
  const auto end =
      std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed, decimals).ptr;
  std::string out(digits, end);
  if (decimals > 0) out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out == "-0" ? "0" : out;
}

}  // namespace heed
