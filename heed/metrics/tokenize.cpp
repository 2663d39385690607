#include "heed/metrics/tokenize.h"

#include <algorithm>
#include <array>
#include <span>

#include "heed/base/check.h"

namespace heed {
namespace {

struct CodeRange {
  char32_t first, last;
};

bool within(std::span<const CodeRange> ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](CodeRange r) { return c >= r.first && c <= r.last; });
}

bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_stop(char32_t c) { return c == '.' || c == ','; }

// ASCII punctuation and space, all but ' , - . (they are looked at together with a neighbour).
bool is_ascii_mark(char32_t c) {
  static constexpr CodeRange kMarks[] = {{0x20, 0x26}, {0x28, 0x2B}, {0x2F, 0x2F},
                                         {0x3A, 0x40}, {0x5B, 0x60}, {0x7B, 0x7E}};
  return c < 0x80 && within(kMarks, c);
}

std::u32string replace_all(std::u32string_view text, std::u32string_view from,
                           std::u32string_view to) {
  std::u32string out;
  size_t at = 0;
  for (size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size())
    (out += text.substr(at, found - at)) += to;
  return out += text.substr(at);
}

std::u32string join(const std::vector<std::u32string_view>& words) {
  std::u32string out;
  for (const std::u32string_view word : words) (out += out.empty() ? U"" : U" ") += word;
  return out;
}

// A space on each side of every character that `is`.
template <class Is>
std::u32string set_off(std::u32string_view text, Is is) {
  std::u32string out;
  out.reserve(text.size() + text.size() / 2);
  for (const char32_t c : text)
    if (is(c))
      ((out += ' ') += c) += ' ';
    else
      out += c;
  return out;
}

// A space on each side of one character of each pair (a, b) with is_a(a) and is_b(b): `off` says
// which. Left to right, no character in two pairs, as a regular expression would go.
enum class Off { first, second };
template <class IsA, class IsB>
std::u32string set_off_in_pair(std::u32string_view text, IsA is_a, IsB is_b, Off off) {
  std::u32string out;
  out.reserve(text.size() + text.size() / 2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (i + 1 == text.size() || !is_a(text[i]) || !is_b(text[i + 1])) {
      out += text[i];
      continue;
    }
    const char32_t a = text[i], b = text[++i];
    if (off == Off::first)
      (((out += ' ') += a) += ' ') += b;
    else
      (((out += a) += ' ') += b) += ' ';
  }
  return out;
}

// Points and commas stay within numbers, hyphens stay outside of them.
std::u32string split_numbers(std::u32string text) {
  const auto no_digit = [](char32_t c) { return !is_digit(c); };
  text = set_off_in_pair(text, no_digit, is_stop, Off::second);
  text = set_off_in_pair(text, is_stop, no_digit, Off::first);
  return set_off_in_pair(
      text, is_digit, [](char32_t c) { return c == '-'; }, Off::second);
}

std::u32string decode_entities(std::u32string text) {
  if (text.find('&') == text.npos) return text;
  text = replace_all(text, U"&quot;", U"\"");
  text = replace_all(text, U"&amp;", U"&");
  text = replace_all(text, U"&lt;", U"<");
  return replace_all(text, U"&gt;", U">");
}

// mteval-v13a of NIST.
std::u32string tokenize_13a(std::u32string_view line) {
  std::u32string text = replace_all(line, U"<skipped>", U"");
  text = replace_all(text, U"-\n", U"");
  text = decode_entities(replace_all(text, U"\n", U" "));
  return split_numbers(set_off(U" " + text + U" ", is_ascii_mark));
}

std::u32string tokenize_none(std::u32string_view line) { return std::u32string(line); }

// mteval-v14 of NIST: every script's punctuation and symbols.
std::u32string tokenize_intl(std::u32string_view line) {
  const auto no_number = [](char32_t c) { return !is_number(c); };
  std::u32string text = set_off_in_pair(line, no_number, is_punctuation, Off::second);
  text = set_off_in_pair(text, is_punctuation, no_number, Off::first);
  return set_off(text, is_symbol);
}

std::u32string tokenize_char(std::u32string_view line) {
  return set_off(line, [](char32_t) { return true; });
}

