// SentencePiece as a Tokenizer: the two rows of the table of kinds that need the library.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <filesystem>
#include <memory>

#include "heed/data/tokenizer.h"

namespace heed {

// As learn_tokenizer(), of lines that are UTF-8; options.kind is "unigram" or "bpe". Ids 0 to 3 are
// pad, unknown, begin, end; then come the 256 bytes.
std::shared_ptr<const Tokenizer> learn_sentencepiece(const TextStream& texts,
                                                     const TokenizerOptions& options);

// Any model file of SentencePiece; it says itself of which kind it is.
std::shared_ptr<const Tokenizer> load_sentencepiece(const std::filesystem::path& path);

}  // namespace heed
