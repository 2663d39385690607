// Elementwise kernels for a GPU: activations, arithmetic with broadcast, copies, dropout and Adam,
// each one launch and one pass over memory, 16 bytes an access wherever the arrays allow it.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "heed/kernels/cuda/dropout.cuh"
#include "heed/kernels/cuda/parts.cuh"

namespace heed::kernels {
namespace {

constexpr int kThreads = 256;

// ---- y[i] = f(x[i], ...) over arrays

template <int V>
struct Elements {
  float v[V];
};
template <int V, class T>
__device__ Elements<V> elements(const T* p) {
  Elements<V> x;
  load<V>(p, x.v);
  return x;
}
template <int V, class F, class... N>
__device__ Elements<V> apply(F f, const N&... x) {
  Elements<V> y;
#pragma unroll
  for (int i = 0; i < V; ++i) y.v[i] = f(x.v[i]...);
  return y;
}

// The first `packs` packs of V, two a thread and turn, so that their loads are under way together;
// then what is left, or all of it where the arrays are not aligned. y may be one of x.
template <int V, class F, class Y, class... X>
__global__ void __launch_bounds__(kThreads)
    map_arrays(int64_t n, int64_t packs, F f, Y* y, const X*... x) {
  const int64_t step = int64_t{gridDim.x} * kThreads * 2;
  for (int64_t p = int64_t{blockIdx.x} * kThreads * 2 + threadIdx.x; p < packs; p += step) {
    const int64_t i = p * V, j = (p + kThreads) * V;
    if (p + kThreads < packs) {
      const Elements<V> a = apply<V>(f, elements<V>(x + i)...),
                        b = apply<V>(f, elements<V>(x + j)...);
      store<V>(a.v, y + i);
      store<V>(b.v, y + j);
    } else {
      store<V>(apply<V>(f, elements<V>(x + i)...).v, y + i);
    }
  }
  const int64_t stride = int64_t{gridDim.x} * kThreads;
  for (int64_t i = packs * V + int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += stride)
    y[i] = narrow<Y>(f(wide(x[i])...));
}

template <class F, class Y, class... X>
void map_to(Cuda device, const char* name, int64_t n, F f, Y* y, const X*... x) {
  if (n == 0) return;
  constexpr int V = 16 / int(std::max({sizeof(Y), sizeof(X)...}));
  const bool packed = aligned(y, V * sizeof(Y)) && (true && ... && aligned(x, V * sizeof(X)));
  const int64_t packs = packed ? n / V : 0;
  const unsigned grid = packed ? grid_for(packs, 2 * kThreads) : grid_for(n, kThreads);
  map_arrays<V><<<grid, kThreads, 0, stream_of(device)>>>(n, packs, f, y, x...);
  launched(name);
}

// ---- activations

// gelu's argument of the sigmoid: 2 sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kGelu1 = 1.5957691216057308, kGelu3 = 1.5957691216057308 * 0.044715;
__device__ float gelu_sigmoid(float x) { return sigmoid(x * fmaf(x * x, kGelu3, kGelu1)); }

template <Unary f>
struct Function {
  __device__ float operator()(float x) const {
    if constexpr (f == Unary::copy) return x;
    if constexpr (f == Unary::negate) return -x;
    if constexpr (f == Unary::exp) return expf(x);
    if constexpr (f == Unary::log) return logf(x);
    if constexpr (f == Unary::sqrt) return sqrtf(x);
    if constexpr (f == Unary::square) return x * x;
    if constexpr (f == Unary::tanh) return tanhf(x);
    if constexpr (f == Unary::sigmoid) return sigmoid(x);
    if constexpr (f == Unary::relu) return x < 0 ? 0 : x;  // a NaN stays
    if constexpr (f == Unary::gelu) return x * gelu_sigmoid(x);
    if constexpr (f == Unary::swish) return x * sigmoid(x);
  }
};

// x is f's argument or its result, as MapGrad says.
template <Unary f>
struct Derivative {
  float scale = 1;
  __device__ float operator()(float x, float given) const {
    const float dy = scale * given;
    if constexpr (f == Unary::copy) return dy;
    if constexpr (f == Unary::negate) return -dy;
    if constexpr (f == Unary::exp) return dy * x;
    if constexpr (f == Unary::log) return dy / x;
    if constexpr (f == Unary::sqrt) return dy / (x + x);
    if constexpr (f == Unary::square) return dy * (x + x);
    if constexpr (f == Unary::tanh) return dy * fmaf(-x, x, 1.0f);
    if constexpr (f == Unary::sigmoid) return dy * fmaf(-x, x, x);
    if constexpr (f == Unary::relu) return x > 0 ? dy : 0;
    if constexpr (f == Unary::gelu) {
      const float s = gelu_sigmoid(x), derivative = fmaf(x * x, 3 * kGelu3, kGelu1);
      return dy * fmaf(x * derivative, s * (1 - s), s);
    }
    if constexpr (f == Unary::swish) {
      const float s = sigmoid(x);
      return dy * fmaf(x, s * (1 - s), s);
    }
  }
};

// Calls body with Of<f>{}.
template <template <Unary> class Of, class Body>
void with(Unary f, Body body) {
  switch (f) {
    case Unary::copy: return body(Of<Unary::copy>{});
    case Unary::negate: return body(Of<Unary::negate>{});
    case Unary::exp: return body(Of<Unary::exp>{});
    case Unary::log: return body(Of<Unary::log>{});
    case Unary::sqrt: return body(Of<Unary::sqrt>{});
    case Unary::square: return body(Of<Unary::square>{});
    case Unary::tanh: return body(Of<Unary::tanh>{});
    case Unary::sigmoid: return body(Of<Unary::sigmoid>{});
    case Unary::relu: return body(Of<Unary::relu>{});
    case Unary::gelu: return body(Of<Unary::gelu>{});
    case Unary::swish: return body(Of<Unary::swish>{});
  }
}

template <class T>
void launch(Cuda device, const Map<T>& k) {
  with<Function>(k.f, [&](auto f) { map_to(device, "map", k.n, f, k.y, k.x); });
}
template <class T>
void launch(Cuda device, const MapGrad<T>& k) {
  with<Derivative>(k.f, [&](auto f) {
    f.scale = k.scale;
    map_to(device, "map_grad", k.n, f, k.dx, k.x_or_y, k.dy);
  });
}

// ---- arithmetic of whole arrays

struct Scale {
  float alpha;
  __device__ float operator()(float x) const { return alpha * x; }
};
struct ScaleAndAdd {
  float alpha, beta;
  __device__ float operator()(float x, float y) const { return fmaf(alpha, x, beta * y); }
};
struct Constant {
  float value;
  __device__ float operator()() const { return value; }
};

template <class T>
void launch(Cuda device, const Axpby<T>& k) {
  if (k.beta == 0) return map_to(device, "axpby", k.n, Scale{k.alpha}, k.y, k.x);
  map_to(device, "axpby", k.n, ScaleAndAdd{k.alpha, k.beta}, k.y, k.x, static_cast<const T*>(k.y));
}
template <class T>
void launch(Cuda device, const Fill<T>& k) {
  map_to(device, "fill", k.n, Constant{k.value}, k.y);
}

// ---- arrays with strides

// Division by a number that is known at the launch: n / size = (n * magic / 2^32 + n) / 2^shift
// with magic = 2^32 (2^shift - size) / size + 1, exact for n < 2^31 (Granlund and Montgomery,
// 1994).
struct Divisor {
  uint32_t size = 1, magic = 1, shift = 0;
  Divisor() = default;
  explicit Divisor(int64_t by) : size(static_cast<uint32_t>(by)) {
    while (shift < 31 && (int64_t{1} << shift) < by) ++shift;
    magic = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - size) / size + 1);
  }
  __device__ uint32_t divide(uint32_t n) const { return (__umulhi(n, magic) + n) >> shift; }
};

