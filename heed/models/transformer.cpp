#include "heed/models/transformer.h"

#include <algorithm>
#include <cmath>

#include "heed/ops/bf16.h"

namespace heed {

Transformer::Block Transformer::block(const Params& params, Cross cross) const {
  const ModelConfig& c = config_;
  const bool decodes = cross == Cross::yes;
  const MultiHead::Sizes sizes{.model = c.size,
                               .heads = decodes ? decoder_heads(c) : c.heads,
                               .key_heads = c.key_heads,
                               .score = c.score,
                               .rank = c.rank,
                               .positions = c.positions,
                               .rotary = c.position == "rotary"};
  const bool recurrent = decodes && c.decoder == "ssru";
  Block b{.self_norm = {params / "self_norm", c.size, c.norm_epsilon},
          .inner_norm = {params / "inner_norm", c.size, c.norm_epsilon},
          .self = {},
          .recurrent = {},
          .inner = {params / "feed_forward", c.size, decodes ? decoder_inner(c) : c.inner,
                    c.inner_dropout, c.activation},
          .cross_norm = {},
          .cross = {}};
  const Params of_cell = params / "recurrent";
  if (recurrent)
    b.recurrent.emplace(Ssru{{of_cell / "forget", c.size, c.size},
                             {of_cell / "input", c.size, c.size, Linear::Bias::no}});
  else
    b.self.emplace(params / "self", sizes);
  if (decodes) {
    MultiHead::Sizes across = sizes;
    across.rotary = false;  // a source's and a target's positions have no common measure
    b.cross_norm.emplace(params / "cross_norm", c.size, c.norm_epsilon);
    b.cross.emplace(params / "cross", across);
  }
  return b;
}

Transformer::Transformer(const Params& params, const ModelConfig& c, const Vocabularies& v)
    : config_(c),
      source_(params / (is_language_model(c) ? "words" : "source"), v.source, c.size),
      sinusoids_(c.size, sinusoid_named(c.position).value_or(Sinusoid::halves)) {
  if (!v.shared) target_.emplace(params / "target", v.target, c.size);
  if (c.embedding_norm && !is_language_model(c))
    source_norm_.emplace(params / "source" / "norm", c.size, c.norm_epsilon);
  if (c.embedding_norm) target_norm_.emplace(params / "target" / "norm", c.size, c.norm_epsilon);
  if (c.position == "learned") positions_.emplace(params / "positions", c.positions, c.size);
  for (int64_t i = 0; i < c.encoder_layers; ++i)
    encoder_.push_back(block(params / "encoder" / std::to_string(i), Cross::no));
  for (int64_t i = 0; i < c.decoder_layers; ++i)
    decoder_.push_back(
        block(params / "decoder" / std::to_string(i), encoder_.empty() ? Cross::no : Cross::yes));
  if (c.norm == "pre") {
    if (!encoder_.empty())
      encoder_norm_.emplace(params / "encoder" / "norm", c.size, c.norm_epsilon);
    decoder_norm_.emplace(params / "decoder" / "norm", c.size, c.norm_epsilon);
  }
  if (!c.tied) output_.emplace(params / "output", c.size, v.target, Linear::Bias::no);
  if (c.output_bias) output_bias_ = (params / "output").add("bias", {v.target}, constant(0));
}

std::optional<Tensor> Transformer::output_bias() const {
  return output_bias_ ? std::optional(compute_copy(*output_bias_)) : std::nullopt;
}

Tensor Transformer::output_weight() const {
  return output_ ? output_->weight() : (target_ ? *target_ : source_).output_weight();
}

// What flows through the layers, and around each of their parts f: x + f(norm(x)) or, with norms
// after, norm(x + f(x)). Norms before: what a part gave is added when the next norm reads the sum,
// in one pass with it.
class Transformer::Stream {
 public:
  // `rounds`: what norms before give to parts is rounded to bf16, as their products would do.
  Stream(const ModelConfig& config, Tensor x, bool rounds)
      : before_(config.norm == "pre"),
        rounds_(rounds),
        dropout_(config.dropout),
        x_(std::move(x)) {}

  template <class F>
  void around(const LayerNorm& norm, F f) {
    if (before_)
      more_ = f(read(norm, rounds_));
    else
      x_ = norm.of_sum(x_, f(x_), dropout_).normed;
  }
  Tensor read(const LayerNorm& norm, bool rounded) {
    if (!more_) return rounded ? norm.rounded(x_) : norm(x_);
    auto [sum, normed] =
        rounded ? norm.rounded_of_sum(x_, *more_) : norm.of_sum(x_, *more_, dropout_);
    x_ = sum, more_.reset();
    return normed;
  }
  const Tensor& value() {
    if (more_) x_ = add_dropout(x_, *more_, dropout_);
    more_.reset();
    return x_;
  }
  // With norms before, the layers end by one.
  Tensor end(const std::optional<LayerNorm>& norm, bool rounded) {
    return norm ? read(*norm, rounded) : value();
  }

