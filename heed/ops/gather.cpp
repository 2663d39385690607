// Table look-ups (embeddings), elements chosen by number, and rotary positions.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "heed/ops/bf16.h"
#include "heed/ops/int8.h"
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {

Tensor embedding(const Tensor& given, const Tensor& given_id) {
  require(given_id.type() == Type::i32, "embedding: wants ids, given ", name(given_id.type()));
  const bool int8 = given.type() == Type::i8, bf16 = is_bf16_weight(given);
  const Tensor table = int8 || bf16 ? given : contiguous(given), id = contiguous(given_id);
  require(table.rank() == 2, "embedding: the table wants shape [V, D], given ", table.shape());
  if (id.has_host_ids())
    for (const Id i : id.host_ids())
      require(i >= 0 && i < table.size(0), "embedding: id ", i, " in a table of ", table.size(0));
  require(id.rank() < kernels::kMaxRank, "embedding: ids of shape ", id.shape());
  std::vector<int64_t> sizes(id.shape().begin(), id.shape().end());
  sizes.push_back(table.size(1));
  if (int8) return int8_embedding(table, id, Shape(sizes));
  if (bf16) return bf16_embedding(table, id, Shape(sizes));
  Tensor y(Shape(sizes), table.type());
  launch("embedding", table, [&]<class T>() {
    return kernels::Gather<T>{.count = id.count(),
                              .n = table.size(1),
                              .table = table.data<T>(),
                              .id = id.data<Id>(),
                              .y = y.data<T>()};
  });
  return record("embedding", {&table}, y,
                [id, to = Destination(table), shape = table.shape()](const Tensor& grad) {
                  const Tensor dy = contiguous(grad);
                  const std::optional<Tensor> begun = to.begun();
                  const Tensor dtable = begun ? *begun : zeros(shape, wide(dy.type()));
                  launch("embedding", dy, [&]<class T>() {
                    return kernels::ScatterAdd<T>{.count = id.count(),
                                                  .n = shape[1],
                                                  .x = dy.data<T>(),
                                                  .id = id.data<Id>(),
                                                  .table = dtable.data<kernels::Wide<T>>()};
                  });
                  return begun ? Grads{std::nullopt} : Grads{dtable};
                });
}

namespace {

// Elements of x by their numbers in memory: a table of rows with one element each.
Tensor elements(const Tensor& x, const std::vector<Id>& numbers, const Shape& shape) {
  const Tensor table = reshape(x, {x.count(), 1});
  return reshape(embedding(table, ids(numbers, {std::ssize(numbers)})), shape);
}

void require_countable(const char* op, int64_t elements) {
  require(elements <= std::numeric_limits<Id>::max(), op, ": ", elements,
          " elements are more than ids can number");
}

}  // namespace

Tensor gather(const Tensor& x, const Tensor& given, int given_axis) {
  require(given.type() == Type::i32, "gather: wants ids as index, given ", name(given.type()));
  require(given_axis >= -x.rank() && given_axis < x.rank(), "gather: axis ", given_axis,
          " of shape ", x.shape());
  const int axis = given_axis < 0 ? given_axis + x.rank() : given_axis;
  Shape wanted = x.shape();
  if (given.rank() == x.rank()) wanted[axis] = given.size(axis);
  require(given.shape() == wanted, "gather: an index ", given.shape(), " into ", x.shape(),
          " along axis ", axis, "; the other sizes must be the same");
  require_countable("gather", x.count());
  const std::vector<double> index = given.values();
  int64_t inner = 1;
  for (int i = axis + 1; i < x.rank(); ++i) inner *= x.size(i);
  const int64_t from = x.size(axis), to = given.size(axis);
  std::vector<Id> numbers;
  for (int64_t i = 0; i < given.count(); ++i) {  // element i of the result
    const auto at = static_cast<int64_t>(index[static_cast<size_t>(i)]);
    require(at >= 0 && at < from, "gather: index ", at, " along an axis of ", from);
    numbers.push_back(static_cast<Id>((i / (inner * to) * from + at) * inner + i % inner));
  }
  return elements(x, numbers, given.shape());
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  require(a.type() == b.type(), "where: types differ: a is ", name(a.type()), ", b is ",
          name(b.type()));
  require(a.type() != Type::i32, "where: wants numbers to choose from, given ", name(a.type()));
  const std::array<const Tensor*, 3> all = {&condition, &a, &b};
  int rank = 0;
  for (const Tensor* x : all) rank = std::max(rank, x->rank());
  std::vector<int64_t> sizes(static_cast<size_t>(rank), 1);
  for (const Tensor* x : all)
    for (int i = 1; i <= x->rank(); ++i) {
      int64_t& size = sizes[static_cast<size_t>(rank - i)];
      require(size == 1 || x->size(-i) == 1 || size == x->size(-i),
              "where: shapes cannot be broadcast: condition is ", condition.shape(), ", a is ",
              a.shape(), ", b is ", b.shape());
      if (size == 1) size = x->size(-i);
    }
  const Shape shape{std::span<const int64_t>(sizes)};
  require_countable("where", a.count() + b.count());
  // The element of x that stands where the result has its i-th.
  const auto number = [&](const Tensor& x, int64_t i) {
    int64_t out = 0, step = 1;
    for (int axis = 1; axis <= rank; ++axis) {
      const int64_t size = shape[rank - axis], at = i % size;
      i /= size;
      if (axis > x.rank()) continue;
      if (x.size(-axis) != 1) out += at * step;
      step *= x.size(-axis);
    }
    return out;
  };
  const std::vector<double> holds = condition.values();
  std::vector<Id> numbers;
  for (int64_t i = 0; i < shape.count(); ++i)
    numbers.push_back(static_cast<Id>(holds[static_cast<size_t>(number(condition, i))] != 0
                                          ? number(a, i)
                                          : a.count() + number(b, i)));
  return elements(concat({reshape(a, {a.count()}), reshape(b, {b.count()})}, 0), numbers, shape);
}

namespace {

// `first`: one position, or one for each sentence.
Tensor rotated(const Tensor& given, std::span<const Id> first, double base, bool backward) {
  const Tensor x = contiguous(given);
  const Tensor position = ids(first, {std::ssize(first)});
  Tensor y = empty_like(x);
  launch("rotary", x, [&]<class T>() {
    return kernels::Rotary<T>{.batch = x.size(0),
                              .length = x.size(1),
                              .heads = x.size(2),
                              .n = x.size(3),
                              .first = position.data<Id>(),
                              .first_step = first.size() == 1 ? 0 : 1,
                              .base = static_cast<kernels::Wide<T>>(base),
                              .backward = backward,
                              .x = x.data<T>(),
                              .y = y.data<T>()};
  });
  return y;
}

}  // namespace

Tensor rotary(const Tensor& x, int64_t first, double base) {
  const Id one[] = {static_cast<Id>(first)};
  return rotary(x, one, base);
}

Tensor rotary(const Tensor& x, std::span<const Id> first, double base) {
  require(x.rank() == 4 && x.size(3) % 2 == 0, "rotary: wants [B, T, H, d] with even d, given ",
          x.shape());
  require(first.size() == 1 || std::ssize(first) == x.size(0), "rotary: ", first.size(),
          " positions for ", x.size(0), " sentences");
  return record("rotary", {&x}, rotated(x, first, base, false),
                [first = std::vector<Id>(first.begin(), first.end()), base](const Tensor& dy) {
                  return Grads{rotated(dy, first, base, true)};
                });
}

}  // namespace heed
