// What 'heed train' and 'heed lm train' have in common: presets, folders, the run itself.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/ranks.h"
#include "heed/files/events.h"
#include "heed/training/run_folder.h"
#include "heed/translation/model_folder.h"

namespace heed::apps {

// Throws what is told as a mistake in the arguments if there is no such preset of this kind.
ModelConfig chosen_preset(const std::string& name, ModelKind kind);

// What --list prints: scores, ways to weigh, and presets with the flags that they stand for.
void print_tables(ModelKind kind);

// Where nothing says how many micro-batches an update has, each rank has one. Throws what is told
// as a mistake in the arguments if there are more ranks than that.
void share_updates(TrainConfig& training, bool given);
// Throws Error that names the first rank whose flags make other settings than the first rank's, and
// one of them.
void want_same_settings(const ModelConfig& model, const TrainConfig& training);
// A flag for how long a rank that hangs is waited for.
void add_deadline_flag(CLI::App& command, double& seconds);

// The groups of flags, for --help.
inline constexpr const char* kModelGroup =
    "Model (what is not given is the preset's, or chosen: see --list)";
inline constexpr const char* kTrainingGroup =
    "Training (defaults are those of a preset that is named; without --steps, --epochs, --minutes "
    "and --patience: until 5 validations bring nothing better, or for 20 epochs)";

// Throws what is told as a mistake in the arguments if a flag that was given is for another family
// of models, as its description begins.
void want_of_family(const ModelConfig& config, const std::set<std::string>& given);

// Throws what is told as a mistake in the arguments if R-Drop has no dropout to draw.
void want_draws(const ModelConfig& config, const TrainConfig& training);

// What the first rank has made, as the others find it.
ModelFolder model_of_first_rank(const std::string& folder);
// What the flags of a run that is resumed ask for.
struct Asked {
  std::string preset;  // if one was given
  ModelConfig model;
  std::set<std::string> model_given;  // fields that flags were given for
  TrainConfig training;
  std::set<std::string> training_given;
  // Of the vocabulary, what was given: its kind, one for both sides, its size at most (0: none).
  std::string tokens;
  bool joint = false;
  int64_t vocabulary = 0;
};
// Throws what is told as a mistake in the arguments if it is not what the model has, where that
// cannot change.
void check_resumed(const ModelFolder& model, const Asked& asked);
// Says that a vocabulary is learnt now, and from how much where that is not all `lines`.
void tell_learning(const TokenizerOptions& tokenizer, int64_t lines);
// Throws Error unless all these files can be read, more than once; "" is none.
void want_files(const std::vector<std::string>& paths);

// Where a run is written down. Opened before anything else is told or done: throws Error if it
// cannot be, or if the file is there and no such log.
class TrainingLog {
 public:
  // A file for JSON lines, a folder for event files; empty: none.
  TrainingLog(const std::string& json, const std::string& tensorboard);
  void write(const Progress& p);

 private:
  std::ofstream json_;
  std::optional<EventFile> events_;
};

struct TrainingRun {
  std::string folder;
  TrainingLog& log;
  double deadline = 0;                                       // seconds
  std::function<std::optional<Validation>()> validate = {};  // may be empty
  std::string validation_set = {};   // what it looks at, as Trainer::Hooks has it
  std::function<void()> begun = {};  // called where nothing speaks against the run
  double validation_cost = 0;        // as Trainer::Hooks has it
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();  // of the command
};

// From now on the first Ctrl-C, SIGTERM and closing of the terminal only ask to stop; gives what
// says whether one did. The program then ends as if by that signal (main.cpp).
std::function<bool()> stop_on_signal();
// From now on who reads what is told may end, as tee does by the same Ctrl-C: no work is lost by
// it.
void outlive_readers();
// The signal that asked to stop; 0: none did.
int stop_signal();

// Trains until a limit or a signal, and tells of it on stderr.
void run_training(Trainer& trainer, const TrainingRun& run);

}  // namespace heed::apps
