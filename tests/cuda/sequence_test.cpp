// The GPU's recurrent cells over whole sequences against the CPU's steps, and their times.
//
//   sequence_test [--time] [part of a name]
//
// The CPU runs CellStep and CellStepGrad with plain loops for the products, and two things are
// asked of every array.
//   As a whole: the error against a run in f64 is at most twice that of a run in f32 whose products
//   take operands rounded to tf32, as the GPU rounds them, and 4 roundings of f32 at the scale of
//   the array. (The error of a run in plain f32 stands beside it.) That is wide beside what a slip
//   in a few terms would make, so also
//   step by step: each step in f64 and in f32 from what the GPU had before it, with operands
//   rounded to tf32. The error against the former is at most twice the latter's and 4 roundings.
// Two runs and a run as a CUDA graph must give the same bits and leave what lies around the arrays
// alone.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/kernels/kernels.h"
#include "tests/compare.h"
#include "tests/cuda/on_stream.h"
#include "tests/cuda/timing.h"

using namespace heed;
using namespace heed::kernels;

namespace {

std::string format(const char* text, auto... values) {
  char line[400];
  std::snprintf(line, sizeof line, text, values...);
  return line;
}
void report(bool good, const std::string& line) {
  std::printf("%s %s\n", good ? "PASS" : "FAIL", line.c_str());
  std::fflush(stdout);
  ++(good ? passed : failed);
}

size_t size(int64_t n) { return static_cast<size_t>(n); }

// ---- cases

struct Case {
  const char* name;
  Cell cell;
  int64_t rows, length, n;
  int parts;
  bool ragged = false;
  bool first_backward = false;  // else the first part runs forward; the second always backward

  int64_t gates() const { return gate_count(cell); }
  int64_t saved() const { return saved_gates(cell); }
  bool lstm() const { return cell == Cell::lstm; }
  bool gru() const { return cell == Cell::gru; }
  bool backward(int part) const { return part == 1 || first_backward; }
};

std::mt19937 engine(7);
std::vector<float> normal(int64_t n, double scale) {
  std::normal_distribution<double> d(0, scale);
  std::vector<float> x(size(n));
  for (float& v : x) v = static_cast<float>(d(engine));
  return x;
}

struct Inputs {
  std::vector<float> x, u, bias, h0, c0, dh, dc;  // dh and dc: [rows, length, n]
};
Inputs inputs(const Case& k) {
  const int64_t width = k.gates() * k.n, states = k.rows * k.length * k.n;
  return {.x = normal(k.rows * k.length * width, 1),
          .u = normal(k.n * width, 1 / std::sqrt(double(k.n))),
          .bias = normal(width, 0.3),
          .h0 = normal(k.rows * k.n, 0.5),
          .c0 = normal(k.lstm() ? k.rows * k.n : 0, 0.5),
          .dh = normal(states, 1),
          .dc = normal(k.lstm() ? states : 0, 1)};
}
std::vector<Id> live_of(const Case& k) {
  std::vector<Id> live;
  std::mt19937 random(3);
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < k.rows; ++i)
    lengths.push_back(static_cast<int64_t>(random() % size(k.length + 1)));
  if (k.ragged)
    for (int64_t t = 0; t < k.length; ++t)
      for (const int64_t length : lengths) live.push_back(t < length);
  return live;
}

// What comes out of one part, [rows, length, ..] or [rows, n].
constexpr const char* kNames[] = {"h", "c", "gates", "dx", "du", "dh0", "dc0"};
template <class T>
using Outputs = std::vector<std::vector<T>>;
std::vector<int64_t> output_sizes(const Case& k) {
  const int64_t states = k.rows * k.length * k.n, row = k.rows * k.n;
  return {states,
          k.lstm() ? states : 0,
          states * k.saved(),
          states * k.gates(),
          k.gru() ? states * k.gates() : 0,
          row,
          k.lstm() ? row : 0};
}

// ---- on the CPU, step by step

