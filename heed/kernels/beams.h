// Beam search where the scores are: what the sentences of a running batch have come to, and the
// kernels by which they begin and grow. It is search/beam.h's search, of sentences that ask for
// nothing but words: the same numbers, in f64, so the same choices.
//
// Hypotheses of a sentence have places, 0 to beam - 1. What each of them is made of is written down
// step by step: the token at a place, and the place that it grew from.
#pragma once

#include <compare>

#include "heed/kernels/kernels.h"

namespace heed::kernels {

// What the sentences of a batch have in common (SearchOptions, which see).
struct BeamRules {
  enum class Ending { patience, counted, likeliest_counted, full, shrinking };
  Id begin = 0, end = 0, pad = 0, unknown = 0;
  bool allow_unknown = true, allow_begin = false, open_end = false, free_end = false;
  int64_t min_length = 0, best = 1;
  Ending ending = Ending::patience;
  double enough = 1;  // ended hypotheses, after which the search may be over
  double normalize = 1;
  auto operator<=>(const BeamRules&) const = default;
};

inline constexpr int kMostBeam = 16;

// Arrays [slots], where nothing else is said.
struct Beams {
  BeamRules rules;
  int64_t slots = 0, most = 0;    // tokens that a translation may have
  int beam = 1, kept = 1;         // hypotheses that are live, and that have ended
  const double* power = nullptr;  // [most + 2]: n^normalize

  Id* number = nullptr;      // of the sentence, since the beginning; negative: nobody is there
  Id* longest = nullptr;     // tokens of its translation, at most
  Id* steps = nullptr;       // tokens so far
  Id* live = nullptr;        // hypotheses
  Id* ended = nullptr;       // so many have
  Id* finished = nullptr;    // and so many of these are kept
  Id* best_ended = nullptr;  // was the likeliest of a step an end?
  Id* order = nullptr;       // [slots, beam]: the places of the live ones, likeliest first
  double* score = nullptr;   // [slots, beam]: log-probabilities by place; of the dead -inf
  // For the model's next step, by row: the tokens before, and the rows that hypotheses grew from.
  Id* last = nullptr;      // [slots, beam]
  Id* from = nullptr;      // the same
  Id* position = nullptr;  // the same: where it stands
  Id* past = nullptr;      // [slots, beam, 2]: which of its own tokens it sees, and this one
  Id* source = nullptr;    // the same of the source
  Id* token = nullptr;     // [most, slots, beam]
  Id* parent = nullptr;    // the same: places
  // The best that have ended, best first.
  double* ended_score = nullptr;            // [slots, kept]
  double* ended_log_probability = nullptr;  // the same
  Id* ended_length = nullptr;               // tokens
  Id* ended_place = nullptr;                // of the last of them

  // Sentences that are over, in memory that the host reads.
  struct Over {
    Id* number = nullptr;               // the last one that was over in this slot
    Id* count = nullptr;                // hypotheses; negative: the scores were no numbers
    double* score = nullptr;            // [slots, best]
    double* log_probability = nullptr;  // the same
    Id* length = nullptr;               // the same
    Id* tokens = nullptr;               // [slots, best, most]
  } over;
};

// Sentences begin in these slots; a negative one stands for nobody.
struct BeginBeams {
  Beams beams;
  int64_t count = 0;
  const Id* slot = nullptr;     // [count]
  const Id* number = nullptr;   // the same
  const Id* longest = nullptr;  // the same
  const Id* length = nullptr;   // the same: of the source
};
void run(Cpu, const BeginBeams&);
void run(Cuda, const BeginBeams&);

// Every sentence goes on with what a step has found: the likeliest tokens of each hypothesis, and
// how likely the end is.
struct GrowBeams {
  Beams beams;
  int64_t vocabulary = 0, likeliest = 0;
  const float* value = nullptr;    // [slots, beam, likeliest]: log-probabilities, falling
  const Id* index = nullptr;       // the same: tokens
  const float* all = nullptr;      // [slots, beam, vocabulary]
  const float* log_sum = nullptr;  // by row: `all` is more by it than log-probabilities; or null
};
void run(Cpu, const GrowBeams&);
void run(Cuda, const GrowBeams&);

}  // namespace heed::kernels
