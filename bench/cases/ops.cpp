#include "bench/cases/special.h"

#include <algorithm>
#include <cmath>

#include "heed/base/random.h"

namespace heed::cases {
namespace {

// Ids that repeat and skip, the last of them -1 where asked for.
std::vector<Id> some_ids(int64_t count, int64_t below, bool with_gap = false) {
  std::vector<Id> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(static_cast<Id>((i * 7 + i / 3) % below));
  if (with_gap && count > 2) out[1] = -1;
  return out;
}

template <class T>
T activated(Activation f, T x) {
  switch (f) {
    case Activation::none: return x;
    case Activation::relu: return std::max(x, T(0));
    case Activation::tanh: return std::tanh(x);
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::gelu:
      return T(0.5) * x * (1 + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
  }
  return x;
}

// c [m, n] = a [m, k] b [k, n], both row-major.
template <class T>
std::vector<T> product(const std::vector<T>& a, const std::vector<T>& b, int64_t m, int64_t k,
                       int64_t n) {
  std::vector<T> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      T sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(p * n + j)];
      c[static_cast<size_t>(i * n + j)] = sum;
    }
  return c;
}
template <class T>
std::vector<T> transposed(const std::vector<T>& x, int64_t rows, int64_t cols) {
  std::vector<T> y(x.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      y[static_cast<size_t>(j * rows + i)] = x[static_cast<size_t>(i * cols + j)];
  return y;
}

// Arithmetic with broadcast: index by index, the slow and sure way.
Case broadcast_case(const std::string& op, const Shape& a, const Shape& b) {
  const auto apply = [op](auto x, auto y) {
    return op == "add" ? x + y : op == "subtract" ? x - y : op == "multiply" ? x * y : x / y;
  };
  return make(
      op, {{a}, {b, Input::positive}},
      [apply](const std::vector<Tensor>& x) { return apply(x[0], x[1]); },
      [=](const auto& in) {
        const int rank = std::max(a.rank(), b.rank());
        std::vector<int64_t> size(static_cast<size_t>(rank)), at(size);
        const auto size_of_axis = [&](const Shape& s, int i) {
          const int axis = i - (rank - s.rank());
          return axis < 0 ? 1 : s[axis];
        };
        int64_t count = 1;
        for (int i = 0; i < rank; ++i)
          count *= size[static_cast<size_t>(i)] =
              size_of_axis(a, i) == 1 ? size_of_axis(b, i) : size_of_axis(a, i);
        std::vector<Number<decltype(in)>> out;
        for (int64_t q = 0; q < count; ++q) {
          int64_t rest = q;
          for (int i = rank - 1; i >= 0; --i) {
            at[static_cast<size_t>(i)] = rest % size[static_cast<size_t>(i)];
            rest /= size[static_cast<size_t>(i)];
          }
          const auto find = [&](const Shape& s) {
            int64_t index = 0;
            for (int i = 0; i < rank; ++i)
              if (i >= rank - s.rank()) {
                const int64_t n = size_of_axis(s, i);
                index = index * n + (n == 1 ? 0 : at[static_cast<size_t>(i)]);
              }
            return static_cast<size_t>(index);
          };
          out.push_back(apply(in[0][find(a)], in[1][find(b)]));
        }
        return out;
      });
}

Case linear_case(Activation f, const char* label, bool with_bias) {
  const int64_t m = 9, k = 33, n = 37;
  std::vector<Input> inputs{{{3, 3, k}}, {{k, n}}};
  if (with_bias) inputs.push_back({{n}});
  return make(
      std::string("linear ") + label, inputs,
      [=](const std::vector<Tensor>& x) {
        return linear(x[0], x[1], with_bias ? std::optional(x[2]) : std::nullopt, f);
      },
      [=](const auto& in) {
        auto y = product(in[0], in[1], m, k, n);
        for (size_t i = 0; i < y.size(); ++i)
          y[i] = activated(f, with_bias ? y[i] + in[2][i % static_cast<size_t>(n)] : y[i]);
        return y;
      });
}

// Heads as they are used: [B, T, H, d] seen as [B, H, T, d], times its own transpose.
Case heads_case() {
  const int64_t B = 2, T = 5, H = 3, d = 7;
  return make(
      "matmul of heads", {{{B, T, H, d}}, {{B, T, H, d}}},
      [](const std::vector<Tensor>& x) {
        return matmul(transpose(x[0], 1, 2), transpose(transpose(x[1], 1, 2), 2, 3));
      },
      [=](const auto& in) {
        std::vector<Number<decltype(in)>> out;
        for (int64_t b = 0; b < B; ++b)
          for (int64_t h = 0; h < H; ++h)
            for (int64_t q = 0; q < T; ++q)
              for (int64_t r = 0; r < T; ++r) {
                Number<decltype(in)> sum = 0;
                for (int64_t i = 0; i < d; ++i)
                  sum += in[0][static_cast<size_t>(((b * T + q) * H + h) * d + i)] *
                         in[1][static_cast<size_t>(((b * T + r) * H + h) * d + i)];
                out.push_back(sum);
              }
        return out;
      });
}

Case sum_case(const Shape& shape, int axis) {
  return make(
      "sum", {{shape}}, [axis](const std::vector<Tensor>& x) { return sum(x[0], axis); },
      [=](const auto& in) {
        int64_t outer = 1, inner = 1;
        for (int i = 0; i < axis; ++i) outer *= shape[i];
        for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
        std::vector<Number<decltype(in)>> out(static_cast<size_t>(outer * inner));
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t j = 0; j < shape[axis]; ++j)
            for (int64_t i = 0; i < inner; ++i)
              out[static_cast<size_t>(o * inner + i)] +=
                  in[0][static_cast<size_t>((o * shape[axis] + j) * inner + i)];
        return out;
      });
}

// One number and a tensor.
template <class F>
Case number_case(const char* name, F f, double number = 1.3, Input::Kind kind = Input::normal) {
  return make(
      name, {{{7}, kind}}, [=](const std::vector<Tensor>& x) { return f(x[0], number); },
      [=](const auto& in) {
        auto y = in[0];
        for (auto& v : y) v = f(v, static_cast<Number<decltype(in)>>(number));
        return y;
      });
}

// NaN is the largest of all, as in NumPy.
Case max_case(const Shape& shape, int axis) {
  return make(
      "max", {{shape}}, [axis](const std::vector<Tensor>& x) { return max(x[0], axis); },
      [=](const auto& in) {
        int64_t inner = 1;
        for (int i = axis + 1; i < shape.rank(); ++i) inner *= shape[i];
        std::vector<Number<decltype(in)>> out(static_cast<size_t>(shape.count() / shape[axis]),
                                              -INFINITY);
        for (int64_t i = 0; i < shape.count(); ++i) {
          auto& most = out[static_cast<size_t>(i / inner / shape[axis] * inner + i % inner)];
          const auto x = in[0][static_cast<size_t>(i)];
          if (x > most || std::isnan(x)) most = x;
        }
        return out;
      });
}

// Along the last axis, and along the first; some elements twice, some never.
Case gather_case(int axis) {
  const std::vector<Id> index = {2, 0, 2, 3, 1, 1};
  return make(
      "gather", {{axis == 1 ? Shape{3, 4} : Shape{4, 3}}},
      [=](const std::vector<Tensor>& x) {
        return gather(x[0], ids(index, axis == 1 ? Shape{3, 2} : Shape{2, 3}), axis);
      },
      [=](const auto& in) {
        std::decay_t<decltype(in[0])> y;
        for (size_t i = 0; i < index.size(); ++i)
          y.push_back(in[0][axis == 1 ? i / 2 * 4 + static_cast<size_t>(index[i])
                                      : static_cast<size_t>(index[i]) * 3 + i % 3]);
        return y;
      });
}

// What is not taken may be anything: the other one is broadcast.
Case where_case() {
  const std::vector<Id> holds = {1, 0, 0, 2, 1, 0};
  return make(
      "where", {{{2, 3}}, {{3}}},
      [=](const std::vector<Tensor>& x) {
        return where(ids(holds, {2, 3}), x[0], x[1]);
      },
      [=](const auto& in) {
        std::decay_t<decltype(in[0])> y;
        for (size_t i = 0; i < 6; ++i) y.push_back(holds[i] != 0 ? in[0][i] : in[1][i % 3]);
        return y;
      });
}

Case linear_cross_entropy_case(bool tied) {
  const int64_t rows = 300, depth = 5, words = 41;  // more rows than a slab has
  const std::vector<Id> target = some_ids(rows, words, true);
  Case loss = cross_entropy_case(rows, words, 0.1);
  return make(
      tied ? "linear_cross_entropy tied" : "linear_cross_entropy",
      {{{rows, depth}}, {tied ? Shape{words, depth} : Shape{depth, words}}},
      [=](const std::vector<Tensor>& x) {
        return linear_cross_entropy(x[0], tied ? transpose(x[1], 0, 1) : x[1], ids(target, {rows}),
                                    0.1);
      },
      [=](const auto& in) {
        using T = Number<decltype(in)>;
        const auto w = tied ? transposed(in[1], words, depth) : in[1];
        const Arrays<T> logits{product(in[0], w, rows, depth, words)};
        if constexpr (std::is_same_v<T, double>)
          return loss.truth(logits);
        else
          return loss.plain(logits);
      });
}

Case rotary_case(int64_t T) {
  const int64_t B = 2, H = 2, d = 6, first = 4;
  return make(
      "rotary", {{{B, T, H, d}}}, [=](const std::vector<Tensor>& x) { return rotary(x[0], first); },
      [=](const auto& in) {
        auto y = in[0];
        for (int64_t r = 0; r < B * T * H; ++r)
          for (int64_t i = 0; i < d / 2; ++i) {
            const double angle =
                double(first + r / H % T) * std::pow(10000.0, -2.0 * double(i) / d);
            const auto c = static_cast<Number<decltype(in)>>(std::cos(angle));
            const auto s = static_cast<Number<decltype(in)>>(std::sin(angle));
            const auto a = in[0][static_cast<size_t>(r * d + i)];
            const auto b = in[0][static_cast<size_t>(r * d + i + d / 2)];
            y[static_cast<size_t>(r * d + i)] = a * c - b * s;
            y[static_cast<size_t>(r * d + i + d / 2)] = a * s + b * c;
          }
        return y;
      });
}

// Queries one after the other that read the same keys and values: q [T, B, 1, 1, n] against k
// [B, 1, Tk, n] and value [B, 1, Tk, m], both made by an op.
Case decoder_steps_case() {
  constexpr size_t T = 3, B = 2, Tk = 5, n = 4, m = 3;
  return make(
      "additive attention, step by step",
      {{{T, B, 1, 1, n}}, {{B, 1, Tk, n}}, {{B, 1, Tk, m}}, {{1, n}}},
      [](const std::vector<Tensor>& x) {
        const Tensor k = x[1] * 2, value = x[2] * 0.5;
        std::vector<Tensor> contexts;
        for (const Tensor& q : unstack(x[0]))
          contexts.push_back(
              fused_attention(
                  {.form = ScoreForm::additive, .q = q, .k = k, .value = value, .v = x[3]})
                  .context);
        return stack(contexts);
      },
      [](const auto& in) {
        using X = Number<decltype(in)>;
        std::vector<X> y;
        for (size_t t = 0; t < T; ++t)
          for (size_t b = 0; b < B; ++b) {
            std::vector<X> weight(Tk);
            X sum = 0;
            for (size_t j = 0; j < Tk; ++j) {
              X score = 0;
              for (size_t x = 0; x < n; ++x)
                score += in[3][x] *
                         std::tanh(in[0][(t * B + b) * n + x] + 2 * in[1][(b * Tk + j) * n + x]);
              sum += weight[j] = std::exp(score);
            }
            for (size_t c = 0; c < m; ++c) {
              X context = 0;
              for (size_t j = 0; j < Tk; ++j)
                context += weight[j] / sum * in[2][(b * Tk + j) * m + c] / 2;
              y.push_back(context);
            }
          }
        return y;
      });
}

}  // namespace