 private:
  bool before_, rounds_;
  double dropout_;
  Tensor x_;
  std::optional<Tensor> more_;
};

Tensor Transformer::embed(Side side, const Tensor& id, const Positions& first,
                          const std::optional<State::Places>& places) const {
  const int64_t B = first.by_sentence() ? id.size(0) : 1, T = id.size(1), D = config_.size;
  const Embedding& table = side == Side::target && target_ ? *target_ : source_;
  const std::optional<LayerNorm>& norm = side == Side::target ? target_norm_ : source_norm_;
  const double scale =
      config_.embedding_scale == 0 ? std::sqrt(double(D)) : config_.embedding_scale;
  Tensor x = scale == 1 ? table(id) : table(id) * scale;  // [B, T, D]
  const auto done = [&] { return dropout(norm ? (*norm)(x) : x, config_.dropout); };
  if (config_.position == "rotary") return done();
  std::vector<Id> at;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < T; ++t) at.push_back(static_cast<Id>(first.at(b, t)));
  const int64_t most = at.empty() ? 0 : *std::ranges::max_element(at) + 1;
  if (positions_) {
    require(most <= config_.positions, "transformer: learned positions for ", config_.positions,
            " tokens, given a sentence of ", most);
    x = x + (*positions_)(places ? reshape(places->positions, {B, T}) : ids(at, {B, T}));
  } else if (places) {
    x = x + sinusoids_(places->positions, most, {B, T, D}, x.type());
  } else {
    x = x + sinusoids_(at, {B, T, D}, x.type());
  }
  return done();
}

bool Transformer::rounds(const std::vector<Block>& blocks) const {
  // All matrices of the heads can be bf16 (bf16_fits_gpu(); of fewer than 16 columns none is).
  const auto fit = [&](int64_t heads) {
    const int64_t each = config_.size / heads;
    return each % 8 == 0 && (config_.key_heads > 0 ? config_.key_heads : heads) * each >= 16;
  };
  return !Tape::current() && config_.norm == "pre" && !blocks.empty() &&
         blocks[0].inner.multiplies_in_bf16() && config_.size % 8 == 0 && fit(config_.heads) &&
         fit(decoder_heads(config_));
}

// f_t = sigmoid(x_t W_f + b_f), c_t = f_t c_{t-1} + (1 - f_t) x_t W, and relu(c_t) of every step.
Tensor Transformer::all_steps(const Ssru& cell, const Tensor& x) {
  const std::vector<Tensor> forget =
      unstack(contiguous(transpose(cell.forget(x, Activation::sigmoid), 0, 1)));
  const std::vector<Tensor> input = unstack(contiguous(transpose(cell.input(x), 0, 1)));
  std::vector<Tensor> states;
  for (size_t t = 0; t < forget.size(); ++t) {
    const Tensor added = (1.0 - forget[t]) * input[t];
    states.push_back(t == 0 ? added : forget[t] * states.back() + added);  // [B, D]
  }
  return relu(transpose(stack(states), 0, 1));  // [B, T, D]
}

Tensor Transformer::encode(const Source& source, const Shown& shown, For reader) const {
  const int64_t B = source.ids.size(0), T = source.ids.size(1);
  const AttendOptions options{
      .mask = Mask::padding(source.lengths).at({B, config_.heads, T, T}),
      .weigh = {.kind = weigh_kind(config_.weigh), .temperature = config_.temperature},
      .dropout = config_.attention_dropout,
      .want_weights = shown.weights != nullptr};
  Stream x(config_, embed(Side::source, source.ids, 0), rounds(encoder_));
  for (size_t i = 0; i < encoder_.size(); ++i) {
    const Block& b = encoder_[i];
    x.around(b.self_norm, [&](const Tensor& y) {
      const MultiHead::Output read = b.self->itself(y, options);
      if (read.attended.weights)
        shown.weights->push_back({static_cast<int64_t>(i), *read.attended.weights});
      return read.y;
    });
    x.around(b.inner_norm, b.inner);
    if (shown.layers) shown.layers->push_back(x.value());
  }
  return x.end(encoder_norm_, reader == For::products && rounds(decoder_));
}

