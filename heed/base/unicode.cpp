#include "heed/base/unicode.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>

#include "heed/base/check.h"

namespace heed {
namespace {

// Sorted, disjoint, both ends included.
struct Range {
  char32_t first, last;
};
// Every `step`-th code point from first to last has its lower case `shift` further on.
struct Lowering {
  char32_t first, last, step;
  int32_t shift;
};

#include "heed/base/unicode_tables.inc"

// The entry of a sorted table that may hold `c`, or null.
template <class Entry>
const Entry* find(std::span<const Entry> table, char32_t c) {
  const auto after =
      std::upper_bound(table.begin(), table.end(), c,
                       [](char32_t value, const Entry& entry) { return value < entry.first; });
  if (after == table.begin() || c > std::prev(after)->last) return nullptr;
  return &*std::prev(after);
}

bool within(std::span<const Range> table, char32_t c) { return find(table, c) != nullptr; }

constexpr char32_t kSigma = 0x3A3, kFinalSigma = 0x3C2, kSmallSigma = 0x3C3;
constexpr char32_t kDottedI = 0x130, kDotAbove = 0x307;

char32_t simple_lower(char32_t c) {
  const Lowering* entry = find(std::span<const Lowering>(kLower), c);
  if (!entry || (c - entry->first) % entry->step != 0) return c;
  return static_cast<char32_t>(static_cast<int32_t>(c) + entry->shift);
}

// Final_Sigma of the Unicode standard (table 3-17): a cased letter before and none after, where
// what has no case of its own (accents, apostrophes) is looked through.
bool ends_word(std::u32string_view text, size_t sigma) {
  const auto ignorable = [](char32_t c) { return within(kCaseIgnorable, c); };
  const auto before = std::find_if_not(text.rbegin() + static_cast<ptrdiff_t>(text.size() - sigma),
                                       text.rend(), ignorable);
  if (before == text.rend() || !within(kCased, *before)) return false;
  const auto after =
      std::find_if_not(text.begin() + static_cast<ptrdiff_t>(sigma) + 1, text.end(), ignorable);
  return after == text.end() || !within(kCased, *after);
}

// The code point at `at`, which moves behind it; nothing, and `at` stays, if there is none.
std::optional<char32_t> next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(at);
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at < length) return {};
  char32_t c = lead & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return {};
    c = c << 6 | (byte(at + i) & 0x3F);
  }
  constexpr char32_t kShortest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (c < kShortest[length] || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return {};
  at += length;
  return c;
}

}  // namespace

std::optional<size_t> utf8_error(std::string_view text) {
  for (size_t at = 0; at < text.size();)
    if (!next_code_point(text, at)) return at;
  return {};
}

size_t character_bytes(std::string_view text) {
  size_t at = 0;
  if (!text.empty()) next_code_point(text, at);
  return at;
}

size_t ill_formed_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0xC2 || lead > 0xF4) return 1;
  // What may follow a lead byte, so that no form is too long, a surrogate or beyond U+10FFFF.
  const unsigned least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  size_t n = 1;
  while (n < std::min(length, text.size()) && byte(n) >= (n == 1 ? least : 0x80) &&
         byte(n) <= (n == 1 ? most : 0xBF))
    ++n;
  return n;
}

std::string repaired_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t bad = utf8_error(text).value_or(text.size());
    out += text.substr(0, bad);
    text.remove_prefix(bad);
    if (text.empty()) break;
    out += "\uFFFD";
    text.remove_prefix(ill_formed_bytes(text));
  }
  return out;
}

std::optional<std::string> encoding_trouble(std::string_view line) {
  // Every second byte of Latin letters; lines of their own are a few, in binary files and by hand.
  const auto zeros = static_cast<size_t>(std::count(line.begin(), line.end(), '\0'));
  const bool marked = line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF");
  const bool utf16 = marked || (zeros >= 4 && 3 * zeros > line.size());
  const std::optional<size_t> bad = utf8_error(line);
  if (!bad && !utf16) return {};
  std::string out = "not UTF-8: ";
  if (bad) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    const auto byte = static_cast<unsigned char>(line[*bad]);
    out += "byte " + std::to_string(*bad + 1) + " is 0x" + kDigits[byte >> 4] + kDigits[byte & 15];
  } else {
    out += std::to_string(zeros) + " of " + std::to_string(line.size()) + " bytes are 0";
  }
  return out + "; convert the file first, as with iconv -f " + (utf16 ? "utf-16" : "latin1") +
         " -t utf-8";
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const std::optional<char32_t> c = next_code_point(text, at);
    require(c.has_value(), "decode_utf8: byte ", at + 1, " of ", text.size(), " is not UTF-8");
    out += *c;
  }
  return out;
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
    const auto rest = [&](int shift) { put(0x80 | (c >> shift & 0x3F)); };
    if (c < 0x80)
      put(c);
    else if (c < 0x800)
      put(0xC0 | c >> 6), rest(0);
    else if (c < 0x10000)
      put(0xE0 | c >> 12), rest(6), rest(0);
    else
      put(0xF0 | c >> 18), rest(12), rest(6), rest(0);
  }
  return out;
}

bool is_white_space(char32_t c) {
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D) || c >= 0x1C;
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool is_punctuation(char32_t c) { return within(kPunctuation, c); }
bool is_symbol(char32_t c) { return within(kSymbols, c); }
bool is_number(char32_t c) { return within(kNumbers, c); }
bool is_right_to_left(char32_t c) { return within(kRightToLeft, c); }

int columns_of(char32_t c) {
  if (c < 0x300) return 1;
  return within(kNoColumn, c) ? 0 : within(kTwoColumns, c) ? 2 : 1;
}

std::u32string lower_case(std::u32string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const char32_t c = text[i];
    if (c < 0x80)
      out += c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c;
    else if (c == kSigma)
      out += ends_word(text, i) ? kFinalSigma : kSmallSigma;
    else if (c == kDottedI)
      (out += U'i') += kDotAbove;
    else
      out += simple_lower(c);
  }
  return out;
}

std::u32string_view strip_right(std::u32string_view text) {
  while (!text.empty() && is_white_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view strip_right(std::string_view utf8) {
  while (!utf8.empty()) {
    size_t last = utf8.size() - 1;
    while (last > 0 && (utf8[last] & 0xC0) == 0x80) --last;
    size_t at = last;
    const std::optional<char32_t> c = next_code_point(utf8, at);
    if (!c || !is_white_space(*c)) break;
    utf8 = utf8.substr(0, last);
  }
  return utf8;
}

std::vector<std::u32string_view> split_at_white_space(std::u32string_view text) {
  std::vector<std::u32string_view> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    while (end < text.size() && !is_white_space(text[end])) ++end;
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace heed
