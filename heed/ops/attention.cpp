// Attention as one op: no array of size [B, Tq, Tk, n] exists, on the way there or back.
#include "heed/ops/ops.h"
#include "heed/tensor/dispatch.h"

namespace heed {

Attended additive_attention(const AdditiveAttention& given) {
  const char* const op = "additive_attention";
  const Tensor q = contiguous(given.q), k = contiguous(given.k), v = contiguous(given.v),
               value = contiguous(given.value);
  require(q.rank() == 3 && k.rank() == 3 && value.rank() == 3 && v.rank() == 1, op,
          ": wants q [B, Tq, n], k [B, Tk, n], v [n], value [B, Tk, m]; given ", q.shape(), ", ",
          k.shape(), ", ", v.shape(), ", ", value.shape());
  require(q.size(0) == k.size(0) && k.size(0) == value.size(0) && k.size(1) == value.size(1) &&
              q.size(2) == k.size(2) && k.size(2) == v.size(0),
          op, ": sizes do not fit: q ", q.shape(), ", k ", k.shape(), ", v ", v.shape(), ", value ",
          value.shape());
  require(q.type() == k.type() && k.type() == v.type() && v.type() == value.type(), op,
          ": types differ: q is ", name(q.type()), ", k ", name(k.type()), ", v ", name(v.type()),
          ", value ", name(value.type()));
  require(given.lengths.empty() || static_cast<int64_t>(given.lengths.size()) == q.size(0), op,
          ": ", q.size(0), " sentences, ", given.lengths.size(), " lengths");
  const std::vector<Id> lengths(given.lengths.begin(), given.lengths.end());
  for (const Id length : lengths)
    require(length >= 0 && length <= k.size(1), op, ": length ", length, " of ", k.size(1),
            " keys");
  Tensor context({q.size(0), q.size(1), value.size(2)}, q.type());
  Tensor log_sum({q.size(0), q.size(1)}, q.type());
  Attended out;
  if (given.want_weights) out.weights = Tensor({q.size(0), q.size(1), k.size(1)}, q.type());
  launch(op, q, [&]<class T>() {
    return kernels::AdditiveAttention<T>{.batch = q.size(0),
                                         .queries = q.size(1),
                                         .keys = k.size(1),
                                         .n = q.size(2),
                                         .value_size = value.size(2),
                                         .q = q.data<T>(),
                                         .k = k.data<T>(),
                                         .v = v.data<T>(),
                                         .value = value.data<T>(),
                                         .lengths = lengths.empty() ? nullptr : lengths.data(),
                                         .context = context.data<T>(),
                                         .log_sum = log_sum.data<T>(),
                                         .weights = out.weights ? out.weights->data<T>() : nullptr};
  });
  // Where the gradients of k and value gather, unless they are parameters (or the same tensor).
  const auto slot_of = [](const Tensor& x) {
    return tracked(x) && !x.leaf() ? std::optional(x.slot()) : std::nullopt;
  };
  const std::optional<Slot> k_slot = slot_of(k);
  const std::optional<Slot> value_slot =
      k_slot && value.slot().index == k.slot().index ? std::nullopt : slot_of(value);
  out.context = record(
      op, {&q, &k, &v, &value}, context,
      [op, q = q.detached(), k = k.detached(), v = v.detached(), value = value.detached(), lengths,
       context = context.detached(), log_sum, k_slot, value_slot](Tensor dy) {
        dy = contiguous(dy);
        Tensor dq = empty_like(q), dv = empty_like(v);
        // Keys and values are shared by all steps of a decoder: added to where they gather.
        Tensor dk =
            k_slot ? gradient_so_far(*k_slot, k.shape(), k.type()) : zeros(k.shape(), k.type());
        Tensor dvalue = value_slot ? gradient_so_far(*value_slot, value.shape(), value.type())
                                   : zeros(value.shape(), value.type());
        launch(op, q, [&]<class T>() {
          return kernels::AdditiveAttentionGrad<T>{
              .batch = q.size(0),
              .queries = q.size(1),
              .keys = k.size(1),
              .n = q.size(2),
              .value_size = value.size(2),
              .q = q.data<T>(),
              .k = k.data<T>(),
              .v = v.data<T>(),
              .value = value.data<T>(),
              .lengths = lengths.empty() ? nullptr : lengths.data(),
              .context = context.data<T>(),
              .log_sum = log_sum.data<T>(),
              .dcontext = dy.data<T>(),
              .dq = dq.data<T>(),
              .dk = dk.data<T>(),
              .dv = dv.data<T>(),
              .dvalue = dvalue.data<T>()};
        });
        Grads grads{dq, std::nullopt, dv, std::nullopt};
        if (!k_slot) grads[1] = dk;
        if (!value_slot) grads[3] = dvalue;
        return grads;
      });
  return out;
}

}  // namespace heed
