// The GPU's elementwise, row, recurrent and weighing kernels against the CPU's, and their times.
//
//   rows_test [--time] [part of a name]
//
// Every case runs the CPU's body in f64 (the reference) and in f32, and the GPU's twice, on the
// same numbers (rounded to the type first). Allowed: twice the error of the CPU's f32 body and 4
// roundings of f32 at the scale of the result (the largest number of the array; activations: each
// number); where bf16 is stored, 2 roundings of bf16 at that scale: one is the storing itself, the
// second for numbers next to the border between two. What only moves or selects numbers has to be
// exact. Both GPU runs must give the same bits and leave what lies around the arrays alone.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "heed/base/check.h"
#include "heed/kernels/kernels.h"

using namespace heed;
using namespace heed::kernels;

namespace {

bool timing = false;
std::string wanted;
int passed = 0, failed = 0;
cudaStream_t stream = nullptr;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fail(what, ": ", cudaGetErrorString(error));
}

// ---- arrays

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kGuard = 64;  // numbers before and behind an array

enum class Kind { type, wide, id, number, raw };  // T, Wide<T>, Id, double, 8-byte words

struct Array {
  Kind kind;
  int64_t n;
  std::vector<double> pattern;       // repeated
  bool out = false;                  // compared
  std::vector<uint64_t> words = {};  // raw

  double at(int64_t i) const { return pattern[static_cast<size_t>(i) % pattern.size()]; }
};

std::mt19937 engine(7);
// Normal numbers from a pool that is drawn once, from anywhere in it on.
std::vector<double> normal(int64_t n, double scale = 1, double mean = 0) {
  static const std::vector<double> pool = [] {
    std::normal_distribution<double> d;
    std::vector<double> drawn(1 << 20);
    for (double& v : drawn) v = d(engine);
    return drawn;
  }();
  std::vector<double> x(static_cast<size_t>(std::clamp<int64_t>(n, 1, 1 << 20)));
  const size_t first = engine();
  for (size_t i = 0; i < x.size(); ++i) x[i] = mean + scale * pool[(first + i) % pool.size()];
  return x;
}
Array in(int64_t n, double scale = 1, double mean = 0) {
  return {Kind::type, n, normal(n, scale, mean)};
}
Array in_positive(int64_t n) {
  Array a = in(n);
  for (double& v : a.pattern) v = std::abs(v) + 0.01;
  return a;
}
Array in_wide(int64_t n, double scale = 1, double mean = 0) {
  return {Kind::wide, n, normal(n, scale, mean)};
}
Array out(int64_t n) { return {Kind::type, n, {-77}, true}; }
Array out_wide(int64_t n) { return {Kind::wide, n, {-77}, true}; }
Array out_ids(int64_t n) { return {Kind::id, n, {-77}, true}; }
Array changed(Array a) { return a.out = true, a; }
Array ids(std::vector<double> v) { return {Kind::id, static_cast<int64_t>(v.size()), v}; }
Array ids_below(int64_t n, int64_t limit) {
  std::vector<double> v(static_cast<size_t>(n));
  for (double& x : v) x = static_cast<double>(engine() % static_cast<uint64_t>(limit));
  return ids(v);
}
Array raw(std::vector<uint64_t> words) {
  const int64_t n = static_cast<int64_t>(words.size());
  return {Kind::raw, n, {0}, false, words};
}
uint64_t word(double x) { return std::bit_cast<uint64_t>(x); }

template <class T>
double rounded(double x) {
  if constexpr (std::is_same_v<T, bf16>) return static_cast<float>(bf16(static_cast<float>(x)));
  return static_cast<float>(x);
}

// The arrays of a case in the CPU's memory, as numbers of type T (f32 or f64), rounded to G before.
template <class T, class G>
struct OnCpu {
  using Type = T;
  std::vector<std::vector<T>> numbers;
  std::vector<std::vector<Id>> id_arrays;
  std::vector<std::vector<double>> doubles;
  std::vector<std::vector<uint64_t>> raws;

