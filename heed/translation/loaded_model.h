// A model made ready for inference, shared by any number of callers: its parameters never change
// and are held once, mapped from the file or, on a GPU, uploaded, and laid out for products once.
//
//   const auto model = LoadedModel::open("model", {.threads = 2});
//   const Translator a(model), b(model);
//
// All of it may be used from any thread. It computes in a context of its own (tensor/context.h),
// which has its own threads: two models in one process do not meet.
#pragma once

#include <memory>
#include <mutex>

#include "heed/ops/weight.h"
#include "heed/search/engine.h"
#include "heed/tensor/cuda.h"
#include "heed/translation/model_folder.h"

namespace heed {

class LoadedModel {
 public:
  struct Options {
    std::optional<Device> device = {};  // none: the one in use
    int index = 0;                      // which GPU
    int threads = 0;                    // 0: as many as the context in use has
    Compute compute = Compute::as_stored;
    // Words that translations may have: of a file as read_shortlist() takes it; "none": all words;
    // not given: those of the folder's own shortlist, if it has one.
    std::string shortlist = {};
    // Whether a thread waits for sentences even where there is but one: for callers that come and
    // go all the time, none of which is woken to take steps for the others.
    bool own_thread = false;
  };
  // Throws Error that says what is missing or does not fit.
  static std::shared_ptr<const LoadedModel> open(const std::filesystem::path& folder,
                                                 const Options& options);
  static std::shared_ptr<const LoadedModel> open(const std::filesystem::path& folder);
  // Borrows a model that is being trained, in the context in use, for one thread: between two calls
  // its parameters may change.
  static std::shared_ptr<const LoadedModel> borrow(const ModelFolder& folder);

  const ModelFolder& folder() const { return *folder_; }
  Context& context() const { return *context_; }
  Device device() const { return device_; }
  // What goes step by step. On a CPU with several threads, each takes steps of a part of the
  // sentences where there are enough for all, and else all share one step.
  Engine& engine() const { return *engine_; }

  // While it lives, this thread computes with the model, in its context, and nothing is recorded.
  // It waits for its turn. What it computes is received() by who leaves with it.
  class Turn {
   public:
    explicit Turn(const LoadedModel& model);

   private:
    std::unique_lock<Turns> turn_;
    UseContext context_;
    UseDevice device_;
    NoTape no_tape_;
    SameForAnyRows rows_;
    UsePackedWeights packed_;
  };

 private:
  LoadedModel() = default;

  std::unique_ptr<const ModelFolder> own_;
  const ModelFolder* folder_ = nullptr;
  std::shared_ptr<Context> context_;
  Device device_ = Device::cpu;
  std::shared_ptr<PackedWeights> packed_;  // none: parameters may change between calls
  std::unique_ptr<Engine> engine_;
};

}  // namespace heed
