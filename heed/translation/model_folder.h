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

// What the model in `path` is made of, without loading it. Throws Error as open_model() does.
ModelConfig read_model_config(const std::filesystem::path& path);

enum class Parameters { load, leave };  // from model.safetensors, or at their first values
// Throws Error that says what is missing or does not fit.
ModelFolder open_model(const std::filesystem::path& path, Parameters parameters = Parameters::load);

// In what numbers a loaded model multiplies: as its folder has them, f32 or, made by quantize(),
// int8 (ops/int8.h); int8 also of a folder in f32, quantized while it is loaded. On a CPU.
enum class Compute { as_stored, f32, int8 };
// "auto", "f32", "int8". Throws Error for another.
Compute compute_named(const std::string& name);

// For inference alone, by translation/loaded_model.h: parameters never change, and are read in
// every context of the device in use. On a CPU they are the mapped file itself.
ModelFolder load_model(const std::filesystem::path& path, Compute compute = Compute::as_stored);

// Writes the model in `from` to the new folder `to`, with weights of int8: about a quarter of the
// size, mapped when it is loaded. Throws Error, and leaves nothing, if `to` is there and not empty.
void quantize(const std::filesystem::path& from, const std::filesystem::path& to);

// From now on these weights of the model in `path` align, unless others are named: config.json
// keeps it.
void keep_alignment(const std::filesystem::path& path, const AlignmentHead& alignment);

}  // namespace heed
