#include "heed/search/draw.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "heed/base/random.h"

namespace heed {
namespace {

// The list: so many tokens have most of the probability where a model knows its language. With
// top_k all of these and some that may not follow, where they are not too many.
constexpr int64_t kListed = 64, kMostListed = 256, kSpare = 16;
// A draw has so many numbers, and tries so often before it sorts.
constexpr uint64_t kWords = 16;
constexpr int kAttempts = 6;
// Sums over a row are rounded (f32): what they decide must not hang on so small a share.
constexpr double kRounded = 1e-5;
// Where less than this share may follow, what the list leaves of 1 is not precise enough.
constexpr double kEnough = 0.01;

bool by_list(const SearchOptions& o) { return o.top_k > 0 && o.top_k <= kMostListed - kSpare; }

class Draw {
 public:
  Draw(const NextToken& next, const Allowed& allowed)
      : next_(next),
        allowed_(allowed),
        temperature_(temperature_of_draw(allowed.options)),
        banned_(allowed.banned()),
        top_(double(next.log_probabilities[0])) {
    for (size_t i = 0; i < next.tokens.size(); ++i) {
      const TokenScore w{double(next.log_probabilities[i]), next.tokens[i]};
      if (w.token < 0) continue;  // there were fewer
      const double share = weight(w, top_);
      listed_ += share, ++listed_tokens_;
      if (is_banned(w.token)) {
        ++listed_banned_;
      } else {
        open_.push_back(w), shares_.push_back(share);
        may_follow_ += share;
      }
    }
    if (next.normalizer)
      sum_ = *next.normalizer;
    else if (allowed.options.temperature == 1)
      sum_ = std::exp(-top_);
    if (whole()) sum_ = listed_;
    if (!sum_) return;
    may_follow_ += rest();
    // The sum of what may follow is not known to the last: tokens that may not are not all listed.
    // None of these is likelier than the last that is.
    const TokenScore last{double(next.log_probabilities.back()), next.tokens.back()};
    const double hidden =
        std::min(rest(), double(std::ssize(banned_) - listed_banned_) * weight(last, top_));
    least_ = may_follow_ - hidden - kRounded * *sum_, most_ = may_follow_ + kRounded * *sum_;
  }

  // `uniform` gives one number after the other.
  template <class Uniform>
  TokenScore draw(const Uniform& uniform) const {
    const SearchOptions& o = allowed_.options;
    if (o.top_k > 0 && o.top_k < next_.vocabulary) {
      const auto kept = kept_of_list();
      return pick(kept ? *kept : kept_of_all(), uniform());
    }
    if (o.top_p < 1) {
      if (const auto kept = kept_of_list()) return pick(*kept, uniform());
      for (int i = 0; i < kAttempts && enough(); ++i)
        if (const auto w = attempt(uniform()); w && in_nucleus(*w)) return *w;
      return pick(kept_of_all(), uniform());
    }
    if (enough())
      if (const auto w = attempt(uniform())) return *w;
    return pick(all_open(), uniform());
  }

  // The one token that may follow.
  TokenScore only(Id token) const {
    const auto at = std::ranges::find(next_.tokens, token);
    if (at == next_.tokens.end()) return {double(next_.all()[static_cast<size_t>(token)]), token};
    return {double(next_.log_probabilities[static_cast<size_t>(at - next_.tokens.begin())]), token};
  }

 private:
  double weight(const TokenScore& w, double top) const {
    return std::exp((w.log_probability - top) / temperature_);
  }
  bool is_banned(Id token) const { return std::ranges::find(banned_, token) != banned_.end(); }
  bool whole() const { return listed_tokens_ == next_.vocabulary; }
  // What tokens have that are not listed.
  double rest() const { return std::max(0.0, *sum_ - listed_); }
  // Is it known well enough what may follow?
  bool enough() const { return sum_ && may_follow_ >= kEnough * *sum_; }

