#include "heed/ops/weight.h"

#include "heed/ops/tape.h"

namespace heed {
namespace {

constexpr int64_t kFewRows = 128;  // beyond, packing is lost in the product

// x^T dy, laid out as w is: the gradient of a transposed view is one too.
Tensor outer(const Tensor& w, const Tensor& x, const Tensor& dy) {
  const bool turned = w.stride(1) != 1 && w.stride(0) == 1;
  const Tensor a = transpose(turned ? dy : x, 0, 1), b = turned ? x : dy;
  Tensor c({a.size(0), b.size(1)}, w.type());
  multiply("weight gradient", a, b, c);
  return turned ? transpose(c, 0, 1) : c;
}

Tensor sum_of(WeightUses& uses, const Tensor& w) {
  const auto joined = [](std::vector<Tensor>& parts) {
    Tensor all = parts.size() == 1 ? parts[0] : concat(parts, 0);
    parts.clear();
    return all;
  };
  const Tensor x = joined(uses.x), dy = joined(uses.dy);
  return outer(w, x, dy);
}

}  // namespace

WeightUse::WeightUse(const Tensor& w) : w_(w.detached()) {
  Tape* const tape = Tape::current();
  if (!tape || !w.leaf()) return;
  if (!w.leaf()->uses || w.leaf()->uses->tape != tape->number()) {
    w.leaf()->uses = std::make_shared<WeightUses>();
    w.leaf()->uses->tape = tape->number();
    tape->note_weight(w.leaf());
  }
  uses_ = w.leaf()->uses;
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

std::optional<Tensor> WeightUse::gradient(const Tensor& x, const Tensor& dy) {
  // A vector's gradient is cheap, and its x are large: no waiting.
  if (!uses_ || uses_->recorded < 2 || w_.size(1) == 1) return outer(w_, x, dy);
  uses_->x.push_back(x);
  uses_->dy.push_back(dy);
  if (++uses_->returned < uses_->recorded) return std::nullopt;
  return sum_of(*uses_, w_);
}

void settle_weight(Leaf& leaf, WeightUses& uses) {
  if (uses.x.empty()) return;
  // Parameters are row-major; that is all that sum_of() asks of w.
  const Tensor like({uses.x[0].size(1), uses.dy[0].size(1)}, uses.x[0].type());
  const Tensor grad = sum_of(uses, like);
  leaf.grad = std::make_shared<Tensor>(leaf.grad ? *leaf.grad + grad : grad);
}

}  // namespace heed
