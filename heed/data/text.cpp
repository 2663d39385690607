#include "heed/data/text.h"

#include <algorithm>

#include "heed/base/check.h"

namespace heed {
namespace {

// How many bytes the well-formed character at the beginning of `text` has; 0 if none stands there
// (Unicode 15, table 3-7).
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) -> unsigned {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const unsigned first = byte(0), second = byte(1);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if ((first & 0xF0) == 0xE0) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second > 0x9F;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && second < 0x90;
    const bool too_large = first == 0xF4 && second > 0x8F;
    return continues(1) && continues(2) && continues(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t i = 0; i < text.size();) {
    if (is_space(text[i])) {
      ++i;
      continue;
    }
    const size_t begin = i;
    while (i < text.size() && !is_space(text[i])) ++i;
    words.push_back(text.substr(begin, i - begin));
  }
  return words;
}

std::vector<std::string_view> split_fields(std::string_view text, char separator) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t end = text.find(separator);
    fields.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return fields;
    text.remove_prefix(end + 1);
  }
}

std::vector<std::string_view> split_characters(std::string_view text) {
  std::vector<std::string_view> characters;
  while (!text.empty()) {
    const size_t bytes = std::max<size_t>(1, character_bytes(text));
    characters.push_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return characters;
}

std::vector<int32_t> words_at(std::string_view text, std::span<const size_t> offsets) {
  HEED_ASSERT(std::is_sorted(offsets.begin(), offsets.end()));
  std::vector<int32_t> words;
  words.reserve(offsets.size());
  int32_t begun = 0;  // words that begin at or before `i`
  size_t i = 0;       // everything before it has been looked at
  const auto begins_at = [&](size_t k) {
    return !is_space(text[k]) && (k == 0 || is_space(text[k - 1]));
  };
  for (size_t offset : offsets) {
    while (offset < text.size() && is_space(text[offset])) ++offset;
    for (; i <= offset && i < text.size(); ++i) begun += begins_at(i);
    words.push_back(std::max(0, begun - 1));
  }
  return words;
}

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

}  // namespace heed
