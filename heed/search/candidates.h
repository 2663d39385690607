// Which tokens may follow, and the likeliest of them; draw.h draws one.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heed/search/search.h"

namespace heed {

struct TokenScore {
  double log_probability;
  Id token;
};

// What a hypothesis may say next.
struct Allowed {
  const SearchOptions& options;
  std::vector<Id> tokens;  // so far
  int64_t longest = 0;     // most tokens
  std::optional<Id> only = {};

  // Tokens that may not follow, in no order: those that the options forbid, and with pad and begin,
  // which no search says.
  std::vector<Id> forbidden() const;
  std::vector<Id> banned() const;
};

// Likelier tokens first, of equals the one with the smaller id.
bool likelier(const TokenScore& a, const TokenScore& b);

// All allowed tokens by id, at least one: where nothing may follow, the end.
std::vector<TokenScore> open_tokens(std::span<const float> log_probabilities,
                                    const Allowed& allowed);

// Up to `count` allowed tokens, likeliest first.
std::vector<TokenScore> best_tokens(std::span<const float> log_probabilities,
                                    const Allowed& allowed, int64_t count);

// The same from the row's largest scores in falling order, nothing if they are too few to tell.
std::optional<std::vector<TokenScore>> best_tokens(std::span<const float> largest,
                                                   std::span<const Id> tokens,
                                                   const Allowed& allowed, int64_t count);

}  // namespace heed