WordLayers Transformer::word_layers(const Source& source, Id begin) const {
  if (encoder_.empty()) return Model::word_layers(source, begin);
  WordLayers out{.layers = {source_(source.ids)}};
  out.layers.back() = encode(source, {.layers = &out.layers});  // the last one with its norm
  return out;
}

TeacherForced Transformer::forward(const Source& source, const Tensor& target_in,
                                   const WantWeights& want_weights) const {
  TeacherForced out;
  std::optional<Tensor> memory;
  if (!encoder_.empty())
    memory = encode(source, {.weights = want_weights.of_self() ? &out.encoder_self : nullptr});
  const int64_t B = target_in.size(0), T = target_in.size(1);
  AttendOptions self{
      .mask = Mask::causal().at({B, decoder_heads(config_), T, T}),
      .weigh = {.kind = weigh_kind(config_.weigh), .temperature = config_.temperature},
      .dropout = config_.attention_dropout};
  AttendOptions cross = self;
  if (memory)
    cross.mask = Mask::padding(source.lengths).at({B, decoder_heads(config_), T, memory->size(1)});
  Memory read_by{.layers = {}, .lengths = source.lengths};
  Stream x(config_, embed(Side::target, target_in, 0), rounds(decoder_));
  for (size_t i = 0; i < decoder_.size(); ++i) {
    const Block& b = decoder_[i];
    const bool wanted = want_weights.of(static_cast<int64_t>(i));
    cross.want_weights = wanted;
    cross.want_terms = want_weights.of_self();
    self.want_weights = memory ? want_weights.of_self() : wanted;
    const auto show = [&](std::vector<Weights>& where, const std::optional<Tensor>& weights) {
      if (weights) where.push_back({static_cast<int64_t>(i), *weights});
    };
    x.around(b.self_norm, [&](const Tensor& y) {
      if (b.recurrent) return all_steps(*b.recurrent, y);
      MultiHead::Output read = b.self->itself(y, self);
      show(memory ? out.decoder_self : out.weights, read.attended.weights);
      return read.y;
    });
    if (b.cross)
      x.around(*b.cross_norm, [&](const Tensor& y) {
        const KeysValues& kv = read_by.layers.emplace_back(b.cross->project_kv(*memory));
        MultiHead::Output read = (*b.cross)(y, kv, cross);
        show(out.weights, read.attended.weights);
        if (read.attended.terms)
          out.terms.push_back({static_cast<int64_t>(i), *read.attended.terms, kv.values});
        return read.y;
      });
    x.around(b.inner_norm, b.inner);
  }
  out.hidden = x.end(decoder_norm_, false);
  if (want_weights.whole()) out.whole = whole_target(read_by, target_in, want_weights);
  return out;
}

// The decoder once more, up to the cross-attention of a layer, where a word also sees those after
// it. It predicts nothing, which it could not honestly do.
Weights Transformer::whole_target(const Memory& memory, const Tensor& target_in,
                                  const WantWeights& wanted) const {
  const int64_t B = target_in.size(0), T = target_in.size(1), H = decoder_heads(config_);
  const auto last = static_cast<size_t>(wanted.whole_layer());
  require(config_.decoder == "attention" && last < memory.layers.size(), "transformer: layer ",
          wanted.whole_layer(), " of ", memory.layers.size(), " cannot see the whole target");
  AttendOptions self{
      .mask = Mask::padding(wanted.target_lengths()).at({B, H, T, T}),
      .weigh = {.kind = weigh_kind(config_.weigh), .temperature = config_.temperature},
      .dropout = config_.attention_dropout};
  AttendOptions cross = self;
  cross.mask = Mask::padding(memory.lengths).at({B, H, T, memory.layers[0].values.size(2)});
  Weights found{.layer = wanted.whole_layer(), .values = {}};
  Stream x(config_, embed(Side::target, target_in, 0), rounds(decoder_));
  for (size_t i = 0; i <= last; ++i) {
    const Block& b = decoder_[i];
    x.around(b.self_norm, [&](const Tensor& y) { return b.self->itself(y, self).y; });
    cross.want_weights = i == last;
    x.around(*b.cross_norm, [&](const Tensor& y) {
      const MultiHead::Output read = (*b.cross)(y, memory.layers[i], cross);
      if (i == last) found.values = *read.attended.weights;
      return read.y;
    });
    if (i < last) x.around(b.inner_norm, b.inner);
  }
  return found;
}

AlignmentHead Transformer::guided_head() const {
  const int64_t layer = std::max<int64_t>(0, config_.decoder_layers - 2);
  return {.layer = layer, .head = 0, .shift = 1, .whole = config_.decoder == "attention"};
}

