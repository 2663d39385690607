// Whole training steps by libtorch. Products that share an input are one product, sentences lie
// time first, so that the heads of attention and the steps of a recurrence are views and not
// copies, and gradients are freed after each step, so that the next backward pass hands over its
// results instead of adding to zeros.
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "bench/peer_torch.h"

namespace heed::bench {
namespace {

using at::Tensor;

constexpr int64_t kBatch = 32;
constexpr int64_t kVocabulary = 8000;
constexpr int64_t kSize = 256;  // of the model, of embeddings, of hidden states
constexpr double kSmoothing = 0.1;
constexpr double kDropout = 0.1;

void forget_gradients(const std::vector<Tensor>& weights) {
  for (const Tensor& weight : weights) weight.mutable_grad().reset();
}

// Makes weights, and trains all it made.
class Parameters {
 public:
  Tensor weight(at::IntArrayRef sizes) {
    return keep(at::randn(sizes).mul_(1 / std::sqrt(static_cast<double>(sizes.back()))));
  }

  Tensor constant(int64_t size, double value) { return keep(at::full({size}, value)); }

  void keep_all(const std::vector<Tensor>& tensors) {
    tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
  }

  // Gradients of the loss, clipping, Adam.
  void train(const Tensor& loss) {
    if (!adam_) {
      const auto options = torch::optim::AdamOptions(1e-4).betas({0.9, 0.98});
      adam_ = std::make_unique<torch::optim::Adam>(tensors_, options);
    }
    loss.backward();
    torch::nn::utils::clip_grad_norm_(tensors_, 1.0);
    adam_->step();
    forget_gradients(tensors_);
  }

 private:
  Tensor keep(const Tensor& tensor) {
    tensors_.push_back(tensor.requires_grad_());
    return tensors_.back();
  }

  std::vector<Tensor> tensors_;
  std::unique_ptr<torch::optim::Adam> adam_;
};

struct Linear {
  Linear(Parameters& make, int64_t in, int64_t out)
      : w(make.weight({out, in})), b(make.constant(out, 0)) {}
  Tensor operator()(const Tensor& x) const { return at::linear(x, w, b); }

  Tensor w, b;
};

struct LayerNorm {
  explicit LayerNorm(Parameters& make)
      : gamma(make.constant(kSize, 1)), beta(make.constant(kSize, 0)) {}
  Tensor operator()(const Tensor& x) const { return at::layer_norm(x, {kSize}, gamma, beta); }

  Tensor gamma, beta;
};

Tensor random_ids(int64_t count, int64_t vocabulary = kVocabulary) {
  return at::randint(vocabulary, {count}, at::kLong);
}

Tensor smoothed_loss(const Tensor& logits, const Tensor& targets) {
  return torch::nn::functional::cross_entropy(
      logits, targets,
      torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(kSmoothing));
}

// The Transformer: Vaswani et al. 2017, normalizing before each part and once more at the end.
// Activations are [T * B, D].

constexpr int64_t kLayers = 3;
constexpr int64_t kInner = 1024;
constexpr int64_t kHeads = 4;
constexpr int64_t kHeadSize = kSize / kHeads;
constexpr int64_t kLength = 32;

// Sixteen random bits decide on an element. libtorch's own dropout draws 64 for each, in one thread
// and behind a distribution, which would be its slowest part after the products.
Tensor dropped(const Tensor& x) {
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr auto kFirstKept = static_cast<int64_t>(-32768 + 65536 * kDropout);
  const Tensor bits =
      at::empty({x.numel() / 4}, at::kLong).random_(kLowest, at::optional<int64_t>());
  const Tensor kept = bits.view(at::kShort).view(x.sizes()).ge(kFirstKept);
  return x.mul(kept).mul_(1 / (1 - kDropout));
}

// The projections side by side in x, each [B * H, T, d] without a copy: a head's query, key and
// value are neighbors in the fused weight, so batch and head are one axis with one stride. Unbound
// and not sliced, since unbinding's gradient is one concatenation.
std::vector<Tensor> split_heads(const Tensor& x, int64_t parts) {
  std::vector<Tensor> split = x.view({kLength, kBatch * kHeads, parts, kHeadSize}).unbind(2);
  for (Tensor& part : split) part = part.transpose(0, 1);
  return split;
}

// The mask is added to all scores: [Tq, Tk] or a single zero.
Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask) {
  const Tensor scores = at::baddbmm(mask, query, key.transpose(1, 2), /*beta=*/1,
                                    /*alpha=*/1 / std::sqrt(double{kHeadSize}));
  const Tensor context = at::bmm(scores.softmax(-1), value);          // [B * H, T, d]
  return context.transpose(0, 1).reshape({kLength * kBatch, kSize});  // [T * B, D]
}

struct SelfAttention {
  explicit SelfAttention(Parameters& make)
      : norm(make), in(make, kSize, 3 * kSize), out(make, kSize, kSize) {}
  Tensor operator()(const Tensor& x, const Tensor& mask) const {
    const std::vector<Tensor> qkv = split_heads(in(norm(x)), 3);
    return x + dropped(out(attend(qkv[0], qkv[1], qkv[2], mask)));
  }

