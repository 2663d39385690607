// What a sentence gives on a GPU does not depend on its batch: products have one order of sums
// whatever the number of rows, and so has all that follows.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "heed/models/tensor_file.h"
#include "heed/ops/bf16.h"
#include "heed/tensor/cuda.h"
#include "heed/training/run_folder.h"
#include "heed/translation/translator.h"
#include "tests/cuda/on_gpu.h"
#include "tests/toy.h"

namespace heed {
namespace {

class BatchesOnGpu : public OnGpu {};

struct Sizes {
  int64_t k, n;
};

// Every row of a product with fewer rows is that of a product with more.
TEST_F(BatchesOnGpu, ProductsHaveOneOrderForAnyRows) {
  const UseDevice use(Device::cuda);
  const NoTape off;
  Random random(1);
  for (const bool exact : {false, true})
    for (const auto [k, n] : {Sizes{128, 384},
                              {256, 128},
                              {512, 512},
                              {512, 768},
                              {512, 2048},
                              {512, 1024},
                              {1024, 256},
                              {2048, 512},
                              {128, 8000},
                              {200, 100},
                              {75, 33}}) {
      SCOPED_TRACE(std::to_string(k) + " x " + std::to_string(n) + (exact ? " exact" : ""));
      set_exact_products(exact);
      const SameForAnyRows same;
      const Tensor x = normal({4096, k}, 1, random), w = normal({k, n}, 0.1, random);
      const std::vector<double> all = linear(x, w).values();
      for (const int64_t rows : {1, 8, 40, 64, 256, 320, 1000, 1280}) {
        const std::vector<double> some = linear(slice(x, 0, 0, rows), w).values();
        int64_t different = 0;
        for (size_t i = 0; i < some.size(); ++i) different += !(some[i] == all[i]);
        EXPECT_EQ(different, 0) << rows << " rows";
      }
    }
}

// So with weights in bf16, whichever tile takes the product, also as a table's transpose and where
// several weights are one launch; and it is the product of what bf16 has of both, in f32.
TEST_F(BatchesOnGpu, ProductsWithBf16HaveOneOrderForAnyRows) {
  const UseDevice use(Device::cuda);
  const NoTape off;
  Random random(1);
  const auto bf16_of = [](const Tensor& w, int outputs) {
    const std::vector<double> values = w.values();
    const std::vector<float> f32(values.begin(), values.end());
    return bf16_weight_on_gpu(std::as_bytes(std::span(f32)), w.shape(), outputs);
  };
  const auto rounded = [](const Tensor& x) { return cast(cast(x, Type::bf16), Type::f32); };
  const auto compare = [](const std::vector<double>& some, const std::vector<double>& all) {
    int64_t different = 0;
    for (size_t i = 0; i < some.size(); ++i) different += !(some[i] == all[i]);
    return different;
  };
  for (const auto [k, n] : {Sizes{128, 384},
                            {256, 128},
                            {512, 512},
                            {512, 2048},
                            {1024, 256},
                            {2048, 512},
                            {128, 8000},
                            {512, 10000},
                            {200, 104},
                            {40, 24}}) {
    SCOPED_TRACE(std::to_string(k) + " x " + std::to_string(n));
    const Tensor x = normal({1536, k}, 1, random), w = normal({k, n}, 0.1, random),
                 bias = normal({n}, 1, random);
    const Tensor table = contiguous(transpose(w, 0, 1));
    const Tensor fixed = bf16_of(w, 1), fixed_table = bf16_of(table, 0);
    const std::vector<double> all = linear(x, fixed, bias, Activation::relu).values();
    const std::vector<double> known = [&] {
      set_exact_products(true);
      const SameForAnyRows same;
      return linear(rounded(x), rounded(w), bias, Activation::relu).values();
    }();
    double most = 0, largest = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      most = std::max(most, std::abs(all[i] - known[i])),
      largest = std::max(largest, std::abs(known[i]));
    }
    EXPECT_LT(most, 1e-5 * largest);
    EXPECT_EQ(
        compare(linear(x, transpose(fixed_table, 0, 1), bias, Activation::relu).values(), all), 0);
    EXPECT_EQ(compare(linear(cast(x, Type::bf16), fixed, bias, Activation::relu).values(), all), 0);
    EXPECT_EQ(compare(bf16_linear(x, fixed, bias, Activation::relu, Type::bf16).values(),
                      rounded(linear(x, fixed, bias, Activation::relu)).values()),
              0);
    EXPECT_EQ(
        compare(
            bf16_linear(cast(x, Type::bf16), fixed, bias, Activation::relu, Type::bf16).values(),
            rounded(linear(x, fixed, bias, Activation::relu)).values()),
        0);
    for (const int64_t rows : {1, 8, 40, 64, 256, 320, 1000, 1280}) {
      const Tensor first = slice(x, 0, 0, rows);
      EXPECT_EQ(compare(linear(first, fixed, bias, Activation::relu).values(), all), 0)
          << rows << " rows";
      EXPECT_EQ(
          compare(linear(first, transpose(fixed_table, 0, 1), bias, Activation::relu).values(),
                  all),
          0)
          << rows << " rows by a table";
      EXPECT_EQ(
          compare(linear(cast(first, Type::bf16), fixed, bias, Activation::relu).values(), all), 0)
          << rows << " rows of bf16";
    }
  }
}

// Most are short; some outgrow the first width of a search on a GPU.
std::vector<std::string> lines_of(int count) {
  std::vector<std::string> lines;
  Random random(7);
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (uint32_t n = 1 + random.below(i % 50 == 49 ? 150 : 25); n-- > 0;)
      line += std::string(line.empty() ? "" : " ") + static_cast<char>('a' + random.below(9));
    lines.push_back(line);
  }
  return lines;
}

