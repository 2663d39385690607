// Search on a chain whose every number is known. On models: search_models_test.cpp.
#include "heed/search/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/folder.h"
#include "tests/sources.h"

namespace heed {
namespace {

constexpr Id kUnknown = 1, kBegin = 2, kEnd = 3;
constexpr int64_t kWords = 7;  // pad, unknown, begin, end and three of its own

// A word's logits depend on the two words before it and on the sentence, whose name is its first
// source word. The word before the last is kept by hypothesis, the name by sentence: both must
// move when hypotheses do. A word w weighs source position w % length by 0.7, the rest evenly.
class Chain final : public Model {
 public:
  explicit Chain(uint64_t seed, double contrast = 1.5) : seed_(seed), contrast_(contrast) {}

  double logit(Id name, Id before, Id last, Id word) const {
    const uint64_t place =
        static_cast<uint64_t>(((name * kWords + before) * kWords + last) * kWords + word);
    return contrast_ * double(Random(seed_, place * 4).normal());
  }
  static double weight(Id word, int64_t at, int64_t length) {
    if (length == 1) return 1;
    return at == word % length ? 0.7 : 0.3 / double(length - 1);
  }

  double log_probability(Id name, Words words) const {  // of the words and the end
    words.push_back(kEnd);
    return so_far(name, words);
  }
  double so_far(Id name, const Words& words) const {  // of the words
    double sum = 0;
    Id before = 0, last = kBegin;
    for (const Id word : words) {
      double total = 0;
      for (Id w = 0; w < kWords; ++w) total += std::exp(logit(name, before, last, w));
      sum += logit(name, before, last, word) - std::log(total);
      before = last, last = word;
    }
    return sum;
  }

  State start(const Source& source) const override {
    State state(source);
    const int64_t B = source.ids.size(0), T = source.ids.size(1);
    std::vector<float> names;
    for (int64_t b = 0; b < B; ++b)
      names.push_back(static_cast<float>(source.ids.data<Id>()[b * T]));
    state.sentence["name"] = tensor(names, {B, 1});
    state.hypothesis["before"] = zeros({B, 1});
    return state;
  }

  Step step(State& state, const Tensor& last, bool want_weights) const override {
    const int64_t rows = last.size(0), K = rows / state.sentences();
    const Id width = *std::ranges::max_element(state.lengths);
    std::vector<float> logits, weights, before;
    for (int64_t i = 0; i < rows; ++i) {
      const Id name = static_cast<Id>(state.sentence.at("name").data<float>()[i / K]);
      const Id two_back = static_cast<Id>(state.hypothesis.at("before").data<float>()[i]);
      const Id word = last.data<Id>()[i];
      for (Id w = 0; w < kWords; ++w)
        logits.push_back(static_cast<float>(logit(name, two_back, word, w)));
      const int64_t length = state.lengths[static_cast<size_t>(i / K)];
      for (int64_t j = 0; j < width; ++j)
        weights.push_back(j < length ? static_cast<float>(weight(word, j, length)) : 0);
      before.push_back(static_cast<float>(word));
    }
    state.hypothesis["before"] = tensor(before, {rows, 1});
    state.advance();
    Step out{.hidden = tensor(logits, {rows, kWords})};
    if (want_weights) out.weights.push_back({0, tensor(weights, {rows, 1, width})});
    return out;
  }

  TeacherForced forward(const Source& source, const Tensor& in,
                        const WantWeights& wanted) const override {
    const bool want_weights = wanted.of(0);
    State state = start(source);
    std::vector<Tensor> hidden, weights;
    const int64_t B = in.size(0), T = in.size(1);
    for (int64_t t = 0; t < T; ++t) {
      Words last;
      for (int64_t b = 0; b < B; ++b) last.push_back(in.data<Id>()[b * T + t]);
      const Step s = step(state, ids(last, {B}), want_weights);
      hidden.push_back(reshape(s.hidden, {B, 1, kWords}));
      if (want_weights) weights.push_back(reshape(s.weights[0].values, {B, 1, 1, -1}));
    }
    TeacherForced out{.hidden = concat(hidden, 1)};
    if (want_weights) out.weights.push_back({0, concat(weights, 2)});
    return out;
  }

