// attention(q, K, V) = weigh(mask(score(q, K))) V: one operator for every mechanism.
//
//   const auto score = make_score("additive", params, {.query = 256, .key = 512});
//   const Attended read = attend(*score, q, keys, values, {.mask = Mask::padding(lengths)});
//
// Where the score has a form that the fused kernel knows and the weights are soft, nothing of size
// Tq x Tk is held, forward or back. All shapes are [B, heads, T, size]; transposed views cost no
// copy.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <optional>

#include "heed/attention/mask.h"
#include "heed/attention/score.h"
#include "heed/attention/weigh.h"

namespace heed {

// Keys as a score's prepare() left them: computed once, read by many queries.
struct PreparedKeys {
  Tensor k;  // [B, G, Tk, any]
  // ids [B, at most Tk]: the first keys of row i, and their values, lie in these rows instead of
  // row i (KeyValueCache::as_they_lie).
  std::optional<Tensor> origins = {};
};

// Local attention around a place that the query predicts (Luong et al., 2015, eq. 9 and 10): keys
// up to `reach` away are seen, and scores fall with a Gaussian of deviation reach / 2. (The paper
// multiplies the weights by it after the softmax; added to the scores, they sum to one.)
struct LocalPlace {
  Tensor place;  // [B, H, Tq]
  double reach = 0;
};

struct AttendOptions {
  Mask mask = {};
  Weigh weigh = {};
  const DistanceBias* bias = nullptr;  // added to the scores
  // Added to the scores as well, for each query and key: [Tq, Tk] or [B or 1, H or 1, Tq, Tk]. -inf
  // hides a key, whose numbers must be finite all the same: for padding there is the mask. Its
  // gradient is computed where it is tracked. It costs [B, H, Tq, Tk]: nothing is fused.
  std::optional<Tensor> score_bias = {};
  std::optional<LocalPlace> local = {};
  Positions first = {};  // of the queries: that of the first, or one for each sentence
  double dropout = 0;    // of the weights, while a tape is open
  // Weights cost memory when they are asked for, and only then.
  bool want_weights = false;
  bool want_terms = false;  // what the score compares, where it has a form of the fused kernel
  int64_t want_top = 0;     // the largest so many weights of each query, in memory for so many
};

struct Attended {
  Tensor context;                              // [B, H, Tq, m]
  std::optional<Tensor> weights = {};          // [B, H, Tq, Tk], before dropout
  std::optional<ScoreTerms> terms = {};        // if wanted
  std::optional<Ranked> top = {};              // [B, H, Tq, want_top]; no gradient
  std::optional<Tensor> log_probability = {};  // Weigh::Kind::reinforce: [B, H, Tq]
};

// q [B, H, Tq, query], keys [B, G, Tk, key], values [B, G, Tk, m].
Attended attend(const Score& score, const Tensor& q, const Tensor& keys, const Tensor& values,
                const AttendOptions& options = {});
Attended attend(const Score& score, const Tensor& q, const PreparedKeys& keys, const Tensor& values,
                const AttendOptions& options = {});

// Predicts where to look: place = length * sigmoid(v^T tanh(W q)) (Luong et al., 2015, eq. 9), with
// W and v shared by the heads.
class PlacePredictor {
 public:
  PlacePredictor(const Params& params, int64_t size);
  // q [B, H, Tq, d], the sources' lengths [B] -> [B, H, Tq].
  Tensor operator()(const Tensor& q, std::span<const Id> lengths) const;

 private:
  Tensor w_, v_;
};

}  // namespace heed
