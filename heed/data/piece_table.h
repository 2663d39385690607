// A tokenizer of another toolkit's model: pieces have the ids that a table gives them, by their
// spelling, and the special ones may stand anywhere. A text is cut by a SentencePiece model, whose
// own numbers do not count, or at spaces.
//
//   table[cut(text)], pieces that the table does not have being unknown
//
// On disk: NAME.pieces, a JSON object, and where a SentencePiece model cuts, NAME.spm beside it.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "heed/data/sentencepiece.h"
#include "heed/data/tokenizer.h"

namespace heed {

inline constexpr const char* kPiecesSuffix = ".pieces";

struct PieceTable {
  std::vector<std::string> pieces;  // by id; of equal ones a text gets the first
  SpecialIds special = {};
  std::shared_ptr<const PieceCutter> cutter = {};  // none: cut at spaces
  bool opus_text = false;                          // texts are made plain before (opus_text.h)
  // Pieces that a text has where it spells them, as Hugging Face's tokenizers have </s> and <unk>;
  // what stands between is cut by itself.
  std::vector<std::string> spelt = {};
};

// Throws Error, beginning with `what`, for special ids that are not in the table.
//
// A text that begins with >>code<< asks for a target language (Johnson et al., 2017): the code is a
// piece of its own. One that the table does not have is an Error that names those that it has; in a
// table without any it is unknown.
std::shared_ptr<const Tokenizer> piece_table(PieceTable table, const std::string& what);

std::shared_ptr<const Tokenizer> load_piece_table(const std::filesystem::path& path);

// What `tokenizer` is made of, if it is such a one.
const PieceTable* as_piece_table(const Tokenizer& tokenizer);

}  // namespace heed
