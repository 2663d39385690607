#include "heed/search/candidates.h"

#include <algorithm>
#include <cmath>

namespace heed {

std::vector<Id> Allowed::banned() const {
  std::vector<Id> out = forbidden();
  // Some models begin with what ends their sentences.
  if (!options.allow_begin)
    for (const Id w : {options.pad, options.begin})
      if (w != options.end) out.push_back(w);
  return out;
}

std::vector<Id> Allowed::forbidden() const {
  std::vector<Id> out;
  const int64_t length = static_cast<int64_t>(tokens.size());
  if (length < options.min_length) out.push_back(options.end);
  if (!options.allow_unknown) out.push_back(options.unknown);
  // The tokens that followed the last n - 1 tokens before.
  const int64_t n = options.no_repeat;
  if (n > 0 && length >= n)
    for (int64_t i = 0; i + n <= length; ++i)
      if (std::equal(tokens.end() - (n - 1), tokens.end(), tokens.begin() + i))
        out.push_back(tokens[static_cast<size_t>(i + n - 1)]);
  for (const std::vector<Id>& run : options.suppress) {
    const int64_t before = std::ssize(run) - 1;
    if (length >= before && std::equal(run.begin(), run.end() - 1, tokens.end() - before))
      out.push_back(run.back());
  }
  return out;
}

std::vector<TokenScore> open_tokens(std::span<const float> scores, const Allowed& allowed) {
  if (allowed.only) return {{double(scores[static_cast<size_t>(*allowed.only)]), *allowed.only}};
  const Id end = allowed.options.end;
  if (static_cast<int64_t>(allowed.tokens.size()) >= allowed.longest)
    return {{allowed.options.open_end || allowed.options.free_end
                 ? 0
                 : double(scores[static_cast<size_t>(end)]),
             end}};
  std::vector<bool> open(scores.size(), true);
  for (const Id w : allowed.banned())
    if (w >= 0 && w < static_cast<Id>(scores.size())) open[static_cast<size_t>(w)] = false;
  std::vector<TokenScore> out;
  for (size_t w = 0; w < scores.size(); ++w)
    if (open[w]) out.push_back({double(scores[w]), static_cast<Id>(w)});
  if (out.empty()) out.push_back({double(scores[static_cast<size_t>(end)]), end});
  return out;
}

bool likelier(const TokenScore& a, const TokenScore& b) {
  return a.log_probability != b.log_probability ? a.log_probability > b.log_probability
                                                : a.token < b.token;
}

// One pass: nearly all tokens fail the first comparison.
std::vector<TokenScore> best_tokens(std::span<const float> scores, const Allowed& allowed,
                                    int64_t count) {
  if (allowed.only || static_cast<int64_t>(allowed.tokens.size()) >= allowed.longest)
    return open_tokens(scores, allowed);
  const std::vector<Id> banned = allowed.banned();
  std::vector<TokenScore> best;
  float least = -INFINITY;
  for (size_t i = 0; i < scores.size(); ++i) {
    if (!(scores[i] > least)) continue;
    const TokenScore w{double(scores[i]), static_cast<Id>(i)};
    if (std::find(banned.begin(), banned.end(), w.token) != banned.end()) continue;
    best.insert(std::upper_bound(best.begin(), best.end(), w, likelier), w);
    if (static_cast<int64_t>(best.size()) > count) best.pop_back();
    if (static_cast<int64_t>(best.size()) == count)
      least = static_cast<float>(best.back().log_probability);
  }
  // Where nothing may follow, the sentence ends.
  const Id end = allowed.options.end;
  if (best.empty()) best.push_back({double(scores[static_cast<size_t>(end)]), end});
  return best;
}

std::optional<std::vector<TokenScore>> best_tokens(std::span<const float> largest,
                                                   std::span<const Id> tokens,
                                                   const Allowed& allowed, int64_t count) {
  if (allowed.only || static_cast<int64_t>(allowed.tokens.size()) >= allowed.longest)
    return std::nullopt;
  const std::vector<Id> banned = allowed.banned();
  std::vector<TokenScore> best;
  for (size_t i = 0; i < tokens.size() && static_cast<int64_t>(best.size()) < count; ++i)
    if (std::find(banned.begin(), banned.end(), tokens[i]) == banned.end())
      best.push_back({double(largest[i]), tokens[i]});
  if (static_cast<int64_t>(best.size()) < count) return std::nullopt;
  return best;
}

}  // namespace heed
