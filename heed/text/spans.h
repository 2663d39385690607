// What in a text is not words and must come through a translation as it is.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "heed/text/sentences.h"

namespace heed {

// A stretch of text that is kept. Emoji say nothing to grammar; the others stand where a name
// could.
struct KeptSpan {
  TextSpan span;
  bool emoji = false;
  bool operator==(const KeptSpan&) const = default;
};

// In order and disjoint: addresses of the web, of mail and of machines, files and their paths,
// versions, placeholders (%s, %1$s, %(name)s, {name}, {{name}}, ${name}, $NAME, __NAME__, :name,
// [X1X]), tags and entities that stand in plain text, code between backticks and what is escaped in
// it (\n), references ([1]), @names and #names, emoji and faces made of signs.
std::vector<KeptSpan> find_kept(std::string_view text);

}  // namespace heed
