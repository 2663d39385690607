// On a GPU: the sum of micro-batches' gradients has the bits of the CPU's, and micro-batches are
// replayed. Several ranks on GPUs: tools/gpu-ranks.
#include "heed/ranks/ranks.h"

#include "heed/models/config.h"
#include "heed/ops/ops.h"
#include "heed/training/gradient_sum.h"
#include "tests/cuda/on_gpu.h"
#include "tests/toy_run.h"

namespace heed {
namespace {

struct Summed {
  std::vector<std::vector<double>> gradients;  // by parameter; empty: none
  std::vector<double> squares;                 // by block
};

// The same numbers on every device. Parameters of odd sizes, so that few lie side by side; one has
// a gradient in some micro-batches, one in none, one a gradient whose elements lie apart.
Summed summed(Device device, int64_t all) {
  const UseDevice use(device);
  const Params params(3);
  const std::vector<Shape> shapes{{7}, {129, 65}, {5, 3}, {1}, {64, 96}, {33}};
  for (size_t i = 0; i < shapes.size(); ++i)
    params.add("p" + std::to_string(i), shapes[i], constant(0));
  const auto drawn = [&](Random& random, const Shape& shape) {
    const UseDevice host(Device::cpu);  // whose numbers both have
    return to(normal(shape, 1, random), device);
  };
  const auto one = alone();
  const Shards shards(params, *one);
  GradientSum sum(params, shards, all);
  Random random(11);
  for (int64_t at = 0; at < all; ++at) {
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (i == 5 || (i == 2 && at % 3 != 1)) continue;
      Tensor grad = drawn(random, shapes[i]);
      if (i == 4) grad = transpose(drawn(random, {96, 64}), 0, 1);
      params.all()[i].value.parameter_state()->grad = std::make_shared<Tensor>(grad);
    }
    sum.take(at);
  }
  const SummedGradients found = sum.give(*one, nullptr);
  Summed out{.gradients = {}, .squares = found.squares.values()};
  for (const auto& piece : found.pieces)
    out.gradients.push_back(piece ? piece->values() : std::vector<double>());
  return out;
}

TEST_F(OnGpu, GradientsAreSummedToTheBitsOfTheCpus) {
  for (int64_t all = 1; all <= 9; ++all) {
    const Summed cpu = summed(Device::cpu, all), gpu = summed(Device::cuda, all);
    EXPECT_EQ(cpu.gradients, gpu.gradients) << all << " micro-batches";
    ASSERT_EQ(cpu.squares.size(), 9u);  // three of the second, two of the fifth
    for (size_t b = 0; b < cpu.squares.size(); ++b)
      EXPECT_NEAR(gpu.squares[b], cpu.squares[b], 1e-5 * cpu.squares[b]) << "block " << b;
    EXPECT_TRUE(cpu.gradients[5].empty());
    EXPECT_EQ(cpu.gradients[2].empty(), all < 2);
    EXPECT_NE(cpu.gradients[1][0], 0);
  }
}

// Whatever the others of its update are, a shape that came before is a graph.
TEST_F(OnGpu, MicroBatchesAreReplayed) {
  const Folder data, folder;
  const UseDevice use(Device::cuda);
  const auto corpus = toy_corpus(data, {.sentences = 400, .longest = 9});
  ModelConfig model = toy_transformer();
  model.dropout = 0.1;
  TrainConfig config;
  config.batch_tokens = 160, config.accumulate = 4, config.epochs = 8, config.validate_every = 4;
  const ToyRun run = begin(corpus, model, config, folder.path());
  Trainer::Hooks hooks;
  hooks.validate = [] { return Validation{.loss = 1, .bleu = {}}; };
  int64_t updates = 0;
  double replayed = 0;
  hooks.log = [&](const Progress& p) {
    if (p.epoch <= 3 || p.updates == 0) return;  // the window may have begun in the second
    updates += p.updates, replayed += double(p.updates) * p.replayed.value_or(0);
  };
  run.trainer->run(hooks);
  ASSERT_GT(updates, 20);
  EXPECT_GE(replayed, 0.9 * double(updates));
}

}  // namespace
}  // namespace heed
