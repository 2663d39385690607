// Models in folders, and lines of text through them.
#include "heed/translation/translator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "heed/base/parallel.h"
#include "heed/files/checksum.h"
#include "heed/metrics/metrics.h"
#include "heed/models/tensor_file.h"
#include "heed/training/choose_head.h"
#include "heed/training/link_threshold.h"
#include "heed/training/run_folder.h"
#include "heed/translation/config_file.h"
#include "tests/toy.h"

namespace heed {
namespace {

ModelConfig tiny(const std::string& family) {
  ModelConfig c;
  c.family = family, c.size = 16, c.inner = 24, c.heads = 2;
  c.score = family == "rnn" ? "additive" : "scaled_dot";
  return c;
}

TrainConfig one_step() {
  TrainConfig c;
  c.steps = 1;
  return c;
}

// A model with its first parameters, as `heed train` would leave it.
void put_model(const Folder& folder, const ModelConfig& config) {
  const ModelFolder model =
      create_model(folder.path(), config, one_step(), toy_corpus(folder)->tokenizers());
  save_parameters(model.params, folder / "model.safetensors");
}

std::vector<std::string> lines_of(int count) {
  std::vector<std::string> lines;
  Random random(9);
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (uint32_t n = random.below(7); n-- > 0;)
      line += std::string(line.empty() ? "" : " ") + static_cast<char>('a' + random.below(9));
    lines.push_back(line);  // some are empty, some have a word that is not known
  }
  return lines;
}

TEST(ModelFolder, ComesBackAsItWas) {
  for (const char* family : {"rnn", "transformer"}) {
    SCOPED_TRACE(family);
    const Folder folder;
    ModelConfig config = tiny(family);
    config.weigh = "entmax";
    TrainConfig training = one_step();
    training.seed = 5, training.rate = 0.25;
    const ModelFolder made =
        create_model(folder / "new/model", config, training, toy_corpus(folder)->tokenizers());
    save_parameters(made.params, made.path / "model.safetensors");
    const ModelFolder opened = open_model(made.path);
    EXPECT_EQ(to_json(opened.config), to_json(config));
    EXPECT_EQ(to_json(training_of(made.path)), to_json(training));
    EXPECT_EQ(opened.tokenizers.source->size(), made.tokenizers.source->size());
    for (size_t i = 0; i < made.params.all().size(); ++i)
      EXPECT_EQ(opened.params.all()[i].value.values(), made.params.all()[i].value.values());
    const Translator before(made), after(made.path);
    for (const char* line : {"a b c", "d"})
      EXPECT_EQ(before.translate({line})[0].best().log_probability,
                after.translate({line})[0].best().log_probability);
  }
}

TEST(ModelFolder, OneVocabularyForBothStaysOne) {
  const Folder folder;
  const auto words = toy_corpus(folder)->tokenizers().source;
  ModelConfig config = tiny("transformer");
  config.tied = true;
  const ModelFolder made = create_model(folder / "m", config, one_step(), {words, words});
  save_parameters(made.params, made.path / "model.safetensors");
  const ModelFolder opened = open_model(made.path);
  EXPECT_EQ(opened.tokenizers.source, opened.tokenizers.target);
  EXPECT_EQ(opened.params.count(), made.params.count());
}

TEST(ModelFolder, TokenizersOfARunBeforeAreForgotten) {
  const Folder folder;
  const TokenizerPair two = toy_corpus(folder)->tokenizers();
  create_model(folder / "m", tiny("rnn"), one_step(), {two.source, two.source});
  create_model(folder / "m", tiny("rnn"), one_step(), two);
  const ModelFolder opened = open_model(folder / "m", Parameters::leave);
  EXPECT_NE(opened.tokenizers.source, opened.tokenizers.target);
}

TEST(ModelFolder, ChecksumsAreThoseOfGzip) {
  const Folder folder;
  EXPECT_EQ(checksum(folder.put("digits", "123456789")), "cbf43926");
  EXPECT_EQ(checksum(folder.put("nothing", "")), "00000000");
  const std::string much(200'000, 'x');  // more than is read at a time
  EXPECT_EQ(checksum(folder.put("one", much)), checksum(folder.put("same", much)));
  EXPECT_NE(checksum(folder / "one"), checksum(folder.put("other", much + 'x')));
}

// What who edits config.json by hand and writes the checksum into it that they are told has then.
std::string accepted(const std::string& config) {
  const size_t end = config.rfind(",\n \"checksum\"");
  return with_own_checksum(config.substr(0, end) + "\n}");
}

TEST(ModelFolder, SaysWhatIsMissingOrDoesNotFit) {
  const Folder folder;
  put_model(folder, tiny("rnn"));
  const auto said = [&] { return message([&] { open_model(folder.path()); }); };
  EXPECT_EQ(said(), "");
  const auto without = [&](const std::string& name) {
    std::filesystem::rename(folder / name, folder / "away");
    const std::string text = said();
    std::filesystem::rename(folder / "away", folder / name);
    return text;
  };
  EXPECT_TRUE(has(without("config.json"), "no config.json in it")) << without("config.json");
  EXPECT_TRUE(has(without("target.words"), "has no target tokenizer")) << without("target.words");
  EXPECT_TRUE(has(without("source.words"), "has no source tokenizer")) << without("source.words");
  EXPECT_TRUE(has(without("model.safetensors"), "model.safetensors: not there yet"))
      << without("model.safetensors");
  const auto with = [&](const std::string& name, const std::string& content) {
    const std::string kept = read(folder / name);
    folder.put(name, content);
    const std::string text = said();
    folder.put(name, kept);
    return text;
  };
  const std::string config = read(folder / "config.json");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = config;
    EXPECT_TRUE(has(other, from));
    other.replace(other.find(from), from.size(), to);
    return with("config.json", accepted(other));
  };
  EXPECT_TRUE(
      has(changed("\"heed\": 2", "\"heed\": 3"), "format 3, this heed reads formats 1 to 2"));
  EXPECT_TRUE(has(changed("\"wiring\"", "\"wirring\""), "did you mean 'wiring'"));
  EXPECT_TRUE(has(changed("\"size\": 16", "\"size\": 18"), "the model wants f32"));
  EXPECT_TRUE(has(with("config.json", "{}"), "not the configuration"));
  EXPECT_TRUE(has(with("config.json", "caf"), "not the configuration"));
  const std::string grown = read(folder / "source.words") + "more\n";
  EXPECT_TRUE(has(with("source.words", grown), "source.words: damaged, or not this model's"));
  const std::string weights = read(folder / "model.safetensors");
  EXPECT_TRUE(has(with("model.safetensors", weights.substr(0, 1000)), "model.safetensors"));
  // The same in a folder of format 1, before there were checksums.
  std::string first = config.substr(0, config.find(",\n \"checksums\"")) + "\n}\n";
  first.replace(first.find("\"heed\": 2"), 9, "\"heed\": 1");
  folder.put("config.json", first);
  EXPECT_EQ(said(), "");
  EXPECT_TRUE(has(with("source.words", grown), "tensor 'source.")) << with("source.words", grown);
  EXPECT_TRUE(has(with("config.json", R"({"alignment": {"layer": 1},)" + first.substr(1)),
                  "'alignment' cannot be"));
  folder.put("config.json", config);
  folder.put("joint.words", grown);
  EXPECT_TRUE(has(said(), "joint.words: not this model's")) << said();
  std::filesystem::remove(folder / "joint.words");
  EXPECT_EQ(said(), "");
  EXPECT_TRUE(has(message([&] { open_model(folder / "nosuch"); }), "no such model folder"));
  EXPECT_TRUE(has(message([&] { open_model(folder / "config.json"); }), "a model is a folder"));
  std::filesystem::remove(folder / "config.json");
  std::filesystem::create_directory(folder / "config.json");  // what root, too, cannot read
  EXPECT_TRUE(has(said(), "config.json: cannot be read: Is a directory")) << said();
}

TEST(ModelFolder, AConfigurationThatWasChangedByHandSaysHowToAcceptIt) {
  const Folder folder;
  put_model(folder, tiny("rnn"));
  const auto said = [&] { return message([&] { open_model(folder.path()); }); };
  std::string config = read(folder / "config.json");
  config.replace(config.find("\"rate\": 0.001"), 13, "\"rate\": 0.002");
  folder.put("config.json", config);
  const std::string words = said(), before = "write \"checksum\": \"";
  ASSERT_TRUE(has(words, "config.json: damaged, or changed by hand")) << words;
  ASSERT_TRUE(has(words, before)) << words;
  const std::string digits = words.substr(words.find(before) + before.size(), 8);
  config.replace(config.rfind("\"checksum\": \"") + 13, 8, digits);
  folder.put("config.json", config);
  EXPECT_EQ(said(), "");
  EXPECT_EQ(training_of(folder.path()).rate, 0.002);
}

TEST(ModelFolder, NothingIsWrittenForAModelThatCannotBe) {
  const Folder folder;
  const TokenizerPair tokenizers = toy_corpus(folder)->tokenizers();
  ModelConfig bad = tiny("rnn");
  bad.heads = 3;
  EXPECT_THROW(create_model(folder / "m", bad, one_step(), tokenizers), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "m"));
  EXPECT_TRUE(has(
      message([&] { create_model(folder.put("file", "x"), tiny("rnn"), one_step(), tokenizers); }),
      "folder cannot be made"));
}

