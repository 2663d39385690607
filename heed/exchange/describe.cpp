#include "heed/exchange/describe.h"

#include "heed/base/check.h"
#include "heed/files/safetensors.h"
#include "heed/models/config_json.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

// "decoder.3.cross.query.weight": "decoder cross"; "source.table": "source table".
std::string part_of(const std::string& name) {
  std::vector<std::string> words;
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    words.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  std::erase_if(words, [](const std::string& word) {
    return word.find_first_not_of("0123456789") == std::string::npos;
  });
  if (words.size() < 2) return name;
  const bool norm = words[1].ends_with("norm");
  return words[0] + " " + (norm ? "norms" : words[1]);
}

nlohmann::ordered_json vocabulary_of(const Tokenizer& tokenizer) {
  const SpecialIds s = tokenizer.special();
  return {{"kind", tokenizer.kind()}, {"pieces", tokenizer.size()}, {"pad", s.pad},
          {"unknown", s.unknown},     {"begin", s.begin},           {"end", s.end}};
}

// How far a training came, if its checkpoint is here.
std::optional<nlohmann::ordered_json> training_state(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "checkpoint" / "last.safetensors";
  if (!std::filesystem::exists(file)) return std::nullopt;
  const SafetensorsFile opened = SafetensorsFile::open(file);
  const auto found = opened.metadata().find("state");
  if (found == opened.metadata().end()) return std::nullopt;
  const auto state = parse_json<nlohmann::json>(found->second);
  nlohmann::ordered_json out;
  if (!state.is_object()) return std::nullopt;
  for (const char* key : {"step", "epoch", "best", "best_loss"})
    if (state.contains(key) && !state[key].is_null()) out[key] = state[key];
  // "bleu of 500 lines, 500 kept, b8e1ba…": what tells validation sets apart is not for people.
  if (const auto of = state.value("best_of", std::string()); !of.empty())
    out["best_of"] = of.substr(0, of.find(','));
  return out;
}

}  // namespace

nlohmann::ordered_json describe(const std::filesystem::path& folder) {
  const auto json = read_config(folder);
  const ModelConfig config = model_config(json["model"].dump(), (folder / "config.json").string());
  const TokenizerPair tokenizers = TokenizerPair::load(folder);
  nlohmann::ordered_json out;
  out["model"] = folder.string();
  out["kind"] = std::string(is_language_model(config) ? "language model" : "translator") + ", " +
                (config.family == "rnn" ? "recurrent" : "Transformer");
  out["format"] = json["heed"];
  if (json.contains("imported")) out["imported"] = json["imported"];
  nlohmann::ordered_json facts;
  const ModelConfig plain;
  fields(config, [&](const char* name, const auto& value, const char*) {
    nlohmann::ordered_json one = value;
    fields(plain, [&](const char* other, const auto& standard, const char*) {
      if (std::string_view(name) == other && one != nlohmann::ordered_json(standard))
        facts[name] = one;
    });
  });
  for (const char* always : {"size", "encoder_layers", "decoder_layers", "score", "heads"})
    if (!facts.contains(always))
      fields(config, [&](const char* name, const auto& value, const char*) {
        if (std::string_view(name) == always) facts[name] = value;
      });
  out["configuration"] = facts;
  if (tokenizers.source == tokenizers.target) {
    out["vocabulary"] = vocabulary_of(*tokenizers.source);
  } else {
    out["source_vocabulary"] = vocabulary_of(*tokenizers.source);
    out["target_vocabulary"] = vocabulary_of(*tokenizers.target);
  }
  const std::filesystem::path weights = folder / "model.safetensors";
  if (std::filesystem::exists(weights)) {
    const SafetensorsFile file =
        SafetensorsFile::open(weights, {.want_checksum = json["heed"] != 1});
    std::map<std::string, int64_t> parts;
    int64_t all = 0;
    uint64_t bytes = 0;
    bool int8 = false;
    for (const TensorEntry& entry : file.entries()) {
      bytes += entry.bytes.size();
      int8 = int8 || entry.dtype == StoredDtype::I8;
      if (entry.name.ends_with(".scales") || entry.name.ends_with(".sums")) continue;
      int64_t count = 1;
      for (const int64_t n : entry.shape) count *= n;
      parts[part_of(entry.name)] += count, all += count;
    }
    out["parameters"] = all;
    out["parameters_by_part"] = parts;
    out["weights"] = int8 ? "int8" : "f32";
    out["bytes"] = bytes;
    out["training_bytes"] = 16 * all;
    const auto sum = file.metadata().find(kChecksumEntry);
    if (sum != file.metadata().end()) out["checksums"]["model.safetensors"] = sum->second;
  }
  if (json.contains("checksum")) out["checksums"]["config.json"] = json["checksum"];
  if (json.contains("checksums"))
    for (const auto& [name, sum] : json["checksums"].items()) out["checksums"][name] = sum;
  if (json.contains("alignment")) out["alignment"] = json["alignment"];
  if (json.contains("search") && !json["search"].empty()) out["search"] = json["search"];
  if (const auto state = training_state(folder)) out["training"] = *state;
  return out;
}

}  // namespace heed
