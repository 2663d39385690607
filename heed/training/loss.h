// The loss of a batch under teacher forcing: the decoder reads the true target, shifted by one, and
// the loss is the cross entropy of its tokens and, where an alignment is given, of the attention's
// weights (guided alignment, Chen et al., 2016). What a model predicts beside the target
// (TeacherForced::also) is added. R-Drop (Liang et al., 2021) reads every sentence twice, with two
// draws of dropout, and pulls the two distributions p and q of a token together:
//
//   (CE(p) + CE(q)) / 2 + rdrop (KL(p || q) + KL(q || p)) / 4,
//
// which is the paper's loss halved, so that the rate means the same with it and without.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include "heed/data/batch.h"
#include "heed/models/model.h"

namespace heed {

struct LossOptions {
  double smoothing = 0.1;  // label smoothing
  double guided = 0;       // weight of the alignment's loss
  double rdrop = 0;  // R-Drop's alpha; 0: one draw. For training: without a tape none is drawn
};

struct BatchLoss {
  Tensor total;          // what is minimized: a mean over the target's tokens
  Tensor cross_entropy;  // its first part
};

BatchLoss batch_loss(const Model& model, const Batch& batch, const LossOptions& options);

// The sum of -log p over the target's tokens, without smoothing, without a tape.
double negative_log_likelihood(const Model& model, const Batch& batch);

Source source_of(const Batch& batch);

}  // namespace heed
