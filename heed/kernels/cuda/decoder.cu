// A step of a decoder with additive attention (Bahdanau et al., 2015), under teacher forcing, as
// two launches: the product of all sentences' states with [W U] (split-K), and a block for each
// sentence that attends to the source by the query and computes the cell. What is read is not the
// source itself but what it adds to the gates, so that no product stands between the two. Keys and
// values are copied and summed as in additive_step.cuh.
//
// The backward pass is the same the other way round: a block for each sentence from the state's
// gradient to those of gates, scores and query, and a product with [W U]^T.
//
// These launches are a chain in which each waits for the one before, 100 of them in a sentence of
// 25 tokens. So each begins before the one before is over (programmatic dependent launch) and asks
// for what does not depend on it: weights, keys and values. After await_before() everything that
// was launched earlier is over and can be read; and only after it is the next one let in, so that
// nothing runs beside more than its neighbours, and what a launch reads early was written by none
// of them. GPUs before 9.0 have no such thing: a launch begins when the one before is over.
#include <algorithm>

#include "heed/kernels/cuda/additive_step.cuh"
#include "heed/kernels/cuda/launch.cuh"

namespace heed::kernels {
namespace {

// ---- products, split-K: mma.sync m16n8k16. A block has 64 x 32 elements of a slice, a warp 16 x
// 16.

constexpr int kTileRows = 64, kTileColumns = 32, kChunk = 64, kProductThreads = 256;
constexpr int kMostChunks = static_cast<int>(SlicedProduct::kSlice) / kChunk;
constexpr int kLeft = kTileRows * kChunk, kRight = kTileColumns * kChunk;  // elements of a chunk
constexpr int kTogether = 2;  // chunks that are waited for at a time

// Where 8 neighbours lie: [row][64 elements along k], and [k][32 columns]. Swizzled: the order
// within 128 bytes changes with the row, so that the 8 rows of a matrix that ldmatrix reads lie in
// all banks.
__device__ inline int by_row(int row, int eight) {
  return row * kChunk + ((eight ^ (row & 7)) << 3);
}
__device__ inline int by_column(int k, int eight) {
  return k * kTileColumns + ((eight ^ (k >> 1 & 3)) << 3);
}

template <bool transposed>
__global__ void __launch_bounds__(kProductThreads, 1)
    product(const __grid_constant__ SlicedProduct p) {
  extern __shared__ __align__(128) bf16 tiles[];  // [chunks][left, right]
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t first_column = int64_t{blockIdx.x} * kTileColumns,
                first_row = int64_t{blockIdx.y} * kTileRows,
                first_k = int64_t{blockIdx.z} * SlicedProduct::kSlice;
  const int chunks = static_cast<int>(min(int64_t{kMostChunks}, (p.k - first_k) / kChunk));
  const int i = static_cast<int>(threadIdx.x);
  // All is asked for at once; the left side in groups of chunks, of which the first also has the
  // right side. A group that is empty is closed too.
#pragma unroll
  for (int chunk = 0; chunk < kMostChunks; ++chunk) {
    if (chunk >= chunks) continue;
    bf16* const right = tiles + chunk * (kLeft + kRight) + kLeft;
    const int64_t k = first_k + chunk * kChunk;
    static_assert(kRight / 8 == kProductThreads);
    if constexpr (transposed)
      copy_pack(p.b + (first_column + i / 8) * p.k + k + i % 8 * 8, right + by_row(i / 8, i % 8));
    else
      copy_pack(p.b + (k + i / 4) * p.n + first_column + i % 4 * 8,
                right + by_column(i / 4, i % 4));
  }
  await_before();
#pragma unroll
  for (int chunk = 0; chunk < kMostChunks; ++chunk) {
    if (chunk < chunks) {
      bf16* const left = tiles + chunk * (kLeft + kRight);
      const int64_t k = first_k + chunk * kChunk;
#pragma unroll
      for (int j = i; j < kLeft / 8; j += kProductThreads) {
        // Rows after the last are not used: any value will do.
        const int row = j / 8, eight = j % 8;
        copy_pack(p.a + min(first_row + row, p.m - 1) * p.a_row + k + 8 * eight,
                  left + by_row(row, eight));
      }
    }
    if (chunk % kTogether == kTogether - 1) copies_end();
  }
  const int row = warp / 2 * 16, column = warp % 2 * 16;  // of the tile
  // Neighbouring steps along k have sums of their own: one waits less for the other.
  float4 sum[2][2] = {};
#pragma unroll
  for (int chunk = 0; chunk < kMostChunks; ++chunk) {
    if (chunk % kTogether == 0) {
      constexpr int kGroups = kMostChunks / kTogether;
      static_assert(kGroups == 4);
      if (chunk == 0) copies_wait<3>();
      if (chunk == kTogether) copies_wait<2>();
      if (chunk == 2 * kTogether) copies_wait<1>();
      if (chunk == 3 * kTogether) copies_wait<0>();
      __syncthreads();
    }
    if (chunk >= chunks) continue;
    const bf16* const left = tiles + chunk * (kLeft + kRight);
    const bf16* const right = left + kLeft;
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      uint32_t a[4], b[4];
      load_matrices(a, shared_address(left + by_row(row + lane % 16, k / 8 + lane / 16)));
      if constexpr (transposed)
        load_matrices(b, shared_address(right + by_row(column + lane / 16 * 8 + lane % 8,
                                                       k / 8 + lane / 8 % 2)));
      else
        load_transposed(b,
                        shared_address(right + by_column(k + lane % 16, column / 8 + lane / 16)));
      float4(&to)[2] = sum[k / 16 % 2];
      mma(to[0], a, b[0], b[1]);
      mma(to[1], a, b[2], b[3]);
    }
  }
  const int64_t to_row = first_row + row + lane / 4;
  float* const to = p.c + (blockIdx.z * p.m + to_row) * p.n + first_column + column + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float4 x = sum[0][j], y = sum[1][j];
    if (to_row < p.m) *reinterpret_cast<float2*>(to + 8 * j) = make_float2(x.x + y.x, x.y + y.y);
    if (to_row + 8 < p.m)
      *reinterpret_cast<float2*>(to + 8 * p.n + 8 * j) = make_float2(x.z + y.z, x.w + y.w);
  }
}

