#include "heed/models/bidirectional_language_model.h"

#include <algorithm>

#include "heed/models/cells.h"

namespace heed {
namespace {

// The first words of each row of [B, T], all but `less`, with -1 from `lengths` less `less` on.
Tensor counted(const Tensor& words, std::span<const Id> lengths, int64_t less) {
  const int64_t B = words.size(0), T = words.size(1) - less;
  const std::span<const Id> in = words.host_ids();
  std::vector<Id> out;
  for (int64_t b = 0; b < B; ++b)
    for (int64_t t = 0; t < T; ++t)
      out.push_back(t < lengths[static_cast<size_t>(b)] - less
                        ? in[static_cast<size_t>(b * words.size(1) + t)]
                        : -1);
  return ids(out, {B, T});
}

}  // namespace

BidirectionalLanguageModel::Direction BidirectionalLanguageModel::direction(const Params& params,
                                                                            const ModelConfig& c) {
  Direction d{.cells = {}, .hidden = {params / "hidden", c.size, c.size}};
  for (int64_t i = 0; i < c.decoder_layers; ++i)
    d.cells.emplace_back(params / std::to_string(i), cell_of(c.cell), c.size, c.size);
  return d;
}

BidirectionalLanguageModel::BidirectionalLanguageModel(const Params& params, const ModelConfig& c,
                                                       int64_t words)
    : config_(c),
      words_(params / "words", words, c.size),
      forward_(direction(params / "forward", c)),
      backward_(direction(params / "backward", c)),
      mix_weights_(params.add("mix.weights", {1, c.decoder_layers + 1}, constant(0))),
      mix_scale_(params.add("mix.scale", {1}, constant(1))),
      gap_(params / "gap", 2 * c.size, c.size) {
  if (!c.tied) output_.emplace(params / "output", c.size, words, Linear::Bias::no);
}

Tensor BidirectionalLanguageModel::output_weight() const {
  return output_ ? output_->weight() : words_.output_weight();
}

std::vector<Tensor> BidirectionalLanguageModel::layers(const Direction& d, const Tensor& ids,
                                                       const CellOptions& options) const {
  std::vector<Tensor> out{words_(ids)};
  for (const RecurrentCell& cell : d.cells)
    out.push_back(cell(dropout(out.back(), config_.dropout), options).h);
  return out;
}

Tensor BidirectionalLanguageModel::mix(const std::vector<Tensor>& layers) const {
  const Tensor s = softmax(mix_weights_);
  Tensor sum;
  for (size_t j = 0; j < layers.size(); ++j) {
    const int64_t at = static_cast<int64_t>(j);
    const Tensor part = layers[j] * reshape(slice(s, 1, at, at + 1), {1, 1, 1});
    sum = j == 0 ? part : sum + part;
  }
  return sum * mix_scale_;
}

TeacherForced BidirectionalLanguageModel::forward(const Source& source, const Tensor& target_in,
                                                  const WantWeights& /*want_weights*/) const {
  const auto hidden = [&](const Linear& f, const Tensor& x) {
    return dropout(f(dropout(x, config_.dropout), Activation::tanh), config_.dropout);
  };
  const std::vector<Tensor> before = layers(forward_, target_in, {});
  TeacherForced out{.hidden = hidden(forward_.hidden, before.back())};
  const int64_t T = target_in.size(1);
  if (source.ids.size(1) == 0) return out;
  require(source.ids.shape() == target_in.shape(),
          "bidirectional language model: reads one sentence both ways, given a source ",
          source.ids.shape(), " and a target ", target_in.shape());
  // The source is the words and the end; from behind, state k has read all from k on and predicts
  // what stands before, which is word k of target_in.
  const std::vector<Tensor> behind =
      layers(backward_, source.ids, {.lengths = source.lengths, .backward = true});
  out.also.push_back(
      {hidden(backward_.hidden, behind.back()), counted(target_in, source.lengths, 0)});
  if (T < 2) return out;
  // Word k of the source, its end not among them: state k has read what is before it, state k + 1
  // what is behind.
  const Tensor sides = concat({slice(mix(before), 1, 0, T - 1), slice(mix(behind), 1, 1, T)}, 2);
  out.also.push_back({hidden(gap_, sides), counted(source.ids, source.lengths, 1)});
  return out;
}

WordLayers BidirectionalLanguageModel::word_layers(const Source& source, Id begin) const {
  const int64_t B = source.ids.size(0), T = source.ids.size(1);
  const std::span<const Id> words = source.ids.host_ids();
  std::vector<Id> in;
  for (int64_t b = 0; b < B; ++b) {
    in.push_back(begin);
    const auto row = words.subspan(static_cast<size_t>(b * T), static_cast<size_t>(T));
    in.insert(in.end(), row.begin(), row.end() - 1);
  }
  const std::vector<Tensor> before = layers(forward_, ids(in, {B, T}), {});
  const std::vector<Tensor> behind =
      layers(backward_, source.ids, {.lengths = source.lengths, .backward = true});
  const auto joined = [&](const Tensor& f, const Tensor& b) {
    return concat({slice(f, 1, 1, T), slice(b, 1, 0, T - 1)}, 2);  // [B, T - 1, 2 n]
  };
  WordLayers out;
  for (size_t j = 0; j < before.size(); ++j) out.layers.push_back(joined(before[j], behind[j]));
  out.mix = joined(mix(before), mix(behind));
  return out;
}

// ---- search

State BidirectionalLanguageModel::start(const Source& source) const {
  State state(source);
  start_cells(forward_.cells, state);
  return state;
}

Step BidirectionalLanguageModel::step(State& state, const Tensor& last,
                                      bool /*want_weights*/) const {
  const Tensor x = words_(last);
  const Tensor s = step_cells(forward_.cells, state, x);
  state.advance();
  return {.hidden = forward_.hidden(s, Activation::tanh)};
}

}  // namespace heed
