#include "heed/models/model.h"

#include "heed/models/bidirectional_language_model.h"
#include "heed/models/recurrent.h"
#include "heed/models/recurrent_language_model.h"
#include "heed/models/transformer.h"

namespace heed {
namespace {

// Rows of the first axis.
Tensor rows(const Tensor& x, std::span<const Id> from) {
  Shape shape = x.shape();
  const int64_t n = x.size(0) == 0 ? 0 : x.count() / x.size(0);
  shape[0] = static_cast<int64_t>(from.size());
  return reshape(embedding(reshape(contiguous(x), {x.size(0), n}), ids(from, {shape[0]})), shape);
}

}  // namespace

void State::choose(std::span<const Id> from, std::span<const Id> kept) {
  const NoTape off;
  for (auto& [name, x] : hypothesis) x = rows(x, from);
  for (auto& [name, c] : cache) c.reorder(from);
  bool all = kept.size() == lengths.size();
  for (size_t i = 0; all && i < kept.size(); ++i) all = kept[i] == static_cast<Id>(i);
  if (all) return;
  for (auto& [name, x] : sentence) x = rows(x, kept);
  std::vector<Id> left;
  for (const Id b : kept) left.push_back(lengths[static_cast<size_t>(b)]);
  lengths = std::move(left);
}

WordLayers Model::word_layers(const Source&, Id) const {
  fail(
      "embed: this model reads in one direction and has no vectors for words in their sentence; a ",
      "translator has, and a bidirectional language model (heed lm train --preset elmo)");
}

std::unique_ptr<Model> make_model(const Params& params, const ModelConfig& config,
                                  const Vocabularies& vocabularies) {
  check(config);
  require(!is_language_model(config) || vocabularies.shared,
          "config: a language model has one vocabulary; encoder_layers 0 is for 'heed lm train'");
  if (is_bidirectional_language_model(config))
    return std::make_unique<BidirectionalLanguageModel>(params, config, vocabularies.target);
  if (is_language_model(config) && config.family == "rnn")
    return std::make_unique<RecurrentLanguageModel>(params, config, vocabularies.target);
  if (config.family == "transformer")
    return std::make_unique<Transformer>(params, config, vocabularies);
  return std::make_unique<RecurrentModel>(params, config, vocabularies);
}

}  // namespace heed
