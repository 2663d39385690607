#include "bench/cases/ops.h"

#include <algorithm>
#include <cmath>

#include "bench/cases/loops.h"

namespace heed::cases {

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

}  // namespace heed::cases
