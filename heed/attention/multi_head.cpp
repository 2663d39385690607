#include "heed/attention/multi_head.h"

#include <vector>

#include "heed/ops/bf16.h"

namespace heed {
namespace {

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

Tensor rotated(const Tensor& x, const Positions& first) {
  return first.by_sentence() ? rotary(x, first.of_sentences()) : rotary(x, first.first());
}

}  // namespace

MultiHead::MultiHead(const Params& params, const Sizes& sizes)
    : sizes_(completed(sizes)),
      facts_(score_row(sizes.score).facts),
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
  return facts_.parameters ? cast(x, wide(x.type())) : x;
}

// From keys and values [B, T, G d] on.
KeysValues MultiHead::prepared(const Tensor& key, const Tensor& value,
                               const Positions& first) const {
  Tensor k = split(key, sizes_.key_heads);
  if (sizes_.rotary) k = rotated(k, first);
  return {{score_->prepare(transpose(for_score(k), 1, 2))},
          transpose(for_score(split(value, sizes_.key_heads)), 1, 2)};
}

KeysValues MultiHead::project_kv(const Tensor& x, const Positions& first) const {
  const Tensor w[] = {key_.weight(), value_.weight()}, b[] = {*key_.bias(), *value_.bias()};
  const std::vector<Tensor> kv = linear_each(x, w, b);
  return prepared(kv[0], kv[1], first);
}

MultiHead::Output MultiHead::read(const Tensor& x, const Tensor& query, const KeysValues& memory,
                                  const AttendOptions& options) const {
  Tensor q = split(query, sizes_.heads);
  if (sizes_.rotary) q = rotated(q, options.first);
  Attended read =
      attend(*score_, transpose(for_score(q), 1, 2), memory.keys, memory.values, options);
  const Tensor merged = reshape(transpose(read.context, 1, 2),
                                {x.size(0), x.size(1), sizes_.heads * sizes_.head_size});
  // A weight of bf16 takes either.
  if (is_bf16_weight(output_.weight())) return {output_(merged), std::move(read)};
  return {output_(cast(merged, x.type())), std::move(read)};
}

MultiHead::Output MultiHead::operator()(const Tensor& x, const KeysValues& memory,
                                        const AttendOptions& options) const {
  return read(x, query_(x), memory, options);
}

MultiHead::Projected MultiHead::project(const Tensor& x, const Positions& first) const {
  const Tensor w[] = {query_.weight(), key_.weight(), value_.weight()},
               b[] = {*query_.bias(), *key_.bias(), *value_.bias()};
  const std::vector<Tensor> qkv = linear_each(x, w, b);
  return {qkv[0], prepared(qkv[1], qkv[2], first)};
}

MultiHead::Output MultiHead::itself(const Tensor& x, const AttendOptions& options) const {
  const Projected all = project(x, options.first);
  return read(x, all.query, all.own, options);
}

}  // namespace heed
