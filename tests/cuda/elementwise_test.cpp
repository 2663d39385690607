// The GPU's elementwise kernels against the CPU's, and their times.
//
//   elementwise_test [--time] [part of a name]
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
}  // namespace

int main(int argc, char** argv) { return run_parts(argc, argv, {elementwise, conversions}); }