// ---- what both ways share

__device__ inline Seen seen_of(const DecoderSizes& s, int64_t b) {
  const int keys = static_cast<int>(s.keys);
  if (!s.range) return {0, keys};
  const Seen seen{max(0, s.range[2 * b]), min(keys, s.range[2 * b + 1])};
  return seen.none() ? Seen{0, 0} : seen;
}
__device__ inline Rows<bf16> rows_of(const bf16* all, int64_t b, int64_t keys, int64_t n,
                                     bf16* to) {
  return {all + b * keys * n, n, static_cast<int>(n), true, to};
}
// Planes [planes, rows, n] added up at one index, in their order.
__device__ inline float sum_planes(const float* at, int64_t planes, int64_t step) {
  float sum = *at;
#pragma unroll 1
  for (int64_t i = 1; i < planes; ++i) sum += at[i * step];
  return sum;
}
__device__ inline float rounded(float x) { return wide(narrow<bf16>(x)); }

// Within 2^-11 of the result: what bf16 keys leave of a sum is less exact.
__device__ inline float tanh_nearly(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- forward

// What a thread needs for one unit of the cell: what was there before the last product, and what
// was not.
struct CellIn {
  float x[3], bias[3], u[3], h;
  __device__ void load_early(const DecoderStep& p, int64_t b, int j) {
    const int64_t n = p.s.size;
    const bf16* const at = p.x + (b * p.s.steps + p.step) * 3 * n + j;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
      x[gate] = wide(at[gate * n]), bias[gate] = wide(p.bias[gate * n + j]);
  }
  __device__ void load(const DecoderStep& p, int64_t b, int j) {
    const int64_t n = p.s.size, width = p.s.key_size + 3 * n;
    const float* const from = p.qu + b * width + p.s.key_size + j;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate)
      u[gate] = sum_planes(from + gate * n, p.slices, p.s.batch * width) + bias[gate];
    h = p.state[b * n + j];
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    step(const __grid_constant__ DecoderStep p, const int tile_keys) {
  extern __shared__ __align__(16) float memory[];
  const DecoderSizes& s = p.s;
  const int n = static_cast<int>(s.size), a = static_cast<int>(s.key_size), m = 3 * n;
  const Units units(m);
  float *q = memory, *v = q + padded(a), *score = v + padded(a),
        *weight = score + padded(tile_keys), *sums = weight + padded(tile_keys);
  bf16 *key_tile = reinterpret_cast<bf16*>(sums + units.scratch_size()),
       *value_tile = key_tile + tile_keys * padded(a);
  const int lane = threadIdx.x % kWarp;
  const int64_t b = blockIdx.x, row = b * s.steps + p.step, width = a + m;
  const int own = static_cast<int>(threadIdx.x);
  const Seen seen = seen_of(s, b);
  const Rows<bf16> keys = rows_of(s.k, b, s.keys, a, key_tile);
  const Rows<bf16> values = rows_of(s.value, b, s.keys, m, value_tile);
  keys.copy(seen.begin, min(tile_keys, seen.end - seen.begin));
  values.copy(seen.begin, min(tile_keys, seen.end - seen.begin));
  CellIn first;
  if (own < n) first.load_early(p, b, own);
#pragma unroll 1
  for (int x = own; x < a; x += kThreads) v[x] = s.v[x];
#pragma unroll 1
  for (int x = own; x < units.scratch_size(); x += kThreads) sums[x] = 0;
  await_before();
  const auto query = [&](int x) {
    return rounded(sum_planes(p.qu + b * width + x, p.slices, s.batch * width));
  };
#pragma unroll 1
  for (int x = own; x < a; x += kThreads) {
    q[x] = query(x);
    p.q[row * a + x] = narrow<bf16>(q[x]);
  }
  if (own < n) first.load(p, b, own);
  float* const weights = p.weights + row * s.keys;
  __syncthreads();

  float most = -INFINITY, sum = 0;  // the same in every thread
#pragma unroll 1
  for (int key = seen.begin; key < seen.end; key += tile_keys) {
    const int count = min(tile_keys, seen.end - key), next = key + count;
    copies_wait<1>();  // keys; the values may still be on their way
    __syncwarp();
    const auto add = [&]<int N>(int, int x, const float(&k)[N][kVector], float(&to)[N]) {
      float y[kVector], w[kVector];
      load<kVector>(q + x, y), load<kVector>(v + x, w);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
#pragma unroll
        for (int r = 0; r < N; ++r) to[r] = fmaf(w[i], tanh_nearly(y[i] + k[r][i]), to[r]);
    };
    sum_all_rows(keys, count, score, add);
    each_row(count, [&](int u) {
      score[u] *= kLog2E;
      weights[key + u] = score[u];  // made a weight at the end
    });
    keys.copy(next, min(tile_keys, seen.end - next));
    __syncthreads();
    float top = -INFINITY;
#pragma unroll 1
    for (int u = lane; u < count; u += kWarp) top = fmaxf(top, score[u]);
    const float now = fmaxf(most, warp_max(top)), from = now == -INFINITY ? 0.0f : now;
    const float factor = most == -INFINITY ? 1.0f : exp2f(most - now);
    sum = sum * factor + lanes_sum(count, [&](int u) { return exp2f(score[u] - from); });
    most = now;
#pragma unroll 1
    for (int u = own; u < count; u += kThreads) weight[u] = exp2f(score[u] - from);
    copies_wait<1>();  // values; the next keys may still be on their way
    __syncthreads();
    add_rows(units, values, count, weight, factor, sums);
    __syncthreads();  // values and weights are read, sums are written
    values.copy(next, min(tile_keys, seen.end - next));
  }
  const bool none = most == -INFINITY;
  const float from = none ? 0.0f : most, share = none ? 0.0f : 1.0f / sum;
#pragma unroll 1
  for (int j = own; j < n; j += kThreads) {
    CellIn in = first;
    if (j != own) in.load_early(p, b, j), in.load(p, b, j);
    const auto gate = [&](int i) {
      return fmaf(sum_of_groups(units, sums, i * n + j), share, in.x[i]);
    };
    const float r = sigmoid(gate(0) + in.u[0]), z = sigmoid(gate(1) + in.u[1]);
    const float c = tanhf(fmaf(r, in.u[2], gate(2))), h = fmaf(z, in.h - c, c);
    p.state[b * n + j] = h;
    p.h[row * n + j] = narrow<bf16>(h);
    if (p.step + 1 < s.steps) p.before[(row + 1) * n + j] = narrow<bf16>(h);
    float* const saved = p.gates + row * 4 * n + j;
    saved[0] = r, saved[n] = z, saved[2 * n] = c, saved[3 * n] = in.u[2];
  }
#pragma unroll 1
  for (int j = own; j < s.keys; j += kThreads)
    weights[j] = seen.has(j) ? exp2f(weights[j] - from) * share : 0.0f;
}

// ---- backward

// What a thread needs for one unit of the cell.
struct CellBack {
  float dh, r, z, c, uc, h;
  __device__ void load_early(const DecoderStepGrad& p, int64_t b, int j) {
    const int64_t n = p.s.size, row = b * p.s.steps + p.step;
    dh = wide(p.dh[row * n + j]);
    const float* const saved = p.gates + row * 4 * n + j;
    r = saved[0], z = saved[n], c = saved[2 * n], uc = saved[3 * n];
    h = wide(p.before[row * n + j]);
  }
  __device__ void load(const DecoderStepGrad& p, int64_t b, int j) {
    const int64_t n = p.s.size;
    dh += sum_planes(p.carried + b * n + j, p.planes, p.s.batch * n);
  }
};

// With D = sum_j w_j g_j:  d score_j = w_j (g_j - D),  g_j = dx . value_j + d weight_j,
//   dq = v sum_j d score_j (1 - tanh^2(q + k_j)).
__global__ void __launch_bounds__(kThreads, 1)
    step_back(const __grid_constant__ DecoderStepGrad p, const int tile_keys) {
  extern __shared__ __align__(16) float memory[];
  const DecoderSizes& s = p.s;
  const int n = static_cast<int>(s.size), a = static_cast<int>(s.key_size), m = 3 * n;
  const Units units(a);
  float *q = memory, *g = q + padded(a), *w = g + padded(m), *other = w + padded(s.keys),
        *dscore = other + padded(s.keys), *sums = dscore + padded(s.keys);
  bf16 *key_tile = reinterpret_cast<bf16*>(sums + units.scratch_size()),
       *value_tile = key_tile + tile_keys * padded(a);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t b = blockIdx.x, row = b * s.steps + p.step;
  const int own = static_cast<int>(threadIdx.x), all_keys = static_cast<int>(s.keys);
  const Seen seen = seen_of(s, b);
  const Rows<bf16> keys = rows_of(s.k, b, s.keys, a, key_tile);
  const Rows<bf16> values = rows_of(s.value, b, s.keys, m, value_tile);
  values.copy(seen.begin, min(tile_keys, seen.end - seen.begin));
  keys.copy(seen.begin, min(tile_keys, seen.end - seen.begin));
  CellBack first;
  if (own < n) first.load_early(p, b, own);
#pragma unroll 1
  for (int x = own; x < a; x += kThreads) q[x] = wide(p.q[row * a + x]);
#pragma unroll 1
  for (int j = own; j < all_keys; j += kThreads) {
    w[j] = p.weights[row * s.keys + j];
    other[j] = p.dweights ? p.dweights[row * s.keys + j] : 0.0f;
  }
#pragma unroll 1
  for (int x = own; x < units.scratch_size(); x += kThreads) sums[x] = 0;
  await_before();
  if (own < n) first.load(p, b, own);
#pragma unroll 1
  for (int j = own; j < n; j += kThreads) {
    CellBack in = first;
    if (j != own) in.load_early(p, b, j), in.load(p, b, j);
    const float da = in.dh * (1 - in.z) * fmaf(-in.c, in.c, 1.0f);  // the candidate's
    const float d[3] = {da * in.uc * fmaf(-in.r, in.r, in.r),
                        in.dh * (in.h - in.c) * fmaf(-in.z, in.z, in.z), da};
    p.carried[b * n + j] = in.dh * in.z;
    bf16* const dx = p.dx + row * m + j;
    bf16* const du = p.dqu + row * (a + m) + a + j;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      dx[gate * n] = narrow<bf16>(d[gate]);
      g[gate * n + j] = rounded(d[gate]);
      du[gate * n] = narrow<bf16>(gate == 2 ? da * in.r : d[gate]);
    }
  }
  __syncthreads();

  // g_j of all keys.
#pragma unroll 1
  for (int key = seen.begin; key < seen.end; key += tile_keys) {
    const int count = min(tile_keys, seen.end - key), next = key + count;
    if (key == seen.begin)
      copies_wait<1>();  // the keys may still be on their way
    else
      copies_wait<0>();
    __syncwarp();
    const auto add = [&]<int N>(int, int x, const float(&y)[N][kVector], float(&to)[N]) {
      float d[kVector];
      load<kVector>(g + x, d);
#pragma unroll
      for (int i = 0; i < kVector; ++i)
#pragma unroll
        for (int r = 0; r < N; ++r) to[r] = fmaf(d[i], y[r][i], to[r]);
    };
    sum_all_rows(values, count, dscore + key, add);
    __syncwarp();  // the warp's rows are read
    values.copy(next, min(tile_keys, seen.end - next));
  }
  __syncthreads();
  const int seen_keys = seen.end - seen.begin;
  const float mean = lanes_sum(seen_keys, [&](int i) {
    const int j = seen.begin + i;
    return w[j] * (dscore[j] + other[j]);
  });
  __syncthreads();  // all have read the dscores
  float* const dscores = p.dscores + row * s.keys;
#pragma unroll 1
  for (int j = own; j < all_keys; j += kThreads) {
    const float ds = seen.has(j) && w[j] != 0 ? w[j] * (dscore[j] + other[j] - mean) : 0.0f;
    dscore[j] = ds, dscores[j] = ds;
  }

#pragma unroll 1
  for (int key = seen.begin; key < seen.end; key += tile_keys) {
    const int count = min(tile_keys, seen.end - key), next = key + count;
    copies_wait<0>();
    __syncthreads();  // dscores and keys are there
#pragma unroll 1
    for (int unit = warp; unit < units.tiles * units.groups; unit += kWarps) {
      const int x = (unit % units.tiles * kWarp + lane) * kVector, group = unit / units.tiles;
      if (x >= a) continue;
      float sum[kVector], y[kVector], k[kVector];
      load<kVector>(sums + group * units.width + x, sum), load<kVector>(q + x, y);
#pragma unroll 2
      for (int u = group; u < count; u += units.groups) {
        load<kVector>(keys.at(u) + x, k);
        const float ds = dscore[key + u];
#pragma unroll
        for (int i = 0; i < kVector; ++i) sum[i] = fmaf(ds, Tanh(y[i] + k[i]).derivative(), sum[i]);
      }
      store<kVector>(sum, sums + group * units.width + x);
    }
    __syncthreads();  // keys are read, sums are written
    keys.copy(next, min(tile_keys, seen.end - next));
  }
  bf16* const dq = p.dqu + row * (a + m);
#pragma unroll 1
  for (int x = own; x < a; x += kThreads)
    dq[x] = narrow<bf16>(s.v[x] * sum_of_groups(units, sums, x));
}

// ---- launches

// Shared memory of a step, or of its backward pass, for tiles of so many keys.
size_t shared_of(const DecoderSizes& s, bool back, int64_t tile_keys) {
  const int64_t a = padded(s.key_size), m = padded(3 * s.size);
  const int64_t floats = back ? a + m + 3 * padded(s.keys) + Units(s.key_size).scratch_size()
                              : 2 * a + 2 * padded(tile_keys) + Units(3 * s.size).scratch_size();
  return static_cast<size_t>(floats * 4 + tile_keys * (a + m) * 2);
}
// Keys at a time: all that fit, or else a multiple of what the warps have one each of.
int tile_keys_of(const DecoderSizes& s, bool back) {
  int64_t tile_keys = std::max<int64_t>(1, s.keys);
  if (shared_of(s, back, tile_keys) <= most_shared()) return static_cast<int>(tile_keys);
  tile_keys = tile_keys / kWarps * kWarps;
  while (tile_keys > kWarps && shared_of(s, back, tile_keys) > most_shared()) tile_keys -= kWarps;
  while (tile_keys > 1 && shared_of(s, back, tile_keys) > most_shared()) --tile_keys;
  return static_cast<int>(tile_keys);
}

}  // namespace