std::vector<Tensor> draw(const Case& c, Type type, uint64_t seed) {
  Random random(seed);
  std::vector<Tensor> out;
  for (const Input& input : c.inputs) {
    std::vector<double> values(static_cast<size_t>(input.shape.count()));
    for (double& v : values)
      v = input.kind == Input::positive ? 0.5 + double(random.uniform()) : double(random.normal());
    out.push_back(tensor(values, input.shape, type));
  }
  return out;
}

Case unary_case(const std::string& name, int64_t n) {
  struct Row {
    const char* name;
    Tensor (*f)(const Tensor&);
    double (*plain)(double);
    float (*plain_f32)(float);
  };
  // gelu by the tanh formula of the paper, not by the sigmoid that the kernel uses.
  static const Row rows[] = {
      {"exp", heed::exp, std::exp, std::exp},
      {"log", heed::log, std::log, std::log},
      {"sqrt", heed::sqrt, std::sqrt, std::sqrt},
      {"square", heed::square, [](double x) { return x * x; }, [](float x) { return x * x; }},
      {"abs", heed::abs, std::fabs, std::fabs},
      {"tanh", heed::tanh, std::tanh, std::tanh},
      {"sigmoid", heed::sigmoid, [](double x) { return activated(Activation::sigmoid, x); },
       [](float x) { return activated(Activation::sigmoid, x); }},
      {"relu", heed::relu, [](double x) { return std::max(x, 0.0); },
       [](float x) { return std::max(x, 0.0f); }},
      {"gelu", heed::gelu, [](double x) { return activated(Activation::gelu, x); },
       [](float x) { return activated(Activation::gelu, x); }},
      {"swish", heed::swish, [](double x) { return x / (1 + std::exp(-x)); },
       [](float x) { return x / (1 + std::exp(-x)); }},
      {"negate", [](const Tensor& x) { return -x; }, [](double x) { return -x; },
       [](float x) { return -x; }}};
  for (const Row& row : rows)
    if (name == row.name) {
      const auto kind = name == "log" || name == "sqrt" ? Input::positive : Input::normal;
      return {name,
              {{{n}, kind}},
              [row](const std::vector<Tensor>& x) { return row.f(x[0]); },
              [row](const Arrays<double>& in) {
                std::vector<double> y;
                for (const double x : in[0]) y.push_back(row.plain(x));
                return y;
              },
              [row](const Arrays<float>& in) {
                std::vector<float> y;
                for (const float x : in[0]) y.push_back(row.plain_f32(x));
                return y;
              }};
    }
  fail("unary_case: unknown function '", name, "'");
}

