// Attention by dot products on the GPU against the CPU's in double, on the same inputs; and how
// long it takes. Needs a GPU, so it is no part of ctest.
//
//   dot_test           all cases: PASS or FAIL
//   dot_test --time    how long, and what share of the GPU's peak that is
//   dot_test ... NAME  only what has NAME in its name, as in "bf16 persistent"
//
// What is allowed. f32: twice the error of the CPU's f32 body, and 4 roundings at the size of the
// largest element of the result, since both are sums in some order. bf16: 2 roundings of bf16, each
// 2^-8 of the largest element: one when it is stored, one for the weights and dscores that tensor
// cores read as bf16. What is f32 beside bf16: as for f32, but 2^-20, since tensor cores cut sums
// off where others round them, and take 2^x within 2^-22. What a gradient is made from (context,
// lse) is what came out of the GPU, for both.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "heed/base/random.h"
#include "heed/kernels/kernels.h"
#include "tests/compare.h"
#include "tests/cuda/on_stream.h"

using namespace heed;
using namespace heed::kernels;

namespace {

using Numbers = std::vector<double>;
constexpr double kFill = 768;  // what outputs hold before; bf16 has it too
constexpr double kInf = std::numeric_limits<double>::infinity();

bool check(cudaError_t error, const char* where) {
  if (error == cudaSuccess) return true;
  std::printf("CUDA error in %s: %s\n", where, cudaGetErrorString(error));
  return false;
}

// ---- cases

enum class Mask { all, causal, ragged, window, holes };
enum class Bias { none, full, shared, distance };
enum class Lay { heads, model, odd };  // [B, H, T, n]; [B, T, H, n]; rows n + 3 apart, from 1 on

struct Sizes {
  int64_t B, H, G, Tq, Tk, n, m;
};
struct Traits {
  ScoreForm form = ScoreForm::dot;
  Mask mask = Mask::all;
  Bias bias = Bias::none;
  bool place = false, weights = false, add = false, nan = false;
  bool one_key_batch = false, one_key_head = false, one_gradient = false;  // for all
  float dropout = 0;
  Lay lay = Lay::model;
};
struct Case : Sizes, Traits {
  std::string name;
  Case(const char* called, const Sizes& sizes, const Traits& traits = {})
      : Sizes(sizes), Traits(traits), name(called) {}
};

std::vector<Case> cases() {
  const ScoreForm log_dot = ScoreForm::log_dot;
  std::vector<Case> all = {
      {"tiny", {1, 1, 1, 1, 1, 1, 1}},
      {"small odd", {2, 3, 3, 5, 7, 3, 5}},
      {"odd rows", {2, 2, 2, 33, 35, 18, 30}, {.lay = Lay::odd}},
      {"n 256, m 40", {1, 2, 1, 37, 70, 256, 40}},
      {"n 20, m 256", {1, 2, 1, 37, 30, 20, 256}},
      {"n 100, m 100", {2, 2, 2, 40, 100, 100, 100}},
      {"T 16", {8, 4, 4, 16, 16, 32, 32}},
      {"T 16 causal", {8, 4, 4, 16, 16, 64, 64}, {.mask = Mask::causal}},
      {"T 25", {4, 2, 2, 25, 31, 128, 128}, {.mask = Mask::ragged}},
      {"T 50", {4, 4, 4, 50, 50, 64, 64}, {.mask = Mask::causal}},
      {"T 50, 47", {4, 4, 4, 50, 47, 32, 64}, {.mask = Mask::ragged}},
      {"T 64", {3, 2, 2, 64, 64, 64, 64}, {.lay = Lay::heads}},
      {"T 100", {2, 4, 4, 100, 100, 64, 64}, {.mask = Mask::causal}},
      {"T 100 all", {2, 2, 2, 100, 100, 128, 128}},
      {"T 300 32", {1, 2, 2, 300, 270, 32, 32}, {.mask = Mask::ragged}},
      {"T 1000", {1, 2, 2, 1000, 1000, 64, 64}},
      {"T 1000 causal", {1, 2, 2, 1000, 1000, 128, 128}, {.mask = Mask::causal}},
      {"T 1000 window", {1, 2, 2, 1000, 1000, 64, 64}, {.mask = Mask::window}},
      {"T 513 holes", {2, 2, 1, 513, 391, 64, 64}, {.mask = Mask::holes, .nan = true}},
      // Warpgroup MMA: more than 64 queries and keys, 64 or 128 columns; tiles of 64 and 128.
      {"T 65", {2, 2, 2, 65, 65, 64, 64}},
      {"T 65 128", {2, 2, 2, 65, 65, 128, 128}},
      {"T 128, 192", {2, 3, 3, 128, 192, 64, 64}, {.lay = Lay::heads}},
      {"T 256, 128 causal",
       {2, 2, 2, 256, 128, 128, 128},
       {.mask = Mask::causal, .lay = Lay::heads}},
      {"T 129, 1100 ragged", {4, 2, 2, 129, 1100, 128, 128}, {.mask = Mask::ragged, .nan = true}},
      {"T 1100, 129 ragged", {4, 2, 2, 1100, 129, 64, 64}, {.mask = Mask::ragged, .nan = true}},
      {"T 391 holes 128", {3, 2, 1, 391, 513, 128, 128}, {.mask = Mask::holes, .nan = true}},
      {"T 900 causal 64", {3, 2, 2, 900, 900, 64, 64}, {.mask = Mask::causal}},
      {"T 900 window 128", {2, 2, 2, 900, 900, 128, 128}, {.mask = Mask::window, .add = true}},
      {"T 640 grouped", {2, 6, 2, 640, 700, 128, 128}, {.mask = Mask::causal, .add = true}},
      {"T 640 grouped 64", {2, 8, 2, 640, 700, 64, 64}, {.mask = Mask::ragged, .nan = true}},
      // As many heads as make the kernel persistent, on 132 processors; most blocks then take
      // several tiles of queries each.
      {"persistent", {66, 4, 2, 130, 300, 128, 128}, {.mask = Mask::causal}},
      {"persistent, ragged", {66, 4, 4, 200, 150, 128, 128}, {.mask = Mask::ragged, .nan = true}},
      {"persistent, three tiles",
       {66, 2, 1, 270, 140, 128, 128},
       {.mask = Mask::holes, .nan = true}},
      {"persistent, one tile", {132, 2, 1, 100, 140, 64, 64}, {.mask = Mask::holes, .nan = true}},
      {"persistent, two groups", {66, 2, 2, 200, 300, 64, 64}, {.mask = Mask::causal}},
      {"persistent, three groups", {66, 2, 2, 300, 300, 64, 64}, {.mask = Mask::causal}},
      {"persistent, some without work", {62, 2, 2, 200, 150, 64, 64}, {.mask = Mask::ragged}},
      {"one key batch long", {3, 2, 2, 140, 170, 64, 64}, {.one_key_batch = true}},
      {"one key head long", {3, 4, 2, 140, 170, 128, 128}, {.one_key_head = true}},
      {"one gradient long", {3, 2, 2, 140, 170, 64, 64}, {.one_gradient = true}},
      {"grouped", {2, 8, 2, 19, 23, 32, 32}, {.mask = Mask::ragged}},
      {"grouped long", {2, 6, 2, 150, 140, 64, 64}, {.mask = Mask::causal}},
      {"grouped 128", {1, 4, 1, 130, 257, 128, 128}, {.mask = Mask::window}},
      {"holes", {3, 2, 2, 20, 30, 16, 24}, {.mask = Mask::holes, .nan = true}},
      {"NaN behind", {3, 2, 2, 20, 60, 32, 32}, {.mask = Mask::ragged, .nan = true}},
      {"NaN long", {2, 2, 2, 140, 160, 64, 64}, {.mask = Mask::ragged, .nan = true}},
      {"bias", {2, 2, 2, 20, 30, 32, 32}, {.mask = Mask::causal, .bias = Bias::full}},
      {"bias long", {2, 2, 2, 90, 130, 32, 32}, {.bias = Bias::full}},
      {"bias shared", {5, 2, 2, 21, 37, 32, 32}, {.mask = Mask::ragged, .bias = Bias::shared}},
      {"bias shared long", {3, 2, 1, 90, 80, 64, 64}, {.bias = Bias::shared}},
      {"bias by distance",
       {3, 2, 2, 25, 33, 32, 32},
       {.mask = Mask::causal, .bias = Bias::distance}},
      {"distance long", {2, 2, 2, 101, 99, 64, 64}, {.bias = Bias::distance}},
      {"place", {2, 2, 2, 21, 50, 32, 32}, {.mask = Mask::window, .place = true}},
      {"place long", {2, 2, 2, 70, 150, 32, 32}, {.place = true}},
      {"dropout 32", {3, 2, 2, 30, 32, 32, 32}, {.dropout = 0.1f}},
      {"dropout 64", {3, 2, 2, 30, 61, 64, 64}, {.mask = Mask::causal, .dropout = 0.3f}},
      {"dropout long", {2, 2, 1, 100, 300, 64, 64}, {.mask = Mask::ragged, .dropout = 0.3f}},
      {"dropout short 128", {3, 4, 2, 15, 25, 128, 128}, {.dropout = 0.1f}},
      {"dropout 128", {3, 2, 2, 40, 50, 128, 128}, {.mask = Mask::causal, .dropout = 0.2f}},
      {"dropout short 64", {3, 2, 2, 16, 20, 64, 64}, {.dropout = 0.2f}},
      {"dropout of groups 64", {2, 8, 2, 30, 60, 64, 64}, {.dropout = 0.2f}},
      {"dropout of groups",
       {2, 8, 2, 30, 60, 32, 32},
       {.mask = Mask::ragged, .nan = true, .dropout = 0.2f}},
      {"dropout of groups 128", {2, 8, 2, 30, 60, 128, 128}, {.add = true, .dropout = 0.2f}},
      {"dropout long 32", {2, 2, 2, 150, 300, 32, 32}, {.mask = Mask::causal, .dropout = 0.1f}},
      {"dropout long 128",
       {2, 2, 1, 100, 300, 128, 128},
       {.mask = Mask::ragged, .nan = true, .dropout = 0.3f}},
      {"dropout, many keys", {2, 4, 2, 12, 200, 64, 64}, {.dropout = 0.3f}},
      {"dropout, many keys 128", {2, 4, 2, 12, 200, 128, 128}, {.add = true, .dropout = 0.3f}},
      {"weights", {2, 2, 2, 20, 30, 32, 32}, {.mask = Mask::holes, .weights = true}},
      {"weights long",
       {2, 2, 2, 70, 150, 64, 64},
       {.mask = Mask::window, .weights = true, .dropout = 0.2f}},
      {"add", {2, 2, 2, 20, 30, 32, 32}, {.add = true}},
      {"add long", {2, 2, 2, 70, 200, 64, 64}, {.add = true, .lay = Lay::heads}},
      {"log_dot", {2, 2, 2, 20, 30, 32, 32}, {.form = log_dot, .mask = Mask::ragged}},
      {"log_dot long",
       {2, 2, 1, 70, 99, 64, 48},
       {.form = log_dot, .mask = Mask::causal, .bias = Bias::full, .weights = true}},
      {"one query", {3, 4, 4, 1, 100, 64, 64}, {.mask = Mask::ragged, .add = true}},
      {"one query odd",
       {3, 2, 2, 1, 37, 21, 13},
       {.mask = Mask::ragged, .weights = true, .nan = true, .lay = Lay::odd}},
      {"one query, many keys", {2, 4, 2, 1, 1500, 128, 128}, {.weights = true, .dropout = 0.1f}},
      {"one query 256", {2, 2, 2, 1, 50, 256, 256}, {.bias = Bias::full, .place = true}},
      {"one query log_dot", {2, 2, 2, 1, 20, 32, 32}, {.form = log_dot}},
      {"one query none", {3, 2, 2, 1, 20, 32, 32}, {.mask = Mask::holes, .nan = true}},
      {"one key batch", {3, 2, 2, 40, 70, 64, 64}, {.one_key_batch = true}},
      {"no keys", {2, 2, 2, 5, 0, 32, 32}},
      {"no queries", {2, 2, 2, 0, 70, 64, 64}},
      {"everything",
       {2, 4, 2, 45, 150, 36, 52},
       {.mask = Mask::ragged,
        .bias = Bias::full,
        .place = true,
        .weights = true,
        .add = true,
        .dropout = 0.25f}},
  };
  return all;
}

// ---- arrays

struct Layout {
  int64_t batch, head, row, offset, total;
};
Layout layout(Lay lay, int64_t B, int64_t H, int64_t T, int64_t n) {
  switch (lay) {
    case Lay::heads: return {H * T * n, T * n, n, 0, B * H * T * n};
    case Lay::model: return {H * T * n, n, H * n, 0, B * H * T * n};
    case Lay::odd: break;
  }
  return {H * T * (n + 3), T * (n + 3), n + 3, 1, B * H * T * (n + 3) + 1};
}
double rounded(double x, bool to_bf16) {
  const auto f = static_cast<float>(x);
  return to_bf16 ? static_cast<double>(static_cast<float>(bf16(f))) : static_cast<double>(f);
}

// A problem with its inputs, as numbers that the type can hold.
struct Problem {
  Case c;
  Layout q, k, value, context, g, dk, dvalue, weights, bias;
  Numbers q_data, k_data, value_data, g_data, bias_data, place_data, dk0, dvalue0;
  std::vector<Id> range;
  double scale;

