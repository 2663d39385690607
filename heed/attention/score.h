// How a query and a key are compared: the first of attention's four seams (score, mask, weigh,
// read; attend.h).
//
// A new score is one class and one row of the table in score.cpp, or no row at all if it lives
// outside of heed: docs/recipes/add-a-score.md.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "heed/attention/positions.h"
#include "heed/nn/module.h"
#include "heed/ops/ops.h"

namespace heed {

struct ScoreSizes {
  int64_t query = 0, key = 0;  // sizes of a query's and of a key's vector in one head
  int64_t heads = 1;           // H
  int64_t key_heads = 0;       // G, a divisor of H; 0: as many as heads
  int64_t size = 0;            // additive: of the layer inside; 0: as the query
  int64_t rank = 0;            // of factorized forms; 0: not factorized
  int64_t positions = 0;       // static, location: the longest sentence
  bool bias = false;           // additive: v^T tanh(W q + U k + b)
  // Additive, one head: W q and U k each go through a layer norm with this epsilon, whose bias is
  // b.
  std::optional<double> norm_epsilon = {};

  int64_t groups() const { return key_heads ? key_heads : heads; }
};

// What the fused kernel is given: queries and keys in one of the forms it knows.
struct ScoreTerms {
  ScoreForm form = ScoreForm::dot;
  Tensor q, k;                      // [B or 1, H, Tq, n], [B or 1, G, Tk, n]
  double scale = 1;                 // of dot products
  std::optional<Tensor> v = {};     // additive: [H, n]
  std::optional<Tensor> bias = {};  // added: [1, H, Tq, Tk]
};

// What others must know of a score before there is one: each class says it of itself.
struct ScoreFacts {
  bool equal_sizes = false;  // queries and keys must have one size
  bool positions = false;    // made for so many positions, ScoreSizes::positions
  bool parameters = true;    // has some of its own: then it is computed in f32
  bool rank = false;         // ScoreSizes::rank makes it another
};

// A score overrides prepare() where something depends on the key alone, and one of the other two:
// terms(), if it can be written in a form of the fused kernel, or operator(), in plain ops.
class Score {
 public:
  virtual ~Score() = default;

  // What is computed once for each key: [B, G, Tk, key] -> [B, G, Tk, any].
  virtual Tensor prepare(const Tensor& keys) const { return keys; }

  // Scores [B or 1, H, Tq, Tk] of q [B, H, Tq, query] against prepared keys. `at`: where the
  // queries stand.
  virtual Tensor operator()(const Tensor& q, const Tensor& k, const Positions& at) const;

  // The same in a form of the fused kernel.
  virtual std::optional<ScoreTerms> terms(const Tensor& /*q*/, const Tensor& /*k*/,
                                          const Positions& /*at*/) const {
    return std::nullopt;
  }

  // The form of the fused recurrent decoder, which computes the score itself (ops/decoder.h):
  // v . tanh(q W + k) with one head, W [1, query, n] and v [1, n].
  struct DecoderForm {
    Tensor w, v;
  };
  virtual std::optional<DecoderForm> decoder_form() const { return std::nullopt; }
};

// The scores that terms stand for, by plain ops, which keep [B, H, Tq, Tk] (additive: times n).
// This is the definition that the fused kernel is tested against.
Tensor composed_scores(const ScoreTerms& terms);

// A row of the table of scores.
struct ScoreRow {
  const char* name;
  const char* formula;
  std::unique_ptr<Score> (*make)(const Params& params, const ScoreSizes& sizes);
  ScoreFacts facts;
  const char* alias = nullptr;  // another name
};
std::span<const ScoreRow> score_table();

// The row with this name or alias: `concat` is additive, written as w2^T tanh(W1 [q; k]) with W1 =
// [W U], `general` is bilinear. Throws Error that names the nearest.
const ScoreRow& score_row(const std::string& name);
const ScoreRow* find_score_row(const std::string& name);  // or null

// The score of that row. Its parameters are added to `params`.
std::unique_ptr<Score> make_score(const std::string& name, const Params& params,
                                  const ScoreSizes& sizes);

// ---- terms that any score can add

// A number for each distance between key and query, and each head.
class DistanceBias {
 public:
  virtual ~DistanceBias() = default;
  // [H, Tq + Tk - 1]: for key j and query i (at position first + i) at j - i + Tq - 1.
  virtual Tensor operator()(int64_t queries, int64_t keys, int64_t first) const = 0;
};

// ALiBi (Press et al., 2022): -slope_h |distance|, the slopes 2^(-8 h / H). Nothing is learned.
std::unique_ptr<DistanceBias> alibi(int64_t heads, Type type = Type::f32);

// A learned number for each bucket of distances (Raffel et al., 2020): exact ones near 0, growing
// by logarithm up to `furthest`; keys before and behind the query have buckets of their own.
std::unique_ptr<DistanceBias> distance_buckets(const Params& params, int64_t heads,
                                               int64_t buckets = 32, int64_t furthest = 128);

}  // namespace heed