  // Where a uniform number falls in the order of all tokens; nothing where that one may not follow,
  // or where rounding has left some of it.
  std::optional<TokenScore> attempt(double uniform) const {
    double at = uniform * may_follow_;
    for (size_t i = 0; i < open_.size(); ++i) {
      if (at < shares_[i]) return open_[i];
      at -= shares_[i];
    }
    if (whole()) return std::nullopt;
    const std::span<const float> all = next_.all();
    const std::vector<bool> listed = marked(next_.tokens);
    for (size_t i = 0; i < all.size(); ++i) {
      if (listed[i]) continue;
      const TokenScore w{double(all[i]), static_cast<Id>(i)};
      const double share = weight(w, top_);
      if (at < share) return is_banned(w.token) ? std::nullopt : std::optional(w);
      at -= share;
    }
    return std::nullopt;
  }

  // Whether w is among the likeliest that make up top_p: those before it do not.
  bool in_nucleus(const TokenScore& w) const {
    const double top_p = allowed_.options.top_p;
    double before = 0, total = 0;
    for (size_t i = 0; i < open_.size() && likelier(open_[i], w); ++i) before += shares_[i];
    if (std::ranges::find(next_.tokens, w.token) != next_.tokens.end()) {
      if (before < top_p * least_) return true;
      if (before >= top_p * most_) return false;
    }
    const std::span<const float> all = next_.all();
    const std::vector<bool> banned = marked(banned_);
    before = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (banned[i]) continue;
      const TokenScore other{double(all[i]), static_cast<Id>(i)};
      const double share = weight(other, top_);
      total += share;
      if (likelier(other, w)) before += share;
    }
    return before == 0 || before < top_p * total;
  }

  std::vector<bool> marked(std::span<const Id> tokens) const {
    std::vector<bool> out(static_cast<size_t>(next_.vocabulary));
    for (const Id w : tokens)
      if (w >= 0 && w < next_.vocabulary) out[static_cast<size_t>(w)] = true;
    return out;
  }

  // All that may follow, in the order of the draw.
  std::vector<TokenScore> all_open() const {
    std::vector<TokenScore> out = open_;
    const std::vector<bool> listed = marked(next_.tokens);
    for (const TokenScore& w : open_tokens(next_.all(), allowed_))
      if (!listed[static_cast<size_t>(w.token)]) out.push_back(w);
    return out;
  }

  // How many of `falling` make up top_p of `total`; 0 if all do not. At least one does.
  size_t count_of_top_p(std::span<const TokenScore> falling, double top, double total) const {
    const double wanted = allowed_.options.top_p * total;
    double reached = 0;
    for (size_t i = 0; i < falling.size(); ++i)
      if ((reached += weight(falling[i], top)) >= wanted) return i + 1;
    return 0;
  }

  // What top_k and top_p leave, as far as the list can tell.
  std::optional<std::vector<TokenScore>> kept_of_list() const {
    const SearchOptions& o = allowed_.options;
    std::vector<TokenScore> kept = open_;
    size_t count = 0;
    if (o.top_k > 0 || whole()) {
      if (std::ssize(kept) < o.top_k && !whole()) return std::nullopt;
      if (kept.empty()) return kept;
      if (o.top_k > 0) kept.resize(std::min(kept.size(), static_cast<size_t>(o.top_k)));
      double total = 0;
      for (const TokenScore& w : kept) total += weight(w, kept[0].log_probability);
      count = count_of_top_p(kept, kept[0].log_probability, total);
    } else {
      if (!enough()) return std::nullopt;
      count = count_of_top_p(kept, top_, most_);
      if (count != count_of_top_p(kept, top_, least_)) return std::nullopt;
    }
    if (count == 0) return std::nullopt;
    kept.resize(count);
    return kept;
  }