  LayerNorm norm;
  Linear in, out;
};

struct CrossAttention {
  explicit CrossAttention(Parameters& make)
      : norm(make),
        query(make, kSize, kSize),
        key_value(make, kSize, 2 * kSize),
        out(make, kSize, kSize) {}
  Tensor operator()(const Tensor& x, const Tensor& memory, const Tensor& mask) const {
    const Tensor q = split_heads(query(norm(x)), 1)[0];
    const std::vector<Tensor> kv = split_heads(key_value(memory), 2);
    return x + dropped(out(attend(q, kv[0], kv[1], mask)));
  }

  LayerNorm norm;
  Linear query, key_value, out;
};

struct FeedForward {
  explicit FeedForward(Parameters& make)
      : norm(make), in(make, kSize, kInner), out(make, kInner, kSize) {}
  Tensor operator()(const Tensor& x) const { return x + dropped(out(in(norm(x)).relu_())); }

  LayerNorm norm;
  Linear in, out;
};

// sin and cos of position / 10000^(2i/D), side by side; [T, 1, D].
Tensor sinusoids() {
  const Tensor position = at::arange(kLength, at::kFloat).unsqueeze(1);
  const Tensor rate = at::exp(at::arange(0, kSize, 2, at::kFloat) * (-std::log(1e4) / kSize));
  return at::stack({at::sin(position * rate), at::cos(position * rate)}, -1)
      .view({kLength, 1, kSize});
}

class Transformer {
 public:
  Transformer() {
    for (int64_t i = 0; i < kLayers; ++i) encoder_.emplace_back(make_);
    for (int64_t i = 0; i < kLayers; ++i) decoder_.emplace_back(make_);
  }

  void step() {
    Tensor memory = embed(source_table_, source_);
    for (const EncoderLayer& layer : encoder_) memory = layer.feed(layer.self(memory, no_mask_));
    memory = encoder_norm_(memory);
    Tensor x = embed(target_table_, target_);
    for (const DecoderLayer& layer : decoder_) {
      x = layer.feed(layer.cross(layer.self(x, causal_), memory, no_mask_));
    }
    make_.train(smoothed_loss(at::linear(decoder_norm_(x), output_), expected_));
  }

 private:
  struct EncoderLayer {
    explicit EncoderLayer(Parameters& make) : self(make), feed(make) {}
    SelfAttention self;
    FeedForward feed;
  };

  struct DecoderLayer {
    explicit DecoderLayer(Parameters& make) : self(make), cross(make), feed(make) {}
    SelfAttention self;
    CrossAttention cross;
    FeedForward feed;
  };

  Tensor embed(const Tensor& table, const Tensor& ids) const {
    const Tensor rows = at::embedding(table, ids).view({kLength, kBatch, kSize});
    const Tensor x = at::add(positions_, rows, /*alpha=*/std::sqrt(double{kSize}));
    return dropped(x).view({kLength * kBatch, kSize});
  }

  Parameters make_;
  Tensor source_table_ = make_.weight({kVocabulary, kSize});
  Tensor target_table_ = make_.weight({kVocabulary, kSize});
  Tensor output_ = make_.weight({kVocabulary, kSize});
  LayerNorm encoder_norm_{make_}, decoder_norm_{make_};
  std::vector<EncoderLayer> encoder_;
  std::vector<DecoderLayer> decoder_;
  Tensor positions_ = sinusoids();
  Tensor no_mask_ = at::zeros({1, 1});
  Tensor causal_ = at::full({kLength, kLength}, -std::numeric_limits<float>::infinity()).triu_(1);
  Tensor source_ = random_ids(kLength * kBatch);
  Tensor target_ = random_ids(kLength * kBatch);
  Tensor expected_ = random_ids(kLength * kBatch);
};

// Bahdanau, Cho and Bengio 2015: a bidirectional GRU read by a GRU through additive attention.

constexpr int64_t kSteps = 30;
constexpr int64_t kMemory = 2 * kSize;

class GruAdditive {
 public:
  explicit GruAdditive(int64_t vocabulary) : vocabulary_(vocabulary) {
    make_.keep_all(encoder_->parameters());
  }

