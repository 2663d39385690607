#include "heed/training/run_folder.h"

#include <nlohmann/json.hpp>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

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
std::string config_text(const ModelConfig& config, const TrainConfig& training,
                        const nlohmann::ordered_json& checksums) {
  nlohmann::ordered_json json{{"heed", kFolderFormat},
                              {"model", nlohmann::ordered_json::parse(to_json(config))},
                              {"training", nlohmann::ordered_json::parse(to_json(training))},
                              {"checksums", checksums}};
  return json.dump(1) + "\n";
}

}  // namespace

ModelFolder create_model(const std::filesystem::path& path, const ModelConfig& config,
                         const TrainConfig& training, const TokenizerPair& tokenizers) {
  check(config);
  check(training);
  ModelFolder folder = assembled(path, config, tokenizers, Params(training.seed));
  std::error_code error;
  std::filesystem::create_directories(path, error);
  require(!error && std::filesystem::is_directory(path), path.string(),
          ": the model's folder cannot be made: ", error ? error.message() : "it is a file");
  forget_tokenizers(path);
  tokenizers.save(path);
  write_file(path / "config.json", config_text(config, training, tokenizer_checksums(path)));
  return folder;
}

TrainConfig training_of(const std::filesystem::path& path) {
  const auto json = read_config(path);
  if (!json.contains("training")) return {};
  return train_config(json["training"].dump(), (path / "config.json").string());
}

void keep_training(const std::filesystem::path& path, const TrainConfig& training) {
  auto json = read_config(path);
  json["training"] = nlohmann::ordered_json::parse(to_json(training));
  write_file(path / "config.json", json.dump(1) + "\n");
}

}  // namespace heed
