#include "bench/cases/ops.h"

#include <algorithm>
#include <cmath>

#include "bench/cases/loops.h"
#include "heed/base/random.h"

namespace heed::cases {

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

}  // namespace heed::cases
