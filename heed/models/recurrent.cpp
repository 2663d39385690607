#include "heed/models/recurrent.h"

#include "heed/ops/bf16.h"
#include "heed/ops/decoder.h"

namespace heed {
namespace {

// The layer that the aligner's weights are of; the attention's is 0.
constexpr int64_t kAligner = 1;

int64_t word_size(const ModelConfig& c) { return c.embedding ? c.embedding : c.size; }
int64_t memory_size(const ModelConfig& c) { return c.bidirectional ? 2 * c.size : c.size; }
// Several heads each have a projection; so have scores that want queries and keys of one size,
// where the states of two directions are longer than the decoder's.
bool projects(const ModelConfig& c) {
  return c.heads > 1 || (c.bidirectional && score_row(c.score).facts.equal_sizes);
}
// What a read gives: the mean of encoder states, or its projection.
int64_t context_size(const ModelConfig& c) {
  return !has_attention(c) ? 0 : projects(c) ? c.size : memory_size(c);
}
std::optional<double> norm_epsilon(const ModelConfig& c) {
  return c.cell_norm ? std::optional(c.norm_epsilon) : std::nullopt;
}

// [B, T, n] as [T, B, n] and back: a step's numbers lie together.
Tensor swap_batch_and_time(const Tensor& x) { return contiguous(transpose(x, 0, 1)); }

// The terms of one step after the other, whose keys are the same.
ScoreTerms joined_steps(const std::vector<ScoreTerms>& steps) {
  ScoreTerms out = steps.front();
  std::vector<Tensor> q, bias;
  for (const ScoreTerms& s : steps) {
    q.push_back(s.q);
    if (s.bias) bias.push_back(*s.bias);
  }
  out.q = concat(q, 2);
  if (!bias.empty()) out.bias = concat(bias, 2);
  return out;
}

}  // namespace

RecurrentModel::RecurrentModel(const Params& params, const ModelConfig& c, const Vocabularies& v)
    : config_(c),
      source_(params / "source", v.source, word_size(c)),
      encoder_(params / "encoder", {.cell = cell_of(c.cell),
                                    .in = word_size(c),
                                    .size = c.size,
                                    .layers = c.encoder_layers,
                                    .bidirectional = c.bidirectional,
                                    .dropout = c.dropout,
                                    .transitions = c.encoder_transitions,
                                    .norm_epsilon = norm_epsilon(c)}) {
  std::vector<std::pair<std::string, int64_t>> read_out{{"state", c.size}};
  if (attends()) read_out.emplace_back("context", context_size(c));
  if (c.wiring != "after") read_out.emplace_back("word", word_size(c));
  hidden_ = make_sum(params / "hidden", read_out, word_size(c));
  if (!v.shared) target_.emplace(params / "target", v.target, word_size(c));
  const int64_t extra = attends() && before() ? context_size(c) : feeds() ? word_size(c) : 0;
  for (int64_t i = 0; i < c.decoder_layers; ++i) {
    const Params part = params / "decoder" / std::to_string(i);
    cells_.emplace_back(part, cell_of(c.cell), i == 0 ? word_size(c) : c.size, c.size,
                        norm_epsilon(c));
    bridge_.push_back(make_sum(part / "bridge", {{"states", memory_size(c)}}, c.size));
  }
  if (conditional()) {
    const Params part = params / "decoder" / "conditional";
    second_.emplace(part, cell_of(c.cell), context_size(c), c.size, norm_epsilon(c));
    for (int64_t i = 0; i < c.decoder_transitions; ++i)
      transitions_.emplace_back(part / "transition" / std::to_string(i), cell_of(c.cell), 0, c.size,
                                norm_epsilon(c));
  }
  if (extra > 0)
    extra_gates_.emplace(params / "decoder" / "extra", extra, cells_[0].gate_size(),
                         Linear::Bias::no);
  if (attends() && !projects(c))
    score_ = make_score(c.score, params / "attention",
                        {.query = c.size,
                         .key = memory_size(c),
                         .size = c.attention_size ? c.attention_size : c.size,
                         .rank = c.rank,
                         .positions = c.positions,
                         .bias = c.attention_bias,
                         .norm_epsilon = norm_epsilon(c)});
  else if (attends())
    multi_ = std::make_unique<MultiHead>(params / "attention",
                                         MultiHead::Sizes{.model = c.size,
                                                          .memory = memory_size(c),
                                                          .heads = c.heads,
                                                          .key_heads = c.key_heads,
                                                          .score = c.score,
                                                          .rank = c.rank,
                                                          .positions = c.positions});
  if (const Params part = params / "aligner"; c.aligner)
    aligner_.emplace(
        Aligner{.query = {part / "query", c.size + word_size(c), c.size},
                .key = {part / "key", memory_size(c) + word_size(c), c.size},
                .score = make_score("scaled_dot", part, {.query = c.size, .key = c.size})});
  if (!c.tied) output_.emplace(params / "output", word_size(c), v.target, Linear::Bias::no);
  if (c.output_bias) output_bias_ = (params / "output").add("bias", {v.target}, constant(0));
}

// Without norms one product of all parts, side by side.
RecurrentModel::Sum RecurrentModel::make_sum(
    const Params& params, const std::vector<std::pair<std::string, int64_t>>& parts,
    int64_t out) const {
  Sum sum;
  int64_t in = 0;
  for (const auto& [name, size] : parts) {
    in += size;
    if (!config_.cell_norm) continue;
    sum.maps.emplace_back(params / name, size, out, Linear::Bias::no);
    sum.norms.emplace_back(params / name / "norm", out, config_.norm_epsilon);
  }
  if (!config_.cell_norm) sum.maps.emplace_back(params, in, out);
  return sum;
}

Tensor RecurrentModel::Sum::operator()(const std::vector<Tensor>& parts) const {
  if (norms.empty())
    return maps[0](parts.size() == 1 ? parts[0] : concat(parts, -1), Activation::tanh);
  Tensor sum = norms[0](maps[0](parts[0]));
  for (size_t i = 1; i < parts.size(); ++i) sum = sum + norms[i](maps[i](parts[i]));
  return tanh(sum);
}

std::optional<Tensor> RecurrentModel::output_bias() const {
  return output_bias_ ? std::optional(compute_copy(*output_bias_)) : std::nullopt;
}

Tensor RecurrentModel::output_weight() const {
  return output_ ? output_->weight() : (target_ ? *target_ : source_).output_weight();
}

// The top layer's last states, of both directions: [B, m].
Tensor RecurrentModel::last_state(const std::vector<CellState>& finals) const {
  std::vector<Tensor> last;
  for (size_t i = finals.size() - (config_.bidirectional ? 2 : 1); i < finals.size(); ++i)
    last.push_back(finals[i].h);
  return concat(last, 1);
}

// The mean of a sentence's states [B, T, m].
Tensor RecurrentModel::mean_state(const Tensor& states, std::span<const Id> lengths) {
  const int64_t B = states.size(0), T = states.size(1);
  std::vector<float> shares(static_cast<size_t>(B * T));
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < lengths[static_cast<size_t>(b)]; ++t)
      shares[static_cast<size_t>(b * T + t)] =
          1 / static_cast<float>(lengths[static_cast<size_t>(b)]);
  const Tensor mean = matmul(cast(tensor(shares, {B, 1, T}), states.type()), states);
  return reshape(mean, {B, states.size(2)});
}

