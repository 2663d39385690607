#include "heed/translation/model_folder.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"
#include "heed/training/checkpoint.h"

namespace heed {
namespace {

constexpr int kFormat = 1;

ModelFolder assembled(const std::filesystem::path& path, const ModelConfig& config,
                      const TrainConfig& training, const TokenizerPair& tokenizers,
                      Params::First first = Params::First::drawn) {
  const Params params(training.seed, Type::f32, first);
  auto model = make_model(params, config,
                          {.source = tokenizers.source->size(),
                           .target = tokenizers.target->size(),
                           .shared = tokenizers.source == tokenizers.target});
  return {path, config, training, tokenizers, params, std::move(model), {}};
}

// The names that a tokenizer's file may have in a model's folder.
std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const char* name : {"source", "target", "joint"})
    for (const char* suffix : {".spm", ".words", ".characters"})
      names.push_back(std::string(name) + suffix);
  return names;
}

// Those of a run that never came to a checkpoint may be of another kind, and would be found first.
void forget_tokenizers(const std::filesystem::path& folder) {
  for (const std::string& name : tokenizer_names()) {
    std::error_code error;  // what cannot be removed cannot be written over either
    std::filesystem::remove(folder / name, error);
  }
}

// Parameters tell by themselves that they are damaged; a tokenizer with a wrong byte may split
// words otherwise, or make its library crash.
nlohmann::ordered_json tokenizer_checksums(const std::filesystem::path& folder) {
  nlohmann::ordered_json sums;
  for (const std::string& name : tokenizer_names())
    if (std::filesystem::exists(folder / name)) sums[name] = checksum(folder / name);
  return sums;
}
void check_tokenizers(const std::filesystem::path& folder, const nlohmann::ordered_json& sums) {
  for (const auto& [name, sum] : sums.items()) {
    const std::filesystem::path file = folder / name;
    if (!std::filesystem::exists(file)) continue;  // what is missing is told by who looks for it
    const std::string found = checksum(file);
    require(sum == found, file.string(), ": damaged, or not this model's: its checksum is ", found,
            ", config.json has ", sum.dump(), "; copy the model's folder again");
  }
}

std::string config_text(const ModelConfig& config, const TrainConfig& training,
                        const nlohmann::ordered_json& checksums) {
  nlohmann::ordered_json json{{"heed", kFormat},
                              {"model", nlohmann::ordered_json::parse(to_json(config))},
                              {"training", nlohmann::ordered_json::parse(to_json(training))},
                              {"checksums", checksums}};
  return json.dump(1) + "\n";
}

// config.json, its keys in their order.
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
  auto json = nlohmann::ordered_json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  require(json.is_object() && json.contains("heed") && json.contains("model"), file.string(),
          ": not the configuration of a translation model");
  require(json["heed"] == kFormat, file.string(), ": written in format ", json["heed"].dump(),
          ", this heed reads format ", kFormat, "; use the version that trained it");
  return json;
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

}  // namespace

ModelFolder create_model(const std::filesystem::path& path, const ModelConfig& config,
                         const TrainConfig& training, const TokenizerPair& tokenizers) {
  check(config);
  check(training);
  ModelFolder folder = assembled(path, config, training, tokenizers);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  require(!error && std::filesystem::is_directory(path), path.string(),
          ": the model's folder cannot be made: ", error ? error.message() : "it is a file");
  forget_tokenizers(path);
  tokenizers.save(path);
  write_file(path / "config.json", config_text(config, training, tokenizer_checksums(path)));
  return folder;
}

ModelFolder open_model(const std::filesystem::path& path, Parameters parameters) {
  const auto json = read_config(path);
  const std::string file = (path / "config.json").string();
  const ModelConfig config = model_config(json["model"].dump(), file);
  const TrainConfig training =
      json.contains("training") ? train_config(json["training"].dump(), file) : TrainConfig{};
  if (json.contains("checksums")) check_tokenizers(path, json["checksums"]);
  ModelFolder folder =
      assembled(path, config, training, TokenizerPair::load(path),
                parameters == Parameters::load ? Params::First::unset : Params::First::drawn);
  if (json.contains("alignment")) folder.alignment = alignment_head(json["alignment"], file);
  const std::filesystem::path weights = path / "model.safetensors";
  require(
      parameters == Parameters::leave || std::filesystem::exists(weights), weights.string(),
      ": not there yet; training writes it at its first validation, or without sentences to "
      "validate on at its first checkpoint (with --average-last, after --validate-every updates)");
  if (parameters == Parameters::load) load_parameters(folder.params, weights);
  return folder;
}

void keep_training(const std::filesystem::path& path, const TrainConfig& training) {
  auto json = read_config(path);
  json["training"] = nlohmann::ordered_json::parse(to_json(training));
  write_file(path / "config.json", json.dump(1) + "\n");
}

void keep_alignment(const std::filesystem::path& path, const AlignmentHead& alignment) {
  auto json = read_config(path);
  json["alignment"] = {{"layer", alignment.layer}, {"head", alignment.head}};
  write_file(path / "config.json", json.dump(1) + "\n");
}

}  // namespace heed
