// On a GPU: a search whose steps are graphs finds what one by kernels finds; models train as they
// do on the CPU, in bf16 nearly so, and a run gives the same bytes twice.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "heed/models/config.h"
#include "heed/ops/into.h"
#include "heed/search/engine.h"
#include "heed/tensor/context.h"
#include "heed/tensor/graph.h"
#include "heed/training/loss.h"
#include "heed/training/optimizer.h"
#include "tests/cuda/on_gpu.h"
#include "tests/search_kinds.h"
#include "tests/sources.h"
#include "tests/toy.h"

namespace heed {
namespace {

// ---- search

std::vector<Words> some_sentences(int count, uint64_t seed) {
  Random random(seed);
  std::vector<Words> out(static_cast<size_t>(count));
  for (Words& words : out) {
    for (uint32_t n = random.below(18); n-- > 0;)
      words.push_back(4 + static_cast<Id>(random.below(40)));
    words.push_back(3);
  }
  return out;
}

// HEED_TEST_STEPS: no training has more, and searches are brief. For a sanitizer, under which a
// step takes seconds, and which learns nothing from the hundredth.
const int kMostSteps = [] {
  const char* most = std::getenv("HEED_TEST_STEPS");
  return most ? std::max(2, std::atoi(most)) : 1000;
}();

std::vector<ModelConfig> searched() {
  std::vector<ModelConfig> out;
  for (const char* score : {"additive", "bilinear"})
    for (const char* cell : {"gru", "lstm"})
      out.push_back({.family = "rnn",
                     .size = 32,
                     .decoder_layers = score[0] == 'a' ? 1 : 2,
                     .score = score,
                     .cell = cell,
                     .wiring = score[0] == 'a' ? "before" : "after",
                     .input_feeding = score[0] != 'a'});
  for (const char* position : {"sinusoidal", "learned", "rotary"})
    for (const char* weigh : {"soft", "sparsemax"})
      out.push_back({.family = "transformer",
                     .size = 32,
                     .encoder_layers = 2,
                     .decoder_layers = 2,
                     .score = "scaled_dot",
                     .weigh = weigh,
                     .heads = 4,
                     .inner = 64,
                     .position = position});
  out.push_back({.family = "rnn",
                 .size = 32,
                 .encoder_layers = 0,
                 .bidirectional = false,
                 .wiring = "after"});
  out.push_back({.family = "transformer",
                 .size = 32,
                 .encoder_layers = 0,
                 .decoder_layers = 2,
                 .score = "scaled_dot",
                 .heads = 4,
                 .inner = 64});
  return out;
}

// Searches with a model's steps as graphs and kernel by kernel, and compares what they find.
class TwoSearches {
 public:
  explicit TwoSearches(const ModelConfig& config) : config_(config) {}

  void compare(const std::vector<Words>& sentences, const SearchOptions& o) {
    const Source source = is_language_model(config_)
                              ? source_of(std::vector<Words>(sentences.size()))
                              : source_of(sentences);
    const auto one = search(plain_, source, o), two = search(graphs_, source, o);
    for (size_t b = 0; b < one.size(); ++b) {
      ASSERT_EQ(one[b].size(), two[b].size());
      ASSERT_FALSE(one[b].empty());
      const Hypothesis &x = one[b][0], &y = two[b][0];
      EXPECT_EQ(x.ids, y.ids) << "sentence " << b;
      if (x.ids != y.ids) continue;
      EXPECT_LE(std::abs(x.log_probability - y.log_probability), 1e-5 * double(x.ids.size() + 1));
      ASSERT_EQ(x.weights.size(), y.weights.size());
      for (size_t t = 0; t < x.weights.size(); ++t)
        for (size_t j = 0; j < x.weights[t].size(); ++j)
          EXPECT_NEAR(x.weights[t][j], y.weights[t][j], 1e-5);
    }
  }
  int64_t replayed() const {
    EXPECT_EQ(plain_.replayed(), 0);
    return graphs_.replayed();
  }