std::pair<RecurrentModel::Memory, RecurrentModel::Decoder> RecurrentModel::encode(
    const Source& source) const {
  const Tensor words = dropout(source_(source.ids), config_.dropout);
  const auto [states, layers, finals] = encoder_(words, source.lengths);
  Memory memory{.kv = {}, .aligner_keys = {}, .lengths = source.lengths};
  const Tensor h = dropout(states, config_.dropout);
  if (multi_) memory.kv = multi_->project_kv(h);
  if (score_) {
    const Tensor one_head = reshape(h, {h.size(0), 1, h.size(1), h.size(2)});
    memory.kv = KeysValues{{score_->prepare(one_head)}, one_head};
  }
  if (aligner_) {
    const Tensor keys = aligner_->key(concat({h, words}, -1));
    memory.aligner_keys = reshape(keys, {keys.size(0), 1, keys.size(1), keys.size(2)});
  }
  const Tensor summary =
      config_.bridge == "mean" ? mean_state(states, source.lengths) : last_state(finals);
  Decoder decoder;
  for (size_t i = 0; i < cells_.size(); ++i) {
    CellState first = cells_[i].start(summary.size(0));
    first.h = bridge_[i]({summary});
    decoder.cells.push_back(first);
  }
  if (feeds()) decoder.fed = zeros({summary.size(0), word_size(config_)}, summary.type());
  return {memory, decoder};
}