Case dropout_case(int64_t n) {
  const double p = 0.3;
  const uint64_t seed = 0x123456789abcdef0;
  return make(
      "dropout", {{{n}}},
      [=](const std::vector<Tensor>& x) {
        return dropout(x[0], p, {seed, nullptr});
      },
      [=](const auto& in) {
        auto y = in[0];
        for (size_t i = 0; i < y.size(); ++i) {
          const uint32_t call = static_cast<uint32_t>(i / 1024 * 128 + i % 256 / 2);
          const auto words = philox({call, 0, 0, 0}, {static_cast<uint32_t>(seed), seed >> 32});
          const uint32_t number = words[i % 1024 / 256] >> (i % 2 * 16) & 0xFFFF;
          y[i] = number >= std::lround(p * 65536)
                     ? y[i] * (1 / (1 - static_cast<Number<decltype(in)>>(static_cast<float>(p))))
                     : 0;
        }
        return y;
      });
}

// Of relu the backward pass is one pass, from the result alone; of others two.
Case linear_dropout_case(Activation f, const char* label) {
  const Case map = linear_case(f, label, true), drop = dropout_case(9 * 37);
  Case c{std::string("linear_dropout ") + label,
         map.inputs,
         [f](const std::vector<Tensor>& x) {
           return linear_dropout(x[0], x[1], x[2], f, 0.3, {0x123456789abcdef0, nullptr});
         },
         {},
         {}};
  c.truth = [=](const Arrays<double>& in) { return drop.truth({map.truth(in)}); };
  c.plain = [=](const Arrays<float>& in) { return drop.plain({map.plain(in)}); };
  return c;
}

