// Other toolkits' models, whatever they are: recognised by what is in the folder or the file.
//
//   CTranslate2     a folder with model.bin and vocabularies
//   Hugging Face    a folder of MarianMT: config.json with a model_type
//   Marian          a folder with decoder.yml, .npz or .bin, or such a file
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>

#include "heed/exchange/foreign_model.h"
#include "heed/exchange/pieces.h"

namespace heed {

// Reads all of it and checks that it is a model that heed can compute. Throws Error that says what
// it is instead, or what cannot be.
ForeignModel read_foreign(const std::filesystem::path& path, const ImportOptions& options = {});

}  // namespace heed