// Two arrays with strides of their own over the same axes.
struct Axes {
  int rank = 0;
  int64_t size[kMaxRank] = {}, a[kMaxRank] = {}, b[kMaxRank] = {};
  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= size[i];
    return n;
  }
};

// Without axes of size 1, and with neighbours joined that lie as one axis in both arrays. At least
// one axis is left.
Axes joined(int rank, const int64_t* size, const int64_t* a, const int64_t* b) {
  Axes to;
  for (int i = 0; i < rank; ++i) {
    if (size[i] == 1) continue;
    int at = to.rank - 1;
    if (at >= 0 && to.a[at] == a[i] * size[i] && to.b[at] == b[i] * size[i])
      to.size[at] *= size[i];
    else
      at = to.rank++, to.size[at] = size[i];
    to.a[at] = a[i];
    to.b[at] = b[i];
  }
  if (to.rank == 0) to.rank = to.size[0] = to.a[0] = to.b[0] = 1;
  return to;
}

// Calls launch(axes, a, b, c) for pieces of fewer than 2^31 items, which begin at these offsets of
// the arrays; c is contiguous.
template <class Launch>
void in_pieces(const Axes& all, int64_t a, int64_t b, int64_t c, Launch launch) {
  const int64_t count = all.count();
  if (count < int64_t{1} << 31) return launch(all, a, b, c);
  Axes low = all, high = all;
  const int64_t half = low.size[0] = all.size[0] / 2;
  high.size[0] -= half;
  in_pieces(joined(low.rank, low.size, low.a, low.b), a, b, c, launch);
  in_pieces(joined(high.rank, high.size, high.a, high.b), a + half * all.a[0], b + half * all.b[0],
            c + half * (count / all.size[0]), launch);
}

