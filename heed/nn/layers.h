// Layers that know nothing of attention: each holds its parameters and is called like a function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heed/nn/module.h"
#include "heed/ops/ops.h"

namespace heed {

// f(x W + b).
class Linear {
 public:
  enum class Bias { yes, no };
  Linear(const Params& params, int64_t in, int64_t out, Bias bias = Bias::yes);
  Tensor operator()(const Tensor& x, Activation f = Activation::none) const;
  Tensor weight() const { return compute_copy(weight_); }
  std::optional<Tensor> bias() const;

 private:
  Tensor weight_;  // [in, out]
  std::optional<Tensor> bias_;
};

// A vector for each token of a vocabulary. Tied (Press and Wolf, 2017), the same table also scores
// tokens at the output: logits = x E^T.
class Embedding {
 public:
  Embedding(const Params& params, int64_t vocabulary, int64_t size);
  Tensor operator()(const Tensor& id) const { return embedding(compute_copy(table_), id); }
  // The output weights [D, V] that belong to the table: its transpose, a view.
  Tensor output_weight() const { return transpose(compute_copy(table_), 0, 1); }
  const Tensor& table() const { return table_; }

 private:
  Tensor table_;  // [V, D]
};

class LayerNorm {
 public:
  static constexpr double kEpsilon = 1e-5;
  LayerNorm(const Params& params, int64_t size, double epsilon = kEpsilon);
  Tensor operator()(const Tensor& x) const { return layer_norm(x, gain_, bias_, epsilon_); }
  // x + dropout(y, p), and its norm.
  Normed of_sum(const Tensor& x, const Tensor& y, double p) const;
  // The same where products with weights of bf16 alone read the norm, on a GPU: rounded for them.
  Tensor rounded(const Tensor& x) const;
  Normed rounded_of_sum(const Tensor& x, const Tensor& y) const;

 private:
  Tensor gain_, bias_;
  double epsilon_;
};

class RmsNorm {
 public:
  RmsNorm(const Params& params, int64_t size);
  Tensor operator()(const Tensor& x) const { return rms_norm(x, gain_); }

 private:
  Tensor gain_;
};

// Two linear maps with an activation between (Vaswani et al., 2017, eq. 2), and in training dropout
// of what it gives.
class FeedForward {
 public:
  FeedForward(const Params& params, int64_t size, int64_t inner, double dropout = 0,
              Activation f = Activation::relu);
  // By the name of the activation: relu, gelu (the tanh form), tanh and sigmoid are one pass with
  // the product; swish, gelu_erf and gelu_sigmoid (x sigmoid(1.702 x)) another one.
  FeedForward(const Params& params, int64_t size, int64_t inner, double dropout,
              const std::string& activation);
  Tensor operator()(const Tensor& x) const;
  // Are its weights bf16, and on a GPU?
  bool multiplies_in_bf16() const;

 private:
  Linear inner_, outer_;
  double dropout_;
  Activation activation_;
  Tensor (*after_)(const Tensor&) = nullptr;  // none: the activation was all
};
std::vector<std::string> feed_forward_names();

// x Phi(x), of the normal distribution (Hendrycks and Gimpel, 2016), without an approximation that
// f32 could tell.
Tensor gelu_erf(const Tensor& x);

// Sines and cosines of falling frequency (Vaswani et al., 2017, section 3.5), as toolkits have
// them. With h = D / 2 and i < h, position p has the angle
//   halves        p 10000^(-i / h), sines in the first half, cosines in the second: heed's own, and
//                 tensor2tensor's, Hugging Face's
//   closed        p 10000^(-i / (h - 1)): Marian's
//   from_one      closed, the first position being 1: OpenNMT-tf's, and CTranslate2's
//   interleaved   p 10000^(-i / h), a sine and a cosine in turn: OpenNMT-py's
enum class Sinusoid { halves, closed, from_one, interleaved };
// "sinusoidal", "sinusoidal_marian", "sinusoidal_from_one", "sinusoidal_interleaved"; none for
// another name.
std::optional<Sinusoid> sinusoid_named(const std::string& position);

// Positions [T, D] from `first` on. Learned positions are an Embedding of position numbers; rotary
// ones are the op rotary().
Tensor sinusoidal_positions(int64_t length, int64_t size, int64_t first = 0, Type type = Type::f32,
                            Sinusoid kind = Sinusoid::halves);

// The same for a model, whose steps want them again and again: sines take a host longer than all
// else it does for a small step. Keeps a table for each device; may be called from many threads at
// once.
class SinusoidalPositions {
 public:
  explicit SinusoidalPositions(int64_t size, Sinusoid kind = Sinusoid::halves);
  // Rows of these positions, seen as `shape`, whose last size is D.
  Tensor operator()(std::span<const Id> at, const Shape& shape, Type type) const;
  // The same with ids that the host need not know, all of them below `most`.
  Tensor operator()(const Tensor& at, int64_t most, const Shape& shape, Type type) const;

 private:
  struct Tables;
  Tensor table(int64_t rows, Type type) const;

  int64_t size_;
  Sinusoid kind_;
  std::shared_ptr<Tables> tables_;
};

}  // namespace heed