WordLayers RecurrentModel::word_layers(const Source& source, Id) const {
  const Tensor words = source_(source.ids);
  WordLayers out{.layers = {words}};
  for (const Tensor& states : encoder_(words, source.lengths).layers) out.layers.push_back(states);
  return out;
}

AlignmentHead RecurrentModel::guided_head() const {
  return aligner_ ? AlignmentHead{.layer = kAligner, .head = 0, .shift = 1} : AlignmentHead();
}

Weights RecurrentModel::aligned(const Memory& memory, const Tensor& states,
                                const Tensor& words) const {
  const Tensor q = aligner_->query(concat({states, words}, -1)), &k = *memory.aligner_keys;
  const Attended read = attend(*aligner_->score, reshape(q, {q.size(0), 1, q.size(1), q.size(2)}),
                               k, k, {.mask = Mask::padding(memory.lengths), .want_weights = true});
  return {kAligner, *read.weights};
}

// Hypotheses of a sentence are queries of the same memory, at the same position.
RecurrentModel::Read RecurrentModel::read(const Memory& memory, const Tensor& query,
                                          const Positions& position,
                                          const WantWeights& want) const {
  const int64_t B = static_cast<int64_t>(memory.lengths.size()), rows = query.size(0), K = rows / B;
  const AttendOptions options{
      .mask = Mask::padding(memory.lengths),
      .weigh = {.kind = weigh_kind(config_.weigh), .temperature = config_.temperature},
      .first = position,
      .dropout = config_.attention_dropout,
      .want_weights = want.of(0),
      .want_terms = want.of_self()};
  Attended read;
  Tensor context;
  if (multi_) {
    MultiHead::Output out = (*multi_)(reshape(query, {B, K, query.size(1)}), *memory.kv, options);
    context = out.y, read = std::move(out.attended);
  } else {
    read = attend(*score_, reshape(query, {B, 1, K, query.size(1)}), memory.kv->keys,
                  memory.kv->values, options);
    context = read.context;
  }
  Read out{.context = reshape(context, {rows, context_size(config_)}),
           .weights = {},
           .terms = std::move(read.terms)};
  if (const auto& w = read.weights)  // [B, H, K, Ts]
    out.weights = reshape(transpose(*w, 1, 2), {rows, w->size(1), w->size(3)});
  return out;
}

