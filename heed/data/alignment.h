// Word alignments: links between the words of a sentence and those of its translation.
//
// In files they are written in Pharaoh's form, one line a pair: "0-0 1-2 2-1", source first,
// counted from 0. Models see pieces, people words; the two functions at the end go between.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

struct Link {
  int32_t source = 0, target = 0;
  auto operator<=>(const Link&) const = default;
};

using Links = std::vector<Link>;  // ascending, each once

// The links of a line of a Pharaoh file; nothing if it is not one. An empty line has no links.
std::optional<Links> parse_pharaoh(std::string_view line);

std::string to_pharaoh(std::span<const Link> links);

// From words to pieces: every piece of a word to every piece of a word linked with it.
// `source_word` and `target_word` say which word each piece belongs to (Sentence::word).
Links to_pieces(std::span<const Link> words, std::span<const int32_t> source_word,
                std::span<const int32_t> target_word);

// From pieces to words: two words are linked if any of their pieces are. Pieces that belong to no
// word (-1) are passed over.
Links to_words(std::span<const Link> pieces, std::span<const int32_t> source_word,
               std::span<const int32_t> target_word);

}  // namespace heed