// Chinese by the character, the rest as 13a. The first range is what sacreBLEU's table says by a
// slip of its notation, and its scores are published: general punctuation, arrows and mathematics
// are set off, and the characters of Extension B (U+20000 on) are not.
std::u32string tokenize_zh(std::u32string_view line) {
  static constexpr CodeRange kChinese[] = {
      {0x2001, 0x2A6D}, {0x2E80, 0x2FDF}, {0x2FF0, 0x303F}, {0x3100, 0x312F}, {0x31A0, 0x31EF},
      {0x3200, 0x4DB5}, {0x4E00, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A}, {0xFA70, 0xFAD9},
      {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0xFF00, 0xFFEF}};
  line = strip_right(line);
  while (!line.empty() && is_white_space(line.front())) line.remove_prefix(1);
  const std::u32string text =
      set_off(line, [](char32_t c) { return c >= 0x2001 && within(kChinese, c); });
  return split_numbers(set_off(text, is_ascii_mark));
}

struct NamedTokenizer {
  std::string_view name;
  BleuTokenizer tokenizer;
};
constexpr std::array<NamedTokenizer, 5> kTokenizers = {{{"13a", tokenize_13a},
                                                        {"none", tokenize_none},
                                                        {"intl", tokenize_intl},
                                                        {"char", tokenize_char},
                                                        {"zh", tokenize_zh}}};

bool is_asian_mark(char32_t c) {
  static constexpr CodeRange kMarks[] = {{0x3001, 0x3002}, {0x3008, 0x3011}, {0x3014, 0x301F},
                                         {0x30FB, 0x30FB}, {0xFF01, 0xFF02}, {0xFF08, 0xFF09},
                                         {0xFF0C, 0xFF0C}, {0xFF0E, 0xFF0E}, {0xFF1A, 0xFF1B},
                                         {0xFF1F, 0xFF1F}, {0xFF61, 0xFF65}};
  return c >= 0x3001 && within(kMarks, c);
}

// Ideographs and what else is a word of its own. Tercom's rules for kana are anchored to the line's
// beginning, where a space already stands: they never apply, and are left out.
bool is_asian_word(char32_t c) {
  static constexpr CodeRange kWords[] = {{0x2E80, 0x2EFF}, {0x31C0, 0x31EF}, {0x3200, 0x4DBF},
                                         {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0xFE30, 0xFE4F}};
  return c >= 0x2E80 && within(kWords, c);
}

bool is_ter_punctuation(char32_t c) {
  return c < 0x80 && std::u32string_view(U".,?:;!\"()").find(c) != std::u32string_view::npos;
}

std::u32string normalize_for_ter(std::u32string_view line) {
  std::u32string text = replace_all(line, U"\n-", U"");
  text = decode_entities(replace_all(text, U"\n", U" "));
  text = set_off(U" " + text + U" ", is_ascii_mark);
  return split_numbers(replace_all(text, U"'s ", U" 's "));
}

}  // namespace

const std::vector<std::string>& bleu_tokenizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const NamedTokenizer& entry : kTokenizers) list.emplace_back(entry.name);
    return list;
  }();
  return names;
}

BleuTokenizer find_bleu_tokenizer(std::string_view name) {
  for (const NamedTokenizer& entry : kTokenizers)
    if (entry.name == name) return entry.tokenizer;
  fail(unknown_name("tokenizer", name, bleu_tokenizer_names()));
}

std::string tokenize_for_bleu(std::string_view line, std::string_view tokenizer) {
  const std::u32string text = find_bleu_tokenizer(tokenizer)(strip_right(decode_utf8(line)));
  return encode_utf8(join(split_at_white_space(text)));
}

std::u32string prepare_for_ter(std::u32string_view line, const TerOptions& options) {
  line = strip_right(line);
  std::u32string text = options.case_sensitive ? std::u32string(line) : lower_case(line);
  if (options.normalized) {
    text = normalize_for_ter(text);
    if (options.asian_support)
      text = set_off(text, [](char32_t c) { return is_asian_word(c) || is_asian_mark(c); });
  }
  if (options.no_punctuation)
    std::erase_if(text, [&](char32_t c) {
      return is_ter_punctuation(c) || (options.asian_support && is_asian_mark(c));
    });
  return join(split_at_white_space(text));
}

}  // namespace heed
