// ELMo (Peters et al., 2018): a language model in each direction with one table of word vectors and
// one output, and a mix of their layers,
//
//   mix_k = gamma sum_j s_j [forward_{k,j}; backward_{k,j}],  s = softmax(w),
//
// in which layer 0 is the word's vector in the table. In the paper a later task learns w and gamma.
// Here the task is to fill a gap: word k from the forward mix of the words before it and the
// backward mix of those behind it. It is trained together with the two language models, and neither
// side of the gap has read the word.
//
// As a translation model sees it, source and target are the same sentence. Search and scores go
// forward.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include "heed/models/model.h"
#include "heed/nn/recurrent.h"

namespace heed {

class BidirectionalLanguageModel final : public Model {
 public:
  BidirectionalLanguageModel(const Params& params, const ModelConfig& config, int64_t words);

  // What is predicted beside the target: the words of the source from behind, and each in its gap.
  // Without a source: nothing.
  TeacherForced forward(const Source& source, const Tensor& target_in,
                        const WantWeights& want_weights) const override;
  State start(const Source& source) const override;
  Step step(State& state, const Tensor& last, bool want_weights) const override;
  Tensor output_weight() const override;
  WordLayers word_layers(const Source& source, Id begin) const override;

 private:
  struct Direction {
    std::vector<RecurrentCell> cells;  // from the bottom up
    Linear hidden;
  };
  static Direction direction(const Params& params, const ModelConfig& config);
  // The words' vectors, and the states of every layer: each [B, T, n].
  std::vector<Tensor> layers(const Direction& d, const Tensor& ids,
                             const CellOptions& options) const;
  Tensor mix(const std::vector<Tensor>& layers) const;

  ModelConfig config_;
  Embedding words_;
  Direction forward_, backward_;
  Tensor mix_weights_, mix_scale_;  // w [1, layers + 1], gamma [1]
  Linear gap_;
  std::optional<Linear> output_;  // none: tied
};

}  // namespace heed
