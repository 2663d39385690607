// Language models as models: step by step and all at once, what they may read, their gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heed/language/language_model.h"
#include "heed/training/trainer.h"
#include "tests/parameter_gradients.h"
#include "tests/small_language_models.h"
#include "tests/step_by_step.h"
#include "tests/toy.h"

namespace heed {
namespace {

constexpr int64_t kWords = 9;
constexpr Id kBegin = 2, kEnd = 3;
using Words = std::vector<Id>;

struct Named {
  std::string name;
  ModelConfig config;
};

std::vector<Named> all_models() {
  std::vector<Named> all;
  const auto add = [&](const std::string& name, ModelConfig config, auto change) {
    all.push_back({name, config});
    change(all.back().config);
  };
  for (const char* cell : {"rnn", "gru", "lstm"})
    for (const int layers : {1, 2})
      add(std::string(cell) + " " + std::to_string(layers), small_rnn(),
          [&](ModelConfig& c) { c.cell = cell, c.decoder_layers = layers; });
  std::vector<std::string> scores{"none"};
  for (const ScoreRow& row : score_table()) scores.emplace_back(row.name);
  for (const std::string& score : scores)
    for (const int heads : {1, 2})
      add("rnn " + score + " heads " + std::to_string(heads), small_rnn(),
          [&](ModelConfig& c) { c.score = score, c.heads = heads; });
  for (const char* weigh : {"sparsemax", "entmax"})
    add(std::string("rnn ") + weigh, small_rnn(), [&](ModelConfig& c) { c.weigh = weigh; });
  add("rnn tied", small_rnn(), [](ModelConfig& c) { c.tied = true; });
  add("rnn embedding", small_rnn(), [](ModelConfig& c) { c.embedding = 6; });
  add("rnn tied embedding", small_rnn(), [](ModelConfig& c) { c.tied = true, c.embedding = 6; });
  for (const char* position : {"sinusoidal", "learned", "rotary"})
    add(std::string("transformer ") + position, small_transformer(),
        [&](ModelConfig& c) { c.position = position; });
  for (const char* score : {"additive", "static", "bilinear"})
    add(std::string("transformer ") + score, small_transformer(),
        [&](ModelConfig& c) { c.score = score; });
  add("transformer post", small_transformer(), [](ModelConfig& c) { c.norm = "post"; });
  add("transformer grouped", small_transformer(),
      [](ModelConfig& c) { c.heads = 4, c.key_heads = 2, c.position = "sinusoidal"; });
  add("elmo", small_elmo(), [](ModelConfig&) {});
  add("elmo lstm, not tied", small_elmo(),
      [](ModelConfig& c) { c.cell = "lstm", c.tied = false, c.decoder_layers = 3; });
  return all;
}

struct Made {
  Params params;
  std::unique_ptr<Model> model;
};

Made make(const ModelConfig& config, Type type = Type::f32) {
  Params params(1, type);
  auto model = make_model(params, config, {kWords, kWords, true});
  return {params, std::move(model)};
}

Words random_words(int64_t count, uint64_t seed) {
  Random random(seed);
  Words out;
  while (static_cast<int64_t>(out.size()) < count)
    out.push_back(4 + static_cast<Id>(random.below(kWords - 4)));
  return out;
}

TEST(LanguageModels, StepByStepIsTheSameAsAllAtOnce) {
  constexpr int64_t B = 3, T = 6;
  for (const Named& n : all_models()) {
    SCOPED_TRACE(n.name);
    const Made made = make(n.config);
    Words in = random_words(B * T, 2);
    for (int64_t b = 0; b < B; ++b) in[static_cast<size_t>(b * T)] = kBegin;
    expect_steps_as_forced(*made.model, no_source(B), in, B, T, n.config.score != "none");
  }
}

TEST(LanguageModels, HypothesesMoveWithTheirPast) {
  for (const Named& n : all_models()) {
    SCOPED_TRACE(n.name);
    const Made made = make(n.config);
    State state = made.model->start(no_source(2));
    made.model->step(state, Words{kBegin, kBegin}, false);
    state.choose(Words{0, 0, 1, 1}, Words{0, 1});
    made.model->step(state, Words{4, 5, 6, 7}, false);
    state.choose(Words{3, 2}, Words{1});  // the second sentence alone, its hypotheses exchanged
    ASSERT_EQ(state.sentences(), 1);
    const Tensor said =
        log_softmax(made.model->logits(made.model->step(state, Words{8, 4}, false).hidden));
    const Tensor alone =
        made.model->forward(no_source(1), ids(Words{kBegin, 7, 8}, {1, 3}), false).hidden;
    EXPECT_LT(
        worst(log_softmax(linear(slice(alone, 1, 2, 3), made.model->output_weight())).values(),
              slice(said, 0, 0, 1).values()),
        kRounding);
  }
}

// What comes later reaches nothing before it, bit for bit.
TEST(LanguageModels, TheFutureDoesNotLeak) {
  constexpr int64_t T = 8;
  for (const Named& n : all_models()) {
    SCOPED_TRACE(n.name);
    const Made made = make(n.config);
    Words in = random_words(T, 3);
    const TeacherForced before = made.model->forward(no_source(1), ids(in, {1, T}), true);
    for (int64_t t = 1; t < T; ++t) {
      Words other = in;
      other[static_cast<size_t>(t)] = other[static_cast<size_t>(t)] == 4 ? 5 : 4;
      const TeacherForced after = made.model->forward(no_source(1), ids(other, {1, T}), false);
      EXPECT_EQ(slice(before.hidden, 1, 0, t).values(), slice(after.hidden, 1, 0, t).values());
      EXPECT_NE(slice(before.hidden, 1, t, T).values(), slice(after.hidden, 1, t, T).values());
    }
    const bool own = n.config.family == "transformer";
    for (const Weights& w : before.weights)
      for (int64_t i = 0; i < T; ++i)
        for (int64_t j = i + (own ? 1 : 0); j < T; ++j)
          for (const double x : slice(slice(w.values, 2, i, i + 1), 3, j, j + 1).values())
            EXPECT_EQ(x, 0) << i << " sees " << j;
  }
}

Batch batch_of(const std::vector<int>& lengths, bool with_sources) {
  std::vector<Words> rows;
  for (const int n : lengths) rows.push_back(random_words(n, static_cast<uint64_t>(n)));
  std::vector<PairView> views;
  for (const Words& w : rows)
    views.push_back({.source = with_sources ? std::span<const Id>(w) : std::span<const Id>(),
                     .target = w,
                     .goes_on = !with_sources});
  Batch batch = make_batch(views, {}, {});
  batch.links.clear();
  return batch;
}

TEST(LanguageModels, EveryParameterHasItsRightGradient) {
  size_t number = 0;
  for (const Named& n : all_models()) {
    if (kSlow && number++ % 5 != 0) continue;
    SCOPED_TRACE(n.name);
    const Made made = make(n.config, Type::f64);
    const Batch batch = batch_of({3, 5}, is_bidirectional_language_model(n.config));
    expect_right_gradients(
        made.params, [&] { return batch_loss(*made.model, batch, {.smoothing = 0.1}).total; });
  }
}

// The backward model has not read what it predicts, nor has either side of a gap what is in it.
TEST(LanguageModels, WhatElmoPredictsItHasNotRead) {
  const Made made = make(small_elmo());
  constexpr int64_t T = 7;
  Words words = random_words(T - 1, 5);
  const auto forced = [&](const Words& w) {
    Words in{kBegin}, source = w;
    in.insert(in.end(), w.begin(), w.end());
    source.push_back(kEnd);
    return made.model->forward({ids(source, {1, T}), {static_cast<Id>(T)}}, ids(in, {1, T}), false);
  };
  const TeacherForced before = forced(words);
  ASSERT_EQ(before.also.size(), 2u);
  const auto row = [](const Tensor& x, int64_t t) { return slice(x, 1, t, t + 1).values(); };
  for (int64_t k = 0; k < T - 1; ++k) {
    Words other = words;
    other[static_cast<size_t>(k)] = other[static_cast<size_t>(k)] == 4 ? 5 : 4;
    const TeacherForced after = forced(other);
    // Word k is what the backward state behind it, k + 1, predicts.
    EXPECT_EQ(before.also[0].words.values()[static_cast<size_t>(k + 1)],
              words[static_cast<size_t>(k)]);
    EXPECT_EQ(row(before.also[0].hidden, k + 1), row(after.also[0].hidden, k + 1));
    EXPECT_NE(row(before.also[0].hidden, k), row(after.also[0].hidden, k));
    EXPECT_EQ(before.also[1].words.values()[static_cast<size_t>(k)], words[static_cast<size_t>(k)]);
    EXPECT_EQ(row(before.also[1].hidden, k), row(after.also[1].hidden, k));
    for (int64_t t = 0; t < T - 1; ++t) {
      if (t == k) continue;
      EXPECT_NE(row(before.also[1].hidden, t), row(after.also[1].hidden, t)) << k << " to " << t;
    }
  }
}

TEST(LanguageModels, ConfigurationsThatMakeNoSenseAreRefused) {
  const auto said = [](auto change) {
    ModelConfig c = small_rnn();
    change(c);
    return message([&] { check(c); });
  };
  EXPECT_EQ(said([](ModelConfig&) {}), "");
  EXPECT_TRUE(has(said([](ModelConfig& c) { c.wiring = "before"; }), "wants wiring 'after'"));
  EXPECT_TRUE(has(said([](ModelConfig& c) { c.input_feeding = true; }), "no input_feeding"));
  EXPECT_TRUE(has(said([](ModelConfig& c) { c.bidirectional = true; }), "is one of lines"));
  EXPECT_TRUE(has(said([](ModelConfig& c) { c.bidirectional = true, c.reads = "lines"; }),
                  "has no attention"));
  EXPECT_TRUE(has(said([](ModelConfig& c) { c.reads = "line"; }), "did you mean 'lines'"));
  EXPECT_TRUE(has(said([](ModelConfig& c) { c.encoder_layers = -1; }), "encoder_layers"));
  Params params(1);
  EXPECT_TRUE(has(message([&] {
                    make_model(params, small_rnn(), {9, 8, false});
                  }),
                  "has one vocabulary"));
}

}  // namespace
}  // namespace heed
