// How likely a model's links must be (ExtractOptions::threshold), measured on pairs whose alignment
// is known, or which someone else has aligned.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/data/corpus.h"
#include "heed/metrics/metrics.h"
#include "heed/translation/translator.h"

namespace heed {

// How many links are wrong that are made of weights, by the threshold that they are made with. A
// threshold that is given is the only one; Extract::best has none.
class LinkErrors {
 public:
  explicit LinkErrors(const ExtractOptions& options);

  // Links that are made of the pair's weights, beside true ones, ascending.
  void add(const WeighedPair& pair, std::span<const GoldLink> gold);

  struct Best {
    std::optional<double> threshold;
    double aer = 0;  // 0 to 100 (metrics/metrics.h)
  };
  // Of equals the one that is nearest to kLinkThreshold.
  Best best() const;
  // And of those that cannot be told from the best: by no more than a standard error worse.
  Best best_by_chance() const;

 private:
  Best nearest(double standard_errors) const;
  struct Counts {
    std::optional<double> threshold;
    Statistics sums;  // the metric's
  };
  ExtractOptions options_;
  std::vector<Counts> tried_;  // thresholds ascend
};

// Pairs of lines, and links between their words.
struct AlignedLines {
  std::vector<std::string> sources, targets;
  std::vector<Links> links;
  void add(std::string source, std::string target, Links of_pair);
};

// Enough to learn a threshold from: samples have so many pairs where there are, and less than twice
// as many.
inline constexpr int64_t kPairsToMeasure = 500;

// Some pairs of a corpus with the likely links of those that it has for them: of what is held out,
// if anything is (else null).
AlignedLines given_links(const CorpusIndex& index, const HeldOut* held_out);
// Those that are likelier than kLinkThreshold, as an aligner wants them; all are sure then.
Links likely_links(Links links);

// How likely links of the model's own attention must be to agree best with these, as far as so many
// pairs can tell; pairs that have none do not count. Nothing if no pair counts, or no link is
// found.
std::optional<LinkErrors::Best> learn_threshold(const Translator& translator,
                                                const AlignedLines& lines);

// The same of the model in the folder, whose config.json keeps it. Returns a line for people; empty
// where nothing was learnt, or where there is no model yet.
std::string keep_threshold(const std::filesystem::path& folder, const AlignedLines& lines);

}  // namespace heed
