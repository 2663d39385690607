// The scores of the literature. Letters as in the papers: q query, k key, H heads of queries, G
// heads of keys (H of them unless grouped).
#include "heed/attention/score.h"

#include <cmath>
#include <vector>

#include "heed/nn/layers.h"

namespace heed {
namespace {

// x [B, H, T, d] times a matrix for each head, w [H, d, n]: [B, H, T, n].
Tensor per_head(const Tensor& x, const Tensor& given) {
  const Tensor w = x.type() == Type::bf16 && x.size(1) == 1 ? compute_copy(given) : given;
  const int64_t B = x.size(0), H = x.size(1), T = x.size(2), d = x.size(3), n = w.size(2);
  require(H == w.size(0) && d == w.size(1), "score: wants [B, ", w.size(0), ", T, ", w.size(1),
          "], given ", x.shape());
  if (H == 1) return linear(x, w);
  const Tensor by_head = reshape(transpose(x, 0, 1), {H, B * T, d});
  return transpose(reshape(matmul(by_head, w), {H, B, T, n}), 0, 1);
}

// Rows of length 1.
Tensor unit_rows(const Tensor& x) {
  Shape norm = x.shape();
  norm[x.rank() - 1] = 1;
  return x / reshape(sqrt(sum(square(x), -1) + 1e-12), norm);
}

void want_positions(const char* score, const Tensor& table, int64_t count) {
  require(count <= table.size(1), "score '", score, "': made for ", table.size(1),
          " positions, asked for ", count, "; make it with more");
}

// The rows of a table [H, positions, n] for queries that stand `at`: [B or 1, H, queries, n].
Tensor by_position(const char* score, const Tensor& table, const Positions& at, int64_t queries) {
  const int64_t H = table.size(0), n = table.size(2);
  if (!at.by_sentence()) {
    want_positions(score, table, at.first() + queries);
    const Tensor rows = slice(table, 1, at.first(), at.first() + queries);
    return reshape(rows, {1, H, queries, n});
  }
  std::vector<Id> rows;  // of the table as [H positions, n]
  const int64_t B = std::ssize(at.of_sentences());
  for (int64_t b = 0; b < B; ++b) {
    want_positions(score, table, at.at(b, 0) + 1);
    for (int64_t h = 0; h < H; ++h)
      rows.insert(rows.end(), static_cast<size_t>(queries),
                  static_cast<Id>(h * table.size(1) + at.at(b, 0)));
  }
  return reshape(embedding(reshape(table, {H * table.size(1), n}), ids(rows, {B * H * queries})),
                 {B, H, queries, n});
}

// [B, 1, n] without numbers: what is compared when nothing of it matters.
Tensor nothing(const Tensor& like) {
  return Tensor({1, like.size(1), like.size(2), 0}, like.type());
}

// Glorot's bounds for one matrix of a stack [H, in, out].
Initializer glorot_stack() {
  return [](const Shape& s, Random& random, Type type) {
    return uniform(s, std::sqrt(6.0 / double(s[1] + s[2])), random, type);
  };
}

// v^T tanh(W q + U k) (Bahdanau et al., 2015, A.1.2).
class Additive final : public Score {
 public:
  static constexpr ScoreFacts facts = {};
  Additive(const Params& params, const ScoreSizes& s)
      : w_(params.add("W", {s.heads, s.query, hidden(s)}, glorot_stack())),
        u_(params.add("U", {s.groups(), s.key, hidden(s)}, glorot_stack())),
        v_(params.add("v", {s.heads, hidden(s)}, glorot())) {
    if (s.norm_epsilon) {
      require(s.heads == 1, "score 'additive': norms are for one head, given ", s.heads);
      query_norm_.emplace(params / "query_norm", hidden(s), *s.norm_epsilon);
      key_norm_.emplace(params / "key_norm", hidden(s), *s.norm_epsilon);
    } else if (s.bias) {
      b_ = params.add("b", {s.groups(), 1, hidden(s)}, constant(0));
    }
  }
  Tensor prepare(const Tensor& keys) const override {
    const Tensor k = per_head(keys, u_);
    return key_norm_ ? (*key_norm_)(k) : b_ ? k + *b_ : k;
  }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    const Tensor mapped = per_head(q, w_);
    return ScoreTerms{.form = ScoreForm::additive,
                      .q = query_norm_ ? (*query_norm_)(mapped) : mapped,
                      .k = k,
                      .v = v_};
  }
  std::optional<DecoderForm> decoder_form() const override {
    return w_.size(0) == 1 && !query_norm_ ? std::optional(DecoderForm{w_, v_}) : std::nullopt;
  }

