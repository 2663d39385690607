// What was true once stays true: the losses of a small training, and models of an earlier heed,
// which are opened for ever. tests/golden/models/README.md says how they were made.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heed/language/language_model.h"
#include "heed/training/run_folder.h"
#include "heed/translation/translator.h"
#include "tests/targets.h"
#include "tests/toy_run.h"

namespace heed {
namespace {

std::vector<double> ten_losses(ModelConfig model) {
  const Folder folder;
  TrainConfig config;
  config.rate = 5e-3, config.warmup = 5, config.batch_tokens = 256, config.guided = 0.1;
  config.steps = 10, config.validate_every = 1;
  model.size = 16, model.inner = 24, model.dropout = 0.1, model.attention_dropout = 0.1;
  const ToyRun run = begin(toy_corpus(folder), model, config, folder.path());
  std::vector<double> losses;
  Trainer::Hooks hooks;
  hooks.validate = [] { return Validation{}; };
  hooks.log = [&](const Progress& p) { losses.push_back(p.loss); };
  run.trainer->run(hooks);
  return losses;
}

// Sums have a fixed order on an instruction set, but between them vectors differ in length, and
// only some multiply and add in one rounding. From AVX3 to none at all the losses below differ by
// two roundings of f32, 2e-7 of themselves: five times that is allowed.
TEST(GoldenLosses, OfTenStepsOfASmallTraining) {
  struct Row {
    ModelConfig model;
    std::vector<double> losses;
  };
  const Row rows[] = {{toy_rnn(),
                       {2.54347157, 2.56327438, 2.49331276, 2.51110308, 2.46557403, 2.43351656,
                        2.39521177, 2.36758864, 2.34163618, 2.27730024}},
                      {toy_transformer(),
                       {2.95055366, 2.83282042, 2.80781412, 2.65974641, 2.60065675, 2.49544583,
                        2.43361259, 2.33118749, 2.39179039, 2.28116945}}};
  for (const Row& row : rows)
    on_every_target([&](const char* target) {
      const std::vector<double> losses = ten_losses(row.model);
      ASSERT_EQ(losses.size(), row.losses.size());
      for (size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], row.losses[i], 1e-6 * row.losses[i])
            << row.model.family << ", step " << i + 1 << ", " << target;
    });
}

// ---- models

const std::filesystem::path kModels = std::filesystem::path(HEED_TESTS) / "golden" / "models";

// What each said when it was made, in a file beside it.
nlohmann::json said_by(const std::string& model) {
  std::ifstream file(kModels / (model + ".json"));
  return nlohmann::json::parse(file);
}

constexpr double kScore = 1e-4;

TEST(GoldenModel, TranslatesAndScoresAsWhenItWasMade) {
  for (const char* name : {"rnn-words", "transformer-characters", "rnn-pieces", "format-2"}) {
    SCOPED_TRACE(name);
    const Translator translator(kModels / name);
    const nlohmann::json said = said_by(name);
    std::vector<std::string> lines;
    for (const auto& row : said["translations"]) lines.push_back(row["source"]);
    ASSERT_EQ(lines.size(), 8u);
    const std::vector<Translation> found = translator.translate(lines);
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto& row = said["translations"][i];
      EXPECT_EQ(found[i].best().text, row["text"]) << lines[i];
      EXPECT_NEAR(found[i].best().log_probability, row["log_probability"], kScore) << lines[i];
      EXPECT_NEAR(found[i].best().score, row["score"], kScore) << lines[i];
    }
    ASSERT_EQ(said["scores"].size(), 3u);
    for (const auto& row : said["scores"]) {
      const auto scored = translator.score({row["source"]}, {row["target"]});
      EXPECT_NEAR(scored[0].best().log_probability, row["log_probability"], kScore)
          << row["target"];
    }
  }
}

TEST(GoldenModel, OfALanguageScoresAndGoesOnAsWhenItWasMade) {
  const LanguageModel model(kModels / "lm-characters");
  const nlohmann::json said = said_by("lm-characters");
  ASSERT_EQ(said["scores"].size() + said["generated"].size(), 6u);
  for (const auto& row : said["scores"]) {
    const TextScore score = model.score(row["text"].get<std::string>());
    EXPECT_EQ(score.pieces, row["pieces"]);
    EXPECT_NEAR(score.log_probability, row["log_probability"], kScore) << row["text"];
  }
  for (const auto& row : said["generated"]) {
    const auto found = model.generate(row["prompt"], {.search = {.beam = 1}, .length = 12});
    EXPECT_EQ(found[0].text, row["text"]);
    EXPECT_NEAR(found[0].log_probability, row["log_probability"], kScore) << row["text"];
  }
}

// Their checkpoints were written after step 250, by runs on the two files beside them.
TEST(GoldenModel, ATrainingGoesOnFromItsCheckpoint) {
  // The loss of steps 251 and 252 as it was then; a run that began anew would say more than 2.
  const std::pair<const char*, double> models[] = {{"transformer-characters", 0.567591},
                                                   {"format-2", 0.567591}};
  for (const auto& [name, loss] : models) {
    SCOPED_TRACE(name);
    const Folder folder;
    const std::filesystem::path path = folder / "m";
    std::filesystem::copy(kModels / name, path, std::filesystem::copy_options::recursive);
    ModelFolder model = open_model(path, Parameters::leave);
    TrainConfig training = training_of(path);
    const auto corpus =
        std::make_shared<Corpus>(CorpusFiles{.source = kModels / "characters.source",
                                             .target = kModels / "characters.target"},
                                 model.tokenizers, CorpusOptions{.max_length = 20});
    training.steps = 252;
    Trainer trainer(*model.model, model.params, corpus, training, path);
    ASSERT_TRUE(trainer.resume());
    EXPECT_EQ(trainer.steps(), 250);
    std::vector<double> losses;
    Trainer::Hooks hooks;
    hooks.log = [&](const Progress& p) { losses.push_back(p.loss); };
    EXPECT_EQ(trainer.run(hooks), Trainer::End::limit);
    EXPECT_EQ(trainer.steps(), 252);
    ASSERT_FALSE(losses.empty());
    EXPECT_NEAR(losses.back(), loss, kScore);
    open_model(path);  // what the run wrote into it, in the folder's format
  }
}

}  // namespace
}  // namespace heed
