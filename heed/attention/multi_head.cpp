#include "heed/attention/multi_head.h"

#include <algorithm>
#include <vector>

#include "heed/ops/into.h"

namespace heed {
namespace {

// `old` [B, G, room, n] with room for more; the first `length` positions are kept.
Tensor with_room(const Tensor& old, int64_t length, int64_t room) {
  Tensor y({old.size(0), old.size(1), room, old.size(3)}, old.type());
  copy_into(slice(old, 2, 0, length), slice(y, 2, 0, length));
  return y;
}

MultiHead::Sizes completed(MultiHead::Sizes s) {
  require(s.heads > 0, "multi-head attention: wants at least one head, given ", s.heads);
  if (s.key_heads == 0) s.key_heads = s.heads;
  if (s.memory == 0) s.memory = s.model;
  if (s.head_size == 0) {
    require(s.model % s.heads == 0, "multi-head attention: a model of size ", s.model,
            " cannot be shared by ", s.heads, " heads evenly; give head_size");
    s.head_size = s.model / s.heads;
  }
  return s;
}

}  // namespace

void KeyValueCache::append(const KeysValues& more) {
  const NoTape off;
  const Tensor &k = more.keys.k, &v = more.values;
  const int64_t length = length_ + k.size(2);
  if (length_ == 0) {
    const int64_t room = std::max<int64_t>(16, length);
    keys_ = Tensor({k.size(0), k.size(1), room, k.size(3)}, k.type());
    values_ = Tensor({v.size(0), v.size(1), room, v.size(3)}, v.type());
  }
  require(k.size(0) == keys_.size(0) && k.size(1) == keys_.size(1) && k.size(3) == keys_.size(3),
          "key/value cache: holds keys [", keys_.size(0), ", ", keys_.size(1), ", ", length_, ", ",
          keys_.size(3), "], given ", k.shape());
  require(v.size(0) == values_.size(0) && v.size(1) == values_.size(1) && v.size(2) == k.size(2) &&
              v.size(3) == values_.size(3),
          "key/value cache: holds values [", values_.size(0), ", ", values_.size(1), ", ", length_,
          ", ", values_.size(3), "], given ", v.shape(), " for keys ", k.shape());
  if (length > keys_.size(2)) {
    const int64_t room = std::max(length, 2 * keys_.size(2));
    keys_ = with_room(keys_, length_, room);
    values_ = with_room(values_, length_, room);
  }
  copy_into(k, slice(keys_, 2, length_, length));
  copy_into(v, slice(values_, 2, length_, length));
  length_ = length;
}

KeysValues KeyValueCache::all() const {
  require(length_ > 0, "key/value cache: nothing has been added yet");
  const NoTape off;
  return {{slice(keys_, 2, 0, length_)}, slice(values_, 2, 0, length_)};
}

void KeyValueCache::reorder(std::span<const Id> from) {
  if (length_ == 0) return;
  const auto chosen = [&](const Tensor& old) {
    Tensor y({static_cast<int64_t>(from.size()), old.size(1), old.size(2), old.size(3)},
             old.type());
    for (size_t i = 0; i < from.size(); ++i) {
      require(from[i] >= 0 && from[i] < old.size(0), "key/value cache: sentence ", from[i], " of ",
              old.size(0));
      const auto item = [&](const Tensor& x, int64_t b) {
        return slice(slice(x, 0, b, b + 1), 2, 0, length_);
      };
      copy_into(item(old, from[i]), item(y, static_cast<int64_t>(i)));
    }
    return y;
  };
  const NoTape off;
  keys_ = chosen(keys_);
  values_ = chosen(values_);
}

MultiHead::MultiHead(const Params& params, const Sizes& sizes)
    : sizes_(completed(sizes)),
      query_(params / "query", sizes_.model, sizes_.heads * sizes_.head_size),
      key_(params / "key", sizes_.memory, sizes_.key_heads * sizes_.head_size),
      value_(params / "value", sizes_.memory, sizes_.key_heads * sizes_.head_size),
      output_(params / "output", sizes_.heads * sizes_.head_size, sizes_.model),
      score_(make_score(sizes_.score, params / "score",
                        {.query = sizes_.head_size,
                         .key = sizes_.head_size,
                         .heads = sizes_.heads,
                         .key_heads = sizes_.key_heads,
                         .rank = sizes_.rank,
                         .positions = sizes_.positions})) {}

// [B, T, H d] -> [B, T, H, d].
Tensor MultiHead::split(const Tensor& x, int64_t heads) const {
  return reshape(x, {x.size(0), x.size(1), heads, sizes_.head_size});
}

// Scores with parameters of their own are computed in f32, also where activations are bf16.
Tensor MultiHead::for_score(const Tensor& x) const {
  const bool plain = sizes_.score == "dot" || sizes_.score == "scaled_dot";
  return plain ? x : cast(x, wide(x.type()));
}

// From keys and values [B, T, G d] on.
KeysValues MultiHead::remembered(const Tensor& key, const Tensor& value, int64_t first) const {
  Tensor k = split(key, sizes_.key_heads);
  if (sizes_.rotary) k = rotary(k, first);
  return {{score_->prepare(transpose(for_score(k), 1, 2))},
          transpose(for_score(split(value, sizes_.key_heads)), 1, 2)};
}

KeysValues MultiHead::remember(const Tensor& x, int64_t first) const {
  const Tensor w[] = {key_.weight(), value_.weight()}, b[] = {*key_.bias(), *value_.bias()};
  const std::vector<Tensor> kv = linear_each(x, w, b);
  return remembered(kv[0], kv[1], first);
}

MultiHead::Output MultiHead::read(const Tensor& x, const Tensor& query, const KeysValues& memory,
                                  const AttendOptions& options) const {
  Tensor q = split(query, sizes_.heads);
  if (sizes_.rotary) q = rotary(q, options.first);
  Attended read =
      attend(*score_, transpose(for_score(q), 1, 2), memory.keys, memory.values, options);
  const Tensor merged = cast(reshape(transpose(read.context, 1, 2),
                                     {x.size(0), x.size(1), sizes_.heads * sizes_.head_size}),
                             x.type());
  return {output_(merged), std::move(read)};
}

MultiHead::Output MultiHead::operator()(const Tensor& x, const KeysValues& memory,
                                        const AttendOptions& options) const {
  return read(x, query_(x), memory, options);
}

MultiHead::Output MultiHead::itself(const Tensor& x, const AttendOptions& options) const {
  const Tensor w[] = {query_.weight(), key_.weight(), value_.weight()},
               b[] = {*query_.bias(), *key_.bias(), *value_.bias()};
  const std::vector<Tensor> qkv = linear_each(x, w, b);
  return read(x, qkv[0], remembered(qkv[1], qkv[2], options.first), options);
}

}  // namespace heed
