// Attention and training steps on a GPU, at the sizes at which peers are measured on the same chip
// (tools/gpu-check sets the two beside each other).
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "bench/attending.h"
#include "bench/bench.h"
#include "heed/models/model.h"
#include "heed/tensor/context.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/graph.h"
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

// The middle of five rounds of about `round` seconds, in which as in training a call is prepared
// while the last one runs; before them, until the chip has reached its pace.
double middle(double round, const Work& work) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  const auto from = Clock::now();
  double one = 0;  // the last call, waited for
  for (int i = 0; i < 5 || since(from) < 4 * round; ++i) {
    const auto begin = Clock::now();
    work();
    cuda_synchronize();
    one = since(begin);
  }
  // Counted before: the host is ahead of the chip, and would not see a round's end.
  const int calls = std::max(10, static_cast<int>(round / one));
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    for (int j = 0; j < calls; ++j) work();
    cuda_synchronize();
    times.push_back(since(begin) / calls);
  }
  std::sort(times.begin(), times.end());
  return times[2];
}

CudaResult training_step(const Size& s) {
  const Params params(1);
  const auto model =
      make_model(params, s.config, {.source = s.words, .target = s.words, .shared = s.config.tied});
  if (model->trains_in_bf16()) params.keep_compute_copies();
  Adam adam(params, {.clip_norm = 1});
  const auto arena = Arena::make(Device::cuda);
  const Batch batch = full_batch(s);
  StepGraphs graphs(arena);
  const double seconds = middle(0.25, [&] {
    graphs.run({batch.rows, batch.source_width, batch.target_width}, [&, before = adam.steps()] {
      adam.set_steps(before);
      Tape tape(static_cast<uint64_t>(before));
      tape.backward(batch_loss(*model, batch, {.smoothing = 0.1}).total);
      adam.step(5e-4);
    });
  });
  return {.seconds = seconds,
          .words = double(s.batch * s.length),
          .megabytes = double(arena->peak()) / 1e6,
          .gradient_norm = adam.gradient_norm()};
}

CudaResult attention(const Attending& ready, bool backward, double flops) {
  const double seconds =
      middle(0.05, [&] { backward ? ready.forward_backward() : ready.forward(); });
  const double bytes = double(ready.arena->peak()) + double(cuda_scratch_bytes());
  return {.seconds = seconds, .flops = flops, .megabytes = bytes / 1e6};
}

}  // namespace

// Additive attention first: kernels keep the most scratch memory that any of them wanted.
std::vector<CudaRow> cuda_rows() {
  std::vector<CudaRow> out;
  const auto both = [&](const std::string& name, std::function<std::unique_ptr<Attending>()> make,
                        double flops) {
    for (const bool backward : {false, true})
      out.push_back({"gpu/attention/" + name + (backward ? "/forward_backward" : "/forward"),
                     [=] { return attention(*make(), backward, flops * (backward ? 3.5 : 1)); }});
  };
  for (const auto& [batch, size] : {std::pair<int64_t, int64_t>{8, 256}, {4, 512}})
    both(
        "additive/" + std::to_string(batch) + "x1024x1024x" + std::to_string(size),
        [=] {
          return std::make_unique<Additive>(AttendingSizes{batch, 1, 1024, size});
        },
        0);
  for (const int64_t size : {64, 128})
    for (const bool causal : {false, true})
      for (const int64_t length : {512, 2048, 8192}) {
        const AttendingSizes sizes{16384 / length, 2048 / size, length, size, Type::bf16};
        both(
            "scaled_dot/d" + std::to_string(size) + "/" + std::to_string(length) +
                (causal ? "/causal" : ""),
            [=] { return std::make_unique<ScaledDot>(sizes, causal ? Mask::causal() : Mask()); },
            4.0 * 16384 * 2048 * double(length) * (causal ? 0.5 : 1));
      }
  for (const Size& s : sizes())
    out.push_back({"gpu/train/" + s.name, [s] { return training_step(s); }});
  return out;
}

}  // namespace heed::bench