  Problem(const Case& given, bool to_bf16) : c(given) {
    Random random(17);
    const auto fill = [&](int64_t count, double size, bool positive = false) {
      Numbers x(static_cast<size_t>(count));
      for (double& y : x) {
        y = random.normal() * size;
        y = rounded(positive ? std::abs(y) + 0.05 : y, to_bf16);
      }
      return x;
    };
    const int64_t kB = c.one_key_batch ? 1 : c.B, kG = c.one_key_head ? 1 : c.G;
    q = layout(c.lay, c.B, c.H, c.Tq, c.n);
    k = layout(c.lay, kB, kG, c.Tk, c.n);
    value = layout(c.lay, kB, kG, c.Tk, c.m);
    context = g = layout(c.lay, c.B, c.H, c.Tq, c.m);
    // dk and dvalue have every sentence and head, also where these share their keys.
    dk = layout(c.lay, c.B, c.G, c.Tk, c.n);
    dvalue = layout(c.lay, c.B, c.G, c.Tk, c.m);
    weights = layout(Lay::heads, c.B, c.H, c.Tq, c.Tk);
    const bool log_dot = c.form == ScoreForm::log_dot;
    q_data = fill(q.total, 1, log_dot), k_data = fill(k.total, 1, log_dot);
    value_data = fill(value.total, 1), g_data = fill(g.total, 1);
    dk0 = fill(dk.total, 1), dvalue0 = fill(dvalue.total, 1);
    scale = rounded(log_dot ? 1.5 : 1.7 / std::sqrt(static_cast<double>(c.n)), false);
    switch (c.bias) {
      case Bias::none: bias = {}; break;
      case Bias::full: bias = layout(Lay::heads, c.B, c.H, c.Tq, c.Tk); break;
      case Bias::shared:
        bias = layout(Lay::heads, 1, c.H, c.Tq, c.Tk);
        bias.batch = 0;
        break;
      case Bias::distance: {
        const int64_t span = c.Tq + c.Tk - 1;
        bias = {0, span, -1, c.Tq - 1, c.H * span};
      }
    }
    if (c.bias != Bias::none) {
      bias_data.resize(static_cast<size_t>(bias.total));
      for (double& x : bias_data) x = rounded(random.normal(), false);
    }
    if (c.place)
      for (int64_t i = 0; i < c.B * c.H * c.Tq; ++i)
        place_data.push_back(rounded(random.uniform() * static_cast<float>(c.Tk), false));
    if (c.mask != Mask::all) take_range(random);
    if (c.nan) hide();
    if (c.one_key_batch) k.batch = value.batch = 0;
    if (c.one_key_head) k.head = value.head = 0;
    if (c.one_gradient) g.row = 0;
  }

