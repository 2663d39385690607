// From a model to tokens: greedy search (a beam of one), beam search, sampling, and the scoring of
// a given target. Sees a model through start(), step() and State alone.
//
// A sentence's result depends neither on the others in the batch nor on their order. All functions
// may be called from many threads at once, each in a context of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heed/models/model.h"

namespace heed {

// A token that a search kept at some step.
struct SearchNode {
  Id token = 0;
  int64_t parent = -1;         // the node of the token before, which stands before it; -1: none
  double log_probability = 0;  // of all tokens up to this one
  bool finished = false;       // the end of a hypothesis
  bool best = false;           // on the way to the one that won
  // What hypotheses are ranked by, of the tokens up to this one: of an end, that of its hypothesis.
  double score = 0;
  // The tokens that were considered here, likeliest first, with what each alone adds.
  struct Candidate {
    Id token = 0;
    double log_probability = 0;
  };
  std::vector<Candidate> candidates = {};
};

// What a search has come to while it is under way.
struct SearchProgress {
  std::vector<Id> likeliest;           // tokens; those of another hypothesis may be the next time
  std::vector<SearchNode> grown = {};  // if options.want_tree: the nodes since the last time
};

// When a search ends, beside the longest that a translation may be.
//   patience   see SearchOptions::patience
//   counted    when patience * beam hypotheses have ended, whatever the live ones are; where scores
//              are not divided by a length, when the likeliest of a step has ended: CTranslate2's
//   full       when `beam` hypotheses have ended and no live one is, as it stands, better than the
//              worst of them: Hugging Face's, with early_stopping false
//   shrinking  one that ends leaves its place empty, and the last one ends the search: Marian's
enum class Ending { patience, full, shrinking, counted };
// By these names. Throws Error for another.
Ending ending_named(const std::string& name);
std::string to_string(Ending ending);

struct SearchOptions {
  Id begin = 2, end = 3, pad = 0, unknown = 1;
  int64_t beam = 5;      // hypotheses kept; 1: greedy
  int64_t best = 1;      // hypotheses returned for each sentence
  double normalize = 1;  // scores are divided by length^normalize; 0: not at all
  double coverage = 0;   // Wu et al. (2016), eq. 14: beta
  // A search ends when patience * beam hypotheses have ended (Kasai et al., 2022; 1 is the rule of
  // fairseq and CTranslate2) and no live one is, as it stands, better than all of them; or when no
  // live one can become better than the worst of `beam` ended ones. Infinite: the latter alone,
  // which is exact but long.
  double patience = 1;
  Ending ending = Ending::patience;
  int64_t min_length = 0;  // tokens before the end
  double max_ratio = 2;    // at most max_ratio * source + max_extra tokens
  int64_t max_extra = 20;
  int64_t max_length = 0;  // and never more than so many; 0: no limit
  int64_t no_repeat = 0;   // no n-gram of this length twice; 0: allowed
  bool allow_unknown = true;
  bool allow_begin = false;  // the begin and the pad may be said, as any word (CTranslate2's rule)
  // One that is as long as it may be has the end next, as likely as it is there. Open: it stops
  // without the end, which is no part of its length. Free: the end costs nothing.
  bool open_end = false, free_end = false;
  // Logits of tokens that were said are divided by it, negative ones multiplied (Keskar et al.,
  // 2019); 1: not.
  double repetition_penalty = 1;
  // Runs of tokens that are not said: the last one of each does not follow the others.
  std::vector<std::vector<Id>> suppress = {};
  // What the options above do not let follow (nor min_length, no_repeat, allow_unknown) has no part
  // in probabilities either: those of the others sum up to one.
  bool renormalize = false;
  bool want_weights = false;
  // Which weights: a layer (-1, or not said: the last) and a head (-1, or not said: the mean of
  // all).
  std::optional<int64_t> layer = {}, head = {};
  int64_t mean_of = 0;  // the mean is of so many heads, the first; 0: of all (AlignmentHead)
  int64_t shift = 0;    // a word's weights are those of so many steps later (AlignmentHead)
  bool whole = false;  // a given target's weights are of a pass that sees all of it (AlignmentHead)
  // Sampling instead of a beam.
  bool sample = false;
  double temperature = 1;
  int64_t top_k = 0;  // only the likeliest so many; 0: all
  double top_p = 1;   // only the likeliest that make up this probability
  uint64_t seed = 1;
  // By sentence, or empty: tokens that a translation must begin with, and numbers that draws depend
  // on, such as the line's.
  std::vector<std::vector<Id>> prefixes = {};
  // A prefix's tokens count for nothing: as CTranslate2 has it, an unlikely one then does not make
  // what follows longer.
  bool free_prefix = false;
  // Above 0: a prefix is not forced. Where a hypothesis has been the prefix so far, its next token
  // has this share of the probability, and the model's distribution the rest (Arivazhagan et al.,
  // 2020, "Re-translation versus Streaming", biased beam search).
  double prefix_bias = 0;
  // By sentence, or empty: the only tokens, rising, that have a probability (a shortlist). None:
  // all of them. The end, and a prefix's, must be among them.
  std::vector<std::vector<Id>> shortlists = {};
  // Not the best hypotheses, but after the prefix each of the `best` likeliest tokens, if it has at
  // least this probability, and what follows it best. Their order is that of these tokens; their
  // score is the token's log-probability and the score of what follows.
  bool alternatives = false;
  double least_alternative = 0;
  std::vector<int64_t> numbers = {};
  bool want_tree = false;  // every token that was kept: for an engine (engine.h)
};

// Throws Error that names the first option that cannot be.
void check(const SearchOptions& options);

struct Hypothesis {
  std::vector<Id> ids;         // without begin and end
  double log_probability = 0;  // of ids and end
  double score = 0;            // normalized; what hypotheses are ranked by
  // If wanted: for each of ids, and for the end, the weights [Ts] that produced it. Of a language
  // model, which has no source: [t + 1] for token t, those on begin and the tokens so far.
  std::vector<std::vector<float>> weights = {};
};

// The best hypotheses of each sentence, best first: all of them at once, by an engine that lasts as
// long as this (engine.h has one that lasts), in the context in use.
std::vector<std::vector<Hypothesis>> search(const Model& model, const Source& source,
                                            const SearchOptions& options);
class Engine;
std::vector<std::vector<Hypothesis>> search(Engine& engine, const Source& source,
                                            const SearchOptions& options);

// Given targets scored token by token: the same numbers that search() reports for them.
std::vector<Hypothesis> score_targets(const Model& model, const Source& source,
                                      const std::vector<std::vector<Id>>& targets,
                                      const SearchOptions& options);

// One of the weights of a step, [rows, Ts], or of a forced target, [B, Tt, Ts]: of a layer (-1: the
// last) and a head (-1: the mean of the first `mean_of`, 0: of all).
Tensor chosen_weights(const std::vector<Weights>& all, int64_t layer, int64_t head,
                      int64_t mean_of = 0);

// Row t becomes row t + shift; the last ones, which have none, stay.
void shift_weights(std::vector<std::vector<float>>& rows, int64_t shift);

}  // namespace heed
