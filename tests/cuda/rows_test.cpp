// The GPU's elementwise, row, recurrent and weighing kernels against the CPU's, and their times.
//
//   rows_test [--time] [part of a name]
#include "tests/cuda/kernel_cases.h"
#include "tests/cuda/on_stream.h"

using namespace heed;
using namespace heed::kernels;

namespace {

constexpr Unary kUnary[] = {Unary::copy, Unary::negate, Unary::exp,  Unary::log,
                            Unary::sqrt, Unary::square, Unary::tanh, Unary::sigmoid,
                            Unary::relu, Unary::gelu,   Unary::swish};
constexpr const char* kUnaryName[] = {"copy", "negate",  "exp",  "log",  "sqrt", "square",
                                      "tanh", "sigmoid", "relu", "gelu", "swish"};

void elementwise() {
  for (int u = 0; u < 11; ++u) {
    const Unary f = kUnary[u];
    const bool positive = f == Unary::log || f == Unary::sqrt;
    for (int64_t n : {int64_t{1}, int64_t{1003}, int64_t{100'000}}) {
      Array x = positive ? in_positive(n) : in(n, 3);
      if (n > 1000) x.pattern[3] = kNan, x.pattern[5] = kInf, x.pattern[7] = positive ? 0 : -kInf;
      const auto make = [=](auto& m) { return Map<TYPE(m)>{f, n, m.t(0), m.t(1)}; };
      both_cases(std::string("map ") + kUnaryName[u] + shape({n}), {x, out(n)}, make,
                 {.each = true});
      if (n == 1003)
        both_cases(std::string("map ") + kUnaryName[u] + shape({n}), {x, out(n)}, make,
                   {.each = true, .shift = 1});
      both_cases(std::string("map_grad ") + kUnaryName[u] + shape({n}),
                 {positive ? in_positive(n) : in(n, 1), changed(in(n))}, [=](auto& m) {
                   return MapGrad<TYPE(m)>{f, n, m.t(0), m.t(1), m.t(1)};
                 });
    }
  }
  const int64_t big = 4096 * 2048;
  both_cases("map gelu" + shape({4096, 2048}), {in(big), out(big)},
             [=](auto& m) {
               return Map<TYPE(m)>{Unary::gelu, big, m.t(0), m.t(1)};
             },
             {.only_time = true, .bytes = 8.0 * big});
  both_cases("map relu" + shape({4096, 2048}), {in(big), out(big)},
             [=](auto& m) {
               return Map<TYPE(m)>{Unary::relu, big, m.t(0), m.t(1)};
             },
             {.only_time = true, .bytes = 8.0 * big});
  both_cases("map_grad gelu" + shape({4096, 2048}), {in(big), in(big), out(big)},
             [=](auto& m) {
               return MapGrad<TYPE(m)>{Unary::gelu, big, m.t(0), m.t(1), m.t(2)};
             },
             {.only_time = true, .bytes = 12.0 * big});

  struct ZipShape {
    const char* name;
    int rank;
    int64_t size[kMaxRank], a[kMaxRank], b[kMaxRank];
    bool time;
  };
  const ZipShape zips[] = {
      {"same", 2, {300, 500}, {500, 1}, {500, 1}, false},
      {"same", 2, {4096, 512}, {512, 1}, {512, 1}, true},
      {"odd", 2, {31, 37}, {37, 1}, {37, 1}, false},
      {"row", 2, {4096, 512}, {512, 1}, {0, 1}, true},
      {"row, odd", 2, {31, 37}, {37, 1}, {0, 1}, false},
      {"column", 2, {511, 64}, {64, 1}, {1, 0}, false},
      {"column first", 3, {5, 7, 64}, {7, 1, 0}, {0, 64, 1}, false},
      {"number", 2, {300, 128}, {128, 1}, {0, 0}, false},
      {"two numbers", 1, {129}, {0}, {0}, false},
      {"middle", 4, {8, 5, 6, 40}, {5 * 40, 40, 0, 1}, {0, 240, 40, 1}, false},
      {"rank 6", 6, {2, 3, 2, 3, 4, 8}, {0, 192, 0, 64, 16, 1}, {288, 0, 96, 32, 8, 1}, false},
      {"empty", 2, {0, 64}, {64, 1}, {64, 1}, false}};
  for (const ZipShape& z : zips)
    for (Binary f : {Binary::add, Binary::subtract, Binary::multiply, Binary::divide}) {
      const char* names[] = {"add", "subtract", "multiply", "divide"};
      int64_t n = 1, a = 1, b = 1;
      for (int i = 0; i < z.rank; ++i) {
        n *= z.size[i];
        a += std::max<int64_t>(0, z.size[i] - 1) * z.a[i];
        b += std::max<int64_t>(0, z.size[i] - 1) * z.b[i];
      }
      for (int64_t shift : {0, 1})
        both_cases(std::string("zip ") + names[int(f)] + " " + z.name + shape({n}),
                   {in(a), in_positive(b), out(n)},
                   [=](auto& m) {
                     Zip<TYPE(m)> k{.f = f,
                                    .rank = z.rank,
                                    .size = {},
                                    .a_stride = {},
                                    .b_stride = {},
                                    .a = m.t(0),
                                    .b = m.t(1),
                                    .c = m.t(2)};
                     std::copy_n(z.size, kMaxRank, k.size);
                     std::copy_n(z.a, kMaxRank, k.a_stride);
                     std::copy_n(z.b, kMaxRank, k.b_stride);
                     return k;
                   },
                   {.shift = shift,
                    .bytes = z.time && !shift && f == Binary::add ? 4.0 * double(a + b + n) : 0});
    }

  for (int64_t n : {int64_t{7}, int64_t{4096 * 512}})
    for (double beta : {0.0, 0.75})
      both_cases("axpby beta " + std::to_string(beta) + shape({n}), {in(n), changed(in(n))},
                 [=](auto& m) {
                   using W = Wide<TYPE(m)>;
                   return Axpby<TYPE(m)>{n, W(0.3), m.t(0), W(beta), m.t(1)};
                 },
                 {.bytes = n > 7 ? (beta ? 12.0 : 8.0) * double(n) : 0});
  for (int64_t shift : {0, 1})
    both_cases("fill" + shape({100'003}), {out(100'003)},
               [=](auto& m) {
                 return Fill<TYPE(m)>{100'003, Wide<TYPE(m)>(1.5), m.t(0)};
               },
               {.exact = true, .shift = shift, .bytes = 4.0 * 100'003});

  struct CopyShape {
    const char* name;
    int rank;
    int64_t size[kMaxRank], x[kMaxRank], y[kMaxRank];
    bool time;
  };
  const CopyShape copies[] = {
      {"whole", 2, {4096, 512}, {512, 1}, {512, 1}, true},
      {"odd", 2, {31, 37}, {37, 1}, {37, 1}, false},
      {"[B,T,H,d] to [B,H,T,d]",
       4,
       {32, 8, 128, 64},
       {65536, 64, 512, 1},
       {65536, 8192, 64, 1},
       true},
      {"transpose", 2, {2048, 1000}, {1, 2048}, {1000, 1}, true},
      {"transpose, odd", 2, {37, 65}, {1, 37}, {65, 1}, false},
      {"transpose into", 2, {100, 70}, {70, 1}, {1, 100}, false},
      {"transpose of many", 3, {6, 40, 24}, {960, 1, 40}, {960, 24, 1}, false},
      {"slice", 2, {64, 48}, {128, 1}, {96, 1}, false},
      {"slice, odd", 2, {64, 33}, {129, 1}, {97, 1}, false},
      {"every third", 1, {500}, {3}, {2}, false},
      {"repeated", 2, {64, 48}, {0, 1}, {48, 1}, false},
      {"one number", 2, {16, 48}, {0, 0}, {48, 1}, false},
      {"rank 6", 6, {2, 3, 2, 3, 2, 5}, {180, 60, 30, 10, 5, 1}, {1, 2, 6, 12, 36, 72}, false},
      {"empty", 2, {4, 0}, {1, 1}, {1, 1}, false}};
  for (const CopyShape& c : copies)
    for (bool add : {false, true})
      for (int64_t shift : {0, 1}) {
        int64_t n = 1, x = 1, y = 1;
        for (int i = 0; i < c.rank; ++i) {
          n *= c.size[i];
          x += std::max<int64_t>(0, c.size[i] - 1) * c.x[i];
          y += std::max<int64_t>(0, c.size[i] - 1) * c.y[i];
        }
        both_cases(std::string(add ? "copy add " : "copy ") + c.name + shape({n}),
                   {in(x), changed(in(y))},
                   [=](auto& m) {
                     Copy<TYPE(m)> k{.add = add,
                                     .rank = c.rank,
                                     .size = {},
                                     .x_stride = {},
                                     .y_stride = {},
                                     .x = m.t(0),
                                     .y = m.t(1)};
                     std::copy_n(c.size, kMaxRank, k.size);
                     std::copy_n(c.x, kMaxRank, k.x_stride);
                     std::copy_n(c.y, kMaxRank, k.y_stride);
                     return k;
                   },
                   {.exact = !add,
                    .shift = shift,
                    .bytes = c.time && !shift ? (add ? 12.0 : 8.0) * double(n) : 0});
      }
  // Backwards: the pointers stand at the last element.
  both_cases("copy backwards" + shape({8, 33}), {in(8 * 33), out(8 * 33)},
             [](auto& m) {
               return Copy<TYPE(m)>{.add = false,
                                    .rank = 2,
                                    .size = {8, 33},
                                    .x_stride = {-33, -1},
                                    .y_stride = {33, 1},
                                    .x = m.t(0) + 8 * 33 - 1,
                                    .y = m.t(1)};
             },
             {.exact = true});

  for (int64_t n : {int64_t{5}, int64_t{1023}, int64_t{1024 * 9 + 517}, int64_t{4096 * 512}})
    for (double p : {0.1, 0.5})
      for (int64_t shift : {0, 1}) {
        both_cases(
            "dropout " + std::to_string(p) + shape({n}), {in(n), out(n)},
            [=](auto& m) {
              return Dropout<TYPE(m)>{n,      float(p), {0x1234567890ABCDEFull, nullptr},
                                      m.t(0), nullptr,  m.t(1)};
            },
            {.exact = true, .shift = shift, .bytes = n > 100'000 && !shift ? 8.0 * double(n) : 0});
        both_cases("dropout and residual " + std::to_string(p) + shape({n}), {in(n), out(n), in(n)},
                   [=](auto& m) {
                     return Dropout<TYPE(m)>{n,      float(p), {0x1234567890ABCDEFull, nullptr},
                                             m.t(0), m.t(2),   m.t(1)};
                   },
                   {.shift = shift, .bytes = n > 100'000 && !shift ? 12.0 * double(n) : 0});
      }
  both_cases("dropout with a key, in place" + shape({5000}),
             {changed(in(5000)), raw({0xFEDCBA9876543210ull})},
             [](auto& m) {
               return Dropout<TYPE(m)>{
                   5000,   0.3f,    {77, static_cast<const uint64_t*>(m.raw(1))},
                   m.t(0), nullptr, m.t(0)};
             },
             {.exact = true});

  const auto adam = [](std::vector<int64_t> sizes, double squares, bool average, double decay,
                       int64_t shift, bool only_time) {
    std::vector<Array> arrays;
    double total = 0;
    for (int64_t n : sizes) {
      arrays.push_back(in(n));
      arrays.push_back(changed(in(n)));
      arrays.push_back(changed(in(n, 0.1)));
      arrays.push_back(changed(in_positive(n)));
      arrays.push_back(changed(in(n)));
      total += double(n);
    }
    const int at = static_cast<int>(arrays.size());
    arrays.push_back(raw({word(1e-3), word(0.9), word(0.98), word(1e-9), word(decay), word(5.0),
                          word(0.999), uint64_t{17}}));
    arrays.push_back(raw({word(squares)}));
    f32_case("adam " + std::to_string(sizes.size()) + " parts, squares " + std::to_string(squares) +
                 (average ? " averaged" : ""),
             arrays,
             [=](auto& m) {
               Adam<TYPE(m)> k{};
               k.numbers = static_cast<const AdamNumbers*>(m.raw(at));
               k.squares = static_cast<const double*>(m.raw(at + 1));
               k.count = static_cast<int>(sizes.size());
               for (int i = 0; i < k.count; ++i)
                 k.part[i] = {sizes[static_cast<size_t>(i)],
                              m.t(5 * i),
                              m.t(5 * i + 1),
                              m.t(5 * i + 2),
                              m.t(5 * i + 3),
                              average ? m.t(5 * i + 4) : nullptr,
                              nullptr};
               return k;
             },
             {.only_time = only_time, .shift = shift, .bytes = (average ? 36.0 : 28.0) * total});
  };
  adam({128}, 4, false, 0, 0, false);
  adam({128, 0, 5000, 4096, 3, 100'000, 0}, 1e4, true, 0.01, 0, false);
  adam({128, 0, 5000, 4096, 3, 100'000}, 1e4, true, 0.01, 1, false);
  adam({1000, 2000}, kInf, true, 0, 0, false);
  adam({1000, 2000}, kNan, true, 0, 0, false);
  std::vector<int64_t> base(62, 512 * 512);
  base.push_back(16'000'000), base.push_back(512);
  adam(base, 100, true, 0, 0, true);
  adam(std::vector<int64_t>(40, 128 * 128), 100, false, 0, 0, true);
}

// Types change: compared by hand.
void conversions() {
  for (int64_t n : {int64_t{1}, int64_t{1003}, int64_t{4096 * 512}})
    for (int64_t shift : {0, 1}) {
      const std::string title = "to_bf16 and back" + shape({n}) + (shift ? " shifted" : "");
      if (title.find(wanted) == std::string::npos) continue;
      try {
        Array x = in(n, 100);
        if (n > 10)
          x.pattern[1] = kInf, x.pattern[2] = -kInf, x.pattern[3] = 1 + 0x1p-8, x.pattern[4] = 3e38;
        const std::vector<Array> wides{x, out(n)}, halves{out(n)};
        OnGpu<float> wide(wides, shift);
        OnGpu<bf16> half(halves, shift);
        const ToBf16 to{n, wide.t(0), half.t(0)};
        const FromBf16 from{n, half.t(0), wide.t(1)};
        run(on_stream(stream), to);
        run(on_stream(stream), from);
        check(cudaStreamSynchronize(stream), "the run");
        const std::vector<char> there = half.bytes(0), back = wide.bytes(1);
        bool good = half.guarded(0, there) && wide.guarded(1, back);
        for (int64_t i = 0; i < n; ++i) {
          const double want = rounded<bf16>(static_cast<float>(x.at(i)));
          good = good && half.value(halves, 0, there, i) == want &&
                 wide.value(wides, 1, back, i) == want;
        }
        report(good, title);
        if (timing && n > 10000 && !shift)
          for (int way : {0, 1}) {
            const double us = microseconds(
                [&] { way ? run(on_stream(stream), from) : run(on_stream(stream), to); });
            std::printf("TIME %-58s %9.2f us  %5.1f%% of 4.8 TB/s\n", way ? "from_bf16" : "to_bf16",
                        us, 6.0 * double(n) / us / 4.8e6 * 100);
          }
      } catch (const std::exception& error) {
        report(false, title + "  " + error.what());
      }
    }
}

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
                   return Rotary<TYPE(m)>{3, 7, 5, 6, m.id(2), 10000, backward, m.t(0), m.t(1)};
                 },
                 {.shift = shift});
      const int64_t n = 32 * 128 * 8 * 64;
      both_cases("rotary" + shape({32, 128, 8, 64}), {in(n), out(n), ids({0})},
                 [=](auto& m) {
                   return Rotary<TYPE(m)>{32, 128, 8, 64, m.id(2), 10000, backward, m.t(0), m.t(1)};
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
    const Array length = ids({double(s.length)});
    const double bytes = 8.0 * double(rows * s.outer * s.length * (s.n + 1));
    f32_case("move_rows in place" + name, {changed(in(count)), changed(in(narrow)), from, length},
             [=](auto& m) {
               MoveRows<TYPE(m)> k{s.groups, s.group, m.id(2), m.id(3), 2, {}};
               k.part[0] = {s.outer, s.n, m.t(0), s.room, m.t(0), s.room};
               k.part[1] = {s.outer, 1, m.t(1), s.room, m.t(1), s.room};
               return k;
             },
             {.exact = true, .bytes = rows > 100 ? bytes : 0});
    f32_case("move_rows" + name, {in(count), out(2 * count), ids_below(rows, rows), length},
             [=](auto& m) {
               MoveRows<TYPE(m)> k{rows, 1, m.id(2), m.id(3), 1, {}};
               k.part[0] = {s.outer, s.n, m.t(0), s.room, m.t(1), 2 * s.room};
               return k;
             },
             {.exact = true});
    if (s.length == s.room) continue;
    f32_case("append_rows" + name, {in(more), in(more / s.n), out(count), out(narrow), length},
             [=](auto& m) {
               AppendRows<TYPE(m)> k{m.id(4), 2, {}};
               k.part[0] = {rows * s.outer, 1, s.n, m.t(0), m.t(2), s.room};
               k.part[1] = {rows * s.outer, 1, 1, m.t(1), m.t(3), s.room};
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
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--time")
      timing = true;
    else
      wanted = argv[i];
  try {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "the GPU");
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  elementwise();
  conversions();
  sums();
  maxima();
  softmax();
  norms();
  losses();
  tables();
  caches();
  cells();
  weights();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
