#include "heed/ops/output_columns.h"

#include <algorithm>

#include "heed/kernels/select.h"
#include "heed/ops/bf16.h"
#include "heed/ops/int8.h"
#include "heed/ops/into.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

// The rows of a table are copied as they lie; columns that lie apart are put together row by row.
Tensor selected(const Tensor& w, const Tensor& wanted) {
  if (w.stride(0) == 1 && w.size(1) > 1)
    return transpose(embedding(transpose(w, 0, 1), wanted), 0, 1);
  Tensor out({w.size(0), wanted.count()});
  kernels::run(kernels::Cpu{},
               kernels::SelectColumns{.k = w.size(0),
                                      .n = wanted.count(),
                                      .w = {w.data<float>(), w.stride(0), w.stride(1)},
                                      .ids = wanted.data<Id>(),
                                      .y = out.data<float>()});
  return out;
}

}  // namespace

OutputColumns::OutputColumns(const Tensor& given, const std::optional<Tensor>& bias,
                             std::span<const Id> some)
    : count_(std::ssize(some)) {
  const char* const op = "output_columns";
  const Tensor w = given.detached();
  require(w.rank() == 2 && w.device() == Device::cpu &&
              (w.type() == Type::f32 || w.type() == Type::i8 || is_bf16_weight(w)),
          op, ": wants a weight [K, N] of f32, i8 or bf16 on a CPU, given ", name(w.type()), " ",
          w.shape(), " on ", name(w.device()));
  require(!some.empty() && *std::ranges::min_element(some) >= 0 &&
              *std::ranges::max_element(some) < w.size(1),
          op, ": wants outputs from 0 to ", w.size(1) - 1);
  // A product with one column sums in another order than one with several (kernels::Matmul).
  std::vector<Id> numbers(some.begin(), some.end());
  if (count_ == 1) numbers.push_back(numbers[0]);
  const Tensor wanted = ids(numbers, {std::ssize(numbers)});
  const int64_t K = w.size(0), n = wanted.count();
  if (bias) bias_ = reshape(embedding(reshape(bias->detached(), {w.size(1), 1}), wanted), {n});
  if (w.type() == Type::i8) {
    weight_ = int8_columns(w, wanted);
    return;
  }
  if (is_bf16_weight(w)) {
    weight_ = bf16_columns(w, wanted);
    return;
  }
  packed_ = packed(op, selected(w, wanted));
  weight_ = packed_->view({K, n}, {n, 1});
}

Tensor OutputColumns::operator()(const Tensor& x) const {
  Tensor y;
  if (packed_) {
    y = Tensor({x.size(0), weight_.size(1)});
    multiply("linear", contiguous(x.detached()), weight_, y, {.bias = bias_, .packed_b = packed_});
  } else {
    y = linear(x, weight_, bias_);
  }
  return count_ == 1 ? contiguous(slice(y, 1, 0, 1)) : y;
}

}  // namespace heed