  Tensor output_weight() const override {
    std::vector<float> unit(kWords * kWords);
    for (int64_t i = 0; i < kWords; ++i) unit[static_cast<size_t>(i * (kWords + 1))] = 1;
    return tensor(unit, {kWords, kWords});
  }

 private:
  uint64_t seed_;
  double contrast_;
};

// Sentences called `names`, of so many words each.
Source named(const Words& names, const std::vector<int64_t>& lengths) {
  const int64_t width = *std::max_element(lengths.begin(), lengths.end());
  Source out;
  Words all;
  for (size_t i = 0; i < names.size(); ++i) {
    for (int64_t j = 0; j < width; ++j) all.push_back(j < lengths[i] ? names[i] : 0);
    out.lengths.push_back(static_cast<Id>(lengths[i]));
  }
  out.ids = ids(all, {static_cast<int64_t>(names.size()), width});
  return out;
}
Source one(Id name, int64_t length = 3) { return named({name}, {length}); }

// Of the only sentence.
std::vector<Hypothesis> results(const Model& model, const Source& source, const SearchOptions& o) {
  return search(model, source, o)[0];
}

constexpr int64_t kLongest = 4;
SearchOptions up_to_four_words() {
  SearchOptions o;
  o.max_ratio = 0, o.max_extra = kLongest;
  o.patience = INFINITY;  // until nothing better can come
  return o;
}

struct Said {
  Words words;
  double log_probability, score;
};

double coverage_of(const Words& words, int64_t length) {
  double sum = 0;
  for (int64_t j = 0; j < length; ++j) {
    double seen = 0;
    // The weights that produced a word are those of the word before it.
    Id last = kBegin;
    for (size_t i = 0; i <= words.size(); ++i) {
      seen += Chain::weight(last, j, length);
      if (i < words.size()) last = words[i];
    }
    sum += std::log(std::min(seen, 1.0));
  }
  return sum;
}

// All that can be said, best first.
std::vector<Said> exhaustive(const Chain& chain, Id name, const SearchOptions& o,
                             int64_t length = 3) {
  std::vector<Words> all{{}};
  for (size_t i = 0; i < all.size(); ++i)
    if (static_cast<int64_t>(all[i].size()) < kLongest)
      for (const Id w : {Id{0}, kUnknown, kBegin, Id{4}, Id{5}, Id{6}}) {
        if (w == kUnknown && !o.allow_unknown) continue;
        if ((w == 0 || w == kBegin) && !o.allow_begin) continue;
        Words longer = all[i];
        longer.push_back(w);
        all.push_back(longer);
      }
  std::vector<Said> out;
  for (const Words& words : all) {
    if (static_cast<int64_t>(words.size()) < o.min_length) continue;
    const double p = chain.log_probability(name, words);
    double score = p / std::pow(double(words.size() + 1), o.normalize);
    if (o.coverage > 0) score += o.coverage * coverage_of(words, length);
    out.push_back({words, p, score});
  }
  std::sort(out.begin(), out.end(), [](const Said& a, const Said& b) { return a.score > b.score; });
  return out;
}

// Two sums of a few f32 numbers around 1.
constexpr double kRounding = 1e-5;

void expect_the_best(const std::vector<Hypothesis>& found, const std::vector<Said>& all) {
  ASSERT_FALSE(found.empty());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].ids, all[i].words) << "rank " << i;
    EXPECT_NEAR(found[i].log_probability, all[i].log_probability, kRounding);
    EXPECT_NEAR(found[i].score, all[i].score, kRounding);
  }
}

TEST(Search, AWideBeamFindsWhatExhaustiveSearchFinds) {
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const Chain chain(seed);
    for (const double normalize : {0.0, 0.6, 1.0}) {
      SearchOptions o = up_to_four_words();
      o.beam = 256, o.best = 20, o.normalize = normalize;
      for (const Id name : {4, 5}) {
        const auto found = search(chain, one(name), o)[0];
        EXPECT_EQ(found.size(), 20u);
        expect_the_best(found, exhaustive(chain, name, o));
      }
    }
  }
}

