// A running batch: sentences in slots, each with its hypotheses and at its own position. Sentences
// join and leave at any step; a step computes the scores of the next token of every hypothesis, and
// the likeliest tokens come to the host.
//
// On a CPU slots are as many as there are sentences: who leaves makes room for the last one. On a
// GPU their number is fixed and all of them are computed, idle ones too, so that a step is one
// graph (tensor/graph.h) with one upload and one read-back; sources are encoded a fixed number at a
// time, with widths rounded up by each sentence's own length. So what a sentence gives there does
// not depend on when others come and go.
//
// There, searches that ask for words alone are kept on the device as well (resident_beams.h): the
// host launches a step before it knows what came of the one before, and hears of sentences when
// they are over. Their sources are encoded ahead, many at a time: they wait in places behind the
// slots, and begin() when slots are idle.
//
// For one thread at a time, in the context that it was made in.
#pragma once

#include <compare>
#include <deque>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heed/models/model.h"
#include "heed/ops/top_log_softmax.h"
#include "heed/search/resident_beams.h"
#include "heed/search/shortlists.h"
#include "heed/tensor/graph.h"

namespace heed {

class Slots {
 public:
  // What a step computes; sentences of one kind can run together.
  struct Kind {
    int64_t beam = 1;         // hypotheses of a sentence
    int64_t likeliest = 1;    // tokens that come to the host
    bool normalizer = false;  // for a draw at a temperature
    bool logits = false;      // before the softmax, too
    bool weights = false;     // of this layer and head, as in AlignmentHead
    int64_t layer = -1, head = -1, mean_of = 0;
    bool listed = false;  // sentences say words of their shortlists alone; where steps are plain
    int64_t slots = 0;    // where their number is fixed; else 0
    std::optional<kernels::BeamRules> resident = {};  // of searches that are kept where steps are
    auto operator<=>(const Kind&) const = default;
  };
  // How many slots there are where sentences want so many and steps are captured.
  static int64_t fixed(int64_t wanted);

  // With a number of slots steps are captured, as graphs; else they run kernel by kernel.
  Slots(const Model& model, const Kind& kind, Id pad);

  int64_t size() const { return size_; }  // slots, idle ones too
  // Slots and, after them, the places where encoded sentences wait.
  int64_t places() const { return size_ + waiting_places_; }
  // How many sentences may wait, of this kind; how many there is room for now.
  static int64_t may_wait(const Kind& kind);
  int64_t room() const;
  int64_t waiting() const { return std::ssize(waiting_); }
  // False after an exception in the middle of a change: what is in it cannot go on.
  bool whole() const { return whole_; }
  int64_t beam() const { return kind_.beam; }
  int64_t width() const;  // tokens of the longest source in it
  Id pad() const { return pad_; }
  int64_t replayed() const { return graphs_ ? graphs_->replayed() : 0; }  // steps that were a graph

  // Sentences begin: their tokens and, of listed ones, their shortlists. The slots that they get:
  // on a CPU the next ones, on a GPU idle ones, of which there must be enough. With resident
  // searches also the tokens that their translations may have; they get places to wait in.
  std::vector<int64_t> join(std::span<const std::vector<Id>> sources,
                            std::span<const std::vector<Id>> lists = {},
                            std::span<const int64_t> longest = {});

  // One further token of every hypothesis; `last` has the tokens before, by slot, and
  // `temperatures`, where the normalizer is wanted, a number for each hypothesis.
  void step(std::span<const Id> last, std::span<const double> temperatures = {});

  // With resident searches: who waits begins where slots are idle, once it is worth a launch. The
  // slots that they get: (place, slot).
  std::vector<std::pair<int64_t, int64_t>> begin();
  // With resident searches: a step and what they make of it, launched behind those before. Nobody
  // chooses; the sentences that have ended leave.
  void step_ahead();
  struct Ended {
    int64_t slot;
    std::vector<Hypothesis> hypotheses;  // best first
    std::exception_ptr error;
  };
  // Those that were over `behind` steps ago, at least; waits for that.
  std::vector<Ended> ended(size_t behind);

