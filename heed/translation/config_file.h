// config.json of a model's folder, its keys in their order: for who reads it, and for training,
// which writes it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "heed/files/safetensors.h"
#include "heed/translation/model_folder.h"

namespace heed {

// What is written. Folders of format 1, whose config.json and parameters may be without checksums,
// are read, and stay in it.
inline constexpr int kFolderFormat = 2;

// Throws Error that says what it is instead.
nlohmann::ordered_json read_config(const std::filesystem::path& folder);
// The same; nothing if there is none, or one that is not heed's.
std::optional<nlohmann::ordered_json> find_config(const std::filesystem::path& folder);
// With its checksum.
void write_config(const std::filesystem::path& folder, nlohmann::ordered_json json);

// How files of tensors in the folder are read: with checksums, unless config.json is of format 1.
SafetensorsOptions tensor_options(const std::filesystem::path& folder);

nlohmann::ordered_json to_json(const AlignmentHead& alignment);
nlohmann::ordered_json to_json(const SearchDefaults& search);
// And back. Throws Error that begins with `where`.
SearchDefaults search_defaults(const nlohmann::ordered_json& json, const std::string& where);

// The names that a tokenizer's file may have in a model's folder.
std::vector<std::string> tokenizer_names();

// A model with these tokenizers, whose parameters come from `params`.
ModelFolder assembled(const std::filesystem::path& path, const ModelConfig& config,
                      const TokenizerPair& tokenizers, const Params& params);

}  // namespace heed
