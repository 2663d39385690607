// chrF: the F-score of character n-grams, in chrF++ of words and pairs of words as well.
//
// Statistics: for each order, characters first, the hypothesis' n-grams, the reference's, and those
// they have in common. Of several references the one with the best F-score is taken for each line.
#include <string_view>

#include "heed/base/check.h"
#include "heed/metrics/metrics.h"
#include "heed/metrics/ngrams.h"

namespace heed {
namespace {

bool is_mark(char32_t c) {
  return (c > 0x20 && c < '0') || (c > '9' && c < 'A') || (c > 'Z' && c < 'a') ||
         (c > 'z' && c < 0x7F);
}

// One mark at a word's end becomes a word; only if there is none, one at its beginning.
std::vector<std::u32string_view> words_and_marks(std::u32string_view line) {
  std::vector<std::u32string_view> out;
  for (const std::u32string_view word : split_at_white_space(line)) {
    const size_t cut = word.size() == 1        ? 0
                       : is_mark(word.back())  ? word.size() - 1
                       : is_mark(word.front()) ? 1
                                               : 0;
    if (cut > 0) out.push_back(word.substr(0, cut));
    out.push_back(word.substr(cut));
  }
  return out;
}

class Chrf final : public Metric {
 public:
  explicit Chrf(const ChrfOptions& options) : options_(options) {
    require(options.char_order >= 1 && options.word_order >= 0 && options.beta >= 1,
            "chrF: characters 1 or more, words 0 or more and beta 1 or more are wanted, given ",
            options.char_order, ", ", options.word_order, " and ", options.beta);
  }

  std::string name() const override {
    return "chrF" + std::to_string(options_.beta) +
           std::string(static_cast<size_t>(options_.word_order), '+');
  }

  std::vector<SignaturePart> signature() const override {
    return {{"case", "c", options_.lowercase ? "lc" : "mixed"},
            {"eff", "e", options_.eps_smoothing ? "no" : "yes"},
            {"nc", "nc", std::to_string(options_.char_order)},
            {"nw", "nw", std::to_string(options_.word_order)},
            {"space", "s", options_.whitespace ? "yes" : "no"},
            {"version", "v", "2.6.0"}};
  }

  Statistics line(std::string_view hypothesis,
                  std::span<const std::string_view> references) const override {
    std::vector<std::u32string> texts{prepared(hypothesis)}, characters;
    for (const std::string_view reference : references) texts.push_back(prepared(reference));
    std::vector<std::vector<std::u32string_view>> words;
    for (const std::u32string& text : texts) {
      words.push_back(words_and_marks(text));
      characters.push_back(text);
      if (!options_.whitespace) std::erase_if(characters.back(), is_white_space);
    }
    std::vector<Statistics> each(references.size());
    add_orders(first_order(characters), options_.char_order, each);
    if (options_.word_order > 0) add_orders(first_order(words), options_.word_order, each);
    return *std::max_element(each.begin(), each.end(),
                             [&](const auto& a, const auto& b) { return score(a) < score(b); });
  }

  // P and R are averaged over the orders that both texts have, and F is taken of the averages; with
  // eps smoothing F is averaged over all orders.
  double score(const Statistics& sums) const override {
    constexpr double kEps = 1e-16;
    const double factor = options_.beta * options_.beta;
    const int orders = options_.char_order + options_.word_order;
    double sum_f = 0, precision = 0, recall = 0;
    int present = 0;
    for (size_t i = 0; i < sums.size(); i += 3) {
      const double hypothesis = sums[i], reference = sums[i + 1], common = sums[i + 2];
      const double p = hypothesis > 0 ? common / hypothesis : kEps;
      const double r = reference > 0 ? common / reference : kEps;
      const double denominator = factor * p + r;
      sum_f += denominator > 0 ? (1 + factor) * p * r / denominator : kEps;
      if (hypothesis > 0 && reference > 0) precision += p, recall += r, ++present;
    }
    if (options_.eps_smoothing) return 100 * sum_f / orders;
    if (precision + recall == 0) return 0;
    precision /= present;
    recall /= present;
    return 100 * ((1 + factor) * precision * recall / (factor * precision + recall));
  }

 private:
  std::u32string prepared(std::string_view text) const {
    const std::u32string line = decode_utf8(text);
    return options_.lowercase ? lower_case(line) : line;
  }

  // Text 0 against each of the others. An order that the reference has not is not held against
  // the hypothesis.
  static void add_orders(const Ngrams& symbols, int orders, std::vector<Statistics>& each) {
    Ngrams grams = symbols;
    for (size_t n = 0; n < static_cast<size_t>(orders); ++n) {
      if (n > 0) grams = next_order(grams, symbols, n);
      const std::vector<uint32_t> hypothesis = count(grams, 0);
      for (size_t k = 0; k < each.size(); ++k) {
        const size_t reference = grams.texts[k + 1].size();
        each[k].push_back(reference > 0 ? double(grams.texts[0].size()) : 0);
        each[k].push_back(double(reference));
        each[k].push_back(double(matches(hypothesis, count(grams, k + 1))));
      }
    }
  }

  ChrfOptions options_;
};

}  // namespace

std::unique_ptr<Metric> make_chrf(const ChrfOptions& options) {
  return std::make_unique<Chrf>(options);
}

}  // namespace heed
