// Language models and vectors for words: the text they learn from, scores, generation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "heed/data/text_corpus.h"
#include "heed/files/npy.h"
#include "heed/language/language_model.h"
#include "heed/language/senses.h"
#include "heed/training/run_folder.h"
#include "tests/small_language_models.h"
#include "tests/step_by_step.h"
#include "tests/toy.h"

namespace heed {
namespace {

constexpr Id kBegin = 2, kEnd = 3;
using Words = std::vector<Id>;

// ---- text

TEST(RunningText, TokenizersKeepNewlines) {
  const std::vector<std::string> lines{"a dog  runs .", "", "the cat and the dog sleep .",
                                       " it is."};
  for (const std::string& kind : tokenizer_kinds()) {
    SCOPED_TRACE(kind);
    size_t at = 0;
    const auto t = learn_tokenizer(
        [&]() -> std::optional<std::string> {
          if (at == lines.size() * 20) return std::nullopt;
          return lines[at++ % lines.size()];
        },
        {.kind = kind, .size = 60, .newlines = true});
    ASSERT_TRUE(t->newline().has_value());
    EXPECT_EQ(t->piece(*t->newline()), "⏎");
    const std::string text = "the dog runs .\n\nthe cat sleep .";
    const Sentence s = t->encode(text);
    EXPECT_EQ(std::count(s.ids.begin(), s.ids.end(), *t->newline()), 2);
    EXPECT_EQ(t->decode(s.ids).text, text);
    EXPECT_EQ(s.word.front(), 0);
    EXPECT_EQ(s.word.back(), 7);
    const Folder folder;
    TokenizerPair{t, t}.save(folder.path());
    const TokenizerPair kept = TokenizerPair::load(folder.path());
    EXPECT_EQ(kept.target->encode(text).ids, s.ids);
    EXPECT_EQ(kept.target->newline(), t->newline());
  }
  // By characters, every space counts.
  size_t once = 0;
  const auto exact = learn_tokenizer(
      [&]() -> std::optional<std::string> {
        return once++ == 0 ? std::optional<std::string>("ab c") : std::nullopt;
      },
      {.kind = "characters", .newlines = true});
  const std::string text = " a  b \n\n c";
  EXPECT_EQ(exact->decode(exact->encode(text).ids).text, text);
  EXPECT_EQ(exact->encode(text).ids.size(), text.size());
}

std::shared_ptr<const Tokenizer> letters(const TextPart& part, bool newlines) {
  return learn_tokenizer(texts(part), {.kind = "characters", .newlines = newlines});
}

std::string some_text(int lines) {
  std::string text;
  Random random(4);
  for (int i = 0; i < lines; ++i) {
    const uint32_t n = random.below(9);
    for (uint32_t k = 0; k < n; ++k) text += static_cast<char>('a' + random.below(6));
    text += '\n';
  }
  return text;
}

// The text of all rows in their order.
std::string joined(TextCorpus& corpus, int64_t epoch, size_t* rows = nullptr) {
  Words all;
  for (int64_t n = 0; n < corpus.windows(); ++n) {
    const auto window = corpus.window_of(epoch, n, false);
    for (int64_t i = 0; i < window->size(); ++i) {
      const PairView row = (*window)[i];
      EXPECT_TRUE(row.goes_on && row.source.empty());
      EXPECT_LE(static_cast<int64_t>(row.target.size()), corpus.longest());
      all.insert(all.end(), row.target.begin(), row.target.end());
      if (rows) ++*rows;
    }
  }
  return corpus.tokenizers().target->decode(all).text;
}

TEST(TextCorpus, AStreamIsCutIntoRowsThatMakeItUp) {
  const Folder folder;
  const std::string text = some_text(50);
  for (const std::string& path : {folder.put("t", text), folder.put_gzip("t.gz", text)})
    for (const int64_t window : {1000, 7}) {
      TextCorpus corpus({path}, letters({path}, true), {.context = 10, .window = window});
      EXPECT_EQ(corpus.windows(), window == 7 ? 8 : 1);
      EXPECT_EQ(has(corpus.summary(), "50 lines, streamed\n"), window == 7) << corpus.summary();
      for (int64_t epoch = 0; epoch < 3; ++epoch) EXPECT_EQ(joined(corpus, epoch), text);
      // Elsewhere in another epoch, and the same again if asked again.
      const auto first = [&](int64_t epoch) {
        const auto w = corpus.window_of(epoch, 0, false);
        return (*w)[0].target.size();
      };
      std::vector<size_t> sizes;
      for (int64_t epoch = 1; epoch < 9; ++epoch) sizes.push_back(first(epoch));
      EXPECT_GT(std::set<size_t>(sizes.begin(), sizes.end()).size(), 2u);
      EXPECT_EQ(first(3), first(3));
    }
}

TEST(TextCorpus, LinesStandAlone) {
  const Folder folder;
  const std::string path = folder.put("t", "abc\n\nab\nabcabcabcabc\ncaf\xE9\nc\n");
  TextCorpus corpus({path}, letters({path}, false),
                    {.lines = true, .context = 10, .with_sources = true});
  const auto window = corpus.window_of(5, 0, false);
  ASSERT_EQ(window->size(), 3);
  EXPECT_EQ((*window)[0].target.size(), 3u);
  EXPECT_EQ((*window)[1].source.size(), 2u);
  EXPECT_EQ((*window)[2].line, 6);
  EXPECT_FALSE((*window)[2].goes_on);
  const std::string summary = corpus.summary();
  EXPECT_TRUE(has(summary, "6 lines, 6 pieces")) << summary;
  EXPECT_TRUE(has(summary, "1 line not UTF-8")) << summary;
  EXPECT_TRUE(has(summary, "1 line empty")) << summary;
  EXPECT_TRUE(has(summary, "1 line longer than 10 pieces")) << summary;
}

TEST(TextCorpus, TheLastShareIsSplitOff) {
  const Folder folder;
  const std::string text = some_text(200), path = folder.put("t", text);
  const auto [first, last] = split_text(path, 0.25);
  const auto read_all = [](const TextPart& part) {
    std::string out;
    const TextStream lines = texts(part);
    while (const auto line = lines()) out += *line + "\n";
    return out;
  };
  EXPECT_EQ(read_all(first) + read_all(last), text);
  EXPECT_NEAR(double(read_all(last).size()), 0.25 * double(text.size()), 10);
  EXPECT_TRUE(has(message([&] { split_text(path, 1.5); }), "between 0 and 1"));
  EXPECT_TRUE(has(message([&] { split_text(folder.put("one", "a\n"), 0.5); }), "too few to split"));
  EXPECT_TRUE(has(message([&] { split_text(folder / "nosuch", 0.5); }), "cannot be read"));
}

TEST(TextCorpus, ARowThatGoesOnHasNoEnd) {
  const Words words{4, 5, 6};
  const std::vector<PairView> rows{{.source = {}, .target = words, .goes_on = true},
                                   {.source = {}, .target = std::span(words).first(1)}};
  const Batch b = make_batch(rows, {}, {});
  EXPECT_EQ(b.target_width, 3);
  EXPECT_EQ(b.target, (Words{4, 5, 6, 4, kEnd, 0}));
  EXPECT_EQ(b.target_in, (Words{kBegin, 4, 5, kBegin, 4, 0}));
  EXPECT_EQ(b.target_lengths, (Words{3, 2}));
}

// ---- training, scores, generation

ModelFolder train(const std::string& folder, const TextPart& part, const ModelConfig& config,
                  const TrainConfig& training) {
  const bool stream = config.reads == "stream";
  const auto t = learn_tokenizer(texts(part), {.kind = "characters", .newlines = stream});
  ModelFolder model = create_model(folder, config, training, {t, t});
  const auto corpus = std::make_shared<TextCorpus>(
      part, t,
      TextCorpusOptions{.lines = !stream,
                        .context = *longest_sentence(config),
                        .with_sources = is_bidirectional_language_model(config)});
  Trainer trainer(*model.model, model.params, corpus, training, folder);
  trainer.run({});
  return open_model(folder);
}

// A chain of two letters: each is followed by itself with probability 0.9.
std::string chain(int length, uint64_t seed) {
  Random random(seed);
  std::string text;
  char c = 'a';
  for (int i = 0; i < length; ++i) {
    if (random.uniform() < 0.1f) c = c == 'a' ? 'b' : 'a';
    text += c;
  }
  return text + "\n";
}

TEST(LanguageModel, ThePerplexityOfAKnownChainIsRight) {
  const double entropy = -(0.9 * std::log(0.9) + 0.1 * std::log(0.1));
  const Folder folder;
  const std::string path = folder.put("chain", chain(20000, 1));
  for (ModelConfig config : {small_rnn(), small_transformer()}) {
    SCOPED_TRACE(config.family);
    config.size = 16, config.positions = 32;
    const ModelFolder model = train(folder / ("m" + config.family), {path}, config,
                                    {.rate = 1e-2,
                                     .warmup = 20,
                                     .batch_tokens = 512,
                                     .smoothing = 0,
                                     .average = 0.9,
                                     .steps = kSlow ? 60 : 150});
    const TextScore s = LanguageModel(model).score(chain(4000, 2));
    EXPECT_EQ(s.pieces, 4001);
    EXPECT_EQ(s.characters, 4001);
    EXPECT_EQ(s.words, 1);
    // A text of 4000 letters has an entropy of its own: about 0.011 nats off.
    EXPECT_NEAR(s.nats_per_piece(), entropy, 0.03);
    EXPECT_DOUBLE_EQ(s.perplexity_by_piece(), std::exp(s.nats_per_piece()));
  }
}

// A model that knows nothing: every piece has the same probability, whatever was read.
ModelFolder ignorant(const Folder& folder, const ModelConfig& config) {
  const std::string path = folder.put("text", "abcdefg hij\nklm\n");
  const bool stream = config.reads == "stream";
  const auto t = learn_tokenizer(texts(TextPart{path}), {.kind = "characters", .newlines = stream});
  ModelFolder model = create_model(folder / "ignorant", config, {.steps = 1}, {t, t});
  for (const Parameter& p : model.params.all())
    if (has(p.name, "words") || has(p.name, "output"))
      for (int64_t i = 0; i < p.value.count(); ++i) p.value.data<float>()[i] = 0;
  return model;
}

TEST(LanguageModel, EveryPieceIsCountedOnce) {
  for (ModelConfig config : {small_rnn(), small_transformer(), small_elmo()}) {
    SCOPED_TRACE(config.family + " " + config.reads);
    const Folder folder;
    const ModelFolder folded = ignorant(folder, config);
    const LanguageModel model(folded);
    const double each = -std::log(double(model.tokenizer().size()));
    const std::string text = "abc def\nklm\nabcdefg\nhh\n";
    for (const int64_t batch : {1, 3, 16})
      for (const int64_t stride : {0, 1, 5}) {
        const TextScore s = model.score(text, {.batch = batch, .stride = stride});
        EXPECT_EQ(s.pieces, 23);
        EXPECT_EQ(s.characters, 23);
        EXPECT_EQ(s.words, model.of_lines() ? 9 : 5);
        EXPECT_NEAR(s.log_probability, 23 * each, 1e-4);
        EXPECT_DOUBLE_EQ(s.perplexity_by_word(), std::exp(-s.log_probability / double(s.words)));
      }
    const TextScore file = model.score(TextPart{folder.put("t", text)});
    EXPECT_NEAR(file.log_probability, 23 * each, 1e-4);
  }
}

// A stream in rows that overlap: the pieces are scored as if with all the past that a row has.
TEST(LanguageModel, AStreamIsScoredWithItsPast) {
  const Folder folder;
  const std::string path = folder.put("t", some_text(60));
  ModelConfig config = small_transformer();
  const ModelFolder folded = train(folder / "m", {path}, config, {.smoothing = 0, .steps = 5});
  const LanguageModel model(folded);
  const std::string text = "abcabc\nfedabc\nabc\n";  // 18 pieces in a context of 12
  const Words pieces = model.tokenizer().encode(text).ids;
  // By hand, with a stride of 4: rows [0, 12), [4, 16), [6 or 8, ...).
  const auto from = [&](size_t begin, size_t end, size_t counted) {
    Words in{kBegin};
    in.insert(in.end(), pieces.begin() + static_cast<std::ptrdiff_t>(begin),
              pieces.begin() + static_cast<std::ptrdiff_t>(end) - 1);
    const int64_t T = static_cast<int64_t>(in.size());
    const Tensor p =
        log_softmax(linear(folded.model->forward(no_source(1), ids(in, {1, T}), false).hidden,
                           folded.model->output_weight()));
    double sum = 0;
    for (size_t i = counted; i < end; ++i)
      sum +=
          p.values()[(i - begin) * static_cast<size_t>(p.size(2)) + static_cast<size_t>(pieces[i])];
    return sum;
  };
  const double wanted = from(0, 12, 0) + from(4, 16, 12) + from(8, 18, 16);
  EXPECT_NEAR(model.score(text, {.stride = 4}).log_probability, wanted, 1e-4);
  EXPECT_TRUE(has(message([&] { model.score(text, {.stride = 13}); }), "more than the context"));
  EXPECT_TRUE(has(message([&] { model.score_lines({"a"}); }), "model of a stream"));
  EXPECT_TRUE(has(message([&] { model.score(""); }), "there is no text"));
  EXPECT_TRUE(has(message([&] { model.score("caf\xE9"); }), "not UTF-8"));
}

TEST(LanguageModel, GenerationIsAFunctionOfItsSeed) {
  const Folder folder;
  const std::string path = folder.put("t", some_text(80));
  for (ModelConfig config : {small_rnn(), small_transformer(), small_elmo()}) {
    SCOPED_TRACE(config.family + " " + config.reads);
    const ModelFolder folded = train(folder / (config.family + config.reads), {path}, config,
                                     {.smoothing = 0, .steps = 8});
    const LanguageModel model(folded);
    const auto drawn = [&](uint64_t seed, int64_t count) {
      return model.generate(
          "ab", {.search = {.sample = true, .seed = seed}, .length = 40, .count = count});
    };
    const auto one = drawn(1, 1), three = drawn(1, 3);
    ASSERT_EQ(one.size(), 1u);
    ASSERT_EQ(three.size(), 3u);
    EXPECT_EQ(one[0].ids, drawn(1, 1)[0].ids);
    EXPECT_EQ(one[0].ids, three[0].ids);
    EXPECT_NE(one[0].ids, drawn(2, 1)[0].ids);
    EXPECT_NE(three[0].ids, three[1].ids);
    for (const Generated& g : three) {
      EXPECT_EQ(g.text.substr(0, 2), "ab");
      EXPECT_TRUE(model.of_lines() || g.ids.size() == 42u) << g.ids.size();
      EXPECT_LE(g.ids.size(), 42u);
      EXPECT_EQ(std::count(g.ids.begin(), g.ids.end(), kEnd), 0);
    }
    // Towards a temperature of 0, and from the one likeliest piece, a draw is greedy.
    const Generated greedy = model.generate("ab", {.search = {.beam = 1}, .length = 6})[0];
    const auto cold = [&](SearchOptions s) {
      s.sample = true;
      return model.generate("ab", {.search = s, .length = 6})[0].ids;
    };
    EXPECT_EQ(cold({.temperature = 1e-4}), greedy.ids);
    EXPECT_EQ(cold({.top_k = 1}), greedy.ids);
    EXPECT_EQ(cold({.top_p = 1e-6}), greedy.ids);
    // Its probability is that of reading it.
    const std::vector<Generated> best =
        model.generate("ab", {.search = {.beam = 3, .normalize = 0}, .length = 6, .count = 3});
    ASSERT_EQ(best.size(), 3u);
    for (const Generated& g : best) {
      const ReadText r = model.read(g.text, false);
      double sum = 0;
      for (size_t i = 2; i < g.ids.size(); ++i) sum += r.log_probability[i];
      // A line that ended has said so.
      if (model.of_lines() && g.ids.size() < 8) sum += r.log_probability.back();
      EXPECT_NEAR(g.log_probability, sum, 1e-4) << g.text;
    }
    EXPECT_GE(best[0].log_probability, best[1].log_probability);
    EXPECT_TRUE(has(message([&] { model.generate("", {.search = {.beam = 1}, .count = 2}); }),
                    "a beam of 1 cannot give 2"));
  }
}

TEST(LanguageModel, StoppingATrainingChangesNothing) {
  const Folder folder;
  const std::string path = folder.put("t", some_text(100));
  for (ModelConfig config : {small_rnn(), small_transformer(), small_elmo()}) {
    SCOPED_TRACE(config.family + " " + config.reads);
    config.dropout = 0.2;
    const std::string name = config.family + config.reads;
    const auto run = [&](const std::string& where, std::vector<int64_t> stops) {
      const bool stream = config.reads == "stream";
      const auto t = letters({path}, stream);
      for (const int64_t steps : stops) {
        TrainConfig training{.batch_tokens = 60, .smoothing = 0, .steps = steps};
        training.validate_every = training.save_every = 100;
        ModelFolder model = create_model(folder / where, config, training, {t, t});
        const auto corpus = std::make_shared<TextCorpus>(
            TextPart{path}, t,
            TextCorpusOptions{.lines = !stream,
                              .context = *longest_sentence(config),
                              .with_sources = is_bidirectional_language_model(config)});
        Trainer trainer(*model.model, model.params, corpus, training, model.path);
        trainer.resume();
        trainer.run({});
      }
      return read(folder.path() / where / "model.safetensors");
    };
    // Far enough for a second epoch, where the stream is cut elsewhere.
    EXPECT_TRUE(run(name + "1", {25}) == run(name + "2", {9, 14, 25}));
  }
}

TEST(LanguageModel, AFolderIsOpenedByWhatItIs) {
  const Folder folder;
  const std::string path = folder.put("t", some_text(50));
  train(folder / "lm", {path}, small_rnn(), {.steps = 1});
  EXPECT_TRUE(has(message([&] { Embedder{std::filesystem::path(folder / "lm")}; }),
                  "a language model in one direction"));
  const LanguageModel model{std::filesystem::path(folder / "lm")};
  EXPECT_TRUE(has(message([&] { model.read(std::string(13, 'a'), false); }), "context holds 12"));
  const ReadText r = model.read("abc", true);
  EXPECT_EQ(r.in.size(), 3u);
  EXPECT_EQ(r.out, model.tokenizer().encode("abc").ids);
  ASSERT_EQ(r.weights.size(), 1u);
  EXPECT_EQ(r.weights[0].values.shape(), (Shape{1, 1, 3, 3}));
}

// ---- vectors for words

TEST(Npy, TheHeaderIsNumpys) {
  const std::vector<int64_t> shape{2, 3}, one{5};
  const std::string header = npy_header(shape);
  std::string wanted("\x93NUMPY\x01\x00\x76\x00", 10);
  wanted += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  wanted += std::string(128 - 1 - wanted.size(), ' ') + "\n";
  EXPECT_EQ(header, wanted);
  EXPECT_TRUE(has(npy_header(one), "'shape': (5,), }"));
  EXPECT_TRUE(has(npy_header({}), "'shape': (), }"));
  const Folder folder;
  const std::vector<float> values{1, 2, 3, 4, 5, -0.5f};
  write_npy(folder / "m.npy", shape, values);
  const std::string bytes = read(folder / "m.npy");
  ASSERT_EQ(bytes.size(), header.size() + 24);
  EXPECT_EQ(bytes.substr(0, header.size()), header);
  EXPECT_EQ(std::memcmp(bytes.data() + header.size(), values.data(), 24), 0);
  EXPECT_TRUE(has(message([&] { write_npy(folder / "m.npy", one, values); }), "6 numbers"));
}

TEST(Embedder, AVectorForEachWordInItsSentence) {
  const Folder folder;
  const std::string path = folder.put("t", some_text(80));
  const auto elmo = train(folder / "elmo", {path}, small_elmo(), {.smoothing = 0, .steps = 5});
  const Embedder embedder(elmo);
  EXPECT_EQ(embedder.layers(), 2);
  const std::vector<std::string> lines{"ab cd a", "", "a cd"};
  for (const Layer layer : {Layer::mix(), Layer::at(0), Layer::at(1), Layer::at(2)}) {
    const std::vector<WordVectors> all = embedder.embed(lines, layer);
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].words, (std::vector<std::string>{"ab", "cd", "a"}));
    EXPECT_TRUE(all[1].words.empty());
    EXPECT_EQ(all[0].size, 16);
    EXPECT_EQ(all[0].values.size(), 48u);
    // Alone or among others.
    EXPECT_EQ(embedder.embed({lines[2]}, layer)[0].values, all[2].values);
    // Only the table does not know the sentence.
    const double near = cosine(all[0][1], all[2][1]);
    EXPECT_EQ(near > 1 - 1e-6, layer.number == 0) << near;
  }
  // The mix, by hand.
  const std::vector<double> w = elmo.params.at("mix.weights").value.values();
  const double scale = elmo.params.at("mix.scale").value.values()[0];
  double sum = 0;
  for (const double x : w) sum += std::exp(x);
  const auto mixed = embedder.embed({"ab cd"}, Layer::mix())[0];
  std::vector<double> by_hand(mixed.values.size());
  for (size_t j = 0; j < w.size(); ++j) {
    const auto one = embedder.embed({"ab cd"}, Layer::at(static_cast<int64_t>(j)))[0];
    for (size_t i = 0; i < by_hand.size(); ++i)
      by_hand[i] += scale * std::exp(w[j]) / sum * double(one.values[i]);
  }
  for (size_t i = 0; i < by_hand.size(); ++i)
    EXPECT_NEAR(double(mixed.values[i]), by_hand[i], kRounding);
  EXPECT_NE(w[0], w[1]);  // they have moved from where they began, all equal
  EXPECT_TRUE(has(message([&] { embedder.embed({"ab"}, Layer::at(3)); }), "layer 3 of a model"));
  EXPECT_TRUE(has(message([&] { embedder.embed({"caf\xE9"}); }), "line 1: not UTF-8"));
  EXPECT_TRUE(has(message([&] { embedder.embed({std::string(30, 'a')}); }), "has 30 pieces"));
}

