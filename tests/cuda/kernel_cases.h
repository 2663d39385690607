// A kernel on a GPU against the CPU's: its arrays on both, and what it may err by.
//
// Every case runs the CPU's body in f64 (the reference) and in f32, and the GPU's twice, on the
// same elements (rounded to the type first). Allowed: twice the error of the CPU's f32 body and 4
// roundings of f32 at the scale of the result (the largest element of the array; activations: each
// element); where bf16 is stored, 2 roundings of bf16 at that scale: one is the storing itself, the
// second for elements next to the border between two. What only moves or selects elements has to be
// exact. Both GPU runs must give the same bits and leave what lies around the arrays alone.
#pragma once

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
#include "tests/compare.h"
#include "tests/cuda/on_stream.h"
#include "tests/cuda/timing.h"

namespace heed::kernels {
namespace {

// ---- arrays

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kGuard = 64;  // elements before and after an array

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
[[maybe_unused]] Array in_positive(int64_t n) {
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
[[maybe_unused]] Array raw(std::vector<uint64_t> words) {
  const int64_t n = static_cast<int64_t>(words.size());
  return {Kind::raw, n, {0}, false, words};
}
[[maybe_unused]] uint64_t word(double x) { return std::bit_cast<uint64_t>(x); }

template <class T>
double rounded(double x) {
  if constexpr (std::is_same_v<T, bf16>) return static_cast<float>(bf16(static_cast<float>(x)));
  return static_cast<float>(x);
}

// The arrays of a case in the CPU's memory, as elements of type T (f32 or f64), rounded to G
// before.
template <class T, class G>
struct OnCpu {
  using Type = T;
  std::vector<std::vector<T>> elements;
  std::vector<std::vector<Id>> id_arrays;
  std::vector<std::vector<double>> doubles;
  std::vector<std::vector<uint64_t>> raws;

  explicit OnCpu(const std::vector<Array>& arrays) {
    const size_t count = arrays.size();
    elements.resize(count), id_arrays.resize(count), doubles.resize(count), raws.resize(count);
    for (size_t a = 0; a < count; ++a)
      for (int64_t i = 0; i < arrays[a].n; ++i) switch (arrays[a].kind) {
          case Kind::type:
            elements[a].push_back(static_cast<T>(rounded<G>(arrays[a].at(i))));
            break;
          case Kind::wide:
            elements[a].push_back(static_cast<T>(rounded<float>(arrays[a].at(i))));
            break;
          case Kind::id: id_arrays[a].push_back(static_cast<Id>(arrays[a].at(i))); break;
          case Kind::number: doubles[a].push_back(arrays[a].at(i)); break;
          case Kind::raw: raws[a].push_back(arrays[a].words[static_cast<size_t>(i)]); break;
        }
  }
  T* t(int a) { return elements[static_cast<size_t>(a)].data(); }
  T* w(int a) { return t(a); }
  Id* id(int a) { return id_arrays[static_cast<size_t>(a)].data(); }
  double* d(int a) { return doubles[static_cast<size_t>(a)].data(); }
  void* raw(int a) { return raws[static_cast<size_t>(a)].data(); }
  double value(const std::vector<Array>& arrays, size_t a, int64_t i) const {
    const size_t at = static_cast<size_t>(i);
    switch (arrays[a].kind) {
      case Kind::id: return id_arrays[a][at];
      case Kind::number: return doubles[a][at];
      default: return static_cast<double>(elements[a][at]);
    }
  }
};

// The same in the GPU's memory, each between guards and `shift` elements off a 256-byte border.
template <class T>
struct OnGpu {
  using Type = T;
  struct Allocation {
    char* block = nullptr;
    int64_t size = 0, before = 0, bytes = 0;  // of a number; before the array; of the array
  };
  std::vector<Allocation> allocations;
  int64_t shift;

  OnGpu(const std::vector<Array>& arrays, int64_t off) : shift(off) {
    for (const Array& a : arrays) {
      Allocation p;
      p.size = a.kind == Kind::type                         ? int64_t{sizeof(T)}
               : a.kind == Kind::wide || a.kind == Kind::id ? 4
                                                            : 8;
      const bool moves = a.kind == Kind::type || a.kind == Kind::wide;
      p.before = (kGuard + (moves ? shift : 0)) * p.size;
      p.bytes = a.n * p.size;
      check(cudaMalloc(reinterpret_cast<void**>(&p.block),
                       static_cast<size_t>(p.before + p.bytes + kGuard * p.size)),
            "cudaMalloc");
      allocations.push_back(p);
    }
    set(arrays);
  }
  ~OnGpu() {
    for (const Allocation& p : allocations) cudaFree(p.block);
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
      const Allocation& p = allocations[a];
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
    const Allocation& p = allocations[static_cast<size_t>(a)];
    return reinterpret_cast<P*>(p.block + p.before);
  }
  T* t(int a) { return at<T>(a); }
  Wide<T>* w(int a) { return at<Wide<T>>(a); }
  Id* id(int a) { return at<Id>(a); }
  double* d(int a) { return at<double>(a); }
  void* raw(int a) { return at<void>(a); }

  // The whole block, guards included.
  std::vector<char> bytes(size_t a) const {
    const Allocation& p = allocations[a];
    std::vector<char> host(static_cast<size_t>(p.before + p.bytes + kGuard * p.size));
    check(cudaMemcpy(host.data(), p.block, host.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }
  double value(const std::vector<Array>& arrays, size_t a, const std::vector<char>& host,
               int64_t i) const {
    const char* from = host.data() + allocations[a].before + i * allocations[a].size;
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
    const Allocation& p = allocations[a];
    const auto whole = [](char c) { return c == 0x5A; };
    return std::all_of(host.begin(), host.begin() + p.before, whole) &&
           std::all_of(host.begin() + p.before + p.bytes, host.end(), whole);
  }
};

// ---- cases

struct Options {
  bool exact = false;      // the bits of the CPU's f32 body, rounded to the type
  bool each = false;       // errors are relative to each element, not to the largest
  bool only_time = false;  // too large for a reference
  int64_t shift = 0;
  double bytes = 0,
         flops = 0;  // of one run; bytes with elements of 4 (bf16: their `half` share halved)
  double half = 1;   // share of the bytes that are elements of type T
};

struct Errors {
  double absolute = 0, relative = 0, scale = 0;
  bool special = true;  // NaN and infinities stand where they should
  void add(double x, double reference) {
    const double error = difference(reference, x);
    if (!std::isfinite(reference) || !std::isfinite(x)) {
      special = special && error == 0;
      return;
    }
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
    const auto run_gpu = [&] { run(on_stream(stream), make(gpu)); };
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
        const bool fits = mine.special && cpus.special && error <= allowed;
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

// A program's main: its arguments are [--time] [part of a name].
int run_parts(int argc, char** argv, std::initializer_list<void (*)()> parts) {
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
  for (const auto part : parts) part();
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}

}  // namespace
}  // namespace heed::kernels
