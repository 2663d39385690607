#include "bench/cases/ops.h"

#include <algorithm>
#include <cmath>

#include "bench/cases/loops.h"

namespace heed::cases {

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

}  // namespace heed::cases