  void take_range(Random& random) {
    for (int64_t b = 0; b < c.B; ++b) {
      const int64_t length =
          c.Tk - static_cast<int64_t>(random.below(static_cast<uint32_t>(c.Tk / 2 + 1)));
      for (int64_t i = 0; i < c.Tq; ++i) {
        int64_t begin = 0, end = c.Tk;
        if (c.mask == Mask::causal) end = std::min(c.Tk, i + 1 + std::max<int64_t>(0, c.Tk - c.Tq));
        if (c.mask == Mask::ragged) end = length;
        if (c.mask == Mask::window)
          begin = std::max<int64_t>(0, i - 9), end = std::min(c.Tk, i + 4);
        if (c.mask == Mask::holes) {
          begin = random.below(static_cast<uint32_t>(c.Tk)), end = begin + random.below(12);
          if (i % 3 == 0 || b == 1) end = begin;  // nothing
          if (b == 2 && i % 2) begin = -3, end = c.Tk + 5;
          if (b == 1 && c.Tq == 1) begin = 5, end = 2;
          // Some keys are seen by none.
          if (c.nan && begin < end && end > c.Tk - 6) end = std::max(begin, c.Tk - 6);
        }
        range.push_back(static_cast<Id>(begin)), range.push_back(static_cast<Id>(end));
      }
    }
  }
  // NaN in keys that no row of the sentence sees, and in rows that see none: it must not come out
  // anywhere else.
  void hide() {
    const auto fill = [](Numbers& data, const Layout& l, int64_t b, int64_t heads, int64_t i,
                         int64_t n) {
      for (int64_t h = 0; h < heads; ++h)
        std::fill_n(data.data() + l.offset + b * l.batch + h * l.head + i * l.row, n, std::nan(""));
    };
    for (int64_t b = 0; b < c.B; ++b) {
      std::vector<bool> seen(static_cast<size_t>(c.Tk));
      for (int64_t i = 0; i < c.Tq; ++i) {
        const Id* r = range.data() + (b * c.Tq + i) * 2;
        const int64_t begin = std::max<int64_t>(r[0], 0), end = std::min<int64_t>(r[1], c.Tk);
        for (int64_t j = begin; j < end; ++j) seen[static_cast<size_t>(j)] = true;
        if (begin < end) continue;
        fill(q_data, q, b, c.H, i, c.n), fill(g_data, g, b, c.H, i, c.m);
      }
      for (int64_t j = 0; j < c.Tk; ++j)
        if (!seen[static_cast<size_t>(j)])
          fill(k_data, k, b, c.G, j, c.n), fill(value_data, value, b, c.G, j, c.m);
    }
  }
};

// ---- both devices

template <class T>
T as(double x) {
  if constexpr (std::is_same_v<T, bf16>)
    return bf16(static_cast<float>(x));
  else
    return static_cast<T>(x);
}
template <class T>
double as_double(T x) {
  if constexpr (std::is_same_v<T, bf16>)
    return static_cast<double>(static_cast<float>(x));
  else
    return static_cast<double>(x);
}

// Arrays in a device's memory.
template <class Device>
class Memory {
 public:
  ~Memory() {
    for (void* p : all_)
      if constexpr (kGpu)
        cudaFree(p);
      else
        std::free(p);
  }
  template <class T>
  T* put(const std::vector<T>& x) {
    void* p = nullptr;
    const size_t bytes = std::max<size_t>(x.size() * sizeof(T), 64);
    if constexpr (kGpu) {
      check(cudaMalloc(&p, bytes), "cudaMalloc");
      check(cudaMemcpy(p, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice), "copying");
    } else {
      p = std::malloc(bytes + 256);  // the CPU's kernels never read past the end; for their faults
      std::memcpy(p, x.data(), x.size() * sizeof(T));
    }
    all_.push_back(p);
    return static_cast<T*>(p);
  }
  template <class T>
  T* put_as(const Numbers& x) {
    std::vector<T> y(x.size());
    std::transform(x.begin(), x.end(), y.begin(), as<T>);
    return put(y);
  }
  template <class T>
  Numbers get(const T* p, int64_t count) {
    std::vector<T> y(static_cast<size_t>(count));
    if constexpr (kGpu)
      check(cudaMemcpy(y.data(), p, y.size() * sizeof(T), cudaMemcpyDeviceToHost), "copying back");
    else
      std::memcpy(y.data(), p, y.size() * sizeof(T));
    Numbers x(y.size());
    std::transform(y.begin(), y.end(), x.begin(), as_double<T>);
    return x;
  }

