// From scores to weights: the third seam.
//
// Soft weights mix all values; hard ones take exactly one, which has no derivative, so that they
// are trained by an estimate; sparse ones lie between, many of them exactly zero.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "heed/nn/module.h"
#include "heed/ops/ops.h"

namespace heed {

struct Weigh {
  enum class Kind {
    soft,              // softmax
    hard,              // 1 at the largest score; no gradient reaches the scores
    straight_through,  // the same, with softmax's gradient (Bengio et al., 2013)
    reinforce,  // one key drawn by softmax's probabilities (Xu et al., 2015); see reinforce_loss
    gumbel,     // softmax of scores with Gumbel noise (Jang et al., 2017)
    sparsemax,  // Martins and Astudillo, 2016
    entmax,     // 1.5-entmax, Peters et al., 2019
  };
  Kind kind = Kind::soft;
  // Scores are divided by it: towards 0 soft weights become hard ones.
  double temperature = 1;
};

struct WeighRow {
  const char* name;
  const char* formula;
  Weigh::Kind kind;
};
std::span<const WeighRow> weigh_table();
// Throws Error that names the nearest.
Weigh::Kind weigh_kind(const std::string& name);

struct Weighed {
  Tensor weights;                         // as the scores
  std::optional<Tensor> log_probability;  // reinforce: of the keys drawn, [B, H, Tq]
};
// Weights [B, H, Tq, Tk] of scores that are -inf where nothing is seen; rows of -inf get zeros.
// What is drawn is drawn while a tape is open; else the largest score is taken.
Weighed weigh(const Weigh& how, const Tensor& scores);

// What is added to the loss so that keys drawn are learned (Williams, 1992): the mean over all
// queries of -(reward - b) log p + (reward - b)^2, where b is the baseline's guess of the reward;
// the first term moves the scores alone, the second the baseline alone. All three [B, H, Tq].
Tensor reinforce_loss(const Tensor& log_probability, const Tensor& reward, const Tensor& baseline);

// A learned guess of the reward from the query: [B, H, Tq, d] -> [B, H, Tq].
class Baseline {
 public:
  Baseline(const Params& params, int64_t size);
  Tensor operator()(const Tensor& q) const;

 private:
  Tensor w_, bias_;
};

}  // namespace heed
