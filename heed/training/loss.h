// The loss of a batch: cross entropy of the target's words and, where an alignment is given, of the
// attention's weights (guided alignment, Chen et al., 2016). What a model predicts beside the
// target (TeacherForced::also) is added.
#pragma once

#include "heed/data/batch.h"
#include "heed/models/model.h"

namespace heed {

struct LossOptions {
  double smoothing = 0.1;  // of labels
  double guided = 0;       // weight of the alignment's loss
};

struct BatchLoss {
  Tensor total;          // what is minimized: a mean over the target's words
  Tensor cross_entropy;  // its first part
};

BatchLoss batch_loss(const Model& model, const Batch& batch, const LossOptions& options);

// The sum of -log p over the target's words, without smoothing, without a tape.
double negative_log_likelihood(const Model& model, const Batch& batch);

Source source_of(const Batch& batch);

}  // namespace heed
