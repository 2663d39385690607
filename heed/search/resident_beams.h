// The searches of a running batch, kept where the model computes: a step's choices are a kernel of
// the step, so the next one can be launched before the host knows what came of this one. The host
// hears of a sentence when it is over. Same words and numbers as beam.h, for searches that ask for
// nothing else.
//
// For one thread at a time, in the context that it was made in.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "heed/kernels/beams.h"
#include "heed/models/model.h"
#include "heed/ops/ops.h"
#include "heed/search/search.h"

namespace heed {

class ResidentBeams {
 public:
  // What sentences have in common whose searches can be kept so, where they can.
  static std::optional<kernels::BeamRules> rules(const SearchOptions& options);

  // In the arena in use.
  ResidentBeams(const kernels::BeamRules& rules, int64_t beam, int64_t slots);

  // Room for translations of so many tokens. Before a step is captured anew.
  void make_long(int64_t tokens);
  int64_t most() const { return most_; }  // tokens that there is room for

  // A sentence begins in a slot, as part of a step; a negative slot stands for nobody.
  struct Start {
    Id slot = -1, number = 0, longest = 0, length = 0;  // the last one: of its source
  };
  void begin(std::span<const Start> all) const;
  // For the model's next step: the tokens before, [rows], and the rows that hypotheses grew from.
  const Tensor& last() const { return last_; }
  const Tensor& from() const { return from_; }
  const State::Places& places() const { return places_; }
  // Goes on with what a step has found: its likeliest tokens, and the log-probabilities of all or,
  // with a log_sum, what is more by it.
  void grow(const Ranked& likeliest, const Tensor& all, const std::optional<Tensor>& log_sum) const;

  // Is this sentence over, as far as the host can see? What it sees is as of the last step that it
  // has waited for.
  bool over(int64_t slot, Id number) const;
  // Throws Error if the model's scores are no numbers.
  std::vector<Hypothesis> hypotheses(int64_t slot) const;
  const void* lies_at() const { return state_.raw(); }  // for read_later()

 private:
  kernels::Beams view() const;

  const kernels::BeamRules rules_;
  const int64_t beam_, kept_, slots_;
  int64_t most_ = 0;
  std::shared_ptr<Arena> arena_;
  Tensor state_, order_, score_, last_, from_, trace_;  // as kernels::Beams has them
  State::Places places_;
  Tensor power_, ended_, ended_score_;
  struct Shared {  // memory of the host that kernels write to
    std::shared_ptr<void> memory;
    kernels::Beams::Over over;
  } shared_;
};

}  // namespace heed
