#include "heed/training/link_threshold.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

std::pair<int32_t, int32_t> words_of(const Link& link) { return {link.source, link.target}; }

}  // namespace

LinkErrors::LinkErrors(const ExtractOptions& options) : options_(options) {
  if (options.threshold || options.how == Extract::best)
    tried_.push_back({options.threshold, Statistics(4)});
  else
    for (int k = 3; k <= 16; ++k) tried_.push_back({k / 20.0, Statistics(4)});  // 0.15 to 0.8
  options_.threshold = tried_.front().threshold;
  options_.want_probabilities = true;
}

void LinkErrors::add(const WeighedPair& pair, std::span<const GoldLink> gold) {
  const auto sure = double(std::ranges::count(gold, true, &GoldLink::sure));
  for (Counts& counts : tried_) counts.sums[3] += sure;
  for (const Link& link : word_alignment(pair, options_)) {
    const auto known = std::ranges::lower_bound(gold, words_of(link), {},
                                                [](const GoldLink& g) { return words_of(g.link); });
    const bool possible = known != gold.end() && words_of(known->link) == words_of(link);
    for (Counts& counts : tried_) {
      if (counts.threshold && !(link.weight > static_cast<float>(*counts.threshold))) break;
      counts.sums[0] += possible && known->sure ? 1 : 0;
      counts.sums[1] += possible ? 1 : 0;
      ++counts.sums[2];
    }
  }
}

LinkErrors::Best LinkErrors::best() const { return nearest(0); }
LinkErrors::Best LinkErrors::best_by_chance() const { return nearest(1); }

LinkErrors::Best LinkErrors::nearest(double standard_errors) const {
  const auto aer = make_aer();
  std::vector<Best> all;
  for (const Counts& counts : tried_) all.push_back({counts.threshold, aer->score(counts.sums)});
  const auto least = std::ranges::min_element(all, {}, &Best::aer) - all.begin();
  // Of n links E are wrong, a number that varies by its root.
  const Statistics& sums = tried_[static_cast<size_t>(least)].sums;
  const double n = std::max(1.0, sums[2] + sums[3]),
               least_aer = all[static_cast<size_t>(least)].aer;
  const double most = least_aer + standard_errors * 100 * std::sqrt(least_aer / 100 * n) / n;
  std::erase_if(all, [&](const Best& b) { return b.aer > most; });
  return *std::ranges::min_element(all, {}, [](const Best& b) {
    return std::abs(b.threshold.value_or(kLinkThreshold) - kLinkThreshold);
  });
}

void AlignedLines::add(std::string source, std::string target, Links of_pair) {
  sources.push_back(std::move(source)), targets.push_back(std::move(target));
  links.push_back(std::move(of_pair));
}

Links likely_links(Links links) {
  std::erase_if(links, [](const Link& l) { return !(l.weight > float(kLinkThreshold)); });
  for (Link& link : links) link.weight = 1;
  return links;
}

AlignedLines given_links(const CorpusIndex& index, const HeldOut* held_out) {
  AlignedLines out;
  const int64_t each = held_out ? held_out->each() : 1;
  const int64_t step = each * std::max<int64_t>(1, index.lines() / each / kPairsToMeasure);
  PairReader reader = index.at(0);
  for (int64_t line = held_out ? held_out->first() : 1; line <= index.lines(); line += step) {
    index.go(reader, line - 1);
    std::optional<TextPair> pair = reader.next();
    if (!pair) break;
    if (pair->torn || !is_utf8(pair->source) || !is_utf8(pair->target)) continue;
    std::optional<Links> links = parse_pharaoh(pair->alignment);
    if (!links) continue;
    out.add(std::move(pair->source), std::move(pair->target), likely_links(std::move(*links)));
  }
  return out;
}

std::optional<LinkErrors::Best> learn_threshold(const Translator& translator,
                                                const AlignedLines& lines) {
  // Long lines and large batches would want more memory than training did.
  constexpr size_t kLongest = 1000;  // bytes
  AlignedLines some;
  for (size_t i = 0; i < lines.sources.size(); ++i)
    if (lines.sources[i].size() <= kLongest && lines.targets[i].size() <= kLongest)
      some.add(lines.sources[i], lines.targets[i], lines.links[i]);
  const std::vector<Translation> pairs = translator.score(
      some.sources, some.targets,
      {.search = {.want_weights = true}, .batch = 16, .batch_tokens = 1024, .max_length = 256});
  LinkErrors errors{ExtractOptions()};
  bool any = false;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (some.links[i].empty()) continue;
    any = true;
    std::vector<GoldLink> links;
    for (const Link& link : some.links[i]) links.push_back({link});
    const Translation& pair = pairs[i];
    errors.add(
        {translator.model().tokenizers, pair.source, pair.best().target, pair.best().weights},
        links);
  }
  const LinkErrors::Best best = errors.best_by_chance();
  return any && best.aer < 100 ? std::optional(best) : std::nullopt;
}

std::string keep_threshold(const std::filesystem::path& folder, const AlignedLines& lines) {
  if (!std::filesystem::exists(folder / "model.safetensors")) return {};
  std::ostringstream told;
  std::optional<LinkErrors::Best> learnt;
  try {
    const Translator translator(folder);
    learnt = learn_threshold(translator, lines);
    if (!learnt) return {};
    AlignmentHead head = translator.model().alignment;
    head.threshold = learnt->threshold;
    keep_alignment(folder, head);
  } catch (const Error& error) {  // the model is trained and saved without it
    told << "no threshold of its links was learnt: " << error.what();
    return told.str();
  }
  told << "with threshold " << *learnt->threshold << " its links agree best with its teacher's: of "
       << lines.sources.size() << " pairs they differ in " << std::round(10 * learnt->aer) / 10
       << " %";
  return told.str();
}

}  // namespace heed
