// A model of heed's on its way to another toolkit's files.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heed/exchange/foreign_model.h"

namespace heed {

// Throws Error, beginning with `to`, for what only heed's Transformers have: scores but scaled dot
// products, weights but soft ones, rotary positions, language models, weights of eight bits.
void require_plain_transformer(const ModelFolder& model, const std::string& to);

// Parameters by name, on the host.
Arrays parameters_of(const ModelFolder& model);

// The table of positions, as many rows as other toolkits have; or all that were learnt.
Array positions_table(const ModelFolder& model, const Arrays& parameters);

// Pieces by id, as a SentencePiece model or a list of words spells them.
std::vector<std::string> pieces_of(const Tokenizer& tokenizer);

// Copies the SentencePiece models of the model's folder, if it has any, as source.spm and
// target.spm; whether there were some.
bool copy_pieces(const ModelFolder& model, const std::filesystem::path& to);

// Under this key of other toolkits' config.json, which they pass over: how heed searches with the
// model, for who brings it back.
inline constexpr const char* kSearchKey = "heed_search";
// And whether a text may spell special pieces (PieceTable::spelt).
inline constexpr const char* kSpeltKey = "heed_spelt";

// A new folder. Throws Error if it is there and not empty.
void make_empty(const std::filesystem::path& folder);

}  // namespace heed
