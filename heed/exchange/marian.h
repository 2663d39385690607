// Marian's models: archives of NumPy's (.npz) or Marian's own (.bin), with decoder.yml,
// vocabularies and SentencePiece models beside them, as OPUS-MT packages and Firefox's models have
// them.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "heed/exchange/foreign_model.h"
#include "heed/exchange/pieces.h"

namespace heed {

struct MarianArchive {
  Arrays arrays;       // as the names say, [in, out]; int8 ones divided by their multiplier
  std::string config;  // YAML
};
// An .npz, or a .bin of version 1 whose arrays are f32, f16 or int8 and int16 of any CPU's.
MarianArchive parse_marian(std::string_view bytes, const std::string& what);
MarianArchive parse_marian_bin(std::string_view bytes, const std::string& what);

// A folder, or its decoder.yml, .npz or .bin file.
ForeignModel read_marian(const std::filesystem::path& path, const ImportOptions& options);

// Is this a folder of Marian's, or a file?
bool is_marian(const std::filesystem::path& path);

// Writes heed's Transformer to the new folder `to`: model.npz, decoder.yml and vocabularies.
void write_marian(const ModelFolder& model, const std::filesystem::path& to);

}  // namespace heed