// ---- translating

struct Line {
  std::vector<std::string> texts;
  std::vector<double> scores;
  std::vector<std::vector<std::vector<float>>> weights;
  bool operator==(const Line&) const = default;
};

std::vector<Line> translated(const Translator& translator, const std::vector<std::string>& lines,
                             const TranslateOptions& o) {
  std::vector<Line> out;
  for (const Translation& t : translator.translate(lines, o)) {
    out.emplace_back();
    for (const auto& c : t.candidates) {
      out.back().texts.push_back(c.text);
      out.back().scores.push_back(c.log_probability);
      out.back().weights.push_back(c.weights);
    }
  }
  return out;
}

TEST(Translator, BatchesThreadsAndOrderChangeNothing) {
  const int count = kSlow ? 20 : 70, all_threads = threads();
  const std::vector<std::string> lines = lines_of(count);
  for (const char* family : {"rnn", "transformer"}) {
    SCOPED_TRACE(family);
    const Folder folder;
    put_model(folder, tiny(family));
    const Translator translator(folder.path());
    for (const bool sample : {false, true}) {
      TranslateOptions o;
      o.search.beam = 3, o.search.best = sample ? 1 : 2, o.search.max_extra = 4;
      o.search.want_weights = true, o.search.sample = sample;
      o.batch = 1;
      const std::vector<Line> wanted = translated(translator, lines, o);
      for (const int64_t batch : {7, 64})
        for (const int n : {1, 2}) {
          set_threads(n);
          o.batch = batch;
          EXPECT_TRUE(translated(translator, lines, o) == wanted)
              << "batches of " << batch << ", threads " << n;
        }
      set_threads(all_threads);
      if (sample) continue;  // what is drawn depends on the line's number
      std::vector<std::string> back(lines.rbegin(), lines.rend());
      std::vector<Line> turned = translated(translator, back, o);
      std::reverse(turned.begin(), turned.end());
      EXPECT_TRUE(turned == wanted) << "in another order";
    }
  }
}

