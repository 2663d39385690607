// Table look-ups (embeddings) and rotary positions.
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {

Tensor embedding(const Tensor& given, const Tensor& given_id) {
  require(given_id.type() == Type::i32, "embedding: wants ids, given ", name(given_id.type()));
  const Tensor table = contiguous(given), id = contiguous(given_id);
  require(table.rank() == 2, "embedding: the table wants shape [V, D], given ", table.shape());
  for (const Id i : id.host_ids())
    require(i >= 0 && i < table.size(0), "embedding: id ", i, " in a table of ", table.size(0));
  require(id.rank() < kernels::kMaxRank, "embedding: ids of shape ", id.shape());
  std::vector<int64_t> sizes(id.shape().begin(), id.shape().end());
  sizes.push_back(table.size(1));
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
