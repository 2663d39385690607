#include "tests/cases/attention.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <type_traits>

#include "heed/base/random.h"
#include "heed/ops/into.h"
#include "heed/tensor/context.h"

namespace heed::cases {
namespace {

using Masked = AttentionSpec::Masked;
using Distance = AttentionSpec::Distance;

ScoreSizes score_sizes(const AttentionSpec& s) {
  return {.query = s.query_size,
          .key = s.key_size,
          .heads = s.heads,
          .key_heads = s.key_heads,
          .size = s.query_size + 1,
          .rank = s.rank,
          .positions = s.positions()};
}

// A score and a term by distance with the parameters they made.
struct Parts {
  Params params;
  std::unique_ptr<Score> score;
  std::unique_ptr<DistanceBias> bias;

  Parts(const AttentionSpec& s, Type type)
      : params(1, type), score(make_score(s.score, params, score_sizes(s))) {
    if (s.distance == Distance::alibi) bias = alibi(s.heads, type);
    if (s.distance == Distance::buckets) bias = distance_buckets(params / "bias", s.heads, 8, 6);
  }
};

// Lets a parameter stand for x: the same elements, and one place where their gradients gather.
void stand_for(const Tensor& parameter, const Tensor& x) {
  copy_into(x.detached(), parameter.detached());
  if (x.parameter_state() && !x.parameter_state()->grad)
    x.parameter_state()->grad = std::make_shared<Tensor>(zeros(x.shape(), x.type()));
  parameter.parameter_state()->grad = x.parameter_state() ? x.parameter_state()->grad : nullptr;
}

bool has(Masked mask, std::initializer_list<Masked> any) {
  return std::find(any.begin(), any.end(), mask) != any.end();
}

// ---- plain loops

// Numbers of one array by several indices.
template <class T>
struct Rows {
  const std::vector<T>& x;
  std::vector<int64_t> sizes;
  template <class... I>
  const T* at(I... index) const {
    int64_t flat = 0;
    size_t axis = 0;
    for (const int64_t i : {static_cast<int64_t>(index)...}) flat = flat * sizes[axis++] + i;
    for (; axis < sizes.size(); ++axis) flat *= sizes[axis];
    return x.data() + flat;
  }
};

template <class T>
T dot(const T* a, const T* b, int64_t n, int64_t b_step = 1) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i * b_step];
  return sum;
}

// Not even a NaN is among them.
template <class T>
bool nothing_seen(const std::vector<T>& x) {
  return std::all_of(x.begin(), x.end(), [](T v) { return v == T(-INFINITY); });
}

template <class T>
std::vector<T> soft(std::vector<T> x) {
  if (nothing_seen(x)) return std::vector<T>(x.size());
  T most = -INFINITY, sum = 0;
  for (const T v : x) most = std::max(most, v);
  for (T& v : x) sum += v = std::exp(v - most);
  for (T& v : x) v /= sum;
  return x;
}

// x [n] times w [n, count].
template <class T>
std::vector<T> times(const T* x, int64_t n, const T* w, int64_t count) {
  std::vector<T> y;
  for (int64_t c = 0; c < count; ++c) y.push_back(dot(x, w + c, n, count));
  return y;
}

// The weights max(0, x - t)^(1 / (alpha - 1)) for the t at which they sum to one, found by halving
// an interval.
template <class T>
std::vector<T> sparse(std::vector<T> x, bool sparsemax) {
  if (nothing_seen(x)) return std::vector<T>(x.size());
  T most = -INFINITY;
  for (T& v : x) most = std::max(most, v = sparsemax ? v : v / 2);
  for (T& v : x) v -= most;
  const auto weight = [&](T v, double t) {
    const double over = std::max(0.0, static_cast<double>(v) - t);
    return sparsemax ? over : over * over;
  };
  double low = -1, high = 0;
  for (int step = 0; step < 60; ++step) {
    const double t = (low + high) / 2;
    double sum = 0;
    for (const T v : x) sum += weight(v, t);
    (sum > 1 ? low : high) = t;
  }
  for (T& v : x) v = static_cast<T>(weight(v, (low + high) / 2));
  return x;
}

