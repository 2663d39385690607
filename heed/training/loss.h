// The loss of a batch under teacher forcing: the decoder reads the true target, shifted by one, and
// the loss is the cross entropy of its tokens and, where an alignment is given, of the attention's
// weights (guided alignment, Chen et al., 2016). What a model predicts beside the target
// (TeacherForced::also) is added.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include "heed/data/batch.h"
#include "heed/models/model.h"

namespace heed {

struct LossOptions {
  double smoothing = 0.1;  // label smoothing
  double guided = 0;       // weight of the alignment's loss
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