// Whether an array whose last axis has stride 1 can be read `pack` elements at a time.
template <class T>
bool packs(const Axes& axes, const int64_t (&stride)[kMaxRank], const T* data, int64_t pack) {
  bool can = aligned(data, pack * int64_t{sizeof(T)}) && axes.size[axes.rank - 1] % pack == 0;
  for (int i = 0; i + 1 < axes.rank; ++i) can = can && stride[i] % pack == 0;
  return can;
}

// Where item i lies in both arrays.
struct Offsets {
  int rank;
  Divisor size[kMaxRank];
  int64_t a[kMaxRank], b[kMaxRank];

  // The last axis counts in packs.
  Offsets(const Axes& axes, int pack) : rank(axes.rank) {
    for (int i = 0; i < rank; ++i) {
      const int64_t step = i == rank - 1 ? pack : 1;
      size[i] = Divisor(axes.size[i] / step);
      a[i] = axes.a[i] * step;
      b[i] = axes.b[i] * step;
    }
  }
  __device__ void of(uint32_t i, int64_t& at_a, int64_t& at_b) const {
    at_a = at_b = 0;
    for (int d = rank - 1; d > 0; --d) {
      const uint32_t rest = size[d].divide(i), at = i - rest * size[d].size;
      at_a += at * a[d];
      at_b += at * b[d];
      i = rest;
    }
    at_a += i * a[0];
    at_b += i * b[0];
  }
};

template <Binary f>
struct Arithmetic {
  __device__ float operator()(float a, float b) const {
    if constexpr (f == Binary::add) return a + b;
    if constexpr (f == Binary::subtract) return a - b;
    if constexpr (f == Binary::multiply) return a * b;
    if constexpr (f == Binary::divide) return a / b;
  }
};

// V elements along the last axis, on which an operand lies close or is one element.
template <int V, class T>
__device__ Elements<V> along(const T* p, bool close) {
  if (V == 1 || close) return elements<V>(p);
  Elements<V> x;
  const float same = wide(*p);
#pragma unroll
  for (int i = 0; i < V; ++i) x.v[i] = same;
  return x;
}