 private:
  static constexpr bool kGpu = std::is_same_v<Device, Cuda>;
  std::vector<void*> all_;
};

struct Output {
  std::string name;
  Numbers data;
};
using Outputs = std::vector<Output>;

// Forward and backward. `from`: the context and lse that the backward pass reads, if not its own.
template <class Device, class T>
Outputs run_both(const Problem& p, const Outputs* from) {
  using W = Wide<T>;
  const Case& c = p.c;
  Memory<Device> memory;
  const auto filled = [](int64_t n) { return Numbers(static_cast<size_t>(n), kFill); };
  const auto heads = [](auto* data, const Layout& l) {
    return Heads<std::remove_pointer_t<decltype(data)>>{data + l.offset, l.batch, l.head, l.row};
  };
  const auto constant = [](auto* x) {
    return static_cast<const std::remove_pointer_t<decltype(x)>*>(x);
  };
  Attention<T> a{};
  a.form = c.form;
  a.batch = c.B, a.heads = c.H, a.key_heads = c.G, a.queries = c.Tq, a.keys = c.Tk;
  a.size = c.n, a.value_size = c.m;
  a.q = heads(constant(memory.template put_as<T>(p.q_data)), p.q);
  a.k = heads(constant(memory.template put_as<T>(p.k_data)), p.k);
  a.value = heads(constant(memory.template put_as<T>(p.value_data)), p.value);
  a.scale = static_cast<W>(p.scale);
  if (c.bias != Bias::none)
    a.bias = heads(constant(memory.template put_as<W>(p.bias_data)), p.bias);
  if (c.place) a.place = memory.template put_as<W>(p.place_data), a.falloff = static_cast<W>(0.01f);
  if (!p.range.empty()) a.range = memory.put(p.range), a.range_batch = 2 * c.Tq, a.range_head = 0;
  a.dropout = c.dropout;
  const std::vector<uint64_t> key = {41};
  a.seed = {1234567890123u, memory.put(key)};
  T* context = memory.template put_as<T>(filled(p.context.total));
  a.context = heads(context, p.context);
  a.lse = memory.template put_as<W>(filled(c.B * c.H * c.Tq));
  W* weights = c.weights ? memory.template put_as<W>(filled(p.weights.total)) : nullptr;
  if (weights) a.weights = heads(weights, p.weights);
  run(Device{}, a);

  Outputs out;
  const auto keep = [&](const char* name, auto* data, int64_t count) {
    out.push_back({name, memory.get(data, count)});
  };
  if constexpr (std::is_same_v<Device, Cuda>)
    if (!check(cudaDeviceSynchronize(), "Attention")) return out;
  keep("context", context, p.context.total);
  keep("lse", a.lse, c.B * c.H * c.Tq);
  if (weights) keep("weights", weights, p.weights.total);
  if (from) {
    T* given = memory.template put_as<T>((*from)[0].data);
    a.context = heads(given, p.context);
    a.lse = memory.template put_as<W>((*from)[1].data);
  }

  AttentionGrad<T> k{};
  k.forward = a;
  k.dcontext = heads(constant(memory.template put_as<T>(p.g_data)), p.g);
  T *dq = memory.template put_as<T>(filled(p.q.total)),
    *dk = memory.template put_as<T>(c.add ? p.dk0 : filled(p.dk.total)),
    *dvalue = memory.template put_as<T>(c.add ? p.dvalue0 : filled(p.dvalue.total));
  k.dq = heads(dq, p.q), k.dk = heads(dk, p.dk), k.dvalue = heads(dvalue, p.dvalue);
  k.add = c.add;
  W *dbias = nullptr, *dplace = nullptr;
  if (c.bias != Bias::none) {
    dbias = memory.template put_as<W>(Numbers(static_cast<size_t>(p.bias.total), 0));
    k.dbias = heads(dbias, p.bias);
  }
  if (c.place) k.dplace = dplace = memory.template put_as<W>(filled(c.B * c.H * c.Tq));
  run(Device{}, k);
  if constexpr (std::is_same_v<Device, Cuda>)
    if (!check(cudaDeviceSynchronize(), "AttentionGrad")) return out;
  keep("dq", dq, p.q.total);
  keep("dk", dk, p.dk.total);
  keep("dvalue", dvalue, p.dvalue.total);
  if (dbias) keep("dbias", dbias, p.bias.total);
  if (dplace) keep("dplace", dplace, c.B * c.H * c.Tq);
  return out;
}

double largest_written(Numbers x) {
  std::erase(x, kFill);
  return largest(x);
}
bool same_bits(const Outputs& x, const Outputs& y) {
  if (x.size() != y.size()) return false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i].data.size() != y[i].data.size()) return false;
    for (size_t j = 0; j < x[i].data.size(); ++j) {
      const double a = x[i].data[j], b = y[i].data[j];
      if (!(a == b && std::signbit(a) == std::signbit(b)) && !(std::isnan(a) && std::isnan(b)))
        return false;
    }
  }
  return true;
}

