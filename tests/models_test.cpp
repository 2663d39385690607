// Models as search sees them and as training does: the two must agree, for every configuration.
#include "heed/models/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heed/search/search.h"
#include "heed/training/loss.h"
#include "heed/training/optimizer.h"
#include "tests/parameter_gradients.h"
#include "tests/sources.h"
#include "tests/step_by_step.h"
#include "tests/toy.h"

namespace heed {
namespace {

constexpr int64_t kSourceWords = 11, kTargetWords = 9;
constexpr Id kBegin = 2, kEnd = 3;

struct Named {
  std::string name;
  ModelConfig config;
  bool shared = false;
};

ModelConfig small_rnn() {
  ModelConfig c;
  c.size = 8, c.dropout = 0, c.positions = 12;
  return c;
}

ModelConfig small_transformer() {
  ModelConfig c = small_rnn();
  c.family = "transformer", c.score = "scaled_dot", c.heads = 2, c.inner = 12;
  c.encoder_layers = c.decoder_layers = 2;
  return c;
}

std::vector<Named> recurrent_models() {
  std::vector<Named> all;
  const auto add = [&](const std::string& name, auto change) {
    all.push_back({"rnn " + name, small_rnn()});
    change(all.back());
  };
  for (const char* cell : {"rnn", "gru", "lstm"})
    for (const bool both : {false, true})
      for (const int layers : {1, 2})
        for (const char* wiring : {"before", "after", "feeding"})
          add(std::string(cell) + (both ? " both ways " : " one way ") + std::to_string(layers) +
                  " " + wiring,
              [&](Named& n) {
                n.config.cell = cell, n.config.bidirectional = both;
                n.config.encoder_layers = n.config.decoder_layers = layers;
                n.config.wiring = wiring[0] == 'b' ? "before" : "after";
                n.config.input_feeding = wiring[0] == 'f';
              });
  std::vector<std::string> scores{"none", "concat", "general"};
  for (const ScoreRow& row : score_table()) scores.emplace_back(row.name);
  for (const std::string& score : scores)
    for (const char* wiring : {"before", "after"})
      for (const int heads : {1, 2})
        add(score + " " + wiring + " heads " + std::to_string(heads), [&](Named& n) {
          n.config.score = score, n.config.wiring = wiring, n.config.heads = heads;
        });
  for (const char* wiring : {"before", "after"})  // what there is not to feed does not matter
    for (const char* score : {"none", "additive"})
      add(std::string("input feeding ") + wiring + " " + score, [&](Named& n) {
        n.config.wiring = wiring, n.config.score = score, n.config.input_feeding = true;
      });
  for (const WeighRow& row : weigh_table())
    if (row.kind != Weigh::Kind::reinforce)
      add(std::string("weigh ") + row.name, [&](Named& n) { n.config.weigh = row.name; });
  add("rank", [](Named& n) { n.config.score = "bilinear", n.config.rank = 3; });
  add("static rank", [](Named& n) { n.config.score = "static", n.config.rank = 3; });
  add("temperature", [](Named& n) { n.config.temperature = 0.5; });
  add("grouped", [](Named& n) { n.config.heads = 4, n.config.key_heads = 2; });
  add("tied", [](Named& n) { n.config.tied = true; });
  add("tied shared", [](Named& n) { n.config.tied = n.shared = true; });
  add("shared", [](Named& n) { n.shared = true; });
  add("embedding", [](Named& n) { n.config.embedding = 6; });
  add("tied embedding", [](Named& n) { n.config.tied = true, n.config.embedding = 6; });
  add("output bias", [](Named& n) { n.config.output_bias = true; });
  add("mean, wide score with a bias", [](Named& n) {
    n.config.bridge = "mean", n.config.attention_size = 5, n.config.attention_bias = true;
  });
  for (const char* cell : {"rnn", "gru", "lstm"})
    for (const int layers : {1, 2})
      add(std::string("conditional ") + cell + " " + std::to_string(layers), [&](Named& n) {
        n.config.wiring = "conditional", n.config.cell = cell;
        n.config.encoder_layers = n.config.decoder_layers = layers;
      });
  for (const bool norm : {false, true})
    add(norm ? "transitions and norms" : "transitions", [&](Named& n) {
      n.config.wiring = "conditional", n.config.bridge = "mean", n.config.cell_norm = norm;
      n.config.encoder_transitions = 2, n.config.decoder_transitions = 1;
      n.config.encoder_layers = 2;
    });
  for (const char* wiring : {"before", "after", "conditional"})
    add(std::string("aligner ") + wiring,
        [&](Named& n) { n.config.aligner = true, n.config.wiring = wiring; });
  add("aligner, sizes of their own", [](Named& n) {
    n.config.aligner = true, n.config.embedding = 6, n.config.cell = "lstm";
    n.config.encoder_layers = n.config.decoder_layers = 2;
    n.config.input_feeding = true, n.config.wiring = "after";
  });
  return all;
}

std::vector<Named> transformers() {
  std::vector<Named> all;
  const auto add = [&](const std::string& name, auto change) {
    all.push_back({"transformer " + name, small_transformer()});
    change(all.back());
  };
  for (const char* norm : {"pre", "post"})
    for (const char* position : {"sinusoidal", "learned", "rotary"})
      add(std::string(norm) + " " + position,
          [&](Named& n) { n.config.norm = norm, n.config.position = position; });
  for (const ScoreRow& row : score_table())
    add(row.name, [&](Named& n) { n.config.score = row.name; });
  for (const WeighRow& row : weigh_table())
    if (row.kind != Weigh::Kind::reinforce)
      add(std::string("weigh ") + row.name, [&](Named& n) { n.config.weigh = row.name; });
  add("one head", [](Named& n) { n.config.heads = 1; });
  add("grouped", [](Named& n) { n.config.heads = 4, n.config.key_heads = 2; });
  add("one key head", [](Named& n) { n.config.heads = 4, n.config.key_heads = 1; });
  add("sides of their own sizes", [](Named& n) {
    n.config.heads = 4, n.config.decoder_heads = 2, n.config.decoder_inner = 20;
  });
  add("tied", [](Named& n) { n.config.tied = true; });
  add("tied shared", [](Named& n) { n.config.tied = n.shared = true; });
  return all;
}

std::vector<Named> all_models() {
  std::vector<Named> all = recurrent_models();
  for (Named& n : transformers()) all.push_back(std::move(n));
  return all;
}

struct Made {
  Params params;
  std::unique_ptr<Model> model;
};

Made make(const Named& n, Type type = Type::f32, uint64_t seed = 1) {
  Params params(seed, type);
  const int64_t target = n.shared ? kSourceWords : kTargetWords;
  auto model = make_model(params, n.config, {kSourceWords, target, n.shared});
  return {params, std::move(model)};
}

// Sentences of words that are no special ones, each with its end.
std::vector<Words> sentences(const std::vector<int>& lengths, int64_t vocabulary, uint64_t seed) {
  Random random(seed);
  std::vector<Words> out;
  for (const int n : lengths) {
    Words words;
    while (static_cast<int>(words.size()) < n - 1)
      words.push_back(4 + static_cast<Id>(random.below(static_cast<uint32_t>(vocabulary - 4))));
    words.push_back(kEnd);
    out.push_back(words);
  }
  return out;
}

// Row i of a matrix.
std::vector<double> row(const Tensor& x, int64_t i) { return slice(x, 0, i, i + 1).values(); }

TEST(Models, StepByStepIsTheSameAsAllAtOnce) {
  const std::vector<Words> rows = sentences({5, 2, 4}, kSourceWords, 1);
  const int64_t B = 3, T = 6;
  for (const Named& n : all_models()) {
    SCOPED_TRACE(n.name);
    const Made made = make(n);
    Words in;
    for (const Words& w : sentences({6, 6, 6}, kTargetWords, 2)) {
      in.push_back(kBegin);
      in.insert(in.end(), w.begin(), w.end() - 1);
    }
    expect_steps_as_forced(*made.model, source_of(rows), in, B, T, n.config.score != "none");
  }
}

// Hypotheses multiply, change places and leave with their sentence; each goes on as if alone.
TEST(Models, HypothesesMoveWithAllThatBelongsToThem) {
  const std::vector<Words> rows = sentences({4, 6, 3}, kSourceWords, 3);
  constexpr int64_t kBeam = 3;
  struct Line {
    int64_t sentence;
    Words words = {kBegin};
    std::vector<std::vector<double>> said = {};
  };
  for (const Named& n : all_models()) {
    SCOPED_TRACE(n.name);
    const Made made = make(n);
    Random random(7);
    State state = made.model->start(source_of(rows));
    std::vector<Line> lines{{0}, {1}, {2}};
    for (int64_t t = 0; t < 6; ++t) {
      Words last;
      for (const Line& l : lines) last.push_back(l.words.back());
      const Tensor out =
          log_softmax(made.model->logits(made.model->step(state, last, false).hidden));
      for (size_t i = 0; i < lines.size(); ++i)
        lines[i].said.push_back(row(out, static_cast<int64_t>(i)));
      // Sentence 1 leaves at step 3.
      const int64_t K = t == 0 ? 1 : kBeam;
      Words from, kept;
      std::vector<Line> next;
      const int64_t before = static_cast<int64_t>(lines.size()) / K;
      for (int64_t b = 0; b < before; ++b) {
        if (t == 3 && b == 1) continue;
        kept.push_back(static_cast<Id>(b));
        for (int64_t k = 0; k < kBeam; ++k) {
          from.push_back(static_cast<Id>(b * K + random.below(static_cast<uint32_t>(K))));
          next.push_back(lines[static_cast<size_t>(from.back())]);
          next.back().words.push_back(4 + static_cast<Id>(random.below(kTargetWords - 4)));
        }
      }
      state.choose(from, kept);
      lines = std::move(next);
    }
    ASSERT_EQ(state.sentences(), 2);
    for (const Line& l : lines) {
      const int64_t T = static_cast<int64_t>(l.said.size());
      const Source alone = source_of({rows[static_cast<size_t>(l.sentence)]});
      const Words in(l.words.begin(), l.words.end() - 1);
      const Tensor all = log_softmax(linear(
          made.model->forward(alone, ids(in, {1, T}), false).hidden, made.model->output_weight()));
      for (int64_t t = 0; t < T; ++t)
        EXPECT_LT(worst(slice(all, 1, t, t + 1).values(), l.said[static_cast<size_t>(t)]),
                  kRounding)
            << "sentence " << l.sentence << ", step " << t;
    }
  }
}

// What a sentence gives in a batch of others, bit for bit.
void expect_same_bits_alone(const Made& made, const std::vector<Words>& rows, int64_t K) {
  const auto expand = [&](State& state) {
    Words from, kept;
    for (int64_t b = 0; b < state.sentences(); ++b) {
      kept.push_back(static_cast<Id>(b));
      from.insert(from.end(), static_cast<size_t>(K), static_cast<Id>(b));
    }
    state.choose(from, kept);
  };
  State together = made.model->start(source_of(rows));
  expand(together);
  std::vector<State> alone;
  for (const Words& w : rows) {
    alone.push_back(made.model->start(source_of({w})));
    expand(alone.back());
  }
  for (Id t = 0; t < 4; ++t) {
    Words last;
    for (int64_t i = 0; i < static_cast<int64_t>(rows.size()) * K; ++i)
      last.push_back(t == 0 ? kBegin : static_cast<Id>(4 + (i * 3 + t) % 5));
    const Tensor all = made.model->logits(made.model->step(together, last, false).hidden);
    for (size_t b = 0; b < rows.size(); ++b) {
      const int64_t first = static_cast<int64_t>(b) * K;
      const Words own(last.begin() + first, last.begin() + first + K);
      const Tensor one = made.model->logits(made.model->step(alone[b], own, false).hidden);
      ASSERT_EQ(one.values(), slice(all, 0, first, first + K).values())
          << "sentence " << b << ", step " << t << ", beam " << K;
    }
  }
}

TEST(Models, ASentenceHasTheSameBitsInEveryBatch) {
  for (const Named& n : all_models()) {
    SCOPED_TRACE(n.name);
    const Made made = make(n);
    for (const int64_t K : {1, 3})
      expect_same_bits_alone(made, sentences({5, 2, 9, 4}, kSourceWords, 5), K);
  }
}

TEST(Models, SizesThatFillVectorsAndBlocksKeepTheirBitsToo) {
  for (Named n : {Named{"rnn", small_rnn()}, Named{"transformer", small_transformer()}}) {
    SCOPED_TRACE(n.name);
    n.config.size = 72, n.config.inner = 200, n.config.positions = 64;
    Params params(1);
    Made made{params, make_model(params, n.config, {300, 517})};
    std::vector<int> lengths;
    for (int i = 0; i < 20; ++i) lengths.push_back(2 + i * 7 % 37);
    expect_same_bits_alone(made, sentences(lengths, 300, 6), 5);
  }
}

Batch batch_of(const std::vector<int>& source_lengths, const std::vector<int>& target_lengths) {
  std::vector<Words> sources = sentences(source_lengths, kSourceWords, 8),
                     targets = sentences(target_lengths, kTargetWords, 9);
  static const Links kLinks{{0, 0}, {0, 1}};
  std::vector<PairView> rows;
  for (size_t i = 0; i < sources.size(); ++i)
    rows.push_back({{sources[i].data(), sources[i].size() - 1},
                    {targets[i].data(), targets[i].size() - 1},
                    kLinks});
  return make_batch(rows, {}, {});
}

TEST(Models, TheLossFallsInAFewSteps) {
  const Batch batch = batch_of({5, 2, 4}, {4, 6, 3});
  for (const Named& n : all_models()) {
    SCOPED_TRACE(n.name);
    const Made made = make(n);
    Adam adam(made.params, {.clip_norm = 1});
    std::vector<double> losses;
    for (int step = 0; step < 12; ++step) {
      Tape tape(static_cast<uint64_t>(step));
      const BatchLoss loss = batch_loss(*made.model, batch, {.smoothing = 0});
      losses.push_back(loss.cross_entropy.item());
      tape.backward(loss.total);
      adam.step(1e-2);
    }
    EXPECT_LT(losses.back(), 0.8 * losses.front());
  }
}

// Against differences, in f64, a few numbers of every parameter.
TEST(Models, EveryParameterHasItsRightGradient) {
  const Batch batch = batch_of({4, 2}, {3, 4});
  size_t number = 0;
  for (const Named& n : all_models()) {
    if (kSlow && number++ % 5 != 0) continue;
    if (n.config.weigh == "hard" || n.config.weigh == "straight_through" ||
        n.config.weigh == "gumbel")
      continue;  // theirs are estimates
    SCOPED_TRACE(n.name);
    const Made made = make(n, Type::f64);
    // The weights are guided too, where there are any that are never 0.
    const bool guided = n.config.score != "none" && n.config.weigh == "soft";
    const LossOptions options{.smoothing = 0.1, .guided = guided ? 0.5 : 0};
    expect_right_gradients(made.params,
                           [&] { return batch_loss(*made.model, batch, options).total; });
  }
}

ModelConfig with_aligner(ModelConfig config) {
  config.aligner = true;
  return config;
}

// The one head that is taught weighs, where a word is read, what it is linked to; of a Transformer
// also where it sees the whole target.
TEST(Models, AnAlignmentTeachesOneHead) {
  for (const Named& n : {Named{"rnn", small_rnn()}, Named{"aligner", with_aligner(small_rnn())},
                         Named{"transformer", small_transformer()}}) {
    SCOPED_TRACE(n.name);
    const Made made = make(n);
    const Batch batch = batch_of({4, 3}, {4, 3});
    ASSERT_FALSE(batch.links[0].empty());
    Adam adam(made.params, {.clip_norm = 1});
    const AlignmentHead taught = made.model->guided_head();
    EXPECT_EQ(taught.shift, std::string_view(n.name) == "rnn" ? 0 : 1);
    EXPECT_EQ(taught.whole, n.config.family == "transformer");
    const auto least_of = [&](const Tensor& w) {
      const std::vector<double> all = w.values();
      double least = 1;
      for (int64_t b = 0; b < batch.rows; ++b)
        for (const Link& link : batch.links[static_cast<size_t>(b)]) {
          const int64_t t = link.target + taught.shift;
          if (t < batch.target_lengths[static_cast<size_t>(b)])
            least = std::min(
                least, all[static_cast<size_t>((b * w.size(1) + t) * w.size(2) + link.source)]);
        }
      return least;
    };
    const auto on_links = [&] {  // the least weight on a link
      const NoTape off;
      WantWeights wanted = true;
      if (taught.whole) wanted.and_whole(taught.layer, batch.target_lengths);
      const TeacherForced forced = made.model->forward(
          source_of(batch), ids(batch.target_in, {batch.rows, batch.target_width}), wanted);
      EXPECT_EQ(forced.whole.has_value(), taught.whole);
      const double least = least_of(chosen_weights(forced.weights, taught.layer, taught.head));
      if (!forced.whole) return least;
      return std::min(least, least_of(chosen_weights({*forced.whole}, -1, taught.head)));
    };
    EXPECT_LT(on_links(), 0.5);
    for (int step = 0; step < 150; ++step) {
      Tape tape(static_cast<uint64_t>(step));
      tape.backward(batch_loss(*made.model, batch, {.smoothing = 0, .guided = 1}).total);
      adam.step(1e-2);
    }
    EXPECT_GT(on_links(), 0.8);
  }
}

// The weights of a word know the words after it in a pass that sees all of them, and only there.
TEST(Models, APassOverTheWholeTargetSeesWhatComes) {
  const Made made = make({"transformer", small_transformer()});
  Batch batch = batch_of({4, 2}, {3, 5});
  const auto rows = [&](bool whole) {  // those of the second word of the first sentence
    WantWeights wanted = WantWeights::of_layer(0);
    wanted.and_whole(0, batch.target_lengths);
    const TeacherForced forced = made.model->forward(
        source_of(batch), ids(batch.target_in, {batch.rows, batch.target_width}), wanted);
    const Tensor w = whole ? forced.whole->values : forced.weights.at(0).values;  // [B, H, T, S]
    return slice(slice(w, 0, 0, 1), 2, 1, 2).values();
  };
  const std::vector<double> causal = rows(false), whole = rows(true);
  EXPECT_NE(causal, whole);
  Id& after = batch.target_in[2];
  after = after == 4 ? 5 : 4;
  EXPECT_EQ(rows(false), causal);
  EXPECT_NE(rows(true), whole);
  const std::vector<double> changed = rows(true);
  batch.target_in[static_cast<size_t>(batch.target_lengths[0])] = 5;  // padding
  EXPECT_EQ(rows(true), changed);
  ModelConfig ssru = small_transformer();
  ssru.decoder = "ssru";
  const Made blind = make({"ssru", ssru});
  EXPECT_FALSE(blind.model->guided_head().whole);
}

TEST(Models, DropoutIsForTrainingAlone) {
  std::vector<Named> models;
  for (const Named& n : {Named{"rnn", small_rnn()}, Named{"transformer", small_transformer()}})
    for (double ModelConfig::*of : {&ModelConfig::dropout, &ModelConfig::attention_dropout}) {
      models.push_back(n);
      models.back().config.dropout = 0, models.back().config.*of = 0.5;
    }
  models.push_back({"transformer, inner", small_transformer()});
  models.back().config.dropout = 0, models.back().config.inner_dropout = 0.5;
  for (const Named& n : models) {
    SCOPED_TRACE(n.name);
    const Made made = make(n);
    const Batch batch = batch_of({4, 2}, {3, 4});
    const auto loss = [&] { return batch_loss(*made.model, batch, {}).cross_entropy.item(); };
    const double plain = loss();
    EXPECT_EQ(plain, loss());
    const auto drawn = [&](uint64_t seed) {
      Tape tape(seed);
      return loss();
    };
    EXPECT_NE(drawn(1), plain);
    EXPECT_NE(drawn(1), drawn(2));
    EXPECT_EQ(drawn(1), drawn(1));
  }
}

TEST(Models, ASentenceLongerThanTheLearnedPositionsIsAnError) {
  Named n{"learned", small_transformer()};
  n.config.position = "learned";
  const Made made = make(n);
  EXPECT_TRUE(has(message([&] { made.model->start(source_of(sentences({14}, kSourceWords, 1))); }),
                  "learned positions for 12 tokens, given a sentence of 14"));
}

// ---- configurations

TEST(ModelConfig, PresetsCanBeMade) {
  for (const ModelKind kind : {ModelKind::translator, ModelKind::language_model})
    for (const std::string& name : preset_names(kind)) {
      SCOPED_TRACE(name);
      const ModelConfig c = preset(name);
      EXPECT_NO_THROW(check(c));
      EXPECT_EQ(is_language_model(c), kind == ModelKind::language_model);
      EXPECT_EQ(to_json(model_config(to_json(c), "here")), to_json(c));
    }
  const std::vector<std::string> wanted{"rnn-small", "rnn", "transformer-tiny", "transformer-small",
                                        "transformer-base"};
  EXPECT_EQ(preset_names(ModelKind::translator), wanted);
  const std::vector<std::string> language_models{"lm-rnn", "lm-transformer", "elmo"};
  EXPECT_EQ(preset_names(ModelKind::language_model), language_models);
  const ModelConfig tiny = preset("transformer-tiny");
  EXPECT_EQ(tiny.size, 128);
  EXPECT_EQ(tiny.encoder_layers, 4);
  EXPECT_EQ(tiny.decoder_layers, 4);
  EXPECT_EQ(tiny.inner, 256);
  EXPECT_EQ(tiny.heads, 4);
  EXPECT_EQ(preset("transformer-small").inner, 1024);
  EXPECT_TRUE(has(message([] { preset("transfomer-tiny"); }), "did you mean 'transformer-tiny'"));
}

TEST(ModelConfig, EveryFieldGoesToJsonAndBack) {
  // Every field differs from its default in one of these.
  ModelConfig c, rnn;
  c.family = "transformer", c.size = 12, c.encoder_layers = 3, c.decoder_layers = 2;
  c.dropout = 0.25, c.tied = true, c.score = "bilinear", c.weigh = "entmax", c.temperature = 1.5;
  c.heads = 6, c.key_heads = 3, c.rank = 2, c.positions = 77, c.attention_dropout = 0.125;
  c.cell = "lstm", c.bidirectional = false, c.wiring = "after", c.input_feeding = true;
  c.inner = 99, c.inner_dropout = 0.5, c.norm = "post", c.position = "rotary", c.reads = "lines";
  c.activation = "swish", c.norm_epsilon = 1e-6, c.embedding_norm = true, c.embedding_scale = 2;
  c.shared_embeddings = true, c.output_bias = true, c.decoder = "ssru";
  c.decoder_heads = 3, c.decoder_inner = 7;
  rnn.embedding = 6, rnn.wiring = "conditional", rnn.bridge = "mean";
  rnn.encoder_transitions = 2, rnn.decoder_transitions = 1;
  rnn.attention_size = 5, rnn.attention_bias = rnn.cell_norm = rnn.aligner = true;
  const auto texts = [](const ModelConfig& config) {
    std::vector<std::string> out;
    fields(config, [&](const char* name, const auto& value, const char*) {
      std::ostringstream text;
      text << name << " " << value;
      out.push_back(text.str());
    });
    return out;
  };
  for (const ModelConfig& config : {c, rnn})
    EXPECT_EQ(texts(model_config(to_json(config), "here")), texts(config));
  const auto defaults = texts({}), ones = texts(c), others = texts(rnn);
  for (size_t i = 0; i < defaults.size(); ++i)
    EXPECT_TRUE(defaults[i] != ones[i] || defaults[i] != others[i]) << defaults[i];
}

TEST(ModelConfig, WhatIsNotKnownGetsTheNearest) {
  const auto said = [](const std::string& json) {
    return message([&] { model_config(json, "config.json"); });
  };
  EXPECT_EQ(said("{}"), "");
  EXPECT_TRUE(has(said(R"({"wirring": "before"})"),
                  "config.json: unknown key 'wirring'; did you mean 'wiring'"));
  EXPECT_TRUE(has(said(R"({"score": "additiv"})"), "did you mean 'additive'"));
  EXPECT_TRUE(has(said(R"({"weigh": "sparse_max"})"), "did you mean 'sparsemax'"));
  EXPECT_TRUE(has(said(R"({"cell": "gru2"})"), "did you mean 'gru'"));
  EXPECT_TRUE(has(said(R"({"family": "transformr"})"), "did you mean 'transformer'"));
  EXPECT_TRUE(has(said(R"({"norm": "prae"})"), "did you mean 'pre'"));
  EXPECT_TRUE(has(said(R"({"position": "rotation"})"), "unknown position"));
  EXPECT_TRUE(has(said(R"({"size": "large"})"), "config.json: 'size' cannot be \"large\""));
  EXPECT_TRUE(has(said(R"({"size": 12.5})"), "config.json: 'size' cannot be 12.5"));
  EXPECT_TRUE(has(said("[1]"), "config.json: not a JSON object"));
  EXPECT_TRUE(has(said("{"), "config.json: not a JSON object"));
}

TEST(ModelConfig, SizesThatDoNotFitAreRefused) {
  const auto said = [](const std::string& json) {
    return message([&] { model_config(json, "c"); });
  };
  EXPECT_TRUE(has(said(R"({"size": 10, "heads": 4})"), "size 10 cannot be shared by 4 heads"));
  EXPECT_TRUE(has(said(R"({"size": 0})"), "size wants a number above 0, given 0"));
  EXPECT_TRUE(has(said(R"({"heads": 4, "key_heads": 3})"), "4 heads cannot share 3 key heads"));
  EXPECT_TRUE(has(said(R"({"key_heads": -1})"), "key_heads"));
  EXPECT_TRUE(has(said(R"({"decoder_heads": 2})"), "are for translators of family 'transformer'"));
  EXPECT_TRUE(has(said(R"({"family": "transformer", "decoder_heads": 3})"), "shared by 3 heads"));
  EXPECT_TRUE(has(said(R"({"embedding": -1})"), "embedding"));
  EXPECT_TRUE(has(said(R"({"rank": -1})"), "rank"));
  EXPECT_TRUE(has(said(R"({"dropout": 1})"), "dropout wants a share in [0, 1)"));
  EXPECT_TRUE(has(said(R"({"temperature": 0})"), "temperature wants a number above 0"));
  EXPECT_TRUE(has(said(R"({"weigh": "reinforce"})"), "needs a reward"));
  EXPECT_TRUE(has(said(R"({"family": "transformer", "score": "none"})"), "unknown score 'none'"));
  EXPECT_TRUE(has(said(R"({"family": "transformer", "embedding": 8})"), "embedding is for rnn"));
  EXPECT_TRUE(has(said(R"({"family": "transformer", "size": 6, "heads": 2, "position": "rotary"})"),
                  "heads of an even size"));
}

}  // namespace
}  // namespace heed