// ---- search

State Transformer::start(const Source& source) const {
  State state(source);
  for (size_t i = 0; i < decoder_.size(); ++i) {
    const std::string name = "self" + std::to_string(i);
    if (decoder_[i].recurrent)
      state.hypothesis[name] = zeros({state.sentences(), config_.size});
    else
      state.cache[name];
  }
  if (encoder_.empty()) return state;
  const Tensor memory = encode(source, {}, For::products);
  for (size_t i = 0; i < decoder_.size(); ++i) {
    const KeysValues kv = decoder_[i].cross->project_kv(memory);
    state.sentence["keys" + std::to_string(i)] = contiguous(kv.keys.k);
    state.sentence["values" + std::to_string(i)] = contiguous(kv.values);
  }
  return state;
}

Step Transformer::step(State& state, const Tensor& last, bool want_weights) const {
  const int64_t rows = last.size(0), B = state.sentences(), K = rows / B;
  const Positions of_rows = Positions::each(state.row_positions(K));
  // What is not fused looks at ranges on the host.
  const bool fused =
      config_.weigh == "soft" && (config_.score == "scaled_dot" || config_.score == "dot");
  const std::optional<State::Places> places = fused ? state.places : std::nullopt;
  const Weigh weigh{.kind = weigh_kind(config_.weigh), .temperature = config_.temperature};
  AttendOptions self{
      .weigh = weigh, .first = of_rows, .want_weights = want_weights && encoder_.empty()};
  AttendOptions cross{
      .weigh = weigh, .first = Positions::each(state.positions), .want_weights = want_weights};
  if (const auto keys = state.sentence.find("keys0"); keys != state.sentence.end()) {
    const Mask::Sizes sizes{B, decoder_heads(config_), K, keys->second.size(2), cross.first};
    cross.mask = places ? Mask::of(sizes, places->source) : Mask::padding(state.lengths).at(sizes);
  }
  Step out;
  Stream x(config_, embed(Side::target, reshape(last, {rows, 1}), of_rows, places),  // [rows, 1, D]
           rounds(decoder_));
  for (size_t i = 0; i < decoder_.size(); ++i) {
    const Block& b = decoder_[i];
    const std::string name = "self" + std::to_string(i);
    x.around(b.self_norm, [&](const Tensor& y) {
      if (b.recurrent) {
        const Tensor forget =
            reshape(b.recurrent->forget(y, Activation::sigmoid), {rows, config_.size});
        Tensor& c = state.hypothesis.at(name);
        c = forget * c + (1.0 - forget) * reshape(b.recurrent->input(y), {rows, config_.size});
        return reshape(relu(c), {rows, 1, config_.size});
      }
      KeyValueCache& cache = state.cache.at(name);
      const MultiHead::Projected now = b.self->project(y, of_rows);
      cache.append(now.own, places ? std::optional(places->positions) : std::nullopt);
      const KeysValues past = cache.as_they_lie();
      if (i == 0) {  // the same for all layers
        const Mask::Sizes sizes{rows, decoder_heads(config_), 1, past.keys.k.size(2), of_rows};
        self.mask = places ? Mask::of(sizes, places->past) : cache.mask().at(sizes);
      }
      MultiHead::Output read = b.self->read(y, now.query, past, self);
      if (const auto& w = read.attended.weights)  // [rows, H, 1, words so far]
        out.weights.push_back(
            {static_cast<int64_t>(i), reshape(*w, {rows, w->size(1), w->size(3)})});
      return read.y;
    });
    const auto across = [&](const Tensor& y) {
      const KeysValues memory{{state.sentence.at("keys" + std::to_string(i))},
                              state.sentence.at("values" + std::to_string(i))};
      // Hypotheses of a sentence are queries of the same memory, at the same position.
      const MultiHead::Output read = (*b.cross)(reshape(y, {B, K, config_.size}), memory, cross);
      if (const auto& w = read.attended.weights)  // [B, H, K, Ts]
        out.weights.push_back({static_cast<int64_t>(i),
                               reshape(transpose(*w, 1, 2), {rows, w->size(1), w->size(3)})});
      return reshape(read.y, {rows, 1, config_.size});
    };
    if (b.cross) x.around(*b.cross_norm, across);
    x.around(b.inner_norm, b.inner);
  }
  state.advance();
  const bool rounded = rounds(decoder_) && is_bf16_weight(output_weight());
  out.hidden = reshape(x.end(decoder_norm_, rounded), {rows, config_.size});
  return out;
}

}  // namespace heed
