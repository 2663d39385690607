// A model on disk: a folder with config.json, model.safetensors, the tokenizers' files and, for
// resuming, checkpoint/. Reading it needs nothing of training, which makes it
// (training/run_folder.h). Functions may be called from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "heed/data/tokenizer.h"
#include "heed/models/model.h"

namespace heed {

// A model in memory with all that belongs to it.
struct ModelFolder {
  std::filesystem::path path;
  ModelConfig config;
  TokenizerPair tokenizers;
  Params params;
  std::unique_ptr<Model> model;
  AlignmentHead alignment = {};  // as config.json says
};

enum class Parameters { load, leave };  // from model.safetensors, or at their first values
// Throws Error that says what is missing or does not fit.
ModelFolder open_model(const std::filesystem::path& path, Parameters parameters = Parameters::load);

// For inference alone, by translation/loaded_model.h: parameters never change, and are read in
// every context of the device in use. On a CPU they are the mapped file itself.
ModelFolder load_model(const std::filesystem::path& path);

// From now on these weights of the model in `path` align, unless others are named: config.json
// keeps it.
void keep_alignment(const std::filesystem::path& path, const AlignmentHead& alignment);

}  // namespace heed
