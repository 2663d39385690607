#include "heed/base/words.h"

namespace heed {

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

}  // namespace heed