// Where there are lines enough, each thread takes steps of its own.
TEST(Translator, PartsSideBySideAreTheWhole) {
  const std::vector<std::string> lines = lines_of(kSlow ? 20 : 70);
  for (const char* family : {"rnn", "transformer"}) {
    const Folder folder;
    put_model(folder, tiny(family));
    TranslateOptions o;
    o.search.beam = 2, o.search.want_weights = true;
    const Translator one(LoadedModel::open(folder.path(), {.threads = 1}));
    const std::vector<Line> wanted = translated(one, lines, o);
    EXPECT_EQ(one.loaded().engine().lanes(), 1);
    const Translator three(LoadedModel::open(folder.path(), {.threads = 3}));
    EXPECT_EQ(three.loaded().engine().lanes(), 3);
    const auto here = std::this_thread::get_id();
    int64_t told = 0;
    o.progress = [&](int64_t done) {
      EXPECT_EQ(std::this_thread::get_id(), here);
      EXPECT_EQ(done, ++told);
    };
    EXPECT_TRUE(translated(three, lines, o) == wanted);
    EXPECT_EQ(told, std::ranges::count_if(lines, [](const auto& line) { return !line.empty(); }));
    // What the caller throws, he gets; what goes wrong in a part, too.
    o.progress = [&](int64_t done) { require(done < 5, "enough of it"); };
    EXPECT_TRUE(has(message([&] { three.translate(lines, o); }), "enough of it"));
    o.progress = nullptr;
    o.search.prefixes.assign(lines.size(), {1 << 20});
    EXPECT_TRUE(has(message([&] { three.translate(lines, o); }), "a prefix has token"));
    o.search.prefixes.clear();
    EXPECT_TRUE(translated(three, lines, o) == wanted);
    // Also where they grow before one's eyes.
    std::map<size_t, std::string> grown;
    o.partial = [&](size_t line, const std::string& text, const auto&) { grown[line] = text; };
    EXPECT_TRUE(translated(three, lines, o) == wanted);
    EXPECT_GT(grown.size(), lines.size() / 2);
  }
}

