// Codes and names of languages, as LibreTranslate's clients write them.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace heed::serve {

// The one code of a language that has several: "zh", "zh_CN" and "zh-hans" are "zh-Hans"; "pb" is
// "pt-BR". Others in lower case, with "-".
std::string language_code(std::string_view given);

// "English"; a code that is not known is its own name.
std::string language_name(std::string_view code);

struct Detected {
  std::string language;
  double confidence = 0;  // 0 to 100
};

// What the text may be written in, likeliest first, three at most; only `known` ones. Nothing
// where none of them can be told.
std::vector<Detected> detect_languages(std::string_view text,
                                       const std::vector<std::string>& known);

// Whether there are only emoji, spaces and the like: nothing that a language has a word for.
bool has_no_words(std::string_view text);

}  // namespace heed::serve
