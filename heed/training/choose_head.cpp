#include "heed/training/choose_head.h"

#include <algorithm>

#include "heed/base/check.h"
#include "heed/metrics/metrics.h"

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
  // Scoring the pairs first cuts and checks them.
  const std::vector<Translation> pairs = translator.score(sources, targets, options);
  const TokenizerPair& tokenizers = translator.model().tokenizers;
  std::vector<AlignmentHead> heads;
  std::vector<std::vector<std::string>> found;  // by head: a line of links for each pair
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Translation& pair = pairs[i];
    if (pair.source.ids.empty()) continue;  // no links
    const std::vector<Weights> layers = translator.all_weights(pair);
    size_t at = 0;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const int64_t H = layers[layer].values.size(1);
      const std::vector<PieceWeights> by_head = rows_by_head(layers[layer].values);
      for (int64_t h = 0; h < static_cast<int64_t>(by_head.size()); ++h)
        for (const int64_t shift : {0, 1}) {
          if (at == heads.size()) {
            heads.push_back({static_cast<int64_t>(layer), h == H ? -1 : h, shift});
            found.emplace_back(pairs.size());
          }
          PieceWeights rows = by_head[static_cast<size_t>(h)];
          shift_weights(rows, shift);
          found[at++][i] = to_pharaoh(
              word_alignment({tokenizers, pair.source, pair.best().target, rows}, options.extract));
        }
    }
  }
  require(!heads.empty(), "alignment: no pair to choose a head on");
  if (const AlignmentHead& own = translator.model().alignment; own.whole) {
    heads.push_back(own);  // the weights that came with the scores
    for (std::vector<std::string>& lines = found.emplace_back(); const Translation& pair : pairs) {
      const Translation::Candidate& c = pair.best();
      lines.push_back(to_pharaoh(
          word_alignment({tokenizers, pair.source, c.target, c.weights}, options.extract)));
    }
  }
  const auto aer = make_aer();
  std::vector<HeadError> out;
  for (size_t i = 0; i < heads.size(); ++i)
    out.push_back({heads[i], aer->score(sum_statistics(statistics(*aer, found[i], {gold})))});
  return out;
}

HeadError best_head(const std::vector<HeadError>& errors) {
  return *std::ranges::min_element(errors, {}, &HeadError::aer);
}

}  // namespace heed
