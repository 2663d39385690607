// The few things data does with bare text. A word, here and in alignments, is what stands between
// ASCII whitespace (base/words.h).
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/words.h"

namespace heed {

// A newline as an entry of a vocabulary, and as it is shown.
inline constexpr char kNewline[] = "<newline>", kShownNewline[] = "⏎";

// The parts of `text` between the separators, empty ones included: "a\t\tb" has three.
std::vector<std::string_view> split_fields(std::string_view text, char separator);

// The characters of `text` (code points), borrowed from it. A byte that begins no character counts
// as one.
std::vector<std::string_view> split_characters(std::string_view text);

// For each offset into `text`: the number of the word that stands there or, in whitespace, of the
// one after it (at the end: before it). Offsets must ascend. 0 everywhere if there are no words.
std::vector<int32_t> words_at(std::string_view text, std::span<const size_t> offsets);

// 1234567 as "1,234,567", for people to read.
std::string grouped(int64_t number);

}  // namespace heed
