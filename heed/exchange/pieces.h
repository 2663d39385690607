// What foreign folders have beside their weights: SentencePiece models, tables of positions.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heed/data/sentencepiece.h"
#include "heed/exchange/foreign_model.h"

namespace heed {

struct ImportOptions {
  // SentencePiece models that cut the texts, where a folder does not have them, or others.
  std::optional<std::filesystem::path> source_pieces = {}, target_pieces = {};
  std::optional<bool> source_end = {};  // none: as the files say
};

// Throws Error for a pointer of Git LFS in the file's place, too.
std::shared_ptr<const PieceCutter> read_cutter(const std::filesystem::path& path);

struct CutterPair {
  std::shared_ptr<const PieceCutter> source, target;
};
// Those of the options, or source.spm and target.spm, or one *.spm or *.model for both, in the
// folder or in the one around it. None where there are none.
CutterPair piece_cutters(const std::filesystem::path& folder, const ImportOptions& options);

// "<s>", or what it becomes where a vocabulary has that already: for a begin that is added.
std::string new_begin(const std::vector<std::string>& pieces);

// The name that heed has for the positions of a table [P, D]: one of the sinusoids, or "learned".
std::string position_named(const Array& table);

}  // namespace heed