template <int V, class T, class F>
__global__ void __launch_bounds__(kThreads)
    zip(uint32_t n, const __grid_constant__ Offsets offsets, F f, bool a_close, bool b_close,
        const T* a, const T* b, T* c) {
  const uint32_t step = gridDim.x * kThreads;
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < n; i += step) {
    int64_t at_a, at_b;
    offsets.of(i, at_a, at_b);
    const Elements<V> x = along<V>(a + at_a, a_close), y = along<V>(b + at_b, b_close);
    store<V>(apply<V>(f, x, y).v, c + int64_t{i} * V);
  }
}

template <class T, class F>
void zip_with(Cuda device, const Zip<T>& k, F f) {
  const Axes all = joined(k.rank, k.size, k.a_stride, k.b_stride);
  if (all.count() == 0) return;
  if (all.rank == 1 && all.a[0] == 1 && all.b[0] == 1)
    return map_to(device, "zip", all.size[0], f, k.c, k.a, k.b);
  in_pieces(all, 0, 0, 0, [&](const Axes& axes, int64_t a, int64_t b, int64_t c) {
    constexpr int V = kPack<T>;
    const int last = axes.rank - 1;
    const bool a_close = axes.a[last] == 1, b_close = axes.b[last] == 1;
    const bool packed = axes.size[last] % V == 0 && aligned(k.c + c, 16) &&
                        (a_close ? packs(axes, axes.a, k.a + a, V) : axes.a[last] == 0) &&
                        (b_close ? packs(axes, axes.b, k.b + b, V) : axes.b[last] == 0);
    const int64_t n = axes.count() / (packed ? V : 1);
    const auto kernel = packed ? zip<V, T, F> : zip<1, T, F>;
    kernel<<<grid_for(n, kThreads), kThreads, 0, stream_of(device)>>>(
        static_cast<uint32_t>(n), Offsets(axes, packed ? V : 1), f, a_close, b_close, k.a + a,
        k.b + b, k.c + c);
    launched("zip");
  });
}

template <class T>
void launch(Cuda device, const Zip<T>& k) {
  switch (k.f) {
    case Binary::add: return zip_with(device, k, Arithmetic<Binary::add>{});
    case Binary::subtract: return zip_with(device, k, Arithmetic<Binary::subtract>{});
    case Binary::multiply: return zip_with(device, k, Arithmetic<Binary::multiply>{});
    case Binary::divide: return zip_with(device, k, Arithmetic<Binary::divide>{});
  }
}

// What is only moved is moved as bits.
template <int bytes>
struct Bits;
template <>
struct Bits<2> {
  using type = uint16_t;
};
template <>
struct Bits<4> {
  using type = uint32_t;
};
template <>
struct Bits<16> {
  using type = uint4;
};

template <int V, bool add, class T>
__global__ void __launch_bounds__(kThreads)
    copy(uint32_t n, const __grid_constant__ Offsets offsets, const T* x, T* y) {
  const uint32_t step = gridDim.x * kThreads;
  for (uint32_t i = blockIdx.x * kThreads + threadIdx.x; i < n; i += step) {
    int64_t at_x, at_y;
    offsets.of(i, at_x, at_y);
    if constexpr (add) {
      const auto sum =
          apply<V>(Arithmetic<Binary::add>{}, elements<V>(y + at_y), elements<V>(x + at_x));
      store<V>(sum.v, y + at_y);
    } else {
      using Move = typename Bits<V * sizeof(T)>::type;
      *reinterpret_cast<Move*>(y + at_y) = *reinterpret_cast<const Move*>(x + at_x);
    }
  }
}

