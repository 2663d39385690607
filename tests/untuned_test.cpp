// Good without tuning: what is chosen for a corpus, held-out sentences, the plan of a run by its
// time, R-Drop.
#include "heed/training/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "tests/toy_run.h"

namespace heed {
namespace {

// ---- the choice

CorpusFacts facts_of(int64_t pairs, double words) {
  const auto all = static_cast<int64_t>(double(pairs) * words);
  return {.pairs = pairs, .source_words = all, .target_words = all, .shared_characters = 0.9};
}

TEST(Untuned, ALargerCorpusWithEnoughTimeGetsALargerModel) {
  const Budget cores{.device = Device::cpu, .threads = 2, .minutes = 20};
  const Budget gpu{.device = Device::cuda, .threads = 16, .minutes = 60};
  EXPECT_EQ(recipe_for(facts_of(29'000, 12), cores).preset, "transformer-tiny");
  EXPECT_EQ(recipe_for(facts_of(29'000, 12), gpu).preset, "transformer-small");
  EXPECT_EQ(recipe_for(facts_of(9'000, 10), gpu).preset, "transformer-tiny");
  EXPECT_EQ(recipe_for(facts_of(140'000, 8), cores).preset,
            "transformer-tiny");  // no time for more
  EXPECT_EQ(recipe_for(facts_of(140'000, 8), gpu).preset, "transformer-small");
  EXPECT_EQ(recipe_for(facts_of(1'000'000, 20), gpu).preset, "transformer-base");
  EXPECT_EQ(recipe_for(facts_of(140'000, 8), gpu, "rnn").preset, "rnn");
  EXPECT_LT(recipe_for(facts_of(10'000, 10), cores).tokenizer.size,
            recipe_for(facts_of(1'000'000, 20), gpu).tokenizer.size);
}

TEST(Untuned, ACpuWithFastProductsOfBf16GetsALargerModelInTheSameTime) {
  const Budget f32{.threads = 2, .minutes = 20}, bf16{.threads = 2, .minutes = 20, .bf16 = true};
  const auto chosen = [](const Budget& budget, int64_t pairs, const std::string& family = "") {
    return recipe_for(facts_of(pairs, 12), budget, family);
  };
  EXPECT_EQ(chosen(f32, 29'000).preset, "transformer-tiny");
  EXPECT_EQ(chosen(f32, 29'000).training.precision, "auto");
  EXPECT_EQ(chosen(bf16, 29'000).preset, "transformer-small");
  EXPECT_EQ(chosen(bf16, 29'000).training.precision, "bf16");
  EXPECT_TRUE(has(chosen(bf16, 29'000).why, ", in bf16")) << chosen(bf16, 29'000).why;
  EXPECT_EQ(chosen(bf16, 29'000, "rnn").training.precision, "bf16");
  // The small one gains nothing; a GPU has its own rule.
  EXPECT_EQ(chosen(bf16, 5'000).preset, "transformer-tiny");
  EXPECT_EQ(chosen(bf16, 5'000).training.precision, "auto");
  EXPECT_EQ(
      chosen({.device = Device::cuda, .minutes = 20, .bf16 = true}, 29'000).training.precision,
      "auto");
}

TEST(Untuned, AnAlignmentTeachesWhereItIsLearntInLittleTime) {
  const Budget budget{.threads = 2, .minutes = 20};
  const auto taught = [](const CorpusFacts& facts, const Budget& b,
                         const std::string& family = "") {
    const TrainConfig t = recipe_for(facts, b, family).training;
    EXPECT_EQ(t.guided > 0, t.guided_auto);
    return t.guided_auto;
  };
  EXPECT_TRUE(taught(facts_of(29'000, 12), budget));
  EXPECT_TRUE(taught(facts_of(29'000, 12), budget, "rnn"));
  EXPECT_TRUE(has(recipe_for(facts_of(29'000, 12), budget).why, ", guided by an alignment"));
  EXPECT_FALSE(taught(facts_of(1'999, 12), budget));
  EXPECT_FALSE(taught(facts_of(1'000'000, 20), budget));
  EXPECT_FALSE(taught(facts_of(29'000, 12), {.threads = 2, .minutes = 1}));  // 3.5 of 60 s
  EXPECT_TRUE(taught(facts_of(29'000, 12), {.threads = 4, .minutes = 1}));
  CorpusFacts unspaced = facts_of(29'000, 12);
  unspaced.unspaced_characters = 0.5;  // a line may be one word
  EXPECT_FALSE(taught(unspaced, budget));
  ModelConfig model;
  EXPECT_TRUE(can_be_guided(model));
  model.weigh = "hard";
  EXPECT_FALSE(can_be_guided(model));
  model.weigh = "soft", model.score = "none";
  EXPECT_FALSE(can_be_guided(model));
}

TEST(Untuned, WhatItChoosesCanBeTrained) {
  for (const int64_t pairs : {0, 1, 500, 30'000, 5'000'000})
    for (const double minutes : {0.0, 0.1, 20.0, 1e5})
      for (const Device device : {Device::cpu, Device::cuda}) {
        Recipe r = recipe_for(facts_of(pairs, 15), {device, 2, minutes});
        check(r.model);
        if (minutes == 0) r.training.patience = 5;
        check(r.training);
        EXPECT_EQ(r.why, recipe_for(facts_of(pairs, 15), {device, 2, minutes}).why);
      }
}

TEST(Untuned, OneVocabularyForLanguagesOfOneAlphabet) {
  const Folder folder;
  const std::string latin =
      folder.put("a", "der kleine Hund schläft in einem Haus\nich sehe eine Katze\n");
  const std::string other =
      folder.put("b", "the little dog is sleeping in a house\nI can see a cat\n");
  const std::string greek = folder.put("c", "ο σκύλος κοιμάται\nένα σπίτι\n");
  const CorpusFacts near = corpus_facts(CorpusIndex({.source = latin, .target = other}));
  EXPECT_EQ(near.pairs, 2);
  EXPECT_EQ(near.source_words, 11);
  EXPECT_TRUE(recipe_for(near, {}).joint);
  EXPECT_FALSE(recipe_for(corpus_facts(CorpusIndex({.source = latin, .target = greek})), {}).joint);
}

TEST(Untuned, TheLineTellsOfWhatIsUsed) {
  const auto why = [](int64_t pairs, double minutes, const GivenVocabulary& given) {
    return recipe_for(facts_of(pairs, 8), {Device::cpu, 2, minutes}, "", given).why;
  };
  EXPECT_TRUE(has(why(1, 1, {}), "chosen for 1 pair of about 8 words, ")) << why(1, 1, {});
  EXPECT_TRUE(has(why(1, 1, {}), "passes in 1 minute on 2 threads: "));
  EXPECT_TRUE(has(why(2500, 0.5, {}), "chosen for 2500 pairs of about 8 words, "));
  EXPECT_TRUE(has(why(2500, 0.5, {}), " passes in half a minute on 2 threads: "));
  EXPECT_TRUE(has(why(2500, 0.15, {}), " passes in 0.15 minutes on "));
  EXPECT_TRUE(has(why(2500, 20, {}), " passes in 20 minutes on "));
  EXPECT_TRUE(has(why(2500, 0, {}), "words on 2 threads: "));
  EXPECT_TRUE(has(why(1'000'000, 0.6, {}), ", a part of a pass in 0.6 minutes on "))
      << why(1'000'000, 0.6, {});
  EXPECT_TRUE(has(why(2500, 1, {}), ", one bpe vocabulary of "));
  EXPECT_TRUE(has(why(2500, 1, {.kind = "unigram", .size = 700, .joint = false}),
                  ", a unigram vocabulary of 700, "));
  EXPECT_TRUE(
      has(why(2500, 1, {.kind = "words", .size = 700}), ", one vocabulary of at most 700 words, "));
  EXPECT_TRUE(has(why(2500, 1, {.kind = "characters"}), ", one vocabulary of characters, "));
  EXPECT_TRUE(has(why(2500, 1, {.from_file = true}), ", the vocabulary given, "));
}

TEST(Untuned, OnlyBpeThatIsLearntIsSampled) {
  const auto sampling = [](const GivenVocabulary& given) {
    return recipe_for(facts_of(2500, 8), {Device::cpu, 2, 60}, "rnn", given).training.sampling;
  };
  EXPECT_GT(sampling({}), 0);
  EXPECT_GT(sampling({.kind = "bpe"}), 0);
  EXPECT_EQ(sampling({.kind = "unigram"}), 0);  // its number is another
  EXPECT_EQ(sampling({.kind = "words"}), 0);
  EXPECT_EQ(sampling({.kind = "characters"}), 0);
  EXPECT_EQ(sampling({.from_file = true}), 0);
}

TEST(Untuned, WhereWordsHaveNoSpacesCharactersAreCounted) {
  const Folder folder;
  int files = 0;
  const auto words = [&](const std::string& line) {
    const std::string path = folder.put(std::to_string(files++), line + "\n");
    return corpus_facts(CorpusIndex({.source = path, .target = path})).target_words;
  };
  EXPECT_EQ(words("a dog , two cats"), 5);
  // Seventeen characters are ten words; what is written as others are counts as there.
  EXPECT_EQ(words("我们昨天在学校门口看见一只小黑狗跑"), 10);
  EXPECT_EQ(words("私は昨日カフェで友達と会いました。"), 10);  // 16, and a stop
  EXPECT_EQ(words("我们用 heed train 学习"), 5);
  EXPECT_EQ(words("วันนี้อากาศดีมากนะ"), 5);
  const std::string han = folder.put("han", "小黑狗 heed\n"),
                    latin = folder.put("latin", "a small black dog\n");
  EXPECT_EQ(corpus_facts(CorpusIndex({.source = latin, .target = han})).unspaced_characters,
            3.0 / 7);
  EXPECT_EQ(corpus_facts(CorpusIndex({.source = latin, .target = latin})).unspaced_characters, 0);
  EXPECT_EQ(words("서울에서 친구를 만났다"), 3);
  // The same text: a vocabulary as for its translation, not as for a word a line.
  std::string chinese, english;
  for (int i = 0; i < 3000; ++i) {
    chinese += "我们昨天在学校门口看见一只小黑狗\n";
    english += "we saw a little black dog at the school gate yesterday\n";
  }
  const std::string zh = folder.put("zh", chinese), en = folder.put("en", english);
  const CorpusFacts facts = corpus_facts(CorpusIndex({.source = en, .target = zh}));
  EXPECT_NEAR(double(facts.target_words) / double(facts.source_words), 0.9, 0.1);
}

// ---- held-out sentences

// A word a line.
struct WordPairs {
  WordPairs(const Folder& folder, const std::string& source, const std::string& target)
      : files{folder.put("s", source), folder.put("t", target)} {
    const TokenizerOptions words{.kind = "words"};
    tokenizers = {learn_tokenizer(texts(files, Side::source), words),
                  learn_tokenizer(texts(files, Side::target), words)};
  }
  CorpusFiles files;
  TokenizerPair tokenizers;
};

TEST(HeldOut, NeitherThemNorTheirCopiesAreTrainedOn) {
  const Folder folder;
  std::string source, target;
  for (int i = 1; i <= 100; ++i) {
    // Line 7 says on its target side what line 5 does, which is held out.
    source += "s" + std::to_string(i) + "\n";
    target += "t" + std::to_string(i == 7 ? 5 : i) + "\n";
  }
  const auto [files, tokenizers] = WordPairs(folder, source, target);
  CorpusOptions o;
  o.held_out = std::make_shared<HeldOut>(CorpusIndex(files), 10);
  Corpus training(files, tokenizers, o);
  o.part = CorpusOptions::Part::held_out;
  Corpus held(files, tokenizers, o);
  std::set<int64_t> trained, validated;
  for (int64_t i = 0; i < training.window(0)->size(); ++i)
    trained.insert((*training.window(0))[i].line);
  for (int64_t i = 0; i < held.window(0)->size(); ++i) validated.insert((*held.window(0))[i].line);
  EXPECT_EQ(validated, (std::set<int64_t>{5, 15, 25, 35, 45, 55, 65, 75, 85, 95}));
  EXPECT_EQ(trained.size(), 89u);
  EXPECT_FALSE(trained.contains(7));
  for (const int64_t line : validated) EXPECT_FALSE(trained.contains(line));
  EXPECT_EQ(training.report()[Flaw::held_out].count, 11);
  EXPECT_EQ(hold_out_of(1000), 0);
  EXPECT_EQ(hold_out_of(29'000), 40);
  EXPECT_EQ(hold_out_of(1'000'000), 1000);
}

TEST(HeldOut, OfACorpusThatIsStreamedNeither) {
  const Folder folder;
  constexpr int64_t kLines = 1000;
  const auto word = [](int64_t i) { return std::to_string(i % 389); };  // each comes several times
  std::string source, target;
  for (int64_t i = 1; i <= kLines; ++i)
    source += "s" + word(i) + "\n", target += "t" + word(i) + "\n";
  const auto [files, tokenizers] = WordPairs(folder, source, target);
  for (const int64_t each : {2, 3, 40}) {
    CorpusOptions o{.window = 64};
    o.held_out = std::make_shared<HeldOut>(CorpusIndex(files), each);
    const auto training = std::make_shared<Corpus>(files, tokenizers, o);
    o.part = CorpusOptions::Part::held_out;
    Corpus held(files, tokenizers, o);
    std::set<std::string> validated;
    for (const Batch& batch : batches_once(held, {}))
      for (const int64_t line : batch.lines) {
        EXPECT_TRUE(o.held_out->chosen(line)) << line;
        validated.insert(word(line));
      }
    int64_t chosen = 0;
    for (int64_t i = 1; i <= kLines; ++i) chosen += o.held_out->chosen(i);
    EXPECT_EQ(held.report().pairs, chosen);
    EXPECT_EQ(held.report().read, chosen);
    EXPECT_EQ(held.report().kept, chosen);
    Batches batches(training, {.tokens = 300}, {});
    if (each == 2) {  // of every word there is one
      EXPECT_TRUE(has(message([&] { batches.next(); }), "nothing is left to learn from"));
      continue;
    }
    for (Batch batch = batches.next(); batch.position.epoch < 2; batch = batches.next())
      for (const int64_t line : batch.lines)
        ASSERT_FALSE(validated.contains(word(line))) << "line " << line << " of " << each;
    // What is looked at before it is read has as many of them as the whole.
    const double share = double(training->report()[Flaw::held_out].count) / kLines;
    for (const int64_t most : {kLines, kLines / each, kLines / (2 * each)}) {
      const CleaningReport some = training->look(most);
      EXPECT_NEAR(double(some[Flaw::held_out].count) / double(some.read), share, 0.25)
          << "one of " << each << ", " << some.text();
      EXPECT_GT(some.kept, 0) << some.text();
    }
    const CleaningReport some = held.look(10);
    EXPECT_GE(some.read, 10);
    EXPECT_LE(some.read, 20);
    EXPECT_EQ(some.kept, some.read);
    EXPECT_EQ(some[Flaw::held_out].count, 0);
  }
}

// ---- the plan

TrainConfig by_minutes(double minutes, int64_t warmup) {
  TrainConfig config;
  config.minutes = minutes, config.schedule = "cosine", config.warmup = warmup;
  config.batch_tokens = 64;
  return config;
}

TEST(Plan, MinutesCountEverythingAndTheRateEndsAtZero) {
  const Folder folder;
  const TrainConfig config = by_minutes(0.05, 1'000'000);  // 3 seconds
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.path());
  std::vector<Progress> lines;
  int validations = 0;
  Trainer::Hooks hooks;
  hooks.spent = 0.5;
  hooks.log = [&](const Progress& p) { lines.push_back(p); };
  hooks.validate = [&] {
    ++validations;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return Validation{.loss = 1.0 / validations, .bleu = {}};
  };
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(run.trainer->run(hooks), Trainer::End::limit);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  EXPECT_GT(seconds, 1.2);
  EXPECT_LT(seconds, 2.9);
  ASSERT_FALSE(lines.empty());
  EXPECT_NEAR(lines.back().seconds, seconds + 0.5, 0.2);
  // The first validation comes early; all of them take a tenth of the time at most.
  ASSERT_TRUE(lines.front().validation);
  EXPECT_LT(lines.front().seconds, 1.2);
  EXPECT_GE(validations, 3);
  EXPECT_LE(validations, 21);
  EXPECT_TRUE(std::isfinite(lines.back().rate));
  EXPECT_LT(lines.back().rate, 0.01 * config.rate);
}

TEST(Plan, IsKeptForWhatIsResumed) {
  const Folder folder;
  const TrainConfig config = by_minutes(0.05, 20);
  const auto corpus = toy_corpus(folder);
  const ToyRun first = begin(corpus, toy_rnn(), config, folder.path());
  double rate = 0;
  int64_t step = 0;
  Trainer::Hooks hooks;
  hooks.validate = [] { return Validation{.loss = 1, .bleu = {}}; };
  hooks.log = [&](const Progress& p) { rate = p.rate, step = p.step; };
  hooks.stop = [&] { return step >= 20; };  // after the first validation
  EXPECT_EQ(first.trainer->run(hooks), Trainer::End::stopped);
  EXPECT_GT(rate, 0.5 * config.rate);
  const ToyRun second = begin(corpus, toy_rnn(), config, folder.path());
  ASSERT_TRUE(second.trainer->resume());
  const int64_t stopped = second.trainer->steps();
  hooks.stop = {};
  EXPECT_EQ(second.trainer->run(hooks), Trainer::End::limit);
  EXPECT_GT(step, stopped);
  EXPECT_LT(rate, 0.01 * config.rate);
}

// What came before the first update may have taken most of the time: the rate still warms up.
TEST(Plan, TheWarmUpIsNotCutOffByWhatCameBefore) {
  const Folder folder;
  const TrainConfig config = by_minutes(0.05, 1'000'000);
  const ToyRun run = begin(toy_corpus(folder), toy_rnn(), config, folder.path());
  Trainer::Hooks hooks;
  hooks.spent = 2;  // of 3 seconds
  std::vector<Progress> lines;
  hooks.validate = [] { return Validation{.loss = 1, .bleu = {}}; };
  hooks.log = [&](const Progress& p) { lines.push_back(p); };
  run.trainer->run(hooks);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_GE(lines[0].step, 8);
  EXPECT_LT(lines[0].rate, 0.01 * config.rate);  // of a million steps, until they are planned
  EXPECT_LT(lines.back().rate, 0.01 * config.rate);
}

// Of --steps and --minutes the one that ends first: where it is the minutes, the rate ends there,
// too.
TEST(Plan, MinutesEndTheRateBeforeStepsThatDoNotFit) {
  const Folder folder;
  TrainConfig config = by_minutes(0.05, 1'000'000);
  config.steps = 100'000'000;
  const auto corpus = toy_corpus(folder);
  const ToyRun first = begin(corpus, toy_rnn(), config, folder.path());
  Progress last;
  Trainer::Hooks hooks;
  hooks.log = [&](const Progress& p) { last = p; };
  hooks.stop = [&] { return first.trainer->steps() >= 60; };
  EXPECT_EQ(first.trainer->run(hooks), Trainer::End::stopped);
  const ToyRun second = begin(corpus, toy_rnn(), config, folder.path());
  ASSERT_TRUE(second.trainer->resume());
  hooks.stop = {};
  EXPECT_EQ(second.trainer->run(hooks), Trainer::End::limit);
  EXPECT_GT(second.trainer->steps(), 60);
  EXPECT_LT(last.seconds, 3.2);
  EXPECT_LT(last.rate, 0.01 * config.rate);
}

TEST(Plan, MinutesChangeNothingOfStepsThatFit) {
  TrainConfig config = by_minutes(100, 20);
  config.steps = 60;
  std::vector<std::string> models;
  const Folder data;
  const auto corpus = toy_corpus(data);
  for (const double minutes : {0.0, 100.0}) {
    const Folder folder;
    config.minutes = minutes;
    const ToyRun run = begin(corpus, toy_rnn(), config, folder.path());
    EXPECT_EQ(run.trainer->run({}), Trainer::End::limit);
    EXPECT_EQ(run.trainer->steps(), 60);
    models.push_back(read(folder / "model.safetensors"));
  }
  EXPECT_TRUE(models[0] == models[1]);
}

TEST(Plan, OtherMinutesAreAnotherPlan) {
  const Folder folder;
  TrainConfig config = by_minutes(0.02, 20);
  const auto corpus = toy_corpus(folder);
  Trainer::Hooks hooks;
  hooks.validate = [] { return Validation{.loss = 1, .bleu = {}}; };
  const ToyRun first = begin(corpus, toy_rnn(), config, folder.path());
  EXPECT_EQ(first.trainer->run(hooks), Trainer::End::limit);
  const int64_t ended = first.trainer->steps();
  config.minutes = 0.05;
  const ToyRun second = begin(corpus, toy_rnn(), config, folder.path());
  ASSERT_TRUE(second.trainer->resume());
  EXPECT_EQ(second.trainer->run(hooks), Trainer::End::limit);
  EXPECT_GT(second.trainer->steps(), ended + ended / 4);
}

// ---- R-Drop

TEST(RDrop, OfOneDistributionAddsNothing) {
  const Folder folder;
  TrainConfig config;
  config.steps = 1;
  const ToyRun run = begin(toy_corpus(folder), toy_transformer(), config, folder.path());
  const Batch b = batches_once(*run.corpus, {.tokens = 120}).front();
  const BatchLoss plain = batch_loss(*run.model, b, {.smoothing = 0.1});
  const BatchLoss twice = batch_loss(*run.model, b, {.smoothing = 0.1, .rdrop = 5});
  EXPECT_NEAR(twice.total.item(), plain.total.item(), 1e-5);
  EXPECT_NEAR(twice.cross_entropy.item(), plain.cross_entropy.item(), 1e-5);
}

// (CE(p) + CE(q)) / 2 + alpha (KL(p || q) + KL(q || p)) / 4, with p and q as dropout drew them: its
// part is linear in alpha, and 0 at none.
TEST(RDrop, PullsTwoDrawsTogether) {
  const Folder folder;
  TrainConfig config;
  config.steps = 1;
  ModelConfig model = toy_transformer();
  model.dropout = 0.3;
  const ToyRun run = begin(toy_corpus(folder), model, config, folder.path());
  const Batch b = batches_once(*run.corpus, {.tokens = 120}).front();
  const auto divergence = [&](double alpha) {
    Tape tape(7);
    const BatchLoss loss = batch_loss(*run.model, b, {.smoothing = 0, .rdrop = alpha});
    return loss.total.item() - loss.cross_entropy.item();
  };
  const double one = divergence(1);
  EXPECT_GT(one, 1e-4);
  EXPECT_NEAR(divergence(3), 3 * one, 1e-4 * one + 1e-6);
  // Trained with it, the two draws come closer.
  TrainConfig train;
  train.steps = 60, train.warmup = 10, train.rate = 3e-3, train.batch_tokens = 128;
  const auto after = [&](double alpha) {
    train.rdrop = alpha;
    const ToyRun trained = begin(run.corpus, model, train, folder.path() / std::to_string(alpha));
    trained.trainer->run({});
    Tape tape(7);
    const BatchLoss loss = batch_loss(*trained.model, b, {.smoothing = 0, .rdrop = 1});
    return loss.total.item() - loss.cross_entropy.item();
  };
  EXPECT_LT(after(20), 0.8 * after(0));
}

}  // namespace
}  // namespace heed
