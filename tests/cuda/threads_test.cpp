// One loaded model on a GPU, many callers: what they get is what one caller alone gets with as many
// slots.
#include <gtest/gtest.h>

#include <thread>

#include "heed/models/tensor_file.h"
#include "heed/training/run_folder.h"
#include "heed/translation/translator.h"
#include "tests/cuda/on_gpu.h"
#include "tests/toy.h"

namespace heed {
namespace {

class ThreadsOnGpu : public OnGpu {};

std::vector<std::string> lines_of(int count, uint64_t seed) {
  std::vector<std::string> lines;
  Random random(seed);
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (uint32_t n = 1 + random.below(20); n-- > 0;)
      line += std::string(line.empty() ? "" : " ") + static_cast<char>('a' + random.below(9));
    lines.push_back(line);
  }
  return lines;
}

TEST_F(ThreadsOnGpu, EightTranslateWithOneModelAsOneAlone) {
  constexpr int kThreads = 8, kLines = 2000;
  for (const char* family : {"rnn", "transformer"}) {
    const Folder folder;
    ModelConfig c;
    c.family = family, c.size = 64, c.inner = 128, c.heads = family[0] == 'r' ? 1 : 4;
    c.score = family[0] == 'r' ? "additive" : "scaled_dot";
    TrainConfig training;
    training.steps = 1;
    {
      const ModelFolder model =
          create_model(folder / "m", c, training, toy_corpus(folder)->tokenizers());
      save_parameters(model.params, model.path / "model.safetensors");
    }
    const Translator translator(LoadedModel::open(folder / "m", {.device = Device::cuda}));
    EXPECT_EQ(translator.loaded().context().device(), Device::cuda);
    for (const int64_t beam : {1, 4}) {
      SCOPED_TRACE(std::string(family) + ", beam " + std::to_string(beam));
      TranslateOptions o;
      o.search.beam = beam, o.search.max_extra = 8, o.batch = 64;
      std::vector<std::vector<std::string>> lines;
      std::vector<std::vector<Translation>> alone, together(kThreads);
      for (int i = 0; i < kThreads; ++i)
        lines.push_back(lines_of(beam == 1 ? kLines : kLines / 10, static_cast<uint64_t>(i)));
      for (int i = 0; i < kThreads; ++i)
        alone.push_back(translator.translate(lines[static_cast<size_t>(i)], o));
      std::vector<std::thread> threads;
      for (size_t i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
          const size_t step = i % 2 == 0 ? lines[i].size() : 1 + 17 * i;
          for (size_t at = 0; at < lines[i].size(); at += step)
            for (Translation& t : translator.translate(
                     {lines[i].begin() + static_cast<std::ptrdiff_t>(at),
                      lines[i].begin() +
                          static_cast<std::ptrdiff_t>(std::min(lines[i].size(), at + step))},
                     o))
              together[i].push_back(std::move(t));
        });
      for (std::thread& t : threads) t.join();
      int texts = 0, bytes = 0;
      for (size_t i = 0; i < kThreads; ++i) {
        ASSERT_EQ(together[i].size(), alone[i].size());
        for (size_t k = 0; k < alone[i].size(); ++k) {
          texts += together[i][k].best().text != alone[i][k].best().text;
          bytes += together[i][k].best().log_probability != alone[i][k].best().log_probability;
        }
      }
      EXPECT_EQ(texts, 0);
      EXPECT_EQ(bytes, 0);
      EXPECT_GT(translator.loaded().engine().replayed(), 0);
    }
  }
}

// Two contexts of one GPU work side by side, each on its own stream.
TEST_F(ThreadsOnGpu, TwoContextsDoNotMeet) {
  Random random(3);
  const Tensor host = normal({256, 256}, 0.1, random);
  const auto work = [&](const std::shared_ptr<Context>& context) {
    const UseContext mine(*context);
    Tensor x = to(received(host), Device::cuda);
    for (int i = 0; i < 50; ++i) x = softmax(matmul(x, x));
    return x.values();
  };
  const auto one = Context::make({.device = Device::cuda}),
             two = Context::make({.device = Device::cuda});
  const std::vector<double> known = work(one);
  std::vector<double> a, b;
  std::thread first([&] { a = work(one); }), second([&] { b = work(two); });
  first.join(), second.join();
  EXPECT_EQ(a, known);
  EXPECT_EQ(b, known);
  Tensor there;
  {
    const UseContext mine(*one);
    there = full({2}, 1);
  }
  const UseContext mine(*two);
  const Tensor here = full({2}, 1);
  try {
    here + there;
    ADD_FAILURE() << "a tensor of another context was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("another context"), std::string::npos);
  }
  try {
    here + full({2}, 1);
    const UseDevice host_side(Device::cpu);
    here + full({2}, 1);
    ADD_FAILURE() << "operands on two devices were taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("different devices"), std::string::npos);
  }
}

}  // namespace
}  // namespace heed
