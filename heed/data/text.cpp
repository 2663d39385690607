#include "heed/data/text.h"

#include <algorithm>

#include "heed/base/check.h"
#include "heed/base/unicode.h"

namespace heed {

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