  void step() {
    const Tensor read = std::get<0>(encoder_->forward(embed(source_table_, source_)));
    const Tensor memory = read.transpose(0, 1).contiguous();  // [B, Ts, M]
    const Tensor keys = at::linear(memory, keys_);            // [B, Ts, A]
    const Tensor words = embed(target_table_, target_);       // [Tt, B, D]
    // The words' share of the gates is known for all steps before the first.
    const auto word_gates =
        word_gates_(words.view({-1, kSize})).view({kSteps, kBatch, 3 * kSize}).unbind(0);
    Tensor state = at::zeros({kBatch, kSize});
    std::vector<Tensor> states, contexts;
    for (int64_t t = 0; t < kSteps; ++t) {
      // Query and gates both come from the last state.
      const auto from_state = from_state_(state).split_with_sizes({kSize, 2 * kSize, kSize}, 1);
      contexts.push_back(read_memory(from_state[0], keys, memory));
      const auto from_input =
          at::addmm(word_gates[static_cast<size_t>(t)], contexts.back(), context_gates_.t())
              .split_with_sizes({2 * kSize, kSize}, 1);
      const auto reset_update = (from_input[0] + from_state[1]).sigmoid_().chunk(2, 1);
      const Tensor fresh = at::addcmul(from_input[1], reset_update[0], from_state[2]).tanh_();
      state = at::lerp(fresh, state, reset_update[1]);
      states.push_back(state);
    }
    const Tensor all = at::cat({at::stack(states), at::stack(contexts), words}, 2);
    const Tensor readout = readout_(all.view({kSteps * kBatch, -1})).tanh_();
    make_.train(smoothed_loss(at::linear(readout, output_), expected_));
  }

 private:
  // softmax(v^T tanh(W s + U h)) over the source, and its mean of the memory; [B, M].
  Tensor read_memory(const Tensor& query, const Tensor& keys, const Tensor& memory) const {
    const Tensor hidden = (keys + query.unsqueeze(1)).tanh_();      // [B, Ts, A]
    const Tensor weights = at::matmul(hidden, score_).softmax(-1);  // [B, Ts]
    return at::bmm(weights.unsqueeze(1), memory).squeeze(1);
  }

  static Tensor embed(const Tensor& table, const Tensor& ids) {
    return at::embedding(table, ids).view({kSteps, kBatch, kSize});
  }

  Parameters make_;
  int64_t vocabulary_;
  Tensor source_table_ = make_.weight({vocabulary_, kSize});
  Tensor target_table_ = make_.weight({vocabulary_, kSize});
  torch::nn::GRU encoder_{torch::nn::GRUOptions(kSize, kSize).bidirectional(true)};
  Tensor keys_ = make_.weight({kSize, kMemory});
  Linear from_state_{make_, kSize, 4 * kSize};  // query; reset, update and fresh gates
  Linear word_gates_{make_, kSize, 3 * kSize};
  Tensor context_gates_ = make_.weight({3 * kSize, kMemory});
  Tensor score_ = make_.weight({kSize});
  Linear readout_{make_, kSize + kMemory + kSize, kSize};
  Tensor output_ = make_.weight({vocabulary_, kSize});
  Tensor source_ = random_ids(kSteps * kBatch, vocabulary_);
  Tensor target_ = random_ids(kSteps * kBatch, vocabulary_);
  Tensor expected_ = random_ids(kSteps * kBatch, vocabulary_);
};

// One step is done here: it makes Adam's moments, which last and are no part of a step.
template <class Model, class... Sizes>
Work training(Sizes... sizes) {
  auto model = std::make_shared<Model>(sizes...);
  model->step();
  return [model] { model->step(); };
}

// A recurrent layer alone, with the gradients of its weights.
template <class Layer>
Work layer_work(Layer layer) {
  const Tensor x = at::randn({kSteps, kBatch, kSize});
  return [layer, x, weights = layer->parameters()]() mutable {
    std::get<0>(layer->forward(x)).sum().backward();
    forget_gradients(weights);
  };
}

}  // namespace

Work torch_train_work(const std::string& row) {
  if (row == "train/transformer") return training<Transformer>();
  if (row == "train/gru_additive") return training<GruAdditive>(int64_t{512});
  if (row == "train/gru_additive/8000") return training<GruAdditive>(int64_t{8000});
  if (row == "train/lstm") return layer_work(torch::nn::LSTM(kSize, kSize));
  if (row == "train/gru") return layer_work(torch::nn::GRU(kSize, kSize));
  return {};
}

}  // namespace heed::bench
