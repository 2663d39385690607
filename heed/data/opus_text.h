// What OPUS-MT's packages do to a text before SentencePiece cuts it (their preprocess.sh):
// full-width and typographic punctuation becomes ASCII, control characters become spaces, spaces
// become one, and those at the ends go.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

struct PlainText {
  std::string text;
  std::vector<size_t> from;  // where each byte of it, and its end, stood before
};
// Of UTF-8.
PlainText opus_text(std::string_view text);

}  // namespace heed