// Long lines, a few tokens of them at a time: the same bytes from a part of the memory.
TEST(Translator, TokensAtATimeBoundMemoryAndChangeNothing) {
  const Folder folder;
  put_model(folder, tiny("transformer"));
  std::vector<std::string> lines = lines_of(20);
  for (size_t i = 0; i < 24; ++i) {
    std::string line = "a";
    for (size_t k = 0; k < 40 + i; ++k) line += k % 3 ? " b" : " c";
    lines.push_back(line);
  }
  const auto peak_of = [&](int64_t tokens, std::vector<Line>& found) {
    const Translator translator(LoadedModel::open(folder.path(), {.threads = 1}));
    TranslateOptions o;
    o.search.beam = 3, o.search.want_weights = true, o.batch_tokens = tokens;
    o.search.patience = INFINITY;  // searches are as long as they may be
    Arena& arena = translator.loaded().engine().context().arena(Device::cpu);
    const int64_t before = arena.used();
    arena.reset_peak();
    found = translated(translator, lines, o);
    return arena.peak() - before;
  };
  std::vector<Line> all, few, one;
  const int64_t unbounded = peak_of(1 << 30, all);
  EXPECT_LT(peak_of(3 * 64 * 4, few), unbounded / 3);
  EXPECT_LT(peak_of(1, one), unbounded / 8);
  EXPECT_TRUE(few == all);
  EXPECT_TRUE(one == all);

  const Translator translator(folder.path());
  std::vector<std::string> targets;
  for (const Line& line : all) targets.push_back(line.texts[0]);
  const auto scores = [&](int64_t tokens) {
    std::vector<double> out;
    for (const Translation& t : translator.score(lines, targets, {.batch_tokens = tokens}))
      out.push_back(t.best().log_probability);
    return out;
  };
  EXPECT_EQ(scores(100), scores(1 << 30));
}

TEST(Translator, DrawsDependOnTheNumberOfTheLine) {
  const Folder folder;
  put_model(folder, tiny("rnn"));
  const Translator translator(folder.path());
  TranslateOptions o;
  o.search.sample = true, o.search.min_length = 5;
  const std::vector<std::string> same(4, "a b c");
  const auto all = translated(translator, same, o);
  EXPECT_NE(all[0].texts, all[1].texts);
  o.first_line = 3;  // the second half of the same file
  const auto half = translated(translator, {"a b c", "a b c"}, o);
  EXPECT_EQ(half[0].texts, all[2].texts);
  EXPECT_EQ(half[1].texts, all[3].texts);
}

