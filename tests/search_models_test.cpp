// Search on small models: its scores are those of forced decoding, a result depends on its sentence
// alone, and steps of few sizes, as a GPU wants them, find the same.
#include <gtest/gtest.h>

#include "heed/search/engine.h"
#include "tests/folder.h"
#include "tests/search_kinds.h"
#include "tests/sources.h"

namespace heed {
namespace {

constexpr Id kEnd = 3;

struct Small {
  const char* name;
  ModelConfig config;
};

std::vector<Small> small_models() {
  ModelConfig rnn;
  rnn.size = 16, rnn.dropout = 0;
  ModelConfig transformer = rnn;
  transformer.family = "transformer", transformer.score = "scaled_dot", transformer.heads = 2;
  transformer.inner = 24, transformer.encoder_layers = transformer.decoder_layers = 2;
  ModelConfig fixed = rnn;
  fixed.score = "static", fixed.wiring = "after", fixed.input_feeding = true;
  return {{"rnn", rnn}, {"transformer", transformer}, {"static", fixed}};
}

std::vector<Words> some_sentences(int count) {
  Random random(4);
  std::vector<Words> out;
  for (int i = 0; i < count; ++i) {
    Words words;
    for (uint32_t n = random.below(7); n-- > 0;)
      words.push_back(4 + static_cast<Id>(random.below(15)));
    words.push_back(kEnd);
    out.push_back(words);
  }
  return out;
}

TEST(Search, ReportsTheScoresOfForcedDecoding) {
  for (const Small& small : small_models()) {
    SCOPED_TRACE(small.name);
    Params params(3);
    const auto model = make_model(params, small.config, {19, 17});
    const std::vector<Words> rows = some_sentences(5);
    SearchOptions o;
    o.beam = o.best = 4, o.max_extra = 5, o.want_weights = true, o.coverage = 0.2;
    const auto found = search(*model, source_of(rows), o);
    for (size_t rank = 0; rank < 4; ++rank) {
      std::vector<Words> targets;
      for (const auto& best : found) targets.push_back(best[rank].ids);
      const auto forced = score_targets(*model, source_of(rows), targets, o);
      for (size_t b = 0; b < rows.size(); ++b) {
        const Hypothesis &a = found[b][rank], &f = forced[b];
        EXPECT_NEAR(a.log_probability, f.log_probability, 1e-5 * double(a.ids.size() + 1));
        EXPECT_NEAR(a.score, f.score, 1e-5);
        ASSERT_EQ(a.weights.size(), f.weights.size());
        for (size_t t = 0; t < a.weights.size(); ++t)
          for (size_t j = 0; j < a.weights[t].size(); ++j)
            EXPECT_NEAR(a.weights[t][j], f.weights[t][j], 1e-5);
      }
    }
  }
}

// Bit for bit.
void expect_same(const std::vector<Hypothesis>& a, const std::vector<Hypothesis>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].ids, b[i].ids);
    EXPECT_EQ(a[i].log_probability, b[i].log_probability);
    EXPECT_EQ(a[i].weights, b[i].weights);
  }
}

TEST(Search, AResultDependsOnItsSentenceAlone) {
  for (const Small& small : small_models()) {
    SCOPED_TRACE(small.name);
    Params params(3);
    const auto model = make_model(params, small.config, {19, 17});
    std::vector<Words> rows = some_sentences(9);
    for (const bool sample : {false, true}) {
      SearchOptions o;
      o.beam = 4, o.best = sample ? 1 : 3, o.max_extra = 5, o.sample = sample;
      const auto chosen_ones = [&](const std::vector<size_t>& which) {
        std::vector<Words> chosen;
        SearchOptions with = o;
        for (const size_t i : which)
          chosen.push_back(rows[i]), with.numbers.push_back(static_cast<int64_t>(i));
        return search(*model, source_of(chosen), with);
      };
      const auto all = chosen_ones({0, 1, 2, 3, 4, 5, 6, 7, 8});
      const std::vector<size_t> order{7, 2, 8, 0, 5};
      const auto some = chosen_ones(order);
      for (size_t i = 0; i < order.size(); ++i) expect_same(some[i], all[order[i]]);
      for (size_t i = 0; i < rows.size(); ++i) expect_same(chosen_ones({i})[0], all[i]);
    }
  }
}