  // What came of it, for hypothesis k of a slot. Of listed sentences tokens outside the shortlist
  // have no part in it: they are not among the likeliest, and their log-probabilities are -inf.
  struct Likeliest {
    std::span<const float> log_probabilities;  // falling
    std::span<const Id> tokens;
  };
  Likeliest likeliest(int64_t slot, int64_t k) const;
  // If wanted: the sum over all tokens of (p / the largest p)^(1 / temperature).
  double normalizer(int64_t slot, int64_t k) const;
  std::span<const float> weights(int64_t slot, int64_t k) const;  // if wanted
  // Of all tokens; what is borrowed lasts until the next is asked for. Of a GPU's only the row that
  // is asked for is read, and all of them when many are.
  std::span<const float> log_probabilities(int64_t slot, int64_t k);
  std::span<const float> logits(int64_t slot, int64_t k);  // if wanted
  int64_t vocabulary() const;                              // V
  bool listed() const { return kind_.listed; }

  // Hypothesis k of each slot becomes what hypothesis from[slot * beam + k] of it was, and those in
  // `gone`, a rising list, leave. The slots that others then have: (before, after).
  std::vector<std::pair<int64_t, int64_t>> choose(std::span<const Id> from,
                                                  std::span<const int64_t> gone);

 private:
  int64_t at_a_time(int64_t left, int64_t width) const;
  int64_t row(int64_t slot, int64_t k) const { return slot * kind_.beam + k; }
  bool captured() const { return graphs_.has_value(); }
  State state() const;
  State taken();
  void compute(State& state, const Tensor& last, std::span<const double> temperatures);
  void compute_lists(const Tensor& logits);
  std::span<const float> spread(int64_t slot, const Tensor& scores, int64_t k);
  void join_now(std::span<const std::vector<Id>> sources, std::span<const int64_t> to);
  void join_captured(std::span<const std::vector<Id>> sources, std::span<const int64_t> to,
                     int64_t width);
  bool computed(int64_t slot) const;
  void settle(size_t behind);
  void tell_lengths();
  void captured_step(std::span<const Id> last, std::span<const double> temperatures);
  void put(const State& fresh, std::span<const Id> to);
  void begin_some(std::span<const std::pair<int64_t, int64_t>> moves);
  StepGraphs::Shape shape(int64_t kind, int64_t sources, int64_t width) const;
  void make_wide(int64_t width);
  void make_long(int64_t positions);

  const Model& model_;
  const Kind kind_;
  const Id pad_;
  std::shared_ptr<Arena> lasting_;  // where what lasts from step to step lies
  std::optional<StepGraphs> graphs_;
  int64_t size_ = 0, waiting_places_ = 0;
  bool whole_ = true;
  std::vector<bool> idle_;       // of the slots and places, where their number is fixed
  std::deque<int64_t> waiting_;  // places, in the order in which they begin

  std::map<std::string, Tensor> sentence_;  // [at least size, G, width, n]
  std::map<std::string, int> rank_;         // of what the model gave: 2 or 4
  std::map<std::string, Tensor> views_;  // what of it a step reads, until slots change; else none
  std::map<std::string, Tensor> hypothesis_, waiting_hypothesis_;  // the latter: a row a place
  std::map<std::string, KeyValueCache> cache_;
  std::vector<Id> lengths_, positions_;
  int64_t width_ = 0, capacity_ = 0;      // where they are fixed
  std::vector<Id> from_;                  // what choose() was given, for a captured step
  std::optional<Shortlists> shortlists_;  // of listed sentences

  std::optional<ResidentBeams> resident_;
  std::vector<Id> numbers_, longest_;  // of the sentence in a slot or place, since the beginning
  Id next_number_ = 0;
  std::deque<int64_t> under_way_;  // steps: tickets of read_later()
  std::vector<Ended> ended_;       // nobody has asked for them yet

  struct Found {
    Tensor log_probabilities;          // [rows, V]; with a log_sum: log_sum more than these
    std::optional<Tensor> log_sum;     // on a CPU: [rows, 1]
    std::optional<Tensor> logits;      // [rows, V], on the host
    std::optional<Ranked> likeliest;   // from here on on the host: [rows, most]
    std::optional<Tensor> normalizer;  // its logarithm, negative: [rows, 1]
    std::optional<Tensor> weights;     // [rows, Ts]
    // Of listed sentences, by slot, in the place of the first five: of its list alone.
    struct Listed {
      Tensor logits;      // [beam, n]
      TopLogSoftmax top;  // whose indices are tokens
    };
    std::vector<Listed> listed;
  } found_;
  std::optional<Tensor> all_;        // found_.log_probabilities on the host
  std::optional<Tensor> one_;        // or a row of it
  int64_t one_row_ = 0, alone_ = 0;  // which, and how many were read so
};

}  // namespace heed