TEST(Search, NormalizingChangesWhichIsBest) {
  int differ = 0;
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    SearchOptions o = up_to_four_words();
    o.beam = 256, o.normalize = 0;
    const auto raw = search(Chain(seed), one(4), o)[0][0];
    o.normalize = 1;
    const auto by_length = search(Chain(seed), one(4), o)[0][0];
    differ += raw.ids != by_length.ids;
    EXPECT_GE(by_length.ids.size(), raw.ids.size());
  }
  EXPECT_GT(differ, 0);
}

TEST(Search, MinimumLengthAndUnknownWordsAndCoverage) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Chain chain(seed);
    SearchOptions o = up_to_four_words();
    o.beam = 256, o.best = 10, o.min_length = 2;
    expect_the_best(search(chain, one(4), o)[0], exhaustive(chain, 4, o));
    o.allow_unknown = false;
    expect_the_best(search(chain, one(4), o)[0], exhaustive(chain, 4, o));
    o = up_to_four_words();
    o.beam = 256, o.best = 10;
    const auto plain = search(chain, one(4), o)[0];
    o.coverage = 0.5;
    const auto covered = search(chain, one(4), o)[0];
    expect_the_best(covered, exhaustive(chain, 4, o));
    EXPECT_TRUE(std::any_of(covered.begin(), covered.end(), [&](const Hypothesis& h) {
      return h.ids != plain[static_cast<size_t>(&h - covered.data())].ids;
    })) << "coverage changed no rank";
    EXPECT_TRUE(covered[0].weights.empty()) << "weights were not asked for";
  }
}

TEST(Search, TheBeginMayBeSaidOrBeTheEnd) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Chain chain(seed);
    SearchOptions o = up_to_four_words();
    o.beam = 2000, o.best = 20, o.allow_begin = true;
    const std::vector<Hypothesis> found = search(chain, one(4), o)[0];
    expect_the_best(found, exhaustive(chain, 4, o));
    EXPECT_TRUE(std::ranges::any_of(found, [](const Hypothesis& h) {
      return std::ranges::find(h.ids, kBegin) != h.ids.end();
    })) << "nobody says it";
    // A model that begins with its end does end.
    o.allow_begin = false, o.begin = kEnd;
    EXPECT_TRUE(std::ranges::any_of(search(chain, one(4), o)[0], [](const Hypothesis& h) {
      return std::ssize(h.ids) < kLongest;
    }));
  }
}

TEST(Search, AtMostSoManyWords) {
  // From contrasts that rarely end.
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    SearchOptions o;
    o.beam = 3, o.best = 3, o.min_length = 6, o.max_ratio = 1.5, o.max_extra = 2;
    for (const Hypothesis& h : results(Chain(seed), one(4, 4), o)) {
      EXPECT_GE(h.ids.size(), 6u);
      EXPECT_LE(h.ids.size(), 8u);  // 1.5 * 4 + 2
    }
    o.max_length = 7;
    for (const Hypothesis& h : results(Chain(seed), one(4, 4), o)) EXPECT_LE(h.ids.size(), 7u);
  }
}

Words greedy(const Chain& chain, Id name, int64_t longest) {
  Words words;
  Id before = 0, last = kBegin;
  while (static_cast<int64_t>(words.size()) < longest) {
    Id best = kUnknown;
    for (const Id w : {kUnknown, kEnd, Id{4}, Id{5}, Id{6}})
      if (chain.logit(name, before, last, w) > chain.logit(name, before, last, best)) best = w;
    if (best == kEnd) break;
    words.push_back(best);
    before = last, last = best;
  }
  return words;
}

TEST(Search, ABeamOfOneIsGreedy) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Chain chain(seed);
    SearchOptions o;
    o.beam = 1, o.max_ratio = 0, o.max_extra = 12;
    EXPECT_EQ(search(chain, one(5), o)[0][0].ids, greedy(chain, 5, 12)) << "seed " << seed;
  }
}

