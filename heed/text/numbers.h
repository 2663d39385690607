// Numbers in a text and in its translation.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/text/tokens.h"

namespace heed {

// Words that have a digit, without punctuation around them: "1,000.50", "3rd", "A320", "12:30".
std::vector<TextSpan> find_numbers(std::string_view text);

// The digits of a number as they would be in any language: without what separates them.
std::string number_digits(std::string_view number);

// The target with the source's numbers where it has others: a number that is linked with one of the
// source, and is not there, is replaced by it.
std::string repair_numbers(const AlignedPair& pair);

// Numbers of the source beyond twelve of which the target has none, with the sign of a currency or
// the % at them: hardly anybody spells these out.
std::vector<TextSpan> lost_numbers(std::string_view source, std::string_view target);

}  // namespace heed
