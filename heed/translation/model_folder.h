// A model on disk: a folder with config.json, model.safetensors, the tokenizers' files and, for
// resuming, checkpoint/.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "heed/data/tokenizer.h"
#include "heed/models/model.h"
#include "heed/training/trainer.h"

namespace heed {

// A model in memory with all that belongs to it.
struct ModelFolder {
  std::filesystem::path path;
  ModelConfig config;
  TrainConfig training;  // as it was trained, or is
  TokenizerPair tokenizers;
  Params params;
  std::unique_ptr<Model> model;
};

// A new model; writes config.json and the tokenizers into `path`, which is made where it is not
// there. Parameters have their first values.
ModelFolder create_model(const std::filesystem::path& path, const ModelConfig& config,
                         const TrainConfig& training, const TokenizerPair& tokenizers);

enum class Parameters { load, leave };  // from model.safetensors, or at their first values
// Throws Error that says what is missing or does not fit.
ModelFolder open_model(const std::filesystem::path& path, Parameters parameters = Parameters::load);

}  // namespace heed