// A transposition: x lies close along axis `across`, y along the last one. Tiles of 32 x 32 pass
// through shared memory, so that both are read and written in whole lines. A block takes a tile;
// the other axes are counted by `others`, where both of these have size 1.
template <bool add, class T>
__global__ void __launch_bounds__(kThreads)
    transpose_tile(const __grid_constant__ Offsets others, uint32_t tiles_r, uint32_t tiles_c,
                   int64_t rows, int64_t columns, int64_t x_column, int64_t y_row, const T* x,
                   T* y) {
  using Move = typename Bits<sizeof(T)>::type;
  __shared__ Move tile[kWarp][kWarp + 1];
  const uint32_t tile_c = blockIdx.x % tiles_c, rest = blockIdx.x / tiles_c;
  const uint32_t tile_r = rest % tiles_r, other = rest / tiles_r;
  int64_t at_x, at_y;
  others.of(other, at_x, at_y);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  // x[r, c] at r + c * x_column, y[r, c] at r * y_row + c.
  const int64_t r = int64_t{tile_r} * kWarp, c = int64_t{tile_c} * kWarp;
  for (int i = warp; i < kWarp; i += kThreads / kWarp)
    if (r + lane < rows && c + i < columns)
      tile[i][lane] = __builtin_bit_cast(Move, x[at_x + r + lane + (c + i) * x_column]);
  __syncthreads();
  for (int i = warp; i < kWarp; i += kThreads / kWarp)
    if (r + i < rows && c + lane < columns) {
      const Move moved = tile[lane][i];
      T* to = y + at_y + (r + i) * y_row + c + lane;
      if constexpr (add)
        *to = narrow<T>(wide(*to) + wide(__builtin_bit_cast(T, moved)));
      else
        *reinterpret_cast<Move*>(to) = moved;
    }
}

// Launches `transpose_tile` if the arrays lie so; false if they do not.
template <bool add, class T>
bool transposed(Cuda device, const Axes& axes, const T* x, T* y) {
  const int last = axes.rank - 1;
  int across = -1;
  for (int i = 0; i < last; ++i)
    if (axes.a[i] == 1) across = i;
  if (across < 0 || axes.a[last] == 1 || axes.b[last] != 1 || axes.size[across] < 8 ||
      axes.size[last] < 8)
    return false;
  const int64_t rows = axes.size[across], columns = axes.size[last];
  Axes others = axes;
  others.size[across] = others.size[last] = 1;
  const int64_t tiles_r = ceil_div(rows, kWarp), tiles_c = ceil_div(columns, kWarp);
  const int64_t blocks = tiles_r * tiles_c * others.count();
  if (blocks >= int64_t{1} << 31) return false;
  others = joined(others.rank, others.size, others.a, others.b);
  transpose_tile<add><<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(device)>>>(
      Offsets(others, 1), static_cast<uint32_t>(tiles_r), static_cast<uint32_t>(tiles_c), rows,
      columns, axes.a[last], axes.b[across], x, y);
  launched("copy");
  return true;
}

// The axes in the order in which they lie in y.
template <class T>
Axes as_written(const Copy<T>& k) {
  Axes axes;
  for (int i = 0; i < k.rank; ++i) {
    int at = axes.rank++;
    for (; at > 0 && std::abs(axes.b[at - 1]) < std::abs(k.y_stride[i]); --at) {
      axes.size[at] = axes.size[at - 1];
      axes.a[at] = axes.a[at - 1];
      axes.b[at] = axes.b[at - 1];
    }
    axes.size[at] = k.size[i];
    axes.a[at] = k.x_stride[i];
    axes.b[at] = k.y_stride[i];
  }
  return joined(axes.rank, axes.size, axes.a, axes.b);
}

template <bool add, class T>
void copy_with(Cuda device, const Copy<T>& k) {
  const Axes all = as_written(k);
  if (all.count() == 0) return;
  in_pieces(all, 0, 0, 0, [&](const Axes& axes, int64_t x, int64_t y, int64_t) {
    if (transposed<add>(device, axes, k.x + x, k.y + y)) return;
    constexpr int V = kPack<T>;
    const int last = axes.rank - 1;
    const bool packed = axes.a[last] == 1 && axes.b[last] == 1 && packs(axes, axes.a, k.x + x, V) &&
                        packs(axes, axes.b, k.y + y, V);
    const int64_t n = axes.count() / (packed ? V : 1);
    const auto kernel = packed ? copy<V, add, T> : copy<1, add, T>;
    kernel<<<grid_for(n, kThreads), kThreads, 0, stream_of(device)>>>(
        static_cast<uint32_t>(n), Offsets(axes, packed ? V : 1), k.x + x, k.y + y);
    launched("copy");
  });
}

