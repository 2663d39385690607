// The training loop: batch, loss (teacher forcing), backward, clip, update; now and then log,
// validate, save. On a GPU in mixed precision, where the model can: bf16 activations and compute
// copies, f32 master weights. On a CPU products alone can be of bf16 operands (ops/bf16.h).
//
// A run is a function of its configuration, its corpus and the number of steps: one that was killed
// at any moment and resumed ends with the same bytes as one that was not, its checkpoint included.
// (Limits of time are the exception.)
//
// Several ranks (ranks/ranks.h) train as one: each has its share of an update's micro-batches, and
// the run, its bytes included, does not depend on how many there are. What clocks and signals
// decide, the first rank's decide for all; it alone writes.
//
// Threads: one trains at a time with a set of parameters.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "heed/data/batch.h"
#include "heed/models/model.h"
#include "heed/models/tensor_file.h"
#include "heed/ranks/ranks.h"
#include "heed/tensor/context.h"
#include "heed/tensor/graph.h"
#include "heed/training/gradient_sum.h"
#include "heed/training/loss.h"
#include "heed/training/loss_watch.h"
#include "heed/training/optimizer.h"
#include "heed/training/report.h"
#include "heed/training/schedule.h"
#include "heed/training/shards.h"

namespace heed {

struct TrainConfig {
  double rate = 1e-3;
  std::string schedule = "inverse_sqrt";
  int64_t warmup = 1000;
  int64_t batch_tokens = 2048;
  int64_t accumulate = 1;
  double smoothing = 0.1;
  double sampling = 0;  // for the Corpus (CorpusOptions), which draws; a Trainer only keeps it
  double clip = 1;
  double decay = 0;
  double average = 0.999;
  int64_t average_last = 0;
  double guided = 0;
  bool guided_auto = false;
  double rdrop = 0;
  int64_t hold_out = 0;  // for the Corpus, as sampling
  int64_t steps = 0, epochs = 0;
  double minutes = 0;
  int64_t validate_every = 0;
  int64_t save_every = 0;
  std::string stop_on = "bleu";
  int64_t patience = 0;
  std::string precision = "auto";
  std::string wire = "f32";
  uint64_t seed = 1;
};

template <class Config, class F>
requires std::is_same_v<std::remove_const_t<Config>, TrainConfig>
void fields(Config& c, F&& f) {
  f("rate", c.rate, "the highest learning rate");
  f("schedule", c.schedule, "inverse_sqrt, cosine, constant or plateau");
  f("warmup", c.warmup, "steps until the highest rate");
  f("batch_tokens", c.batch_tokens, "tokens a batch, padding counted");
  f("accumulate", c.accumulate,
    "batches whose gradients are summed before an update, over all ranks; not given: as many as "
    "there are ranks");
  f("smoothing", c.smoothing, "label smoothing");
  f("sampling", c.sampling,
    "subwords are drawn anew in each epoch: bpe leaves out a merge with this probability (0.05, "
    "say), unigram raises probabilities to this power (0.3, say; less is more varied); 0: always "
    "the same");
  f("clip", c.clip, "gradients are scaled down to this norm; 0: never");
  f("decay", c.decay, "weight decay (AdamW)");
  f("average", c.average,
    "the model that is kept is the exponential mean of the parameters with this factor; 0: the "
    "last");
  f("average_last", c.average_last,
    "instead: the plain mean of the parameters at the last so many validations; 0: the exponential "
    "one");
  f("guided", c.guided,
    "weight of the alignment's loss, where an alignment is given; auto: the corpus is aligned "
    "first, and teaches with a weight of 0.3");
  f("guided_auto", c.guided_auto, "that alignment is learnt from the corpus");
  f("rdrop", c.rdrop,
    "R-Drop: every sentence is read with two draws of dropout, and their distributions are pulled "
    "together with this weight (5, say); twice the work a step; 0: one draw");
  f("hold_out", c.hold_out,
    "without sentences to validate on, one of so many lines is held out for it; 0: none");
  f("steps", c.steps, "updates at most; 0: no limit");
  f("epochs", c.epochs, "times through the corpus at most; 0: no limit");
  f("minutes", c.minutes,
    "time at most, all of it counted; a cosine schedule ends then, unless --steps end it earlier; "
    "0: no limit");
  f("validate_every", c.validate_every,
    "updates between validations; 0: the first one early, and all within a tenth of the time");
  f("save_every", c.save_every, "updates between checkpoints; 0: half a minute");
  f("stop_on", c.stop_on, "what says which model is best: bleu or loss");
  f("patience", c.patience, "validations without a better model before it stops; 0: never");
  f("precision", c.precision,
    "f32, bf16 (parameters stay f32; on a CPU, which must have AVX-512 BF16, of products alone), "
    "or "
    "auto: bf16 on a GPU where the model can, else f32");
  f("wire", c.wire,
    "how gradients travel between ranks: f32, or bf16, half as many bytes; the run's bytes then "
    "depend on the number of ranks");
  f("seed", c.seed, "of initial values, order of batches, dropout and sampling");
}

// Throws Error for what makes no sense.
void check(const TrainConfig& config);
std::string to_json(const TrainConfig& config);
TrainConfig train_config(const std::string& json, const std::string& where);

struct Validation {
  double loss = 0;             // nats a token
  std::optional<double> bleu;  // 0 to 100
};

// What a line of progress says.
struct Progress {
  int64_t epoch = 0, step = 0;
  int64_t updates = 0;        // since the last line: of none, the next four say nothing
  double loss = 0;            // nats a token since the last line, smoothing included
  double words_a_second = 0;  // tokens of the target, padding not counted; of all ranks
  double waiting = 0;         // the share of the time that this rank waited for others
  // On a GPU: of this rank's micro-batches (of updates of one: of updates), the share that was a
  // replayed graph (tensor/graph.h).
  std::optional<double> replayed = {};
  double rate = 0, gradient_norm = 0;
  double seconds = 0;               // over all parts of a run
  std::optional<double> left = {};  // seconds until the nearest limit
  std::optional<Validation> validation = {};
  bool best = false;
};

// Whether a trainer gives this name to a file in checkpoint/.
bool is_checkpoint_name(const std::string& name);

class Trainer {
 public:
  // What the loop asks for and tells; all may be empty.
  struct Hooks {
    // The same on all ranks. Nothing: it was given up, since somebody asks to stop; what is resumed
    // begins with it.
    std::function<std::optional<Validation>()> validate;
    // What `validate` looks at, told apart by these words. Where the best of a checkpoint is of
    // other sentences, or by another measure, or its model is gone, it begins anew, and why is
    // told.
    std::string validation_set = {};
    std::function<void(const std::string& why)> best_begins_anew = {};
    std::function<void(const Progress&)> log;
    std::function<bool()> stop;        // a signal came: save and leave
    std::function<void()> begun = {};  // nothing speaks against the run
    double spent = 0;                  // seconds that this part of the run took before run()
    // What a validation takes, in target tokens that could be trained on meanwhile: counted, not
    // measured, so that equal runs validate at equal steps.
    double validation_cost = 0;
  };
  enum class End { limit, patience, stopped };

