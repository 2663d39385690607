// BLEU: the geometric mean of the precisions of n-grams, times a penalty for being short.
//
// Statistics: length of the hypothesis, length of the reference, matches of orders 1 to 4, n-grams
// of orders 1 to 4. Smoothing methods are numbered as in Chen and Cherry (2014).
#include <cmath>
#include <iomanip>
#include <sstream>
#include <utility>

#include "heed/metrics/metrics.h"
#include "heed/metrics/ngrams.h"

namespace heed {
namespace {

constexpr int kOrder = BleuParts::kOrder;

// The reference length that is nearest to the hypothesis', the shorter of two.
size_t nearest_length(const Ngrams& words) {
  const auto distance = [&](size_t length) {
    const size_t hypothesis = words.texts[0].size();
    return std::max(length, hypothesis) - std::min(length, hypothesis);
  };
  size_t nearest = words.texts[1].size();
  for (size_t t = 2; t < words.texts.size(); ++t) {
    const size_t length = words.texts[t].size();
    nearest =
        std::min(std::pair(distance(nearest), nearest), std::pair(distance(length), length)).second;
  }
  return nearest;
}

// An n-gram may be matched as often as the reference has it that has it most often.
uint64_t clipped_matches(const Ngrams& grams) {
  std::vector<uint32_t> most = count(grams, 1);
  for (size_t t = 2; t < grams.texts.size(); ++t) {
    const std::vector<uint32_t> counts = count(grams, t);
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], counts[i]);
  }
  return matches(count(grams, 0), most);
}

double smoothing_value(const BleuOptions& options) {
  return options.smooth_value.value_or(options.smoothing == Smoothing::floor ? 0.1 : 1.0);
}

std::string smoothing_text(const BleuOptions& options) {
  switch (options.smoothing) {
    case Smoothing::none: return "none";
    case Smoothing::exp: return "exp";
    case Smoothing::floor:
    case Smoothing::add_k: break;
  }
  std::ostringstream out;
  out << (options.smoothing == Smoothing::floor ? "floor[" : "add-k[") << std::fixed
      << std::setprecision(2) << smoothing_value(options) << "]";
  return out.str();
}

// Methods 1 to 3 of Chen and Cherry: floor, add_k and exp. Returns how many orders there are.
int smoothed_precisions(BleuParts& parts, const BleuOptions& options) {
  int orders = kOrder;
  double halvings = 1;
  for (int n = 0; n < kOrder; ++n) {
    double &matched = parts.counts[n], &total = parts.totals[n];
    if (options.smoothing == Smoothing::add_k && n > 0)
      matched += smoothing_value(options), total += smoothing_value(options);
    if (total == 0) break;
    if (options.effective_order) orders = n + 1;
    if (matched > 0)
      parts.precisions[n] = 100. * matched / total;
    else if (options.smoothing == Smoothing::exp)
      parts.precisions[n] = 100. / ((halvings *= 2) * total);
    else if (options.smoothing == Smoothing::floor)
      parts.precisions[n] = 100. * smoothing_value(options) / total;
  }
  return orders;
}

class Bleu final : public Metric {
 public:
  explicit Bleu(BleuOptions options)
      : options_(std::move(options)), tokenizer_(find_bleu_tokenizer(options_.tokenizer)) {}

  std::string name() const override { return "BLEU"; }

  std::vector<SignaturePart> signature() const override {
    return {{"case", "c", options_.lowercase ? "lc" : "mixed"},
            {"eff", "e", options_.effective_order ? "yes" : "no"},
            {"tok", "tok", options_.tokenizer},
            {"smooth", "s", smoothing_text(options_)},
            {"version", "v", "2.6.0"}};
  }

  Statistics line(std::string_view hypothesis,
                  std::span<const std::string_view> references) const override {
    std::vector<std::u32string> texts{prepared(hypothesis)};
    for (const std::string_view reference : references) texts.push_back(prepared(reference));
    std::vector<std::vector<std::u32string_view>> split;
    for (const std::u32string& text : texts) split.push_back(split_at_white_space(text));
    const Ngrams words = first_order(split);
    Statistics out{double(words.texts[0].size()), double(nearest_length(words))};
    out.resize(2 + 2 * kOrder);
    Ngrams grams = words;
    for (size_t n = 0; n < kOrder; ++n) {
      if (n > 0) grams = next_order(grams, words, n);
      out[2 + n] = double(clipped_matches(grams));
      out[2 + kOrder + n] = double(grams.texts[0].size());
    }
    return out;
  }

  double score(const Statistics& sums) const override { return bleu_parts(sums, options_).score; }

  std::string details(const Statistics& sums) const override {
    const BleuParts parts = bleu_parts(sums, options_);
    const auto hypothesis = double(parts.hypothesis_length),
               reference = double(parts.reference_length);
    std::ostringstream out;
    out << std::fixed << std::setprecision(1);
    for (int n = 0; n < kOrder; ++n) out << (n > 0 ? "/" : "") << parts.precisions[n];
    out << std::setprecision(3) << " (BP = " << parts.brevity_penalty
        << " ratio = " << (reference > 0 ? hypothesis / reference : 0)
        << " hyp_len = " << parts.hypothesis_length << " ref_len = " << parts.reference_length
        << ")";
    return out.str();
  }

 private:
  std::u32string prepared(std::string_view text) const {
    std::u32string line = decode_utf8(text);
    if (options_.lowercase) line = lower_case(line);
    return tokenizer_(strip_right(line));
  }

  BleuOptions options_;
  BleuTokenizer tokenizer_;
};

}  // namespace

BleuParts bleu_parts(const Statistics& sums, const BleuOptions& options) {
  BleuParts parts;
  parts.hypothesis_length = static_cast<int64_t>(sums[0]);
  parts.reference_length = static_cast<int64_t>(sums[1]);
  std::copy_n(sums.begin() + 2, kOrder, parts.counts.begin());
  std::copy_n(sums.begin() + 2 + kOrder, kOrder, parts.totals.begin());
  if (parts.hypothesis_length < parts.reference_length)
    parts.brevity_penalty =
        parts.hypothesis_length > 0
            ? std::exp(1 - double(parts.reference_length) / double(parts.hypothesis_length))
            : 0;
  if (std::all_of(parts.counts.begin(), parts.counts.end(), [](double c) { return c == 0; }))
    return parts;
  const int orders = smoothed_precisions(parts, options);
  // Summed in sacreBLEU's order and with its logarithm of 0, for the last digit's sake.
  double logs = 0;
  for (int n = 0; n < orders; ++n)
    logs += parts.precisions[n] == 0 ? -9999999999. : std::log(parts.precisions[n]);
  parts.score = parts.brevity_penalty * std::exp(logs / orders);
  return parts;
}

std::unique_ptr<Metric> make_bleu(BleuOptions options) {
  return std::make_unique<Bleu>(std::move(options));
}

}  // namespace heed