  explicit OnCpu(const std::vector<Array>& arrays) {
    const size_t count = arrays.size();
    numbers.resize(count), id_arrays.resize(count), doubles.resize(count), raws.resize(count);
    for (size_t a = 0; a < count; ++a)
      for (int64_t i = 0; i < arrays[a].n; ++i) switch (arrays[a].kind) {
          case Kind::type: numbers[a].push_back(static_cast<T>(rounded<G>(arrays[a].at(i)))); break;
          case Kind::wide:
            numbers[a].push_back(static_cast<T>(rounded<float>(arrays[a].at(i))));
            break;
          case Kind::id: id_arrays[a].push_back(static_cast<Id>(arrays[a].at(i))); break;
          case Kind::number: doubles[a].push_back(arrays[a].at(i)); break;
          case Kind::raw: raws[a].push_back(arrays[a].words[static_cast<size_t>(i)]); break;
        }
  }
  T* t(int a) { return numbers[static_cast<size_t>(a)].data(); }
  T* w(int a) { return t(a); }
  Id* id(int a) { return id_arrays[static_cast<size_t>(a)].data(); }
  double* d(int a) { return doubles[static_cast<size_t>(a)].data(); }
  void* raw(int a) { return raws[static_cast<size_t>(a)].data(); }
  double value(const std::vector<Array>& arrays, size_t a, int64_t i) const {
    const size_t at = static_cast<size_t>(i);
    switch (arrays[a].kind) {
      case Kind::id: return id_arrays[a][at];
      case Kind::number: return doubles[a][at];
      default: return static_cast<double>(numbers[a][at]);
    }
  }
};

// The same in the GPU's memory, each between guards and `shift` numbers off a 256-byte border.
template <class T>
struct OnGpu {
  using Type = T;
  struct Place {
    char* block = nullptr;
    int64_t size = 0, before = 0, bytes = 0;  // of a number; before the array; of the array
  };
  std::vector<Place> places;
  int64_t shift;

  OnGpu(const std::vector<Array>& arrays, int64_t off) : shift(off) {
    for (const Array& a : arrays) {
      Place p;
      p.size = a.kind == Kind::type                         ? int64_t{sizeof(T)}
               : a.kind == Kind::wide || a.kind == Kind::id ? 4
                                                            : 8;
      const bool moves = a.kind == Kind::type || a.kind == Kind::wide;
      p.before = (kGuard + (moves ? shift : 0)) * p.size;
      p.bytes = a.n * p.size;
      check(cudaMalloc(reinterpret_cast<void**>(&p.block),
                       static_cast<size_t>(p.before + p.bytes + kGuard * p.size)),
            "cudaMalloc");
      places.push_back(p);
    }
    set(arrays);
  }
  ~OnGpu() {
    for (const Place& p : places) cudaFree(p.block);
  }
  OnGpu(const OnGpu&) = delete;

  static void put(const Array& a, int64_t i, char* to) {
    const double x = a.kind == Kind::raw ? 0 : a.at(i);
    if (a.kind == Kind::type && sizeof(T) == 2) {
      const bf16 y(static_cast<float>(x));
      std::memcpy(to, &y, 2);
    } else if (a.kind == Kind::type || a.kind == Kind::wide) {
      const float y = static_cast<float>(x);
      std::memcpy(to, &y, 4);
    } else if (a.kind == Kind::id) {
      const Id y = static_cast<Id>(x);
      std::memcpy(to, &y, 4);
    } else if (a.kind == Kind::number) {
      std::memcpy(to, &x, 8);
    } else {
      std::memcpy(to, &a.words[static_cast<size_t>(i)], 8);
    }
  }
  void set(const std::vector<Array>& arrays) {
    for (size_t a = 0; a < arrays.size(); ++a) {
      const Place& p = places[a];
      check(cudaMemset(p.block, 0x5A, static_cast<size_t>(p.before + p.bytes + kGuard * p.size)),
            "cudaMemset");
      const int64_t period =
          arrays[a].kind == Kind::raw
              ? arrays[a].n
              : std::min(arrays[a].n, static_cast<int64_t>(arrays[a].pattern.size()));
      if (arrays[a].n == 0) continue;
      std::vector<char> host(static_cast<size_t>(period * p.size));
      for (int64_t i = 0; i < period; ++i) put(arrays[a], i, host.data() + i * p.size);
      if (period < 4096 && arrays[a].n > period) {  // a short pattern: written out
        host.resize(static_cast<size_t>(p.bytes));
        for (int64_t i = period * p.size; i < p.bytes; ++i)
          host[static_cast<size_t>(i)] = host[static_cast<size_t>(i - period * p.size)];
      }
      const int64_t step = static_cast<int64_t>(host.size());
      for (int64_t at = 0; at < p.bytes; at += step)
        check(cudaMemcpy(p.block + p.before + at, host.data(),
                         static_cast<size_t>(std::min(step, p.bytes - at)), cudaMemcpyHostToDevice),
              "cudaMemcpy");
    }
    check(cudaDeviceSynchronize(), "setting the arrays");  // our stream does not wait for these
  }
  template <class P>
  P* at(int a) {
    const Place& p = places[static_cast<size_t>(a)];
    return reinterpret_cast<P*>(p.block + p.before);
  }
  T* t(int a) { return at<T>(a); }
  Wide<T>* w(int a) { return at<Wide<T>>(a); }
  Id* id(int a) { return at<Id>(a); }
  double* d(int a) { return at<double>(a); }
  void* raw(int a) { return at<void>(a); }