std::vector<ModelConfig> sizes() {
  ModelConfig rnn{.family = "rnn", .size = 256, .score = "additive"};
  ModelConfig tiny{.family = "transformer",
                   .size = 128,
                   .encoder_layers = 2,
                   .decoder_layers = 2,
                   .score = "scaled_dot",
                   .heads = 4,
                   .inner = 256};
  ModelConfig base = tiny;
  base.size = 512, base.heads = 8, base.inner = 2048;
  return {rnn, tiny, base};
}

TEST_F(BatchesOnGpu, DoNotChangeATranslation) {
  for (const ModelConfig& c : sizes()) {
    const Folder folder;
    TrainConfig training;
    training.steps = 1;
    {
      const ModelFolder model =
          create_model(folder / "m", c, training, toy_corpus(folder)->tokenizers());
      save_parameters(model.params, model.path / "model.safetensors");
    }
    const std::vector<std::string> lines = lines_of(1000);
    std::vector<size_t> shuffled(lines.size());
    std::iota(shuffled.begin(), shuffled.end(), 0);
    Random random(5);
    for (size_t i = shuffled.size(); i > 1; --i)
      std::swap(shuffled[i - 1], shuffled[random.below(static_cast<uint32_t>(i))]);
    for (const auto& [beam, compute] :
         {std::pair(1, Compute::f32), {5, Compute::f32}, {1, Compute::bf16}, {5, Compute::bf16}}) {
      SCOPED_TRACE(c.family + ", size " + std::to_string(c.size) + ", beam " +
                   std::to_string(beam) + (compute == Compute::bf16 ? ", bf16" : ""));
      TranslateOptions o;
      o.search.beam = beam, o.search.max_extra = 4;
      // Each time a model opened anew, as by another call of the program.
      const auto translate = [&, &numbers = compute](const std::vector<std::string>& some,
                                                     int64_t batch) {
        o.batch = batch;
        return Translator(
                   LoadedModel::open(folder / "m", {.device = Device::cuda, .compute = numbers}))
            .translate(some, o);
      };
      const std::vector<Translation> known = translate(lines, 256);
      const auto compare = [&](const std::vector<Translation>& found, auto number) {
        int texts = 0, bytes = 0;
        for (size_t i = 0; i < found.size(); ++i) {
          const auto &x = found[i].best(), &y = known[number(i)].best();
          texts += x.text != y.text;
          bytes += !(x.log_probability == y.log_probability);
        }
        EXPECT_EQ(texts, 0);
        EXPECT_EQ(bytes, 0);
      };
      for (const int64_t batch : {1, 7, 64, 1000}) {
        SCOPED_TRACE("batch " + std::to_string(batch));
        const size_t count = batch < 10 ? lines.size() / 5 : lines.size();  // time
        compare(
            translate({lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(count)}, batch),
            [](size_t i) { return i; });
      }
      std::vector<std::string> other;
      for (const size_t i : shuffled) other.push_back(lines[i]);
      SCOPED_TRACE("shuffled");
      compare(translate(other, 256), [&](size_t i) { return shuffled[i]; });
    }
  }
}

}  // namespace
}  // namespace heed