TEST(Search, ResultsAreSortedAndDistinct) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    SearchOptions o;
    o.beam = o.best = 6;
    const auto found = search(Chain(seed), one(4), o)[0];
    EXPECT_EQ(found.size(), 6u);
    std::set<Words> seen;
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(seen.insert(found[i].ids).second);
      EXPECT_LE(found[i].score, found[i ? i - 1 : 0].score);
    }
  }
}

TEST(Search, NoNgramComesTwice) {
  const auto repeats = [](const Words& words, size_t n) {
    std::set<Words> seen;
    for (size_t i = 0; i + n <= words.size(); ++i)
      if (!seen.insert(Words(words.begin() + static_cast<std::ptrdiff_t>(i),
                             words.begin() + static_cast<std::ptrdiff_t>(i + n)))
               .second)
        return true;
    return false;
  };
  bool freely = false;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SearchOptions o;
    o.beam = o.best = 3, o.min_length = 7;
    for (const Hypothesis& h : results(Chain(seed), one(4), o)) freely |= repeats(h.ids, 2);
    o.no_repeat = 2;
    for (const Hypothesis& h : results(Chain(seed), one(4), o)) EXPECT_FALSE(repeats(h.ids, 2));
    o.sample = true, o.best = 1;
    for (const Hypothesis& h : results(Chain(seed), one(4), o)) EXPECT_FALSE(repeats(h.ids, 2));
  }
  EXPECT_TRUE(freely) << "nothing was there to forbid";
}

// Four words, none twice, and at least ten of them: cannot be.
TEST(Search, WhereNothingMayFollowTheSentenceEnds) {
  for (const bool sample : {false, true}) {
    SearchOptions o;
    o.beam = 2, o.min_length = 10, o.no_repeat = 1, o.sample = sample;
    const auto found = search(Chain(1), one(4), o)[0];
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found[0].ids.size(), 4u);
    EXPECT_TRUE(std::isfinite(found[0].log_probability));
  }
}

TEST(Search, PrefixesAreFollowed) {
  const Chain chain(3);
  SearchOptions o;
  o.beam = o.best = 4;
  o.prefixes = {{6, 6, kUnknown}, {}, {5}};
  const Source source = named({4, 5, 6}, {3, 3, 3});
  const auto found = search(chain, source, o);
  SearchOptions free = o;
  free.prefixes.clear();
  EXPECT_EQ(found[1][0].ids, search(chain, source, free)[1][0].ids);
  const Words names{4, 5, 6};
  for (size_t b = 0; b < 3; ++b)
    for (const Hypothesis& h : found[b]) {
      const Words& prefix = o.prefixes[b];
      ASSERT_GE(h.ids.size(), prefix.size());
      EXPECT_TRUE(std::equal(prefix.begin(), prefix.end(), h.ids.begin()));
      EXPECT_NEAR(h.log_probability, chain.log_probability(names[b], h.ids), kRounding);
    }
  // What ends others, in a prefix is said.
  SearchOptions ends = o;
  ends.end = 5, ends.prefixes = {{6, 5}, {}, {5}};
  for (const Hypothesis& h : results(chain, source, ends)) {
    ASSERT_GE(h.ids.size(), 2u);
    EXPECT_EQ(h.ids[0], 6);
    EXPECT_EQ(h.ids[1], 5);
  }
  o.sample = true, o.best = 1;
  EXPECT_EQ(search(chain, source, o)[0][0].ids[2], kUnknown);
  o.prefixes.pop_back();
  EXPECT_TRUE(has(message([&] { search(chain, source, o); }), "2 prefixes for 3 sentences"));
  o.prefixes = {{99}, {}, {}};
  EXPECT_TRUE(has(message([&] { search(chain, source, o); }), "token 99 of 7"));
}