TEST(Translator, SearchesAsTheModelsMakersDoUnlessTheCallerKnowsBetter) {
  const Folder folder;
  const auto tokenizers = toy_corpus(folder)->tokenizers();
  ModelFolder model = create_model(folder / "m", tiny("rnn"), one_step(), tokenizers);
  const std::vector<std::string> lines{"a b c", "d e f g"};
  const auto pieces = [&](const TranslateOptions& o) {
    std::vector<std::vector<Id>> out;
    for (const Translation& t : Translator(model).translate(lines, o))
      out.push_back(t.best().target.ids);
    return out;
  };
  TranslateOptions o, twice;
  twice.search.no_repeat = 2;
  const auto plain = pieces(o), of_twice = pieces(twice);
  model.search.min_length = 9, model.search.no_repeat = 1;
  const auto longer = pieces(o);
  for (const std::vector<Id>& ids : longer) EXPECT_GE(ids.size(), 9u);
  EXPECT_NE(longer, plain);
  o.search_is_whole = true;
  EXPECT_EQ(pieces(o), plain);
  model.search.min_length.reset();
  EXPECT_EQ(pieces(twice), of_twice);
}

TEST(Translator, EmptyLinesStayEmptyAndInTheirPlace) {
  const Folder folder;
  put_model(folder, tiny("rnn"));
  const Translator translator(folder.path());
  TranslateOptions o;
  o.search.min_length = 1;
  const auto found = translator.translate({"", "a b", "  ", "c"}, o);
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].best().text, "");
  EXPECT_NE(found[1].best().text, "");
  EXPECT_EQ(found[2].best().text, "");
  EXPECT_EQ(found[3].best().text, translator.translate({"c"}, o)[0].best().text);
  EXPECT_TRUE(translator.translate({}, o).empty());
  const auto scored = translator.score({"", "a b", "a"}, {"a", "", "b a"}, o);
  ASSERT_EQ(scored.size(), 3u);
  EXPECT_LT(scored[1].best().log_probability, 0);
}

TEST(Translator, ScoresOfGivenTargetsAreThoseOfSearch) {
  const Folder folder;
  put_model(folder, tiny("transformer"));
  const Translator translator(folder.path());
  const std::vector<std::string> lines{"a b c", "d", "h g f e"};
  TranslateOptions o;
  o.search.want_weights = true, o.search.max_extra = 2, o.search.allow_unknown = false;
  const auto found = translator.translate(lines, o);
  std::vector<std::string> targets;
  for (const Translation& t : found) targets.push_back(t.best().text);
  const auto scored = translator.score(lines, targets, o);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(scored[i].best().target.ids, found[i].best().target.ids);
    EXPECT_NEAR(scored[i].best().log_probability, found[i].best().log_probability, 1e-4);
    EXPECT_NEAR(scored[i].best().score, found[i].best().score, 1e-5);
    EXPECT_EQ(scored[i].best().weights.size(), found[i].best().weights.size());
  }
  EXPECT_TRUE(has(message([&] { translator.score({"a"}, {}, o); }), "1 sources, 0 targets"));
}

TEST(Translator, LongLinesAreCutAndSayingSo) {
  const Folder folder;
  ModelConfig config = tiny("transformer");
  config.position = "learned", config.positions = 10;
  put_model(folder, config);
  const Translator translator(folder.path());
  std::string line = "a";
  for (int i = 0; i < 30; ++i) line += " b";
  TranslateOptions o;
  EXPECT_EQ(translator.longest(o), 9);
  o.search.min_length = 30;  // as far as the positions go
  const auto found = translator.translate({line, "a b"}, o);
  EXPECT_TRUE(found[0].cut);
  EXPECT_EQ(found[0].source.ids.size(), 9u);
  EXPECT_FALSE(found[1].cut);
  EXPECT_EQ(found[1].best().target.ids.size(), 9u);
  o.max_length = 4;
  EXPECT_EQ(translator.translate({line}, o)[0].source.ids.size(), 4u);
}

TEST(Translator, WhatIsNotTextIsRefusedByItsLine) {
  const Folder folder;
  put_model(folder, tiny("rnn"));
  const Translator translator(folder.path());
  TranslateOptions o;
  o.first_line = 2001;
  EXPECT_EQ(message([&] { translator.translate({"a", "caf\xE9"}, o); }), "line 2002: not UTF-8");
  o.batch = 0;
  EXPECT_TRUE(has(message([&] { translator.translate({"a"}, o); }), "at least one sentence"));
}

// ---- what the vocabulary does not have