// To 10 bits after the point, ties away from zero: cvt.rna.tf32.
float tf32(float x) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000u) & 0xFFFFE000u);
}
// Is it within 16 roundings of f32 of a tie?
bool nearly_tied(float x) {
  return std::abs(static_cast<int>(std::bit_cast<uint32_t>(x) & 0x1FFFu) - 0x1000) <= 16;
}
std::atomic<int> ties = 0;  // states and gradients that were, since it was set to 0
template <class T>
std::vector<T> as(const std::vector<float>& x, bool rounded = false) {
  std::vector<T> y;
  for (const float v : x) y.push_back(static_cast<T>(rounded ? tf32(v) : v));
  return y;
}

// c (rows apart by c_row) += a [rows, k] b [k, n].
template <class T>
void product(int64_t rows, int64_t k, int64_t n, const T* a, int64_t a_row, const T* b, T* c,
             int64_t c_row, bool rounded) {
  parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t p = 0; p < k; ++p) {
        T x = a[i * a_row + p];
        if (rounded) {
          ties += nearly_tied(static_cast<float>(x));
          x = static_cast<T>(tf32(static_cast<float>(x)));
        }
        const T* right = b + p * n;
        T* out = c + i * c_row;
        for (int64_t j = 0; j < n; ++j) out[j] += x * right[j];
      }
  });
}

// With `given`, outputs of an earlier run, every step begins from what that run had before it.
template <class T>
Outputs<T> on_cpu(const Case& k, int part, const Inputs& in, const std::vector<Id>& live,
                  bool rounded, const Outputs<float>* given = nullptr) {
  const int64_t n = k.n, rows = k.rows, width = k.gates() * n, saved = k.saved() * n;
  const int64_t state_row = k.length * n, x_row = k.length * width, saved_row = k.length * saved;
  const std::vector<T> x = as<T>(in.x), u = as<T>(in.u, rounded), bias = as<T>(in.bias);
  const std::vector<T> h0 = as<T>(in.h0), c0 = as<T>(in.c0), dh_all = as<T>(in.dh),
                       dc_all = as<T>(in.dc);
  std::vector<T> transposed(u.size());  // [width, n]
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < width; ++j) transposed[size(j * n + i)] = u[size(i * width + j)];
  Outputs<T> out;
  for (const int64_t count : output_sizes(k)) out.emplace_back(size(count));
  const auto time = [&](int64_t step) { return k.backward(part) ? k.length - 1 - step : step; };
  const auto live_at = [&](int64_t t) { return k.ragged ? live.data() + t * rows : nullptr; };
  T *h = out[0].data(), *c = out[1].data(), *gates = out[2].data(), *dx = out[3].data();
  T* du = k.gru() ? out[4].data() : dx;
  // What a step reads of other steps and of the forward pass.
  Outputs<T> earlier;
  if (given)
    for (const std::vector<float>& a : *given) earlier.push_back(as<T>(a));
  const T *old_h = given ? earlier[0].data() : h, *old_c = given ? earlier[1].data() : c;
  const T* old_gates = given ? earlier[2].data() : gates;
  const T* old_du = given ? earlier[k.gru() ? 4 : 3].data() : du;
  std::vector<T> u_part(size(rows * width));
  for (int64_t step = 0; step < k.length; ++step) {
    const int64_t t = time(step);
    const bool first = step == 0;
    const T* h_before = first ? h0.data() : old_h + time(step - 1) * n;
    const int64_t before_row = first ? n : state_row;
    for (int64_t i = 0; i < rows; ++i) std::copy_n(bias.data(), width, u_part.data() + i * width);
    product(rows, n, width, h_before, before_row, u.data(), u_part.data(), width, rounded);
    run(Cpu{}, CellStep<T>{.cell = k.cell,
                           .rows = rows,
                           .n = n,
                           .x = x.data() + t * width,
                           .x_row = x_row,
                           .u = u_part.data(),
                           .u_row = width,
                           .h = h_before,
                           .h_row = before_row,
                           .c = !k.lstm() ? nullptr
                                : first   ? c0.data()
                                          : old_c + time(step - 1) * n,
                           .c_row = before_row,
                           .live = live_at(t),
                           .h_new = h + t * n,
                           .h_new_row = state_row,
                           .c_new = k.lstm() ? c + t * n : nullptr,
                           .c_new_row = state_row,
                           .gates = gates + t * saved,
                           .gates_row = saved_row});
  }
  std::vector<T> dh(size(rows * n)), dc(size(rows * n)), dh_new(dh), dc_new(dh);
  for (int64_t step = k.length - 1; step >= 0; --step) {
    const int64_t t = time(step);
    const bool first = step == 0;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const size_t at = size(i * n + j), all = size(i * state_row + t * n + j);
        dh_new[at] = dh_all[all] + dh[at];
        if (k.lstm()) dc_new[at] = dc_all[all] + dc[at];
      }
    run(Cpu{}, CellStepGrad<T>{.cell = k.cell,
                               .rows = rows,
                               .n = n,
                               .gates = old_gates + t * saved,
                               .gates_row = saved_row,
                               .h = first ? h0.data() : old_h + time(step - 1) * n,
                               .h_row = first ? n : state_row,
                               .c = !k.lstm() ? nullptr
                                    : first   ? c0.data()
                                              : old_c + time(step - 1) * n,
                               .c_new = k.lstm() ? old_c + t * n : nullptr,
                               .c_row = first ? n : state_row,
                               .c_new_row = state_row,
                               .live = live_at(t),
                               .dh_new = dh_new.data(),
                               .dh_new_row = n,
                               .dc_new = k.lstm() ? dc_new.data() : nullptr,
                               .dc_new_row = n,
                               .dx = dx + t * width,
                               .dx_row = x_row,
                               .du = k.gru() ? du + t * width : nullptr,
                               .du_row = x_row,
                               .dh = dh.data(),
                               .dh_row = n,
                               .dc = k.lstm() ? dc.data() : nullptr,
                               .dc_row = n});
    product(rows, width, n, old_du + t * width, x_row, transposed.data(), dh.data(), n, rounded);
  }
  out[5] = dh;
  if (k.lstm()) out[6] = dc;
  return out;
}

