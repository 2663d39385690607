// Every differentiable function of tensors, by family: read it like a glossary.
//
// All of them check shapes and types, throw Error with the op's name, what was given and what was
// wanted, and record their gradient on the open tape (tape.h). Values in, value out; nothing is
// changed in place unless a comment says so. `axis` may be negative, counting from the end.
//
// Threads: may be called from any number at once, each in its own context or in the default one.
#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "heed/kernels/kernels.h"
#include "heed/ops/tape.h"
#include "heed/tensor/tensor.h"

namespace heed {

using kernels::Activation;
using kernels::Cell;

// ---- elementwise
//
// Shapes are broadcast as in NumPy: aligned at the last axis, a size of 1 is repeated.

Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& x, double factor);
Tensor operator*(double factor, const Tensor& x);
Tensor operator+(const Tensor& x, double term);
Tensor operator+(double term, const Tensor& x);
Tensor operator-(const Tensor& x, double term);
Tensor operator-(double from, const Tensor& x);
Tensor operator/(const Tensor& x, double divisor);
Tensor operator/(double dividend, const Tensor& x);
Tensor operator-(const Tensor& x);

Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor abs(const Tensor& x);  // its slope at 0 is 0
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x);   // the tanh form
Tensor swish(const Tensor& x);  // x * sigmoid(x)

// Zero with probability p, else x / (1 - p); the mask is a function of the seed alone.
Tensor dropout(const Tensor& x, double p, kernels::Seed seed);
// The same in training, that is while a tape is open, with a seed drawn from the tape; else x.
Tensor dropout(const Tensor& x, double p);

// residual + dropout(x, p), in one pass: a Transformer's way around each of its parts.
Tensor add_dropout(const Tensor& residual, const Tensor& x, double p, kernels::Seed seed);
Tensor add_dropout(const Tensor& residual, const Tensor& x, double p);

// a where the condition is not 0, b elsewhere; nothing of the one that is not taken reaches the
// result or its gradient. All three are broadcast. The condition, ids or numbers, is read on the
// host: on a GPU that waits.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// x with another type: f32 and bf16, f32 and f64. The gradient is cast back.
Tensor cast(const Tensor& x, Type type);

// ---- shape
//
// reshape, transpose and slice are views where they can be: no elements move.

// The same elements in another shape; one size may be -1, which is then computed.
Tensor reshape(const Tensor& x, const Shape& shape);
Tensor transpose(const Tensor& x, int axis_a, int axis_b);
// Items [begin, end) of an axis.
Tensor slice(const Tensor& x, int axis, int64_t begin, int64_t end);
// Joined along an axis; all other sizes equal.
Tensor concat(std::span<const Tensor> parts, int axis);
Tensor concat(std::initializer_list<Tensor> parts, int axis);
// Tensors of one shape [..] as [T, ..], and [T, ..] as T tensors [..], which are views. For a
// recurrent network: the gradients of the parts of an unstacked tensor are put together once.
Tensor stack(std::span<const Tensor> parts);
std::vector<Tensor> unstack(const Tensor& x);
// x itself if its elements lie in row-major order, else a copy in which they do.
Tensor contiguous(const Tensor& x);

// ---- matrix products

// The product over the last two axes: a [..., M, K], b [..., K, N] -> [..., M, N]. The axes before
// are equal in a and b, or b has none (one matrix for all). Transposed views cost no copy.
Tensor matmul(const Tensor& a, const Tensor& b);

// f(x w + bias): x [..., K], w [K, N] (or [1, K, N]), bias [N] -> [..., N].
Tensor linear(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias = std::nullopt,
              Activation f = Activation::none);

// dropout(linear(x, w, bias, f), p). Of relu the result alone is saved for backward: what is
// dropped is 0 there too.
Tensor linear_dropout(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                      Activation f, double p, kernels::Seed seed);
Tensor linear_dropout(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias,
                      Activation f, double p);

// linear(x, w[i], bias[i]) for weights of one shape; on a GPU one product, where they lie evenly in
// memory.
std::vector<Tensor> linear_each(const Tensor& x, std::span<const Tensor> w,
                                std::span<const Tensor> bias);

// ---- rows: functions of the last axis

// A row of -inf alone gives zeros.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);

// (x - mean) / sqrt(variance + epsilon) * gain + bias.
Tensor layer_norm(const Tensor& x, const Tensor& gain, const Tensor& bias, double epsilon = 1e-5);
// sum = residual + dropout(x, p), and its layer norm; on a GPU in one pass, forward and backward.
struct Normed {
  Tensor sum, normed;
};
Normed add_dropout_norm(const Tensor& residual, const Tensor& x, double p, kernels::Seed seed,
                        const Tensor& gain, const Tensor& bias);
// In training the seed is drawn from the tape; else nothing is dropped.
Normed add_dropout_norm(const Tensor& residual, const Tensor& x, double p, const Tensor& gain,
                        const Tensor& bias);
// x / sqrt(mean of squares + epsilon) * gain (Zhang and Sennrich, 2019).
Tensor rms_norm(const Tensor& x, const Tensor& gain, double epsilon = 1e-6);

// The mean over the rows that count of the cross entropy with label smoothing (Szegedy et al.,
// 2016): logits [..., V], target [...] ids; a negative target does not count. The probabilities are
// never saved. Logits that are moved in and seen by nobody else are overwritten: no second [.., V]
// array.
Tensor cross_entropy(Tensor logits, const Tensor& target, double smoothing = 0);