// What is drawn in training is the largest where no tape is open.
template <class T>
std::vector<T> weighed(Weigh::Kind kind, const std::vector<T>& x) {
  if (kind == Weigh::Kind::soft) return soft(x);
  if (kind == Weigh::Kind::sparsemax || kind == Weigh::Kind::entmax)
    return sparse(x, kind == Weigh::Kind::sparsemax);
  std::vector<T> y(x.size());
  const auto most = std::max_element(x.begin(), x.end());
  if (most != x.end() && *most != T(-INFINITY)) y[static_cast<size_t>(most - x.begin())] = 1;
  return y;
}

template <class T>
class Plain {
 public:
  Plain(const AttentionSpec& spec, const std::vector<std::string>& names, const Arrays<T>& in)
      : s_(spec),
        in_(in),
        q_{in[0], {s_.batch, s_.heads, s_.queries, s_.query_size}},
        k_{in[1], {s_.batch, s_.key_heads, s_.keys, s_.key_size}},
        value_{in[2], {s_.batch, s_.key_heads, s_.keys, s_.value_size}} {
    for (size_t i = 0; i < names.size(); ++i) by_name_[names[i]] = &in[i];
    if (!known()) take_scores(names);
  }

  std::vector<T> context() const {
    std::vector<T> out;
    for (int64_t b = 0; b < s_.batch; ++b)
      for (int64_t h = 0; h < s_.heads; ++h)
        for (int64_t i = 0; i < s_.queries; ++i) {
          const std::vector<T> w = weights(b, h, i);
          for (int64_t m = 0; m < s_.value_size; ++m) {
            T sum = 0;
            for (int64_t j = 0; j < s_.keys; ++j)
              // A value that is not seen may be NaN, and 0 * NaN is.
              if (s_.sees(b, i, j, place(b, h, i)))
                sum += w[static_cast<size_t>(j)] * value_.at(b, group(h), j)[m];
            out.push_back(sum);
          }
        }
    return out;
  }

 private:
  int64_t group(int64_t h) const { return h / (s_.heads / s_.key_heads); }
  const T* parameter(const char* name, int64_t row, int64_t size) const {
    return by_name_.at(name)->data() + row * size;
  }

  bool known() const {
    for (const char* name : {"additive", "tanh", "bilinear", "dot", "scaled_dot", "cosine",
                             "static", "location", "factorized"})
      if (s_.score == name) return true;
    return false;
  }
  // Of a score whose formula is not below.
  void take_scores(const std::vector<std::string>& names) {
    constexpr Type type = std::is_same_v<T, double> ? Type::f64 : Type::f32;
    const Parts parts(s_, type);
    for (const Parameter& p : parts.params.all())
      for (size_t n = 0; n < names.size(); ++n)
        if (names[n] == p.name) stand_for(p.value, tensor_of(in_[n], p.value.shape()));
    const Tensor q = tensor_of(in_[0], {s_.batch, s_.heads, s_.queries, s_.query_size});
    const Tensor k = tensor_of(in_[1], {s_.batch, s_.key_heads, s_.keys, s_.key_size});
    for (const double x : (*parts.score)(q, parts.score->prepare(k), s_.first).values())
      taken_.push_back(static_cast<T>(x));
  }
  static Tensor tensor_of(const std::vector<T>& x, const Shape& shape) {
    const std::vector<double> numbers(x.begin(), x.end());
    return tensor(numbers, shape, std::is_same_v<T, double> ? Type::f64 : Type::f32);
  }