// Where a way around a part begins: its two ends are one pass.
Case add_dropout_case(int64_t n) {
  const Case alone = dropout_case(n);
  Case c{"add_dropout",
         {{{n}}, {{n}}},
         [](const std::vector<Tensor>& x) {
           return add_dropout(x[1], x[0], 0.3, {0x123456789abcdef0, nullptr});
         },
         {},
         {}};
  const auto plus = [](auto y, const auto& residual) {
    for (size_t i = 0; i < y.size(); ++i) y[i] += residual[i];
    return y;
  };
  c.truth = [=](const Arrays<double>& in) { return plus(alone.truth({in[0]}), in[1]); };
  c.plain = [=](const Arrays<float>& in) { return plus(alone.plain({in[0]}), in[1]); };
  return c;
}

// A sum that is read with its norm and without: what is dropped there is dropped in the backward
// pass. Rows of a multiple of 128 share what is drawn with others.
Case add_dropout_norm_case(int64_t rows, int64_t n) {
  const Case sums = add_dropout_case(rows * n), norm = layer_norm_case(rows, n);
  Case c{"add_dropout_norm " + std::to_string(n),
         {{{rows, n}}, {{rows, n}}, {{n}}, {{n}}},
         [](const std::vector<Tensor>& x) {
           const auto [sum, normed] =
               add_dropout_norm(x[1] * 0.5, x[0], 0.3, {0x123456789abcdef0, nullptr}, x[2], x[3]);
           return sum * 0.25 + normed;
         },
         {},
         {}};
  const auto both = [](const auto& in, const auto& add, const auto& norms) {
    using T = Number<decltype(in)>;
    auto half = in[1];
    for (auto& v : half) v *= T(0.5);
    const auto sum = add({in[0], half});
    auto y = norms({sum, in[2], in[3]});
    for (size_t i = 0; i < y.size(); ++i) y[i] += sum[i] * T(0.25);
    return y;
  };
  c.truth = [=](const Arrays<double>& in) { return both(in, sums.truth, norm.truth); };
  c.plain = [=](const Arrays<float>& in) { return both(in, sums.plain, norm.plain); };
  return c;
}

