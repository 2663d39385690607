// Rows for whole training steps: forward, backward, clipping, Adam. The models are written here
// from layers and ops alone; the same sizes are in peer_torch_models.cpp.
#include <cmath>
#include <memory>

#include "bench/bench.h"
#include "heed/attention/multi_head.h"
#include "heed/nn/recurrent.h"
#include "heed/ops/bf16.h"
#include "heed/tensor/context.h"
#include "heed/training/optimizer.h"

namespace heed::bench {
namespace {

Tensor some_words(int64_t batch, int64_t length, int64_t words) {
  std::vector<Id> id(static_cast<size_t>(batch * length));
  for (size_t i = 0; i < id.size(); ++i)
    id[i] = static_cast<Id>(i * 7919 % static_cast<size_t>(words));
  return ids(id, {batch, length});
}

// ---- Transformer

constexpr int64_t kBatch = 32, kLength = 32, kWords = 8000, kSize = 256, kInner = 1024, kHeads = 4,
                  kLayers = 3;
constexpr double kDropout = 0.1;

class Layer {
 public:
  Layer(const Params& params, bool decoder)
      : self_norm_(params / "self_norm", kSize),
        ff_norm_(params / "ff_norm", kSize),
        self_(params / "self", {.model = kSize, .heads = kHeads}),
        ff_(params / "ff", kSize, kInner) {
    if (decoder) {
      cross_norm_.emplace(params / "cross_norm", kSize);
      cross_.emplace(params / "cross", MultiHead::Sizes{.model = kSize, .heads = kHeads});
    }
  }
  Tensor operator()(Tensor x, const std::optional<Tensor>& memory, const Mask& mask) const {
    const Tensor normed = self_norm_(x);
    x = x + dropout(self_(normed, self_.project_kv(normed), {.mask = mask}).y, kDropout);
    if (memory)
      x = x + dropout((*cross_)((*cross_norm_)(x), cross_->project_kv(*memory)).y, kDropout);
    return x + dropout(ff_(ff_norm_(x)), kDropout);
  }

 private:
  LayerNorm self_norm_, ff_norm_;
  MultiHead self_;
  FeedForward ff_;
  std::optional<LayerNorm> cross_norm_;
  std::optional<MultiHead> cross_;
};

class Transformer {
 public:
  explicit Transformer(const Params& params)
      : source_(params / "source", kWords, kSize),
        target_(params / "target", kWords, kSize),
        encoder_norm_(params / "encoder_norm", kSize),
        decoder_norm_(params / "decoder_norm", kSize),
        output_(params / "output", kSize, kWords, Linear::Bias::no),
        positions_(sinusoidal_positions(kLength, kSize)) {
    for (int64_t i = 0; i < kLayers; ++i) {
      encoder_.emplace_back(params / ("encoder" + std::to_string(i)), false);
      decoder_.emplace_back(params / ("decoder" + std::to_string(i)), true);
    }
  }

  Tensor loss(const Tensor& source, const Tensor& in, const Tensor& out) const {
    const auto embed = [&](const Embedding& table, const Tensor& id) {
      return dropout(table(id) * std::sqrt(double(kSize)) + positions_, kDropout);
    };
    Tensor x = embed(source_, source);
    for (const Layer& layer : encoder_) x = layer(x, std::nullopt, {});
    const Tensor memory = encoder_norm_(x);
    Tensor y = embed(target_, in);
    for (const Layer& layer : decoder_) y = layer(y, memory, Mask::causal());
    return linear_cross_entropy(decoder_norm_(y), output_.weight(), out, 0.1);
  }

 private:
  Embedding source_, target_;
  std::vector<Layer> encoder_, decoder_;
  LayerNorm encoder_norm_, decoder_norm_;
  Linear output_;
  Tensor positions_;
};

// A step: its model, optimizer and memory.
template <class Model>
struct Step {
  Params params{1};
  Model model;
  Adam adam{params, {.clip_norm = 1}};
  std::shared_ptr<Arena> arena = Arena::make();
  Tensor source, in, out;
  bool bf16 = false;  // products in mixed precision

  template <class... Sizes>
  explicit Step(Sizes... sizes) : model(params, sizes...) {}

  void run() {
    const UseArena use(*arena);
    const UseBf16Products products(bf16);
    Tape tape(static_cast<uint64_t>(adam.steps()));
    tape.backward(model.loss(source, in, out));
    adam.step(1e-4);
  }
};

std::shared_ptr<Step<Transformer>> transformer_step() {
  auto step = std::make_shared<Step<Transformer>>();
  step->source = some_words(kBatch, kLength, kWords);
  step->in = some_words(kBatch, kLength, kWords);
  step->out = some_words(kBatch, kLength, kWords);
  return step;
}

Job transformer(const std::string& name, bool bf16) {
  auto step = transformer_step();
  step->bf16 = bf16;
  // Products: 6 flops for each token and weight it meets, and those of attention.
  const double tokens = kBatch * kLength, square = double(kSize) * kSize, ff = 2.0 * kSize * kInner;
  const double weights = kLayers * (4 * square + ff) + kLayers * (8 * square + ff) + kSize * kWords;
  const double attention = 3.0 * kLayers * 3 * 4 * kBatch * kLength * kLength * kSize;
  return {.name = name, .work = [step] { step->run(); }, .flops = 6 * tokens * weights + attention};
}

// ---- GRU with additive attention (Bahdanau et al., 2015)

constexpr int64_t kRnnLength = 30, kState = 256;

class GruAdditive {
 public:
  GruAdditive(const Params& params, int64_t words)
      : source_(params / "source", words, kState),
        target_(params / "target", words, kState),
        encoder_(params / "encoder",
                 {.cell = Cell::gru, .in = kState, .size = kState, .bidirectional = true}),
        decoder_(params / "decoder", Cell::gru, kState, kState),
        context_gates_(params / "context", 2 * kState, 3 * kState, Linear::Bias::no),
        query_(params / "query", kState, kState, Linear::Bias::no),
        key_(params / "key", 2 * kState, kState, Linear::Bias::no),
        v_(params.add("v", {kState, 1}, glorot())),
        hidden_(params / "hidden", 4 * kState, kState),
        output_(params / "output", kState, words, Linear::Bias::no) {}