TEST(Embedder, TranslatorsGiveThemTooEachWordTheMeanOfItsPieces) {
  const Folder folder;
  const std::string path = folder.put("t", some_text(50));
  const auto t = letters({path}, false);
  for (const char* family : {"rnn", "transformer"}) {
    ModelConfig c;
    c.family = family, c.size = 8, c.encoder_layers = 2, c.inner = 12, c.heads = 2;
    if (c.family == "transformer") c.score = "scaled_dot";
    const ModelFolder model = create_model(folder / family, c, {.steps = 1}, {t, t});
    const Embedder embedder(model);
    EXPECT_EQ(embedder.usual().number, 2);
    const WordVectors v = embedder.embed({"abc de"})[0];
    EXPECT_EQ(v.words.size(), 2u);
    EXPECT_EQ(v.size, c.family == "rnn" ? 16 : 8);
    // By hand: pieces a b c ▁ d e, the space with the word behind it.
    Words pieces = t->encode("abc de").ids;
    pieces.push_back(kEnd);
    const WordLayers found = model.model->word_layers({ids(pieces, {1, 7}), {7}}, kBegin);
    ASSERT_EQ(found.layers.size(), 3u);
    EXPECT_FALSE(found.mix.has_value());
    const std::vector<double> second = mean(slice(found.layers[2], 1, 3, 6), 1).values();
    for (size_t i = 0; i < second.size(); ++i) EXPECT_NEAR(double(v[1][i]), second[i], kRounding);
    EXPECT_TRUE(has(message([&] { embedder.embed({"a"}, Layer::mix()); }), "learned no mix"));
    // The last layer is what the decoder reads.
    if (c.family == "transformer") {
      const State state = model.model->start({ids(pieces, {1, 7}), {7}});
      EXPECT_EQ(state.sentence.at("keys0").size(2), 7);
    }
  }
}

