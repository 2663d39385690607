// Additive attention on the GPU against the CPU's in double, and its times. Usage: additive_test
// [--time] [part of a case's name]. For each case and each result: the largest error, and the same
// over the largest element; the error of the CPU's f32 body; whether two runs gave the same bits.
//
// f32 may err twice as much as the CPU's f32 body, and by 4 roundings at the scale of the result
// and of what cancels in it: a score's gradient is the difference w g.value - w g.context.
// bf16 may err by 2 roundings of bf16 (2^-8) at the scale of the result, of which it needs one,
// when it is stored. Gradients are compared with those of the context as it was stored: its
// rounding is not the gradient's.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "heed/base/random.h"
#include "heed/kernels/cuda/additive.h"
#include "heed/kernels/kernels.h"
#include "tests/compare.h"
#include "tests/cuda/on_stream.h"

using namespace heed;
using namespace heed::kernels;

namespace {

int passed = 0, failed = 0;

bool good(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return true;
  std::printf("FAIL %s: %s\n", what.c_str(), cudaGetErrorString(error));
  ++failed;
  return false;
}

enum class Range { all, ragged, window, causal, any };
enum class Bias { none, whole, one_batch, distance };

struct Case {
  std::string name;
  int64_t batch, heads, key_heads, queries, keys, size, value_size;
  Range range = Range::all;
  Bias bias = Bias::none;
  bool place = false, weights = false, add = false, back = true;
  float dropout = 0;
  double spread = 1;        // of queries and keys
  bool transposed = false;  // [B, T, H, n] in memory
  int64_t pad = 0;          // of each row: breaks alignment where it is odd
  bool nan_unseen = false, nan_seen = false, one_batch_keys = false;
  bool steps = false;  // queries one by one, and what flows to the keys at the end
};

// An array on the host in three types and on the device, all with one layout.
template <class T>
struct Array {
  std::vector<float> host;
  std::vector<double> twice;
  T* device = nullptr;
  explicit Array(int64_t count) : host(static_cast<size_t>(std::max<int64_t>(1, count))) {
    cudaMalloc(reinterpret_cast<void**>(&device), host.size() * sizeof(T));
  }
  Array(const Array&) = delete;
  ~Array() { cudaFree(device); }
  void send() {  // rounds the host's elements to T
    std::vector<T> out(host.size());
    for (size_t i = 0; i < host.size(); ++i)
      out[i] = T(host[i]), host[i] = static_cast<float>(out[i]);
    cudaMemcpy(device, out.data(), out.size() * sizeof(T), cudaMemcpyHostToDevice);
    twice.assign(host.begin(), host.end());
  }
  void poison() { cudaMemset(device, 0xFF, host.size() * sizeof(T)); }
  std::vector<float> fetch() const {
    std::vector<T> in(host.size());
    cudaMemcpy(in.data(), device, in.size() * sizeof(T), cudaMemcpyDeviceToHost);
    std::vector<float> out(in.size());
    for (size_t i = 0; i < in.size(); ++i) out[i] = static_cast<float>(in[i]);
    return out;
  }
};

struct Layout {
  int64_t batch, head, row, count;
};
Layout layout(const Case& c, int64_t batch, int64_t heads, int64_t rows, int64_t n) {
  const int64_t width = n + c.pad;
  if (c.transposed)
    return {rows * heads * width, width, heads * width, batch * rows * heads * width};
  return {heads * rows * width, rows * width, width, batch * rows * heads * width};
}

template <class T>
class Problem {
 public:
  explicit Problem(const Case& c)
      : c_(c),
        kb_(c.one_batch_keys ? 1 : c.batch),
        lq_(layout(c, c.batch, c.heads, c.queries, c.size)),
        lk_(layout(c, kb_, c.key_heads, c.keys, c.size)),
        lv_(layout(c, kb_, c.key_heads, c.keys, c.value_size)),
        ldk_(layout(c, c.batch, c.key_heads, c.keys, c.size)),
        ldv_(layout(c, c.batch, c.key_heads, c.keys, c.value_size)),
        lc_(layout(c, c.batch, c.heads, c.queries, c.value_size)),
        rows_(c.batch * c.heads * c.queries),
        q(lq_.count),
        k(lk_.count),
        value(lv_.count),
        g(lc_.count),
        context(lc_.count),
        dq(lq_.count),
        dk(ldk_.count),
        dvalue(ldv_.count),
        dk0(ldk_.count),
        dvalue0(ldv_.count),
        v(c.heads * c.size),
        lse(rows_),
        weights(c.weights ? rows_ * c.keys : 0),
        bias(bias_count()),
        place(rows_),
        dv(c.heads * c.size),
        dbias(bias_count()),
        dplace(rows_),
        step_lse(c.steps ? rows_ : 0),
        saved(c.steps ? c.queries * saved_size() : 0),
        joined(c.steps ? c.queries * saved_size() : 0) {
    Random random(7 + c.queries * 31 + c.keys);
    const auto fill = [&](auto& x, double scale) {
      for (float& y : x.host) y = static_cast<float>(random.normal() * scale);
    };
    fill(q, c.spread), fill(k, c.spread), fill(value, 1), fill(g, 1), fill(dk0, 0.1),
        fill(dvalue0, 0.1);
    fill(v, 1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, c.size))) * 2), fill(bias, 0.5);
    for (float& y : place.host) y = random.uniform() * static_cast<float>(c.keys);
    make_range(random);
    if (c.range == Range::ragged && c.nan_unseen)
      for (int64_t b = 0; b < c.batch; ++b)
        for (int64_t j = lengths_[static_cast<size_t>(b)]; j < c.keys; ++j) put_nan(b, j);
    if (c.nan_seen) put_nan(0, c.keys / 2);
    for (auto* x : {&q, &k, &value, &g, &dk0, &dvalue0}) x->send();
    for (auto* x : {&v, &bias, &place}) x->send();
    cudaMalloc(reinterpret_cast<void**>(&range_device_),
               std::max<size_t>(1, range_.size()) * sizeof(Id));
    cudaMemcpy(range_device_, range_.data(), range_.size() * sizeof(Id), cudaMemcpyHostToDevice);
  }
  ~Problem() { cudaFree(range_device_); }

  template <class U, class Get>
  Attention<U> forward(Get at, const Id* range) {
    Attention<U> a{};
    a.form = ScoreForm::additive;
    a.batch = c_.batch, a.heads = c_.heads, a.key_heads = c_.key_heads, a.queries = c_.queries;
    a.keys = c_.keys, a.size = c_.size, a.value_size = c_.value_size;
    a.q = {at(q), lq_.batch, lq_.head, lq_.row};
    a.k = {at(k), kb_ < c_.batch ? 0 : lk_.batch, lk_.head, lk_.row};
    a.value = {at(value), kb_ < c_.batch ? 0 : lv_.batch, lv_.head, lv_.row};
    a.scale = 1;
    a.v = at(v);
    if (c_.bias != Bias::none) {
      const auto h = bias_heads(at(bias));
      a.bias = {h.data, h.batch, h.head, h.row};
    }
    if (c_.place) a.place = at(place), a.falloff = 0.02f;
    if (c_.range != Range::all) {
      a.range = range;
      a.range_batch = c_.heads * c_.queries * 2, a.range_head = c_.queries * 2;
    }
    a.dropout = c_.dropout;
    a.seed = {12345, nullptr};
    a.context = {at(context), lc_.batch, lc_.head, lc_.row};
    a.lse = at(lse);
    if (c_.weights)
      a.weights = {at(weights), c_.heads * c_.queries * c_.keys, c_.queries * c_.keys, c_.keys};
    return a;
  }
  template <class U, class Get>
  AttentionGrad<U> backward(Get at, const Id* range) {
    AttentionGrad<U> k_{};
    k_.forward = forward<U>(at, range);
    k_.forward.weights = {};
    k_.dcontext = {at(g), lc_.batch, lc_.head, lc_.row};
    k_.dq = {at(dq), lq_.batch, lq_.head, lq_.row};
    k_.dk = {at(dk), ldk_.batch, ldk_.head, ldk_.row};
    k_.dvalue = {at(dvalue), ldv_.batch, ldv_.head, ldv_.row};
    k_.add = c_.add;
    k_.dv = at(dv);
    if (c_.bias != Bias::none) k_.dbias = bias_heads(at(dbias));
    if (c_.place) k_.dplace = at(dplace);
    return k_;
  }
  template <class U>
  Heads<U> bias_heads(U* data) const {
    if (c_.bias == Bias::distance)
      return {data + (c_.queries - 1), 0, c_.queries + c_.keys - 1, -1};
    return {data, c_.bias == Bias::one_batch ? 0 : c_.heads * c_.queries * c_.keys,
            c_.queries * c_.keys, c_.keys};
  }

  struct Result {
    std::string name;
    std::vector<double> x;
  };
  // Runs the CPU's body on the arrays of type U (host or twice); results as doubles. Of gradients,
  // that without the context is the first part of the difference alone.
  template <class U>
  std::vector<Result> on_cpu(bool with_context = true) {
    const auto at = [&](auto& x) {
      if constexpr (std::is_same_v<U, double>)
        return x.twice.data();
      else
        return x.host.data();
    };
    const auto get = [&](auto& x) { return std::vector<double>(at(x), at(x) + x.host.size()); };
    for (auto* x : {&context, &dq, &dk, &dvalue}) reset(*x, 0);
    for (auto* x : {&lse, &weights, &dv, &dbias, &dplace}) reset(*x, 0);
    if (c_.add) {
      dk.host = dk0.host, dvalue.host = dvalue0.host;
      dk.twice = dk0.twice, dvalue.twice = dvalue0.twice;
    }
    run(Cpu{}, forward<U>(at, range_.data()));
    std::vector<Result> all = forward_results(get);
    if (!c_.back) return all;
    if (!with_context) {
      reset(context, 0);
    } else if (sizeof(T) == 2) {
      const auto stored = context.fetch();
      std::copy(stored.begin(), stored.end(), at(context));
    }
    run(Cpu{}, backward<U>(at, range_.data()));
    for (Result& r : backward_results(get)) all.push_back(std::move(r));
    return all;
  }
  std::vector<Result> on_gpu() {
    const auto at = [](auto& x) { return x.device; };
    for (auto* x : {&context, &dq, &dk, &dvalue}) x->poison();
    for (auto* x : {&lse, &weights, &dv, &dplace, &step_lse, &saved, &joined}) x->poison();
    cudaMemset(dbias.device, 0, dbias.host.size() * sizeof(float));
    if (c_.add)
      for (auto [to, from] : {std::pair(&dk, &dk0), std::pair(&dvalue, &dvalue0)})
        cudaMemcpy(to->device, from->device, to->host.size() * sizeof(T), cudaMemcpyDeviceToDevice);
    if (c_.steps)
      steps_forward(on_stream());
    else
      additive_attention<T>(on_stream(), forward<T>(at, range_device_));
    if (!good(cudaDeviceSynchronize(), c_.name + ": forward")) return {};
    if (c_.steps)
      steps_backward(on_stream()), steps_to_keys(on_stream());
    else if (c_.back)
      additive_attention_grad<T>(on_stream(), backward<T>(at, range_device_));
    if (!good(cudaDeviceSynchronize(), c_.name + ": backward")) return {};
    const auto get = [&](auto& x) {
      const auto y = x.fetch();
      return std::vector<double>(y.begin(), y.end());
    };
    std::vector<Result> all = forward_results(get);
    if (c_.back)
      for (Result& r : backward_results(get)) all.push_back(std::move(r));
    return all;
  }
  // A decoder's steps: one query each, with arrays of their own for lse and for what is saved.
  void steps_forward(Cuda device) {
    for (int64_t t = 0; t < c_.queries; ++t) additive_attention<T>(device, step_at(t));
    join(device, c_.queries, rows_ / c_.queries, 1, step_lse.device, lse.device);
  }
  void steps_backward(Cuda device) {
    for (int64_t t = 0; t < c_.queries; ++t) {
      const AttentionGrad<T> all = backward<T>([](auto& x) { return x.device; }, range_device_);
      run(device, StepGrad<T>{.forward = step_at(t),
                              .dcontext = row_of(all.dcontext, t),
                              .dq = row_of(all.dq, t),
                              .saved = saved.device + t * saved_size()});
    }
  }
  void steps_to_keys(Cuda device) {
    const AttentionGrad<T> all = backward<T>([](auto& x) { return x.device; }, range_device_);
    const Attention<T>& a = all.forward;
    join(device, c_.queries, 2 * a.batch * a.heads, a.keys, saved.device, joined.device);
    run(device, StepsGrad<T>{.batch = a.batch,
                             .heads = a.heads,
                             .steps = a.queries,
                             .keys = a.keys,
                             .size = a.size,
                             .value_size = a.value_size,
                             .q = a.q,
                             .k = a.k,
                             .dcontext = all.dcontext,
                             .v = a.v,
                             .saved = joined.device,
                             .dk = all.dk,
                             .dvalue = all.dvalue,
                             .add = all.add,
                             .dv = all.dv});
  }
  void forward_only() {
    additive_attention<T>(on_stream(), forward<T>([](auto& x) { return x.device; }, range_device_));
  }
  void backward_only() {
    additive_attention_grad<T>(on_stream(),
                               backward<T>([](auto& x) { return x.device; }, range_device_));
  }

 private:
  template <class U>
  static Heads<U> row_of(Heads<U> x, int64_t t) {
    x.data += t * x.row;
    return x;
  }
  int64_t saved_size() const { return 2 * c_.batch * c_.heads * c_.keys; }
  Attention<T> step_at(int64_t t) {
    Attention<T> a = forward<T>([](auto& x) { return x.device; }, range_device_);
    a.queries = 1;
    a.q = row_of(a.q, t), a.context = row_of(a.context, t);
    if (a.range) a.range += 2 * t;
    a.lse = step_lse.device + t * c_.batch * c_.heads;
    return a;
  }
  // [T, rows, n] as [rows, T, n].
  static void join(Cuda device, int64_t steps, int64_t rows, int64_t n, const float* from,
                   float* to) {
    for (int64_t t = 0; t < steps;) {
      CopyParts<float> k{};
      for (; k.count < kMaxParts && t < steps; ++t)
        k.part[k.count++] = {rows, n, from + t * rows * n, n, to + t * n, steps * n};
      run(device, k);
    }
  }
  int64_t bias_count() const {
    const int64_t one = c_.heads * c_.queries * c_.keys;
    return c_.bias == Bias::none       ? 0
           : c_.bias == Bias::whole    ? c_.batch * one
           : c_.bias == Bias::distance ? c_.heads * (c_.queries + c_.keys - 1)
                                       : one;
  }
  template <class A>
  static void reset(A& x, float to) {
    std::fill(x.host.begin(), x.host.end(), to);
    x.twice.assign(x.host.size(), to);
  }
  void put_nan(int64_t b, int64_t j) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (int64_t h = 0; h < c_.key_heads; ++h) {
      std::fill_n(k.host.begin() + b * lk_.batch + h * lk_.head + j * lk_.row, c_.size, nan);
      std::fill_n(value.host.begin() + b * lv_.batch + h * lv_.head + j * lv_.row, c_.value_size,
                  nan);
    }
  }
  void make_range(Random& random) {
    if (c_.range == Range::all) return;
    for (int64_t b = 0; b < c_.batch; ++b)
      lengths_.push_back(c_.keys - random.below(static_cast<uint32_t>((c_.keys + 1) / 2)));
    const auto keys = static_cast<Id>(c_.keys);
    for (int64_t b = 0; b < c_.batch; ++b)
      for (int64_t h = 0; h < c_.heads; ++h)
        for (int64_t i = 0; i < c_.queries; ++i) {
          Id first = 0, last = keys;
          const auto here = static_cast<Id>(i * c_.keys / c_.queries);
          switch (c_.range) {
            case Range::ragged: last = static_cast<Id>(lengths_[static_cast<size_t>(b)]); break;
            case Range::window: first = here - 5, last = here + 7; break;
            case Range::causal: last = here + 1; break;
            case Range::any:
              first = static_cast<Id>(random.below(static_cast<uint32_t>(keys + 4))) - 3;
              last = static_cast<Id>(random.below(static_cast<uint32_t>(keys + 4)));
              break;
            case Range::all: break;
          }
          range_.push_back(first), range_.push_back(last);
        }
  }
  // The elements of an array [B, H, T, n] without what lies between its rows.
  static std::vector<double> compact(const std::vector<double>& x, const Layout& l, int64_t batch,
                                     int64_t heads, int64_t rows, int64_t n) {
    std::vector<double> y;
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < rows; ++t) {
          const auto at = x.begin() + b * l.batch + h * l.head + t * l.row;
          y.insert(y.end(), at, at + n);
        }
    return y;
  }
  template <class Get, class A>
  Result whole(const char* name, Get get, A& x, int64_t count) {
    auto y = get(x);
    y.resize(static_cast<size_t>(count));
    return {name, std::move(y)};
  }
  template <class Get>
  std::vector<Result> forward_results(Get get) {
    const Case& c = c_;
    std::vector<Result> r;
    r.push_back({"context", compact(get(context), lc_, c.batch, c.heads, c.queries, c.value_size)});
    r.push_back(whole("lse", get, lse, rows_));
    if (c.weights) r.push_back(whole("weights", get, weights, rows_ * c.keys));
    return r;
  }
  template <class Get>
  std::vector<Result> backward_results(Get get) {
    const Case& c = c_;
    std::vector<Result> r;
    r.push_back({"dq", compact(get(dq), lq_, c.batch, c.heads, c.queries, c.size)});
    r.push_back({"dk", compact(get(dk), ldk_, c.batch, c.key_heads, c.keys, c.size)});
    r.push_back({"dvalue", compact(get(dvalue), ldv_, c.batch, c.key_heads, c.keys, c.value_size)});
    r.push_back(whole("dv", get, dv, c.heads * c.size));
    if (c.bias != Bias::none) r.push_back(whole("dbias", get, dbias, bias_count()));
    if (c.place) r.push_back(whole("dplace", get, dplace, rows_));
    return r;
  }

  Case c_;
  int64_t kb_;
  Layout lq_, lk_, lv_, ldk_, ldv_, lc_;
  int64_t rows_;
  Array<T> q, k, value, g, context, dq, dk, dvalue, dk0, dvalue0;
  Array<float> v, lse, weights, bias, place, dv, dbias, dplace, step_lse, saved, joined;
  std::vector<Id> range_;
  std::vector<int64_t> lengths_;
  Id* range_device_ = nullptr;
};

