// Training steps on a GPU, at the sizes at which peers are measured on the same chip
// (tools/gpu-check sets the two beside each other).
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "bench/bench.h"
#include "heed/base/check.h"
#include "heed/models/model.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/graph.h"
#include "heed/tensor/memory.h"
#include "heed/training/loss.h"
#include "heed/training/optimizer.h"

namespace heed::bench {
namespace {

struct Size {
  std::string name;
  int64_t words, batch, length;
  ModelConfig config;
};

ModelConfig transformer(int64_t size, int64_t heads, int64_t layers, int64_t inner) {
  return {.family = "transformer",
          .size = size,
          .encoder_layers = layers,
          .decoder_layers = layers,
          .dropout = 0.1,
          .tied = true,
          .score = "scaled_dot",
          .heads = heads,
          .inner = inner};
}

// Each Transformer twice: as heed's presets have it, and with dropout of weights and inside the
// feed-forward layers too, which is what PyTorch's drops.
std::vector<Size> sizes() {
  std::vector<Size> out{{"tiny", 10000, 256, 16, transformer(128, 4, 4, 256)},
                        {"iwslt", 10000, 160, 25, transformer(512, 4, 6, 1024)},
                        {"base", 32000, 400, 32, transformer(512, 8, 6, 2048)},
                        {"big", 32000, 200, 32, transformer(1024, 16, 6, 4096)}};
  for (size_t i = 0; i < 4; ++i) {
    Size all = out[i];
    all.name += "/dropouts";
    all.config.attention_dropout = all.config.inner_dropout = all.config.dropout;
    out.push_back(all);
  }
  out.push_back({"recurrent", 10000, 128, 25, {.family = "rnn", .size = 512, .dropout = 0}});
  return out;
}

Batch full_batch(const Size& s) {
  Batch b;
  b.rows = s.batch, b.source_width = b.target_width = s.length;
  const auto fill = [&](std::vector<Id>& out, Id from) {
    for (int64_t i = 0; i < s.batch * s.length; ++i)
      out.push_back(static_cast<Id>((from + 7919 * i) % s.words));
  };
  fill(b.source, 3), fill(b.target_in, 5), fill(b.target, 11);
  b.source_lengths.assign(static_cast<size_t>(s.batch), static_cast<Id>(s.length));
  b.target_lengths = b.source_lengths;
  return b;
}

}  // namespace

void cuda_training(const std::string& only, const std::function<void(const CudaResult&)>& found) {
  std::vector<Size> wanted = sizes();
  std::vector<std::string> names;
  for (Size& s : wanted) names.push_back(s.name.insert(0, "gpu/train/"));
  std::erase_if(wanted, [&](const Size& s) { return s.name.find(only) == std::string::npos; });
  require(!wanted.empty(), unknown_name("row", only, names));
  const UseDevice use(Device::cuda);
  for (const Size& s : wanted) {
    const Params params(1);
    const auto model = make_model(params, s.config,
                                  {.source = s.words, .target = s.words, .shared = s.config.tied});
    if (model->trains_in_bf16()) params.keep_working_copies();
    Adam adam(params, {.clip_norm = 1});
    const auto arena = Arena::make(Device::cuda);
    const Batch batch = full_batch(s);
    StepGraphs graphs(arena);
    const auto step = [&] {
      graphs.run({batch.rows, batch.source_width, batch.target_width}, [&, before = adam.steps()] {
        adam.set_steps(before);
        Tape tape(static_cast<uint64_t>(before));
        tape.backward(batch_loss(*model, batch, {.smoothing = 0.1}).total);
        adam.step(5e-4);
      });
    };
    // Until the graph replays, and the chip has reached its pace.
    const auto from = std::chrono::steady_clock::now();
    for (int i = 0; i < 5 || std::chrono::steady_clock::now() - from < std::chrono::seconds(1);
         ++i) {
      step();
      cuda_synchronize();
    }
    // Rounds of a quarter of a second: as in training, a step is prepared while the last one runs.
    std::vector<double> times;
    for (int round = 0; round < 5; ++round) {
      const auto begin = std::chrono::steady_clock::now();
      const auto seconds = [&] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      };
      int steps = 0;
      while (seconds() < 0.25)
        for (int i = 0; i < 10; ++i, ++steps) step();
      cuda_synchronize();
      times.push_back(seconds() / steps);
    }
    std::sort(times.begin(), times.end());
    found({s.name, times[2], double(s.batch * s.length) / times[2], double(arena->peak()) / 1e6,
           adam.gradient_norm()});
  }
}

}  // namespace heed::bench