RecurrentModel::Read RecurrentModel::advance(const Memory& memory, Decoder& decoder,
                                             const Tensor& gates, const Positions& position,
                                             const WantWeights& want) const {
  Read found;
  Tensor in = gates;
  if (attends() && before()) {
    found = read(memory, decoder.cells.back().h, position, want);
    in = in + (*extra_gates_)(found.context);
  } else if (decoder.fed) {
    in = in + (*extra_gates_)(*decoder.fed);
  }
  for (size_t i = 0; i < cells_.size(); ++i) {
    decoder.cells[i] =
        i == 0 ? cells_[0].step_from_gates(in, decoder.cells[0])
               : cells_[i].step(dropout(decoder.cells[i - 1].h, config_.dropout), decoder.cells[i]);
    if (i > 0 || !conditional()) continue;
    found = read(memory, decoder.cells[0].h, position, want);
    decoder.cells[0] = second_->step(found.context, decoder.cells[0]);
    for (const RecurrentCell& more : transitions_)
      decoder.cells[0] = more.transition(decoder.cells[0]);
  }
  if (attends() && config_.wiring == "after")
    found = read(memory, decoder.cells.back().h, position, want);
  return found;
}

Tensor RecurrentModel::hidden(const Tensor& s, const Tensor& context, const Tensor& words) const {
  std::vector<Tensor> parts{s};
  if (attends()) parts.push_back(context);
  if (config_.wiring != "after") parts.push_back(words);
  return hidden_(parts);
}

bool RecurrentModel::trains_in_bf16() const {
  return score_ && score_->decoder_form() && before() && config_.cell == "gru" &&
         cells_.size() == 1 && config_.weigh == "soft" && config_.temperature == 1 &&
         config_.attention_dropout == 0 && config_.attention_size == 0 && !config_.cell_norm &&
         decodes(config_.size);
}

TeacherForced RecurrentModel::forward_at_once(const Source& source, const Tensor& target_in,
                                              const WantWeights& want_weights) const {
  const auto [memory, decoder] = encode(source);
  const Embedding& table = target_ ? *target_ : source_;
  const Tensor words = dropout(table(target_in), config_.dropout);
  const auto of_sentence = [](const Tensor& x) {  // [B, 1, Ts, n] as [B, Ts, n]
    return reshape(x, {x.size(0), x.size(2), x.size(3)});
  };
  const Tensor states = of_sentence(memory.kv->values);
  const Score::DecoderForm form = *score_->decoder_form();
  const Decoded steps = decode({.x = cells_[0].gates(words),
                                .h = decoder.cells[0].h,
                                .keys = of_sentence(memory.kv->keys.k),
                                .values = (*extra_gates_)(states),
                                .lengths = memory.lengths,
                                .w = compute_copy(form.w),
                                .v = form.v,
                                .u = cells_[0].state_weight(),
                                .bias = cells_[0].state_bias()});
  const Tensor contexts = matmul(cast(steps.weights, states.type()), states);
  TeacherForced result{.hidden = dropout(hidden(steps.h, contexts, words), config_.dropout)};
  const Shape& s = steps.weights.shape();
  if (want_weights.of(0))
    result.weights.push_back({0, reshape(steps.weights, {s[0], 1, s[1], s[2]})});
  if (aligner_ && want_weights.of(kAligner))
    result.weights.push_back(aligned(memory, steps.h, words));
  return result;
}