  // Writes into `folder`: model.safetensors (the best so far) and checkpoint/. `ranks` train
  // together: every one of them makes and runs a trainer with the same settings.
  Trainer(const Model& model, Params params, std::shared_ptr<Examples> examples,
          const TrainConfig& config, std::filesystem::path folder,
          std::shared_ptr<Ranks> ranks = alone());

  // Goes on from folder/checkpoint. Returns false if there is none. Throws Error if a file of it is
  // damaged.
  bool resume();

  End run(const Hooks& hooks);

  int64_t steps() const { return state_.step; }

 private:
  // What follows from the time that is given and from how fast it goes; 0: as configured, or not
  // known yet. A checkpoint has it, so that what is resumed goes on by it.
  struct Plan {
    int64_t steps = 0, warmup = 0;
    int64_t validate_every = 0, since = 0;  // counted from that step on
    double minutes = 0;                     // what the steps were made for
  };
  // All that a checkpoint holds beside tensors; the seconds, which no two runs share, in a file of
  // their own.
  struct RunState {
    int64_t step = 0;
    DataPosition position;
    double best = -std::numeric_limits<double>::infinity();      // larger is better
    double best_loss = std::numeric_limits<double>::infinity();  // of that validation
    std::optional<std::string> best_of = {};  // by what, on what; none: nobody wrote it down
    int64_t since_best = 0;
    int64_t validated = 0;             // the step that was last looked at
    std::vector<int64_t> recent = {};  // steps whose parameters are kept for the plain mean
    double rate_factor = 1;
    double seconds = 0;  // all of it: training, validation, writing, and what came before
    Plan plan = {};
  };
  // A moment of the run, and the seconds that updates took until then.
  struct Mark {
    int64_t step = 0;
    double seconds = 0;
  };
  struct Window {  // since the last line
    double loss = 0, norm = 0;
    int64_t tokens = 0, updates = 0;
    std::chrono::steady_clock::time_point since;
    double waited = 0;  // until then
    int64_t replayed = 0;
  };
  // What all ranks know of a micro-batch that one of them computed.
  struct MicroBatch {
    int64_t tokens = 0, line = 0;
    DataPosition after;
  };
  struct Update {  // one that was launched, and will be looked at
    int64_t step = 0;
    std::vector<Batch> batches;     // of this rank
    std::vector<MicroBatch> micro;  // of all
    int64_t exchanges = 0;          // between GPUs, until then
    StepReport::Ticket report = {};
  };
  struct Stored {  // a tensor of the checkpoint, as this rank has it
    TensorPart part;
    size_t parameter = 0;    // whose it is
    bool in_pieces = false;  // each rank has its own (Shards::piece); else all have all
  };
  using Time = std::chrono::steady_clock::time_point;
  struct Moment {  // as all ranks see it
    Time now;
    bool stop = false;
  };

