// Words as data has them: what stands between ASCII whitespace, the convention of Pharaoh files and
// of every aligner. Other spaces of Unicode are part of a word (base/unicode.h knows them).
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string_view>
#include <vector>

namespace heed {

constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The words of `text`, borrowed from it.
std::vector<std::string_view> split_words(std::string_view text);

}  // namespace heed
