// Recurrent encoder-decoders: Sutskever et al. (2014) without attention, Bahdanau et al. (2015) and
// Luong et al. (2015) with it, any score and any weights.
//
//   before (Bahdanau): c_t = attend(s_{t-1}),  s_t = cell([y_{t-1}; c_t], s_{t-1}),
//                      hidden_t = tanh(W [s_t; c_t; y_{t-1}])
//   after (Luong):     s_t = cell([y_{t-1}; hidden_{t-1}], s_{t-1}),  c_t = attend(s_t),
//                      hidden_t = tanh(W [s_t; c_t])       (hidden_{t-1} only with input feeding)
//   conditional:       s'_t = cell_1(y_{t-1}, s_{t-1}),  c_t = attend(s'_t),
//                      s_t = cell_2(c_t, s'_t), and transitions,
//                      hidden_t = tanh(W [s_t; c_t; y_{t-1}])       (Sennrich et al., 2017:
//                      Nematus)
//   none:              the encoder's last state is all that the decoder gets
//
// What c_t reads is chosen before y_t is known. An aligner is a second attention that nothing is
// read by, of the state that has read y_{t-1} and of that word: q = W [s_t; y_{t-1}] against
// k = U [h_j; x_j], the word x_j and its state h_j, and so says at step t where word t-1 came from.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include "heed/attention/multi_head.h"
#include "heed/models/model.h"
#include "heed/nn/recurrent.h"

namespace heed {

class RecurrentModel final : public Model {
 public:
  RecurrentModel(const Params& params, const ModelConfig& config, const Vocabularies& v);

  TeacherForced forward(const Source& source, const Tensor& target_in,
                        const WantWeights& want_weights) const override;
  State start(const Source& source) const override;
  Step step(State& state, const Tensor& last, bool want_weights) const override;
  Tensor output_weight() const override;
  std::optional<Tensor> output_bias() const override;
  std::optional<int64_t> positions() const override { return positions_of(config_); }
  WordLayers word_layers(const Source& source, Id begin) const override;
  // Where the decoder is one op (ops/decoder.h).
  bool trains_in_bf16() const override;
  AlignmentHead guided_head() const override;

 private:
  // The source as the decoder sees it, and the decoder's state.
  struct Memory {
    std::optional<KeysValues> kv;
    std::optional<Tensor> aligner_keys;  // [B, 1, Ts, n]
    std::vector<Id> lengths;
  };
  struct Decoder {
    std::vector<CellState> cells;  // from the bottom up
    std::optional<Tensor> fed;     // input feeding: hidden_{t-1}
  };
  struct Read {
    Tensor context;                   // [rows, m]
    std::optional<Tensor> weights;    // [rows, H, Ts]
    std::optional<ScoreTerms> terms;  // of these queries
  };
  std::pair<Memory, Decoder> encode(const Source& source) const;
  Tensor last_state(const std::vector<CellState>& finals) const;
  static Tensor mean_state(const Tensor& states, std::span<const Id> lengths);
  // The aligner's weights [B, 1, T, Ts] of states [B, T, n] and the words that they have read.
  Weights aligned(const Memory& memory, const Tensor& states, const Tensor& words) const;
  Read read(const Memory& memory, const Tensor& query, const Positions& position,
            const WantWeights& want) const;
  // One step from the words' part of the first cell's gates [B, G n].
  Read advance(const Memory& memory, Decoder& decoder, const Tensor& gates,
               const Positions& position, const WantWeights& want) const;
  // forward() with the decoder as one op.
  TeacherForced forward_at_once(const Source& source, const Tensor& target_in,
                                const WantWeights& want_weights) const;
  // hidden_t of one step or, with one more axis in front, of many.
  Tensor hidden(const Tensor& s, const Tensor& context, const Tensor& words) const;

  bool attends() const { return has_attention(config_); }
  bool before() const { return config_.wiring == "before"; }
  bool conditional() const { return config_.wiring == "conditional"; }
  bool feeds() const { return config_.input_feeding && attends() && config_.wiring == "after"; }

  ModelConfig config_;
  Embedding source_;
  std::optional<Embedding> target_;  // none: the source's
  RecurrentStack encoder_;
  // A linear map of one input, or of several that are summed up; with norms, of each.
  struct Sum {
    std::vector<Linear> maps;
    std::vector<LayerNorm> norms;
    Tensor operator()(const std::vector<Tensor>& parts) const;  // its tanh
  };
  Sum make_sum(const Params& params, const std::vector<std::pair<std::string, int64_t>>& parts,
               int64_t out) const;

  std::vector<Sum> bridge_;            // to the decoder's first states
  std::vector<RecurrentCell> cells_;   // the decoder, from the bottom up
  std::optional<Linear> extra_gates_;  // what context or fed hidden adds to the first cell's gates
  std::unique_ptr<Score> score_;       // one head, on the encoder's states as they are
  std::unique_ptr<MultiHead> multi_;   // several, or states that are brought to one size
  std::optional<RecurrentCell> second_;     // conditional: what reads the context
  std::vector<RecurrentCell> transitions_;  // after it
  struct Aligner {
    Linear query, key;
    std::unique_ptr<Score> score;
  };
  std::optional<Aligner> aligner_;
  Sum hidden_;
  std::optional<Linear> output_;       // none: tied
  std::optional<Tensor> output_bias_;  // [V]
};

}  // namespace heed