// Several ops read one tensor: its gradients come together in place.
Case shared_input_case(int64_t rows, int64_t n) {
  const Case norm = layer_norm_case(rows, n);
  return make(
      "shared input", {{{rows, n}}, {{n}}, {{n}}, {{n, n}}, {{n, n}}},
      [](const std::vector<Tensor>& x) {
        const Tensor h = x[0] * 0.5;
        return h + layer_norm(h, x[1], x[2]) + linear(h, x[3], x[1]) * linear(h, x[4]);
      },
      [=](const auto& in) {
        auto h = in[0];
        for (auto& v : h) v *= Number<decltype(in)>(0.5);
        std::remove_cvref_t<decltype(in)> parts{h, in[1], in[2]};
        decltype(h) y;
        if constexpr (std::is_same_v<Number<decltype(in)>, double>)
          y = norm.truth(parts);
        else
          y = norm.plain(parts);
        const auto a = product(h, in[3], rows, n, n), b = product(h, in[4], rows, n, n);
        for (size_t i = 0; i < y.size(); ++i)
          y[i] += h[i] + (a[i] + in[1][i % static_cast<size_t>(n)]) * b[i];
        return y;
      });
}

// Several weights of one shape read one tensor.
Case linear_each_case() {
  constexpr int64_t rows = 6, k = 8, n = 12;
  return make(
      "linear_each", {{{2, rows / 2, k}}, {{k, n}}, {{n}}, {{k, n}}, {{n}}, {{k, n}}, {{n}}},
      [](const std::vector<Tensor>& x) {
        const Tensor w[] = {x[1], x[3], x[5]}, b[] = {x[2], x[4], x[6]};
        const std::vector<Tensor> y = linear_each(x[0], w, b);
        return y[0] * y[1] + y[2];
      },
      [](const auto& in) {
        std::remove_cvref_t<decltype(in)> y;
        for (size_t i = 1; i < in.size(); i += 2) {
          y.push_back(product(in[0], in[i], rows, k, n));
          for (size_t j = 0; j < y.back().size(); ++j) y.back()[j] += in[i + 1][j % size_t{n}];
        }
        for (size_t j = 0; j < y[0].size(); ++j) y[0][j] = y[0][j] * y[1][j] + y[2][j];
        return y[0];
      });
}

Case matmul_case(int64_t m, int64_t k, int64_t n, char form) {
  const bool a_transposed = form == 'T', b_transposed = form == 't';
  return make(
      std::string("matmul ") + (a_transposed   ? "aT b"
                                : b_transposed ? "a bT"
                                               : "a b"),
      {{a_transposed ? Shape{k, m} : Shape{m, k}}, {b_transposed ? Shape{n, k} : Shape{k, n}}},
      [=](const std::vector<Tensor>& x) {
        return matmul(a_transposed ? transpose(x[0], 0, 1) : x[0],
                      b_transposed ? transpose(x[1], 0, 1) : x[1]);
      },
      [=](const auto& in) {
        return product(a_transposed ? transposed(in[0], k, m) : in[0],
                       b_transposed ? transposed(in[1], n, k) : in[1], m, k, n);
      });
}