// What is said is forced by a prefix with an unknown word in its middle.
TEST(Translator, AnUnknownWordIsReplacedByTheSourceWordThatItWeighsMost) {
  for (const std::string kind : {"words", "characters"}) {
    const Folder folder;
    const auto lines = [i = 0]() mutable -> std::optional<std::string> {
      return i++ < 3 ? std::optional<std::string>("a b c") : std::nullopt;
    };
    const auto tokenizer = learn_tokenizer(lines, {.kind = kind, .size = 100});
    const ModelFolder made =
        create_model(folder.path(), tiny("rnn"), one_step(), {tokenizer, tokenizer});
    save_parameters(made.params, folder / "model.safetensors");
    const Translator translator(folder.path());
    const bool words = kind == "words";
    TranslateOptions o;
    o.search.prefixes = {tokenizer->encode(words ? "a q b" : "aqb").ids};
    o.search.want_weights = true;
    const std::string source = "c xyz 7";
    const auto plain = translator.translate({source}, o)[0];
    ASSERT_TRUE(plain.best().text.starts_with(words ? "a <unk> b" : "a<unk>b"));
    o.replace_unknown = true, o.search.want_weights = false;
    const auto found = translator.translate({source}, o)[0];
    EXPECT_EQ(found.best().target.ids, plain.best().target.ids);
    const std::vector<float>& row = plain.best().weights[1];
    const auto most = std::max_element(row.begin(), row.end() - 1) - row.begin();  // not the end
    const std::vector<std::string> texts =
        words ? std::vector<std::string>{"c", "xyz", "7"}
              : std::vector<std::string>{"c", " ", "x", "y", "z", " ", "7"};
    const std::string copied = texts.at(static_cast<size_t>(most));
    EXPECT_TRUE(found.best().text.starts_with(words ? "a " + copied + " b" : "a" + copied + "b"))
        << found.best().text;
    EXPECT_EQ(found.best().text.find("<unk>"), std::string::npos) << found.best().text;
    EXPECT_EQ(found.best().target.text, found.best().text);
  }
  const Folder folder;
  ModelConfig none = tiny("rnn");
  none.score = "none";
  put_model(folder, none);
  EXPECT_TRUE(
      has(message([&] { Translator(folder.path()).translate({"a"}, {.replace_unknown = true}); }),
          "a model without attention"));
}

// ---- whose weights align

// A model that has learnt nothing has flat weights; what is the best of them can be told.
constexpr ExtractOptions kExtract{.how = Extract::best};

std::vector<std::string> links_of(const Translator& translator,
                                  const std::vector<Translation>& all) {
  std::vector<std::string> out;
  for (const Translation& t : all)
    out.push_back(to_pharaoh(word_alignment(
        {translator.model().tokenizers, t.source, t.best().target, t.best().weights}, kExtract)));
  return out;
}

// With a shift a word's weights are those of the step after the one that wrote it.
TEST(Translation, AHeadThatReadsWordsAlignsThemAStepLater) {
  const Folder folder;
  put_model(folder, tiny("transformer"));
  keep_alignment(folder.path(), {.layer = 0, .head = 1, .shift = 1});
  const Translator translator(folder.path());
  EXPECT_EQ(translator.model().alignment.shift, 1);
  const std::vector<std::string> lines{"a b c d", "b a"};
  TranslateOptions own, named;
  own.search.want_weights = named.search.want_weights = true;
  named.search.layer = 0, named.search.head = 1;
  for (const bool forced : {false, true}) {
    const auto run = [&](const TranslateOptions& o) {
      return forced ? translator.score(lines, {"c a b", "a a"}, o) : translator.translate(lines, o);
    };
    const std::vector<Translation> later = run(own), then = run(named);
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto &x = later[i].best().weights, &y = then[i].best().weights;
      ASSERT_EQ(x.size(), y.size());
      ASSERT_GT(x.size(), 1u);
      for (size_t t = 0; t + 1 < x.size(); ++t) EXPECT_EQ(x[t], y[t + 1]);
      EXPECT_NE(x[0], y[0]);
    }
  }
}

