#include "heed/models/model.h"

#include "heed/models/bidirectional_language_model.h"
#include "heed/models/recurrent.h"
#include "heed/models/recurrent_language_model.h"
#include "heed/models/transformer.h"

namespace heed {
namespace {

// Rows of the first axis.
Tensor rows(const Tensor& x, const Tensor& from) {
  Shape shape = x.shape();
  const int64_t n = x.size(0) == 0 ? 0 : x.count() / x.size(0);
  shape[0] = from.size(0);
  return reshape(embedding(reshape(contiguous(x), {x.size(0), n}), from), shape);
}
Tensor as_ids(std::span<const Id> values) { return ids(values, {std::ssize(values)}); }

}  // namespace

std::vector<Id> State::row_positions(int64_t each) const {
  std::vector<Id> out;
  for (const Id p : positions) out.insert(out.end(), static_cast<size_t>(each), p);
  return out;
}

void State::advance() {
  for (Id& p : positions) ++p;
}

void State::choose(std::span<const Id> from, std::span<const Id> kept) {
  const NoTape off;
  if (!hypothesis.empty()) {
    const Tensor where = as_ids(from);
    for (auto& [name, x] : hypothesis) x = rows(x, where);
  }
  std::vector<KeyValueCache*> caches;
  for (auto& [name, c] : cache) caches.push_back(&c);
  const int64_t each = std::ssize(from) / std::max<int64_t>(1, std::ssize(kept));
  KeyValueCache::reorder(caches, from, std::max<int64_t>(1, each));
  bool all = kept.size() == lengths.size();
  for (size_t i = 0; all && i < kept.size(); ++i) all = kept[i] == static_cast<Id>(i);
  if (all) return;
  const Tensor where = as_ids(kept);
  for (auto& [name, x] : sentence) x = rows(x, where);
  const auto chosen = [&](const std::vector<Id>& of) {
    std::vector<Id> out;
    for (const Id b : kept) out.push_back(of[static_cast<size_t>(b)]);
    return out;
  };
  lengths = chosen(lengths);
  positions = chosen(positions);
}

void State::choose(const Tensor& from) {
  const NoTape off;
  for (auto& [name, x] : hypothesis) x = rows(x, from);
  std::vector<KeyValueCache*> caches;
  for (auto& [name, c] : cache) caches.push_back(&c);
  const int64_t group = from.size(0) / std::max<int64_t>(1, sentences());
  KeyValueCache::reorder(caches, from, group, places ? std::optional(places->steps) : std::nullopt);
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
