// Sampling from rows that are known, beside plain sums over all tokens in a fixed order.
#include "heed/search/draw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heed/base/random.h"
#include "heed/search/engine.h"
#include "tests/sources.h"

namespace heed {
namespace {

constexpr Id kPad = 0, kUnknown = 1, kBegin = 2, kEnd = 3;
constexpr int64_t kVocabulary = 400;

// Log-probabilities of a row. The larger the contrast, the more the likeliest have.
std::vector<float> row_of(uint64_t seed, double contrast) {
  std::vector<double> logits;
  double sum = 0;
  for (int64_t w = 0; w < kVocabulary; ++w)
    sum += std::exp(logits.emplace_back(
        contrast * double(Random(seed, static_cast<uint64_t>(4 * w)).normal())));
  std::vector<float> out;
  for (const double x : logits) out.push_back(static_cast<float>(x - std::log(sum)));
  return out;
}

// A row, what a step finds of it, and how often all of it was asked for.
struct Row {
  std::vector<float> all;
  std::vector<float> likeliest = {};
  std::vector<Id> order = {};  // by falling probability
  int asked = 0;

  explicit Row(std::vector<float> given) : all(std::move(given)) {
    order = in_order(kVocabulary);
    std::ranges::stable_sort(order, [&](Id a, Id b) { return at(a) > at(b); });
    for (const Id w : order) likeliest.push_back(at(w));
  }
  float at(Id w) const { return all[static_cast<size_t>(w)]; }
  NextToken next(const SearchOptions& o) {
    const auto listed = static_cast<size_t>(std::min(tokens_for_draw(o), kVocabulary));
    NextToken out{.log_probabilities = std::span(likeliest).first(listed),
                  .tokens = std::span(order).first(listed),
                  .vocabulary = kVocabulary};
    if (normalizer_for_draw(o)) {
      out.normalizer = 0;
      for (const float x : all)
        *out.normalizer += std::exp((double(x) - double(likeliest[0])) / o.temperature);
    }
    out.all = [this] { return ++asked, std::span<const float>(all); };
    return out;
  }
};

struct Weighed {
  Id token;
  double p;
};

// What may be drawn, in the order of the draw: plain sums over all tokens.
std::vector<Weighed> plain(const Row& row, const Allowed& allowed) {
  const SearchOptions& o = allowed.options;
  const std::vector<Id> banned = allowed.banned();
  std::vector<Weighed> open;
  double sum = 0;
  for (const Id w : row.order)
    if (std::ranges::find(banned, w) == banned.end() &&
        (o.top_k == 0 || std::ssize(open) < o.top_k))
      sum += open.emplace_back(Weighed{w, std::exp(double(row.at(w)) / o.temperature)}).p;
  size_t kept = 0;
  double reached = 0;
  while (kept < open.size() && (kept == 0 || o.top_p == 1 || reached < o.top_p * sum))
    reached += open[kept++].p;
  open.resize(kept);
  for (Weighed& w : open) w.p /= reached;
  if (o.top_k > 0 || o.top_p < 1) return open;
  const auto listed = row.order.begin() + tokens_for_draw(o);
  std::ranges::stable_sort(open, {}, [&](const Weighed& w) {
    return std::find(row.order.begin(), listed, w.token) == listed ? w.token : -1;
  });
  return open;
}

double uniform(const SearchOptions& o, int64_t number) {
  Random random(o.seed ^ (0x9E3779B97F4A7C15ull * static_cast<uint64_t>(number + 1)));
  return double(random.split() >> 11) * 0x1p-53;
}

// Ways to draw; `tokens` are those before.
struct Way {
  std::string name;
  SearchOptions options;
  std::vector<Id> tokens = {};
};
std::vector<Way> ways() {
  std::vector<Way> out;
  const auto add = [&](const char* name) -> Way& {
    Way& way = out.emplace_back();
    way.name = name, way.options.sample = true;
    return way;
  };
  add("plain");
  add("temperature 0.6").options.temperature = 0.6;
  add("temperature 1.7").options.temperature = 1.7;
  add("top_k 10").options.top_k = 10;
  add("top_k 300").options.top_k = 300;
  add("top_p 0.6").options.top_p = 0.6;
  add("top_p 0.98").options.top_p = 0.98;
  Way& both = add("top_k 50, top_p 0.8, temperature 1.4");
  both.options.top_k = 50, both.options.top_p = 0.8, both.options.temperature = 1.4;
  Way& warm = add("top_p 0.7, temperature 1.4");
  warm.options.top_p = 0.7, warm.options.temperature = 1.4;
  Way& length = add("min_length, without unknown");
  length.options.min_length = 5, length.options.allow_unknown = false;
  for (const double top_p : {1.0, 0.9}) {
    Way& repeat = add(top_p == 1 ? "no_repeat" : "no_repeat, top_p 0.9");
    repeat.options.no_repeat = 1, repeat.options.top_p = top_p;
    for (Id w = 4; w < 200; w += 3) repeat.tokens.push_back(w);
  }
  return out;
}

// Likely words, and the four special ones by what they have: at the front of the list, or not in
// it.
Row row_with(double contrast, double special) {
  std::vector<float> all = row_of(7, contrast);
  for (const Id w : {kPad, kUnknown, kBegin, kEnd})
    all[static_cast<size_t>(w)] = static_cast<float>(std::log(special));
  double sum = 0;
  for (const float x : all) sum += std::exp(double(x));
  for (float& x : all) x -= static_cast<float>(std::log(sum));
  return Row(all);
}

TEST(Draw, TheListAndTheWholeRowGiveTheSameToken) {
  for (const double contrast : {0.5, 2.0, 4.0})
    for (const double special : {1e-30, 0.05}) {
      Row row = row_with(contrast, special);
      for (const Way& way : ways()) {
        SCOPED_TRACE(way.name + ", contrast " + std::to_string(contrast));
        // Where a token that may not follow is not listed, or top_p wants more than the list has,
        // another number decides now and then.
        const bool exact = way.tokens.empty() && (way.options.top_p == 1 || way.options.top_k > 0 ||
                                                  (contrast == 4 && way.options.top_p < 0.9));
        const Allowed allowed{.options = way.options, .tokens = way.tokens, .longest = 1000};
        const std::vector<Weighed> order = plain(row, allowed);
        int same = 0;
        constexpr int kDraws = 1000;
        for (int number = 0; number < kDraws; ++number) {
          double left = uniform(way.options, number);
          auto at = order.begin();
          while (std::next(at) != order.end() && left >= at->p) left -= (at++)->p;
          const TokenScore drawn = drawn_token(row.next(way.options), allowed, number, 0);
          EXPECT_EQ(float(drawn.log_probability), row.at(drawn.token));
          same += drawn.token == at->token;
        }
        if (exact) {
          EXPECT_EQ(same, kDraws);
        }
      }
    }
}

TEST(Draw, FrequenciesAreTheProbabilities) {
  for (const double contrast : {0.5, 2.0})
    for (const double special : {0.002, 0.05}) {
      Row row = row_with(contrast, special);
      for (const Way& way : ways()) {
        SCOPED_TRACE(way.name + ", contrast " + std::to_string(contrast));
        const Allowed allowed{.options = way.options, .tokens = way.tokens, .longest = 1000};
        std::vector<double> count(kVocabulary), p(kVocabulary);
        for (const Weighed& w : plain(row, allowed)) p[static_cast<size_t>(w.token)] = w.p;
        constexpr int kDraws = 20'000;
        for (int number = 0; number < kDraws; ++number)
          ++count[static_cast<size_t>(
              drawn_token(row.next(way.options), allowed, number, 0).token)];
        // Chi-square; those that are expected fewer than ten times count together.
        double statistic = 0, few = 0, expected_few = 0;
        int cells = 0;
        const auto cell = [&](double found, double expected) {
          statistic += (found - expected) * (found - expected) / expected, ++cells;
        };
        for (size_t w = 0; w < p.size(); ++w) {
          EXPECT_TRUE(p[w] > 0 || count[w] == 0) << "word " << w << " may not be drawn";
          if (p[w] * kDraws >= 10)
            cell(count[w], p[w] * kDraws);
          else
            few += count[w], expected_few += p[w] * kDraws;
        }
        if (expected_few >= 10) cell(few, expected_few);
        // Four deviations of a chi-square of so many degrees of freedom.
        const double freedom = std::max(1, cells - 1);
        EXPECT_LT(statistic, freedom + 4 * std::sqrt(2 * freedom)) << cells << " cells";
      }
    }
}

TEST(Draw, TheWholeRowIsSeldomAskedFor) {
  Row row = row_with(3, 1e-4);
  double listed = 0;
  for (size_t i = 0; i < 64; ++i) listed += std::exp(double(row.likeliest[i]));
  ASSERT_GT(listed, 0.9);
  const auto asked = [&](const Way& way) {
    row.asked = 0;
    const Allowed allowed{.options = way.options, .tokens = way.tokens, .longest = 1000};
    for (int number = 0; number < 1000; ++number)
      drawn_token(row.next(way.options), allowed, number, 0);
    return row.asked;
  };
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    const SearchOptions& o = way.options;
    // More than the list has, or where tokens that are not listed decide.
    if (o.top_k == 300 || o.top_p == 0.98 || o.temperature > 1.2) continue;
    if (o.top_p < 1 && !way.tokens.empty()) continue;
    const bool never = o.top_k > 0 || o.top_p < 1;
    EXPECT_LE(asked(way), never ? 0 : 2 * 1000 * (1 - listed) + 10);
  }
}

TEST(Draw, TowardsATemperatureOfZeroItIsTheLikeliestThatMayFollow) {
  Row row = row_with(1, 0.5);  // the special ones are the likeliest
  SearchOptions o;
  o.sample = true, o.min_length = 1, o.allow_unknown = false;
  for (const double temperature : {1e-3, 1e-9, 1e-300}) {
    o.temperature = temperature;
    const Allowed allowed{.options = o, .tokens = {}, .longest = 1000};
    NextToken next = row.next(o);
    next.normalizer = 4;  // equals, and nothing beside them
    for (int number = 0; number < 100; ++number)
      EXPECT_EQ(drawn_token(next, allowed, number, 0).token, row.order[4]);
  }
}

TEST(Draw, OneThatIsAsLongAsItMayBeEnds) {
  Row row = row_with(1, 1e-3);
  SearchOptions o;
  o.sample = true;
  const Allowed allowed{.options = o, .tokens = {5, 6}, .longest = 2};
  const TokenScore end = drawn_token(row.next(o), allowed, 0, 0);
  EXPECT_EQ(end.token, kEnd);
  EXPECT_EQ(float(end.log_probability), row.at(kEnd));
  o.open_end = true;
  EXPECT_EQ(drawn_token(row.next(o), allowed, 0, 0).log_probability, 0);
}

// ---- as a search draws

// A row for every last token and source.
class Wide final : public Model {
 public:
  explicit Wide(double contrast) : contrast_(contrast) {}
  State start(const Source& source) const override {
    State state(source);
    std::vector<float> names;
    for (const Id id : source.ids.host_ids()) names.push_back(static_cast<float>(id));
    state.sentence["name"] = tensor(names, {source.ids.size(0), source.ids.size(1)});
    return state;
  }
  Step step(State& state, const Tensor& last, bool) const override {
    std::vector<float> logits;
    for (int64_t i = 0; i < last.size(0); ++i) {
      const float name =
          state.sentence.at("name").data<float>()[i * state.sentence.at("name").stride(0)];
      const std::vector<float> row = row_of(static_cast<uint64_t>(name), contrast_);
      for (size_t w = 0; w < row.size(); ++w)
        logits.push_back(row[(w + 31 * static_cast<size_t>(last.data<Id>()[i])) % row.size()]);
    }
    state.advance();
    return {.hidden = tensor(logits, {last.size(0), kVocabulary})};
  }
  TeacherForced forward(const Source&, const Tensor&, const WantWeights&) const override {
    return {};
  }
  Tensor logits(const Tensor& hidden) const override { return hidden; }
  Tensor output_weight() const override { fail("wide: has none"); }

