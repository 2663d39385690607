#include "heed/text/signs.h"

#include <algorithm>
#include <iterator>

#include "heed/base/unicode.h"
#include "heed/text/characters.h"

namespace heed {
namespace {

char32_t get(std::u32string_view text, size_t at) { return at < text.size() ? text[at] : U'\0'; }
bool is_one_of(char32_t c, std::u32string_view set) {
  return c != 0 && set.find(c) != std::u32string_view::npos;
}

}  // namespace

bool may_open(char32_t c) { return may_close(c) && c != ')' && c != ']' && c != '}'; }

bool is_low_quote(std::u32string_view text, size_t at) {
  return get(text, at) == ',' && get(text, at + 1) == ',' && get(text, at + 2) != ',';
}

size_t skip_opening(std::u32string_view text, size_t at) {
  while (may_open(get(text, at)) || is_low_quote(text, at)) at += is_low_quote(text, at) ? 2 : 1;
  return at;
}

size_t quotation_begin(std::u32string_view text, size_t begin, size_t close) {
  static constexpr std::u32string_view kOpen = U"“‘「『", kClose = U"”’」』";
  constexpr size_t kLongest = 500;  // no further back: not from every mark to the beginning
  const size_t kind = kClose.find(text[close - 1]);
  if (kind == std::u32string_view::npos) return begin;
  const size_t from = std::max(begin, close - std::min(close, kLongest));
  const size_t found = text.substr(from, close - 1 - from).rfind(kOpen[kind]);
  return found == std::u32string_view::npos ? begin : from + found;
}

size_t title_end(std::u32string_view text, size_t at) {
  constexpr size_t kLongest = 60;
  if (get(text, at) != U'《') return at;
  const size_t end = text.substr(at, kLongest).find(U'》');
  return end == std::u32string_view::npos ? at : at + end + 1;
}

size_t omission_end(std::u32string_view text, size_t at) {
  const char32_t open = get(text, at);
  if (open != '(' && open != '[') return at;
  size_t end = at + 1;
  constexpr size_t kLongest = 6;
  while (end < at + kLongest && (is_full_stop(get(text, end)) || get(text, end) == U'…')) ++end;
  return end > at + 1 && get(text, end) == (open == '(' ? U')' : U']') ? end + 1 : at;
}

size_t face_at(std::u32string_view text, size_t at) {
  if (!is_one_of(get(text, at), U":;=")) return 0;
  const size_t mouth = at + 1 + is_one_of(get(text, at + 1), U"-'");
  if (!is_one_of(get(text, mouth), U")(DPp|/*")) return 0;
  return mouth + 1 == text.size() || is_white_space(get(text, mouth + 1)) ? mouth + 1 - at : 0;
}

size_t aside_at(std::u32string_view text, size_t at) {
  if (!is_one_of(get(text, at), U"(（")) return 0;
  size_t end = at + 1;
  while (end < at + 5 && is_letter(get(text, end))) ++end;
  return end > at + 1 && is_one_of(get(text, end), U")）") ? end + 1 - at : 0;
}

bool is_particle(std::u32string_view text, size_t at) {
  const char32_t next = get(text, at + 1);
  return is_one_of(get(text, at), U"をがのとにはもへ") &&
         ((next >= 0x30A0 && next <= 0x30FF) || (next >= 0x4E00 && next <= 0x9FFF));
}

bool is_list_letter(std::u32string_view word) {
  static constexpr std::u32string_view kRoman[] = {U"ii",   U"iii", U"iv", U"vi", U"vii",
                                                   U"viii", U"ix",  U"xi", U"xii"};
  if (word.size() == 1) return is_letter(word[0]);
  return std::find(std::begin(kRoman), std::end(kRoman), lower_case(word)) != std::end(kRoman);
}

bool is_roman(std::u32string_view word) {
  return (word.size() > 1 || word == U"V" || word == U"X") &&
         std::all_of(word.begin(), word.end(), [](char32_t c) { return is_one_of(c, U"IVXLCDM"); });
}

bool is_lettered(std::u32string_view word) {
  size_t part = 0, parts = 1;
  for (const char32_t c : word) {
    if (c == '.' || c == '-') {
      if (part == 0 && c == '.') return false;
      parts += c == '.', part = 0;
    } else if (!is_letter(c) || ++part > 2) {
      return false;
    }
  }
  return parts > 1;
}

}  // namespace heed
