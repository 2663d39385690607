#include "heed/translation/model_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"
#include "heed/models/config_json.h"
#include "heed/models/tensor_file.h"
#include "heed/ops/bf16.h"
#include "heed/tensor/cuda.h"
#include "heed/translation/config_file.h"

namespace heed {

ModelFolder assembled(const std::filesystem::path& path, const ModelConfig& config,
                      const TokenizerPair& tokenizers, const Params& params) {
  const bool shared = config.shared_embeddings || tokenizers.source == tokenizers.target;
  require(!shared || tokenizers.source->size() == tokenizers.target->size(), path.string(),
          ": source and target share one table of word vectors, and have ",
          tokenizers.source->size(), " and ", tokenizers.target->size(), " entries");
  auto model = make_model(
      params, config,
      {.source = tokenizers.source->size(), .target = tokenizers.target->size(), .shared = shared});
  return {path, config, tokenizers, params, std::move(model), {}};
}

std::vector<std::string> tokenizer_names() {
  std::vector<std::string> names;
  for (const char* name : {"source", "target", "joint"})
    for (const char* suffix : {".spm", ".words", ".characters", ".pieces"})
      names.push_back(std::string(name) + suffix);
  return names;
}

namespace {

std::filesystem::path config_path(const std::filesystem::path& folder) {
  return folder / "config.json";
}

}  // namespace

std::optional<nlohmann::ordered_json> find_config(const std::filesystem::path& folder) {
  const std::optional<std::string> text = read_file(config_path(folder));
  if (!text) return std::nullopt;
  auto json = parse_json<nlohmann::ordered_json>(*text);
  if (!json.is_object() || !json.contains("heed") || !json.contains("model")) return std::nullopt;
  const std::string file = config_path(folder).string();
  const auto& format = json["heed"];
  require(format == 1 || format == kFolderFormat, file, ": written in format ", format.dump(),
          ", this heed reads formats 1 to ", kFolderFormat, "; use the version that trained it");
  if (format != 1 || json.contains("checksum")) check_own_checksum(*text, file);
  return json;
}

nlohmann::ordered_json read_config(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(folder, error);
  require(std::filesystem::status_known(status), folder.string(),
          ": cannot be looked at: ", error.message());
  require(std::filesystem::is_directory(status), folder.string(),
          std::filesystem::exists(status) ? ": is a file; a model is a folder"
                                          : ": there is no such model folder");
  if (auto json = find_config(folder)) return std::move(*json);
  require(std::filesystem::exists(config_path(folder)), folder.string(),
          ": no config.json in it; is it a model that 'heed train' made?");
  fail(config_path(folder).string(), ": not the configuration of a translation model");
}

void write_config(const std::filesystem::path& folder, nlohmann::ordered_json json) {
  json.erase("checksum");
  write_file(config_path(folder), with_own_checksum(json.dump(1)));
}

SafetensorsOptions tensor_options(const std::filesystem::path& folder) {
  const auto json = find_config(folder);
  return {.want_checksum = !json || (*json)["heed"] != 1};
}

namespace {

void check_tokenizers(const std::filesystem::path& folder, const nlohmann::ordered_json& config) {
  const auto sums = config.value("checksums", nlohmann::ordered_json::object());
  const bool all_have_one = config["heed"] != 1;
  require(!all_have_one || !sums.empty(), folder.string(),
          ": a training was ended while it made this folder; begin it anew");
  for (const std::string& name : tokenizer_names()) {
    const std::filesystem::path file = folder / name;
    if (!std::filesystem::exists(file)) continue;  // what is missing is told by who looks for it
    require(sums.contains(name) || !all_have_one, file.string(),
            ": not this model's: config.json has no checksum of it; move it away");
    if (!sums.contains(name)) continue;
    const std::string found = checksum(file);
    require(sums[name] == found, file.string(), ": damaged, or not this model's: its checksum is ",
            found, ", config.json has ", sums[name].dump(), "; copy the model's folder again");
  }
}

AlignmentHead alignment_head(const nlohmann::ordered_json& json, const std::string& where) {
  const auto number = [&](const char* name) {
    const auto found = json.find(name);
    require(found != json.end() && found->is_number_integer(), where, ": 'alignment' cannot be ",
            json.dump(), "; wanted: {\"layer\": 3, \"head\": 0}, -1 for the last and for the mean");
    return found->get<int64_t>();
  };
  const auto or_zero = [&](const char* name) { return json.contains(name) ? number(name) : 0; };
  const auto whole = json.find("whole");
  require(whole == json.end() || whole->is_boolean(), where, ": 'alignment' cannot be ",
          json.dump(), "; \"whole\" is true or false");
  const auto threshold = json.find("threshold");
  require(
      threshold == json.end() || (threshold->is_number() && *threshold >= 0.0 && *threshold <= 1.0),
      where, ": 'alignment' cannot be ", json.dump(), "; \"threshold\" is 0 to 1");
  return {.layer = number("layer"),
          .head = number("head"),
          .shift = or_zero("shift"),
          .mean_of = or_zero("mean_of"),
          .whole = whole != json.end() && whole->get<bool>(),
          .threshold =
              threshold != json.end() ? std::optional(threshold->get<double>()) : std::nullopt};
}

// All but the parameters.
struct Opened {
  ModelConfig config;
  TokenizerPair tokenizers;
  AlignmentHead alignment = {};
  SearchDefaults search = {};
  std::shared_ptr<const Shortlist> shortlist = nullptr;
  uint64_t seed = 1;  // of its first values
  SafetensorsOptions tensors = {};
};
Opened open_all_else(const std::filesystem::path& path) {
  const auto json = read_config(path);
  const std::string file = config_path(path).string();
  check_tokenizers(path, json);
  Opened out{.config = model_config(json["model"].dump(), file),
             .tokenizers = TokenizerPair::load(path),
             .tensors = {.want_checksum = json["heed"] != 1}};
  if (json.contains("training")) out.seed = json["training"].value("seed", uint64_t{1});
  if (json.contains("alignment")) out.alignment = alignment_head(json["alignment"], file);
  if (json.contains("search")) out.search = search_defaults(json["search"], file);
  if (std::filesystem::exists(path / kShortlistName))
    out.shortlist =
        std::make_shared<const Shortlist>(read_shortlist(path / kShortlistName, out.tokenizers));
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

SearchDefaults search_defaults(const nlohmann::ordered_json& json, const std::string& where) {
  SearchDefaults out;
  require(json.is_object(), where, ": 'search' is not an object");
  std::vector<std::string> known;
  fields(out, [&](const char* name, auto& value) {
    known.emplace_back(name);
    const auto found = json.find(name);
    if (found == json.end()) return;
    using T = typename std::remove_reference_t<decltype(value)>::value_type;
    const bool fits = std::is_same_v<T, bool>          ? found->is_boolean()
                      : std::is_same_v<T, int64_t>     ? found->is_number_integer()
                      : std::is_same_v<T, std::string> ? found->is_string()
                                                       : found->is_number();
    require(fits, where, ": 'search': '", name, "' cannot be ", found->dump());
    value = found->template get<T>();
  });
  for (const auto& [key, value] : json.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail(where, ": 'search': ", unknown_name("key", key, known));
  SearchOptions options;
  try {
    out.fill(options, {});
    check(options);
  } catch (const Error& error) {
    fail(where, ": ", error.what());
  }
  return out;
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  return model_config(read_config(path)["model"].dump(), config_path(path).string());
}

ModelFolder open_model(const std::filesystem::path& path, Parameters parameters) {
  const Opened opened = open_all_else(path);
  const bool load = parameters == Parameters::load;
  const std::filesystem::path weights = load ? weights_of(path) : std::filesystem::path();
  ModelFolder folder =
      assembled(path, opened.config, opened.tokenizers,
                Params(opened.seed, Type::f32, load ? Params::First::unset : Params::First::drawn));
  folder.alignment = opened.alignment;
  folder.search = opened.search;
  if (load) load_parameters(folder.params, weights, opened.tensors);
  return folder;
}

Compute compute_named(const std::string& name) {
  if (name == "auto") return Compute::as_stored;
  if (name == "f32") return Compute::f32;
  if (name == "int8") return Compute::int8;
  if (name == "bf16") return Compute::bf16;
  throw Error(unknown_name("compute", name, {"auto", "f32", "bf16", "int8"}));
}

ModelFolder load_model(const std::filesystem::path& path, Compute compute) {
  const Opened opened = open_all_else(path);
  const MappedTensors tensors(weights_of(path), opened.tensors);
  const bool on_cpu = current_arena().device() == Device::cpu;
  require(compute != Compute::int8 || on_cpu,
          "compute: int8 is computed on a CPU; take f32, bf16 or auto on a GPU");
  size_t stored = 0;  // tensors of the file
  const auto given = [&](const std::string& name, const Shape& shape, Params::Use use) {
    const bool int8 = use != Params::Use::any && tensors.holds_int8(name);
    require(!int8 || (compute != Compute::f32 && compute != Compute::bf16 && on_cpu), path.string(),
            ": its weights are int8, which are computed as such, on a CPU; take the model that it "
            "was made from");
    stored += int8 ? 3 : 1;
    // Of few numbers none are saved.
    const bool large = shape.rank() == 2 && shape[0] >= 16 && shape[1] >= 16;
    const int outputs = use == Params::Use::product ? 1 : 0;
    if (int8 || (compute == Compute::int8 && use != Params::Use::any && large))
      return tensors.int8_at(name, shape, outputs);
    if (compute == Compute::bf16 && use != Params::Use::any && large &&
        (on_cpu || bf16_fits_gpu(shape, outputs)))
      return tensors.bf16_at(name, shape, outputs);
    return tensors.at(name, shape, Type::f32);
  };
  ModelFolder folder = assembled(path, opened.config, opened.tokenizers, Params(given));
  tensors.require_only(stored);
  if (current_arena().device() == Device::cuda)
    cuda_synchronize();  // other contexts read them, too
  folder.alignment = opened.alignment;
  folder.search = opened.search;
  folder.shortlist = opened.shortlist;
  return folder;
}

void quantize(const std::filesystem::path& from, const std::filesystem::path& to) {
  auto json = read_config(from);
  std::error_code error;
  require(!std::filesystem::exists(to) || std::filesystem::is_empty(to, error), to.string(),
          ": is there already; choose another folder for the model");
  const UseDevice host(Device::cpu);
  const NoTape off;
  require(json.value("weights", "") != "int8", from.string(), ": its weights are int8 already");
  const ModelFolder model = load_model(from, Compute::int8);
  std::filesystem::create_directories(to, error);
  require(!error, to.string(), ": the model's folder cannot be made: ", error.message());
  std::vector<std::string> names = tokenizer_names();
  names.emplace_back(kShortlistName);
  for (const std::string& name : names)
    if (const auto bytes = read_file(from / name)) write_file(to / name, *bytes);
  save_int8_parameters(model.params, to / "model.safetensors");
  json["heed"] = kFolderFormat;
  json["weights"] = "int8";
  json["checksums"] = nlohmann::ordered_json::object();
  for (const std::string& name : tokenizer_names())
    if (std::filesystem::exists(to / name)) json["checksums"][name] = checksum(to / name);
  write_config(to, std::move(json));  // last: from here on it is a model
}

void SearchDefaults::fill(SearchOptions& options, const std::set<std::string>& given) const {
  const auto set = [&](const char* name, const auto& value, auto& to) {
    if (value && !given.contains(name)) to = *value;
  };
  set("beam", beam, options.beam), set("normalize", normalize, options.normalize);
  set("patience", patience, options.patience);
  set("max_ratio", max_ratio, options.max_ratio), set("max_extra", max_extra, options.max_extra);
  set("max_length", max_length, options.max_length);
  set("allow_unknown", allow_unknown, options.allow_unknown);
  set("open_end", open_end, options.open_end);
  set("free_prefix", free_prefix, options.free_prefix);
  set("free_end", free_end, options.free_end), set("renormalize", renormalize, options.renormalize);
  set("min_length", min_length, options.min_length), set("no_repeat", no_repeat, options.no_repeat);
  set("allow_begin", allow_begin, options.allow_begin);
  if (ending && !given.contains("ending")) options.ending = ending_named(*ending);
}

nlohmann::ordered_json to_json(const SearchDefaults& search) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  fields(search, [&](const char* name, const auto& value) {
    if (value) out[name] = *value;
  });
  return out;
}

nlohmann::ordered_json to_json(const AlignmentHead& alignment) {
  nlohmann::ordered_json out{
      {"layer", alignment.layer}, {"head", alignment.head}, {"shift", alignment.shift}};
  if (alignment.mean_of > 0) out["mean_of"] = alignment.mean_of;
  if (alignment.whole) out["whole"] = true;
  if (alignment.threshold) out["threshold"] = *alignment.threshold;
  return out;
}

void keep_alignment(const std::filesystem::path& path, const AlignmentHead& alignment) {
  auto json = read_config(path);
  json["alignment"] = to_json(alignment);
  write_config(path, std::move(json));
}

}  // namespace heed