// One token, and what it would be without those that may not follow.
TEST(Search, WhatMayNotFollowHasNoPartInProbabilities) {
  const Chain chain(5);
  SearchOptions o;
  o.beam = o.best = 3, o.max_ratio = 0, o.max_extra = 1, o.open_end = true, o.min_length = 1;
  o.suppress = {{4}, {5, 6}};  // 6 may follow, but for a 5
  for (const bool renormalize : {false, true}) {
    o.renormalize = renormalize;
    double sum = 0;
    for (Id w = 0; w < kWords; ++w)
      if (!renormalize || (w != 4 && w != kEnd)) sum += std::exp(chain.logit(4, 0, kBegin, w));
    const auto found = results(chain, one(4), o);
    ASSERT_EQ(found.size(), 3u);
    for (const Hypothesis& h : found) {
      ASSERT_EQ(h.ids.size(), 1u);
      EXPECT_NE(h.ids[0], 4);
      EXPECT_NEAR(h.log_probability, chain.logit(4, 0, kBegin, h.ids[0]) - std::log(sum),
                  kRounding);
      EXPECT_NEAR(h.score, h.log_probability, kRounding);  // the end that is not said has no length
    }
  }
  // A shortlist is the same from the other side.
  o.suppress.clear(), o.shortlists = {{kEnd, 5, 6}}, o.best = o.beam = 2;
  const double sum =
      std::exp(chain.logit(4, 0, kBegin, 5)) + std::exp(chain.logit(4, 0, kBegin, 6));
  for (const Hypothesis& h : results(chain, one(4), o)) {
    EXPECT_TRUE(h.ids[0] == 5 || h.ids[0] == 6);
    EXPECT_NEAR(h.log_probability, chain.logit(4, 0, kBegin, h.ids[0]) - std::log(sum), kRounding);
  }
}

TEST(Search, WhatWasSaidIsPenalized) {
  const Chain chain(6);
  SearchOptions o;
  o.beam = 1, o.max_ratio = 0, o.max_extra = 2, o.min_length = 2, o.open_end = true;
  o.prefixes = {{5}}, o.repetition_penalty = 3, o.free_prefix = true;
  const Hypothesis h = results(chain, one(4), o)[0];
  double sum = 0, said = 0;
  for (Id w = 0; w < kWords; ++w) {
    double x = chain.logit(4, kBegin, 5, w);
    if (w == 5) x = x < 0 ? x * 3 : x / 3;
    sum += std::exp(x);
    if (w == h.ids.at(1)) said = x;
  }
  EXPECT_NEAR(h.log_probability, said - std::log(sum), kRounding);
}

TEST(Search, APrefixMayOnlyBeFavoured) {
  const Chain chain(7);
  SearchOptions o;
  o.beam = 2, o.max_ratio = 0, o.max_extra = 1, o.min_length = 1, o.open_end = true;
  o.prefixes = {{6}}, o.prefix_bias = 0.9;
  const Hypothesis h = results(chain, one(4), o)[0];
  EXPECT_EQ(h.ids, Words{6});
  const double p = std::exp(chain.so_far(4, {6}));
  EXPECT_NEAR(h.log_probability, std::log(0.9 + 0.1 * p), kRounding);
}

TEST(Search, AlternativesGoOnFromEachToken) {
  const Chain chain(8);
  SearchOptions o;
  o.beam = 2, o.best = 3, o.alternatives = true, o.prefixes = {{5}};
  const auto found = results(chain, one(4), o);
  ASSERT_EQ(found.size(), 3u);
  double before = 0;
  std::set<Id> tokens;
  for (const Hypothesis& h : found) {
    ASSERT_GE(h.ids.size(), 2u);
    EXPECT_EQ(h.ids[0], 5);
    tokens.insert(h.ids[1]);
    const double prefix = chain.so_far(4, {5}),
                 token = chain.so_far(4, {h.ids[0], h.ids[1]}) - prefix;
    EXPECT_LE(token, before);
    before = token;
    EXPECT_NEAR(h.log_probability, chain.log_probability(4, h.ids) - prefix, kRounding);
    EXPECT_NEAR(h.score, token + (h.log_probability - token) / double(h.ids.size() - 1), kRounding);
  }
  EXPECT_EQ(tokens.size(), 3u);
  o.least_alternative = 1;
  EXPECT_TRUE(results(chain, one(4), o).empty());
}