// Inputs of all parts. Which way a number next to a tie goes is up to the last bit of what it came
// from. Among a few numbers a single one that goes the other way counts: they are drawn again.
std::vector<Inputs> draw(const Case& k) {
  const auto once = [&] {
    std::vector<Inputs> in;
    for (int part = 0; part < k.parts; ++part) in.push_back(inputs(k));
    return in;
  };
  std::vector<Inputs> in = once();
  const std::mt19937 after = engine;  // all other cases have the same numbers
  const auto tied = [&] {
    ties = 0;
    for (int part = 0; part < k.parts; ++part)
      on_cpu<float>(k, part, in[size(part)], live_of(k), true);
    return ties > 0;
  };
  while (k.rows * k.length == 1 && tied()) in = once();
  engine = after;
  return in;
}

// ---- on the GPU

constexpr int64_t kGuard = 64;  // elements before and after an array: 256 bytes

// An array between guards, freed at the end.
class Array {
 public:
  Array(int64_t n) : n_(n), bytes_(size(n + 2 * kGuard) * 4) {
    if (n == 0) return;
    check(cudaMalloc(reinterpret_cast<void**>(&block_), bytes_), "cudaMalloc");
    clear();
  }
  ~Array() { cudaFree(block_); }
  Array(Array&& other) noexcept : n_(other.n_), bytes_(other.bytes_), block_(other.block_) {
    other.block_ = nullptr;
  }
  Array& operator=(Array&&) = delete;