template <class T>
bool test(const Case& c) {
  constexpr bool kBf16 = std::is_same_v<T, bf16>;
  const Problem p(c, kBf16);
  const Outputs gpu = run_both<Cuda, T>(p, nullptr), again = run_both<Cuda, T>(p, nullptr);
  if (gpu.size() < 2) return false;
  const Outputs exact = run_both<Cpu, double>(p, &gpu), cpu = run_both<Cpu, float>(p, &gpu);
  bool ok = gpu.size() == exact.size();
  const bool twice = same_bits(gpu, again);
  std::string details;
  double most = 0, worst_abs = 0, worst_rel = 0, worst_cpu = 0;
  std::string worst_name = "-";
  for (size_t i = 0; i < std::min(gpu.size(), exact.size()); ++i) {
    const double size = largest_written(exact[i].data),
                 error = worst(exact[i].data, gpu[i].data, Special::as_wanted),
                 cpu_error = worst(exact[i].data, cpu[i].data, Special::as_wanted);
    const std::string& name = gpu[i].name;
    const bool narrow =
        kBf16 && (name == "context" || name == "dq" || name == "dk" || name == "dvalue");
    const double sums = 2 * earned(cpu_error) + (kBf16 ? 0x1p-20 : 4 * 0x1p-24) * size;
    const double allowed = narrow ? 2 * 0x1p-8 * size : sums;
    const double share = error == 0 ? 0 : error / allowed;
    char line[200];
    std::snprintf(
        line, sizeof line, "      %-8s error %.2e of %.2e, CPU f32 %.2e, allowed %.2e%s\n",
        gpu[i].name.c_str(), error, size, cpu_error, allowed, share <= 1 ? "" : "  <-- FAIL");
    details += line;
    if (!(share <= most))
      most = share, worst_name = gpu[i].name, worst_abs = error,
      worst_rel = size > 0 ? error / size : 0, worst_cpu = cpu_error;
    ok = ok && share <= 1;
  }
  ok = ok && twice;
  std::printf(
      "%s %-5s %-22s B %lld H %lld/%lld T %lldx%lld d %lld,%lld: worst %s: abs %.2e rel %.2e, CPU "
      "f32 %.2e, %.2f of what is allowed%s\n",
      ok ? "PASS" : "FAIL", kBf16 ? "bf16" : "f32", c.name.c_str(), (long long)c.B, (long long)c.H,
      (long long)c.G, (long long)c.Tq, (long long)c.Tk, (long long)c.n, (long long)c.m,
      worst_name.c_str(), worst_abs, worst_rel, worst_cpu, most, twice ? "" : "; TWO RUNS DIFFER");
  if (!ok) std::printf("%s", details.c_str());
  std::fflush(stdout);
  return ok;
}

