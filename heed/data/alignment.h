// Word alignments (base/alignment.h) between the pieces that models see and the words that people
// see.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <span>

#include "heed/base/alignment.h"

namespace heed {

// From words to pieces: every piece of a word to every piece of a word linked with it. Here and
// back links stay as probable as they are.
// `source_word` and `target_word` say which word each piece belongs to (Sentence::word).
Links to_pieces(std::span<const Link> words, std::span<const int32_t> source_word,
                std::span<const int32_t> target_word);

// From pieces to words: two words are linked if any of their pieces are. Pieces that belong to no
// word (-1) are passed over.
Links to_words(std::span<const Link> pieces, std::span<const int32_t> source_word,
               std::span<const int32_t> target_word);

}  // namespace heed
