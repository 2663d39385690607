#include <algorithm>
#include <cmath>

#include "bench/cases/ops.h"

namespace heed::cases {

Recurrent recurrent_of(const std::vector<Tensor>& x, size_t first, Cell cell,
                       const std::vector<Id>& lengths, bool backward) {
  return {.cell = cell,
          .x = x[first],
          .u = x[first + 1],
          .bias = x[first + 2],
          .h = x[first + 3],
          .c = cell == Cell::lstm ? std::optional(x[first + 4]) : std::nullopt,
          .lengths = lengths,
          .backward = backward};
}

namespace {

struct Sizes {
  int64_t batch = 3, steps = 4;
};

std::vector<Id> recurrent_lengths(bool ragged) {
  return ragged ? std::vector<Id>{4, 0, 2} : std::vector<Id>{};
}

// Formulas of kernels.h, word for word.
Case recurrent_case(Cell cell, bool backward, bool ragged, Sizes sizes = {}) {
  const int64_t B = sizes.batch, T = sizes.steps, n = 5, G = kernels::gate_count(cell), W = G * n;
  const std::vector<Id> lengths = recurrent_lengths(ragged);
  std::vector<Input> inputs{{{B, T, W}}, {{n, W}}, {{W}}, {{B, n}}};
  if (cell == Cell::lstm) inputs.push_back({{B, n}});
  const char* const names[] = {"rnn", "gru", "lstm"};
  const std::string name = std::string(names[static_cast<int>(cell)]) +
                           (backward ? " backward" : "") + (ragged ? " ragged" : "");
  return make(
      name, inputs,
      [=](const std::vector<Tensor>& x) {
        const RecurrentStates s = recurrent(recurrent_of(x, 0, cell, lengths, backward));
        return s.c ? concat({s.h, *s.c}, 2) : s.h;
      },
      [=](const auto& in) {
        using T_ = Number<decltype(in)>;
        const int64_t width = cell == Cell::lstm ? 2 * n : n;
        std::vector<T_> out(static_cast<size_t>(B * T * width));
        const auto s = [](T_ v) { return 1 / (1 + std::exp(-v)); };
        for (int64_t b = 0; b < B; ++b) {
          std::vector<T_> h(in[3].begin() + b * n, in[3].begin() + (b + 1) * n), c(h.size());
          if (cell == Cell::lstm) std::copy_n(in[4].begin() + b * n, n, c.begin());
          for (int64_t step = 0; step < T; ++step) {
            const int64_t t = backward ? T - 1 - step : step;
            const bool live = lengths.empty() || t < lengths[static_cast<size_t>(b)];
            const std::vector<T_> h0 = h;
            for (int64_t i = 0; i < n && live; ++i) {
              const size_t at = static_cast<size_t>(i);
              std::vector<T_> x, u;
              for (int64_t g = 0; g < G; ++g) {
                x.push_back(in[0][static_cast<size_t>((b * T + t) * W + g * n + i)]);
                T_ sum = in[2][static_cast<size_t>(g * n + i)];
                for (int64_t j = 0; j < n; ++j)
                  sum += h0[static_cast<size_t>(j)] * in[1][static_cast<size_t>(j * W + g * n + i)];
                u.push_back(sum);
              }
              if (cell == Cell::rnn) {
                h[at] = std::tanh(x[0] + u[0]);
              } else if (cell == Cell::gru) {
                const T_ r = s(x[0] + u[0]), z = s(x[1] + u[1]), k = std::tanh(x[2] + r * u[2]);
                h[at] = (1 - z) * k + z * h0[at];
              } else {
                c[at] = s(x[1] + u[1]) * c[at] + s(x[0] + u[0]) * std::tanh(x[2] + u[2]);
                h[at] = s(x[3] + u[3]) * std::tanh(c[at]);
              }
            }
            for (int64_t i = 0; i < n; ++i) {
              out[static_cast<size_t>((b * T + t) * width + i)] = h[static_cast<size_t>(i)];
              if (cell == Cell::lstm)
                out[static_cast<size_t>((b * T + t) * width + n + i)] = c[static_cast<size_t>(i)];
            }
          }
        }
        return out;
      });
}

// Both directions at once: the states that each has alone, side by side.
Case both_directions_case(Cell cell, bool ragged) {
  const Case forward = recurrent_case(cell, false, ragged),
             back = recurrent_case(cell, true, ragged);
  const std::vector<Id> lengths = recurrent_lengths(ragged);
  const size_t half = forward.inputs.size();
  const size_t n = static_cast<size_t>(forward.inputs[3].shape[1]);
  const size_t planes = cell == Cell::lstm ? 2 : 1;
  std::vector<Input> inputs = forward.inputs;
  inputs.insert(inputs.end(), back.inputs.begin(), back.inputs.end());
  return make(
      forward.name + " both directions", inputs,
      [=](const std::vector<Tensor>& x) {
        const RecurrentStates s = recurrent(recurrent_of(x, 0, cell, lengths, false),
                                            recurrent_of(x, half, cell, lengths, true));
        return s.c ? concat({s.h, *s.c}, 2) : s.h;
      },
      [=](const auto& in) {
        using T = Number<decltype(in)>;
        const auto alone = [&](const Case& c, size_t first) {
          const auto begin = in.begin() + static_cast<std::ptrdiff_t>(first);
          const Arrays<T> own(begin, begin + static_cast<std::ptrdiff_t>(half));
          if constexpr (std::is_same_v<T, double>)
            return c.truth(own);
          else
            return c.plain(own);
        };
        const std::vector<T> parts[] = {alone(forward, 0), alone(back, half)};
        std::vector<T> out;
        for (size_t row = 0; row < parts[0].size() / (planes * n); ++row)
          for (size_t plane = 0; plane < planes; ++plane)
            for (const std::vector<T>& part : parts)
              for (size_t i = 0; i < n; ++i) out.push_back(part[(row * planes + plane) * n + i]);
        return out;
      });
}

}  // namespace

std::vector<Case> recurrent_cases() {
  std::vector<Case> all;
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm})
    for (const bool backward : {false, true})
      for (const bool ragged : {false, true}) all.push_back(recurrent_case(cell, backward, ragged));
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm})
    for (const bool ragged : {false, true}) all.push_back(both_directions_case(cell, ragged));
  return all;
}

std::vector<Case> empty_recurrent_cases() {
  std::vector<Case> all;
  for (const Cell cell : {Cell::rnn, Cell::gru, Cell::lstm})
    for (const Sizes sizes : {Sizes{0, 4}, Sizes{3, 0}})
      all.push_back(recurrent_case(cell, false, false, sizes));
  return all;
}

}  // namespace heed::cases