// ---- timing

template <class F>
double median_us(F f) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  for (int i = 0; i < 3; ++i) f();
  std::vector<float> times;
  for (int i = 0; i < 20; ++i) {
    cudaEventRecord(begin), f(), cudaEventRecord(end);
    check(cudaEventSynchronize(end), "timing");
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms);
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  std::sort(times.begin(), times.end());
  return times[10] * 1e3;
}

template <class T>
void time_case(const Case& c) {
  constexpr bool kBf16 = std::is_same_v<T, bf16>;
  Memory<Cuda> memory;
  Random random(3);
  const auto fill = [&](int64_t n) {
    std::vector<T> x(static_cast<size_t>(n));
    for (T& y : x) y = as<T>(random.uniform() * 2 - 1);
    return memory.put(x);
  };
  const auto heads = [](auto* data, const Layout& l) {
    return Heads<std::remove_pointer_t<decltype(data)>>{data + l.offset, l.batch, l.head, l.row};
  };
  const Layout lq = layout(c.lay, c.B, c.H, c.Tq, c.n), lk = layout(c.lay, c.B, c.G, c.Tk, c.n);
  const Layout lv = layout(c.lay, c.B, c.G, c.Tk, c.m), lo = layout(c.lay, c.B, c.H, c.Tq, c.m);
  Attention<T> a{};
  a.form = c.form;
  a.batch = c.B, a.heads = c.H, a.key_heads = c.G, a.queries = c.Tq, a.keys = c.Tk;
  a.size = c.n, a.value_size = c.m;
  a.q = heads(static_cast<const T*>(fill(lq.total)), lq);
  a.k = heads(static_cast<const T*>(fill(lk.total)), lk);
  a.value = heads(static_cast<const T*>(fill(lv.total)), lv);
  a.scale = 1 / std::sqrt(static_cast<float>(c.n));
  a.dropout = c.dropout;
  std::vector<Id> range;
  for (int64_t i = 0; i < c.Tq; ++i) range.push_back(0), range.push_back(static_cast<Id>(i + 1));
  if (c.mask == Mask::causal) a.range = memory.put(range);
  a.context = heads(fill(lo.total), lo);
  a.lse = memory.put(std::vector<float>(static_cast<size_t>(c.B * c.H * c.Tq)));
  AttentionGrad<T> k{};
  k.dcontext = heads(static_cast<const T*>(fill(lo.total)), lo);
  k.dq = heads(fill(lq.total), lq), k.dk = heads(fill(lk.total), lk),
  k.dvalue = heads(fill(lv.total), lv);
  k.forward = a;
  const double forward = median_us([&] { run(on_stream(), a); });
  const double back = median_us([&] { run(on_stream(), k); });
  const double pairs = static_cast<double>(c.B * c.H) *
                       (c.mask == Mask::causal ? 0.5 * static_cast<double>(c.Tq * (c.Tq + 1))
                                               : static_cast<double>(c.Tq * c.Tk));
  const double flops = 2 * pairs * static_cast<double>(c.n + c.m);
  const double flops_back = 2 * pairs * static_cast<double>(3 * c.n + 2 * c.m);
  const double bytes = static_cast<double>(sizeof(T)) *
                       static_cast<double>(lq.total + lk.total + lv.total + lo.total);
  const double bytes_back = 2 * bytes;
  const double peak = kBf16 ? 790e12 : 67e12;
  std::printf(
      "%-5s %-26s there %8.1f us (%6.1f TFLOP/s, %4.1f%% of the peak; %5.2f TB/s, %4.1f%%)  back "
      "%8.1f us (%6.1f TFLOP/s, %4.1f%%; %5.2f TB/s, %4.1f%%)\n",
      kBf16 ? "bf16" : "f32", c.name.c_str(), forward, flops / forward * 1e-6,
      flops / forward * 1e8 / peak, bytes / forward * 1e-6, bytes / forward * 1e8 / 4.8e12, back,
      flops_back / back * 1e-6, flops_back / back * 1e8 / peak, bytes_back / back * 1e-6,
      bytes_back / back * 1e8 / 4.8e12);
  std::fflush(stdout);
}