TeacherForced RecurrentModel::forward(const Source& source, const Tensor& target_in,
                                      const WantWeights& want_weights) const {
  const Embedding& table = target_ ? *target_ : source_;
  // In mixed precision; weights that are bf16 to be used (Compute::bf16) are so step by step.
  const Tensor copy = compute_copy(table.table());
  if (copy.type() == Type::bf16 && copy.device() == Device::cuda && !is_bf16_weight(copy))
    return forward_at_once(source, target_in, want_weights);
  auto [memory, decoder] = encode(source);
  const Tensor words = swap_batch_and_time(dropout(table(target_in), config_.dropout));
  const std::vector<Tensor> gates = unstack(cells_[0].gates(words));  // in one product
  std::vector<Tensor> states, contexts, fed, weights;
  std::vector<ScoreTerms> terms;
  for (size_t t = 0; t < gates.size(); ++t) {
    const Read found = advance(memory, decoder, gates[t], static_cast<int64_t>(t), want_weights);
    states.push_back(decoder.cells.back().h);
    if (attends()) contexts.push_back(found.context);
    if (feeds()) {
      decoder.fed = hidden(states[t], found.context, {});
      fed.push_back(*decoder.fed);
    }
    if (found.weights) weights.push_back(*found.weights);
    if (found.terms) terms.push_back(*found.terms);
  }
  const Tensor all_states = stack(states);
  // Without feeding, the readout of all steps is one product.
  const Tensor hiddens =
      feeds() ? stack(fed) : hidden(all_states, attends() ? stack(contexts) : Tensor(), words);
  TeacherForced result{.hidden = dropout(swap_batch_and_time(hiddens), config_.dropout)};
  if (!weights.empty())  // [T, B, H, Ts] as [B, H, T, Ts]
    result.weights.push_back({0, contiguous(transpose(swap_batch_and_time(stack(weights)), 1, 2))});
  if (aligner_ && want_weights.of(kAligner))
    result.weights.push_back(
        aligned(memory, swap_batch_and_time(all_states), swap_batch_and_time(words)));
  if (!terms.empty()) result.terms.push_back({0, joined_steps(terms), memory.kv->values});
  return result;
}

// ---- search

State RecurrentModel::start(const Source& source) const {
  auto [memory, decoder] = encode(source);
  State state(source);
  if (memory.kv) {
    state.sentence["keys"] = memory.kv->keys.k;
    state.sentence["values"] = memory.kv->values;
  }
  if (memory.aligner_keys) state.sentence["aligner"] = *memory.aligner_keys;
  for (size_t i = 0; i < decoder.cells.size(); ++i) {
    state.hypothesis["h" + std::to_string(i)] = decoder.cells[i].h;
    if (decoder.cells[i].c) state.hypothesis["c" + std::to_string(i)] = *decoder.cells[i].c;
  }
  if (decoder.fed) state.hypothesis["fed"] = *decoder.fed;
  return state;
}

Step RecurrentModel::step(State& state, const Tensor& last, bool want_weights) const {
  Memory memory{.kv = {}, .aligner_keys = {}, .lengths = state.lengths};
  if (attends()) memory.kv = KeysValues{{state.sentence.at("keys")}, state.sentence.at("values")};
  Decoder decoder;
  for (size_t i = 0; i < cells_.size(); ++i) {
    CellState cell{.h = state.hypothesis.at("h" + std::to_string(i))};
    if (const auto c = state.hypothesis.find("c" + std::to_string(i)); c != state.hypothesis.end())
      cell.c = c->second;
    decoder.cells.push_back(cell);
  }
  if (feeds()) decoder.fed = state.hypothesis.at("fed");
  const Embedding& table = target_ ? *target_ : source_;
  const Tensor word = table(last);
  const Read found = advance(memory, decoder, cells_[0].gates(word),
                             Positions::each(state.positions), want_weights);
  const Tensor out = hidden(decoder.cells.back().h, found.context, word);
  for (size_t i = 0; i < cells_.size(); ++i) {
    state.hypothesis["h" + std::to_string(i)] = decoder.cells[i].h;
    if (decoder.cells[i].c) state.hypothesis["c" + std::to_string(i)] = *decoder.cells[i].c;
  }
  if (feeds()) state.hypothesis["fed"] = out;
  state.advance();
  Step result{.hidden = out};
  if (found.weights) result.weights.push_back({0, *found.weights});
  if (aligner_ && want_weights) {
    memory.aligner_keys = state.sentence.at("aligner");
    // Hypotheses of a sentence are queries of the same keys.
    const int64_t B = state.sentences(), K = last.size(0) / B;
    const auto by_sentence = [&](const Tensor& x) { return reshape(x, {B, K, x.size(1)}); };
    const Weights w = aligned(memory, by_sentence(decoder.cells.back().h), by_sentence(word));
    result.weights.push_back({w.layer, reshape(w.values, {B * K, 1, w.values.size(3)})});
  }
  return result;
}

}  // namespace heed