template <class T>
void check(const Case& c) {
  const bool narrow = sizeof(T) == 2;
  const std::string name = c.name + (narrow ? " bf16" : " f32");
  try {
    Problem<T> p(c);
    const auto got = p.on_gpu(), again = p.on_gpu();
    if (got.empty() || again.empty()) return;
    const auto want = p.template on_cpu<double>(), cpu = p.template on_cpu<float>();
    const auto part = p.template on_cpu<double>(false);
    for (size_t i = 0; i < want.size(); ++i) {
      const double scale = largest(want[i].x),
                   cancels = part[i].x == want[i].x ? 0 : largest(part[i].x);
      const double error = worst(want[i].x, got[i].x, Special::as_wanted),
                   error_cpu = worst(want[i].x, cpu[i].x, Special::as_wanted);
      const double allowed =
          narrow ? 2 * std::ldexp(1.0, -8) * scale
                 : 2 * earned(error_cpu) + 4 * std::ldexp(1.0, -24) * (scale + cancels);
      const bool same =
          got[i].x.size() == again[i].x.size() &&
          std::memcmp(got[i].x.data(), again[i].x.data(), got[i].x.size() * sizeof(double)) == 0;
      const bool ok = error <= allowed && same;
      (ok ? passed : failed) += 1;
      std::printf(
          "%s %-28s %-8s [%lld,%lld/%lld,%lld,%lld,%lld,%lld] error %.2e (of scale %.2e) cpu f32 "
          "%.2e%s\n",
          ok ? "PASS" : "FAIL", name.c_str(), want[i].name.c_str(), static_cast<long long>(c.batch),
          static_cast<long long>(c.heads), static_cast<long long>(c.key_heads),
          static_cast<long long>(c.queries), static_cast<long long>(c.keys),
          static_cast<long long>(c.size), static_cast<long long>(c.value_size), error,
          scale > 0 ? error / scale : error, error_cpu, same ? "" : ", TWO RUNS DIFFER");
    }
  } catch (const std::exception& e) {
    std::printf("FAIL %s: %s\n", name.c_str(), e.what());
    ++failed;
  }
  std::fflush(stdout);
}