template <class T>
void launch(Cuda device, const Copy<T>& k) {
  k.add ? copy_with<true>(device, k) : copy_with<false>(device, k);
}

// ---- dropout

// Philox call j of a group has the bits of items 2j, 2j+1 of each of its four quarters of 256. A
// thread makes one call: small arrays, too, are the work of many threads.
constexpr int kGroup = 1024, kGroupThreads = kGroup / 8;

template <bool packed, class T>
__global__ void __launch_bounds__(kThreads)
    dropout(const __grid_constant__ Dropout<T> k, uint32_t threshold, float keep) {
  const Drop drop{threshold, keep};
  const uint64_t key = key_of(k.seed);
  const int64_t step = int64_t{gridDim.x} * (kThreads / kGroupThreads);
  const uint32_t j = threadIdx.x % kGroupThreads;
  for (int64_t group =
           int64_t{blockIdx.x} * (kThreads / kGroupThreads) + threadIdx.x / kGroupThreads;
       group * kGroup < k.n; group += step) {
    const uint64_t first = static_cast<uint64_t>(group) * (kGroup / 8);
    float x[4][2], residual[4][2] = {};
    const auto place = [&](int w) { return group * kGroup + w * 256 + 2 * j; };
    const auto read = [&](const T* from, float(&to)[4][2]) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int64_t at = place(w);
        if (packed && at + 2 <= k.n) {
          load<2>(from + at, to[w]);
        } else {
#pragma unroll
          for (int i = 0; i < 2; ++i) to[w][i] = at + i < k.n ? wide(from[at + i]) : 0;
        }
      }
    };
    read(k.x, x);
    if (k.residual) read(k.residual, residual);
    const uint4 a = philox_at(
        make_uint4(static_cast<uint32_t>(first) + j, static_cast<uint32_t>(first >> 32), 0, 0),
        key);
    const uint32_t word[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int64_t at = place(w);
#pragma unroll
      for (int i = 0; i < 2; ++i)
        x[w][i] = drop(x[w][i], i ? word[w] >> 16 : word[w]) + residual[w][i];
      if (packed && at + 2 <= k.n) {
        store<2>(x[w], k.y + at);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (at + i < k.n) k.y[at + i] = narrow<T>(x[w][i]);
      }
    }
  }
}

template <class T>
void launch(Cuda device, const Dropout<T>& k) {
  if (k.n == 0) return;
  const float keep = 1.0f / (1.0f - k.p);
  const auto threshold = static_cast<uint32_t>(std::lround(k.p * 65536.0));
  const bool packed = aligned(k.x, 2 * sizeof(T)) && aligned(k.y, 2 * sizeof(T)) &&
                      aligned(k.residual, 2 * sizeof(T));
  const auto kernel = packed ? dropout<true, T> : dropout<false, T>;
  const unsigned grid = grid_for(ceil_div(k.n, kGroup), kThreads / kGroupThreads);
  kernel<<<grid, kThreads, 0, stream_of(device)>>>(k, threshold, keep);
  launched("dropout");
}

// ---- Adam, on the f32 master weights; their bf16 compute copies are written in the same pass

struct AdamFactors {
  float b1, b2, a1, a2, scale, rate, root, epsilon, keep, f, f1;
  bool run;
};