  Tensor loss(const Tensor& source, const Tensor& in, const Tensor& out) const {
    const int64_t batch = source.size(0), steps = in.size(1);
    const Tensor h = encoder_(source_(source)).states;  // [B, Ts, 2 n]
    const Shape one_head{batch, 1, h.size(1), -1};
    const Tensor keys = reshape(key_(h), one_head), values = reshape(h, one_head);
    const Tensor v = reshape(v_, {1, kState});
    const Tensor embedded = target_(in);
    const Tensor word_gates = decoder_.gates(embedded);  // of all steps at once
    CellState s = decoder_.start(batch);
    std::vector<Tensor> states, contexts;
    for (int64_t t = 0; t < steps; ++t) {
      const Tensor q = reshape(query_(s.h), {batch, 1, 1, kState});
      const Tensor read =
          fused_attention({.form = ScoreForm::additive, .q = q, .k = keys, .value = values, .v = v})
              .context;
      const Tensor c = reshape(read, {batch, 2 * kState});
      const Tensor word = reshape(slice(word_gates, 1, t, t + 1), {batch, 3 * kState});
      s = decoder_.step_from_gates(word + context_gates_(c), s);
      states.push_back(reshape(s.h, {batch, 1, kState}));
      contexts.push_back(reshape(c, {batch, 1, 2 * kState}));
    }
    const Tensor all = concat({concat(states, 1), concat(contexts, 1), embedded}, 2);
    return linear_cross_entropy(hidden_(all, Activation::tanh), output_.weight(), out, 0.1);
  }

 private:
  Embedding source_, target_;
  RecurrentStack encoder_;
  RecurrentCell decoder_;
  Linear context_gates_, query_, key_;
  Tensor v_;
  Linear hidden_, output_;
};

Job gru_additive(const std::string& name, int64_t words, bool bf16 = false) {
  auto step = std::make_shared<Step<GruAdditive>>(words);
  step->bf16 = bf16;
  step->source = some_words(kBatch, kRnnLength, words);
  step->in = some_words(kBatch, kRnnLength, words);
  step->out = some_words(kBatch, kRnnLength, words);
  const double tokens = kBatch * kRnnLength, square = double(kState) * kState;
  // Two encoder directions 6 each, decoder 9 + 3, query 1, key 2, hidden 4, in squares of the
  // state.
  const double weights = 31 * square + double(kState) * double(words);
  return {.name = name, .work = [step] { step->run(); }, .flops = 6 * tokens * weights};
}

// ---- a cell alone

Job cell_alone(const std::string& name, Cell cell) {
  struct Ready {
    Params params{1};
    RecurrentCell cell;
    Tensor x;
    std::shared_ptr<Arena> arena = Arena::make();
    explicit Ready(Cell c) : cell(params, c, kState, kState) {}
  };
  auto ready = std::make_shared<Ready>(cell);
  Random random(1);
  ready->x = normal({kBatch, kRnnLength, kState}, 1, random);
  return {.name = name,
          .work =
              [ready] {
                const UseArena use(*ready->arena);
                Tape tape;
                tape.backward(sum(ready->cell(ready->x).h));
                ready->params.clear_gradients();
              },
          .flops = 6.0 * kBatch * kRnnLength * 2 * kernels::gate_count(cell) * kState * kState};
}

}  // namespace

std::vector<Row> train_rows() {
  std::vector<Row> rows;
  for (const char* precision : {"", "/bf16"}) {
    const bool bf16 = *precision != '\0';
    if (bf16 && !bf16_products_are_fast()) break;
    for (const auto& [name, words] : {std::pair<std::string, int64_t>{"train/transformer", 0},
                                      {"train/gru_additive", 512},
                                      {"train/gru_additive/8000", 8000}})
      rows.push_back({name + precision, [=, name = name + precision, words = words] {
                        return words == 0 ? transformer(name, bf16)
                                          : gru_additive(name, words, bf16);
                      }});
  }
  rows.push_back({"train/gru", [] { return cell_alone("train/gru", Cell::gru); }});
  rows.push_back({"train/lstm", [] { return cell_alone("train/lstm", Cell::lstm); }});
  return rows;
}

int64_t transformer_peak_bytes() {
  auto step = transformer_step();
  step->run();
  step->arena->reset_peak();
  step->run();
  return step->arena->peak();
}

}  // namespace heed::bench
