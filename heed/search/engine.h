// The decoding engine: the one loop that takes a model step by step. Sentences of any number of
// callers run together (search/slots.h); each joins at the next step and leaves when it is
// done, and its result has the same bytes as alone.
//
//   Engine engine(model);
//   const auto found = engine.decode({{.source = tokens, .options = {.beam = 5}}});
//
// Of the callers that wait, one drives the loop for all until its own sentences are done, then
// another does; or threads of the engine's own do, each a lane: a batch of its own, in a context of
// its own, of the sentences of all callers. All functions may be called from any thread, but not by
// one that holds the engine's context while others use the engine.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "heed/base/turns.h"
#include "heed/ops/weight.h"
#include "heed/search/beam.h"

namespace heed {

class Engine {
 public:
  // Graphs are for GPUs, but on a CPU their steps compute the same, one kernel after the other.
  enum class Steps { by_device, as_graphs, plain };
  // Who takes the steps: those that call, in turn, or threads behind it: as many as the context has
  // on a CPU, if the weights are packed, and else one.
  enum class Drives { callers, own_threads };

  struct Options {
    std::shared_ptr<Context> context = nullptr;  // none: the one in use
    Steps steps = Steps::by_device;
    // None: the model's weights may change whenever nothing is under way.
    std::shared_ptr<PackedWeights> packed = nullptr;
    Drives drives = Drives::callers;
    int64_t worth_a_lane = 4;  // so many sentences are; fewer share the threads of one
  };
  // Borrows the model.
  explicit Engine(const Model& model) : Engine(model, Options()) {}
  Engine(const Model& model, Options options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  struct Request {
    std::vector<Id> source;      // tokens, with the end; none for a language model
    SearchOptions options = {};  // without what is by sentence, which stands here
    std::vector<Id> prefix = {};
    std::vector<Id> shortlist = {};  // SearchOptions::shortlists
    int64_t context = 0;             // tokens of the prefix that are no part of what is ranked
    int64_t number = 0;              // what draws depend on
    // Room for so many sentences of its kind in a lane is enough for it; a lane whose steps other
    // threads share has room for theirs, too.
    int64_t slots = 32;
    // And for so many tokens in all of them: sentences times their longest source times the beam.
    // What steps hold grows with it. 0: any number; where slots are fixed, on a GPU, it is not
    // asked for.
    int64_t tokens = 0;
    // Called by who takes the step, before the first that the sentence is in and after each but the
    // last; those of several sentences by several threads at once. `wanted`: false ends it with an
    // Error. `progress`, if it is wanted: what it is so far.
    std::function<bool()> wanted = {};
    std::function<void(const SearchProgress&)> progress = {};
  };
  struct Result {
    std::vector<Hypothesis> hypotheses = {};  // best first
    std::vector<SearchNode> tree = {};        // if options.want_tree
  };

  // All of these, in their order. `done` is called on this thread, with the number of each as it is
  // finished. Throws what went wrong with one of them, after all have ended.
  std::vector<Result> decode(std::vector<Request> requests,
                             const std::function<void(size_t)>& done = {});

  // For who drives the loop himself, such as a server: a request joins at one of the next steps,
  // and `finished` is called by the thread that takes the step, in the engine's context; what it
  // throws is lost. Requests that are left when the engine ends get an Error.
  using Finished = std::function<void(Result, std::exception_ptr)>;
  void submit(Request request, Finished finished);
  // One step of all that is under way (in the first lane), waiting for whoever takes one now; false
  // if there was nothing.
  bool step();

  // Since the beginning: steps, and the sentences that were in them; and how many wait now.
  struct Load {
    uint64_t steps = 0, sentences = 0;
    int64_t waiting = 0;
  };
  Load load() const;

  const Model& model() const { return model_; }
  Context& context() const { return *context_; }
  int64_t lanes() const { return std::ssize(lanes_); }
  int64_t replayed() const;  // steps that were a captured graph
  // Held during each step in the engine's context: who computes something else there comes between
  // two of them.
  Turns& turns() const { return lanes_[0]->driving; }

 private:
  struct Pending {
    Request request;
    Finished finished;
  };
  struct Call;  // of decode(), under way
  struct Running {
    std::optional<Beam> beam;  // none: the batch's searches are resident (Slots::Kind)
    Finished finished;         // none: the caller has been told already
    std::function<bool()> wanted;
    std::function<void(const SearchProgress&)> progress;
  };
  struct Batch {
    std::unique_ptr<Slots> slots;
    std::vector<std::unique_ptr<Running>> running;  // by slot; none: idle
    int64_t live = 0;
  };
  // A part of what runs, for one thread at a time.
  struct Lane {
    explicit Lane(std::shared_ptr<Context> of) : context(std::move(of)) {}

    const std::shared_ptr<Context> context;
    std::atomic<int64_t> live = 0;  // sentences in it; grows with the engine's mutex held
    Turns driving;                  // of all that follows: who takes a step
    std::map<Slots::Kind, Batch> batches;
    std::shared_ptr<PackedWeights> packed_meanwhile;  // of weights that may change
    std::thread thread;                               // of its own, if it has one
  };
  // SearchOptions::alternatives: finds the tokens that may follow, then goes on from each.
  std::vector<Result> decode_alternatives(std::vector<Request> requests,
                                          const std::function<void(size_t)>& done);
  Slots::Kind kind_of(const Request& request) const;
  bool captures(const Request& request) const;
  void check_request(const Request& request) const;
  void enqueue(std::vector<Pending> requests);
  struct Shares {
    int64_t waiting = 0;  // sentences that do
    int64_t lanes = 1;    // that should have some
    int64_t each = 0;     // of those that wait and those that run
    int64_t busy = 0;     // lanes that have some now
  };
  Shares shares() const;
  int64_t room(const Lane& lane) const;
  bool take_step(Lane& lane);
  void drive(Lane& lane);
  void hand_over();
  void admit(Lane& lane, const Slots::Kind& kind, std::deque<Pending>& waiting, Batch& batch);
  bool admit_some(Lane& lane, const Slots::Kind& kind, std::deque<Pending>& waiting, Batch& batch);
  static void begin(Batch& batch);
  std::vector<Pending> choose(Lane& lane, const Slots::Kind& kind, std::deque<Pending>& waiting,
                              const Batch& batch);
  void advance(Lane& lane, Batch& batch);
  void advance_ahead(Lane& lane, Batch& batch);
  static void end_unwanted(Lane& lane, std::vector<Pending>& pending);
  static void end(Lane& lane, Batch& batch, int64_t slot, Result result, std::exception_ptr error);
  static void end_all(Lane& lane, Batch& batch, std::exception_ptr error);
  static void tell(const Finished& finished, Result result, std::exception_ptr error);

  const Model& model_;
  const std::shared_ptr<Context> context_;
  const Device device_;
  const Steps steps_;
  const std::shared_ptr<PackedWeights> packed_;
  const int64_t worth_a_lane_;

  mutable std::mutex mutex_;  // of what waits
  std::map<Slots::Kind, std::deque<Pending>> waiting_;
  int64_t slots_ = 1;                            // that the last of them asked for
  std::thread::id driver_;                       // who takes steps, if somebody does
  std::vector<std::shared_ptr<Call>> sleeping_;  // callers of decode() that wait for others
  std::condition_variable arrived_;              // for threads of its own
  bool ending_ = false;
  std::atomic<uint64_t> steps_taken_ = 0, sentences_in_steps_ = 0;

  std::vector<std::unique_ptr<Lane>> lanes_;  // the first one's context is the engine's
};

}  // namespace heed