__device__ AdamFactors factors_of(const AdamNumbers& o, double squares) {
  const double norm = sqrt(squares);
  const double c1 = 1 - pow(o.beta1, static_cast<double>(o.step));
  const double c2 = 1 - pow(o.beta2, static_cast<double>(o.step));
  return {.b1 = static_cast<float>(o.beta1),
          .b2 = static_cast<float>(o.beta2),
          .a1 = static_cast<float>(1 - o.beta1),
          .a2 = static_cast<float>(1 - o.beta2),
          .scale = static_cast<float>(o.clip > 0 && norm > o.clip ? o.clip / norm : 1),
          // rate/c1 * m / (sqrt(v)/sqrt(c2) + epsilon): the corrections cost nothing here.
          .rate = static_cast<float>(o.rate / c1),
          .root = static_cast<float>(1 / sqrt(c2)),
          .epsilon = static_cast<float>(o.epsilon),
          .keep = static_cast<float>(1 - o.rate * o.decay),
          .f = static_cast<float>(o.average),
          .f1 = static_cast<float>(1 - o.average),
          .run = isfinite(norm)};
}

template <int V>
__device__ void adam_step(const AdamFactors& o, const AdamPart<float>& p, int64_t i) {
  float g[V], m[V], v[V], w[V], average[V] = {};
  load<V>(p.grad + i, g);
  load<V>(p.m + i, m);
  load<V>(p.v + i, v);
  load<V>(p.w + i, w);
  if (p.average) load<V>(p.average + i, average);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    const float scaled = g[j] * o.scale;
    m[j] = fmaf(o.b1, m[j], o.a1 * scaled);
    v[j] = fmaf(o.b2, v[j], o.a2 * (scaled * scaled));
    w[j] = fmaf(-o.rate, m[j] / fmaf(sqrtf(v[j]), o.root, o.epsilon), o.keep * w[j]);
    average[j] = fmaf(o.f, average[j], o.f1 * w[j]);
  }
  store<V>(m, p.m + i);
  store<V>(v, p.v + i);
  store<V>(w, p.w + i);
  if (p.average) store<V>(average, p.average + i);
  if (p.compute_copy) store<V>(w, p.compute_copy + i);
}

__global__ void __launch_bounds__(kThreads)
    adam(const __grid_constant__ Adam<float> k, const __grid_constant__ Chunks chunks) {
  __shared__ AdamFactors o;
  if (threadIdx.x == 0) o = factors_of(*k.numbers, *k.squares);
  __syncthreads();
  if (!o.run) return;
  chunks.each([&](int part, int64_t begin) {
    const AdamPart<float>& p = k.part[part];
    const int n = static_cast<int>(min(p.n - begin, int64_t{kChunk})),
              packed = chunks.packed(part) ? n / 4 : 0;
    for (int i = threadIdx.x; i < packed; i += kThreads) adam_step<4>(o, p, begin + 4 * i);
    for (int i = 4 * packed + threadIdx.x; i < n; i += kThreads) adam_step<1>(o, p, begin + i);
  });
}

}  // namespace

// ---- run

#define HEED_RUN(Name)                                               \
  void run(Cuda device, const Name<float>& k) { launch(device, k); } \
  void run(Cuda device, const Name<bf16>& k) { launch(device, k); }
HEED_RUN(Map)
HEED_RUN(MapGrad)
HEED_RUN(Zip)
HEED_RUN(Axpby)
HEED_RUN(Fill)
HEED_RUN(Copy)
HEED_RUN(Dropout)
#undef HEED_RUN

void run(Cuda device, const ToBf16& k) {
  map_to(device, "to_bf16", k.n, Function<Unary::copy>{}, k.y, k.x);
}
void run(Cuda device, const FromBf16& k) {
  map_to(device, "from_bf16", k.n, Function<Unary::copy>{}, k.y, k.x);
}

void run(Cuda device, const Adam<float>& k) {
  Chunks chunks;
  for (int i = 0; i < k.count; ++i) {
    const AdamPart<float>& p = k.part[i];
    chunks.add(p.n, aligned(p.grad, 16) && aligned(p.w, 16) && aligned(p.m, 16) &&
                        aligned(p.v, 16) && aligned(p.average, 16) && aligned(p.compute_copy, 8));
  }
  if (chunks.count() == 0) return;
  adam<<<grid_for(chunks.count(), 1, 8), kThreads, 0, stream_of(device)>>>(k, chunks);
  launched("adam");
}

}  // namespace heed::kernels