TEST(Search, OptionsThatMakeNoSenseAreRefused) {
  SearchOptions o;
  o.beam = 0;
  EXPECT_TRUE(has(message([&] { search(Chain(1), one(4), o); }), "wants a beam"));
  o.beam = 2, o.best = 3;
  EXPECT_TRUE(has(message([&] { search(Chain(1), one(4), o); }), "widen the beam"));
  o.best = 1;
  for (const double patience : {0.0, -1.0, double(NAN)}) {
    o.patience = patience;
    EXPECT_TRUE(has(message([&] { search(Chain(1), one(4), o); }), "patience wants a number"));
  }
}

TEST(Search, WeightsAreThoseThatProducedAWord) {
  const Chain chain(2);
  SearchOptions o;
  o.beam = o.best = 3, o.want_weights = true;
  const Source source = named({4, 5}, {3, 5});
  const auto found = search(chain, source, o);
  for (size_t b = 0; b < 2; ++b)
    for (const Hypothesis& h : found[b]) {
      const int64_t length = source.lengths[b];
      ASSERT_EQ(h.weights.size(), h.ids.size() + 1);
      for (size_t t = 0; t < h.weights.size(); ++t) {
        ASSERT_EQ(static_cast<int64_t>(h.weights[t].size()), length);
        for (int64_t j = 0; j < length; ++j)
          EXPECT_EQ(h.weights[t][static_cast<size_t>(j)],
                    static_cast<float>(Chain::weight(t ? h.ids[t - 1] : kBegin, j, length)));
      }
    }
}

// ---- the beam as a tree

// The words up to a node, the end among them.
Words words_up_to(const std::vector<SearchNode>& tree, size_t node) {
  Words words;
  for (int64_t n = static_cast<int64_t>(node); n >= 0; n = tree[static_cast<size_t>(n)].parent)
    words.insert(words.begin(), tree[static_cast<size_t>(n)].token);
  return words;
}

// What a beam keeps, found the slow way: of all that may follow what was kept, the likeliest, until
// there are `beam` of them that go on. Only the first `beam` may end.
std::vector<std::set<Words>> kept_by_step(const Chain& chain, Id name, size_t beam,
                                          size_t longest) {
  std::vector<std::set<Words>> out;
  std::vector<Words> live{{}};
  while (!live.empty()) {
    std::vector<Words> all, next;
    for (const Words& words : live)
      for (const Id w : {kUnknown, kEnd, Id{4}, Id{5}, Id{6}}) {
        if (words.size() == longest && w != kEnd) continue;
        all.push_back(words);
        all.back().push_back(w);
      }
    std::sort(all.begin(), all.end(), [&](const Words& a, const Words& b) {
      return chain.so_far(name, a) > chain.so_far(name, b);
    });
    out.emplace_back();
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const Words& words = all[rank];
      if (next.size() == beam) break;
      if (words.back() == kEnd && rank >= beam) continue;
      out.back().insert(words);
      if (words.back() != kEnd) next.push_back(words);
    }
    live = next;
  }
  return out;
}

