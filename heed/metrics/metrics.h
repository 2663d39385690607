// How good a translation or a word alignment is: lines in, numbers out.
//
// A metric turns each line into a few counts (Statistics) and the sum of all lines' counts into the
// score. So one pass over the text gives the scores of sentences, of the corpus and of any sample
// of its lines, which is what the significance tests draw.
//
// BLEU (Papineni et al., 2002), chrF and chrF++ (Popović, 2015 and 2017) and TER (Snover et al.,
// 2006) are those of sacreBLEU 2.6.0 (Post, 2018), to the last digit; their signature is
// sacreBLEU's. AER is that of Och and Ney (2003).
//
//   const auto metric = make_bleu();
//   const auto lines = statistics(*metric, hypotheses, {references});
//   metric->score(sum_statistics(lines));
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/alignment.h"
#include "heed/metrics/tokenize.h"

namespace heed {

using Statistics = std::vector<double>;

// One part of a signature, "tok:13a"; `brief` is its key in the short form.
struct SignaturePart {
  std::string key, brief, value;
};

class Metric {
 public:
  virtual ~Metric() = default;
  virtual std::string name() const = 0;
  // What the score depends on besides the text.
  virtual std::vector<SignaturePart> signature() const = 0;
  // The counts of one line. Throws Error if a text is not what the metric reads.
  virtual Statistics line(std::string_view hypothesis,
                          std::span<const std::string_view> references) const = 0;
  // 0 to 100, or more for TER.
  virtual double score(const Statistics& sums) const = 0;
  // What is printed after the score, or "".
  virtual std::string details(const Statistics&) const { return ""; }
};

enum class Smoothing { none, floor, add_k, exp };

struct BleuOptions {
  std::string tokenizer = "13a";
  bool lowercase = false;
  Smoothing smoothing = Smoothing::exp;
  std::optional<double> smooth_value = {};  // floor: 0.1, add_k: 1 if not given
  bool effective_order = false;             // leave out orders a short text has not: for sentences
};
std::unique_ptr<Metric> make_bleu(BleuOptions options = {});

// What BLEU is made of.
struct BleuParts {
  static constexpr int kOrder = 4;
  double score = 0, brevity_penalty = 1;
  std::array<double, kOrder> counts{}, totals{}, precisions{};
  int64_t hypothesis_length = 0, reference_length = 0;
};
BleuParts bleu_parts(const Statistics& sums, const BleuOptions& options = {});

struct ChrfOptions {
  int char_order = 6;
  int word_order = 0;  // 2: chrF++
  int beta = 2;        // how much more recall counts than precision
  bool lowercase = false;
  bool whitespace = false;  // white space counts as characters
  bool eps_smoothing =
      false;  // orders without n-grams count as (nearly) 0 instead of being left out
};
std::unique_ptr<Metric> make_chrf(const ChrfOptions& options = {});

// Statistics: edits, mean length of the references.
std::unique_ptr<Metric> make_ter(const TerOptions& options = {});

// Alignment error rate: lines are alignments, and there is one reference, the gold alignment.
std::unique_ptr<Metric> make_aer();

// A link of a gold alignment: sure, or merely possible.
struct GoldLink {
  Link link;
  bool sure = true;
  bool operator==(const GoldLink&) const = default;
};
// Reads "0-0 1-2 3p2": sure links with -, possible ones with p, P or ?. The result ascends and has
// each link once; one that is given as both is sure. Throws Error, with the token, for anything
// else.
std::vector<GoldLink> parse_gold_alignment(std::string_view line);

// What is known of where a gold alignment's words are counted from; not both.
struct CountedFrom {
  bool from_one = false, from_zero = false;
};
// The lines of a gold alignment, with words counted from 0. Throws Error, `name` at its head, for a
// line that is none; where nothing is known and no link has a 0, since such a file most probably
// counts from 1; and for one from 1 that has a 0.
std::vector<std::string> zero_based_gold(std::vector<std::string> lines, std::string_view name,
                                         CountedFrom from);

// The counts of every line, on all threads. references[k] is the k-th reference of all lines, as
// long as `hypotheses`.
std::vector<Statistics> statistics(const Metric& metric, const std::vector<std::string>& hypotheses,
                                   const std::vector<std::vector<std::string>>& references);
Statistics sum_statistics(std::span<const Statistics> lines);

// Mean, and half the width of the interval that holds 95 % of the scores.
struct Confidence {
  double mean = 0, half_width = 0;
};

inline constexpr uint64_t kResamplingSeed = 12345;

// The scores of `trials` samples of the corpus, each of as many lines as it has, drawn with
// replacement (Koehn, 2004). The draws are those of sacreBLEU, that is of NumPy's PCG64, and depend
// on the number of lines, the trials and the seed alone: two systems are given the same samples.
std::vector<double> resample(const Metric& metric, std::span<const Statistics> lines, int trials,
                             uint64_t seed = kResamplingSeed);
Confidence confidence(std::vector<double> scores);

// How probable so large a difference is if the systems are equally good. For the bootstrap from
// the scores of both systems' samples; for approximate randomization (Riezler and Maxwell, 2005) by
// exchanging the systems' lines by the throw of a coin.
double bootstrap_p_value(std::span<const double> baseline, std::span<const double> system,
                         double difference);
double randomization_p_value(const Metric& metric, std::span<const Statistics> baseline,
                             std::span<const Statistics> system, int trials,
                             uint64_t seed = kResamplingSeed);

// How the score was come by: "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0".
struct Circumstances {
  int references = 1;
  int bootstrap = 0, randomization = 0;  // trials, or 0
  uint64_t seed = kResamplingSeed;
};
enum class SignatureForm { full, brief };
std::string signature(const Metric& metric, const Circumstances& circumstances,
                      SignatureForm form = SignatureForm::full);

// A score as sacreBLEU prints it: "BLEU|nrefs:1|... = 61.15 (μ = 60.52 ± 20.35) 81.8/74.3 ...".
struct ScoreReport {
  std::string name;
  double value = 0;
  std::optional<Confidence> confidence = {};
  std::string details = {};
};
std::string number_text(const ScoreReport& score,
                        int digits);  // what stands after " = ", no details
std::string score_text(const ScoreReport& score, std::string_view signature, int digits = 2);

}  // namespace heed
