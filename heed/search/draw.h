// Sampling: the next token drawn from a model's distribution.
//
// A draw costs little more than the step of a greedy search. The tokens stand in a fixed order, the
// likeliest ones, of which a step finds a list, by falling probability, then all others by their
// id; a uniform number says where in it. Nearly always it falls into the list, which with the
// distribution's normalizer is all that is needed; else the row's whole distribution is asked for.
//
// Tokens that may not follow are left out. Those in the list are known; where the number falls on
// one that is not, a draw is made from the whole distribution without them: a token's probability
// is its own divided by that of all that may follow (rejection sampling). In the same way top_p is
// kept where the list is not enough for it: a token is drawn again if those that are likelier make
// up so much without it.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "heed/search/candidates.h"

namespace heed {

// The distribution of a hypothesis' next token, as a step has found it.
struct NextToken {
  std::span<const float> log_probabilities;  // of the likeliest tokens, falling
  std::span<const Id> tokens;                // these; of equals the smaller first
  int64_t vocabulary = 0;                    // of so many
  // The sum over all tokens of (p / the largest p)^(1 / temperature), where it is known.
  std::optional<double> normalizer = {};
  std::function<std::span<const float>()> all = {};  // log-probabilities of all tokens
};

// How many of the likeliest tokens a draw wants to know, and whether also the normalizer, for its
// temperature. A draw depends on both: they follow from the options alone.
int64_t tokens_for_draw(const SearchOptions& options);
bool normalizer_for_draw(const SearchOptions& options);
// The temperature of a draw: one near 0 is the least at which sums are still numbers.
double temperature_of_draw(const SearchOptions& options);

// The same of a distribution that is wholly known, which is borrowed: all tokens'
// log-probabilities.
struct KnownDistribution {
  KnownDistribution(std::span<const float> all, const SearchOptions& options);
  NextToken next;

 private:
  std::vector<float> scores_;
  std::vector<Id> tokens_;
};

// One allowed token, drawn: a function of the distribution, the options' seed, the sentence's
// number and the step.
TokenScore drawn_token(const NextToken& next, const Allowed& allowed, int64_t number, int64_t step);

}  // namespace heed
