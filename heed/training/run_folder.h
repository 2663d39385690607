// A model's folder as training makes and changes it. Reading one: translation/model_folder.h.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "heed/training/trainer.h"
#include "heed/translation/model_folder.h"

namespace heed {

// A new model; writes config.json and the tokenizers into `path`, which is made where it is not
// there. Parameters have their first values. Throws Error, and changes nothing, where this would
// write over what heed did not write.
ModelFolder create_model(const std::filesystem::path& path, const ModelConfig& config,
                         const TrainConfig& training, const TokenizerPair& tokenizers);

// The same of a model that begins as the one in `from` is, with its tokenizers, its way of search
// and its aligning head: fine-tuning. `config` is that model's, but for shares that are dropped.
ModelFolder continue_model(const std::filesystem::path& path, const std::filesystem::path& from,
                           const ModelConfig& config, const TrainConfig& training);

// Where a CorpusIndex is kept in it.
inline constexpr const char* kCorpusIndex = "corpus.safetensors";

// Where links between words that a run learns lie while it is under way: a temporary file of this
// name (files/atomic_file.h).
inline constexpr const char* kLearntLinks = "alignment";

// What heed did not write into the folder: where it has a config.json of heed's, tokenizers that
// this one does not know; else everything but what a killed run leaves before it writes one.
std::vector<std::string> foreign_files(const std::filesystem::path& path);

// Removes what killed runs left half written in the folder and its checkpoint/: files that are
// named as those of files/atomic_file.h are. For who knows that nobody writes there now.
void remove_temporaries(const std::filesystem::path& path);

// One run at a time writes into a folder. It is made where it is not there, and taken away again if
// nothing came into it.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);  // throws Error if another run has it
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // Removes what killed runs left half written, unless the file system has no locks.
  void clean() const;

 private:
  std::string folder_;
  bool made_ = false, held_ = false;
  int file_ = -1;
};

// Throws Error if there is a model in the folder already, or anything that heed did not write, but
// for what this run itself writes there, if it does: `logs`. `resume`: how a run is told to go on.
void want_new_folder(const std::string& folder, const std::vector<std::string>& logs,
                     const std::string& resume);
// The model of a run that is to go on.
ModelFolder resumed_model(const std::string& folder, const std::string& resume);

// How the model in `path` was trained, or is.
TrainConfig training_of(const std::filesystem::path& path);

// The training's configuration has changed: config.json keeps it.
void keep_training(const std::filesystem::path& path, const TrainConfig& training);

}  // namespace heed