std::vector<Case> timings() {
  return {
      {"256 x 4 x 16 x 32", {256, 4, 4, 16, 16, 32, 32}},
      {"160 x 4 x 25 x 128", {160, 4, 4, 25, 25, 128, 128}},
      {"400 x 8 x 32 x 64", {400, 8, 8, 32, 32, 64, 64}},
      {"400 x 8 x 32 x 64 dropout", {400, 8, 8, 32, 32, 64, 64}, {.dropout = 0.1f}},
      {"256 x 4 x 16 x 32 dropout", {256, 4, 4, 16, 16, 32, 32}, {.dropout = 0.1f}},
      {"160 x 4 x 25 x 128 dropout", {160, 4, 4, 25, 25, 128, 128}, {.dropout = 0.1f}},
      {"8 x 32 x 2048 x 64 dropout", {8, 32, 32, 2048, 2048, 64, 64}, {.dropout = 0.1f}},
      {"100 x 8 x 50 x 64 causal", {100, 8, 8, 50, 50, 64, 64}, {.mask = Mask::causal}},
      {"64 x 8 x 100 x 64", {64, 8, 8, 100, 100, 64, 64}},
      {"one query, 64 x 8 x 100 x 64", {64, 8, 8, 1, 100, 64, 64}},
      {"8 x 8 x 512 x 64", {8, 8, 8, 512, 512, 64, 64}},
      {"32 x 8 x 256 x 64", {32, 8, 8, 256, 256, 64, 64}},
      {"32 x 8 x 128 x 128", {32, 8, 8, 128, 128, 128, 128}},
      {"32 x 32 x 512 x 64", {32, 32, 32, 512, 512, 64, 64}},
      {"32 x 32 x 512 x 64 causal", {32, 32, 32, 512, 512, 64, 64}, {.mask = Mask::causal}},
      {"32 x 16 x 512 x 128", {32, 16, 16, 512, 512, 128, 128}},
      {"32 x 16 x 512 x 128 causal", {32, 16, 16, 512, 512, 128, 128}, {.mask = Mask::causal}},
      {"8 x 32 x 2048 x 64", {8, 32, 32, 2048, 2048, 64, 64}},
      {"8 x 32 x 2048 x 64 causal", {8, 32, 32, 2048, 2048, 64, 64}, {.mask = Mask::causal}},
      {"8 x 16 x 2048 x 128", {8, 16, 16, 2048, 2048, 128, 128}},
      {"8 x 16 x 2048 x 128 causal", {8, 16, 16, 2048, 2048, 128, 128}, {.mask = Mask::causal}},
  };
}

}  // namespace