  void clear() {
    if (block_) check(cudaMemset(block_, 0x5A, bytes_), "cudaMemset");
  }
  void set(const void* from) {
    if (block_) check(cudaMemcpy(data(), from, size(n_) * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  float* data() const { return block_ ? block_ + kGuard : nullptr; }
  std::vector<float> whole() const {
    std::vector<float> host(block_ ? bytes_ / 4 : 0);
    if (block_)
      check(cudaMemcpy(host.data(), block_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return host;
  }

 private:
  int64_t n_;
  size_t bytes_;
  float* block_ = nullptr;
};

bool guarded(const std::vector<float>& whole) {
  const auto intact = [](float x) { return std::bit_cast<uint32_t>(x) == 0x5A5A5A5Au; };
  return std::all_of(whole.begin(), whole.begin() + std::min<int64_t>(kGuard, std::ssize(whole)),
                     intact) &&
         std::all_of(whole.end() - std::min<int64_t>(kGuard, std::ssize(whole)), whole.end(),
                     intact);
}

// All arrays of a case: the parts' states side by side, everything else by part.
struct OnGpu {
  Case k;
  std::vector<Array> in, out;  // out: h and c of all parts, then by part gates dx du dh0 dc0
  Array live;
  int64_t state_row, states;

  explicit OnGpu(const Case& given)
      : k(given),
        live(given.ragged ? given.rows * given.length : 0),
        state_row(given.parts * given.n),
        states(given.rows * given.length * state_row) {
    const int64_t width = k.gates() * k.n, row = k.rows * k.n, all = k.rows * k.length;
    for (const int64_t n : {states, k.lstm() ? states : 0}) in.emplace_back(n), out.emplace_back(n);
    for (int part = 0; part < k.parts; ++part) {
      for (const int64_t n : {all * width, k.n * width, width, row, k.lstm() ? row : 0})
        in.emplace_back(n);
      for (const int64_t n :
           {all * k.saved() * k.n, all * width, k.gru() ? all * width : 0, row, k.lstm() ? row : 0})
        out.emplace_back(n);
    }
  }
  // Numbers of one part into the states side by side.
  void spread(const std::vector<float>& from, int part, std::vector<float>& to) const {
    for (size_t i = 0; i < from.size(); ++i) to[index(i, part)] = from[i];
  }
  size_t index(size_t i, int part) const {
    return i / size(k.n) * size(state_row) + size(part * k.n) + i % size(k.n);
  }
  void set(const std::vector<Inputs>& parts, const std::vector<Id>& alive) {
    std::vector<float> dh(size(states)), dc(size(k.lstm() ? states : 0));
    for (int part = 0; part < k.parts; ++part) {
      const Inputs& p = parts[size(part)];
      spread(p.dh, part, dh);
      if (k.lstm()) spread(p.dc, part, dc);
      const size_t at = 2 + 5 * size(part);
      in[at].set(p.x.data()), in[at + 1].set(p.u.data()), in[at + 2].set(p.bias.data());
      in[at + 3].set(p.h0.data()), in[at + 4].set(p.c0.data());
    }
    in[0].set(dh.data()), in[1].set(dc.data()), live.set(alive.data());
  }
  CellSequence<float> forward() const {
    CellSequence<float> s{.cell = k.cell,
                          .rows = k.rows,
                          .length = k.length,
                          .n = k.n,
                          .state_row = state_row,
                          .live = reinterpret_cast<const Id*>(live.data()),
                          .parts = k.parts,
                          .part = {}};
    for (int part = 0; part < k.parts; ++part) {
      const size_t at = 2 + 5 * size(part);
      s.part[part] = {.backward = k.backward(part),
                      .x = in[at].data(),
                      .u = in[at + 1].data(),
                      .bias = in[at + 2].data(),
                      .h0 = in[at + 3].data(),
                      .c0 = in[at + 4].data(),
                      .h = out[0].data() + part * k.n,
                      .c = k.lstm() ? out[1].data() + part * k.n : nullptr,
                      .gates = out[at].data()};
    }
    return s;
  }
  CellSequenceGrad<float> grad() const {
    CellSequenceGrad<float> s{.cell = k.cell,
                              .rows = k.rows,
                              .length = k.length,
                              .n = k.n,
                              .state_row = state_row,
                              .live = reinterpret_cast<const Id*>(live.data()),
                              .parts = k.parts,
                              .part = {}};
    for (int part = 0; part < k.parts; ++part) {
      const size_t at = 2 + 5 * size(part);
      s.part[part] = {.backward = k.backward(part),
                      .u = in[at + 1].data(),
                      .h0 = in[at + 3].data(),
                      .c0 = in[at + 4].data(),
                      .h = out[0].data() + part * k.n,
                      .c = k.lstm() ? out[1].data() + part * k.n : nullptr,
                      .gates = out[at].data(),
                      .dh = in[0].data() + part * k.n,
                      .dc = k.lstm() ? in[1].data() + part * k.n : nullptr,
                      .dx = out[at + 1].data(),
                      .du = out[at + 2].data(),
                      .dh0 = out[at + 3].data(),
                      .dc0 = out[at + 4].data()};
    }
    return s;
  }
  bool fits() const {
    return kernels::fits(on_stream(stream), forward()) && kernels::fits(on_stream(stream), grad());
  }
  void run_both() const {
    run(on_stream(stream), forward());
    run(on_stream(stream), grad());
  }
  // Everything that came out, guards included, from arrays that held nothing before.
  template <class Run>
  std::vector<std::vector<float>> results(Run run) {
    for (Array& a : out) a.clear();
    check(cudaDeviceSynchronize(), "clearing");  // our stream does not wait for it
    run();
    check(cudaStreamSynchronize(stream), "the run");
    std::vector<std::vector<float>> host;
    for (const Array& a : out) host.push_back(a.whole());
    return host;
  }
};

bool same_bits(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].size() != b[i].size() || std::memcmp(a[i].data(), b[i].data(), a[i].size() * 4) != 0)
      return false;
  return true;
}

// Errors against a reference.
struct Errors {
  double most = 0, scale = 0;
  bool finite = true;
  void add(double x, double reference) {
    finite = finite && std::isfinite(x) && std::isfinite(reference);
    most = std::max(most, difference(reference, x));
    scale = std::max(scale, std::abs(reference));
  }
};

Errors errors(const std::vector<float>& x, const std::vector<double>& reference) {
  Errors all;
  for (size_t i = 0; i < x.size(); ++i) all.add(x[i], reference[i]);
  return all;
}

// After an error on the GPU nothing more can be said.
void stop_if_lost() {
  if (cudaDeviceSynchronize() == cudaSuccess) return;
  std::printf("the GPU is lost after this: %s\n", cudaGetErrorString(cudaGetLastError()));
  std::printf("%d passed, %d failed\n", passed, failed);
  std::exit(1);
}

std::string title_of(const Case& k) {
  return format("%s, rows %d, length %d, n %d, parts %d%s", k.name, int(k.rows), int(k.length),
                int(k.n), k.parts, k.ragged ? ", ragged" : "");
}

void test(const Case& k) {
  const std::string title = title_of(k);
  if (title.find(wanted) == std::string::npos) return;
  try {
    const std::vector<Inputs> in = draw(k);
    const std::vector<Id> live = live_of(k);
    OnGpu gpu(k);
    gpu.set(in, live);
    if (!gpu.fits()) {
      if (!std::getenv("HEED_CUDA_LIKE")) return report(false, title + "  does not fit");
      std::printf("LEFT %s: to the steps\n", title.c_str());
      return;
    }
    const auto once = gpu.results([&] { gpu.run_both(); });
    const bool same = same_bits(once, gpu.results([&] { gpu.run_both(); }));
    const cudaGraphExec_t graph = captured(2, [&] { gpu.run_both(); });
    const bool as_graph =
        same_bits(once, gpu.results([&] { check(cudaGraphLaunch(graph, stream), "the graph"); }));
    cudaGraphExecDestroy(graph);
    const bool guards = std::all_of(once.begin(), once.end(), guarded);
    bool good = true;
    std::string line;
    for (int part = 0; part < k.parts; ++part) {
      const Inputs& p = in[size(part)];
      // h and c stand side by side with the other part's.
      Outputs<float> mine;
      for (const int64_t count : output_sizes(k)) {
        const size_t a = mine.size();
        const std::vector<float>& from = once[a < 2 ? a : a + 5 * size(part)];
        std::vector<float>& to = mine.emplace_back(size(count));
        for (size_t i = 0; i < to.size(); ++i)
          to[i] = from[size(kGuard) + (a < 2 ? gpu.index(i, part) : i)];
      }
      // Says of all arrays the one that is nearest to what is allowed.
      const auto compare = [&](const char* how, const Outputs<double>& exact,
                               const Outputs<float>& cpu) {
        std::string worst;
        double worst_share = -1;
        for (size_t a = 0; a < exact.size(); ++a) {
          const Errors ours = errors(mine[a], exact[a]), cpus = errors(cpu[a], exact[a]);
          const double allowed = 2 * cpus.most + 4 * 0x1p-24 * ours.scale;
          const bool fine = ours.finite && cpus.finite && ours.most <= allowed;
          good = good && fine;
          const double share = !fine ? 1e9 : ours.most / (allowed + 1e-30);
          if (exact[a].empty() || share <= worst_share) continue;
          worst_share = share;
          worst = format("; %s, part %d %s: error %.2e, CPU tf32 %.2e, allowed %.2e", how, part,
                         kNames[a], ours.most, cpus.most, allowed);
        }
        line += worst;
      };
      const Outputs<double> exact = on_cpu<double>(k, part, p, live, false);
      compare("whole", exact, on_cpu<float>(k, part, p, live, true));
      line += format(", h in plain f32 %.2e",
                     errors(on_cpu<float>(k, part, p, live, false)[0], exact[0]).most);
      compare("by step", on_cpu<double>(k, part, p, live, true, &mine),
              on_cpu<float>(k, part, p, live, true, &mine));
    }
    report(good && same && as_graph && guards, title + line + (same ? "" : ", TWO RUNS DIFFER") +
                                                   (as_graph ? "" : ", THE GRAPH DIFFERS") +
                                                   (guards ? "" : ", WROTE BESIDE AN ARRAY"));
  } catch (const std::exception& error) {
    report(false, title + "  " + error.what());
    stop_if_lost();
  }
}

// What must be left to the steps. No memory: fits() looks at sizes and addresses alone.
void does_not_fit(const char* why, Cell cell, int64_t rows, int64_t n, int64_t off = 0,
                  int64_t length = 4) {
  const std::string title = std::string("does not fit: ") + why;
  if (title.find(wanted) == std::string::npos) return;
  float* const at = reinterpret_cast<float*>(4096 + 4 * off);
  const CellSequence<float> forward{.cell = cell,
                                    .rows = rows,
                                    .length = length,
                                    .n = n,
                                    .state_row = n,
                                    .live = nullptr,
                                    .parts = 1,
                                    .part = {{.backward = false,
                                              .x = at,
                                              .u = at,
                                              .bias = at,
                                              .h0 = at,
                                              .c0 = at,
                                              .h = at,
                                              .c = at,
                                              .gates = at},
                                             {}}};
  const CellSequenceGrad<float> grad{.cell = cell,
                                     .rows = rows,
                                     .length = length,
                                     .n = n,
                                     .state_row = n,
                                     .live = nullptr,
                                     .parts = 1,
                                     .part = {{.backward = false,
                                               .u = at,
                                               .h0 = at,
                                               .c0 = at,
                                               .h = at,
                                               .c = at,
                                               .gates = at,
                                               .dh = at,
                                               .dc = at,
                                               .dx = at,
                                               .du = at,
                                               .dh0 = at,
                                               .dc0 = at},
                                              {}}};
  const bool one = fits(on_stream(stream), forward), other = fits(on_stream(stream), grad);
  bool refused = false;
  if (!one) try {
      run(on_stream(stream), forward);
    } catch (const std::exception&) {
      refused = true;
    }
  report(!one && !other && refused, title);
}

void time(const Case& k) {
  const std::string title = title_of(k);
  if (!timing || title.find(wanted) == std::string::npos) return;
  try {
    std::vector<Inputs> in;
    for (int part = 0; part < k.parts; ++part) in.push_back(inputs(k));
    OnGpu gpu(k);
    gpu.set(in, live_of(k));
    if (!gpu.fits()) return report(false, title + "  does not fit");
    gpu.run_both();
    check(cudaStreamSynchronize(stream), "the run");
    const double flops =
        2.0 * k.parts * double(k.rows) * double(k.length) * double(k.n) * double(k.gates() * k.n);
    // Read once and written once, all parts: x, h, gates; and gates, h, dh, dx (and a gru's du).
    const double each = 4.0 * k.parts * double(k.rows * k.length * k.n);
    const double moved[] = {each * double(k.gates() + 1 + k.saved()),
                            each * double(k.saved() + 2 + k.gates() * (k.gru() ? 2 : 1))};
    for (int back = 0; back < 2; ++back) {
      const double us = microseconds([&] {
        if (back)
          run(on_stream(stream), gpu.grad());
        else
          run(on_stream(stream), gpu.forward());
      });
      std::printf(
          "TIME %-58s %-8s %8.1f us, %5.2f us a step, %5.1f TFLOP/s (tf32), %5.1f%% of 4.8 "
          "TB/s\n",
          title.c_str(), back ? "back" : "forward", us, us / double(k.length), flops / us / 1e6,
          moved[back] / us / 4.8e6 * 100);
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    report(false, title + "  " + error.what());
    stop_if_lost();
  }
}

}  // namespace

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    if (std::string(arguments[i]) == "--time")
      timing = true;
    else
      wanted = arguments[i];
  }
  try {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "no stream");
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  const Cell all[] = {Cell::rnn, Cell::gru, Cell::lstm};
  const char* const names[] = {"rnn", "gru", "lstm"};
  for (int i = 0; i < 3; ++i) {
    const Cell cell = all[i];
    const char* const name = names[i];
    test({name, cell, 1, 1, 16, 1});
    test({name, cell, 5, 3, 16, 2});
    test({name, cell, 33, 7, 48, 1, true, true});  // units that do not fill a block's
    test({name, cell, 40, 6, 144, 2, true});
    test({name, cell, 64, 12, 128, 2, true});
    test({name, cell, 17, 40, 64, 1});
    test({name, cell, 128, 4, 512, 2, true});  // lstm: blocks of 64 rows and 16 units
    test({name, cell, 33, 5, 512, 1});
    test({name, cell, 20, 3, 1024, 1, true});  // lstm: blocks of 128 rows and 8 units
  }
  test({"gru", Cell::gru, 300, 3, 512, 2, true});  // more blocks than the GPU has: several launches
  test({"rnn", Cell::rnn, 70, 3, 2048, 1});
  does_not_fit("n is no multiple of 16", Cell::gru, 8, 24);
  does_not_fit("an array is not aligned", Cell::gru, 8, 64, 1);
  does_not_fit("U is too large for a block", Cell::gru, 8, 8192);
  does_not_fit("a sequence wants more blocks than the GPU has", Cell::gru, 8, 2048);
  does_not_fit("more launches than it is worth", Cell::gru, 4096, 512);
  does_not_fit("places beyond 32 bits", Cell::rnn, 128, 512, 0, 1 << 20);
  for (const int parts : {1, 2}) time({"gru", Cell::gru, 128, 25, 512, parts});
  time({"gru", Cell::gru, 128, 25, 512, 2, true});
  time({"gru", Cell::gru, 32, 25, 512, 2});
  time({"gru", Cell::gru, 128, 100, 512, 2});
  for (const int parts : {1, 2}) time({"lstm", Cell::lstm, 128, 25, 512, parts});
  time({"rnn", Cell::rnn, 128, 25, 512, 2});
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