TEST(Embedder, ComparesAWordInTwoSentences) {
  const Folder folder;
  const std::string path = folder.put("t", some_text(80));
  const auto elmo = train(folder / "elmo", {path}, small_elmo(), {.smoothing = 0, .steps = 5});
  const Embedder embedder(elmo);
  const Nearness n = compare(embedder, "a bed fad", "deaf bed", "bed", Layer::mix());
  EXPECT_NEAR(n.table, 1, 1e-6);
  EXPECT_LT(n.contextual, 1 - 1e-6);
  EXPECT_TRUE(has(message([&] { compare(embedder, "a bed", "a b", "bed", Layer::mix()); }),
                  "no word 'bed' in 'a b'"));
  EXPECT_EQ(find_word({"The", "Bank,", "bank"}, "bank"), 1u);
  EXPECT_EQ(find_word({"The", "banks"}, "bank"), std::nullopt);
  EXPECT_TRUE(has(message([] { layer_from("top"); }), "wants 'mix' or a number"));
  EXPECT_EQ(layer_from("3").number, 3);
  EXPECT_FALSE(layer_from("mix").number.has_value());
}

TEST(Senses, NeighboursOfTheSameSenseAreCounted) {
  const std::vector<SenseSentence> test{{"bark", "dog", "a"},   {"bark", "dog", "b"},
                                        {"bark", "tree", "c"},  {"bark", "tree", "d"},
                                        {"bat", "animal", "e"}, {"bat", "club", "f"}};
  // Vectors that tell senses apart, those that know nothing, and those that are always wrong.
  const SenseResult right =
      nearest_senses(test, {{1, 0.1f}, {1, 0}, {0, 1}, {0.1f, 1}, {1, 0}, {0, 1}});
  EXPECT_NEAR(right.by_word.at("bark"), 1, 1e-12);
  EXPECT_NEAR(right.by_word.at("bat"), 0, 1e-12);  // the only other one is of the other sense
  EXPECT_NEAR(right.same_sense, 4.0 / 6, 1e-12);
  const SenseResult blind = nearest_senses(test, std::vector<std::vector<float>>(6, {1, 2}));
  EXPECT_NEAR(blind.by_word.at("bark"), 1.0 / 3, 1e-12);
  const SenseResult wrong =
      nearest_senses(test, {{1, 0}, {0, 1}, {1, 0.1f}, {0.1f, 1}, {1, 0}, {0, 1}});
  EXPECT_NEAR(wrong.by_word.at("bark"), 0, 1e-12);
}

