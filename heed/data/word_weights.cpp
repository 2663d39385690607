#include "heed/data/word_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

// The space before a word, which pieces show (Tokenizer::piece), is nothing of the word.
constexpr char32_t kShownSpace = U'▁';

// Whether a piece has nothing but punctuation, if anything. Apostrophes make words.
bool is_mark(const std::string& piece) {
  if (!is_utf8(piece)) return false;
  return std::ranges::all_of(decode_utf8(piece), [](char32_t c) {
    return c == kShownSpace || (is_punctuation(c) && c != U'\'' && c != U'’');
  });
}

size_t word_count(std::span<const int32_t> word) {
  return word.empty() ? 0 : static_cast<size_t>(*std::ranges::max_element(word) + 1);
}

// The matrices below have words for rows and columns, and the end's column last.
Links best_of_rows(const WordWeights& w) {
  Links links;
  for (size_t t = 0; t < w.targets; ++t) {
    const float* const row = w.values.data() + t * w.sources;
    const auto most = static_cast<size_t>(std::max_element(row, row + w.sources) - row);
    if (most + 1 < w.sources && row[most] > 0)
      links.push_back({static_cast<int32_t>(most), static_cast<int32_t>(t)});
  }
  return sorted_links(std::move(links));
}

Links likely_both_ways(const WordWeights& w, const ExtractOptions& options) {
  const auto threshold = static_cast<float>(options.threshold.value_or(kLinkThreshold));
  const size_t sources = w.sources - 1;
  if (sources == 0) return {};
  std::vector<float> on(sources);  // by source word, all that is on it
  for (size_t t = 0; t < w.targets; ++t)
    for (size_t s = 0; s < sources; ++s) on[s] += w.at(t, s);
  Links links;
  for (size_t t = 0; t < w.targets; ++t) {
    const float* const row = w.values.data() + t * w.sources;
    if (row[sources] > *std::max_element(row, row + sources)) continue;
    for (size_t s = 0; s < sources; ++s)
      if (const float p = row[s] > 0 ? joint_posterior(row[s], row[s] / on[s]) : 0; p > threshold)
        links.push_back({static_cast<int32_t>(s), static_cast<int32_t>(t),
                         options.want_probabilities ? std::min(p, 1.0f) : 1.0f});
  }
  return sorted_links(std::move(links));
}

// Jumps between the places of a chain, each row summing to one: what is farther than kFarthest from
// one step ahead costs no more, so that all of a row is a constant and a window.
class Jumps {
 public:
  explicit Jumps(size_t places) : places_(places), norm_(places) {
    for (int j = 0; j < kWindow; ++j) window_[j] = std::exp(-kCost * std::abs(j - kWindow / 2));
    for (size_t i = 0; i < places; ++i) {
      norm_[i] = far() * static_cast<double>(places);
      each(i, [&](size_t, double more) { norm_[i] += more; });
    }
  }
  // sum over i of from[i] J(i, j), and sum over j of J(i, j) to[j].
  std::vector<double> ahead(const std::vector<double>& from) const {
    double all = 0;
    for (size_t i = 0; i < places_; ++i) all += from[i] / norm_[i];
    std::vector<double> out(places_, all * far());
    for (size_t i = 0; i < places_; ++i)
      each(i, [&](size_t j, double more) { out[j] += from[i] / norm_[i] * more; });
    return out;
  }
  std::vector<double> back(const std::vector<double>& to) const {
    const double all = std::accumulate(to.begin(), to.end(), 0.0);
    std::vector<double> out(places_, all * far());
    for (size_t i = 0; i < places_; ++i) {
      each(i, [&](size_t j, double more) { out[i] += more * to[j]; });
      out[i] /= norm_[i];
    }
    return out;
  }

 private:
  static constexpr double kCost = 0.3;
  static constexpr int kFarthest = 6, kWindow = 2 * kFarthest + 1;
  double far() const { return window_[0]; }
  // visit(j, what the jump from i to j has above the constant).
  template <class Visit>
  void each(size_t i, Visit visit) const {
    for (int k = 0; k < kWindow; ++k) {
      const auto j = static_cast<std::ptrdiff_t>(i) + 1 + k - kWindow / 2;
      if (j >= 0 && j < static_cast<std::ptrdiff_t>(places_))
        visit(static_cast<size_t>(j), window_[k] - far());
    }
  }
  size_t places_;
  std::vector<double> norm_;
  double window_[kWindow];
};

