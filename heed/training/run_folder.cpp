#include "heed/training/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "heed/base/check.h"
#include "heed/base/limits.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"
#include "heed/files/events.h"
#include "heed/models/tensor_file.h"
#include "heed/translation/config_file.h"

namespace heed {
namespace {

constexpr const char* kCheckpoint = "checkpoint";

bool is_tokenizer(const std::string& name) {
  const std::vector<std::string> names = tokenizer_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What is written into the folder itself; into its checkpoint/: is_checkpoint_name.
bool is_folder_name(const std::string& name) {
  return name == "config.json" || name == "model.safetensors" || name == kCorpusIndex ||
         is_tokenizer(name);
}
// And what is there while a run is under way.
bool is_written_there(const std::string& name) {
  return is_folder_name(name) || name == kLearntLinks;
}

// Whether the entry is what is left of one of the folder's files if its writer is killed.
bool is_temporary(const std::filesystem::directory_entry& entry,
                  bool (*is_own)(const std::string& name)) {
  auto target = target_of_temporary(entry.path().filename().string());
  while (target && !is_own(*target)) target = target_of_temporary(*target);  // a temporary's own
  return target && entry.is_regular_file() && !entry.is_symlink();
}

// Nothing else in it, or nothing at all.
bool has_only_temporaries(const std::filesystem::path& checkpoint) {
  if (!std::filesystem::is_directory(checkpoint)) return false;
  const std::filesystem::directory_iterator entries(checkpoint), end;
  return std::all_of(begin(entries), end, [](const std::filesystem::directory_entry& entry) {
    return is_temporary(entry, is_checkpoint_name);
  });
}

// Where config.json has no checksums, all are its own: it is being made, or from before there were
// any.
bool knows(const nlohmann::ordered_json& config, const std::string& tokenizer) {
  const auto sums = config.value("checksums", nlohmann::ordered_json::object());
  return sums.empty() || sums.contains(tokenizer);
}

void want_nothing_foreign(const std::filesystem::path& path) {
  for (const std::string& name : foreign_files(path))
    require(!is_folder_name(name) && name != kCheckpoint, (path / name).string(),
            ": heed did not write it; choose another folder for the model");
}

// Those of a run that never came to a checkpoint may be of another kind, and would be found first.
void forget_tokenizers(const std::filesystem::path& folder) {
  for (const std::string& name : tokenizer_names()) {
    std::error_code error;  // what cannot be removed cannot be written over either
    std::filesystem::remove(folder / name, error);
  }
}

// A tokenizer with a wrong byte may split words otherwise, or make its library crash.
nlohmann::ordered_json tokenizer_checksums(const std::filesystem::path& folder) {
  nlohmann::ordered_json sums;
  for (const std::string& name : tokenizer_names())
    if (std::filesystem::exists(folder / name)) sums[name] = checksum(folder / name);
  return sums;
}

// Before any is asked for: it would take minutes until there is none left. Training holds values,
// gradients and Adam's two means; on a GPU these lie there, and values come by when they are saved.
void want_memory(const ModelConfig& config, const TokenizerPair& tokenizers) {
  const double each = current_arena().device() == Device::cpu ? 16 : 4;
  const double memory = double(usable_memory());
  double count = 0;
  float nothing = 0;  // what is made of parameters here never looks at their values
  const Params counted([&](const std::string&, const Shape& shape, Params::Use) {
    double elements = 1;
    for (int i = 0; i < shape.rank(); ++i) elements *= double(shape[i]);
    count += elements;
    require(count * each <= memory, "config: the model has more than ",
            static_cast<int64_t>(memory / each / 1e6), " million parameters; training them takes ",
            each, " bytes each, and this process may use ", static_cast<int64_t>(memory / 1e6),
            " MB; choose a smaller --size, --inner or --vocabulary, or fewer layers");
    return look_at({.data = &nothing}, shape);
  });
  assembled({}, config, tokenizers, counted);
}

}  // namespace

std::vector<std::string> foreign_files(const std::filesystem::path& path) {
  std::vector<std::string> foreign;
  if (!std::filesystem::exists(path)) return foreign;
  const auto config = find_config(path);
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    const bool own = config ? !is_tokenizer(name) || knows(*config, name)
                            : is_temporary(entry, is_written_there) ||
                                  (name == kCheckpoint && has_only_temporaries(entry.path()));
    if (!own) foreign.push_back(name);
  }
  std::sort(foreign.begin(), foreign.end());
  return foreign;
}

void remove_temporaries(const std::filesystem::path& path) {
  const auto remove_in = [](const std::filesystem::path& folder,
                            bool (*is_own)(const std::string& name)) {
    std::error_code error;  // one that stays is in nobody's way
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      if (is_temporary(entry, is_own)) found.push_back(entry.path());
    for (const auto& file : found) std::filesystem::remove(file, error);
  };
  remove_in(path, is_written_there);
  remove_in(path / kCheckpoint, is_checkpoint_name);
}

ModelFolder create_model(const std::filesystem::path& path, const ModelConfig& config,
                         const TrainConfig& training, const TokenizerPair& tokenizers) {
  check(config);
  check(training);
  want_memory(config, tokenizers);
  ModelFolder folder = assembled(path, config, tokenizers, Params(training.seed));
  std::error_code error;
  std::filesystem::create_directories(path, error);
  require(!error && std::filesystem::is_directory(path), path.string(),
          ": the model's folder cannot be made: ", error ? error.message() : "it is a file");
  want_nothing_foreign(path);
  nlohmann::ordered_json json{{"heed", kFolderFormat},
                              {"model", nlohmann::ordered_json::parse(to_json(config))},
                              {"training", nlohmann::ordered_json::parse(to_json(training))},
                              {"checksums", nlohmann::ordered_json::object()}};
  if (training.guided > 0 && has_attention(config)) {
    folder.alignment = folder.model->guided_head();
    json["alignment"] = to_json(folder.alignment);
  }
  // Before any tokenizer: whoever finds one beside it, after a kill, knows whose it is.
  write_config(path, json);
  forget_tokenizers(path);
  tokenizers.save(path);
  json["checksums"] = tokenizer_checksums(path);
  write_config(path, json);
  return folder;
}

ModelFolder continue_model(const std::filesystem::path& path, const std::filesystem::path& from,
                           const ModelConfig& config, const TrainConfig& training) {
  const auto before = read_config(from);
  const ModelFolder opened = open_model(from, Parameters::leave);
  ModelFolder model = create_model(path, config, training, opened.tokenizers);
  load_parameters(model.params, from / "model.safetensors", tensor_options(from));
  auto json = read_config(path);
  for (const char* key : {"search", "imported"})
    if (before.contains(key)) json[key] = before[key];
  if (before.contains("alignment") && !json.contains("alignment")) {
    json["alignment"] = before["alignment"];
    model.alignment = opened.alignment;
  }
  model.search = opened.search;
  write_config(path, std::move(json));
  return model;
}

FolderLock::FolderLock(const std::string& folder) : folder_(folder) {
  std::error_code error;
  made_ = std::filesystem::create_directories(folder, error);
  require(!error, folder, ": the model's folder cannot be made: ", error.message());
  file_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require(file_ >= 0, folder, ": cannot be opened: ", std::strerror(errno));
  held_ = ::flock(file_, LOCK_EX | LOCK_NB) == 0;
  // A file system without locks is no reason not to train.
  if (held_ || errno != EWOULDBLOCK) return;
  ::close(file_);
  fail(folder, ": another training writes into it; wait for its end, or choose another folder");
}

FolderLock::~FolderLock() {
  std::error_code error;
  if (made_) std::filesystem::remove(folder_, error);  // only if it is empty
  ::close(file_);
}

void FolderLock::clean() const {
  if (held_) remove_temporaries(folder_);
}

namespace {

bool has_checkpoint(const std::filesystem::path& folder) {
  return std::filesystem::exists(folder / kCheckpoint / "last.safetensors");
}

// Of a run that was killed while it wrote its first checkpoint, or whose checkpoint was removed.
void want_way_on(const std::filesystem::path& folder) {
  require(!std::filesystem::exists(folder / "model.safetensors"), folder.string(),
          ": there is a model in it, but no checkpoint to go on from; choose another folder, or ",
          "remove its model.safetensors");
}

}  // namespace

void want_new_folder(const std::string& folder, const std::vector<std::string>& logs,
                     const std::string& resume) {
  std::vector<std::string> foreign = foreign_files(folder);
  for (const std::string& log : logs) {
    std::error_code error;
    const auto inside = std::filesystem::weakly_canonical(log, error)
                            .lexically_relative(std::filesystem::canonical(folder, error));
    if (error || inside.empty()) continue;
    std::erase_if(foreign, [&](const std::string& name) {
      return inside == "." ? name.starts_with(kEventFile) : *inside.begin() == name;
    });
  }
  std::string names;
  for (const std::string& name : foreign) names += (names.empty() ? "" : ", ") + name;
  require(foreign.empty(), folder, ": has what is not of a model of heed's (", names,
          "); choose a folder that is empty, or not there yet");
  require(!has_checkpoint(folder), folder, ": there is a model in it already; ", resume,
          " goes on with it, or choose another folder");
  want_way_on(folder);
}

ModelFolder resumed_model(const std::string& folder, const std::string& resume) {
  if (!has_checkpoint(folder)) want_way_on(folder);
  require(has_checkpoint(folder), folder, ": nothing to resume: no checkpoint in it; leave ",
          resume, " out to begin");
  return open_model(folder, Parameters::leave);
}

TrainConfig training_of(const std::filesystem::path& path) {
  const auto json = read_config(path);
  if (!json.contains("training")) return {};
  return train_config(json["training"].dump(), (path / "config.json").string());
}

void keep_training(const std::filesystem::path& path, const TrainConfig& training) {
  auto json = read_config(path);
  json["training"] = nlohmann::ordered_json::parse(to_json(training));
  write_config(path, std::move(json));
}

}  // namespace heed