 private:
  static int64_t hidden(const ScoreSizes& s) { return s.size ? s.size : s.query; }
  Tensor w_, u_, v_;
  std::optional<Tensor> b_;
  std::optional<LayerNorm> query_norm_, key_norm_;
};

// tanh(w1 k + w2 q), with one row each: the score lies in (-1, 1) (lecture notes, eq. 3).
class Tanh final : public Score {
 public:
  static constexpr ScoreFacts facts = {};
  Tanh(const Params& params, const ScoreSizes& s)
      : w_(params.add("w2", {s.heads, s.query, 1}, glorot_stack())),
        u_(params.add("w1", {s.groups(), s.key, 1}, glorot_stack())) {}
  Tensor prepare(const Tensor& keys) const override { return per_head(keys, u_); }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    return ScoreTerms{.form = ScoreForm::additive,
                      .q = per_head(q, w_),
                      .k = k,
                      .v = full({q.size(1), 1}, 1, q.type())};
  }

 private:
  Tensor w_, u_;
};

// q^T W k (Luong et al., 2015, "general"); with a rank, W = A B^T.
class Bilinear final : public Score {
 public:
  static constexpr ScoreFacts facts = {.rank = true};
  Bilinear(const Params& params, const ScoreSizes& s)
      : a_(s.rank ? params.add("A", {s.heads, s.query, s.rank}, glorot_stack())
                  : params.add("W", {s.heads, s.query, s.key}, glorot_stack())) {
    if (s.rank) b_ = params.add("B", {s.groups(), s.key, s.rank}, glorot_stack());
  }
  Tensor prepare(const Tensor& keys) const override { return b_ ? per_head(keys, *b_) : keys; }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    return ScoreTerms{.q = per_head(q, a_), .k = k};
  }

 private:
  Tensor a_;
  std::optional<Tensor> b_;
};

void want_equal(const char* score, const ScoreSizes& s) {
  require(s.query == s.key, "score '", score, "': queries of size ", s.query,
          " cannot be multiplied with keys of size ", s.key, "; 'bilinear' can compare them");
}

// q^T k (Luong et al., 2015).
class Dot final : public Score {
 public:
  static constexpr ScoreFacts facts = {.equal_sizes = true, .parameters = false};
  Dot(const Params&, const ScoreSizes& s) { want_equal("dot", s); }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    return ScoreTerms{.q = q, .k = k};
  }
};

// q^T k / sqrt(d) (Vaswani et al., 2017, eq. 1).
class ScaledDot final : public Score {
 public:
  static constexpr ScoreFacts facts = {.equal_sizes = true, .parameters = false};
  ScaledDot(const Params&, const ScoreSizes& s) { want_equal("scaled_dot", s); }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    return ScoreTerms{.q = q, .k = k, .scale = 1 / std::sqrt(double(q.size(3)))};
  }
};

// gain * cos(q, k), with a learned gain for each head.
class Cosine final : public Score {
 public:
  static constexpr ScoreFacts facts = {.equal_sizes = true};
  Cosine(const Params& params, const ScoreSizes& s)
      : gain_(params.add("gain", {s.heads, 1, 1}, constant(10))) {
    want_equal("cosine", s);
  }
  Tensor prepare(const Tensor& keys) const override { return unit_rows(keys); }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    return ScoreTerms{.q = unit_rows(q) * gain_, .k = k};
  }

 private:
  Tensor gain_;
};

