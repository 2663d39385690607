// Words with the punctuation apart, for placing things between them; links between words as links
// between such tokens.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heed/base/alignment.h"
#include "heed/text/sentences.h"

namespace heed {

struct AlignedPair {
  std::string_view source, target;
  std::span<const Link> links;  // between words (base/words.h); none: as if along the diagonal
};

// A run of letters and digits, or one other character; what is kept is one token.
struct TextToken {
  size_t begin = 0, end = 0;
  size_t word = 0;       // between white space (base/words.h)
  bool letters = false;  // else punctuation
};

// `kept` is in order and disjoint.
std::vector<TextToken> tokens_of(std::string_view text, std::span<const TextSpan> kept);

// By target token: the source tokens that it is linked with, ascending. Punctuation has none.
using TokenLinks = std::vector<std::vector<size_t>>;
TokenLinks token_links(const std::vector<TextToken>& source, const std::vector<TextToken>& target,
                       std::span<const Link> links);

// Where `part` is in `text`, from `from` on, not in what is taken, and with no letter or digit that
// goes on at its ends; and how often it is there.
std::optional<size_t> find_whole(std::string_view text, std::string_view part, size_t from,
                                 std::span<const TextSpan> taken);
size_t count_whole(std::string_view text, std::string_view part);

}  // namespace heed
