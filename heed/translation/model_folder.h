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

// Whose weights align: a layer (-1: the last) and a head (-1: the mean of all).
struct AlignmentHead {
  int64_t layer = -1, head = -1;
  bool operator==(const AlignmentHead&) const = default;
};

// A model in memory with all that belongs to it.
struct ModelFolder {
  std::filesystem::path path;
  ModelConfig config;
  TrainConfig training;  // as it was trained, or is
  TokenizerPair tokenizers;
  Params params;
  std::unique_ptr<Model> model;
  AlignmentHead alignment = {};  // as config.json says
};

// A new model; writes config.json and the tokenizers into `path`, which is made where it is not
// there. Parameters have their first values.
ModelFolder create_model(const std::filesystem::path& path, const ModelConfig& config,
                         const TrainConfig& training, const TokenizerPair& tokenizers);

enum class Parameters { load, leave };  // from model.safetensors, or at their first values
// Throws Error that says what is missing or does not fit.
ModelFolder open_model(const std::filesystem::path& path, Parameters parameters = Parameters::load);

// The training's configuration has changed: config.json keeps it.
void keep_training(const std::filesystem::path& path, const TrainConfig& training);

// From now on these weights of the model in `path` align, unless others are named: config.json
// keeps it.
void keep_alignment(const std::filesystem::path& path, const AlignmentHead& alignment);

}  // namespace heed
