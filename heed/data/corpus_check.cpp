#include "heed/data/corpus_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_map>
#include <utility>

#include "heed/base/unicode.h"
#include "heed/data/text.h"

namespace heed {
namespace {

constexpr double kDropped = 0.01, kIdentical = 0.01, kUnknown = 0.02, kGrave = 0.1;

double share_of(int64_t some, int64_t all) { return all > 0 ? double(some) / double(all) : 0; }

// "12.5 % (125 of 1,000)"
std::string in_figures(int64_t some, int64_t all) {
  char percent[32];
  std::snprintf(percent, sizeof percent, "%.1f %%", 100 * share_of(some, all));
  return std::string(percent) + " (" + grouped(some) + " of " + grouped(all) + ")";
}

// How often two characters follow each other, in lines here and there: what tells languages apart,
// with or without spaces between their words.
class Bigrams {
 public:
  void add(std::string_view line) {
    if (!is_utf8(line)) return;
    char32_t before = U' ';
    for (const char32_t c : decode_utf8(line)) {
      ++counts_[uint64_t{before} << 32 | c], ++all_;
      before = c;
    }
  }
  int64_t size() const { return all_; }
  // The log-likelihood of another text's, with half a count for each that is in neither.
  double log_likelihood(const Bigrams& text, const Bigrams& rival) const {
    const auto kinds = double(std::max(counts_.size(), rival.counts_.size()));
    double sum = 0;
    for (const auto& [pair, count] : text.counts_) {
      const auto found = counts_.find(pair);
      const double here = found == counts_.end() ? 0 : double(found->second);
      sum += double(count) * std::log((here + 0.5) / (double(all_) + 0.5 * kinds));
    }
    return sum;
  }

 private:
  std::unordered_map<uint64_t, int64_t> counts_;
  int64_t all_ = 0;
};

struct Sides {
  Bigrams source, target;
};

Sides sides_of(const Corpus& corpus) {
  Sides sides;
  corpus.index().look(20'000, [&](const TextPair& pair) {
    sides.source.add(pair.source), sides.target.add(pair.target);
  });
  return sides;
}

}  // namespace

std::vector<CorpusDoubt> doubts_of(const Corpus& corpus, const CleaningReport& r) {
  std::vector<CorpusDoubt> doubts;
  const auto doubt = [&](double share, double told_from, const std::string& told) {
    if (share > told_from) doubts.push_back({r.name + ": " + told, share > kGrave});
  };
  const int64_t not_utf8 = r[Flaw::not_utf8].count;
  const int64_t dropped = r.read - r.kept - r[Flaw::held_out].count;
  doubt(share_of(not_utf8, r.read), kDropped,
        in_figures(not_utf8, r.read) + " of the pairs are left out, since they are not UTF-8. " +
            (not_utf8 > 0 ? first_bad_line(corpus.files()).value_or("") : ""));
  doubt(
      share_of(dropped - not_utf8, r.read), kDropped,
      in_figures(dropped - not_utf8, r.read) +
          " of the pairs are left out, as is told above; mend the files or, of pairs that are too "
          "long or of different length, raise --max-length or --max-ratio");
  if (std::ranges::any_of(doubts, &CorpusDoubt::grave)) return doubts;  // what is left says little
  doubt(share_of(r.identical, r.kept), kIdentical,
        in_figures(r.identical, r.kept) +
            " of the pairs have the same text on both sides, and teach to copy; is it the right "
            "file? Take them out");
  const auto unknown = [&](const CleaningReport::Pieces& p, const std::string& side,
                           const Tokenizer& tokenizer) {
    const std::string_view kind = tokenizer.kind();
    const std::string what = kind == "words" || kind == "characters" ? std::string(kind) : "pieces";
    doubt(share_of(p.unknown, p.all), kUnknown,
          in_figures(p.unknown, p.all) + " of the " + side + "'s " + what +
              " are not in the vocabulary; want a larger --vocabulary, a lower --min-count, or "
              "subwords (--tokens unigram), which know all");
  };
  unknown(r.source, "source", *corpus.tokenizers().source);
  unknown(r.target, "target", *corpus.tokenizers().target);
  return doubts;
}

std::vector<CorpusDoubt> swapped_sides(const Corpus& corpus, const Corpus& other) {
  constexpr int64_t kFewest = 200;  // too short a text tells nothing
  constexpr double kClear = 0.1;    // nats a character; languages differ by several times that
  const Sides a = sides_of(corpus), b = sides_of(other);
  const int64_t n = b.source.size() + b.target.size();
  if (std::min(b.source.size(), b.target.size()) < kFewest) return {};
  const auto fit = [&](const Bigrams& source, const Bigrams& target) {
    return (a.source.log_likelihood(source, a.target) + a.target.log_likelihood(target, a.source)) /
           double(n);
  };
  const double straight = fit(b.source, b.target), crossed = fit(b.target, b.source);
  if (crossed < straight + kClear) return {};
  char figures[96];
  std::snprintf(figures, sizeof figures, "%.2f nats a character, and %.2f the other way round",
                -straight, -crossed);
  return {{other.report().name + ": its sides have changed places with those of " +
               corpus.report().name + ": by the characters of those it has " + figures +
               "; give the files in the other order",
           true}};
}

std::vector<CorpusDoubt> known_pairs(const Corpus& corpus, const Corpus& other) {
  constexpr double kKnown = 0.1;
  constexpr int64_t kMost = 2'000'000;  // of a larger corpus, what is found stands for the rest
  const std::hash<std::string> hash;
  const auto key = [&](const TextPair& pair) {
    return hash(pair.source + '\n' + pair.target);  // no side has a newline
  };
  std::unordered_map<uint64_t, int64_t> counts;
  int64_t all = 0, known = 0;
  for (PairReader reader = other.index().at(0); const auto pair = reader.next();)
    ++counts[key(*pair)], ++all;
  const int64_t looked = corpus.index().look(kMost, [&](const TextPair& pair) {
    if (const auto found = counts.find(key(pair)); found != counts.end())
      known += std::exchange(found->second, 0);
  });
  known = std::min(all, known * corpus.lines() / looked);
  if (share_of(known, all) <= kKnown) return {};
  return {{other.report().name + ": " + in_figures(known, all) + " of its pairs are also in " +
               corpus.report().name +
               ", which is learnt from: what it says of the model is too good; take them out of "
               "one of the two",
           false}};
}

}  // namespace heed