TEST(Search, RecordsWhatTheBeamKept) {
  for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
    SCOPED_TRACE(seed);
    const Chain chain(seed);
    const Words names{4, 5, 6};
    SearchOptions o = up_to_four_words();
    o.beam = o.best = 3;
    const auto plain = search(chain, named(names, {3, 2, 4}), o);
    o.want_tree = true;
    std::vector<Engine::Request> requests;
    for (size_t b = 0; b < names.size(); ++b) {
      const int64_t lengths[] = {3, 2, 4};
      const Source one = named({names[b]}, {lengths[b]});
      const std::span<const Id> tokens = one.ids.host_ids();
      requests.push_back({.source = {tokens.begin(), tokens.end()}, .options = o});
    }
    std::vector<std::vector<SearchNode>> trees;
    std::vector<std::vector<Hypothesis>> found;
    Engine engine(chain);
    for (Engine::Result& r : engine.decode(requests)) {
      trees.push_back(std::move(r.tree));
      found.push_back(std::move(r.hypotheses));
    }
    for (size_t b = 0; b < names.size(); ++b) {
      const std::vector<SearchNode>& tree = trees[b];
      ASSERT_FALSE(tree.empty());
      std::vector<std::set<Words>> kept;
      std::set<Words> ends, on_the_way;
      for (size_t i = 0; i < tree.size(); ++i) {
        ASSERT_LT(tree[i].parent, static_cast<int64_t>(i));
        const Words words = words_up_to(tree, i);
        EXPECT_NEAR(tree[i].log_probability, chain.so_far(names[b], words), kRounding);
        EXPECT_EQ(tree[i].finished, words.back() == kEnd);
        if (kept.size() < words.size()) kept.resize(words.size());
        EXPECT_TRUE(kept[words.size() - 1].insert(words).second) << "twice";
        if (tree[i].finished) ends.insert(words);
        if (tree[i].best) on_the_way.insert(words);
      }
      auto wanted = kept_by_step(chain, names[b], 3, kLongest);
      ASSERT_LE(kept.size(), wanted.size());
      wanted.resize(kept.size());  // it may stop before, where nothing better can come
      EXPECT_EQ(kept, wanted);
      Words best = found[b][0].ids;
      best.push_back(kEnd);
      EXPECT_EQ(on_the_way.size(), best.size());
      for (; !best.empty(); best.pop_back()) EXPECT_TRUE(on_the_way.contains(best));
      ASSERT_EQ(found[b].size(), plain[b].size());
      for (size_t k = 0; k < found[b].size(); ++k) {
        Words words = found[b][k].ids;
        EXPECT_EQ(words, plain[b][k].ids) << "recording changed the search";
        words.push_back(kEnd);
        EXPECT_TRUE(ends.contains(words));
      }
    }
  }
}

// Of the last step's tokens none is, as it stands, better than the best that ended.
void expect_nothing_better_lives(const Engine::Result& found) {
  std::vector<double> length;
  for (const SearchNode& n : found.tree)
    length.push_back(n.parent < 0 ? 1 : length[static_cast<size_t>(n.parent)] + 1);
  const double last = *std::ranges::max_element(length);
  for (size_t i = 0; i < found.tree.size(); ++i) {
    if (found.tree[i].finished || length[i] < last) continue;
    EXPECT_LE(found.tree[i].log_probability / (length[i] + 1), found.hypotheses[0].score);
  }
}

TEST(Search, EndsWithAsManyHypothesesAsItHasPatienceFor) {
  int64_t shorter = 0, better = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const Chain chain(seed);
    const auto recorded = [&](double patience) {
      SearchOptions o;
      o.beam = 4, o.patience = patience, o.want_tree = true, o.max_ratio = 0, o.max_extra = 12;
      Engine engine(chain);
      return engine.decode({{.source = {4, 4, 4}, .options = o}})[0];
    };
    const auto ended = [](const Engine::Result& r) {
      return std::ranges::count_if(r.tree, &SearchNode::finished);
    };
    const Engine::Result exact = recorded(INFINITY);
    std::ptrdiff_t nodes = 0, before = 0;
    for (const double patience : {0.25, 0.5, 1.0, 2.0}) {
      const Engine::Result found = recorded(patience);
      const std::ptrdiff_t wanted = std::lround(4 * patience);
      if (ended(found) < wanted) {  // nothing better could come
        EXPECT_EQ(found.tree.size(), exact.tree.size());
      }
      EXPECT_GE(ended(found), before) << "patience " << patience;
      EXPECT_GE(std::ssize(found.tree), nodes);
      expect_nothing_better_lives(found);
      EXPECT_LE(found.tree.size(), exact.tree.size());
      EXPECT_LE(found.hypotheses[0].score, exact.hypotheses[0].score);
      before = ended(found), nodes = std::ssize(found.tree);
      shorter += found.tree.size() < exact.tree.size();
      better += found.hypotheses[0].score < exact.hypotheses[0].score;
    }
  }
  EXPECT_GT(shorter, 20) << "patience saved nothing";
  EXPECT_GT(better, 0) << "and cost nothing, where it must";
}