Case softmax_case(int64_t rows, int64_t n, bool log) {
  return make(
      log ? "log_softmax" : "softmax", {{{rows, n}}},
      [log](const std::vector<Tensor>& x) { return log ? log_softmax(x[0]) : softmax(x[0]); },
      [=](const auto& in) {
        auto y = in[0];
        for (int64_t r = 0; r < rows; ++r) {
          auto* row = y.data() + r * n;
          const bool nothing = std::all_of(row, row + n, [](auto v) { return v == -INFINITY; });
          if (nothing && !log) std::fill_n(row, n, 0);  // and of the logarithm it is -inf already
          if (nothing) continue;
          const auto most = *std::max_element(row, row + n);
          Number<decltype(in)> sum = 0;
          for (int64_t j = 0; j < n; ++j) sum += std::exp(row[j] - most);
          for (int64_t j = 0; j < n; ++j)
            row[j] = log ? row[j] - most - std::log(sum) : std::exp(row[j] - most) / sum;
        }
        return y;
      });
}

Case layer_norm_case(int64_t rows, int64_t n) {
  return make(
      "layer_norm", {{{rows, n}}, {{n}}, {{n}}},
      [](const std::vector<Tensor>& x) { return layer_norm(x[0], x[1], x[2]); },
      [=](const auto& in) {
        using T = Number<decltype(in)>;
        auto y = in[0];
        for (int64_t r = 0; r < rows; ++r) {
          T* row = y.data() + r * n;
          T mean = 0, variance = 0;
          for (int64_t j = 0; j < n; ++j) mean += row[j] / T(n);
          for (int64_t j = 0; j < n; ++j) variance += (row[j] - mean) * (row[j] - mean) / T(n);
          for (int64_t j = 0; j < n; ++j)
            row[j] =
                (row[j] - mean) / std::sqrt(variance + T(1e-5)) * in[1][static_cast<size_t>(j)] +
                in[2][static_cast<size_t>(j)];
        }
        return y;
      });
}

Case rms_norm_case(int64_t rows, int64_t n) {
  return make(
      "rms_norm", {{{rows, n}}, {{n}}},
      [](const std::vector<Tensor>& x) { return rms_norm(x[0], x[1]); },
      [=](const auto& in) {
        using T = Number<decltype(in)>;
        auto y = in[0];
        for (int64_t r = 0; r < rows; ++r) {
          T* row = y.data() + r * n;
          T squares = 0;
          for (int64_t j = 0; j < n; ++j) squares += row[j] * row[j] / T(n);
          for (int64_t j = 0; j < n; ++j)
            row[j] = row[j] / std::sqrt(squares + T(1e-6)) * in[1][static_cast<size_t>(j)];
        }
        return y;
      });
}

Case cross_entropy_case(int64_t rows, int64_t n, double smoothing) {
  const std::vector<Id> target = some_ids(rows, n, true);
  return make(
      "cross_entropy", {{{rows, n}}},
      [=](const std::vector<Tensor>& x) {
        return cross_entropy(x[0], ids(target, {rows}), smoothing);
      },
      [=](const auto& in) {
        using T = Number<decltype(in)>;
        T total = 0;
        int64_t count = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const T* row = in[0].data() + r * n;
          const Id t = target[static_cast<size_t>(r)];
          if (t < 0) continue;
          ++count;
          const T most = *std::max_element(row, row + n);
          T sum = 0, mean = 0;
          for (int64_t j = 0; j < n; ++j) sum += std::exp(row[j] - most);
          const auto log_p = [&](int64_t j) { return row[j] - most - std::log(sum); };
          for (int64_t j = 0; j < n; ++j) mean += log_p(j) / T(n);
          total -= (1 - T(smoothing)) * log_p(t);
          // 0 * -inf is NaN: what is not mixed in has no say, and may be impossible.
          if (smoothing > 0) total -= T(smoothing) * mean;
        }
        return std::vector<T>{total / T(std::max<int64_t>(1, count))};
      });
}