  T score(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const T *q = q_.at(b, h, i), *k = k_.at(b, group(h), j);
    const int64_t g = group(h), dq = s_.query_size, dk = s_.key_size;
    const int64_t P = s_.positions(), at = s_.first + i, n = dq + 1;
    if (s_.score == "additive") {
      const auto a = times(q, dq, parameter("W", h, dq * n), n);
      const auto c = times(k, dk, parameter("U", g, dk * n), n);
      T sum = 0;
      for (int64_t x = 0; x < n; ++x)
        sum += parameter("v", h, n)[x] *
               std::tanh(a[static_cast<size_t>(x)] + c[static_cast<size_t>(x)]);
      return sum;
    }
    if (s_.score == "tanh")
      return std::tanh(dot(q, parameter("w2", h, dq), dq) + dot(k, parameter("w1", g, dk), dk));
    if (s_.score == "bilinear") {
      const int64_t r = s_.rank;
      const auto a = times(q, dq, parameter(r ? "A" : "W", h, dq * (r ? r : dk)), r ? r : dk);
      if (!r) return dot(a.data(), k, dk);
      return dot(a.data(), times(k, dk, parameter("B", g, dk * r), r).data(), r);
    }
    if (s_.score == "dot") return dot(q, k, dq);
    if (s_.score == "scaled_dot") return dot(q, k, dq) / std::sqrt(static_cast<T>(dq));
    if (s_.score == "cosine")
      return parameter("gain", h, 1)[0] * dot(q, k, dq) / std::sqrt(dot(q, q, dq) * dot(k, k, dk));
    if (s_.score == "static" && s_.rank)
      return dot(parameter("W1", h * P + at, s_.rank), parameter("W2", g * P + j, s_.rank),
                 s_.rank);
    if (s_.score == "static") return parameter("W", h * P + at, P)[j];
    if (s_.score == "location") return dot(q, parameter("W", g * P + j, dq), dq);
    if (s_.score == "factorized") {
      const int64_t r = s_.rank ? s_.rank : dq;
      const auto a = soft(times(q, dq, parameter("A", h, dq * r), r));
      const auto c = soft(times(k, dk, parameter("B", g, dk * r), r));
      return std::log(dot(a.data(), c.data(), r));
    }
    const int64_t sentences =
        static_cast<int64_t>(taken_.size()) / (s_.heads * s_.queries * s_.keys);
    return taken_[static_cast<size_t>(
        (((sentences == 1 ? 0 : b) * s_.heads + h) * s_.queries + i) * s_.keys + j)];
  }

  T distance_term(int64_t h, int64_t i, int64_t j) const {
    const int64_t away = j - (s_.first + i);
    if (s_.distance == Distance::alibi)
      return static_cast<T>(-std::pow(2.0, -8.0 * double(h + 1) / double(s_.heads)) *
                            std::abs(double(away)));
    if (s_.distance == Distance::buckets) {
      // Of 8 buckets 4 are for keys after the query; 0 and 1 are exact, from 4 on all is far.
      const int64_t bucket = std::vector<int64_t>{
          0, 1, 2, 2, 3}[static_cast<size_t>(std::min<int64_t>(4, std::abs(away)))];
      return parameter("bias.distance", bucket + (away > 0 ? 4 : 0), s_.heads)[h];
    }
    return 0;
  }

  // Where a query of local attention looks.
  double place(int64_t b, int64_t h, int64_t i) const {
    const size_t at = static_cast<size_t>((b * s_.heads + h) * s_.queries + i);
    return s_.mask == Masked::local ? static_cast<double>((*by_name_.at("place"))[at]) : 0;
  }

  std::vector<T> weights(int64_t b, int64_t h, int64_t i) const {
    std::vector<T> x;
    for (int64_t j = 0; j < s_.keys; ++j) {
      if (!s_.sees(b, i, j, place(b, h, i))) {
        x.push_back(-INFINITY);
        continue;
      }
      T sum = score(b, h, i, j) + distance_term(h, i, j);
      // A Gaussian whose deviation is half the reach.
      const T deviation = static_cast<T>(AttentionSpec::reach / 2);
      const T far = (static_cast<T>(j) - static_cast<T>(place(b, h, i))) / deviation;
      if (s_.mask == Masked::local) sum -= far * far / 2;
      x.push_back(sum / static_cast<T>(s_.weigh.temperature));
    }
    return weighed(s_.weigh.kind, x);
  }

  const AttentionSpec& s_;
  const Arrays<T>& in_;
  Rows<T> q_, k_, value_;
  std::map<std::string, const std::vector<T>*> by_name_;
  std::vector<T> taken_;
};

