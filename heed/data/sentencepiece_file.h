// What a SentencePiece model says of itself that the library does not tell, read from its file: a
// message in the form of protocol buffers (sentencepiece_model.proto).
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "heed/data/piece_sampler.h"

namespace heed {

struct SentencePieceFacts {
  std::string_view kind = "unigram";  // or "bpe", or "sentencepiece" for the library's others
  bool user_defined = false;          // has pieces that a user set, which stand wherever they fit
  // Its pieces write every text as it stands: nothing is normalized, every space counts, and bytes
  // stand for what has no piece. A space before the text is taken for granted.
  bool exact = false;
};

// Of a model that the library has taken, here and below.
SentencePieceFacts facts_of(std::string_view model);

// The pieces by id.
std::vector<ScoredPiece> scored_pieces(std::string_view model);

// The same model, but that it puts no space before a text.
std::string without_prefix(std::string model);

}  // namespace heed