TEST(ChooseHead, FindsTheHeadThatTheLinksCameFrom) {
  const Folder folder;
  ModelConfig config = tiny("transformer");
  config.decoder_layers = 2;
  put_model(folder, config);
  const Translator translator(folder.path());
  std::vector<std::string> sources = lines_of(30), targets = lines_of(30);
  std::reverse(targets.begin(), targets.end());
  TranslateOptions o;
  o.search.want_weights = true;
  const auto links = [&](const AlignmentHead& by) {
    TranslateOptions named = o;
    named.search.layer = by.layer, named.search.head = by.head, named.search.shift = by.shift;
    return links_of(translator, translator.score(sources, targets, named));
  };
  const std::vector<std::string> gold = links({0, 1});
  const std::vector<HeadError> errors =
      head_errors(translator, sources, targets, gold, {.extract = kExtract});
  // Each as its own links score.
  std::vector<AlignmentHead> wanted;
  for (const int64_t layer : {0, 1})
    for (const int64_t head : {0, 1, -1})
      for (const int64_t shift : {0, 1}) wanted.push_back({layer, head, shift});
  ASSERT_EQ(errors.size(), wanted.size());
  const auto aer = make_aer();
  for (size_t i = 0; i < errors.size(); ++i) {
    EXPECT_EQ(errors[i].head, wanted[i]);
    EXPECT_EQ(errors[i].aer,
              aer->score(sum_statistics(statistics(*aer, links(wanted[i]), {gold}))));
    EXPECT_EQ(errors[i].aer == 0, wanted[i] == (AlignmentHead{0, 1})) << i;
  }
  EXPECT_EQ(best_head(errors).head, (AlignmentHead{0, 1}));

  // Kept, it is the one that aligns, unless another is named.
  const std::vector<std::string> before =
      links_of(translator, translator.score(sources, targets, o));
  EXPECT_NE(before, gold);
  keep_alignment(folder.path(), best_head(errors).head);
  const Translator after(folder.path());
  EXPECT_EQ(links_of(after, after.score(sources, targets, o)), gold);
  o.search.layer = -1;
  EXPECT_EQ(links_of(after, after.score(sources, targets, o)), before);
  EXPECT_EQ(to_json(after.model().config), to_json(config));
}

// Links of weights are wrong in as many ways as make_aer() counts, by whatever threshold.
TEST(LinkErrors, ChoosesTheThresholdOfTheFewestErrors) {
  const Folder folder;
  put_model(folder, tiny("transformer"));
  const Translator translator(folder.path());
  const std::vector<std::string> lines = lines_of(30);
  const std::vector<Translation> pairs =
      translator.score(lines, lines, {.search = {.want_weights = true}});
  const auto weighed = [&](const Translation& t) {
    return WeighedPair{translator.model().tokenizers, t.source, t.best().target, t.best().weights};
  };
  const auto links = [&](double threshold) {
    std::vector<std::string> out;
    for (const Translation& t : pairs)
      out.push_back(to_pharaoh(word_alignment(weighed(t), {.threshold = threshold})));
    return out;
  };
  const auto aer = make_aer();
  for (const double wanted : {0.2, 0.25, 0.3}) {
    const std::vector<std::string> gold = links(wanted);
    LinkErrors all{ExtractOptions()}, given({.threshold = 0.35}), best({.how = Extract::best});
    for (size_t i = 0; i < pairs.size(); ++i)
      for (LinkErrors* errors : {&all, &given, &best})
        errors->add(weighed(pairs[i]), parse_gold_alignment(gold[i]));
    EXPECT_EQ(all.best().aer, 0);
    EXPECT_EQ(links(*all.best().threshold), gold);
    EXPECT_EQ(given.best().threshold, 0.35);
    EXPECT_EQ(given.best().aer, aer->score(sum_statistics(statistics(*aer, links(0.35), {gold}))));
    EXPECT_EQ(best.best().threshold, std::nullopt);
    EXPECT_GT(best.best().aer, 0);
    // One that is farther from the usual must be better than by chance.
    const LinkErrors::Best sure = all.best_by_chance();
    EXPECT_LE(std::abs(*sure.threshold - kLinkThreshold),
              std::abs(*all.best().threshold - kLinkThreshold));
  }
}

