// A model on disk: a folder with config.json, model.safetensors, the tokenizers' files and, for
// resuming, checkpoint/. Reading it needs nothing of training, which makes it
// (training/run_folder.h). Functions may be called from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>

#include "heed/data/tokenizer.h"
#include "heed/models/model.h"
#include "heed/search/search.h"
#include "heed/translation/shortlist.h"

namespace heed {

// How a model's makers search with it, where nobody says otherwise: "search" of config.json, by the
// names of SearchOptions. heed's own have none.
struct SearchDefaults {
  std::optional<int64_t> beam = {};
  std::optional<double> normalize = {}, patience = {}, max_ratio = {};
  std::optional<int64_t> max_extra = {}, max_length = {};
  std::optional<int64_t> min_length = {}, no_repeat = {};
  std::optional<bool> allow_unknown = {}, open_end = {}, free_end = {}, free_prefix = {};
  std::optional<bool> renormalize = {}, allow_begin = {};
  std::optional<std::string> ending = {};

  // Sets what is not among the `given` names.
  void fill(SearchOptions& options, const std::set<std::string>& given) const;
};
template <class Defaults, class F>
void fields(Defaults& s,
            F&& f) requires std::is_same_v<std::remove_const_t<Defaults>, SearchDefaults> {
  f("beam", s.beam), f("normalize", s.normalize), f("patience", s.patience);
  f("max_ratio", s.max_ratio), f("max_extra", s.max_extra), f("max_length", s.max_length);
  f("allow_unknown", s.allow_unknown), f("open_end", s.open_end), f("ending", s.ending);
  f("free_prefix", s.free_prefix), f("free_end", s.free_end), f("renormalize", s.renormalize);
  f("min_length", s.min_length), f("allow_begin", s.allow_begin), f("no_repeat", s.no_repeat);
}

// A model in memory with all that belongs to it.
struct ModelFolder {
  std::filesystem::path path;
  ModelConfig config;
  TokenizerPair tokenizers;
  Params params;
  std::unique_ptr<Model> model;
  AlignmentHead alignment = {};  // as config.json says
  SearchDefaults search = {};
  std::shared_ptr<const Shortlist> shortlist = nullptr;  // shortlist.bin, if load_model() finds it
};

// What the model in `path` is made of, without loading it. Throws Error as open_model() does.
ModelConfig read_model_config(const std::filesystem::path& path);

enum class Parameters { load, leave };  // from model.safetensors, or at their first values
// To be trained: it searches without a shortlist, whatever was put beside it, so that validations
// of a run are of one kind. Throws Error that says what is missing or does not fit.
ModelFolder open_model(const std::filesystem::path& path, Parameters parameters = Parameters::load);

// In what numbers a loaded model multiplies: as its folder has them, f32 or, made by quantize(),
// int8 (ops/int8.h); int8 also of a folder in f32, quantized while it is loaded, and so bf16
// (ops/bf16.h). int8 on a CPU.
enum class Compute { as_stored, f32, int8, bf16 };
// "auto", "f32", "bf16", "int8". Throws Error for another.
Compute compute_named(const std::string& name);

// For inference alone, by translation/loaded_model.h: parameters never change, and are read in
// every context of the device in use. On a CPU they are the mapped file itself.
ModelFolder load_model(const std::filesystem::path& path, Compute compute = Compute::as_stored);

// Writes the model in `from` to the new folder `to`, with weights of int8: about a quarter of the
// size, mapped when it is loaded. Throws Error, and leaves nothing, if `to` is there and not empty.
void quantize(const std::filesystem::path& from, const std::filesystem::path& to);

// From now on these weights of the model in `path` align, unless others are named, and links of
// them are as likely: config.json keeps it.
void keep_alignment(const std::filesystem::path& path, const AlignmentHead& alignment);

}  // namespace heed
