#include "heed/ops/weight.h"

#include "heed/ops/tape.h"

namespace heed {
namespace {

constexpr int64_t kFewRows = 128;  // beyond, packing is lost in the product

// x^T dy, laid out as w is: the gradient of a transposed view is one too. And the sum of dy.
WeightUse::Gradients outer(const Tensor& w, const Tensor& x, const Tensor& dy, bool want_bias) {
  const bool turned = w.stride(1) != 1 && w.stride(0) == 1;
  const Tensor a = transpose(turned ? dy : x, 0, 1), b = turned ? x : dy;
  Tensor c({a.size(0), b.size(1)}, wide(w.type()));
  WeightUse::Gradients out;
  const bool together = want_bias && !turned && w.device() == Device::cuda && x.size(0) > 0;
  if (together) out.bias = Tensor({dy.size(1)}, wide(w.type()));
  multiply("weight gradient", a, b, c, {.b_sums = out.bias});
  if (want_bias && !together) out.bias = sum(dy, 0);
  out.weight = turned ? transpose(c, 0, 1) : c;
  return out;
}

WeightUse::Gradients sum_of(WeightUses& uses, const Tensor& w, bool want_bias) {
  const auto joined = [](std::vector<Tensor>& parts) {
    Tensor all = parts.size() == 1 ? parts[0] : concat(parts, 0);
    parts.clear();
    return all;
  };
  const Tensor x = joined(uses.x), dy = joined(uses.dy);
  return outer(w, x, dy, want_bias);
}

Tensor as_matrix(const Tensor& w) {
  return w.view({w.size(-2), w.size(-1)}, {w.stride(-2), w.stride(-1)});
}
WeightUse::Gradients shaped(WeightUse::Gradients found, const Shape& shape) {
  if (found.weight && shape.rank() == 3) found.weight = reshape(*found.weight, shape);
  return found;
}

}  // namespace

WeightUse::WeightUse(const Tensor& w, const std::shared_ptr<Leaf>& bias)
    : w_(as_matrix(w)), shape_(w.shape()), bias_(bias) {
  Tape* const tape = Tape::current();
  if (!tape || !w.leaf()) return;
  if (!w.leaf()->uses || w.leaf()->uses->tape != tape->number()) {
    w.leaf()->uses = std::make_shared<WeightUses>();
    w.leaf()->uses->tape = tape->number();
    w.leaf()->uses->shape = shape_;
    tape->note_weight(w.leaf());
  }
  uses_ = w.leaf()->uses;
  if (uses_->recorded == 0) uses_->bias = bias;
  uses_->one_bias = uses_->one_bias && bias && uses_->bias == bias;
  ++uses_->recorded;
}

bool WeightUse::worth_packing(int64_t rows) const {
  return uses_ && uses_->recorded > 1 && rows <= kFewRows && w_.device() == Device::cpu;
}

std::optional<Tensor> WeightUse::packed(int64_t rows) {
  if (!worth_packing(rows) || w_.size(1) == 1) return std::nullopt;
  if (!uses_->packed) uses_->packed = heed::packed("weight", w_);
  return uses_->packed;
}

std::optional<Tensor> WeightUse::packed_turned(int64_t rows) {
  if (!worth_packing(rows)) return std::nullopt;
  if (!uses_->packed_turned) uses_->packed_turned = heed::packed("weight", transpose(w_, 0, 1));
  return uses_->packed_turned;
}

WeightUse::Gradients WeightUse::gradients(const Tensor& x, const Tensor& dy, bool want_bias) {
  // A vector's gradient is cheap, and its x are large: no waiting.
  if (!uses_ || w_.size(1) == 1) return shaped(outer(w_, x, dy, want_bias), shape_);
  if (uses_->recorded < 2) {
    Gradients alone;
    compute_beside({&x, &dy}, [&] { alone = outer(w_, x, dy, want_bias); });
    return shaped(alone, shape_);
  }
  // Only the bias that every use has can wait.
  const bool waits = want_bias && bias_ && uses_->one_bias;
  Gradients now;
  if (want_bias && !waits) now.bias = sum(dy, 0);
  uses_->x.push_back(x);
  uses_->dy.push_back(dy);
  if (++uses_->returned < uses_->recorded) return now;
  Gradients all = sum_of(*uses_, w_, waits);
  if (!all.bias) all.bias = now.bias;
  return shaped(all, shape_);
}

void settle_weight(Leaf& leaf, WeightUses& uses) {
  if (uses.x.empty()) return;
  // Parameters are row-major; that is all that sum_of() asks of w.
  const Tensor like({uses.x[0].size(1), uses.dy[0].size(1)}, uses.x[0].type());
  const auto give = [](Leaf& to, const Tensor& grad) {
    if (!to.grad) to.grad = std::make_shared<Tensor>();
    *to.grad = to.grad->defined() ? *to.grad + grad : grad;
  };
  const WeightUse::Gradients found =
      shaped(sum_of(uses, like, uses.one_bias && uses.bias), uses.shape);
  give(leaf, *found.weight);
  if (found.bias) give(*uses.bias, *found.bias);
}

}  // namespace heed