// The weights as posteriors of the chain, the end last. A place is a source word; of each there are
// two states, one that gives the word and one that gives the end.
WordWeights path_posteriors(WordWeights w) {
  const size_t S = w.sources - 1, T = w.targets;
  if (S == 0 || T == 0) return w;
  constexpr double kLeast = 1e-6;  // no weight is a reason for no path at all
  const auto weight = [&](size_t t, size_t s) { return std::max(double(w.at(t, s)), kLeast); };
  const auto end = [&](size_t t) { return weight(t, S) / static_cast<double>(S); };
  const Jumps jumps(S);
  using Row = std::vector<double>;
  const auto scaled = [](Row& row, double sum) {
    for (double& x : row) x /= sum;
  };
  std::vector<Row> word(T, Row(S)), empty(T, Row(S));
  for (size_t t = 0; t < T; ++t) {
    Row before(S, 1.0), ahead(S, 1.0);
    if (t > 0) {
      for (size_t s = 0; s < S; ++s) before[s] = word[t - 1][s] + empty[t - 1][s];
      ahead = jumps.ahead(before);
    }
    double sum = 0;
    for (size_t s = 0; s < S; ++s) {
      word[t][s] = ahead[s] * weight(t, s);
      empty[t][s] = before[s] * end(t);
      sum += word[t][s] + empty[t][s];
    }
    scaled(word[t], sum), scaled(empty[t], sum);
  }
  Row after(S, 1.0);  // the backward pass: the same for both states of a place
  for (size_t t = T; t-- > 0;) {
    double sum = 0;
    for (size_t s = 0; s < S; ++s) sum += (word[t][s] + empty[t][s]) * after[s];
    double none = 0;
    for (size_t s = 0; s < S; ++s) none += empty[t][s] * after[s] / sum;
    Row to(S), stay(S);
    for (size_t s = 0; s < S; ++s) {
      to[s] = weight(t, s) * after[s];
      stay[s] = end(t) * after[s];
      w.values[t * w.sources + s] = static_cast<float>(word[t][s] * after[s] / sum);
    }
    w.values[t * w.sources + S] = static_cast<float>(none);
    after = jumps.back(to);
    for (size_t s = 0; s < S; ++s) after[s] += stay[s];
    scaled(after, std::accumulate(after.begin(), after.end(), 0.0));
  }
  return w;
}

}  // namespace

const std::vector<std::string>& extract_names() {
  static const std::vector<std::string> names = {"best", "threshold", "path"};
  return names;
}

Extract extract_named(std::string_view name) {
  const auto found = std::ranges::find(extract_names(), name);
  require(found != extract_names().end(), unknown_name("extract", name, extract_names()));
  return static_cast<Extract>(found - extract_names().begin());
}

WordWeights join_weights(const PieceWeights& weights, std::span<const int32_t> source_word,
                         std::span<const int32_t> target_word) {
  WordWeights out{word_count(target_word), word_count(source_word), {}};
  std::vector<double> sums(out.targets * out.sources);
  std::vector<double> pieces(out.targets);
  for (size_t t = 0; t < std::min(weights.size(), target_word.size()); ++t) {
    if (target_word[t] < 0) continue;
    const auto row = static_cast<size_t>(target_word[t]);
    ++pieces[row];
    for (size_t s = 0; s < std::min(weights[t].size(), source_word.size()); ++s)
      if (source_word[s] >= 0)
        sums[row * out.sources + static_cast<size_t>(source_word[s])] += double(weights[t][s]);
  }
  out.values.reserve(sums.size());
  for (size_t i = 0; i < sums.size(); ++i)
    out.values.push_back(static_cast<float>(sums[i] / std::max(1.0, pieces[i / out.sources])));
  return out;
}

LinkedWords linked_words(const Tokenizer& tokenizer, const Sentence& sentence) {
  LinkedWords out{sentence.word, std::vector<bool>(word_count(sentence.word), true)};
  std::vector<bool> mark;  // by piece
  for (const Id id : sentence.ids) mark.push_back(is_mark(tokenizer.piece(id)));
  for (size_t i = 0; i < mark.size(); ++i)
    if (sentence.word[i] >= 0 && !mark[i]) out.mark[static_cast<size_t>(sentence.word[i])] = false;
  // From a word's first piece on, and from its last piece back, as far as there is punctuation.
  const auto take_off = [&](auto begin, auto end, auto step) {
    int32_t inside = -1;  // a word whose own letters have begun
    for (auto i = begin; i != end; i += step) {
      const int32_t word = sentence.word[static_cast<size_t>(i)];
      if (word < 0 || word == inside) continue;
      if (!mark[static_cast<size_t>(i)])
        inside = word;
      else if (!out.mark[static_cast<size_t>(word)])
        out.word[static_cast<size_t>(i)] = -1;
    }
  };
  const auto count = std::ssize(sentence.ids);
  take_off(std::ptrdiff_t{0}, count, std::ptrdiff_t{1});
  take_off(count - 1, std::ptrdiff_t{-1}, std::ptrdiff_t{-1});
  return out;
}

Links word_alignment(const WeighedPair& pair, const ExtractOptions& options) {
  if (pair.weights.empty()) return {};  // a translation that could not be has none
  LinkedWords sources = linked_words(*pair.tokenizers.source, pair.source);
  const LinkedWords targets = linked_words(*pair.tokenizers.target, pair.target);
  sources.word.push_back(static_cast<int32_t>(sources.mark.size()));  // the end
  WordWeights joined = join_weights(pair.weights, sources.word, targets.word);
  if (options.how == Extract::best) return best_of_rows(joined);
  for (size_t t = 0; t < joined.targets; ++t)
    for (size_t s = 0; s + 1 < joined.sources; ++s)
      if (targets.mark[t] != sources.mark[s]) joined.values[t * joined.sources + s] = 0;
  if (options.how == Extract::path) joined = path_posteriors(std::move(joined));
  return likely_both_ways(joined, options);
}

}  // namespace heed
