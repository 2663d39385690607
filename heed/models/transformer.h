// The Transformer (Vaswani et al., 2017), with any score in the place of scaled dot products.
// Without an encoder it is a language model: decoder blocks with self-attention alone (Radford et
// al., 2018).
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include "heed/attention/multi_head.h"
#include "heed/models/model.h"
#include "heed/nn/layers.h"

namespace heed {

class Transformer final : public Model {
 public:
  Transformer(const Params& params, const ModelConfig& config, const Vocabularies& v);

  TeacherForced forward(const Source& source, const Tensor& target_in,
                        const WantWeights& want_weights) const override;
  State start(const Source& source) const override;
  // One head of the last layer but one: what follows can use what it has found.
  AlignmentHead guided_head() const override;
  Step step(State& state, const Tensor& last, bool want_weights) const override;
  Tensor output_weight() const override;
  std::optional<Tensor> output_bias() const override;
  std::optional<int64_t> positions() const override { return positions_of(config_); }
  bool trains_in_bf16() const override { return true; }
  WordLayers word_layers(const Source& source, Id begin) const override;

 private:
  // A simpler simple recurrent unit (Kim et al., 2019) in the place of a decoder's self-attention.
  struct Ssru {
    Linear forget, input;
  };
  struct Block {  // of the encoder or, with a cross part, of the decoder
    LayerNorm self_norm, inner_norm;
    std::optional<MultiHead> self;  // none: recurrent
    std::optional<Ssru> recurrent;
    FeedForward inner;
    std::optional<LayerNorm> cross_norm;
    std::optional<MultiHead> cross;
  };
  enum class Cross { yes, no };
  Block block(const Params& params, Cross cross) const;
  static Tensor all_steps(const Ssru& cell, const Tensor& x);
  class Stream;
  enum class Side { source, target };
  // With places, the host's positions say but how many there are.
  Tensor embed(Side side, const Tensor& id, const Positions& first,
               const std::optional<State::Places>& places = {}) const;
  // What every layer of the decoder reads of the source.
  struct Memory {
    std::vector<KeysValues> layers;
    const std::vector<Id>& lengths;
  };
  Weights whole_target(const Memory& memory, const Tensor& target_in,
                       const WantWeights& wanted) const;
  // What is wanted of the encoder beside its result.
  struct Shown {
    std::vector<Tensor>* layers = nullptr;
    std::vector<Weights>* weights = nullptr;
  };
  // Does who reads the result alone multiply it, and may it be rounded for that?
  enum class For { all, products };
  Tensor encode(const Source& source, const Shown& shown, For reader = For::all) const;
  // Are what norms give to such blocks' parts only operands of products in bf16?
  bool rounds(const std::vector<Block>& blocks) const;

  ModelConfig config_;
  Embedding source_;
  std::optional<Embedding> target_;                     // none: the source's
  std::optional<LayerNorm> source_norm_, target_norm_;  // of word and position
  std::optional<Embedding> positions_;                  // learned ones
  SinusoidalPositions sinusoids_;
  std::vector<Block> encoder_, decoder_;
  std::optional<LayerNorm> encoder_norm_, decoder_norm_;  // with norms before, one more at the end
  std::optional<Linear> output_;                          // none: tied
  std::optional<Tensor> output_bias_;
};

}  // namespace heed