// W[i, j], learned for each pair of positions, whatever stands there; with a rank W = W1 W2.
class Static final : public Score {
 public:
  static constexpr ScoreFacts facts = {.positions = true, .rank = true};
  Static(const Params& params, const ScoreSizes& s) {
    require(s.positions > 0, "score 'static': wants the longest sentence as `positions`, given 0");
    // Small numbers: at first all positions weigh nearly the same.
    const Initializer near_zero = normal_values(s.rank ? std::sqrt(0.02) : 0.02);
    if (s.rank) {
      w_ = params.add("W1", {s.heads, s.positions, s.rank}, near_zero);
      w2_ = params.add("W2", {s.groups(), s.positions, s.rank}, near_zero);
    } else {
      w_ = params.add("W", {s.heads, s.positions, s.positions}, near_zero);
    }
  }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions& at) const override {
    const Tensor rows = by_position("static", w_, at, q.size(2));  // [B or 1, H, Tq, any]
    if (w2_) return ScoreTerms{.q = rows, .k = by_position("static", *w2_, 0, k.size(2))};
    require(k.size(2) <= w_.size(2), "score 'static': made for ", w_.size(2),
            " positions, asked for ", k.size(2), "; make it with more");
    return ScoreTerms{.q = nothing(q), .k = nothing(k), .bias = slice(rows, 3, 0, k.size(2))};
  }

 private:
  Tensor w_;
  std::optional<Tensor> w2_;
};

// (W q)_j: the query alone says where to look (Luong et al., 2015, "location").
class Location final : public Score {
 public:
  static constexpr ScoreFacts facts = {.positions = true};
  Location(const Params& params, const ScoreSizes& s)
      : w_(params.add("W", {s.groups(), s.positions, s.query}, glorot_stack())) {
    require(s.positions > 0,
            "score 'location': wants the longest sentence as `positions`, given 0");
  }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    return ScoreTerms{.q = q, .k = by_position("location", w_, 0, k.size(2))};
  }

 private:
  Tensor w_;
};

// log(f(q) . g(k)) with f = softmax(q A), g = softmax(k B): after the softmax the weights are f(q)
// . g(k) over their sum, a product of two maps computed from the input (lecture notes, factorized
// dynamic attention).
class Factorized final : public Score {
 public:
  static constexpr ScoreFacts facts = {.rank = true};
  Factorized(const Params& params, const ScoreSizes& s)
      : a_(params.add("A", {s.heads, s.query, rank(s)}, glorot_stack())),
        b_(params.add("B", {s.groups(), s.key, rank(s)}, glorot_stack())) {}
  Tensor prepare(const Tensor& keys) const override { return softmax(per_head(keys, b_)); }
  std::optional<ScoreTerms> terms(const Tensor& q, const Tensor& k,
                                  const Positions&) const override {
    return ScoreTerms{.form = ScoreForm::log_dot, .q = softmax(per_head(q, a_)), .k = k};
  }

 private:
  static int64_t rank(const ScoreSizes& s) { return s.rank ? s.rank : s.query; }
  Tensor a_, b_;
};

template <class S>
constexpr ScoreRow row(const char* name, const char* formula, const char* alias = nullptr) {
  return {name, formula,
          [](const Params& params, const ScoreSizes& sizes) -> std::unique_ptr<Score> {
            return std::make_unique<S>(params, sizes);
          },
          S::facts, alias};
}

constexpr ScoreRow kScores[] = {
    row<Additive>("additive", "v^T tanh(W q + U k)", "concat"),
    row<Tanh>("tanh", "tanh(w1 k + w2 q)"),
    row<Bilinear>("bilinear", "q^T W k, or q^T A B^T k by rank", "general"),
    row<Dot>("dot", "q^T k"),
    row<ScaledDot>("scaled_dot", "q^T k / sqrt(d)"),
    row<Cosine>("cosine", "gain cos(q, k)"),
    row<Static>("static", "W[i, j] by position, or W1 W2 by rank"),
    row<Location>("location", "(W q)_j"),
    row<Factorized>("factorized", "log(softmax(q A) . softmax(k B))"),
};

}  // namespace

std::span<const ScoreRow> score_table() { return kScores; }

const ScoreRow* find_score_row(const std::string& name) {
  for (const ScoreRow& row : kScores)
    if (row.name == name || (row.alias && row.alias == name)) return &row;
  return nullptr;
}

const ScoreRow& score_row(const std::string& name) {
  if (const ScoreRow* const row = find_score_row(name)) return *row;
  std::vector<std::string> names;
  for (const ScoreRow& row : kScores) names.emplace_back(row.name);
  fail(unknown_name("score", name, names));
}

std::unique_ptr<Score> make_score(const std::string& name, const Params& params,
                                  const ScoreSizes& sizes) {
  require(sizes.heads > 0 && sizes.groups() > 0 && sizes.heads % sizes.groups() == 0, "score '",
          name, "': ", sizes.heads, " query heads cannot share ", sizes.groups(),
          " key heads evenly");
  return score_row(name).make(params, sizes);
}

