// From scores to weights, other than by softmax: masks, sparse normalizations, hard attention.
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {
namespace {

int64_t rows_of(const Tensor& x) { return x.size(-1) == 0 ? 0 : x.count() / x.size(-1); }

Tensor limited(const Tensor& x, const Tensor& range, double outside) {
  Tensor y = empty_like(x);
  launch("masked", x, [&]<class T>() {
    return kernels::Limit<T>{.batch = x.size(0),
                             .heads = x.size(1),
                             .queries = x.size(2),
                             .n = x.size(3),
                             .range = range.data<Id>(),
                             .range_batch = range.size(0) == 1 ? 0 : range.stride(0),
                             .range_head = range.size(1) == 1 ? 0 : range.stride(1),
                             .outside = static_cast<kernels::Wide<T>>(outside),
                             .x = x.data<T>(),
                             .y = y.data<T>()};
  });
  return y;
}

}  // namespace

Tensor masked(const Tensor& given, const Tensor& given_range, double outside) {
  const Tensor x = contiguous(given), range = contiguous(given_range);
  const Shape& s = range.shape();
  require(x.rank() == 4 && s.rank() == 4 && (s[0] == 1 || s[0] == x.size(0)) &&
              (s[1] == 1 || s[1] == x.size(1)) && s[2] == x.size(2) && s[3] == 2 &&
              range.type() == Type::i32,
          "masked: scores [B, H, Tq, Tk] want a range of ids [B or 1, H or 1, Tq, 2]; given ",
          x.shape(), " and ", s);
  return record("masked", {&x}, limited(x, range, outside),
                [range](const Tensor& dy) { return Grads{limited(contiguous(dy), range, 0)}; });
}

Tensor entmax(const Tensor& given, double alpha) {
  require(given.rank() >= 1, "entmax: wants rows, given a single number");
  require(alpha == 1.5 || alpha == 2, "entmax: alpha is 1.5 or 2 (sparsemax), given ", alpha);
  const Tensor x = contiguous(given);
  const bool sparsemax = alpha == 2;
  Tensor y = empty_like(x);
  launch("entmax", x, [&]<class T>() {
    return kernels::Entmax<T>{.rows = rows_of(x),
                              .n = x.size(-1),
                              .sparsemax = sparsemax,
                              .x = x.data<T>(),
                              .y = y.data<T>()};
  });
  return record("entmax", {&x}, y, [y = y.detached(), sparsemax](Tensor dy) {
    dy = contiguous(dy);
    Tensor dx = empty_like(dy);
    launch("entmax", dy, [&]<class T>() {
      return kernels::EntmaxGrad<T>{.rows = rows_of(dy),
                                    .n = dy.size(-1),
                                    .sparsemax = sparsemax,
                                    .y = y.data<T>(),
                                    .dy = dy.data<T>(),
                                    .dx = dx.data<T>()};
    });
    return Grads{dx};
  });
}

Tensor one_hot_max(const Tensor& given) {
  require(given.rank() >= 1, "one_hot_max: wants rows, given a single number");
  const Tensor x = contiguous(given);
  Tensor y = empty_like(x);
  launch("one_hot_max", x, [&]<class T>() {
    return kernels::OneHot<T>{
        .rows = rows_of(x), .n = x.size(-1), .x = x.data<T>(), .y = y.data<T>()};
  });
  return y.detached();
}

}  // namespace heed