double microseconds(const std::function<void()>& f, int times) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  std::vector<float> all;
  for (int i = 0; i < times + 3; ++i) {
    cudaEventRecord(begin);
    f();
    cudaEventRecord(end);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= 3) all.push_back(ms * 1000);
  }
  cudaEventDestroy(begin), cudaEventDestroy(end);
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}
// The same of a captured graph of 20: without what launching costs.
double microseconds_in_graph(const std::function<void(Cuda)>& f) {
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  for (int i = 0; i < 20; ++i) f(on_stream(stream));
  cudaStreamEndCapture(stream, &graph);
  if (!good(cudaGraphInstantiate(&exec, graph, 0), "capturing")) return 0;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  std::vector<float> all;
  for (int i = 0; i < 13; ++i) {
    cudaEventRecord(begin, stream);
    cudaGraphLaunch(exec, stream);
    cudaEventRecord(end, stream);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    if (i >= 3) all.push_back(ms * 1000 / 20);
  }
  cudaGraphExecDestroy(exec), cudaGraphDestroy(graph), cudaStreamDestroy(stream);
  cudaEventDestroy(begin), cudaEventDestroy(end);
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

// The steps of a decoder, in a graph: a step forward, a step backward, the keys at the end.
template <class T>
void time_steps(const Case& c) {
  Problem<T> p(c);
  const double steps = static_cast<double>(c.queries);
  const double rows = static_cast<double>(c.batch * c.heads * c.keys) * sizeof(T);
  const double keys = rows * static_cast<double>(c.size),
               values = rows * static_cast<double>(c.value_size);
  const auto line = [&](const char* what, double us, double bytes) {
    std::printf("%-10s %-5s %s %.2f us, %.1f MB read and written: %.1f %% of 4.8 TB/s\n",
                c.name.c_str(), sizeof(T) == 2 ? "bf16" : "f32", what, us, bytes / 1e6,
                bytes / us / 4.8e6 * 100);
  };
  line("a step forward", microseconds_in_graph([&](Cuda d) { p.steps_forward(d); }) / steps,
       keys + values);
  line("a step back", microseconds_in_graph([&](Cuda d) { p.steps_backward(d); }) / steps,
       keys + values);
  line("the keys behind all steps", microseconds_in_graph([&](Cuda d) { p.steps_to_keys(d); }),
       2 * (keys + values));
  good(cudaDeviceSynchronize(), c.name);
  std::fflush(stdout);
}

template <class T>
void time_case(const Case& c) {
  if (c.steps) return time_steps<T>(c);
  try {
    size_t before = 0, after = 0, total = 0;
    Problem<T> p(c);
    cudaDeviceSynchronize();
    cudaMemGetInfo(&before, &total);
    const double pairs = static_cast<double>(c.batch * c.heads * c.queries * c.keys);
    const double elements = pairs * static_cast<double>(c.size);
    const int times = elements > 1e10 ? 3 : 20;
    const double forward = microseconds([&] { p.forward_only(); }, times);
    const double backward = microseconds([&] { p.backward_only(); }, times);
    if (!good(cudaDeviceSynchronize(), c.name)) return;
    cudaMemGetInfo(&after, &total);
    const double size = sizeof(T);
    const double bytes =
        size *
        static_cast<double>((c.batch * c.heads * c.queries + c.batch * c.key_heads * c.keys) *
                            (c.size + c.value_size));
    const double flops = elements * 6 + pairs * static_cast<double>(c.value_size) * 2;
    std::printf(
        "%-10s %-5s forward %9.1f us, backward %9.1f us, sum %9.1f us; forward %.2f T elements/s "
        "(one reciprocal each: 4.18), %.1f %% of 67 TFLOP/s, %.1f %% of 4.8 TB/s; scratch grew by "
        "%.1f MB\n",
        c.name.c_str(), sizeof(T) == 2 ? "bf16" : "f32", forward, backward, forward + backward,
        elements / forward / 1e6, flops / forward / 67e6 * 100, bytes / forward / 4.8e6 * 100,
        (static_cast<double>(before) - static_cast<double>(after)) / 1e6);
    if (elements < 1e8) {
      const auto at = [](auto& x) { return x.device; };
      const double f = microseconds_in_graph(
          [&](Cuda device) { additive_attention<T>(device, p.template forward<T>(at, nullptr)); });
      const double b = microseconds_in_graph([&](Cuda device) {
        additive_attention_grad<T>(device, p.template backward<T>(at, nullptr));
      });
      std::printf("%-10s %-5s in a graph: forward %.2f us, backward %.2f us\n", c.name.c_str(),
                  sizeof(T) == 2 ? "bf16" : "f32", f, b);
    }
  } catch (const std::exception& e) {
    std::printf("FAIL %s: %s\n", c.name.c_str(), e.what());
    ++failed;
  }
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** given) {
  const bool timed = count > 1 && std::string(given[1]) == "--time";
  const std::string part = count > 1 + timed ? given[1 + timed] : "";
  if (timed) {
    const Case cases[] = {
        {"large", 8, 1, 1, 1024, 1024, 256, 256},
        {"sentences", 64, 1, 1, 50, 50, 512, 512},
        {"step", 128, 1, 1, 1, 25, 512, 512, Range::all, Bias::none, false, false, true},
        {"step", 128, 1, 1, 1, 25, 512, 1024, Range::all, Bias::none, false, false, true},
        {.name = "steps",
         .batch = 128,
         .heads = 1,
         .key_heads = 1,
         .queries = 25,
         .keys = 25,
         .size = 512,
         .value_size = 1024,
         .steps = true},
        {"step", 64, 1, 1, 1, 50, 256, 512, Range::all, Bias::none, false, false, true},
        {"long", 1, 1, 1, 16384, 16384, 256, 256},
    };
    for (const Case& c : cases)
      if (c.name.find(part) != std::string::npos) time_case<float>(c), time_case<bf16>(c);
    return failed > 0;
  }
  std::vector<Case> cases;
  const auto add = [&](
                       std::string name, int64_t b, int64_t h, int64_t g, int64_t tq, int64_t tk,
                       int64_t n, int64_t m,
                       const std::function<void(Case&)>& more = [](Case&) {}) {
    Case c{std::move(name), b, h, g, tq, tk, n, m};
    more(c);
    cases.push_back(c);
  };
  add("plain", 2, 1, 1, 33, 29, 64, 64);
  add("one feature", 1, 1, 1, 9, 11, 1, 3);
  add("odd", 3, 2, 2, 37, 41, 7, 5);
  add("tiles", 1, 1, 1, 64, 128, 32, 256);
  add("more tiles", 2, 1, 1, 300, 260, 256, 256);
  add("wide values", 2, 1, 1, 40, 150, 40, 300);
  add("wider values", 1, 1, 1, 40, 70, 40, 1100);
  add("sentences", 4, 1, 1, 50, 50, 512, 512);
  add("groups", 2, 6, 2, 45, 70, 33, 20);
  add("groups transposed", 2, 4, 2, 45, 70, 32, 24, [](Case& c) { c.transposed = true; });
  add("rows apart", 2, 2, 2, 45, 70, 32, 24, [](Case& c) { c.pad = 3; });
  add("one batch of keys", 3, 2, 2, 45, 70, 32, 24, [](Case& c) { c.one_batch_keys = true; });
  add("ragged", 3, 2, 1, 50, 200, 64, 48, [](Case& c) { c.range = Range::ragged; });
  add("ragged, NaN unseen", 3, 2, 1, 50, 200, 64, 48,
      [](Case& c) { c.range = Range::ragged, c.nan_unseen = true; });
  add("window", 2, 2, 2, 150, 300, 24, 32, [](Case& c) { c.range = Range::window; });
  add("NaN seen by some", 2, 1, 1, 150, 300, 24, 32,
      [](Case& c) { c.range = Range::window, c.nan_seen = true, c.back = false; });
  add("causal", 2, 2, 2, 270, 270, 24, 32, [](Case& c) { c.range = Range::causal; });
  add("any range", 2, 3, 3, 70, 140, 24, 32,
      [](Case& c) { c.range = Range::any, c.weights = true; });
  add("weights", 2, 2, 2, 40, 300, 24, 32, [](Case& c) { c.weights = true; });
  add("bias", 2, 2, 2, 40, 170, 24, 32, [](Case& c) { c.bias = Bias::whole, c.weights = true; });
  add("bias of one batch", 3, 2, 2, 40, 170, 24, 32, [](Case& c) { c.bias = Bias::one_batch; });
  add("bias by distance", 3, 2, 2, 40, 170, 24, 32,
      [](Case& c) { c.bias = Bias::distance, c.range = Range::ragged; });
  add("place", 2, 2, 2, 40, 170, 24, 32, [](Case& c) { c.place = true, c.weights = true; });
  add("dropout", 2, 2, 1, 40, 300, 24, 32, [](Case& c) { c.dropout = 0.3f, c.weights = true; });
  add("add", 2, 2, 1, 300, 170, 24, 32, [](Case& c) { c.add = true; });
  add("add, one part", 2, 2, 2, 40, 170, 24, 32, [](Case& c) { c.add = true; });
  add("all", 2, 4, 2, 60, 300, 40, 44, [](Case& c) {
    c.range = Range::any, c.bias = Bias::whole, c.place = c.weights = c.add = true;
    c.dropout = 0.1f, c.transposed = true;
  });
  add("large", 2, 1, 1, 40, 170, 64, 32, [](Case& c) { c.spread = 7; });
  add("larger", 2, 1, 1, 40, 170, 64, 32, [](Case& c) { c.spread = 12; });
  add("huge", 2, 1, 1, 40, 170, 24, 32, [](Case& c) { c.spread = 40; });
  add("several launches", 2, 1, 1, 2950, 2900, 7, 5);
  add("several, places", 1, 1, 1, 2950, 2900, 3, 2,
      [](Case& c) { c.bias = Bias::distance, c.place = true, c.range = Range::causal; });
  add("no keys", 2, 1, 1, 20, 0, 24, 32);
  add("step", 5, 1, 1, 1, 25, 512, 512);
  add("step, add", 70, 1, 1, 1, 25, 40, 48, [](Case& c) { c.add = true; });
  add("step, heads", 3, 4, 4, 1, 60, 33, 20, [](Case& c) { c.weights = true; });
  add("step, groups", 3, 4, 2, 1, 60, 33, 20, [](Case& c) { c.weights = true; });
  add("step, ragged, NaN", 6, 2, 2, 1, 60, 33, 20,
      [](Case& c) { c.range = Range::ragged, c.nan_unseen = c.weights = c.add = true; });
  add("step, any range", 40, 2, 2, 1, 60, 33, 20, [](Case& c) {
    c.range = Range::any, c.weights = true, c.bias = Bias::whole, c.place = true, c.dropout = 0.2f;
  });
  add("step, many keys", 2, 1, 1, 1, 1300, 33, 20,
      [](Case& c) { c.range = Range::ragged, c.weights = true, c.dropout = 0.2f, c.place = true; });
  add("step, bias of one batch", 3, 1, 1, 1, 60, 33, 20, [](Case& c) { c.bias = Bias::one_batch; });
  add("step, bias by distance", 40, 2, 2, 1, 60, 33, 20,
      [](Case& c) { c.bias = Bias::distance, c.range = Range::any; });
  add("step, huge", 3, 1, 1, 1, 60, 33, 20, [](Case& c) { c.spread = 40; });
  add("step, one part of columns", 3, 1, 1, 1, 40, 132, 124);
  add("step, rows apart", 3, 2, 2, 1, 40, 32, 24, [](Case& c) { c.pad = 3, c.weights = true; });
  add("step, in turns", 3, 1, 1, 1, 100, 512, 1024,
      [](Case& c) { c.range = Range::ragged, c.weights = c.nan_unseen = true, c.dropout = 0.2f; });
  add("step, many, in turns", 140, 1, 1, 1, 70, 256, 512, [](Case& c) { c.range = Range::any; });
  add("step, wide", 2, 1, 1, 1, 40, 1100, 4200);
  const auto steps = [](Case& c) { c.steps = true; };
  add("steps", 5, 1, 1, 25, 25, 512, 1024, steps);
  add("steps, in turns", 3, 1, 1, 4, 100, 512, 1024,
      [](Case& c) { c.steps = c.nan_unseen = true, c.range = Range::ragged; });
  add("steps, odd", 3, 2, 2, 37, 41, 7, 5, steps);
  add("steps, heads transposed", 3, 4, 4, 20, 60, 32, 20,
      [](Case& c) { c.steps = c.transposed = true; });
  add("steps, add", 2, 2, 2, 20, 70, 24, 32, [](Case& c) { c.steps = c.add = true; });
  add("steps, ragged, NaN", 6, 2, 2, 70, 60, 33, 20,
      [](Case& c) { c.steps = c.nan_unseen = true, c.range = Range::ragged; });
  add("steps, any range", 4, 2, 2, 40, 70, 24, 32,
      [](Case& c) { c.steps = true, c.range = Range::any; });
  add("steps, many keys", 2, 1, 1, 5, 1300, 33, 20, steps);
  add("steps, huge", 3, 1, 1, 20, 60, 33, 20, [](Case& c) { c.steps = true, c.spread = 40; });
  add("few queries", 3, 2, 2, 3, 60, 33, 20, [](Case& c) { c.weights = true; });
  for (const Case& c : cases)
    if (c.name.find(part) != std::string::npos) check<float>(c), check<bf16>(c);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed > 0;
}