int main(int argc, char** argv) {
  bool time = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--time")
      time = true;
    else
      only = argv[i];
  }
  const auto wanted = [&](const Case& c, bool narrow) {
    return ((narrow ? "bf16 " : "f32 ") + c.name).find(only) != std::string::npos;
  };
  if (time) {
    for (const Case& c : timings()) {
      // A long one in f32 says nothing new and takes long.
      const bool brief = c.B * c.H * c.Tq * c.Tk < 256ll * 2048 * 2048;
      if (brief && wanted(c, false)) time_case<float>(c);
      if (wanted(c, true)) time_case<bf16>(c);
    }
    return 0;
  }
  int passed = 0, failed = 0;
  for (const Case& c : cases())
    for (const bool narrow : {false, true}) {
      if (!wanted(c, narrow)) continue;
      Attention<float> sizes{};
      sizes.size = c.n, sizes.value_size = c.m;
      if (!fits(on_stream(), sizes)) {
        std::printf("LEFT %s: wider than this GPU has room for\n", c.name.c_str());
        continue;
      }
      bool ok = false;
      try {
        ok = narrow ? test<bf16>(c) : test<float>(c);
      } catch (const std::exception& e) {
        std::printf("FAIL %s: %s\n", c.name.c_str(), e.what());
      }
      ++(ok ? passed : failed);
    }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed ? 1 : 0;
}