// A model that was kept with a threshold makes its links by it, unless another is given.
TEST(Translation, AModelKnowsHowLikelyItsLinksMustBe) {
  const Folder folder;
  put_model(folder, tiny("transformer"));
  const std::vector<std::string> lines = lines_of(30);
  const auto links = [&](const ExtractOptions& how) {
    const Translator translator(folder.path());
    std::vector<Links> out;
    for (const Translation& t : translator.score(lines, lines, {.search = {.want_weights = true}}))
      out.push_back(
          word_alignment(translator.model(), t.source, t.best().target, t.best().weights, how));
    return out;
  };
  const std::vector<Links> usual = links({}), fewer = links({.threshold = 0.3}),
                           more = links({.threshold = 0.2});
  EXPECT_EQ(usual, links({.threshold = kLinkThreshold}));
  EXPECT_NE(fewer, more);
  AlignmentHead head;
  head.threshold = 0.2;
  keep_alignment(folder.path(), head);
  EXPECT_EQ(Translator(folder.path()).model().alignment, head);
  EXPECT_EQ(links({}), more);
  EXPECT_EQ(links({.threshold = 0.3}), fewer);

  // What other links it agrees with best, it learns.
  AlignedLines given;
  for (size_t i = 0; i < lines.size(); ++i) given.add(lines[i], lines[i], fewer[i]);
  const auto learnt = learn_threshold(Translator(folder.path()), given);
  ASSERT_TRUE(learnt);
  EXPECT_EQ(links({.threshold = learnt->threshold}), fewer);
  EXPECT_FALSE(
      learn_threshold(Translator(folder.path()), {lines, lines, std::vector<Links>(lines.size())}));

  auto config = read_config(folder.path());
  for (const char* wrong : {"2", "-0.1", "\"0.5\""}) {
    config["alignment"]["threshold"] = nlohmann::json::parse(wrong);
    write_config(folder.path(), config);
    EXPECT_TRUE(has(message([&] { Translator(folder.path()); }), "\"threshold\" is 0 to 1"));
  }
}

TEST(ChooseHead, SaysWhatDoesNotFit) {
  const Folder folder;
  put_model(folder, tiny("rnn"));
  const Translator translator(folder.path());
  const auto said = [&](const std::vector<std::string>& lines,
                        const std::vector<std::string>& gold) {
    return message([&] { head_errors(translator, lines, lines, gold); });
  };
  EXPECT_EQ(said({"a b", ""}, {"0-0", ""}), "");
  EXPECT_TRUE(has(said({"a", "b"}, {"0-0"}), "2 pairs and 1 lines of gold"));
  EXPECT_TRUE(has(said({"a", "b"}, {"0-0", "0:0"}), "line 2: alignment: token 1, '0:0'"));
  EXPECT_TRUE(has(said({"", " "}, {"", ""}), "no pair to choose a head on"));
  const Folder blind;
  ModelConfig none = tiny("rnn");
  none.score = "none", none.heads = 1;
  put_model(blind, none);
  const Translator without(blind.path());
  EXPECT_TRUE(
      has(message([&] { head_errors(without, {"a"}, {"a"}, {"0-0"}); }), "no head to choose"));
}

TEST(Translator, TellsWhatTheSearchKeptIfAsked) {
  const Folder folder;
  put_model(folder, tiny("rnn"));
  const Translator translator(folder.path());
  TranslateOptions o;
  o.search.beam = 3, o.search.max_extra = 3, o.batch = 2;
  const std::vector<std::string> lines{"a b", "", "c d e f", "g"};
  for (const Translation& t : translator.translate(lines, o)) EXPECT_TRUE(t.tree.empty());
  o.search.want_tree = true;
  for (const Translation& t : translator.translate(lines, o)) {
    std::vector<Id> best;
    for (const SearchNode& n : t.tree)
      if (n.best && !n.finished) best.push_back(n.token);
    EXPECT_EQ(best, t.best().target.ids);
    EXPECT_EQ(t.tree.empty(), t.source.ids.empty());
  }
}

}  // namespace
}  // namespace heed
