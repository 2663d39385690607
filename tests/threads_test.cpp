// One loaded model, many callers: a program of its own, so that it can also run under the thread
// sanitizer.
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <fstream>
#include <thread>

#include "heed/base/parallel.h"
#include "heed/language/embedder.h"
#include "heed/language/language_model.h"
#include "heed/models/tensor_file.h"
#include "heed/training/run_folder.h"
#include "heed/translation/translator.h"
#include "tests/small_language_models.h"
#include "tests/toy.h"

namespace heed {
namespace {

constexpr int kThreads = 8;
// 2,000 sentences a thread; a tenth of them under a sanitizer.
constexpr int kLines = kSlow ? 200 : 2000;

// A translator with its first parameters, as `heed train` would leave it.
std::string put_translator(const Folder& folder, const std::string& family) {
  ModelConfig c;
  c.family = family, c.size = 16, c.inner = 24, c.heads = 2;
  c.score = family == "rnn" ? "additive" : "scaled_dot";
  const std::string path = folder / ("m-" + family);
  TrainConfig training;
  training.steps = 1;
  const ModelFolder model = create_model(path, c, training, toy_corpus(folder)->tokenizers());
  save_parameters(model.params, model.path / "model.safetensors");
  return path;
}

std::string put_language_model(const Folder& folder, const ModelConfig& config) {
  const std::string text = folder.put("text", "abcdefg hij\nklm\n");
  const auto t = learn_tokenizer(texts(TextPart{text}),
                                 {.kind = "characters", .newlines = config.reads == "stream"});
  const std::string path = folder / "lm";
  TrainConfig training;
  training.steps = 1;
  const ModelFolder model = create_model(path, config, training, {t, t});
  save_parameters(model.params, model.path / "model.safetensors");
  return path;
}

std::vector<std::string> lines_of(int count, uint64_t seed) {
  std::vector<std::string> lines;
  Random random(seed);
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (uint32_t n = random.below(7); n-- > 0;)
      line += std::string(line.empty() ? "" : " ") + static_cast<char>('a' + random.below(9));
    lines.push_back(line);  // some are empty, some have a word that is not known
  }
  return lines;
}

// Calls body(i) on so many threads at once.
template <class Body>
void on_threads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&, i] { body(i); });
  for (std::thread& t : threads) t.join();
}

bool same(const Translation& a, const Translation& b) {
  return a.best().text == b.best().text && a.best().target.ids == b.best().target.ids &&
         a.best().log_probability == b.best().log_probability && a.best().score == b.best().score &&
         a.best().weights == b.best().weights;
}

TEST(Threads, EightTranslateWithOneModelAsOneAlone) {
  const Folder folder;
  for (const char* family : {"rnn", "transformer"}) {
    const Translator translator(put_translator(folder, family));
    for (const int64_t beam : {1, 3}) {
      SCOPED_TRACE(std::string(family) + ", beam " + std::to_string(beam));
      TranslateOptions o;
      o.search.beam = beam, o.search.max_extra = 4, o.search.want_weights = true;
      const int count = beam == 1 ? kLines : kLines / 10;
      std::vector<std::vector<std::string>> lines;
      std::vector<std::vector<Translation>> alone, together(kThreads);
      for (int i = 0; i < kThreads; ++i)
        lines.push_back(lines_of(count, 100 + static_cast<uint64_t>(i)));
      for (int i = 0; i < kThreads; ++i)
        alone.push_back(translator.translate(lines[static_cast<size_t>(i)], o));
      on_threads(kThreads, [&](int i) {
        // By small and large requests, as callers come.
        const auto& mine = lines[static_cast<size_t>(i)];
        const size_t step = i % 2 == 0 ? mine.size() : 1 + static_cast<size_t>(i) * 7;
        for (size_t at = 0; at < mine.size(); at += step) {
          TranslateOptions part = o;
          part.first_line = 1 + static_cast<int64_t>(at);
          const auto from = mine.begin() + static_cast<std::ptrdiff_t>(at);
          const auto to =
              mine.begin() + static_cast<std::ptrdiff_t>(std::min(mine.size(), at + step));
          for (Translation& t : translator.translate({from, to}, part))
            together[static_cast<size_t>(i)].push_back(std::move(t));
        }
      });
      int different = 0;
      for (size_t i = 0; i < kThreads; ++i) {
        ASSERT_EQ(together[i].size(), alone[i].size());
        for (size_t k = 0; k < alone[i].size(); ++k)
          different += !same(together[i][k], alone[i][k]);
      }
      EXPECT_EQ(different, 0);
    }
  }
}

