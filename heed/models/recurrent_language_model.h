// A recurrent language model that attends to its own past: with states s_1 ... s_t,
//
//   s_t = cell(y_{t-1}, s_{t-1}),  c_t = attend(s_t; s_1 ... s_{t-1}),  hidden_t = tanh(W [s_t;
//   c_t])
//
// Luong's wiring with the past in the place of a source (Cheng et al., 2016; Daniluk et al., 2017).
// Since c_t goes to the output alone, the states of all steps are computed first, and all reads are
// one call. Score none: without c_t.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include "heed/attention/multi_head.h"
#include "heed/models/model.h"
#include "heed/nn/recurrent.h"

namespace heed {

class RecurrentLanguageModel final : public Model {
 public:
  RecurrentLanguageModel(const Params& params, const ModelConfig& config, int64_t words);

  TeacherForced forward(const Source& source, const Tensor& target_in,
                        const WantWeights& want_weights) const override;
  State start(const Source& source) const override;
  Step step(State& state, const Tensor& last, bool want_weights) const override;
  Tensor output_weight() const override;
  std::optional<int64_t> positions() const override { return positions_of(config_); }

 private:
  struct Read {
    Tensor context;                 // [B, T, n]
    std::optional<Tensor> weights;  // [B, H, T, states before]
  };
  bool attends() const { return has_attention(config_); }
  AttendOptions options(bool want_weights) const;
  KeysValues project_kv(const Tensor& states) const;
  Read read(const Tensor& states, const KeysValues& past, const AttendOptions& options) const;
  Tensor hidden(const Tensor& states, const std::optional<Tensor>& context) const;

  ModelConfig config_;
  Embedding words_;
  std::vector<RecurrentCell> cells_;  // from the bottom up
  std::unique_ptr<Score> score_;      // one head, on the states as they are
  std::unique_ptr<MultiHead> multi_;  // several
  Linear hidden_;
  std::optional<Linear> output_;  // none: tied
};

}  // namespace heed
