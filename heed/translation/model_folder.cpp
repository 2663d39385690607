#include "heed/translation/model_folder.h"

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"
#include "heed/models/config_json.h"
#include "heed/models/tensor_file.h"
#include "heed/tensor/cuda.h"
#include "heed/translation/config_file.h"

namespace heed {

ModelFolder assembled(const std::filesystem::path& path, const ModelConfig& config,
                      const TokenizerPair& tokenizers, const Params& params) {
  auto model = make_model(params, config,
                          {.source = tokenizers.source->size(),
                           .target = tokenizers.target->size(),
                           .shared = tokenizers.source == tokenizers.target});
  return {path, config, tokenizers, params, std::move(model), {}};
}

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const char* name : {"source", "target", "joint"})
    for (const char* suffix : {".spm", ".words", ".characters"})
      names.push_back(std::string(name) + suffix);
  return names;
}

nlohmann::ordered_json read_config(const std::filesystem::path& folder) {
  require(std::filesystem::is_directory(folder), folder.string(),
          std::filesystem::exists(folder) ? ": is a file; a model is a folder"
                                          : ": there is no such model folder");
  const std::filesystem::path file = folder / "config.json";
  std::ifstream in(file);
  require(in.good(), folder.string(),
          ": no config.json in it; is it a model that 'heed train' made?");
  std::stringstream text;
  text << in.rdbuf();
  auto json = parse_json<nlohmann::ordered_json>(text.str());
  require(json.is_object() && json.contains("heed") && json.contains("model"), file.string(),
          ": not the configuration of a translation model");
  require(json["heed"] == kFolderFormat, file.string(), ": written in format ", json["heed"].dump(),
          ", this heed reads format ", kFolderFormat, "; use the version that trained it");
  return json;
}

namespace {

void check_tokenizers(const std::filesystem::path& folder, const nlohmann::ordered_json& sums) {
  for (const auto& [name, sum] : sums.items()) {
    const std::filesystem::path file = folder / name;
    if (!std::filesystem::exists(file)) continue;  // what is missing is told by who looks for it
    const std::string found = checksum(file);
    require(sum == found, file.string(), ": damaged, or not this model's: its checksum is ", found,
            ", config.json has ", sum.dump(), "; copy the model's folder again");
  }
}

AlignmentHead alignment_head(const nlohmann::ordered_json& json, const std::string& where) {
  const auto number = [&](const char* name) {
    const auto found = json.find(name);
    require(found != json.end() && found->is_number_integer(), where, ": 'alignment' cannot be ",
            json.dump(), "; wanted: {\"layer\": 3, \"head\": 0}, -1 for the last and for the mean");
    return found->get<int64_t>();
  };
  return {number("layer"), number("head")};
}

// All but the parameters.
struct Opened {
  ModelConfig config;
  TokenizerPair tokenizers;
  AlignmentHead alignment = {};
  uint64_t seed = 1;  // of its first values
};
Opened open_all_else(const std::filesystem::path& path) {
  const auto json = read_config(path);
  const std::string file = (path / "config.json").string();
  if (json.contains("checksums")) check_tokenizers(path, json["checksums"]);
  Opened out{.config = model_config(json["model"].dump(), file),
             .tokenizers = TokenizerPair::load(path)};
  if (json.contains("training")) out.seed = json["training"].value("seed", uint64_t{1});
  if (json.contains("alignment")) out.alignment = alignment_head(json["alignment"], file);
  return out;
}

std::filesystem::path weights_of(const std::filesystem::path& path) {
  const std::filesystem::path weights = path / "model.safetensors";
  require(
      std::filesystem::exists(weights), weights.string(),
      ": not there yet; training writes it at its first validation, or without sentences to "
      "validate on at its first checkpoint (with --average-last, after --validate-every updates)");
  return weights;
}

}  // namespace

ModelFolder open_model(const std::filesystem::path& path, Parameters parameters) {
  const Opened opened = open_all_else(path);
  const bool load = parameters == Parameters::load;
  const std::filesystem::path weights = load ? weights_of(path) : std::filesystem::path();
  ModelFolder folder =
      assembled(path, opened.config, opened.tokenizers,
                Params(opened.seed, Type::f32, load ? Params::First::unset : Params::First::drawn));
  folder.alignment = opened.alignment;
  if (load) load_parameters(folder.params, weights);
  return folder;
}

ModelFolder load_model(const std::filesystem::path& path) {
  const Opened opened = open_all_else(path);
  const MappedTensors tensors(weights_of(path));
  ModelFolder folder = assembled(path, opened.config, opened.tokenizers,
                                 Params([tensors](const std::string& name, const Shape& shape) {
                                   return tensors.at(name, shape, Type::f32);
                                 }));
  tensors.require_only(folder.params.all().size());
  if (current_arena().device() == Device::cuda)
    cuda_synchronize();  // other contexts read them, too
  folder.alignment = opened.alignment;
  return folder;
}

void keep_alignment(const std::filesystem::path& path, const AlignmentHead& alignment) {
  auto json = read_config(path);
  json["alignment"] = {{"layer", alignment.layer}, {"head", alignment.head}};
  write_file(path / "config.json", json.dump(1) + "\n");
}

}  // namespace heed