TEST(Senses, TheFileIsChecked) {
  const Folder folder;
  const auto said = [&](const std::string& text) {
    return message([&] { read_senses(folder.put("s.tsv", text)); });
  };
  EXPECT_EQ(said("# word\nbark\tdog\tdogs bark .\nbark\ttree\tthe bark of a tree\n"), "");
  EXPECT_TRUE(has(said("bark\tdog\n"), "s.tsv: line 1: wants a word, a sense and a sentence"));
  EXPECT_TRUE(has(said("bark\tdog\tcats meow\n"), "no word 'bark' in the sentence"));
  EXPECT_TRUE(has(said("bark\tdog\tdogs bark\n"), "has one sense only"));
  EXPECT_TRUE(has(said("\n"), "has no sentences"));
  const auto ours = read_senses(std::filesystem::path(HEED_DATA) / "senses" / "senses.tsv");
  std::map<std::string, std::map<std::string, int>> counts;
  std::set<std::string> sentences;
  for (const SenseSentence& s : ours) ++counts[s.word][s.sense], sentences.insert(s.sentence);
  EXPECT_EQ(sentences.size(), ours.size());
  EXPECT_GE(counts.size(), 12u);
  for (const auto& [word, senses] : counts)
    for (const auto& [sense, count] : senses) EXPECT_GE(count, 3) << word << ": " << sense;
}

}  // namespace
}  // namespace heed
