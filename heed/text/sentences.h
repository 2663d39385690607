// Running text cut into sentences, by the classes of UAX #29 (Unicode text segmentation, section 5)
// and what it leaves to a language: abbreviations, initials, ordinals, quotations. Where it differs
// from the plain rules: docs/text.md.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace heed {

// Bytes of a text.
struct TextSpan {
  size_t begin = 0, end = 0;
  bool operator==(const TextSpan&) const = default;
  size_t size() const { return end - begin; }
};

// The sentences of `text`, in order and disjoint, without the white space around them: all that is
// not white space is in one. A line break ends a sentence. `language` is a code ("en", "de-AT"),
// whose abbreviations are known for en de fr es it pt nl ru; empty or another: what they share.
// Throws Error if the text is not UTF-8.
std::vector<TextSpan> split_sentences(std::string_view text, std::string_view language);

}  // namespace heed
