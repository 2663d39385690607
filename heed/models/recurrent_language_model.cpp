#include "heed/models/recurrent_language_model.h"

#include "heed/models/cells.h"

namespace heed {
namespace {

int64_t word_size(const ModelConfig& c) { return c.embedding ? c.embedding : c.size; }

}  // namespace

RecurrentLanguageModel::RecurrentLanguageModel(const Params& params, const ModelConfig& c,
                                               int64_t words)
    : config_(c),
      words_(params / "words", words, word_size(c)),
      hidden_(params / "hidden", has_attention(c) ? 2 * c.size : c.size, word_size(c)) {
  for (int64_t i = 0; i < c.decoder_layers; ++i)
    cells_.emplace_back(params / "decoder" / std::to_string(i), cell_of(c.cell),
                        i == 0 ? word_size(c) : c.size, c.size);
  if (attends() && c.heads == 1)
    score_ = make_score(
        c.score, params / "attention",
        {.query = c.size, .key = c.size, .size = c.size, .rank = c.rank, .positions = c.positions});
  else if (attends())
    multi_ = std::make_unique<MultiHead>(params / "attention",
                                         MultiHead::Sizes{.model = c.size,
                                                          .heads = c.heads,
                                                          .key_heads = c.key_heads,
                                                          .score = c.score,
                                                          .rank = c.rank,
                                                          .positions = c.positions});
  if (!c.tied) output_.emplace(params / "output", word_size(c), words, Linear::Bias::no);
}

Tensor RecurrentLanguageModel::output_weight() const {
  return output_ ? output_->weight() : words_.output_weight();
}

AttendOptions RecurrentLanguageModel::options(bool want_weights) const {
  return {.weigh = {.kind = weigh_kind(config_.weigh), .temperature = config_.temperature},
          .dropout = config_.attention_dropout,
          .want_weights = want_weights};
}

KeysValues RecurrentLanguageModel::project_kv(const Tensor& states) const {
  if (multi_) return multi_->project_kv(states);
  const Tensor one_head = reshape(states, {states.size(0), 1, states.size(1), states.size(2)});
  return {{score_->prepare(one_head)}, one_head};
}

RecurrentLanguageModel::Read RecurrentLanguageModel::read(const Tensor& states,
                                                          const KeysValues& past,
                                                          const AttendOptions& o) const {
  if (multi_) {
    MultiHead::Output out = (*multi_)(states, past, o);
    return {out.y, std::move(out.attended.weights)};
  }
  const Tensor q = reshape(states, {states.size(0), 1, states.size(1), states.size(2)});
  Attended out = attend(*score_, q, past.keys, past.values, o);
  return {reshape(out.context, states.shape()), std::move(out.weights)};
}

Tensor RecurrentLanguageModel::hidden(const Tensor& states,
                                      const std::optional<Tensor>& context) const {
  return hidden_(context ? concat({states, *context}, -1) : states, Activation::tanh);
}

TeacherForced RecurrentLanguageModel::forward(const Source&, const Tensor& target_in,
                                              const WantWeights& want_weights) const {
  Tensor s = words_(target_in);
  for (const RecurrentCell& cell : cells_) s = cell(dropout(s, config_.dropout)).h;
  s = dropout(s, config_.dropout);
  TeacherForced out;
  std::optional<Tensor> context;
  if (attends()) {
    AttendOptions o = options(want_weights.of(0));
    o.mask = Mask::past();
    Read found = read(s, project_kv(s), o);
    context = found.context;
    if (found.weights) out.weights.push_back({0, *found.weights});
  }
  out.hidden = dropout(hidden(s, context), config_.dropout);
  return out;
}

// ---- search

State RecurrentLanguageModel::start(const Source& source) const {
  State state(source);
  start_cells(cells_, state);
  if (attends()) state.cache["past"];
  return state;
}

Step RecurrentLanguageModel::step(State& state, const Tensor& last, bool want_weights) const {
  const int64_t rows = last.size(0);
  const Tensor top = step_cells(cells_, state, words_(last));
  const Tensor s = reshape(top, {rows, 1, config_.size});
  Step out;
  std::optional<Tensor> context;
  if (attends()) {
    KeyValueCache& cache = state.cache.at("past");
    cache.append(project_kv(s));
    AttendOptions o = options(want_weights);
    o.mask = Mask::past();  // a state does not see itself
    o.first = Positions::each(state.row_positions(rows / state.sentences()));
    const Read found = read(s, cache.all(), o);
    context = found.context;
    if (const auto& w = found.weights)  // [rows, H, 1, words so far]
      out.weights.push_back({0, reshape(*w, {rows, w->size(1), w->size(3)})});
  }
  state.advance();
  out.hidden = reshape(hidden(s, context), {rows, word_size(config_)});
  return out;
}

}  // namespace heed