TEST(Threads, EverythingElseOfATranslatorToo) {
  const Folder folder;
  const Translator translator(put_translator(folder, "transformer"));
  const Embedder embedder(LoadedModel::open(folder / "m-transformer"));
  const std::vector<std::string> lines{"a b c", "d e", "f g h a", "b"};
  TranslateOptions o;
  o.search.want_weights = true;
  const auto scores = translator.score(lines, lines, o);
  const auto weights = translator.all_weights(scores[0])[0].values.values();
  const auto vectors = embedder.embed(lines);
  on_threads(kThreads, [&](int) {
    for (int again = 0; again < (kSlow ? 3 : 20); ++again) {
      const auto found = translator.score(lines, lines, o);
      for (size_t i = 0; i < lines.size(); ++i) EXPECT_TRUE(same(found[i], scores[i]));
      EXPECT_EQ(translator.all_weights(found[0])[0].values.values(), weights);
      const auto now = embedder.embed(lines);
      for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(now[i].values, vectors[i].values);
    }
  });
}

TEST(Threads, EightGenerateAndScoreWithOneLanguageModel) {
  const Folder folder;
  for (ModelConfig config : {small_rnn(), small_transformer()}) {
    SCOPED_TRACE(config.family);
    config.positions = 24;
    const LanguageModel model(put_language_model(folder, config));
    const std::vector<std::string> prompts{"ab", "k", "hij a", "", "l", "abc", "m", "gg"};
    const auto wish = [](size_t i) {
      GenerateOptions o;
      o.length = 40, o.search.sample = i % 2 == 0, o.search.beam = 1 + static_cast<int64_t>(i % 3);
      o.search.seed = i;
      return o;
    };
    std::vector<std::string> alone;
    for (size_t i = 0; i < prompts.size(); ++i)
      alone.push_back(model.generate(prompts[i], wish(i))[0].text);
    const double score = model.score("abc\nklm\n").log_probability;
    on_threads(kThreads, [&](int thread) {
      for (size_t k = 0; k < prompts.size(); ++k) {
        const size_t i = (k + static_cast<size_t>(thread)) % prompts.size();
        EXPECT_EQ(model.generate(prompts[i], wish(i))[0].text, alone[i]) << i;
        EXPECT_EQ(model.score("abc\nklm\n").log_probability, score);
      }
    });
  }
}

TEST(Threads, TwoModelsWithDifferentNumbersOfThreadsSideBySide) {
  const Folder folder;
  const std::string path = put_translator(folder, "transformer");
  const Translator one(LoadedModel::open(path, {.threads = 1}));
  const Translator three(LoadedModel::open(path, {.threads = 3}));
  const int before = threads();
  EXPECT_EQ(one.loaded().context().pool().threads(), 1);
  EXPECT_EQ(three.loaded().context().pool().threads(), 3);
  const std::vector<std::string> lines = lines_of(kLines / 10, 5);
  const std::vector<Translation> alone = one.translate(lines);
  on_threads(4, [&](int i) {
    const std::vector<Translation> found = (i % 2 ? one : three).translate(lines);
    for (size_t k = 0; k < lines.size(); ++k) EXPECT_TRUE(same(found[k], alone[k]));
  });
  EXPECT_EQ(threads(), before);
}

// Tensors of the default context, from many threads: its arena locks, its pool serves the first.
TEST(Threads, FormulasOfManyThreadsInTheDefaultContext) {
  Random random(2);
  const Tensor x = normal({64, 64}, 1, random), w = normal({64, 64}, 1, random);
  const std::vector<double> known = softmax(matmul(x, w)).values();
  on_threads(kThreads, [&](int) {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(softmax(matmul(x, w)).values(), known);
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
int64_t resident_kilobytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "RssAnon:") {
      int64_t size = 0;
      status >> size;
      return size;
    }
  return 0;
}

// A model of 40 MB: eight callers hold its weights as often as one does, once.
TEST(Threads, WeightsAreHeldOnce) {
  const Folder folder;
  ModelConfig c;
  c.family = "transformer", c.size = 512, c.inner = 2048, c.heads = 8, c.score = "scaled_dot";
  c.encoder_layers = c.decoder_layers = 1;
  TrainConfig training;
  training.steps = 1;
  const std::string path = folder / "large";
  {
    const ModelFolder model = create_model(path, c, training, toy_corpus(folder)->tokenizers());
    save_parameters(model.params, model.path / "model.safetensors");
  }
  const int64_t file =
      static_cast<int64_t>(std::filesystem::file_size(path + "/model.safetensors"));
  ASSERT_GT(file, 25 << 20);
  const int64_t before = resident_kilobytes();
  const Translator translator{std::filesystem::path(path)};
  TranslateOptions o;
  o.search.beam = 1;
  o.batch = 4;  // what a step holds is small beside the weights
  for (uint64_t i = 0; i < 3; ++i) translator.translate(lines_of(20, i), o);  // all is laid out
  const int64_t one = resident_kilobytes() - before;
  on_threads(kThreads,
             [&](int i) { translator.translate(lines_of(20, static_cast<uint64_t>(i)), o); });
  const int64_t eight = resident_kilobytes() - before;
  EXPECT_LT(one * 1024, file * 3 / 2);
  EXPECT_LT((eight - one) * 1024, file / 2) << one << " kB with one, " << eight << " with eight";
}
#endif

}  // namespace
}  // namespace heed