 private:
  const UseDevice use_{Device::cuda};
  const ModelConfig config_;
  const Params params_{3};
  const std::unique_ptr<Model> model_ = make_model(
      params_, config_, {.source = 44, .target = 44, .shared = is_language_model(config_)});
  Engine graphs_{*model_}, plain_{*model_, {.steps = Engine::Steps::plain}};
};

class Searches : public OnGpu, public testing::WithParamInterface<size_t> {
 protected:
  const ModelConfig config_ = searched()[GetParam()];
  const bool brief_ = kMostSteps < 100;
};
INSTANTIATE_TEST_SUITE_P(OnGpu, Searches, testing::Range(size_t{0}, searched().size()));

// The tokens of a search whose steps are graphs are those of one whose kernels are launched one by
// one, over batches of several sizes, all of which come back. Beams of any length end at different
// times, and the third batch's outgrow the first size of the KV caches.
TEST_P(Searches, OfGraphsAreThoseOfKernels) {
  SCOPED_TRACE(to_json(config_));
  TwoSearches two(config_);
  for (const int count : brief_ ? std::vector{5} : std::vector{30, 5, 12, 30, 5, 12})
    for (const int64_t beam : brief_ ? std::vector{4} : std::vector{1, 4}) {
      SearchOptions o;
      o.beam = o.best = beam, o.max_extra = count == 12 ? 60 : 10;
      if (brief_) o.max_length = 4;  // steps: one runs, one is captured, two are replayed
      o.want_weights = count == 5 && !is_language_model(config_);
      two.compare(some_sentences(count, static_cast<uint64_t>(count)), o);
    }
  EXPECT_GT(two.replayed(), brief_ ? 0 : 300);
}

TEST_P(Searches, OfEveryKindAreThoseOfKernels) {
  SCOPED_TRACE(to_json(config_));
  TwoSearches two(config_);
  const std::vector<Words> sentences = some_sentences(brief_ ? 2 : 9, 9);
  for (const auto& [name, options] : search_kinds(std::ssize(sentences), 5)) {
    SCOPED_TRACE(name);
    SearchOptions o = options;
    if (brief_) o.max_length = std::max<int64_t>(kMostSteps, o.min_length);
    const bool weighs = o.want_weights || o.coverage > 0;
    if (!weighs || !is_language_model(config_)) two.compare(sentences, o);
  }
  EXPECT_GT(two.replayed(), 0);
}

// The first source has more tokens than any table of positions so far, and what is written beside
// it outgrows that table while steps are replayed.
TEST_F(OnGpu, SearchesOutgrowTheirPositions) {
  const ModelConfig config = {.family = "transformer",
                              .size = 32,
                              .encoder_layers = 1,
                              .decoder_layers = 1,
                              .score = "scaled_dot",
                              .heads = 4,
                              .inner = 64};
  TwoSearches two(config);
  std::vector<Words> sentences = some_sentences(9, 3);
  sentences[0].assign(165, 7), sentences[0].push_back(3);
  SearchOptions o;
  o.beam = 1, o.min_length = kMostSteps < 100 ? 4 : 400, o.max_length = o.min_length + 10;
  two.compare(sentences, o);
}

// ---- models

struct Trained {
  std::vector<double> losses;
  std::vector<std::vector<double>> parameters;
};

Trained train(const ModelConfig& config, Device device, int steps, Type precision = Type::f32) {
  const UseDevice use(device);
  const Folder folder;
  const auto corpus = toy_corpus(folder);
  const TokenizerPair& tokenizers = corpus->tokenizers();
  const Params params(3);
  const auto model = make_model(
      params, config,
      {.source = tokenizers.source->size(), .target = tokenizers.target->size(), .shared = false});
  if (precision == Type::bf16) params.keep_compute_copies();
  Adam adam(params, {.clip_norm = 1});
  Batches batches(corpus, {.tokens = 256, .seed = 5});
  StepGraphs graphs(Arena::make(device));
  const Tensor found = tensor({0}, {1});
  Trained out;
  for (int step = 0; step < std::min(steps, kMostSteps); ++step) {
    const Batch b = rounded_up(batches.next(), 0, 0);
    // From the third time on that a shape comes it is a graph that runs.
    graphs.run({b.rows, b.source_width, b.target_width}, [&, before = adam.steps()] {
      adam.set_steps(before);
      Tape tape(static_cast<uint64_t>(step));
      const BatchLoss loss = batch_loss(*model, b, {});
      tape.backward(loss.total);
      adam.step(2e-3);
      copy_into(loss.cross_entropy.view({1}, {1}), found);
    });
    out.losses.push_back(found.item());
  }
  for (const Parameter& p : params.all()) out.parameters.push_back(p.value.values());
  return out;
}

std::vector<ModelConfig> models() {
  std::vector<ModelConfig> out;
  for (const char* score : {"none", "additive", "bilinear", "dot"})
    for (const char* wiring : {"before", "after"})
      out.push_back(
          {.family = "rnn", .size = 24, .dropout = 0.1, .score = score, .wiring = wiring});
  for (const char* cell : {"rnn", "lstm"})
    out.push_back({.family = "rnn", .size = 16, .decoder_layers = 2, .heads = 2, .cell = cell});
  for (const char* weigh : {"straight_through", "sparsemax", "entmax", "gumbel"})
    out.push_back({.family = "rnn", .size = 16, .weigh = weigh});
  out.push_back({.family = "rnn", .size = 64, .dropout = 0.1});  // the decoder in bf16 is one op
  for (const char* position : {"sinusoidal", "learned", "rotary"})
    out.push_back({.family = "transformer",
                   .size = 32,
                   .encoder_layers = 2,
                   .decoder_layers = 2,
                   .dropout = 0.1,
                   .score = "scaled_dot",
                   .heads = 4,
                   .attention_dropout = 0.1,
                   .inner = 64,
                   .inner_dropout = 0.1,
                   .position = position});
  // Heads of 32 elements, two of them with the same keys: in bf16 attention is on tensor cores.
  ModelConfig wide = out.back();
  wide.size = 128, wide.key_heads = 2, wide.encoder_layers = wide.decoder_layers = 1;
  out.push_back(wide);
  return out;
}

// One model a test: each can be run by itself.
class Models : public OnGpu, public testing::WithParamInterface<size_t> {
 protected:
  const ModelConfig config_ = models()[GetParam()];
};
INSTANTIATE_TEST_SUITE_P(OnGpu, Models, testing::Range(size_t{0}, models().size()));

// Rounding differs, and grows with the steps: the first losses are the same to many digits.
TEST_P(Models, TrainAsOnTheCpu) {
  SCOPED_TRACE(to_json(config_));
  const Trained cpu = train(config_, Device::cpu, 12), gpu = train(config_, Device::cuda, 12);
  for (size_t i = 0; i < cpu.losses.size(); ++i)
    EXPECT_NEAR(cpu.losses[i], gpu.losses[i], (i == 0 ? 1e-5 : 2e-3) * cpu.losses[i]) << i;
}

// bf16 has 8 bits: a loss is right to a percent, and falls as it does in f32.
void compare_bf16(const ModelConfig& config) {
  SCOPED_TRACE(to_json(config));
  const Trained f32 = train(config, Device::cuda, 60);
  const Trained bf16 = train(config, Device::cuda, 60, Type::bf16);
  EXPECT_NEAR(f32.losses[0], bf16.losses[0], 0.01 * f32.losses[0]);
  EXPECT_NEAR(f32.losses.back(), bf16.losses.back(), 0.05 * f32.losses[0]);
  if (kMostSteps >= 60) {
    EXPECT_LT(bf16.losses.back(), 0.9 * bf16.losses[0]);
  }
}

bool trains_in_bf16(const ModelConfig& config) {
  return make_model(Params(3), config, {.source = 8, .target = 8})->trains_in_bf16();
}

TEST_P(Models, TrainInBf16) {
  if (!trains_in_bf16(config_)) GTEST_SKIP() << "trains in f32 alone";
  ModelConfig config = config_;
  if (config.family == "rnn")
    for (const bool tied : {false, true}) config.tied = tied, compare_bf16(config);
  else
    for (const char* score : {"scaled_dot", "additive"})
      for (const char* weigh : {"soft", "sparsemax"}) {
        config.score = score, config.weigh = weigh;
        if (config.weigh == "sparsemax") config.attention_dropout = 0;
        compare_bf16(config);
      }
}

// What is skipped above is not everything: the decoder of size 64 that is one op, and Transformers.
TEST_F(OnGpu, FiveModelsTrainInBf16) {
  const std::vector<ModelConfig> all = models();
  EXPECT_EQ(std::ranges::count_if(all, trains_in_bf16), 5);
}

TEST_F(OnGpu, TwoRunsOf200StepsGiveTheSameBytes) {
  set_exact_products(false);
  const auto twice = [](const ModelConfig& config, Type precision) {
    SCOPED_TRACE(to_json(config) + name(precision));
    const Trained one = train(config, Device::cuda, 200, precision);
    const Trained two = train(config, Device::cuda, 200, precision);
    EXPECT_EQ(one.parameters, two.parameters);
    EXPECT_EQ(one.losses, two.losses);
    if (kMostSteps >= 200) {
      EXPECT_LT(one.losses.back(), one.losses.front());
    }
  };
  const std::vector<ModelConfig> all = models();
  twice(all[2], Type::f32);
  for (const Type precision : {Type::f32, Type::bf16}) twice(all.back(), precision);
  twice({.family = "rnn", .size = 64, .dropout = 0.1}, Type::bf16);
}

}  // namespace
}  // namespace heed