  // The same from the whole distribution.
  std::vector<TokenScore> kept_of_all() const {
    const SearchOptions& o = allowed_.options;
    const auto less = [](const TokenScore& a, const TokenScore& b) { return likelier(b, a); };
    std::vector<TokenScore> heap = open_tokens(next_.all(), allowed_), kept;
    std::ranges::make_heap(heap, less);
    const double top = heap.front().log_probability;
    const auto take = [&] {
      std::ranges::pop_heap(heap, less);
      kept.push_back(heap.back());
      heap.pop_back();
    };
    double total = 0;
    if (o.top_k > 0) {
      while (!heap.empty() && std::ssize(kept) < o.top_k) take();
      for (const TokenScore& w : kept) total += weight(w, top);
      const size_t count = count_of_top_p(kept, top, total);
      if (count > 0) kept.resize(count);
      return kept;
    }
    for (const TokenScore& w : heap) total += weight(w, top);
    double reached = 0;
    while (!heap.empty() && (kept.empty() || reached < o.top_p * total)) {
      take();
      reached += weight(kept.back(), top);
    }
    return kept;
  }

  // One of these, by their probabilities; where nothing may follow, the end.
  TokenScore pick(std::span<const TokenScore> from, double uniform) const {
    double top = -INFINITY, total = 0;
    for (const TokenScore& w : from) top = std::max(top, w.log_probability);
    if (top == -INFINITY) return only(allowed_.options.end);
    for (const TokenScore& w : from) total += weight(w, top);
    double at = uniform * total;
    const TokenScore* chosen = nullptr;
    for (const TokenScore& w : from) {
      const double share = weight(w, top);
      if (share == 0) continue;
      chosen = &w;
      if (at < share) break;
      at -= share;
    }
    return *chosen;
  }

  const NextToken& next_;
  const Allowed& allowed_;
  const double temperature_;
  const std::vector<Id> banned_;
  const double top_;              // the largest log-probability, to which weights are relative
  std::vector<TokenScore> open_;  // listed, and may follow
  std::vector<double> shares_;    // their weights
  int64_t listed_tokens_ = 0, listed_banned_ = 0;
  std::optional<double> sum_;    // of all weights
  double listed_ = 0;            // of those that are listed
  double may_follow_ = 0;        // of those that may follow, and of banned ones that are not listed
  double least_ = 0, most_ = 0;  // between which that of those alone is
};

}  // namespace

int64_t tokens_for_draw(const SearchOptions& o) {
  if (!by_list(o)) return kListed;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(o.top_k + kSpare)));
}

bool normalizer_for_draw(const SearchOptions& o) { return o.temperature != 1 && !by_list(o); }

double temperature_of_draw(const SearchOptions& o) { return std::max(o.temperature, 1e-6); }

KnownDistribution::KnownDistribution(std::span<const float> all, const SearchOptions& o) {
  std::vector<Id> order(all.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](Id w) { return TokenScore{double(all[static_cast<size_t>(w)]), w}; };
  const auto listed = std::min<std::ptrdiff_t>(tokens_for_draw(o), std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + listed, order.end(),
                    [&](Id a, Id b) { return likelier(score(a), score(b)); });
  tokens_.assign(order.begin(), order.begin() + listed);
  for (const Id w : tokens_) scores_.push_back(all[static_cast<size_t>(w)]);
  next = {.log_probabilities = scores_, .tokens = tokens_, .vocabulary = std::ssize(all)};
  if (normalizer_for_draw(o)) {
    double sum = 0;
    for (const float x : all)
      sum += std::exp((double(x) - double(scores_[0])) / temperature_of_draw(o));
    next.normalizer = sum;
  }
  next.all = [all] { return all; };
}

TokenScore drawn_token(const NextToken& next, const Allowed& allowed, int64_t number,
                       int64_t step) {
  const SearchOptions& o = allowed.options;
  const Draw draw(next, allowed);
  if (allowed.only) return draw.only(*allowed.only);
  if (std::ssize(allowed.tokens) >= allowed.longest)
    return o.open_end || o.free_end ? TokenScore{0, o.end} : draw.only(o.end);
  Random random(o.seed ^ (0x9E3779B97F4A7C15ull * static_cast<uint64_t>(number + 1)),
                static_cast<uint64_t>(step) * kWords);
  return draw.draw([&] { return double(random.split() >> 11) * 0x1p-53; });
}

}  // namespace heed
