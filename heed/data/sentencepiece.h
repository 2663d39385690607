// SentencePiece as a Tokenizer: the two rows of the table of kinds that need the library.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/tokenizer.h"

namespace heed {

// As learn_tokenizer(), of lines that are UTF-8; options.kind is "unigram" or "bpe". Ids 0 to 3 are
// pad, unknown, begin, end; then come the 256 bytes.
std::shared_ptr<const Tokenizer> learn_sentencepiece(const TextStream& texts,
                                                     const TokenizerOptions& options);

// Any model file of SentencePiece; it says itself of which kind it is.
std::shared_ptr<const Tokenizer> load_sentencepiece(const std::filesystem::path& path);

// How a SentencePiece model cuts a text, whether or not the pieces have ids in it.
class PieceCutter {
 public:
  virtual ~PieceCutter() = default;
  struct Piece {
    std::string text;   // with "▁" for a space
    size_t offset = 0;  // in the text
  };
  virtual std::vector<Piece> cut(std::string_view text) const = 0;
  // Its pieces write every text as it stands (SentencePieceFacts).
  virtual bool exact() const = 0;
  virtual const std::string& file() const = 0;  // its bytes
};
std::shared_ptr<const PieceCutter> load_piece_cutter(const std::filesystem::path& path);

}  // namespace heed
