#include "heed/attention/multi_head.h"

#include <algorithm>
#include <vector>

#include "heed/ops/cache.h"

namespace heed {
namespace {

void check_rows(std::span<const Id> from, int64_t rows) {
  for (const Id i : from)
    require(i >= 0 && i < rows, "key/value cache: sentence ", i, " of ", rows);
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

KeyValueCache::KeyValueCache(int64_t room)
    : fixed_(room), arena_(current_arena().shared_from_this()) {}

KeyValueCache KeyValueCache::emptied() const {
  KeyValueCache out = *this;
  out.length_ = 0;
  return out;
}

// New memory [sentences, G, room, n] for keys and values like these.
void KeyValueCache::make_room(int64_t sentences, const Tensor& keys, const Tensor& values,
                              int64_t room) {
  const UseArena use(arena_ ? *arena_ : current_arena());
  keys_ = Tensor({sentences, keys.size(1), room, keys.size(3)}, keys.type());
  values_ = Tensor({sentences, values.size(1), room, values.size(3)}, values.type());
}

void KeyValueCache::append(const KeysValues& more) {
  const NoTape off;
  const Tensor &k = more.keys.k, &v = more.values;
  const int64_t length = length_ + k.size(2);
  if (!keys_.defined() || (length_ == 0 && fixed_ == 0))
    make_room(k.size(0), k, v, fixed_ ? fixed_ : std::max<int64_t>(16, length));
  require(k.size(0) == keys_.size(0) && k.size(1) == keys_.size(1) && k.size(3) == keys_.size(3),
          "key/value cache: holds keys [", keys_.size(0), ", ", keys_.size(1), ", ", length_, ", ",
          keys_.size(3), "], given ", k.shape());
  require(v.size(0) == values_.size(0) && v.size(1) == values_.size(1) && v.size(2) == k.size(2) &&
              v.size(3) == values_.size(3),
          "key/value cache: holds values [", values_.size(0), ", ", values_.size(1), ", ", length_,
          ", ", values_.size(3), "], given ", v.shape(), " for keys ", k.shape());
  if (length > keys_.size(2)) {
    require(fixed_ == 0, "key/value cache: room for ", fixed_, " positions, given ", length);
    const KeyValueCache before = *this;
    make_room(k.size(0), k, v, std::max(length, 2 * keys_.size(2)));
    take(before, in_order(k.size(0)));
  }
  const Id at[] = {static_cast<Id>(length_)};
  append_rows(std::vector{k, v}, std::vector{keys_, values_}, ids(at, {1}));
  length_ = length;
}

KeysValues KeyValueCache::all() const {
  require(length_ > 0, "key/value cache: nothing has been added yet");
  if (fixed_) return {{keys_}, values_};
  const NoTape off;
  return {{slice(keys_, 2, 0, length_)}, slice(values_, 2, 0, length_)};
}

Mask KeyValueCache::mask() const {
  if (!fixed_) return {};
  return Mask::padding(
      std::vector<Id>(static_cast<size_t>(keys_.size(0)), static_cast<Id>(length_)));
}

void KeyValueCache::take(const KeyValueCache& other, std::span<const Id> from) {
  const auto sentences = static_cast<int64_t>(from.size());
  length_ = other.length_;
  if (!other.keys_.defined()) return;
  check_rows(from, other.keys_.size(0));
  if (!keys_.defined())
    make_room(sentences, other.keys_, other.values_, fixed_ ? fixed_ : other.keys_.size(2));
  const Id length[] = {static_cast<Id>(length_)};
  move_rows(std::vector{other.keys_, other.values_}, std::vector{keys_, values_},
            ids(from, {sentences}), ids(length, {1}));
}

void KeyValueCache::reorder(std::span<KeyValueCache* const> caches, std::span<const Id> from,
                            int64_t group) {
  std::vector<Tensor> x;
  bool in_place = group <= kMaxGroup;
  for (KeyValueCache* cache : caches) {
    if (!cache->keys_.defined()) continue;
    require(cache->length_ == caches[0]->length_, "key/value cache: one holds ", cache->length_,
            " positions, another ", caches[0]->length_, "; they cannot be reordered together");
    in_place = in_place && cache->keys_.size(0) == std::ssize(from);
    x.push_back(cache->keys_), x.push_back(cache->values_);
  }
  if (x.empty()) return;
  check_rows(from, x[0].size(0));
  for (size_t i = 0; i < from.size(); ++i)
    in_place = in_place && from[i] / group == static_cast<int64_t>(i) / group;
  if (!in_place) {
    for (KeyValueCache* cache : caches) {
      KeyValueCache chosen = *cache;
      chosen.keys_ = chosen.values_ = {};
      chosen.take(*cache, from);
      *cache = chosen;
    }
    return;
  }
  const Id length[] = {static_cast<Id>(caches[0]->length_)};
  move_rows(x, x, ids(from, {std::ssize(from)}), ids(length, {1}), group);
}

void KeyValueCache::reorder(std::span<const Id> from, int64_t group) {
  KeyValueCache* const one[] = {this};
  reorder(one, from, group);
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
KeysValues MultiHead::prepared(const Tensor& key, const Tensor& value, int64_t first) const {
  Tensor k = split(key, sizes_.key_heads);
  if (sizes_.rotary) k = rotary(k, first);
  return {{score_->prepare(transpose(for_score(k), 1, 2))},
          transpose(for_score(split(value, sizes_.key_heads)), 1, 2)};
}

KeysValues MultiHead::project_kv(const Tensor& x, int64_t first) const {
  const Tensor w[] = {key_.weight(), value_.weight()}, b[] = {*key_.bias(), *value_.bias()};
  const std::vector<Tensor> kv = linear_each(x, w, b);
  return prepared(kv[0], kv[1], first);
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
  return read(x, qkv[0], prepared(qkv[1], qkv[2], options.first), options);
}

}  // namespace heed
