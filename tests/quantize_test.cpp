// Models of int8, quantized while they are loaded or in a folder of their own, and of bf16.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "heed/attention/score.h"
#include "heed/base/parallel.h"
#include "heed/models/tensor_file.h"
#include "heed/training/run_folder.h"
#include "heed/translation/translator.h"
#include "tests/toy.h"

namespace heed {
namespace {

ModelConfig config_of(const std::string& family, const std::string& score) {
  ModelConfig c;
  c.family = family, c.size = 32, c.inner = 48, c.heads = 2, c.positions = 100;
  c.score = score;
  return c;
}

void put_model(const std::filesystem::path& to, const Folder& corpus, const ModelConfig& config) {
  TrainConfig training;
  training.steps = 1;
  // So many letters that the tables are large enough to be quantized.
  const auto tokenizers = toy_corpus(corpus, {.letters = 20})->tokenizers();
  const ModelFolder model = create_model(to, config, training, tokenizers);
  save_parameters(model.params, to / "model.safetensors");
}

Translator opened(const std::filesystem::path& folder, Compute compute, int threads = 1) {
  return Translator(LoadedModel::open(folder, {.threads = threads, .compute = compute}));
}

const std::vector<std::string> kLines{"a b c d", "e", "", "c c a b e f g", "h a"};

bool any_of_type(const Translator& translator, Type type) {
  return std::ranges::any_of(translator.model().params.all(),
                             [&](const Parameter& p) { return p.value.type() == type; });
}
bool any_int8(const Translator& translator) { return any_of_type(translator, Type::i8); }

std::vector<double> scores_of(const Translator& translator, const TranslateOptions& options = {}) {
  std::vector<double> out;
  for (const Translation& t : translator.translate(kLines, options))
    for (const Translation::Candidate& c : t.candidates) out.push_back(c.log_probability);
  return out;
}

TEST(Quantize, AFolderOfInt8IsWhatLoadingMakes) {
  const Folder folder;
  for (const auto& [family, score] :
       {std::pair<const char*, const char*>{"rnn", "additive"}, {"transformer", "scaled_dot"}}) {
    SCOPED_TRACE(family);
    const std::filesystem::path from = folder / family, to = folder / (std::string(family) + "8");
    ModelConfig config = config_of(family, score);
    config.tied = std::string(family) == "transformer";
    put_model(from, folder, config);
    quantize(from, to);
    const Translator stored = opened(to, Compute::as_stored), made = opened(from, Compute::int8),
                     exact = opened(from, Compute::f32);
    EXPECT_TRUE(any_int8(stored));
    EXPECT_FALSE(any_int8(exact));
    const std::vector<double> scores = scores_of(stored);
    EXPECT_EQ(scores, scores_of(made));
    EXPECT_EQ(scores, scores_of(opened(to, Compute::int8)));
    // Another number, but a near one.
    const std::vector<double> wanted = scores_of(exact);
    ASSERT_EQ(scores.size(), wanted.size());
    EXPECT_NE(scores, wanted);
    const auto given = [](const Translator& t) {
      return t.score({"a b c d"}, {"d c b a"})[0].best().log_probability;
    };
    EXPECT_NEAR(given(stored), given(exact), 0.05 * std::abs(given(exact)));
    EXPECT_LT(std::filesystem::file_size(to / "model.safetensors"),
              std::filesystem::file_size(from / "model.safetensors"));
  }
}

TEST(Quantize, BatchesAndThreadsChangeNothing) {
  const Folder folder;
  put_model(folder / "m", folder, config_of("transformer", "scaled_dot"));
  put_model(folder / "r", folder, config_of("rnn", "additive"));
  for (const Compute compute : {Compute::int8, Compute::bf16})
    for (const char* model : {"m", "r"}) {
      const std::vector<double> wanted = scores_of(opened(folder / model, compute));
      for (const int threads : {1, 2, 4})
        for (const int64_t batch : {1, 2, 7, 64})
          EXPECT_EQ(scores_of(opened(folder / model, compute, threads), {.batch = batch}), wanted);
    }
}

TEST(Quantize, ModelsOfBf16AreNearThoseOfF32) {
  const Folder folder;
  for (const auto& [family, score] :
       {std::pair<const char*, const char*>{"rnn", "additive"}, {"transformer", "scaled_dot"}}) {
    SCOPED_TRACE(family);
    ModelConfig config = config_of(family, score);
    config.tied = std::string(family) == "transformer";
    put_model(folder / family, folder, config);
    const Translator half = opened(folder / family, Compute::bf16),
                     exact = opened(folder / family, Compute::f32);
    EXPECT_TRUE(any_of_type(half, Type::bf16));
    EXPECT_FALSE(any_of_type(exact, Type::bf16));
    EXPECT_NE(scores_of(half), scores_of(exact));
    const auto given = [](const Translator& t) {
      return t.score({"a b c d"}, {"d c b a"})[0].best().log_probability;
    };
    EXPECT_NEAR(given(half), given(exact), 0.01 * std::abs(given(exact)));
  }
}

TEST(Quantize, EveryScoreAndFamilyComputesInInt8AndBf16) {
  const Folder folder;
  int number = 0;
  for (const ScoreRow& row : score_table())
    for (const char* family : {"rnn", "transformer"}) {
      const std::string score = row.name;
      SCOPED_TRACE(std::string(family) + " " + score);
      const std::filesystem::path model = folder / std::to_string(number++);
      try {
        put_model(model, folder, config_of(family, score));
      } catch (const Error&) {
        continue;  // this family has no such score
      }
      for (const auto& [compute, type] :
           {std::pair{Compute::int8, Type::i8}, {Compute::bf16, Type::bf16}}) {
        const Translator translator = opened(model, compute);
        EXPECT_EQ(translator.model().params.all().front().value.type(), type);  // a table
        for (const double score_of_one : scores_of(translator))
          EXPECT_FALSE(std::isnan(score_of_one));
        // A translation that is given is read as one that is found.
        const std::vector<Translation> found = translator.translate({"a b c d"});
        const Translation given = translator.score({"a b c d"}, {found[0].best().text})[0];
        EXPECT_NEAR(given.best().log_probability, found[0].best().log_probability, 1e-3);
        EXPECT_FALSE(translator.attentions(given).cross.empty());
      }
    }
  EXPECT_GT(number, 9);
}

TEST(Quantize, SaysWhatItCannotDo) {
  const Folder folder;
  put_model(folder / "m", folder, config_of("transformer", "scaled_dot"));
  quantize(folder / "m", folder / "m8");
  EXPECT_TRUE(has(message([&] { quantize(folder / "m", folder / "m8"); }), "is there already"));
  EXPECT_TRUE(has(message([&] { quantize(folder / "m8", folder / "m88"); }), "int8 already"));
  EXPECT_FALSE(std::filesystem::exists(folder / "m88"));
  EXPECT_TRUE(has(message([&] { opened(folder / "m8", Compute::f32); }), "its weights are int8"));
  EXPECT_TRUE(has(message([&] { open_model(folder / "m8"); }), "it can be used, not trained"));
  EXPECT_TRUE(has(message([&] { compute_named("int4"); }), "int4"));
  EXPECT_TRUE(has(message([&] { opened(folder / "m8", Compute::bf16); }), "its weights are int8"));
  // A wrong bit of it is found as in f32.
  const std::filesystem::path weights = folder / "m8/model.safetensors";
  std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-100, std::ios::end);
  const char byte = static_cast<char>(file.get() ^ 4);
  file.seekp(-100, std::ios::end);
  file.put(byte);
  file.close();
  EXPECT_TRUE(has(message([&] { opened(folder / "m8", Compute::as_stored); }), "checksum"));
}

}  // namespace
}  // namespace heed
