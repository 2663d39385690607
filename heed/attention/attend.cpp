#include "heed/attention/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "heed/ops/cache.h"
#include "heed/ops/into.h"
#include "heed/tensor/graph.h"

namespace heed {
namespace {

// For each sentence, the runs of keys [begin, end) that no query sees, from all rows of a range.
using Runs = std::vector<std::pair<int64_t, int64_t>>;
std::vector<Runs> unseen_runs(const Tensor& range, int64_t sentences, int64_t keys) {
  // One range may stand for all sentences; keys of one sentence may stand for all too.
  const int64_t count = std::min(sentences, range.size(0));
  const int64_t rows = count == 0 ? 0 : range.count() / 2 / count;
  std::vector<Runs> out;
  const Id* at = range.host_ids().data();
  for (int64_t b = 0; b < count; ++b) {
    std::vector<int64_t> change(static_cast<size_t>(keys) + 1);  // in how many see a key
    for (int64_t i = 0; i < rows; ++i, at += 2) {
      const int64_t begin = std::max<int64_t>(0, at[0]), end = std::min<int64_t>(keys, at[1]);
      if (begin < end) ++change[static_cast<size_t>(begin)], --change[static_cast<size_t>(end)];
    }
    Runs runs;
    int64_t seeing = 0;
    for (int64_t j = 0; j < keys; ++j) {
      seeing += change[static_cast<size_t>(j)];
      if (seeing > 0) continue;
      if (runs.empty() || runs.back().second != j) runs.emplace_back(j, j);
      runs.back().second = j + 1;
    }
    out.push_back(std::move(runs));
  }
  return out;
}

// Are there unseen keys only before and after the seen ones?
bool together(const std::vector<Runs>& unseen, int64_t keys) {
  return std::ranges::all_of(unseen, [&](const Runs& runs) {
    return std::ranges::all_of(
        runs, [&](const auto& run) { return run.first == 0 || run.second == keys; });
  });
}

// x [B, G, Tk, n] with `instead` where no query looks: 0 * NaN is NaN in a product. Nothing flows
// back there.
Tensor without_unseen(const Tensor& x, const Tensor& range, double instead) {
  const std::vector<Runs> unseen = unseen_runs(range, x.size(0), x.size(2));
  const bool all_seen = std::ranges::all_of(unseen, [](const Runs& runs) { return runs.empty(); });
  // A mask that all sentences share, as causal() is, depends on sizes alone.
  if (all_seen && range.size(0) == 1 && x.size(0) > 1) return x;
  // On a GPU as one kernel, whatever the sentences are, so that a step can be captured: seen keys
  // that lie together are an interval of a sentence's numbers.
  if (x.device() == Device::cuda && together(unseen, x.size(2))) {
    std::vector<Id> seen;
    for (const Runs& runs : unseen) {
      int64_t begin = 0, end = x.size(2);
      for (const auto& [from, to] : runs) (from == 0 ? begin : end) = from == 0 ? to : from;
      seen.push_back(static_cast<Id>(begin * x.size(3)));
      seen.push_back(static_cast<Id>(end * x.size(3)));
    }
    const Tensor rows = reshape(x, {x.size(0), x.size(1), 1, x.size(2) * x.size(3)});
    return reshape(masked(rows, ids(seen, {std::ssize(unseen), 1, 1, 2}), instead), x.shape());
  }
  cannot_be_captured();  // how many runs there are depends on the sentences
  if (all_seen) return x;
  const auto with = [unseen](const Tensor& given, double number) {
    Tensor y = empty_like(given);
    copy_into(given, y);
    for (int64_t b = 0; b < y.size(0); ++b)
      for (const auto& [begin, end] : unseen[unseen.size() == 1 ? 0 : static_cast<size_t>(b)]) {
        const Shape part{y.size(1), end - begin, y.size(3)};
        copy_into(full(part, number, y.type()), y.view(part, {y.stride(1), y.stride(2), 1},
                                                       b * y.stride(0) + begin * y.stride(2)));
      }
    return y;
  };
  return record("without_unseen", {&x}, with(x.detached(), instead),
                [with](const Tensor& dy) { return Grads{with(dy, 0)}; });
}

// Rows of x [B, G, Tk, n] that are not all numbers: 0 * NaN is NaN also for a query that does not
// see them. Which rows.
std::vector<int64_t> non_finite_rows(const Tensor& x) {
  const NoTape off;
  std::vector<int64_t> rows;
  if (std::isfinite(sum(x * 0.0).item())) return rows;
  const std::vector<double> numbers = x.values();
  const size_t n = static_cast<size_t>(x.size(3));
  for (size_t i = 0; i < numbers.size(); ++i)
    if (const auto row = static_cast<int64_t>(i / n);
        !std::isfinite(numbers[i]) && (rows.empty() || rows.back() != row))
      rows.push_back(row);
  return rows;
}
// x with `instead` in those rows, to which nothing flows back.
Tensor without_rows(const Tensor& x, const std::vector<int64_t>& rows, double instead) {
  if (rows.empty()) return x;
  const auto with = [rows](const Tensor& given, double number) {
    Tensor y = empty_like(given);
    copy_into(given, y);
    for (const int64_t row : rows)
      copy_into(full({y.size(3)}, number, y.type()), y.view({y.size(3)}, {1}, row * y.size(3)));
    return y;
  };
  return record("without_rows", {&x}, with(x.detached(), instead),
                [with](const Tensor& dy) { return Grads{with(dy, 0)}; });
}
// [B, G, 1, Tk]: what makes the scores of those rows none.
Tensor non_finite_scores(const Tensor& x, const std::vector<int64_t>& rows) {
  std::vector<double> out(static_cast<size_t>(x.size(0) * x.size(1) * x.size(2)));
  for (const int64_t row : rows)
    out[static_cast<size_t>(row)] = std::numeric_limits<double>::quiet_NaN();
  return tensor(out, {x.size(0), x.size(1), 1, x.size(2)}, x.type());
}

// The same on a GPU, where looking would mean waiting: non_finite_scores [B, G, Tk] by ops,
Tensor non_finite_there(const Tensor& x) {
  const NoTape off;
  return sum(x * 0.0, -1);
}
// and x without those rows. A range is all of a row, or nothing where everything is none: there no
// number is the largest, and arg_max gives 0.
Tensor without_rows_there(const Tensor& x, const Tensor& non_finite, double instead) {
  const int64_t B = x.size(0), G = x.size(1), Tk = x.size(2), n = x.size(3);
  const auto range = [&] {
    const NoTape off;
    std::vector<double> last(static_cast<size_t>(n) + 1);
    last.back() = 1;
    const Tensor end =
        arg_max(tensor(last, {n + 1}, x.type()) + reshape(non_finite, {B, G, Tk, 1}));
    return concat({full({B, G, Tk, 1}, 0, Type::i32), reshape(end, {B, G, Tk, 1})}, 3);
  };
  return masked(x, range(), instead);
}

// Do all queries of a sentence see the same keys?
bool same_for_queries(const Tensor& range) {
  const std::span<const Id> at = range.host_ids();
  const size_t each = range.size(0) == 0 ? 0 : at.size() / static_cast<size_t>(range.size(0));
  for (size_t i = 0; i < at.size(); ++i)
    if (at[i] != at[i / each * each + i % 2]) return false;
  return true;
}

// Heads that the GPU's kernels have no room for.
bool too_wide(const ScoreTerms& terms, const Tensor& values) {
  return !fused_attention_fits({.form = terms.form, .q = terms.q, .k = terms.k, .value = values});
}

// Scores fall with the square of the distance from a place.
double falloff(const LocalPlace& local) { return 2 / (local.reach * local.reach); }

Tensor place_term(const LocalPlace& local, int64_t keys, Type type) {
  std::vector<double> positions;
  for (int64_t j = 0; j < keys; ++j) positions.push_back(double(j));
  const Shape& s = local.place.shape();
  const Tensor away = tensor(positions, {keys}, type) - reshape(local.place, {s[0], s[1], s[2], 1});
  return square(away) * -falloff(local);
}

// Weights [B, H, Tq, Tk] times values [B, G, Tk, m], heads that share values as rows of one
// product.
Tensor read(const Tensor& weights, const Tensor& values) {
  const int64_t B = weights.size(0), H = weights.size(1), Tq = weights.size(2),
                Tk = weights.size(3);
  const int64_t G = values.size(1);
  return reshape(matmul(reshape(weights, {B, G, H / G * Tq, Tk}), values),
                 {B, H, Tq, values.size(3)});
}

struct Call {
  const Score& score;
  const Tensor &q, &k, &values;
  const AttendOptions& options;
  std::optional<Tensor> range, distances = {}, origins = {};
};

// In plain ops: any score, any weights, at the cost of [B, H, Tq, Tk].
Attended composed(const Call& c) {
  const AttendOptions& o = c.options;
  // Ones, not zeros: the logarithm of a product with nothing has no slope.
  Tensor k = c.range ? without_unseen(c.k, *c.range, 1) : c.k;
  Tensor values = c.range ? without_unseen(c.values, *c.range, 0) : c.values;
  // A key that is no number, or whose value is none, and that some queries see and others do not:
  // products meet a number in its place, and those who see it get what is none from its score.
  std::optional<Tensor> non_finite;
  if (c.range && values.device() == Device::cuda) {
    if (!same_for_queries(*c.range)) {
      const Tensor of_keys = non_finite_there(k), of_values = non_finite_there(values);
      const Tensor all = of_keys + of_values;
      non_finite = reshape(all, {all.size(0), all.size(1), 1, all.size(2)});
      k = without_rows_there(k, of_keys, 1), values = without_rows_there(values, of_values, 0);
    }
  } else if (c.range) {
    const std::vector<int64_t> of_keys = non_finite_rows(k), of_values = non_finite_rows(values);
    if (!of_keys.empty() || !of_values.empty())
      non_finite = non_finite_scores(k, of_keys) + non_finite_scores(values, of_values);
    k = without_rows(k, of_keys, 1), values = without_rows(values, of_values, 0);
  }
  const int64_t B = std::max(c.q.size(0), values.size(0));
  const int64_t H = c.q.size(1), Tq = c.q.size(2), Tk = k.size(2);
  Tensor scores = c.score(c.q, k, o.first);
  require(scores.rank() == 4 && (scores.size(0) == B || scores.size(0) == 1) &&
              scores.size(1) == H && scores.size(2) == Tq && scores.size(3) == Tk,
          "attend: the score gave ", scores.shape(), ", wanted [", B, ", ", H, ", ", Tq, ", ", Tk,
          "]");
  if (scores.size(0) != B) scores = scores + zeros({B, 1, 1, 1}, scores.type());
  if (c.distances) scores = scores + by_distance(*c.distances, Tq, Tk);
  if (o.score_bias) scores = scores + *o.score_bias;
  if (o.local) scores = scores + place_term(*o.local, Tk, scores.type());
  if (non_finite) {
    const int64_t G = values.size(1);
    scores = reshape(reshape(scores, {B, G, H / G * Tq, Tk}) + *non_finite, {B, H, Tq, Tk});
  }
  if (c.range) scores = masked(scores, *c.range);
  Weighed w = weigh(o.weigh, scores);
  if (non_finite) w.weights = masked(w.weights, *c.range, 0);
  Attended out{.context = read(o.dropout > 0 ? dropout(w.weights, o.dropout) : w.weights, values),
               .log_probability = std::move(w.log_probability)};
  if (o.want_weights) out.weights = w.weights;
  return out;
}

// By the kernel that keeps nothing.
Attended fused(const Call& c, const ScoreTerms& terms) {
  const AttendOptions& o = c.options;
  const double factor = 1 / o.weigh.temperature;
  const auto cooled = [&](const Tensor& x) { return factor == 1 ? x : x * factor; };
  FusedAttention a{.form = terms.form,
                   .q = terms.q,
                   .k = terms.k,
                   .value = c.values,
                   .scale = terms.scale * factor,
                   .range = c.range,
                   .dropout = o.dropout,
                   .want_weights = o.want_weights,
                   .origins = c.origins};
  if (terms.v) a.v = cooled(*terms.v);
  if (terms.bias) a.bias = cooled(*terms.bias);
  if (c.distances)
    a.bias = a.bias ? *a.bias + cooled(by_distance(*c.distances, c.q.size(2), c.k.size(2)))
                    : cooled(*c.distances);
  if (o.local) a.place = o.local->place, a.falloff = falloff(*o.local) * factor;
  FusedResult r = fused_attention(a);
  return {.context = r.context, .weights = r.weights};
}

// The largest weights of each query, a block of queries at a time.
Ranked top_weights(const Score& score, const Tensor& q, const PreparedKeys& keys,
                   const Tensor& values, AttendOptions o) {
  constexpr int64_t kBlock = 64;
  const NoTape off;
  const int64_t top = o.want_top;
  const Positions first = o.first;
  o.want_top = 0, o.want_weights = true;
  const std::optional<LocalPlace> local = o.local;
  const std::optional<Tensor> bias = o.score_bias;
  std::vector<Tensor> found, where;
  for (int64_t i = 0; i == 0 || i < q.size(2); i += kBlock) {
    const int64_t end = std::min(i + kBlock, q.size(2));
    if (!first.by_sentence()) o.first = first.plus(i);
    if (local) o.local->place = contiguous(slice(local->place, 2, i, end));
    if (bias) o.score_bias = slice(*bias, -2, i, end);
    const Ranked r = top_k(*attend(score, slice(q, 2, i, end), keys, values, o).weights, top);
    found.push_back(r.values), where.push_back(r.indices);
  }
  return {concat(found, 2), concat(where, 2)};
}

std::optional<Tensor> range_of(const Tensor& q, const Tensor& keys, const AttendOptions& o) {
  const Mask::Sizes sizes{q.size(0), q.size(1), q.size(2), keys.size(2), o.first};
  if (!o.local) return o.mask.ranges(sizes);
  return (o.mask & Mask::around(o.local->place, o.local->reach)).ranges(sizes);
}

}  // namespace

Attended attend(const Score& score, const Tensor& q, const Tensor& keys, const Tensor& values,
                const AttendOptions& options) {
  // In the backward pass a key that nobody sees is multiplied with a slope of 0 for the parameters
  // of prepare().
  std::optional<Tensor> range;
  if (Tape::current() && q.rank() == 4 && keys.rank() == 4) range = range_of(q, keys, options);
  return attend(score, q,
                PreparedKeys{score.prepare(range ? without_unseen(keys, *range, 1) : keys)}, values,
                options);
}

Attended attend(const Score& score, const Tensor& q, const PreparedKeys& keys, const Tensor& values,
                const AttendOptions& o) {
  const Tensor& k = keys.k;
  require(q.rank() == 4 && k.rank() == 4 && values.rank() == 4,
          "attend: wants q [B, H, Tq, d], keys [B, G, Tk, d], values [B, G, Tk, m]; given ",
          q.shape(), ", ", k.shape(), ", ", values.shape());
  require(k.size(2) == values.size(2) && k.size(1) == values.size(1), "attend: keys ", k.shape(),
          " and values ", values.shape(), " do not belong together");
  require(q.size(0) == values.size(0), "attend: ", q.size(0), " queries' sentences, ",
          values.size(0), " values' sentences");
  require(q.size(1) % values.size(1) == 0, "attend: ", q.size(1), " query heads cannot share ",
          values.size(1), " key heads evenly");
  require(o.weigh.temperature > 0, "attend: temperature wants a number above 0, given ",
          o.weigh.temperature);
  require(!o.local || o.local->reach > 0, "attend: local attention wants a reach above 0, given ",
          o.local ? o.local->reach : 0.0);
  require(o.want_top >= 0 && o.want_top <= k.size(2), "attend: the ", o.want_top,
          " largest weights of ", k.size(2));
  const int64_t Tq = q.size(2), Tk = k.size(2);
  if (o.score_bias) {
    const Shape& s = o.score_bias->shape();
    const bool plain = s.rank() == 2 && s[0] == Tq && s[1] == Tk;
    require(plain || (s.rank() == 4 && (s[0] == 1 || s[0] == q.size(0)) &&
                      (s[1] == 1 || s[1] == q.size(1)) && s[2] == Tq && s[3] == Tk),
            "attend: score_bias wants [", Tq, ", ", Tk, "] or [", q.size(0), " or 1, ", q.size(1),
            " or 1, ", Tq, ", ", Tk, "], given ", s);
  }
  Call call{score, q, k, values, o, range_of(q, k, o)};
  call.origins = keys.origins;
  require(!o.bias || !o.first.by_sentence(),
          "attend: a bias by distance wants queries that follow each other, not one position for "
          "each sentence");
  if (o.bias && Tq + Tk > 0) call.distances = (*o.bias)(Tq, Tk, o.first.first());
  const bool soft = o.weigh.kind == Weigh::Kind::soft;
  // The kernel's weights have no gradient; who records and wants them may want that too.
  const bool weights_tracked = o.want_weights && Tape::current();
  std::optional<ScoreTerms> terms;
  if (soft && !weights_tracked && !o.score_bias) terms = score.terms(q, k, o.first);
  if (terms && too_wide(*terms, values)) terms.reset();
  // Only the kernel follows them, and only where what it compares is made from the keys.
  const bool follows =
      terms && terms->k.size(0) == values.size(0) && !o.want_terms && o.want_top == 0;
  if (keys.origins && !follows)
    return attend(score, q, PreparedKeys{gathered(k, *keys.origins)},
                  gathered(values, *keys.origins), o);
  if (q.type() == Type::bf16 && !terms) {  // plain ops want f32
    AttendOptions wide_options = o;
    if (o.score_bias) wide_options.score_bias = cast(*o.score_bias, Type::f32);
    Attended out = attend(score, cast(q, Type::f32), PreparedKeys{cast(k, Type::f32)},
                          cast(values, Type::f32), wide_options);
    out.context = cast(out.context, Type::bf16);
    return out;
  }
  Attended out = terms ? fused(call, *terms) : composed(call);
  if (o.want_terms) out.terms = score.terms(q, k, o.first);
  if (o.want_top > 0) out.top = top_weights(score, q, keys, values, o);
  return out;
}

PlacePredictor::PlacePredictor(const Params& params, int64_t size)
    : w_(params.add("W", {size, size}, glorot())), v_(params.add("v", {size, 1}, glorot())) {}

Tensor PlacePredictor::operator()(const Tensor& q, std::span<const Id> lengths) const {
  require(static_cast<int64_t>(lengths.size()) == q.size(0), "PlacePredictor: ", lengths.size(),
          " lengths for ", q.size(0), " sentences");
  std::vector<double> length(lengths.begin(), lengths.end());
  const Tensor share = sigmoid(linear(linear(q, w_, std::nullopt, Activation::tanh), v_));
  return reshape(share, {q.size(0), q.size(1), q.size(2)}) *
         tensor(length, {q.size(0), 1, 1}, q.type());
}

}  // namespace heed