  Moment agreed(bool stop = false);
  Time now() { return agreed().now; }
  void meet();
  Share share() const { return share_of(ranks_->rank(), ranks_->count(), config_.accumulate); }
  double waited() const { return gpus_ ? gpus_->waited() : ranks_->waited(); }
  Window new_window(Time since) const;
  template <class T>
  void give_to_all(const std::string& what, std::vector<T>& of_micro_batches) const;
  void share_counts(Update& update) const;
  Batch on_device(Batch batch) const;
  void try_longest(Batches& batches);
  Tensor backward(const Batch& batch, int64_t at);
  SummedGradients gradients(const std::vector<Batch>& now);
  std::string worst_gradient(const Update& update);
  void update(Batches& batches, Window& window);
  void flush_report(Window& window);
  void take_recent_mean();
  Tensor piece(size_t parameter) const;
  void swap_average();
  void with_average(const std::function<void()>& work);
  void forget_old() const;
  void keep_or_forget_best(const Hooks& hooks);
  bool is_best(const Validation& now);
  bool validate(const Hooks& hooks, Progress& progress);
  std::map<std::string, Stored> checkpoint() const;
  Tensor collected(const std::string& name, const Stored& stored) const;
  void save() const;
  void read_seconds();
  void save_model() const;
  Schedule schedule() const;
  bool looks(const Hooks& hooks) const { return hooks.validate || config_.average_last > 0; }
  bool validation_is_due() const;
  bool knows_its_pace() const;
  int64_t warmup_of(int64_t steps) const;
  bool wants_plan(const Hooks& hooks) const;
  void make_plan(const Hooks& hooks);
  void shorten_plan(const Hooks& hooks);
  double update_seconds() const;
  bool reached_limit() const;
  bool out_of_patience() const;
  Progress progress(const Window& window) const;
  std::filesystem::path checkpoint_path() const;
  std::filesystem::path seconds_path() const;
  std::filesystem::path recent_path(int64_t step) const;

  const Model& model_;
  Params params_;
  std::shared_ptr<Examples> examples_;
  std::string identity_;  // theirs
  std::shared_ptr<Ranks> ranks_;
  TrainConfig config_;
  std::filesystem::path folder_;
  SafetensorsOptions tensor_options_;  // the folder's
  // What this rank moves and has the moments and means of.
  Shards shards_;
  Adam adam_;
  std::vector<Tensor> average_;  // by parameter, flat; empty: the last ones are kept
  std::shared_ptr<Arena> arena_;
  StepGraphs graphs_;
  Tensor losses_;  // of this rank's batches of an update, by token
  std::optional<Update> under_way_;
  RunState state_;
  double begun_ = 0;               // seconds of the run when this part of it began to train
  Mark updates_;                   // now, within this part of the run
  Mark earlier_, later_;           // where measuring may begin: the first updates are slow
  double validation_seconds_ = 0;  // that one takes, with what is written after it
  LossWatch watch_;
  std::unique_ptr<GpuExchange> gpus_;  // of several ranks; last: it goes before memory does
};

}  // namespace heed