Case embedding_case(int64_t words, int64_t size, int64_t count) {
  const std::vector<Id> id = some_ids(count, words);
  return make(
      "embedding", {{{words, size}}},
      [=](const std::vector<Tensor>& x) { return embedding(x[0], ids(id, {count})); },
      [=](const auto& in) {
        std::vector<Number<decltype(in)>> y;
        for (const Id i : id)
          y.insert(y.end(), in[0].begin() + i * size, in[0].begin() + (i + 1) * size);
        return y;
      });
}

std::vector<Case> ops() {
  std::vector<Case> all;
  for (const char* name : {"exp", "log", "sqrt", "square", "abs", "tanh", "sigmoid", "relu", "gelu",
                           "swish", "negate"})
    for (const int64_t n : {1, 37}) all.push_back(unary_case(name, n));
  for (const char* op : {"add", "subtract", "multiply", "divide"}) {
    all.push_back(broadcast_case(op, {3, 5}, {3, 5}));
    all.push_back(broadcast_case(op, {2, 3, 19}, {19}));
    all.push_back(broadcast_case(op, {2, 1, 4}, {3, 1}));
    all.push_back(broadcast_case(op, {5, 1}, {1, 17}));
    all.push_back(broadcast_case(op, {}, {4}));
  }
  all.push_back(make(
      "scale", {{{7}}}, [](const std::vector<Tensor>& x) { return x[0] * 2.5; },
      [](const auto& in) {
        auto y = in[0];
        for (auto& v : y) v *= Number<decltype(in)>(2.5);
        return y;
      }));
  all.push_back(make(
      "add a number", {{{7}}}, [](const std::vector<Tensor>& x) { return x[0] + 1.5; },
      [](const auto& in) {
        auto y = in[0];
        for (auto& v : y) v += Number<decltype(in)>(1.5);
        return y;
      }));
  all.push_back(number_case("subtract a number", [](auto x, auto c) { return x - c; }));
  all.push_back(number_case("subtract from a number", [](auto x, auto c) { return c - x; }));
  all.push_back(number_case("add to a number", [](auto x, auto c) { return c + x; }));
  all.push_back(number_case("divide by a number", [](auto x, auto c) { return x / c; }));
  // Over the smallest numbers it is still one.
  all.push_back(number_case(
      "divide a number", [](auto x, auto c) { return c / x; }, 0.01, Input::positive));
  all.push_back(dropout_case(1500));
  all.push_back(add_dropout_case(1500));
  for (const int64_t n : {13, 128, 512, 1040}) all.push_back(add_dropout_norm_case(3, n));
  all.push_back(linear_each_case());
  all.push_back(shared_input_case(7, 13));
  for (const char form : {'n', 't', 'T'}) {
    all.push_back(matmul_case(1, 1, 1, form));
    all.push_back(matmul_case(5, 7, 3, form));
    all.push_back(matmul_case(15, 33, 65, form));
  }
  all.push_back(heads_case());
  all.push_back(linear_case(Activation::none, "without bias", false));
  all.push_back(linear_case(Activation::none, "with bias", true));
  all.push_back(linear_case(Activation::relu, "relu", true));
  all.push_back(linear_case(Activation::tanh, "tanh", true));
  all.push_back(linear_case(Activation::sigmoid, "sigmoid", true));
  all.push_back(linear_case(Activation::gelu, "gelu", true));
  all.push_back(linear_dropout_case(Activation::relu, "relu"));
  all.push_back(linear_dropout_case(Activation::tanh, "tanh"));
  // Whole vectors, whose rows stay in registers.
  for (const int64_t n : {2, 4, 8, 16, 32, 64, 128}) all.push_back(softmax_case(3, n, false));
  for (const int64_t n : {1, 5, 67}) {
    all.push_back(softmax_case(3, n, false));
    all.push_back(softmax_case(3, n, true));
    all.push_back(layer_norm_case(35, n));
    // Of one element, x / |x| is a step at 0, where differences say nothing.
    if (n > 1) all.push_back(rms_norm_case(35, n));
    all.push_back(cross_entropy_case(4, n, 0));
    all.push_back(cross_entropy_case(4, n, 0.1));
  }
  all.push_back(linear_cross_entropy_case(false));
  all.push_back(linear_cross_entropy_case(true));
  all.push_back(sum_case({3, 4, 5}, 0));
  all.push_back(sum_case({3, 4, 5}, 1));
  all.push_back(sum_case({3, 4, 5}, 2));
  all.push_back(sum_case({100, 3}, 0));
  for (const int axis : {0, 1, 2}) all.push_back(max_case({3, 4, 5}, axis));
  all.push_back(max_case({3, 37}, 1));
  all.push_back(embedding_case(11, 9, 13));
  for (const int axis : {0, 1}) all.push_back(gather_case(axis));
  all.push_back(where_case());
  all.push_back(rotary_case(3));
  all.push_back(make(
      "reshape and transpose", {{{2, 3, 4}}},
      [](const std::vector<Tensor>& x) {
        return reshape(transpose(reshape(x[0], {6, 4}), 0, 1), {2, -1});
      },
      [](const auto& in) { return transposed(in[0], 6, 4); }));
  all.push_back(make(
      "slice", {{{3, 4}}}, [](const std::vector<Tensor>& x) { return slice(x[0], 1, 1, 3); },
      [](const auto& in) {
        std::decay_t<decltype(in[0])> y;
        for (size_t i = 0; i < 3; ++i)
          for (size_t j = 1; j < 3; ++j) y.push_back(in[0][i * 4 + j]);
        return y;
      }));
  all.push_back(make(
      "concat", {{{2, 1}}, {{2, 3}}},
      [](const std::vector<Tensor>& x) {
        return concat({x[0], x[1]}, 1);
      },
      [](const auto& in) {
        std::decay_t<decltype(in[0])> y;
        for (size_t i = 0; i < 2; ++i) {
          y.push_back(in[0][i]);
          for (size_t j = 0; j < 3; ++j) y.push_back(in[1][i * 3 + j]);
        }
        return y;
      }));
  all.push_back(make(  // of the parts one is used twice, one not at all
      "stack and unstack", {{{3, 2, 4}}},
      [](const std::vector<Tensor>& x) {
        const std::vector<Tensor> part = unstack(x[0]);
        const Tensor both[] = {part[2], part[0] * part[2]};
        return stack(both);
      },
      [](const auto& in) {
        std::decay_t<decltype(in[0])> y(in[0].begin() + 16, in[0].end());
        for (size_t i = 0; i < 8; ++i) y.push_back(in[0][i] * in[0][16 + i]);
        return y;
      }));
  all.push_back(decoder_steps_case());
  for (Case& c : recurrent_cases()) all.push_back(std::move(c));
  return all;
}