// Steps of few sizes, as a GPU's graphs want them: finished sentences idle, caches have room to
// spare and are reordered in place. On a CPU that changes no bit.
TEST(Search, StepsOfFewSizesFindTheSame) {
  std::vector<Small> models = small_models();
  for (const char* position : {"learned", "rotary"}) {
    models.push_back(models[1]);
    models.back().name = position, models.back().config.position = position;
  }
  for (const Small& small : models) {
    Params params(3);
    const auto model = make_model(params, small.config, {19, 17});
    Engine as_graphs(*model, {.steps = Engine::Steps::as_graphs}),
        plain(*model, {.steps = Engine::Steps::plain});
    // The second time all sizes have been there; 70 words do not fit into the first room.
    for (const int count : {40, 9, 17, 40, 9})
      for (const int64_t beam : {1, 4}) {
        SCOPED_TRACE(std::string(small.name) + ", " + std::to_string(count) + " sentences, beam " +
                     std::to_string(beam));
        const std::vector<Words> rows = some_sentences(count);
        SearchOptions o;
        o.beam = o.best = beam, o.max_extra = count == 17 ? 70 : 5, o.want_weights = count == 9;
        const auto one = search(plain, source_of(rows), o),
                   two = search(as_graphs, source_of(rows), o);
        for (size_t b = 0; b < rows.size(); ++b) expect_same(one[b], two[b]);
      }
  }
}

TEST(Search, StepsOfFewSizesFindTheSameInEveryKindOfSearch) {
  const std::vector<Words> rows = some_sentences(9);
  for (const Small& small : small_models()) {
    Params params(3);
    const auto model = make_model(params, small.config, {19, 17});
    Engine as_graphs(*model, {.steps = Engine::Steps::as_graphs}),
        plain(*model, {.steps = Engine::Steps::plain});
    for (const SearchKind& kind : search_kinds(std::ssize(rows), 5)) {
      SCOPED_TRACE(std::string(small.name) + ", " + kind.name);
      const auto one = search(plain, source_of(rows), kind.options),
                 two = search(as_graphs, source_of(rows), kind.options);
      ASSERT_EQ(one.size(), two.size());
      for (size_t b = 0; b < one.size(); ++b) expect_same(one[b], two[b]);
    }
  }
}

// A recurrent one attends to what it read before, at first to nothing.
TEST(Search, StepsOfFewSizesFindTheSameInLanguageModels) {
  const std::vector<Words> nothing(9);
  for (const char* family : {"rnn", "transformer"})
    for (const int64_t heads : {1, 2}) {
      const ModelConfig config{.family = family,
                               .size = 16,
                               .encoder_layers = 0,
                               .dropout = 0,
                               .score = "scaled_dot",
                               .heads = heads,
                               .bidirectional = false,
                               .wiring = "after",
                               .inner = 24};
      Params params(3);
      const auto model = make_model(params, config, {17, 17, true});
      Engine as_graphs(*model, {.steps = Engine::Steps::as_graphs}),
          plain(*model, {.steps = Engine::Steps::plain});
      for (const SearchKind& kind : search_kinds(std::ssize(nothing), 5)) {
        SCOPED_TRACE(std::string(family) + " " + std::to_string(heads) + ", " + kind.name);
        if (kind.options.want_weights || kind.options.coverage > 0) continue;
        SearchOptions o = kind.options;
        if (o.max_length == 0) o.max_length = 40;  // more than the first room holds
        const auto one = search(plain, source_of(nothing), o),
                   two = search(as_graphs, source_of(nothing), o);
        ASSERT_EQ(one.size(), two.size());
        for (size_t b = 0; b < one.size(); ++b) expect_same(one[b], two[b]);
      }
    }
}

TEST(Search, HeadsAndLayersCanBeChosen) {
  const ModelConfig config = small_models()[1].config;
  Params params(3);
  const auto model = make_model(params, config, {19, 17});
  const std::vector<Words> rows{{5, 6, 7, kEnd}};
  const auto weights = [&](int64_t layer, int64_t head, int64_t mean_of = 0) {
    SearchOptions o;
    o.want_weights = true, o.layer = layer, o.head = head, o.mean_of = mean_of;
    return score_targets(*model, source_of(rows), {{4, 5}}, o)[0].weights;
  };
  EXPECT_EQ(weights(-1, 0), weights(1, 0));
  EXPECT_NE(weights(0, 0), weights(1, 0));
  const auto first = weights(1, 0), second = weights(1, 1), both = weights(1, -1);
  for (size_t t = 0; t < both.size(); ++t)
    for (size_t j = 0; j < both[t].size(); ++j)
      EXPECT_NEAR(both[t][j], (first[t][j] + second[t][j]) / 2, 1e-6);
  EXPECT_EQ(weights(1, -1, 1), first);
  EXPECT_EQ(weights(1, -1, 2), both);
  EXPECT_TRUE(has(message([&] { weights(2, 0); }), "layer 2 of 2"));
  EXPECT_TRUE(has(message([&] { weights(0, 5); }), "head 5 of 2"));
  ModelConfig none = small_models()[0].config;
  none.score = "none";
  Params other(1);
  const auto blind = make_model(other, none, {19, 17});
  SearchOptions o;
  o.want_weights = true;
  EXPECT_TRUE(has(message([&] { search(*blind, source_of(rows), o); }), "no attention to show"));
}

}  // namespace
}  // namespace heed
