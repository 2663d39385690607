// The GPU's row, recurrent and weighing kernels against the CPU's, and their times.
//
//   rows_test [--time] [part of a name]
#include "heed/kernels/shards.h"
#include "tests/cuda/kernel_cases.h"
#include "tests/cuda/on_stream.h"

using namespace heed;
using namespace heed::kernels;

namespace {

void sums() {
  const auto squares = [](std::vector<int64_t> sizes, bool add, int64_t shift, bool time) {
    std::vector<Array> arrays = {{Kind::number, 1, {3.25}, true}};
    double total = 0;
    for (int64_t n : sizes) arrays.push_back(in(n)), total += double(n);
    f32_case("sum_squares " + std::to_string(sizes.size()) + " parts" + (add ? " added" : ""),
             arrays,
             [=](auto& m) {
               SumSquares<TYPE(m)> k{};
               k.add = add;
               k.sum = m.d(0);
               k.count = static_cast<int>(sizes.size());
               for (int i = 0; i < k.count; ++i)
                 k.part[i] = {sizes[static_cast<size_t>(i)], m.t(i + 1)};
               return k;
             },
             {.shift = shift, .bytes = time ? 4 * total : 0});
  };
  squares({}, false, 0, false);
  squares({}, true, 0, false);
  squares({0}, false, 0, false);
  squares({128}, false, 0, false);
  squares({128, 0, 5000, 4096, 3, 100'000}, true, 0, false);
  squares({128, 0, 5000, 4096, 3, 100'000}, true, 1, false);
  std::vector<int64_t> base(62, 512 * 512);
  base.push_back(16'000'000), base.push_back(512);
  squares(base, false, 0, true);
  squares(std::vector<int64_t>(40, 128 * 128), false, 0, true);

  const auto blocks = [](std::vector<int64_t> sizes, int64_t shift, bool time) {
    std::vector<Array> arrays;
    double all = 0;
    for (int64_t n : sizes)
      arrays.push_back(in(n)), arrays.push_back(out((n + kSquaresBlock - 1) / kSquaresBlock)),
          all += double(n);
    f32_case("block_squares " + std::to_string(sizes.size()) + " parts", arrays,
             [=](auto& m) {
               BlockSquares<TYPE(m)> k{};
               k.count = static_cast<int>(sizes.size());
               for (int i = 0; i < k.count; ++i)
                 k.part[i] = {sizes[static_cast<size_t>(i)], m.t(2 * i), m.t(2 * i + 1)};
               return k;
             },
             {.shift = shift, .bytes = time ? 4 * all : 0});
  };
  blocks({0}, 0, false);
  blocks({128, 0, 5000, 4096, 3, 100'000}, 0, false);
  blocks({128, 0, 5000, 4096, 3, 100'000}, 1, false);
  blocks(base, 0, true);
  for (const int64_t n : {0, 1, 300, 51'000})
    f32_case("total of " + std::to_string(n), {in(n), {Kind::number, 1, {3.25}, true}},
             [=](auto& m) { return Total<TYPE(m)>{.n = n, .x = m.t(0), .sum = m.d(1)}; });

  struct SumShape {
    int64_t outer, n, inner;
    bool time;
  };
  for (const SumShape s : {SumShape{1, 1, 1, false},
                           {5, 37, 1, false},
                           {300, 512, 1, true},
                           {4096, 512, 1, true},
                           {1, 1'000'003, 1, true},
                           {1, 4096, 1, true},
                           {3, 100'000, 1, false},
                           {4, 0, 1, false},
                           {1, 4096, 512, true},
                           {1, 13'000, 2048, true},
                           {1, 4096, 128, true},
                           {1, 13'000, 512, true},
                           {1, 1000, 37, false},
                           {1, 3, 64, false},
                           {1, 0, 64, false},
                           {64, 8, 64, false},
                           {2000, 8, 64, true},
                           {7, 300, 5, false},
                           {3, 2000, 66, false}})
    for (int64_t shift : {0, 1})
      both_cases(
          "sum" + shape({s.outer, s.n, s.inner}),
          {in(s.outer * s.n * s.inner), out_wide(s.outer * s.inner)},
          [=](auto& m) {
            return Sum<TYPE(m)>{s.outer, s.n, s.inner, m.t(0), m.w(1)};
          },
          {.shift = shift, .bytes = s.time && !shift ? 4.0 * double(s.outer * s.n * s.inner) : 0});
}

// Rows that are hard: NaN, infinities, ties.
Array hard_rows(int64_t rows, int64_t n, bool nan_too) {
  Array x = in(rows * n, 3);
  x.pattern = normal(rows * n, 3);
  const auto row = [&](int64_t r) { return x.pattern.begin() + std::min(r, rows - 1) * n; };
  if (rows < 8) return x;
  std::fill_n(row(1), n, -kInf);
  std::fill_n(row(2), n, 1.5);
  for (int64_t j = 0; j < n; j += 2) row(3)[j] = -kInf;
  for (int64_t j = 0; j < n; ++j) row(4)[j] = std::round(row(4)[j]);
  for (int64_t j = 0; j < n; ++j) row(7)[j] = j % 2 ? 0.0 : -0.0;
  if (nan_too) {
    std::fill_n(row(5), n, kNan);
    row(6)[n / 2] = kNan;
  }
  return x;
}

void maxima() {
  for (auto [rows, n] : {std::pair<int64_t, int64_t>{9, 1},
                         {9, 37},
                         {20, 1000},
                         {100, 32'000},
                         {9, 63'999},
                         {640, 32'000}})
    for (int64_t shift : {0, 1}) {
      const bool time = !shift && n == 32'000;
      f32_case("max" + shape({rows, n}), {hard_rows(rows, n, n > 1), out_ids(rows)},
               [=](auto& m) {
                 return Max<TYPE(m)>{rows, n, m.t(0), m.id(1)};
               },
               {.exact = true, .shift = shift, .bytes = time ? 4.0 * double(rows * n) : 0});
      for (int64_t k : {int64_t{1}, int64_t{10}, int64_t{200}})
        f32_case("top_k " + std::to_string(k) + " of" + shape({rows, n}),
                 {hard_rows(rows, n, n >= 1000 && k == 10), out(rows * k), out_ids(rows * k)},
                 [=](auto& m) { return TopK<TYPE(m)>{rows, n, k, m.t(0), m.t(1), m.id(2)}; },
                 {.exact = true, .shift = shift, .bytes = time ? 4.0 * double(rows * n) : 0});
    }
  f32_case("top_k 1500 of" + shape({3, 4000}),
           {hard_rows(3, 4000, false), out(4500), out_ids(4500)},
           [](auto& m) { return TopK<TYPE(m)>{3, 4000, 1500, m.t(0), m.t(1), m.id(2)}; },
           {.exact = true});
  // All that is large in the columns of a few threads.
  Array crowded = hard_rows(8, 64'000, false);
  for (int64_t j = 0; j < 64'000; j += 1024) crowded.pattern[static_cast<size_t>(j)] += 100;
  f32_case("top_k 100 crowded" + shape({8, 64'000}), {crowded, out(800), out_ids(800)},
           [](auto& m) { return TopK<TYPE(m)>{8, 64'000, 100, m.t(0), m.t(1), m.id(2)}; },
           {.exact = true});
}

void softmax() {
  for (auto [rows, n] : {std::pair<int64_t, int64_t>{9, 1},
                         {9, 8},
                         {9, 37},
                         {100, 64},
                         {1000, 128},
                         {50, 250},
                         {16'384, 128},
                         {40, 512},
                         {40, 1000},
                         {10, 1024},
                         {10, 999},
                         {10, 2000},
                         {64, 32'000},
                         {9, 33'333}})
    for (bool log : {false, true})
      for (int64_t shift : {0, 1}) {
        const bool time = !shift && (rows == 16'384 || n == 32'000);
        const std::string kind = log ? "log_softmax" : "softmax";
        both_cases(kind + shape({rows, n}), {hard_rows(rows, n, true), out(rows * n)},
                   [=](auto& m) {
                     return Softmax<TYPE(m)>{rows, n, log, m.t(0), m.t(1)};
                   },
                   {.shift = shift, .bytes = time ? 8.0 * double(rows * n) : 0});
        Array y = in(rows * n);
        for (double& v : y.pattern)
          v = log ? -std::abs(v) - std::log(double(n)) : std::abs(v) / double(n);
        both_cases(
            kind + "_grad" + shape({rows, n}), {y, changed(in(rows * n))},
            [=](auto& m) { return SoftmaxGrad<TYPE(m)>{rows, n, log, m.t(0), m.t(1), m.t(1)}; },
            {.shift = shift, .bytes = time ? 12.0 * double(rows * n) : 0});
      }
  const int64_t rows = 7, n = 640;
  both_cases("softmax in place" + shape({rows, n}), {changed(in(rows * n))}, [=](auto& m) {
    return Softmax<TYPE(m)>{rows, n, false, m.t(0), m.t(0)};
  });
}

void norms() {
  for (auto [rows, n] : {std::pair<int64_t, int64_t>{1, 1},
                         {9, 37},
                         {100, 64},
                         {50, 250},
                         {4096, 512},
                         {4096, 128},
                         {333, 1024},
                         {13'000, 512},
                         {20, 768},
                         {20, 1000},
                         {10, 1500},
                         {10, 4097},
                         {300, 4096},
                         {0, 64}})
    for (bool centered : {true, false})
      for (int64_t shift : {0, 1}) {
        const bool time = !shift && centered && rows > 1000;
        const std::string kind = centered ? "layer_norm" : "rms_norm";
        both_cases(kind + shape({rows, n}),
                   {in(rows * n, 2, 0.5), in_wide(n, 0.2, 1), in_wide(n), out(rows * n),
                    out_wide(rows), out_wide(rows)},
                   [=](auto& m) {
                     return Norm<TYPE(m)>{rows,
                                          n,
                                          centered,
                                          Wide<TYPE(m)>(1e-5),
                                          m.t(0),
                                          m.w(1),
                                          centered ? m.w(2) : nullptr,
                                          m.t(3),
                                          m.w(4),
                                          m.w(5)};
                   },
                   {.shift = shift, .bytes = time ? 8.0 * double(rows * n) : 0});
        both_cases(kind + "_grad" + shape({rows, n}),
                   {in(rows * n, 2, 0.5),
                    in_wide(n, 0.2, 1),
                    in_wide(rows, 0.1, centered ? 0.5 : 0),
                    in_wide(rows, 0.05, 0.5),
                    changed(in(rows * n)),
                    out_wide(n),
                    {Kind::wide, n, {-77}, centered}},
                   [=](auto& m) {
                     return NormGrad<TYPE(m)>{rows,   n,      centered, false,
                                              m.t(0), m.w(1), m.w(2),   m.w(3),
                                              m.t(4), m.t(4), m.w(5),   centered ? m.w(6) : nullptr,
                                              nullptr};
                   },
                   {.shift = shift, .bytes = time ? 12.0 * double(rows * n) : 0});
        both_cases("norm_grad, added" + shape({rows, n}),
                   {in(rows * n, 2, 0.5),
                    in_wide(n, 0.2, 1),
                    in_wide(rows, 0.1, centered ? 0.5 : 0),
                    in_wide(rows, 0.05, 0.5),
                    in(rows * n),
                    out_wide(n),
                    {Kind::wide, n, {-77}, centered},
                    changed(in(rows * n))},
                   [=](auto& m) {
                     return NormGrad<TYPE(m)>{rows,   n,      centered, true,
                                              m.t(0), m.w(1), m.w(2),   m.w(3),
                                              m.t(4), m.t(7), m.w(5),   centered ? m.w(6) : nullptr,
                                              nullptr};
                   },
                   {.shift = shift, .bytes = time ? 16.0 * double(rows * n) : 0});
      }
}

void losses() {
  for (auto [rows, n, small] : {std::tuple<int64_t, int64_t, bool>{9, 1, true},
                                {9, 37, true},
                                {40, 1000, true},
                                {64, 32'000, true},
                                {9, 63'999, true},
                                {4096, 32'000, false},
                                {13'000, 32'000, false}})
    for (double e : {0.0, 0.1})
      for (int form : {0, 1, 2})  // in place, beside, no gradient
        for (int64_t shift : {0, 1}) {
          if (!small && (shift || form || e == 0)) continue;
          Array target = ids_below(rows, n);
          target.pattern[static_cast<size_t>(rows / 2)] = -1;
          const char* names[] = {"in place", "beside", "no gradient"};
          both_cases(
              "cross_entropy e " + std::to_string(e) + " " + names[form] + shape({rows, n}),
              {form == 0 ? changed(in(rows * n, 3)) : in(rows * n, 3), target, out_wide(rows),
               form == 1 ? out(rows * n) : in(1), in_wide(1, 0, 0.01)},
              [=](auto& m) {
                using W = Wide<TYPE(m)>;
                return CrossEntropy<TYPE(m)>{
                    rows,   n,       W(e),   m.w(4),
                    m.t(0), m.id(1), m.w(2), form == 0 ? m.t(0) : form == 1 ? m.t(3) : nullptr};
              },
              {.only_time = !small, .shift = shift, .bytes = small ? 0 : 8.0 * double(rows * n)});
        }
}

void tables() {
  for (auto [count, n, words] : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 3},
                                 {40, 37, 10},
                                 {4096, 128, 8000},
                                 {4096, 512, 32'000},
                                 {13'000, 512, 32'000},
                                 {13'000, 1024, 32'000},
                                 {40'000, 64, 500},
                                 {0, 64, 10}})
    for (int64_t shift : {0, 1}) {
      const double bytes = shift || count < 1000 ? 0 : 8.0 * double(count * n);
      both_cases("gather" + shape({count, n}),
                 {in(words * n), ids_below(count, words), out(count * n)},
                 [=](auto& m) {
                   return Gather<TYPE(m)>{count, n, m.t(0), m.id(1), m.t(2)};
                 },
                 {.exact = true, .shift = shift, .bytes = bytes});
      for (bool hot : {false, true}) {
        Array id = ids_below(count, words);
        if (hot)
          for (double& v : id.pattern) v = engine() % 5 == 0 ? 0 : engine() % 20 == 0 ? 4 : v;
        if (count == 0) id.pattern = {0};
        both_cases(std::string("scatter_add") + (hot ? " hot" : "") + shape({count, n}),
                   {in(count * n), id, changed(in_wide(words * n))},
                   [=](auto& m) {
                     return ScatterAdd<TYPE(m)>{count, n, m.t(0), m.id(1), m.w(2)};
                   },
                   {.shift = shift, .bytes = 1.5 * bytes, .half = 1.0 / 3});
      }
    }
  both_cases("scatter_add one id" + shape({5000, 40}),
             {in(5000 * 40), ids(std::vector<double>(5000, 2)), changed(in_wide(160))},
             [](auto& m) {
               return ScatterAdd<TYPE(m)>{5000, 40, m.t(0), m.id(1), m.w(2)};
             });
  for (bool backward : {false, true})
    for (int64_t shift : {0, 1}) {
      both_cases("rotary" + shape({3, 7, 5, 6}), {in(630), out(630), ids({11})},
                 [=](auto& m) {
                   return Rotary<TYPE(m)>{3, 7, 5, 6, m.id(2), 0, 10000, backward, m.t(0), m.t(1)};
                 },
                 {.shift = shift});
      const int64_t n = 32 * 128 * 8 * 64;
      both_cases("rotary" + shape({32, 128, 8, 64}), {in(n), out(n), ids({0})},
                 [=](auto& m) {
                   return Rotary<TYPE(m)>{32, 128,   8,        64,     m.id(2),
                                          0,  10000, backward, m.t(0), m.t(1)};
                 },
                 {.shift = shift, .bytes = shift || backward ? 0 : 8.0 * double(n)});
    }
}

// A decoder's KV cache: two arrays in one launch, in place and into a larger cache, then one
// position more.
void caches() {
  struct Size {
    int64_t groups, group, outer, room, n, length;
  };
  for (const Size s : {Size{1, 1, 1, 1, 1, 1}, Size{7, 5, 3, 20, 3, 11}, Size{4, 30, 2, 9, 8, 9},
                       Size{2, 96, 1, 5, 4, 3}, Size{3, 4, 2, 8, 16, 0}, Size{32, 5, 8, 64, 16, 40},
                       Size{32, 5, 8, 64, 64, 60}}) {
    const int64_t rows = s.groups * s.group, count = rows * s.outer * s.room * s.n;
    const int64_t narrow = count / s.n, more = rows * s.outer * s.n;
    Array from = ids_below(rows, s.group);
    for (size_t i = 0; i < from.pattern.size(); ++i)
      from.pattern[i] += double(static_cast<int64_t>(i) / s.group * s.group);
    const std::string name = shape({s.groups, s.group, s.outer, s.room, s.n, s.length});
    const auto lengths = [&](int64_t rows_of) {
      return ids(std::vector<double>(static_cast<size_t>(rows_of), double(s.length)));
    };
    const double bytes = 8.0 * double(rows * s.outer * s.length * (s.n + 1));
    f32_case("move_rows in place" + name,
             {changed(in(count)), changed(in(narrow)), from, lengths(s.groups)},
             [=](auto& m) {
               MoveRows<TYPE(m)> k{s.groups, s.group, m.id(2), nullptr, m.id(3), 2, {}};
               k.part[0] = {s.outer, s.n, m.t(0), s.room, m.t(0), s.room};
               k.part[1] = {s.outer, 1, m.t(1), s.room, m.t(1), s.room};
               return k;
             },
             {.exact = true, .bytes = rows > 100 ? bytes : 0});
    f32_case("move_rows" + name, {in(count), out(2 * count), ids_below(rows, rows), lengths(rows)},
             [=](auto& m) {
               MoveRows<TYPE(m)> k{rows, 1, m.id(2), nullptr, m.id(3), 1, {}};
               k.part[0] = {s.outer, s.n, m.t(0), s.room, m.t(1), 2 * s.room};
               return k;
             },
             {.exact = true});
    if (s.length == s.room) continue;
    f32_case("append_rows" + name,
             {in(more), in(more / s.n), out(count), out(narrow), lengths(rows)},
             [=](auto& m) {
               AppendRows<TYPE(m)> k{rows, m.id(4), 2, {}};
               k.part[0] = {s.outer, 1, s.n, m.t(0), m.t(2), s.room};
               k.part[1] = {s.outer, 1, 1, m.t(1), m.t(3), s.room};
               return k;
             },
             {.exact = true});
  }
}

void cells() {
  const char* names[] = {"rnn", "gru", "lstm"};
  for (Cell cell : {Cell::rnn, Cell::gru, Cell::lstm})
    for (auto [rows, n] : {std::pair<int64_t, int64_t>{1, 1}, {7, 37}, {64, 512}, {128, 1024}})
      for (bool live : {false, true}) {
        const int64_t g = gate_count(cell), saved = saved_gates(cell), far = n + 3;
        Array alive = ids_below(rows, 2);
        f32_case(
            std::string("cell_step ") + names[int(cell)] + (live ? " live" : "") + shape({rows, n}),
            {in(rows * g * n), in(rows * g * n), in(rows * far), in(rows * n), alive,
             changed(in(rows * far)), changed(in(rows * n)), changed(in(rows * saved * n))},
            [=](auto& m) {
              return CellStep<TYPE(m)>{.cell = cell,
                                       .rows = rows,
                                       .n = n,
                                       .x = m.t(0),
                                       .x_row = g * n,
                                       .u = m.t(1),
                                       .u_row = g * n,
                                       .h = m.t(2),
                                       .h_row = far,
                                       .c = m.t(3),
                                       .c_row = n,
                                       .live = live ? m.id(4) : nullptr,
                                       .h_new = m.t(5),
                                       .h_new_row = far,
                                       .c_new = m.t(6),
                                       .c_new_row = n,
                                       .gates = m.t(7),
                                       .gates_row = saved * n};
            },
            {.bytes = rows >= 64 && live ? 4.0 * double(rows * n * (2 * g + saved + 4)) : 0});
        Array gates = in(rows * saved * n);
        for (double& v : gates.pattern) v = 1 / (1 + std::exp(-v));
        for (bool more : {false, true})  // dc_new and du
          f32_case(
              std::string("cell_step_grad ") + names[int(cell)] + (live ? " live" : "") +
                  (more ? " more" : "") + shape({rows, n}),
              {gates, in(rows * far), in(rows * n), in(rows * n), alive, in(rows * far),
               in(rows * n), changed(in(rows * g * n)), changed(in(rows * g * n)),
               changed(in(rows * n)), changed(in(rows * n))},
              [=](auto& m) {
                return CellStepGrad<TYPE(m)>{.cell = cell,
                                             .rows = rows,
                                             .n = n,
                                             .gates = m.t(0),
                                             .gates_row = saved * n,
                                             .h = m.t(1),
                                             .h_row = far,
                                             .c = m.t(2),
                                             .c_new = m.t(3),
                                             .c_row = n,
                                             .c_new_row = n,
                                             .live = live ? m.id(4) : nullptr,
                                             .dh_new = m.t(5),
                                             .dh_new_row = far,
                                             .dc_new = more ? m.t(6) : nullptr,
                                             .dc_new_row = n,
                                             .dx = m.t(7),
                                             .dx_row = g * n,
                                             .du = more || cell == Cell::gru ? m.t(8) : nullptr,
                                             .du_row = g * n,
                                             .dh = m.t(9),
                                             .dh_row = n,
                                             .dc = cell == Cell::lstm ? m.t(10) : nullptr,
                                             .dc_row = n};
              },
              {.bytes =
                   rows >= 64 && live && more ? 4.0 * double(rows * n * (2 * g + saved + 6)) : 0});
      }
}

void weights() {
  for (auto [batch, heads, queries, n] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{1, 1, 1, 1},
        {2, 3, 5, 37},
        {8, 8, 60, 64},
        {2, 2, 9, 1000}})
    for (int64_t shift : {0, 1}) {
      const int64_t rows = batch * heads * queries;
      std::vector<double> range;
      for (int64_t i = 0; i < batch * queries; ++i) {
        const double begin = double(engine() % uint64_t(n + 2)) - 1;
        range.push_back(begin);
        range.push_back(begin + double(engine() % uint64_t(n + 2)) - 1);
      }
      f32_case("limit" + shape({batch, heads, queries, n}),
               {in(rows * n), ids(range), out(rows * n)},
               [=](auto& m) {
                 return Limit<TYPE(m)>{batch,       heads, queries,   n,      m.id(1),
                                       2 * queries, 0,     -INFINITY, m.t(0), m.t(2)};
               },
               {.exact = true,
                .shift = shift,
                .bytes = shift || rows < 1000 ? 0 : 8.0 * double(rows * n)});
      for (bool sparsemax : {true, false}) {
        const std::string kind = sparsemax ? "sparsemax" : "entmax";
        f32_case(kind + shape({rows, n}), {hard_rows(rows, n, n > 1), out(rows * n)},
                 [=](auto& m) {
                   return Entmax<TYPE(m)>{rows, n, sparsemax, m.t(0), m.t(1)};
                 },
                 {.shift = shift, .bytes = shift || rows < 1000 ? 0 : 8.0 * double(rows * n)});
        Array y = in(rows * n);
        for (double& v : y.pattern) v = v > 0 ? v / double(n) : 0;
        f32_case(kind + "_grad" + shape({rows, n}), {y, in(rows * n), out(rows * n)},
                 [=](auto& m) {
                   return EntmaxGrad<TYPE(m)>{rows, n, sparsemax, m.t(0), m.t(1), m.t(2)};
                 },
                 {.shift = shift, .bytes = shift || rows < 1000 ? 0 : 12.0 * double(rows * n)});
      }
      f32_case("one_hot" + shape({rows, n}), {hard_rows(rows, n, n > 1), out(rows * n)},
               [=](auto& m) {
                 return OneHot<TYPE(m)>{rows, n, m.t(0), m.t(1)};
               },
               {.exact = true,
                .shift = shift,
                .bytes = shift || rows < 1000 ? 0 : 8.0 * double(rows * n)});
    }
}
}  // namespace

int main(int argc, char** argv) {
  return run_parts(argc, argv,
                   {sums, maxima, softmax, norms, losses, tables, caches, cells, weights});
}
