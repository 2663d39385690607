// A model's distribution of the next token, changed before a search looks at it: tokens that were
// said made less likely, all but a shortlist left out, a token of a prefix made likelier.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heed/models/model.h"

namespace heed {

struct Reweigh {
  double repetition_penalty = 1;  // of the logits of `said`
  std::span<const Id> said = {};
  std::span<const Id> only = {};       // none: all tokens
  std::span<const Id> forbidden = {};  // have no part in it
  std::optional<Id> towards = {};      // has the share `bias`, and of the rest what it had
  double bias = 0;
};

// Log-probabilities of all tokens from their logits, or from log-probabilities where there is no
// penalty.
std::vector<float> reweighed(std::span<const float> scores, const Reweigh& how);

}  // namespace heed