std::vector<Case> empty() {
  std::vector<Case> all;
  for (const char* name : {"exp", "log", "abs", "tanh", "sigmoid", "relu", "gelu"})
    all.push_back(unary_case(name, 0));
  for (const char* op : {"add", "divide"}) {
    all.push_back(broadcast_case(op, {0, 5}, {0, 5}));
    all.push_back(broadcast_case(op, {2, 0, 3}, {3}));
    all.push_back(broadcast_case(op, {0, 1}, {1, 4}));
  }
  all.push_back(dropout_case(0));
  all.push_back(add_dropout_case(0));
  all.push_back(add_dropout_norm_case(0, 128));
  for (const char form : {'n', 't', 'T'}) {
    all.push_back(matmul_case(0, 7, 3, form));
    all.push_back(matmul_case(5, 0, 3, form));
    all.push_back(matmul_case(5, 7, 0, form));
    all.push_back(matmul_case(1, 0, 1, form));
  }
  for (const bool log : {false, true}) {
    all.push_back(softmax_case(0, 16, log));
    all.push_back(softmax_case(3, 0, log));
  }
  all.push_back(layer_norm_case(0, 5));
  all.push_back(layer_norm_case(3, 0));
  all.push_back(rms_norm_case(0, 5));
  all.push_back(rms_norm_case(3, 0));
  for (const double smoothing : {0.0, 0.1}) all.push_back(cross_entropy_case(0, 5, smoothing));
  for (const int axis : {0, 1, 2})
    for (const Shape& shape : {Shape{0, 4, 5}, Shape{3, 0, 5}, Shape{3, 4, 0}})
      all.push_back(sum_case(shape, axis));
  all.push_back(max_case({0, 5}, 1));
  all.push_back(embedding_case(11, 9, 0));
  all.push_back(embedding_case(11, 0, 3));
  all.push_back(rotary_case(0));
  for (Case& c : empty_recurrent_cases()) all.push_back(std::move(c));
  for (Case& c : all) c.name += ", empty";
  return all;
}

}  // namespace heed::cases
