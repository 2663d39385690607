// config.json of a model's folder, its keys in their order: for who reads it, and for training,
// which writes it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "heed/translation/model_folder.h"

namespace heed {

inline constexpr int kFolderFormat = 1;

// Throws Error that says what it is instead.
nlohmann::ordered_json read_config(const std::filesystem::path& folder);

// The names that a tokenizer's file may have in a model's folder.
std::vector<std::string> tokenizer_names();

// A model with these tokenizers, whose parameters come from `params`.
ModelFolder assembled(const std::filesystem::path& path, const ModelConfig& config,
                      const TokenizerPair& tokenizers, const Params& params);

}  // namespace heed