const char* mask_name(Masked mask) {
  switch (mask) {
    case Masked::none: return "no mask";
    case Masked::padding: return "padding";
    case Masked::causal: return "causal";
    case Masked::window: return "window";
    case Masked::padding_causal: return "padding & causal";
    case Masked::padding_window: return "padding & window";
    case Masked::local: return "local";
  }
  return "";
}

Mask made(const AttentionSpec& s) {
  Mask mask;
  if (has(s.mask, {Masked::padding, Masked::padding_causal, Masked::padding_window}))
    mask = mask & Mask::padding(s.lengths());
  if (has(s.mask, {Masked::causal, Masked::padding_causal})) mask = mask & Mask::causal();
  if (has(s.mask, {Masked::window, Masked::padding_window})) mask = mask & Mask::window(2, 1);
  return mask;
}

// The score wants queries and keys of one size.
bool wants_equal(const AttentionSpec& s) {
  try {
    make_score(s.score, Params(1), score_sizes(s));
    return false;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

std::string AttentionSpec::name() const {
  std::string out = score + (rank ? " by rank" : "") + ", " + mask_name(mask);
  for (const WeighRow& row : weigh_table())
    if (row.kind == weigh.kind) out += std::string(", ") + row.name;
  if (weigh.temperature != 1) out += " at " + std::to_string(weigh.temperature).substr(0, 4);
  out += ", " + std::to_string(heads) + "/" + std::to_string(key_heads) + " heads";
  if (distance == Distance::alibi) out += ", alibi";
  if (distance == Distance::buckets) out += ", buckets";
  return out;
}

std::vector<Id> AttentionSpec::lengths() const {
  std::vector<Id> out;
  for (int64_t b = 0; b < batch; ++b)
    out.push_back(static_cast<Id>(b % 3 == 0 ? keys : b % 3 == 1 ? 0 : (keys - 1) / 2));
  return out;
}

bool AttentionSpec::sees(int64_t b, int64_t i, int64_t j, double place) const {
  const int64_t at = first + i;
  const bool inside = j < lengths()[static_cast<size_t>(b)], past = j <= at;
  const bool near = j >= at - 2 && j <= at + 1;
  switch (mask) {
    case Masked::none: return true;
    case Masked::padding: return inside;
    case Masked::causal: return past;
    case Masked::window: return near;
    case Masked::padding_causal: return inside && past;
    case Masked::padding_window: return inside && near;
    case Masked::local: return std::abs(double(j) - place) <= reach;
  }
  return true;
}

AttentionCase attention_case(const AttentionSpec& given) {
  AttentionSpec s = given;
  if (s.key_size != s.query_size && wants_equal(s)) s.key_size = s.query_size;
  AttentionCase c;
  c.spec = s;
  c.name = s.name();
  c.names = {"q", "keys", "values"};
  c.inputs = {{{s.batch, s.heads, s.queries, s.query_size}},
              {{s.batch, s.key_heads, s.keys, s.key_size}},
              {{s.batch, s.key_heads, s.keys, s.value_size}}};
  const bool local = s.mask == Masked::local;
  if (local) c.names.push_back("place"), c.inputs.push_back({{s.batch, s.heads, s.queries}});
  const size_t others = c.names.size();
  // One of each type and device, made when it is first asked for.
  const auto parts = std::make_shared<std::map<std::pair<Type, Device>, std::unique_ptr<Parts>>>();
  const auto parts_of = [=](Type type) -> const Parts& {
    std::unique_ptr<Parts>& p = (*parts)[{type, current_arena().device()}];
    if (!p) p = std::make_unique<Parts>(s, type);
    return *p;
  };
  for (const Parameter& p : parts_of(Type::f64).params.all())
    c.names.push_back(p.name), c.inputs.push_back({p.value.shape()});
  {
    const Tensor q = zeros(c.inputs[0].shape, Type::f64), k = zeros(c.inputs[1].shape, Type::f64);
    const Score& score = *parts_of(Type::f64).score;
    const std::optional<ScoreTerms> terms = score.terms(q, score.prepare(k), s.first);
    if (s.weigh.kind == Weigh::Kind::soft && terms) c.form = terms->form;
  }
  const auto parts_with = [=](const std::vector<Tensor>& x) -> const Parts& {
    const Parts& p = parts_of(x[0].type());
    const auto& all = p.params.all();
    for (size_t i = 0; i < all.size(); ++i) stand_for(all[i].value, x[others + i]);
    return p;
  };
  c.attend = [=](const std::vector<Tensor>& x, AttendOptions o) {
    const Parts& p = parts_with(x);
    o.mask = made(s) & o.mask;
    o.weigh = s.weigh;
    if (!o.bias) o.bias = p.bias.get();
    if (local) o.local = LocalPlace{x[3], AttentionSpec::reach};
    o.first = s.first;
    return heed::attend(*p.score, x[0], x[1], x[2], o);
  };
  c.scores = [=](const std::vector<Tensor>& x) {
    const Score& score = *parts_with(x).score;
    return score(x[0], score.prepare(x[1]), s.first);
  };
  c.f = [attend = c.attend](const std::vector<Tensor>& x) { return attend(x, {}).context; };
  c.truth = [s, names = c.names](const Arrays<double>& in) {
    return Plain<double>(s, names, in).context();
  };
  c.plain = [s, names = c.names](const Arrays<float>& in) {
    return Plain<float>(s, names, in).context();
  };
  return c;
}

std::vector<AttentionSpec> scores() {
  std::vector<AttentionSpec> out;
  for (const ScoreRow& row : score_table()) {
    AttentionSpec s;
    s.score = row.name;
    out.push_back(s);
    if (s.score == "bilinear" || s.score == "static") s.rank = 3, out.push_back(s);
  }
  return out;
}

std::vector<Masked> masks() {
  return {Masked::none,           Masked::padding,        Masked::causal, Masked::window,
          Masked::padding_causal, Masked::padding_window, Masked::local};
}

std::vector<AttentionCase> attention() {
  struct Heads {
    int64_t queries, keys;
  };
  const std::vector<Heads> heads{{1, 1}, {2, 2}, {4, 2}};
  std::vector<AttentionCase> out;
  for (AttentionSpec s : scores())
    for (const Masked mask : masks())
      for (const WeighRow& row : weigh_table())
        for (const Heads& h : heads) {
          s.mask = mask, s.heads = h.queries, s.key_heads = h.keys;
          // Queries that do not begin at the first position, where positions count.
          s.first = has(mask, {Masked::causal, Masked::padding_window}) ? 2 : 0;
          s.weigh = {row.kind, h.queries == 2 ? 0.7 : 1.0};
          out.push_back(attention_case(s));
        }
  for (AttentionSpec s : scores())
    for (const Distance distance : {Distance::alibi, Distance::buckets})
      for (const Masked mask : {Masked::none, Masked::padding_causal, Masked::local})
        for (const Weigh::Kind kind : {Weigh::Kind::soft, Weigh::Kind::entmax}) {
          s.distance = distance, s.mask = mask, s.weigh = {kind, 1.3};
          s.heads = 4, s.key_heads = 2, s.first = 1;
          out.push_back(attention_case(s));
        }
  return out;
}

std::vector<Tensor> draw(const AttentionCase& c, Type type, uint64_t seed) {
  Random random(seed);
  std::vector<Tensor> out;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const bool place = c.names[i] == "place";
    std::vector<double> values(static_cast<size_t>(c.inputs[i].shape.count()));
    for (double& v : values) {
      // Places such that no key lies at the edge of what is seen: differences would cross it.
      if (place)
        v = double(random.below(static_cast<uint32_t>(c.spec.keys + 1))) - 0.75 +
            0.125 * double(random.uniform());
      else
        // Small queries and parameters: weights that are neither even nor all on one key.
        v = (i == 1 || i == 2 ? 1.0 : 0.5) * double(random.normal());
      v = double(static_cast<float>(v));  // the same in every type
    }
    out.push_back(tensor(values, c.inputs[i].shape, type));
  }
  return out;
}

}  // namespace heed::cases
