// A model's folder as training makes and changes it. Reading one: translation/model_folder.h.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>

#include "heed/training/trainer.h"
#include "heed/translation/model_folder.h"

namespace heed {

// A new model; writes config.json and the tokenizers into `path`, which is made where it is not
// there. Parameters have their first values.
ModelFolder create_model(const std::filesystem::path& path, const ModelConfig& config,
                         const TrainConfig& training, const TokenizerPair& tokenizers);

// How the model in `path` was trained, or is.
TrainConfig training_of(const std::filesystem::path& path);

// The training's configuration has changed: config.json keeps it.
void keep_training(const std::filesystem::path& path, const TrainConfig& training);

}  // namespace heed
