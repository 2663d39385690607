// Hugging Face's MarianMT folders (OPUS-MT): config.json, source.spm, target.spm, vocab.json, and
// weights as safetensors or in PyTorch's own form.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>

#include "heed/exchange/foreign_model.h"
#include "heed/exchange/pieces.h"

namespace heed {

// The tokenizers alone, of tables with so many rows.
TokenizerPair read_marian_mt_tokenizers(const std::filesystem::path& folder, int64_t source_rows,
                                        int64_t target_rows);

ForeignModel read_hugging_face(const std::filesystem::path& folder, const ImportOptions& options);

// Writes heed's Transformer to the new folder `to`.
void write_hugging_face(const ModelFolder& model, const std::filesystem::path& to);

}  // namespace heed