void run(Cuda device, const SlicedProduct& p) {
  if (p.m == 0) return;
  const dim3 grid(static_cast<unsigned>(p.n / kTileColumns),
                  static_cast<unsigned>(ceil_div(p.m, kTileRows)),
                  static_cast<unsigned>(SlicedProduct::slices(p.k)));
  launch_in_chain(device, p.transposed ? product<true> : product<false>, grid, kProductThreads,
                  size_t{kMostChunks} * (kLeft + kRight) * sizeof(bf16), p.follows, p);
}

void run(Cuda device, const DecoderStep& p) {
  if (p.s.batch == 0) return;
  const int tile_keys = tile_keys_of(p.s, false);
  launch_in_chain(device, step, dim3(static_cast<unsigned>(p.s.batch)), kThreads,
                  shared_of(p.s, false, tile_keys), true, p, tile_keys);
}
void run(Cuda device, const DecoderStepGrad& p) {
  if (p.s.batch == 0) return;
  const int tile_keys = tile_keys_of(p.s, true);
  launch_in_chain(device, step_back, dim3(static_cast<unsigned>(p.s.batch)), kThreads,
                  shared_of(p.s, true, tile_keys), p.follows, p, tile_keys);
}

bool fits(Cuda, const DecoderSizes& s) {
  return s.size % kChunk == 0 && s.key_size % kChunk == 0 && s.size > 0 && s.key_size > 0 &&
         shared_of(s, false, 1) <= most_shared() && shared_of(s, true, 1) <= most_shared() &&
         ceil_div(s.batch, kTileRows) < 65536;
}

}  // namespace heed::kernels