  // The whole block, guards included.
  std::vector<char> bytes(size_t a) const {
    const Place& p = places[a];
    std::vector<char> host(static_cast<size_t>(p.before + p.bytes + kGuard * p.size));
    check(cudaMemcpy(host.data(), p.block, host.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }
  double value(const std::vector<Array>& arrays, size_t a, const std::vector<char>& host,
               int64_t i) const {
    const char* from = host.data() + places[a].before + i * places[a].size;
    if (arrays[a].kind == Kind::type && sizeof(T) == 2) {
      bf16 y;
      std::memcpy(&y, from, 2);
      return static_cast<float>(y);
    }
    if (arrays[a].kind == Kind::id) {
      Id y;
      std::memcpy(&y, from, 4);
      return y;
    }
    if (arrays[a].kind == Kind::number) {
      double y;
      std::memcpy(&y, from, 8);
      return y;
    }
    float y;
    std::memcpy(&y, from, 4);
    return y;
  }
  bool guarded(size_t a, const std::vector<char>& host) const {
    const Place& p = places[a];
    const auto whole = [](char c) { return c == 0x5A; };
    return std::all_of(host.begin(), host.begin() + p.before, whole) &&
           std::all_of(host.begin() + p.before + p.bytes, host.end(), whole);
  }
};

// ---- cases

struct Options {
  bool exact = false;      // the bits of the CPU's f32 body, rounded to the type
  bool each = false;       // errors are relative to each number, not to the largest
  bool only_time = false;  // too large for a reference
  int64_t shift = 0;
  double bytes = 0,
         flops = 0;  // of one run; bytes with numbers of 4 (bf16: their `half` share halved)
  double half = 1;   // share of the bytes that are numbers of type T
};

// Runs a graph of ten runs, 20 times; returns the median of a run in microseconds.
template <class Run>
double microseconds(Run run) {
  constexpr int kRuns = 10;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < kRuns; ++i) run();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < 23; ++i) {
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(exec, stream), "graph");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "graph");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i >= 3) times.push_back(ms);
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10] * 1e3 / kRuns;
}

struct Errors {
  double absolute = 0, relative = 0, scale = 0;
  bool special = true;  // NaN and infinities stand where they should
  void add(double x, double reference) {
    if (std::isnan(reference) || std::isinf(reference)) {
      special = special && (std::isnan(reference) ? std::isnan(x) : x == reference);
      return;
    }
    const double error = std::abs(x - reference);
    special = special && !std::isnan(x);
    absolute = std::max(absolute, error);
    relative = std::max(relative, error / std::max(std::abs(reference), 1e-30));
    scale = std::max(scale, std::abs(reference));
  }
};

void report(bool good, const std::string& line) {
  std::printf("%s %s\n", good ? "PASS" : "FAIL", line.c_str());
  std::fflush(stdout);
  ++(good ? passed : failed);
}

std::string format(const char* text, auto... values) {
  char line[400];
  std::snprintf(line, sizeof line, text, values...);
  return line;
}

