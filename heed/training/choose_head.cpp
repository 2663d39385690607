#include "heed/training/choose_head.h"

#include <algorithm>
#include <optional>

#include "heed/base/check.h"
#include "heed/training/link_threshold.h"
#include "heed/training/run_folder.h"

namespace heed {
namespace {

// Weights [1, H, Tt, Ts] of each head, and of their mean where there are several.
std::vector<PieceWeights> rows_by_head(const Tensor& weights) {
  const UseDevice host(Device::cpu);  // where they are
  const int64_t H = weights.size(1), Tt = weights.size(2), Ts = weights.size(3);
  const auto rows = [&](const Tensor& one) {  // Tt * Ts values
    const std::vector<double> all = one.values();
    PieceWeights out;
    for (int64_t t = 0; t < Tt; ++t) out.emplace_back(&all[0] + t * Ts, &all[0] + (t + 1) * Ts);
    return out;
  };
  std::vector<PieceWeights> out;
  for (int64_t h = 0; h < H; ++h) out.push_back(rows(slice(weights, 1, h, h + 1)));
  if (H > 1) out.push_back(rows(mean(weights, 1)));
  return out;
}

// The head that sees the whole target: the one that aligns or, where another was chosen since, the
// one that was taught.
std::optional<AlignmentHead> whole_head(const ModelFolder& model) {
  if (model.alignment.whole) return model.alignment;
  const AlignmentHead taught = model.model->guided_head();
  return taught.whole && training_of(model.path).guided > 0 ? std::optional(taught) : std::nullopt;
}

std::vector<std::vector<GoldLink>> parsed(const std::vector<std::string>& gold) {
  std::vector<std::vector<GoldLink>> out;
  for (const std::string& line : gold) try {
      out.push_back(parse_gold_alignment(line));
    } catch (const Error& error) {
      fail("line ", out.size() + 1, ": ", error.what());
    }
  return out;
}

}  // namespace

std::vector<HeadError> head_errors(const Translator& translator,
                                   const std::vector<std::string>& sources,
                                   const std::vector<std::string>& targets,
                                   const std::vector<std::string>& gold,
                                   const TranslateOptions& options) {
  require(gold.size() == sources.size(), "alignment: ", sources.size(), " pairs and ", gold.size(),
          " lines of gold");
  require(has_attention(translator.model().config),
          "alignment: a model without attention; it has no head to choose");
  const std::vector<std::vector<GoldLink>> true_links = parsed(gold);
  const std::optional<AlignmentHead> whole = whole_head(translator.model());
  TranslateOptions scoring = options;
  if (whole) {
    scoring.search.layer = whole->layer, scoring.search.head = whole->head;
    scoring.search.shift = whole->shift, scoring.search.mean_of = whole->mean_of;
    scoring.search.whole = scoring.search.want_weights = true;
  }
  // Scoring the pairs first cuts and checks them.
  const std::vector<Translation> pairs = translator.score(sources, targets, scoring);
  const TokenizerPair& tokenizers = translator.model().tokenizers;
  std::vector<AlignmentHead> heads;
  std::vector<LinkErrors> errors;  // by head
  LinkErrors of_whole(options.extract);
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Translation& pair = pairs[i];
    if (pair.source.ids.empty()) continue;  // no links
    const std::vector<GoldLink>& links = true_links[i];
    const auto weighed = [&](const PieceWeights& rows) {
      return WeighedPair{tokenizers, pair.source, pair.best().target, rows};
    };
    of_whole.add(weighed(pair.best().weights), links);
    const std::vector<Weights> layers = translator.all_weights(pair);
    size_t at = 0;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const int64_t H = layers[layer].values.size(1);
      const std::vector<PieceWeights> by_head = rows_by_head(layers[layer].values);
      for (int64_t h = 0; h < static_cast<int64_t>(by_head.size()); ++h)
        for (const int64_t shift : {0, 1}) {
          if (at == heads.size()) {
            heads.push_back({static_cast<int64_t>(layer), h == H ? -1 : h, shift});
            errors.emplace_back(options.extract);
          }
          PieceWeights rows = by_head[static_cast<size_t>(h)];
          shift_weights(rows, shift);
          errors[at++].add(weighed(rows), links);
        }
    }
  }
  require(!heads.empty(), "alignment: no pair to choose a head on");
  if (whole) heads.push_back(*whole), errors.push_back(of_whole);
  std::vector<HeadError> out;
  for (size_t i = 0; i < heads.size(); ++i) {
    const LinkErrors::Best best = errors[i].best();
    heads[i].threshold = best.threshold;
    out.push_back({heads[i], best.aer});
  }
  return out;
}

HeadError best_head(const std::vector<HeadError>& errors) {
  return *std::ranges::min_element(errors, {}, &HeadError::aer);
}

}  // namespace heed