// cross_entropy(linear(x, w)) without ever holding all logits: a slab of rows at a time is
// computed, turned into its gradient and used up. x [..., D], w [D, V].
Tensor linear_cross_entropy(const Tensor& x, const Tensor& w, const Tensor& target,
                            double smoothing = 0);

Tensor sum(const Tensor& x, int axis);  // the axis disappears; bf16 is summed to f32
Tensor mean(const Tensor& x, int axis);
Tensor sum(const Tensor& x);  // of all elements: shape []
Tensor mean(const Tensor& x);

// The largest along an axis, which disappears, or of all elements; NaN where there is one. Of
// equals the first has the gradient.
Tensor max(const Tensor& x, int axis);
Tensor max(const Tensor& x);

struct Ranked {
  Tensor values;   // [..., k]
  Tensor indices;  // [..., k] ids
};
// The k largest of each row in falling order. No gradient.
Ranked top_k(const Tensor& x, int64_t k);
// The index of the largest of each row: [...] ids. No gradient.
Tensor arg_max(const Tensor& x);

// ---- tables

// table [V, D], id [...] -> [..., D].
Tensor embedding(const Tensor& table, const Tensor& id);

// Elements of x by their number along an axis: index, ids, has as many axes as x and, but for that
// axis, its sizes. gather(x, i, 1)[b][t] = x[b][i[b][t]]. What a GPU computed as an index is read
// on the host, which waits.
Tensor gather(const Tensor& x, const Tensor& index, int axis);

// Rotary positions (RoPE): x [B, T, H, d], rotated by the angle of position first + t.
Tensor rotary(const Tensor& x, int64_t first = 0, double base = 10000);
// The same, from first[b] on in sentence b: ids [B].
Tensor rotary(const Tensor& x, std::span<const Id> first, double base = 10000);

// ---- recurrent cells (fused)

// A whole sequence, or one step of a decoder with T = 1. Formulas: kernels.h. On a
// GPU all may be bf16; then states are still f32 on their way from step to step.
struct Recurrent {
  Cell cell = Cell::gru;
  Tensor x;                      // [B, T, G n]: x W + b, computed for all steps at once
  Tensor u;                      // [n, G n]
  Tensor bias;                   // [G n]: of the state part
  Tensor h;                      // [B, n]: the state before the first step
  std::optional<Tensor> c = {};  // [B, n]: lstm's cell
  std::span<const Id> lengths =
      {};                 // [B]: after its end a sentence keeps its state. None: all are T
  bool backward = false;  // from the last step to the first
};
struct RecurrentStates {
  Tensor h;                 // [B, T, n]: the state after each step
  std::optional<Tensor> c;  // [B, T, n]: lstm's cell
};
RecurrentStates recurrent(const Recurrent& r);
// Two sequences of one size and the same lengths, such as the directions of a layer: their states
// side by side, [B, T, 2 n].
RecurrentStates recurrent(const Recurrent& first, const Recurrent& second);

// ---- weights: from scores [B, H, Tq, Tk] on

// -inf, or another value, outside of the range of keys that each query sees, ids [B or 1, H or 1,
// Tq, 2].
Tensor masked(const Tensor& scores, const Tensor& range, double outside = -HUGE_VAL);
// Weights of which many are exactly 0: sparsemax (alpha 2; Martins and Astudillo, 2016) and
// 1.5-entmax (Peters et al., 2019), by row.
Tensor entmax(const Tensor& x, double alpha);
// 1 at the largest of each row, 0 elsewhere. No gradient.
Tensor one_hot_max(const Tensor& x);

// ---- attention (fused)

using kernels::ScoreForm;

// softmax(scores + bias) value on prepared queries and keys, with memory linear in the lengths,
// forward and backward: saved for backward are the context and the log-sum-exp of each row.
// attention/attend.h is the way to it; kernels.h has the formulas.
struct FusedAttention {
  ScoreForm form = ScoreForm::dot;
  Tensor q, k, value;  // [B, H, Tq, n], [B, G, Tk, n], [B, G, Tk, m]; in q and in k B may be 1
  double scale = 1;    // of dot products
  std::optional<Tensor> v = {};  // additive: [H, n]
  // Added to the scores: [B or 1, H, Tq, Tk] or, by distance, [H, Tq + Tk - 1] with the element for
  // key j and query i at j - i + Tq - 1.
  std::optional<Tensor> bias = {};
  std::optional<Tensor> place = {};  // [B, H, Tq]: a score gets -falloff (j - place)^2
  double falloff = 0;
  std::optional<Tensor> range = {};  // ids [B or 1, H or 1, Tq, 2]: the keys that a query sees
  double dropout = 0;                // of the weights, while a tape is open
  bool want_weights = false;
  // ids [B, any], on a CPU: in whose memory each of the first keys and values lies (KeyValueCache).
  std::optional<Tensor> origins = {};
};
struct FusedResult {
  Tensor context;                 // [B, H, Tq, m]
  std::optional<Tensor> weights;  // [B, H, Tq, Tk], if wanted; not differentiable
};
FusedResult fused_attention(const FusedAttention& attention);
// Whether there are kernels for heads as wide as those. On a CPU there are.
bool fused_attention_fits(const FusedAttention& attention);

// The bias [H, Tq, Tk] that a table by distance stands for.
Tensor by_distance(const Tensor& table, int64_t queries, int64_t keys);

}  // namespace heed
