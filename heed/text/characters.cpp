#include "heed/text/characters.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "heed/base/unicode.h"

namespace heed {
namespace {

// Sorted, disjoint, both ends included.
struct Range {
  char32_t first, last;
};

#include "heed/text/break_tables.inc"

constexpr Range kUnspaced[] = {
    {0xE00, 0xE3A},   {0xE40, 0xEDF},   {0x1000, 0x109F}, {0x1780, 0x17FF},   {0x3000, 0x30FF},
    {0x31F0, 0x31FF}, {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF},   {0xFF01, 0xFF0F},
    {0xFF1A, 0xFF20}, {0xFF3B, 0xFF40}, {0xFF5B, 0xFF9F}, {0x20000, 0x3FFFF},
};

bool within(std::span<const Range> table, char32_t c) {
  const auto after =
      std::upper_bound(table.begin(), table.end(), c,
                       [](char32_t value, const Range& range) { return value < range.first; });
  return after != table.begin() && c <= std::prev(after)->last;
}

constexpr char32_t kJoiner = 0x200D, kEmojiSelector = 0xFE0F, kTextSelector = 0xFE0E,
                   kKeycap = 0x20E3;

bool is_flag_letter(char32_t c) { return c >= 0x1F1E6 && c <= 0x1F1FF; }
bool is_skin_tone(char32_t c) { return c >= 0x1F3FB && c <= 0x1F3FF; }
bool is_tag(char32_t c) { return c >= 0xE0020 && c <= 0xE007F; }

}  // namespace

bool is_lower(char32_t c) { return within(kLower, c); }
bool is_upper(char32_t c) { return within(kUpper, c); }
bool ends_sentence(char32_t c) { return within(kSTerm, c) || c == U'…'; }
bool is_full_stop(char32_t c) { return c == '.' || c == 0x2024 || c == 0xFE52 || c == 0xFF0E; }
bool may_close(char32_t c) { return within(kClose, c); }
bool goes_on(char32_t c) { return within(kSContinue, c); }
bool joins_before(char32_t c) { return within(kExtend, c) || within(kFormat, c); }
bool is_written_unspaced(char32_t c) { return within(kUnspaced, c); }

bool is_letter(char32_t c) {
  if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return !is_white_space(c) && !is_punctuation(c) && !is_symbol(c) && !is_number(c) &&
         !joins_before(c) && c > 0x9F;
}

size_t emoji_at(std::u32string_view text, size_t at) {
  const auto is = [&](size_t i, auto holds) { return i < text.size() && holds(text[i]); };
  const auto equals = [](char32_t wanted) { return [=](char32_t c) { return c == wanted; }; };
  if (at >= text.size()) return 0;
  size_t end = at + 1;
  const char32_t c = text[at];
  if (is_flag_letter(c)) return is(end, is_flag_letter) ? 2 : 1;
  if ((c >= '0' && c <= '9') || c == '#' || c == '*') {  // a keycap: 1️⃣
    end += is(end, equals(kEmojiSelector));
    return is(end, equals(kKeycap)) ? end + 1 - at : 0;
  }
  // © and the like are emoji only where they say so.
  const bool selected = is(end, equals(kEmojiSelector));
  if (!(within(kEmoji, c) || (within(kPictographic, c) && (selected || c >= 0x1F000)))) return 0;
  if (is(end, equals(kTextSelector))) return 0;
  for (;;) {
    while (is(end, equals(kEmojiSelector)) || is(end, is_skin_tone) || is(end, is_tag)) ++end;
    if (!is(end, equals(kJoiner)) || end + 1 >= text.size() ||
        !(within(kPictographic, text[end + 1]) || within(kEmoji, text[end + 1])))
      return end - at;
    end += 2;
  }
}

}  // namespace heed