// ---- sampling

// How often each first word was drawn, as shares.
std::vector<double> first_words(SearchOptions o, int draws) {
  o.sample = true, o.max_ratio = 0, o.max_extra = 1;
  std::vector<double> share(kWords);
  const Chain chain(5);
  for (int done = 0; done < draws; done += 100) {
    o.numbers.clear();
    for (int i = 0; i < 100; ++i) o.numbers.push_back(done + i);
    for (const auto& found : search(chain, named(Words(100, 4), std::vector<int64_t>(100, 2)), o))
      share[static_cast<size_t>(found[0].ids.empty() ? kEnd : found[0].ids[0])] += 1.0 / draws;
  }
  return share;
}

// The probabilities of the first words that may be drawn.
std::vector<double> first_probabilities(double temperature) {
  const Chain chain(5);
  std::vector<double> p(kWords);
  double sum = 0;
  for (const Id w : {kUnknown, kEnd, Id{4}, Id{5}, Id{6}})
    sum += p[static_cast<size_t>(w)] = std::exp(chain.logit(4, 0, kBegin, w) / temperature);
  for (double& x : p) x /= sum;
  return p;
}

TEST(Sampling, FrequenciesApproachTheProbabilities) {
  constexpr int kDraws = 10'000;
  for (const double temperature : {1.0, 0.5}) {
    SearchOptions o;
    o.temperature = temperature;
    const std::vector<double> share = first_words(o, kDraws), p = first_probabilities(temperature);
    // Four deviations of a share.
    for (size_t w = 0; w < p.size(); ++w)
      EXPECT_NEAR(share[w], p[w], 4 * std::sqrt(p[w] * (1 - p[w]) / kDraws)) << "word " << w;
  }
}

TEST(Sampling, TopKAndTopPLeaveTheLikeliest) {
  const std::vector<double> p = first_probabilities(1);
  std::vector<size_t> order{1, 3, 4, 5, 6};
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  const auto drawn = [](const SearchOptions& o) {
    std::set<size_t> words;
    const std::vector<double> share = first_words(o, 2000);
    for (size_t w = 0; w < share.size(); ++w)
      if (share[w] > 0) words.insert(w);
    return words;
  };
  SearchOptions o;
  o.top_k = 2;
  EXPECT_EQ(drawn(o), (std::set<size_t>{order[0], order[1]}));
  o.top_k = 0;
  o.top_p = p[order[0]] + p[order[1]] + 0.5 * p[order[2]];
  EXPECT_EQ(drawn(o), (std::set<size_t>{order[0], order[1], order[2]}));
  o.top_p = 1e-9;
  EXPECT_EQ(drawn(o), std::set<size_t>{order[0]});
}

TEST(Sampling, SeedAndNumberDecideAndNothingElse) {
  const Chain chain(5, 0.5);
  SearchOptions o;
  o.sample = true, o.min_length = 8;
  const auto drawn = [&](uint64_t seed, std::vector<int64_t> numbers, const Words& names) {
    SearchOptions with = o;
    with.seed = seed, with.numbers = std::move(numbers);
    std::vector<Words> out;
    for (const auto& found :
         search(chain, named(names, std::vector<int64_t>(names.size(), 3)), with))
      out.push_back(found[0].ids);
    return out;
  };
  const auto three = drawn(1, {10, 11, 12}, {4, 4, 4});
  EXPECT_EQ(three, drawn(1, {10, 11, 12}, {4, 4, 4}));
  EXPECT_NE(three[0], three[1]);
  EXPECT_NE(three[1], three[2]);
  EXPECT_EQ(drawn(1, {12, 10}, {4, 4}), (std::vector<Words>{three[2], three[0]}));
  EXPECT_NE(drawn(2, {10}, {4})[0], three[0]);
}

}  // namespace
}  // namespace heed