template <class T, class Make>
void one_case(const std::string& name, const std::vector<Array>& arrays, Make make,
              const Options& o) {
  const bool half = std::is_same_v<T, bf16>;
  const std::string title = name + (half ? " bf16" : " f32") + (o.shift ? " shifted" : "");
  int64_t total = 0;
  for (const Array& a : arrays) total += a.n;
  if (title.find(wanted) == std::string::npos || (o.shift && total > 3'000'000)) return;
  try {
    OnGpu<T> gpu(arrays, o.shift);
    const auto run_gpu = [&] { run(Cuda{stream}, make(gpu)); };
    run_gpu();
    check(cudaStreamSynchronize(stream), "the run");
    if (!o.only_time) {
      std::vector<std::vector<char>> first;
      for (size_t a = 0; a < arrays.size(); ++a) first.push_back(gpu.bytes(a));
      gpu.set(arrays);
      run_gpu();
      check(cudaStreamSynchronize(stream), "the second run");
      OnCpu<double, T> exact(arrays);
      OnCpu<float, T> single(arrays);
      run(Cpu{}, make(exact));
      run(Cpu{}, make(single));
      bool same = true, guards = true, good = true;
      std::string worst;
      double worst_share = -1;
      for (size_t a = 0; a < arrays.size(); ++a) {
        same = same && gpu.bytes(a) == first[a];
        guards = guards && gpu.guarded(a, first[a]);
        if (arrays[a].kind == Kind::raw) continue;
        const bool stored_half = half && arrays[a].kind == Kind::type;
        Errors mine, cpus;
        for (int64_t i = 0; i < arrays[a].n; ++i) {
          const double x = gpu.value(arrays, a, first[a], i), y = single.value(arrays, a, i);
          if (!arrays[a].out || o.exact || arrays[a].kind == Kind::id)
            mine.add(x, stored_half ? rounded<T>(y) : y);
          else
            mine.add(x, exact.value(arrays, a, i));
          cpus.add(y, exact.value(arrays, a, i));
        }
        double allowed = 0;
        if (arrays[a].out && !o.exact && arrays[a].kind != Kind::id)
          allowed = 2 * (o.each ? cpus.relative : cpus.absolute) +
                    (stored_half ? 2 * 0x1p-9 : 4 * 0x1p-24) * (o.each ? 1 : mine.scale);
        const double error = o.each ? mine.relative : mine.absolute;
        const bool fits = mine.special && error <= allowed;
        good = good && fits;
        const double share = !fits ? 1e9 : allowed > 0 ? error / allowed : 0;
        if (arrays[a].out && share > worst_share) {
          worst_share = share;
          worst =
              format("array %d: abs %.2e rel %.2e, CPU f32 abs %.2e rel %.2e, allowed %s %.2e%s",
                     int(a), mine.absolute, mine.relative, cpus.absolute, cpus.relative,
                     o.each ? "rel" : "abs", allowed, mine.special ? "" : ", NaN or inf differ");
        } else if (!fits) {
          worst += format("; array %d must not change", int(a));
        }
      }
      report(good && same && guards, title + "  " + worst + (same ? "" : ", TWO RUNS DIFFER") +
                                         (guards ? "" : ", WROTE BESIDE AN ARRAY"));
    }
    if (timing && o.bytes > 0) {
      const double us = microseconds(run_gpu);
      const double bytes = o.bytes * (half ? 1 - o.half / 2 : 1);
      std::printf("TIME %-58s %9.2f us  %9.3f MB  %5.1f%% of 4.8 TB/s", title.c_str(), us,
                  bytes / 1e6, bytes / us / 4.8e6 * 100);
      if (o.flops > 0) std::printf("  %5.1f%% of 67 TFLOP/s", o.flops / us / 67e6 * 100);
      std::printf("\n");
    }
  } catch (const std::exception& error) {
    report(false, title + "  " + error.what());
    if (cudaDeviceSynchronize() != cudaSuccess) {
      std::printf("the GPU is lost after this: %s\n", cudaGetErrorString(cudaGetLastError()));
      std::printf("%d passed, %d failed\n", passed, failed);
      std::exit(1);
    }
  }
}

// `make(m)` is the kernel with the arrays of m.
template <class Make>
void f32_case(const std::string& name, const std::vector<Array>& arrays, Make make,
              Options o = {}) {
  one_case<float>(name, arrays, make, o);
}
template <class Make>
void both_cases(const std::string& name, const std::vector<Array>& arrays, Make make,
                Options o = {}) {
  one_case<float>(name, arrays, make, o);
  one_case<bf16>(name, arrays, make, o);
}
#define TYPE(m) typename std::remove_reference_t<decltype(m)>::Type

std::string shape(std::initializer_list<int64_t> sizes) {
  std::string text = " [";
  for (int64_t s : sizes) text += (text.size() > 2 ? ", " : "") + std::to_string(s);
  return text + "]";
}

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
  // Backwards: the pointers stand at the last number.
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
        run(Cuda{stream}, to);
        run(Cuda{stream}, from);
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
            const double us =
                microseconds([&] { way ? run(Cuda{stream}, from) : run(Cuda{stream}, to); });
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

// A decoder's memory: two arrays in one launch, in place and into another room, then one position
// more.
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
        const int64_t g = gate_count(cell), kept = kept_gates(cell), far = n + 3;
        Array alive = ids_below(rows, 2);
        f32_case(
            std::string("cell_step ") + names[int(cell)] + (live ? " live" : "") + shape({rows, n}),
            {in(rows * g * n), in(rows * g * n), in(rows * far), in(rows * n), alive,
             changed(in(rows * far)), changed(in(rows * n)), changed(in(rows * kept * n))},
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
                                       .gates_row = kept * n};
            },
            {.bytes = rows >= 64 && live ? 4.0 * double(rows * n * (2 * g + kept + 4)) : 0});
        Array gates = in(rows * kept * n);
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
                                             .gates_row = kept * n,
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
                   rows >= 64 && live && more ? 4.0 * double(rows * n * (2 * g + kept + 6)) : 0});
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
