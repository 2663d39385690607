#include "heed/text/tokens.h"

#include <algorithm>

#include "heed/base/unicode.h"
#include "heed/base/words.h"
#include "heed/text/characters.h"

namespace heed {
namespace {

bool is_word_character(char32_t c) { return is_letter(c) || is_number(c) || joins_before(c); }

char32_t first_character(std::string_view text) {
  const size_t bytes = character_bytes(text);
  return bytes == 0 ? U'\0' : decode_utf8(text.substr(0, bytes))[0];
}

bool whole_at(std::string_view text, size_t at, size_t length) {
  const auto goes_on = [](char32_t c) { return c != 0 && is_word_character(c); };
  const char32_t first = first_character(text.substr(at));
  if (at > 0 && goes_on(first)) {
    size_t before = at - 1;
    while (before > 0 && (static_cast<unsigned char>(text[before]) & 0xC0) == 0x80) --before;
    if (goes_on(first_character(text.substr(before)))) return false;
  }
  const char last = text[at + length - 1];
  const bool word_end =
      static_cast<unsigned char>(last) >= 0x80 || std::isalnum(static_cast<unsigned char>(last));
  return !word_end || at + length >= text.size() ||
         !goes_on(first_character(text.substr(at + length)));
}

std::vector<std::vector<size_t>> letters_by_word(const std::vector<TextToken>& tokens) {
  std::vector<std::vector<size_t>> out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (out.size() <= tokens[i].word) out.resize(tokens[i].word + 1);
    if (tokens[i].letters) out[tokens[i].word].push_back(i);
  }
  return out;
}

}  // namespace

std::vector<TextToken> tokens_of(std::string_view text, std::span<const TextSpan> kept) {
  std::vector<TextToken> out;
  size_t word = 0, next_kept = 0;
  bool in_word = false;
  for (size_t i = 0; i < text.size();) {
    if (is_space(text[i])) {
      word += in_word, in_word = false;
      ++i;
      continue;
    }
    in_word = true;
    while (next_kept < kept.size() && kept[next_kept].begin < i) ++next_kept;
    if (next_kept < kept.size() && kept[next_kept].begin == i) {
      const size_t end = kept[next_kept].end;
      out.push_back({i, end, word, true});
      // Words inside what is kept count, too.
      for (; i < end; ++i) {
        if (is_space(text[i]))
          word += in_word, in_word = false;
        else
          in_word = true;
      }
      continue;
    }
    const size_t bytes = std::max<size_t>(character_bytes(text.substr(i)), 1);
    const char32_t c = first_character(text.substr(i));
    const bool letters = is_word_character(c);
    const bool goes_on = letters && !out.empty() && out.back().letters && out.back().end == i &&
                         !is_written_unspaced(c) &&
                         !(next_kept > 0 && kept[next_kept - 1].end == i);
    if (goes_on)
      out.back().end += bytes;
    else
      out.push_back({i, i + bytes, word, letters});
    i += bytes;
  }
  return out;
}

TokenLinks token_links(const std::vector<TextToken>& source, const std::vector<TextToken>& target,
                       std::span<const Link> links) {
  TokenLinks out(target.size());
  const auto in_order = [&](const std::vector<size_t>& s, const std::vector<size_t>& t) {
    if (s.empty() || t.empty()) return;
    for (size_t k = 0; k < t.size(); ++k) out[t[k]].push_back(s[k * s.size() / t.size()]);
    for (size_t k = 0; k < s.size() && s.size() > t.size(); ++k)
      out[t[k * t.size() / s.size()]].push_back(s[k]);
  };
  const auto s = letters_by_word(source), t = letters_by_word(target);
  if (links.empty()) {
    std::vector<size_t> all_s, all_t;
    for (const auto& word : s) all_s.insert(all_s.end(), word.begin(), word.end());
    for (const auto& word : t) all_t.insert(all_t.end(), word.begin(), word.end());
    in_order(all_s, all_t);
  }
  for (const Link& link : links) {
    if (link.source < 0 || link.target < 0) continue;
    const auto sw = static_cast<size_t>(link.source), tw = static_cast<size_t>(link.target);
    if (sw < s.size() && tw < t.size()) in_order(s[sw], t[tw]);
  }
  for (auto& list : out) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return out;
}

std::optional<size_t> find_whole(std::string_view text, std::string_view part, size_t from,
                                 std::span<const TextSpan> taken) {
  for (size_t at = text.find(part, from); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    const bool free = std::none_of(taken.begin(), taken.end(), [&](const TextSpan& t) {
      return at < t.end && t.begin < at + part.size();
    });
    if (free && whole_at(text, at, part.size())) return at;
  }
  return std::nullopt;
}

size_t count_whole(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t from = 0;;) {
    const auto at = find_whole(text, part, from, {});
    if (!at) return count;
    ++count;
    from = *at + part.size();
  }
}

}  // namespace heed