 private:
  double contrast_;
};

// Requests at temperatures of their own run together.
std::vector<Engine::Request> requests() {
  std::vector<Engine::Request> all;
  for (int64_t i = 0; i < 40; ++i) {
    Engine::Request& r = all.emplace_back();
    r.source = {static_cast<Id>(4 + i % 3)};
    r.number = i, r.slots = 16;
    r.options.sample = true, r.options.max_length = 12, r.options.no_repeat = 2;
    r.options.temperature = i % 4 == 0 ? 1 : 0.5 + 0.1 * double(i % 4);
    if (i % 5 == 0) r.options.top_p = 0.9;
    if (i % 7 == 0) r.options.top_k = 40;
  }
  return all;
}

std::vector<std::vector<Id>> drawn(std::vector<Engine::Result> results) {
  std::vector<std::vector<Id>> out;
  for (Engine::Result& r : results) out.push_back(r.hypotheses.at(0).ids);
  return out;
}

TEST(Draw, TogetherAndAloneAndAsGraphsTheSameTokens) {
  for (const double contrast : {0.5, 2.0}) {
    const Wide model(contrast);
    std::vector<std::vector<Id>> alone;
    for (const Engine::Request& r : requests()) {
      Engine engine(model);
      alone.push_back(drawn(engine.decode({r}))[0]);
    }
    for (const auto steps : {Engine::Steps::plain, Engine::Steps::as_graphs}) {
      Engine engine(model, {.steps = steps});
      EXPECT_EQ(drawn(engine.decode(requests())), alone);
    }
    const auto threads = Context::make({.threads = 3});
    Engine engine(model, {.context = threads});
    EXPECT_EQ(drawn(engine.decode(requests())), alone);
  }
}

// The first token's frequencies, by a step's list and normalizer.
TEST(Draw, ASearchDrawsAtItsTemperature) {
  const Wide model(1.5);
  for (const double temperature : {0.5, 1.0, 2.0}) {
    SCOPED_TRACE(temperature);
    std::vector<Engine::Request> all;
    constexpr int kDraws = 5000;
    for (int i = 0; i < kDraws; ++i) {
      Engine::Request& r = all.emplace_back();
      r.source = {5}, r.number = i, r.slots = 500;
      r.options.sample = true, r.options.temperature = temperature, r.options.max_length = 1;
      r.options.min_length = 1;
    }
    std::vector<double> p(kVocabulary), count(kVocabulary);
    const std::vector<float> row = row_of(5, 1.5);
    double sum = 0;
    for (size_t w = 0; w < p.size(); ++w) {
      if (w == kPad || w == kBegin || w == kEnd) continue;
      sum += p[w] = std::exp(double(row[(w + 31 * kBegin) % row.size()]) / temperature);
    }
    Engine engine(model);
    for (const auto& ids : drawn(engine.decode(all))) ++count[static_cast<size_t>(ids.at(0))];
    double statistic = 0, few = kDraws, expected_few = kDraws;
    int cells = 1;
    for (size_t w = 0; w < p.size(); ++w) {
      const double expected = kDraws * p[w] / sum;
      if (expected < 10) continue;
      statistic += (count[w] - expected) * (count[w] - expected) / expected, ++cells;
      few -= count[w], expected_few -= expected;
    }
    statistic += (few - expected_few) * (few - expected_few) / expected_few;
    EXPECT_LT(statistic, cells + 4 * std::sqrt(2.0 * cells)) << cells << " cells";
    EXPECT_GT(expected_few, 10);
  }
}

}  // namespace
}  // namespace heed