// ---- the definition in plain ops

namespace {

// [1, ...] repeated to a batch.
Tensor for_batch(const Tensor& x, int64_t batch) {
  return x.size(0) == batch ? x : x + zeros({batch, 1, 1, 1}, x.type());
}

}  // namespace

Tensor composed_scores(const ScoreTerms& t) {
  const int64_t B = std::max(t.q.size(0), t.k.size(0)), H = t.q.size(1), G = t.k.size(1);
  const int64_t Tq = t.q.size(2), Tk = t.k.size(2), n = t.q.size(3);
  Tensor s;
  if (t.form == ScoreForm::additive) {
    const Tensor q = reshape(t.q, {t.q.size(0), G, H / G, Tq, 1, n});
    const Tensor k = reshape(t.k, {t.k.size(0), G, 1, 1, Tk, n});
    const Tensor v = reshape(*t.v, {G, H / G, 1, 1, n});
    s = reshape(sum(tanh(q + k) * v, -1), {B, H, Tq, Tk});
  } else {
    // Heads that share keys are rows of one product.
    const Tensor q = reshape(for_batch(t.q, B), {B, G, H / G * Tq, n});
    s = reshape(matmul(q, transpose(for_batch(t.k, B), 2, 3)), {B, H, Tq, Tk});
    if (t.form == ScoreForm::log_dot) s = log(s);
    s = s * t.scale;
  }
  return t.bias ? s + *t.bias : s;
}

Tensor Score::operator()(const Tensor& q, const Tensor& k, const Positions& at) const {
  const std::optional<ScoreTerms> t = terms(q, k, at);
  require(t.has_value(), "score: a class must override terms() or operator()");
  return composed_scores(*t);
}

// ---- terms that any score can add

namespace {

class Alibi final : public DistanceBias {
 public:
  Alibi(int64_t heads, Type type) : heads_(heads), type_(type) {}
  Tensor operator()(int64_t queries, int64_t keys, int64_t first) const override {
    const int64_t n = queries + keys - 1;
    std::vector<double> values;
    for (int64_t h = 0; h < heads_; ++h)
      for (int64_t x = 0; x < n; ++x)
        values.push_back(-std::exp2(-8.0 * double(h + 1) / double(heads_)) *
                         std::abs(double(x - (queries - 1) - first)));
    return tensor(values, {heads_, n}, type_);
  }

 private:
  int64_t heads_;
  Type type_;
};

class DistanceBuckets final : public DistanceBias {
 public:
  DistanceBuckets(const Params& params, int64_t heads, int64_t buckets, int64_t furthest)
      : furthest_(furthest), table_(params.add("distance", {buckets, heads}, normal_values(0.02))) {
    require(buckets >= 4 && buckets % 2 == 0 && furthest > buckets / 4,
            "distance_buckets: wants an even number of at least 4 buckets and a furthest distance "
            "beyond a quarter of them, given ",
            buckets, " and ", furthest);
  }
  Tensor operator()(int64_t queries, int64_t keys, int64_t first) const override {
    std::vector<Id> at;
    for (int64_t x = 0; x < queries + keys - 1; ++x)
      at.push_back(bucket(x - (queries - 1) - first));
    return transpose(embedding(table_, ids(at, {queries + keys - 1})), 0, 1);
  }

 private:
  Id bucket(int64_t distance) const {
    const int64_t half = table_.size(0) / 2, exact = half / 2, away = std::abs(distance);
    int64_t b = away;
    if (away >= exact)
      b = std::min(half - 1,
                   exact + static_cast<int64_t>(std::log(double(away) / double(exact)) /
                                                std::log(double(furthest_) / double(exact)) *
                                                double(half - exact)));
    return static_cast<Id>(distance > 0 ? half + b : b);
  }
  int64_t furthest_;
  Tensor table_;  // [buckets, H]
};

}  // namespace

std::unique_ptr<DistanceBias> alibi(int64_t heads, Type type) {
  return std::make_unique<Alibi>(heads, type);
}
std::unique_ptr<DistanceBias> distance_buckets(const Params& params, int64_t heads, int64_t buckets,
                                               int64_t furthest) {
  return std::make_unique<DistanceBuckets>(params, heads, buckets, furthest);
}

}  // namespace heed
