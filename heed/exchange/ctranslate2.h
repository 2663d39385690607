// CTranslate2's folders: model.bin (binary versions 2 to 6), config.json and vocabularies. A folder
// speaks tokens; where a SentencePiece model lies beside it, or is given, text is cut by that.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "heed/exchange/foreign_model.h"
#include "heed/exchange/pieces.h"

namespace heed {

// The file model.bin, its numbers as f32: those of int8 and int16 divided by their scales.
struct Ctranslate2File {
  uint32_t version = 0, revision = 0;
  std::string specification;
  Arrays arrays;                               // without the scales
  std::map<std::string, std::string> aliases;  // alias to variable
  std::set<std::string> factors;               // single numbers of f32
};
Ctranslate2File parse_ctranslate2(std::string_view bytes, const std::string& what);

ForeignModel read_ctranslate2(const std::filesystem::path& folder, const ImportOptions& options);

// Writes heed's Transformer in `from` to the new folder `to`, binary version 6, in f32.
void write_ctranslate2(const ModelFolder& model, const std::filesystem::path& to);

// The arguments of CTranslate2's translate_batch by which it searches as heed does with this model.
std::string ctranslate2_search(const ModelFolder& model);

}  // namespace heed
