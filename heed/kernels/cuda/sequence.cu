// Recurrent cells over a whole sequence on a GPU, forward and backward: a persistent kernel, one
// launch for all steps, with the recurrent weights on chip (after Diamos et al., 2016, "Persistent
// RNNs"). Formulas and gate orders: kernels.h; the cells' arithmetic: recurrent.cu.
//
// A group of blocks runs one sequence for some rows of the batch. Each block owns some units of the
// state: it holds their columns of U (all gates) in shared memory from the first step to the last
// and keeps their state in registers. Forward, a step is the product of the rows' whole h, which
// the group wrote in the step before, with the block's columns, then the cell. Backward, a block
// knows du of its own columns; the product with its part of U^T is a share of every unit's dh,
// which goes to the block that owns the unit, and that one adds the shares in the order of the
// blocks.
//
// Blocks wait for each other within a launch, so all must run at the same time: launches are
// cooperative, which the driver refuses when the blocks do not fit, and plan() asks, by the
// occupancy, for no more than do. (Kernels of another stream may hold some multiprocessors for a
// while; they wait for nobody.) What a block waits for is a counter of the finished steps of
// another one; since every step writes its own slot (or, backward, one of two in turn), there is
// nothing to wait for between reading and writing.
#include <initializer_list>

#include "heed/kernels/cuda/device.cuh"
#include "heed/kernels/cuda/instructions.cuh"

namespace heed::kernels {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;

// ---- between blocks

// After the last write of a step, by all threads of the block: the step can be read by others.
__device__ void publish(unsigned* done, unsigned steps) {
  __syncthreads();
  // The release takes along what all threads of the block wrote before the barrier.
  if (threadIdx.x == 0)
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(done), "r"(steps) : "memory");
}
// By a warp: waits until blocks first .. first + count - 1 have done that many steps.
__device__ void await(const unsigned* done, int first, int count, unsigned steps) {
  for (int i = threadIdx.x % kWarp; i < count; i += kWarp) {
    unsigned now;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(now)
                   : "l"(done + first + i)
                   : "memory");
    } while (now < steps);
  }
  __syncwarp();
}
// Past L1, which does not see what other blocks write. Volatile: stays after await(). 16 bytes: 4
// floats, or 8 of bf16.
__device__ float4 load_shared_by_blocks(const void* p) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p)
               : "memory");
  return v;
}

// ---- products: mma.sync m16n8k8 in tf32, m16n8k16 in bf16. Lane 4 g + t holds of a tile of sums
// [16, 8] rows g and g + 8, columns 2 t and 2 t + 1, and of operands 16 bytes, the t-th quarter of
// a chunk of a row's (a) or a column's (b) elements: two instructions, which take them in an order
// of their own, the same for a and b.

template <class T>
inline constexpr int kChunk = 64 / static_cast<int>(sizeof(T));
template <class T>
inline constexpr int kQuarter = kChunk<T> / 4;

__device__ float tf32(float x) {
  uint32_t y;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
  return __uint_as_float(y);
}
__device__ float4 tf32(float4 x) { return make_float4(tf32(x.x), tf32(x.y), tf32(x.z), tf32(x.w)); }
__device__ void mma8(float4& c, float a0, float a1, float a2, float a3, float b0, float b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
      : "r"(__float_as_uint(a0)), "r"(__float_as_uint(a1)), "r"(__float_as_uint(a2)),
        "r"(__float_as_uint(a3)), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
__device__ void mma16(float4& c, float a0, float a1, float a2, float a3, float b0, float b1) {
  const uint32_t a[4] = {__float_as_uint(a0), __float_as_uint(a1), __float_as_uint(a2),
                         __float_as_uint(a3)};
  mma(c, a, __float_as_uint(b0), __float_as_uint(b1));
}
// c += a b over a chunk, with rows g and g + 8 of a. Of bf16, a float is two neighbours.
template <class T>
__device__ void multiply_chunk(float4& c, const float4& a, const float4& below, const float4& b) {
  if constexpr (sizeof(T) == 4) {
    mma8(c, a.x, below.x, a.y, below.y, b.x, b.y);
    mma8(c, a.z, below.z, a.w, below.w, b.z, b.w);
  } else {
    mma16(c, a.x, below.x, a.y, below.y, b.x, b.y);
    mma16(c, a.z, below.z, a.w, below.w, b.z, b.w);
  }
}
// What is read is made an operand: bf16 is one.
template <class T>
__device__ float4 operand(const float4& x) {
  if constexpr (sizeof(T) == 4)
    return tf32(x);
  else
    return x;
}

// ---- who owns what

// A block owns 16 * kRowTiles rows and 8 * kUnitTiles units: one tile [16, 8] for each warp.
template <int kUnitTiles>
struct Tiling {
  static constexpr int kRowTiles = kWarps / kUnitTiles;
  static constexpr int kRows = 16 * kRowTiles, kUnits = 8 * kUnitTiles;
};

// Which part of the work a launch does.
struct Share {
  int first;       // group; they are numbered rows first, then parts
  int row_blocks;  // of a part
  int slices;      // blocks of a group
  unsigned* done;  // [groups of the launch, slices]: finished steps; zeros at first
};

// This thread's indices, and its four elements of the state: rows row and row + 8, units unit and
// unit + 1.
template <int kUnitTiles>
struct Place {
  using Tile = Tiling<kUnitTiles>;
  int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  int slice, group, part;  // group: of the launch
  int first_row, first_unit, row, unit;
  bool has_units, has[2];  // units, and with them each row, within the batch and n

  __device__ Place(const Share& share, int rows, int n) {
    slice = static_cast<int>(blockIdx.x) % share.slices;
    group = static_cast<int>(blockIdx.x) / share.slices;
    part = (share.first + group) / share.row_blocks;
    first_row = (share.first + group) % share.row_blocks * Tile::kRows;
    first_unit = slice * Tile::kUnits;
    row = first_row + warp / kUnitTiles * 16 + g;
    unit = first_unit + warp % kUnitTiles * 8 + 2 * t;
    has_units = unit < n;
    for (int r = 0; r < 2; ++r) has[r] = has_units && row + 8 * r < rows;
  }
};

// Two neighbours in each of a thread's two rows, as [row][unit]; rows lie `stride` apart.
struct Four {
  float v[2][2];
};
template <class P, class T>
__device__ Four load_four(const P& at, const T* p, int stride) {
  Four x{};
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (at.has[r]) load<2>(p + (at.row + 8 * r) * stride + at.unit, x.v[r]);
  return x;
}
template <class P, class T>
__device__ void store_four(const P& at, const Four& x, T* p, int stride) {
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (at.has[r]) store<2>(x.v[r], p + (at.row + 8 * r) * stride + at.unit);
}
template <class P>
__device__ void load_live(const P& at, const Id* live, int t, int rows, bool (&out)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) out[r] = !live || !at.has[r] || live[t * rows + at.row + 8 * r] != 0;
}

// ---- forward

// Elements of U in shared memory, 16 bytes in the order of the lanes: [chunks, gates * kUnitTiles].
template <Cell cell, int kUnitTiles, class T>
__device__ void hold_columns(const T* u, int n, int first_unit, float4* weights) {
  constexpr int kGates = gate_count(cell), kTiles = kGates * kUnitTiles;
  const int64_t width = int64_t{kGates} * n;
  const int count = n / kChunk<T> * kTiles * kWarp;
#pragma unroll 8
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int lane = i % kWarp, tile = i / kWarp % kTiles, chunk = i / kWarp / kTiles;
    const int unit = first_unit + tile % kUnitTiles * 8 + lane / 4;
    const T* p =
        u + (kChunk<T> * chunk + lane % 4 * kQuarter<T>)*width + tile / kUnitTiles * n + unit;
    union {
      T elements[kQuarter<T>];
      float4 all;
    } v{.all = make_float4(0, 0, 0, 0)};
    if (unit < n)
#pragma unroll
      for (int j = 0; j < kQuarter<T>; ++j) v.elements[j] = p[j * width];
    weights[i] = operand<T>(v.all);
  }
}

template <Cell cell, int kUnitTiles, class T>
__global__ void __launch_bounds__(kThreads, 1)
    forward(const __grid_constant__ CellSequence<T> k, const __grid_constant__ Share share) {
  constexpr int kGates = gate_count(cell), kSaved = saved_gates(cell);
  constexpr int kRowTiles = Tiling<kUnitTiles>::kRowTiles, kUnits = Tiling<kUnitTiles>::kUnits;
  constexpr int kTiles = kGates * kUnitTiles;
  constexpr int kAtOnce = 8 / kRowTiles;  // chunks of h that are read at a time
  extern __shared__ float4 memory[];
  const int n = static_cast<int>(k.n), length = static_cast<int>(k.length);
  const int chunks = n / kChunk<T>;
  const int rows = static_cast<int>(k.rows), state_row = static_cast<int>(k.state_row);
  float4* const weights = memory;                         // [chunks, kTiles, lanes]
  float4* const sums = memory + chunks * kTiles * kWarp;  // [warps, a block's tiles, lanes]
  const Place<kUnitTiles> at(share, rows, n);
  const typename CellSequence<T>::Part& p = k.part[at.part];
  unsigned* const done = share.done + at.group * share.slices;
  hold_columns<cell, kUnitTiles>(p.u, n, at.first_unit, weights);
  __syncthreads();

  // Every warp takes some of the elements of h that a sum goes over, and all columns. So it waits
  // only for the blocks that own these.
  const int begin = at.warp * chunks / kWarps, end = (at.warp + 1) * chunks / kWarps;
  const int first_source = kChunk<T> * begin / kUnits;
  const int sources = begin == end ? 0 : (kChunk<T> * end - 1) / kUnits - first_source + 1;

  Four h = load_four(at, p.h0, n), c{};
  if constexpr (cell == Cell::lstm) c = load_four(at, p.c0, n);
  float bias[kGates][2] = {};
  if (at.has_units)
    for (int gate = 0; gate < kGates; ++gate)
      for (int e = 0; e < 2; ++e) bias[gate][e] = wide(p.bias[gate * n + at.unit + e]);

  for (int step = 0; step < length; ++step) {
    const int t = p.backward ? length - 1 - step : step, before = p.backward ? t + 1 : t - 1;
    // What waits for nobody first.
    Four x[kGates];
    bool live[2];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate)
      x[gate] = load_four(at, p.x + (t * kGates + gate) * n, length * kGates * n);
    load_live(at, k.live, t, rows, live);

    float4 part[kRowTiles][kTiles];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
      for (int j = 0; j < kTiles; ++j) part[i][j] = make_float4(0, 0, 0, 0);
    if (step > 0) await(done, first_source, sources, static_cast<unsigned>(step));
    const T* const left = (step == 0 ? p.h0 : p.h + before * state_row) + kQuarter<T> * at.t;
    const int left_row = step == 0 ? n : length * state_row;
    for (int chunk = begin; chunk < end; chunk += kAtOnce) {
      float4 a[kAtOnce][kRowTiles][2];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
        if (chunk + s < end)
#pragma unroll
          for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              // Rows after the last are not used: any value will do.
              const int row = min(at.first_row + 16 * i + 8 * r + at.g, rows - 1);
              a[s][i][r] = load_shared_by_blocks(left + row * left_row + kChunk<T> * (chunk + s));
            }
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
        if (chunk + s < end) {
#pragma unroll
          for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
            for (int r = 0; r < 2; ++r) a[s][i][r] = operand<T>(a[s][i][r]);
          const float4* const right = weights + (chunk + s) * kTiles * kWarp + at.lane;
#pragma unroll
          for (int j = 0; j < kTiles; ++j) {
            const float4 b = right[j * kWarp];
#pragma unroll
            for (int i = 0; i < kRowTiles; ++i)
              multiply_chunk<T>(part[i][j], a[s][i][0], a[s][i][1], b);
          }
        }
    }

    // The warps' parts together, gate by gate: warp w gets tile w.
    Four u[kGates];
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      if (gate > 0) __syncthreads();  // the last gate's have been read
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < kUnitTiles; ++j)
          sums[(at.warp * kWarps + i * kUnitTiles + j) * kWarp + at.lane] =
              part[i][gate * kUnitTiles + j];
      __syncthreads();
      float4 sum = sums[at.warp * kWarp + at.lane];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) {
        const float4 y = sums[(w * kWarps + at.warp) * kWarp + at.lane];
        sum.x += y.x, sum.y += y.y, sum.z += y.z, sum.w += y.w;
      }
      u[gate] = {sum.x + bias[gate][0], sum.y + bias[gate][1], sum.z + bias[gate][0],
                 sum.w + bias[gate][1]};
    }

    Four saved[kSaved];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const auto in = [&](int gate) { return x[gate].v[r][e] + u[gate].v[r][e]; };
        if (!live[r]) {
#pragma unroll
          for (int gate = 0; gate < kSaved; ++gate) saved[gate].v[r][e] = 0;
        } else if constexpr (cell == Cell::rnn) {
          saved[0].v[r][e] = h.v[r][e] = tanhf(in(0));
        } else if constexpr (cell == Cell::gru) {
          const float rg = sigmoid(in(0)), z = sigmoid(in(1)), uc = u[2].v[r][e];
          const float y = tanhf(fmaf(rg, uc, x[2].v[r][e]));
          saved[0].v[r][e] = rg, saved[1].v[r][e] = z, saved[2].v[r][e] = y, saved[3].v[r][e] = uc;
          h.v[r][e] = fmaf(z, h.v[r][e] - y, y);
        } else {
          const float gi = sigmoid(in(0)), gf = sigmoid(in(1)), gg = tanhf(in(2));
          const float go = sigmoid(in(3)), y = fmaf(gf, c.v[r][e], gi * gg);
          saved[0].v[r][e] = gi, saved[1].v[r][e] = gf, saved[2].v[r][e] = gg,
          saved[3].v[r][e] = go;
          c.v[r][e] = y;
          h.v[r][e] = go * tanhf(y);
        }
      }
    store_four(at, h, p.h + t * state_row, length * state_row);
    // Also the barrier between reading `sums` and writing it in the next step.
    publish(done + at.slice, static_cast<unsigned>(step + 1));
    // What no other block waits for last.
    if constexpr (cell == Cell::lstm) store_four(at, c, p.c + t * state_row, length * state_row);
#pragma unroll
    for (int gate = 0; gate < kSaved; ++gate)
      store_four(at, saved[gate], p.gates + (t * kSaved + gate) * n, length * kSaved * n);
  }
}

// ---- backward

// A thread's elements of a step that were known before the backward pass began.
template <Cell cell, class T>
struct Known {
  Four saved[saved_gates(cell)], h_before, c_before, c_new, dh, dc;
  bool live[2];

  template <class P>
  __device__ void load(const P& at, const CellSequenceGrad<T>& k,
                       const typename CellSequenceGrad<T>::Part& p, int step) {
    constexpr int kSaved = saved_gates(cell);
    const int n = static_cast<int>(k.n), length = static_cast<int>(k.length);
    const int t = p.backward ? length - 1 - step : step, before = p.backward ? t + 1 : t - 1;
    const int state_row = static_cast<int>(k.state_row), state_rows = length * state_row;
    const int here = t * state_row;
#pragma unroll
    for (int gate = 0; gate < kSaved; ++gate)
      saved[gate] = load_four(at, p.gates + (t * kSaved + gate) * n, length * kSaved * n);
    const auto state_before = [&](const T* first, const T* all) {
      return step == 0 ? load_four(at, first, n)
                       : load_four(at, all + before * state_row, state_rows);
    };
    if constexpr (cell == Cell::gru) h_before = state_before(p.h0, p.h);
    if constexpr (cell == Cell::lstm) {
      c_before = state_before(p.c0, p.c);
      c_new = load_four(at, p.c + here, state_rows);
      dc = load_four(at, p.dc + here, state_rows);
    }
    dh = load_four(at, p.dh + here, state_rows);
    load_live(at, k.live, t, static_cast<int>(k.rows), live);
  }
};

__device__ float tanh_derivative(float y) { return fmaf(-y, y, 1.0f); }
__device__ float sigmoid_derivative(float y) { return fmaf(-y, y, y); }

// Chunks of columns of U that a block owns; the last may be filled up with zeros.
template <class T>
constexpr int column_chunks(Cell cell, int unit_tiles) {
  return (gate_count(cell) * 8 * unit_tiles + kChunk<T> - 1) / kChunk<T>;
}

// A block's columns of U as the right side U^T of du U^T: [column chunks, n / 8].
template <Cell cell, int kUnitTiles, class T>
__device__ void hold_rows(const T* u, int n, int first_unit, float4* weights) {
  constexpr int kGates = gate_count(cell), kUnits = Tiling<kUnitTiles>::kUnits;
  const int64_t width = int64_t{kGates} * n;
  const int tiles = n / 8, count = column_chunks<T>(cell, kUnitTiles) * tiles * kWarp;
#pragma unroll 8
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int lane = i % kWarp, tile = i / kWarp % tiles, chunk = i / kWarp / tiles;
    const int column = kChunk<T> * chunk + lane % 4 * kQuarter<T>, gate = column / kUnits;
    const int unit = first_unit + column % kUnits;
    float4 v = make_float4(0, 0, 0, 0);
    if (gate < kGates && unit < n)
      v = *reinterpret_cast<const float4*>(u + (8 * tile + lane / 4) * width + gate * n + unit);
    weights[i] = operand<T>(v);
  }
}

// `shares`: [2 (steps in turn), groups of the launch, blocks that own, blocks that give, a block's
// tiles, lanes].
template <Cell cell, int kUnitTiles, class T>
__global__ void __launch_bounds__(kThreads, 1)
    back(const __grid_constant__ CellSequenceGrad<T> k, const __grid_constant__ Share share,
         float4* shares) {
  constexpr int kGates = gate_count(cell);
  constexpr int kRowTiles = Tiling<kUnitTiles>::kRowTiles, kUnits = Tiling<kUnitTiles>::kUnits;
  constexpr int kChunks = column_chunks<T>(cell, kUnitTiles);
  constexpr int kWide = 2 * kUnitTiles;   // tiles of dh that a warp sums at a time
  constexpr int kBlock = kWarps * kWarp;  // float4 in a block's tiles
  extern __shared__ float4 memory[];
  const int n = static_cast<int>(k.n), length = static_cast<int>(k.length), tiles = n / 8;
  float4* const weights = memory;                         // [kChunks, tiles, lanes]
  float4* const left = memory + kChunks * tiles * kWarp;  // du: [kChunks, kRowTiles, 2, lanes]
  const Place<kUnitTiles> at(share, static_cast<int>(k.rows), n);
  const typename CellSequenceGrad<T>::Part& p = k.part[at.part];
  unsigned* const done = share.done + at.group * share.slices;
  const int slices = share.slices, groups = static_cast<int>(gridDim.x) / slices;
  hold_rows<cell, kUnitTiles>(p.u, n, at.first_unit, weights);
  for (int i = threadIdx.x; i < kChunks * kRowTiles * 2 * kWarp; i += kThreads)
    left[i] = make_float4(0, 0, 0, 0);
  __syncthreads();

  Known<cell, T> known;
  known.load(at, k, p, length - 1);
  Four dh{}, dc{};  // from the step after
  for (int step = length - 1; step >= 0; --step) {
    const int t = p.backward ? length - 1 - step : step;
    Four dx[kGates], du_last{};  // only the last gate of a gru has another gradient in du
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const auto saved = [&](int gate) { return known.saved[gate].v[r][e]; };
        const float dy = known.dh.v[r][e] + dh.v[r][e];
        float* const d[] = {&dx[0].v[r][e], &dx[kGates > 1 ? 1 : 0].v[r][e],
                            &dx[kGates > 2 ? 2 : 0].v[r][e], &dx[kGates > 3 ? 3 : 0].v[r][e]};
        float& out = dh.v[r][e];  // of h before the step, but for what goes through U
        if constexpr (cell == Cell::lstm) dc.v[r][e] += known.dc.v[r][e];
        if (!known.live[r]) {
#pragma unroll
          for (int gate = 0; gate < kGates; ++gate) *d[gate] = 0;
          out = dy;
        } else if constexpr (cell == Cell::rnn) {
          *d[0] = dy * tanh_derivative(saved(0));
          out = 0;
        } else if constexpr (cell == Cell::gru) {
          const float rg = saved(0), z = saved(1), y = saved(2), uc = saved(3);
          const float da = dy * (1 - z) * tanh_derivative(y);  // the candidate's
          *d[0] = da * uc * sigmoid_derivative(rg);
          *d[1] = dy * (known.h_before.v[r][e] - y) * sigmoid_derivative(z);
          *d[2] = da;
          du_last.v[r][e] = da * rg;
          out = dy * z;
        } else {
          const float gi = saved(0), gf = saved(1), gg = saved(2), go = saved(3);
          const float tc = tanhf(known.c_new.v[r][e]);
          const float dcell = dy * go * tanh_derivative(tc) + dc.v[r][e];
          *d[0] = dcell * gg * sigmoid_derivative(gi);
          *d[1] = dcell * known.c_before.v[r][e] * sigmoid_derivative(gf);
          *d[2] = dcell * gi * tanh_derivative(gg);
          *d[3] = dy * tc * sigmoid_derivative(go);
          dc.v[r][e] = dcell * gf;
          out = 0;
        }
      }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      const int place = (t * kGates + gate) * n, rows = length * kGates * n;
      const Four& du = cell == Cell::gru && gate == 2 ? du_last : dx[gate];
      store_four(at, dx[gate], p.dx + place, rows);
      if (p.du) store_four(at, du, p.du + place, rows);
      // Rows and units that are none have zeros: what was loaded for them is 0.
      const int column = gate * kUnits + at.warp % kUnitTiles * 8 + 2 * at.t;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float4* const four = left +
                             (column / kChunk<T> * kRowTiles + at.warp / kUnitTiles) * 2 * kWarp +
                             r * kWarp + at.g * 4 + column % kChunk<T> / kQuarter<T>;
        T* const two = reinterpret_cast<T*>(four) + column % kQuarter<T>;
        if constexpr (sizeof(T) == 4)
          store<2>({tf32(du.v[r][0]), tf32(du.v[r][1])}, two);
        else
          store<2>(du.v[r], two);
      }
    }
    if (step > 0) known.load(at, k, p, step - 1);
    __syncthreads();

    // Every warp takes some units of dh.
    float4* const to = shares + int64_t{(step & 1) * groups + at.group} * slices * slices * kBlock;
    for (int first = at.warp * kWide; first < tiles; first += kWarps * kWide) {
      float4 part[kRowTiles][kWide];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
        for (int j = 0; j < kWide; ++j) part[i][j] = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int chunk = 0; chunk < kChunks; ++chunk) {
        float4 a[kRowTiles][2];
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i)
#pragma unroll
          for (int r = 0; r < 2; ++r)
            a[i][r] = left[((chunk * kRowTiles + i) * 2 + r) * kWarp + at.lane];
#pragma unroll
        for (int j = 0; j < kWide; ++j)
          if (first + j < tiles) {
            const float4 b = weights[(chunk * tiles + first + j) * kWarp + at.lane];
#pragma unroll
            for (int i = 0; i < kRowTiles; ++i) multiply_chunk<T>(part[i][j], a[i][0], a[i][1], b);
          }
      }
#pragma unroll
      for (int j = 0; j < kWide; ++j)
        if (first + j < tiles) {
          const int owner = (first + j) / kUnitTiles;
#pragma unroll
          for (int i = 0; i < kRowTiles; ++i)
            to[(owner * slices + at.slice) * kBlock + (i * kUnitTiles + j % kUnitTiles) * kWarp +
               at.lane] = part[i][j];
        }
    }
    // Also the barrier between reading `left` and writing it in the next step.
    const unsigned steps = static_cast<unsigned>(length - step);
    publish(done + at.slice, steps);
    await(done, 0, share.slices, steps);
    if (at.has_units) {
      const float4* const from = to + at.slice * slices * kBlock + at.warp * kWarp + at.lane;
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 16
      for (int i = 0; i < slices; ++i) {
        const float4 y = load_shared_by_blocks(from + i * kBlock);
        sum.x += y.x, sum.y += y.y, sum.z += y.z, sum.w += y.w;
      }
      dh.v[0][0] += sum.x, dh.v[0][1] += sum.y, dh.v[1][0] += sum.z, dh.v[1][1] += sum.w;
    }
  }
  store_four(at, dh, p.dh0, n);
  if constexpr (cell == Cell::lstm) store_four(at, dc, p.dc0, n);
}

// ---- how it is launched

template <class Kernel>
struct Plan {
  Kernel kernel = nullptr;  // null: it does not fit
  size_t bytes = 0;         // shared memory of a block
  int row_blocks = 0, slices = 0, groups = 0;
  int at_once = 0;  // groups that a launch can have
  int launches() const { return (groups + at_once - 1) / at_once; }
};

// A kernel that runs on units of 8 * unit_tiles, and the shared memory that it wants.
template <class Kernel>
struct Choice {
  Kernel kernel;
  int unit_tiles;
  int64_t bytes;
};

bool aligned_all(std::initializer_list<const void*> arrays) {
  for (const void* p : arrays)
    if (!aligned(p, 16)) return false;
  return true;
}
template <class T>
bool arrays_aligned(const typename CellSequence<T>::Part& p) {
  return aligned_all({p.x, p.u, p.h0, p.c0, p.h, p.c, p.gates});
}
template <class T>
bool arrays_aligned(const typename CellSequenceGrad<T>::Part& p) {
  return aligned_all({p.u, p.h0, p.c0, p.h, p.c, p.gates, p.dh, p.dc, p.dx, p.du, p.dh0, p.dc0});
}

// The tiling that wants the fewest launches; of equals the one with most units a block, whose
// groups pass the fewest elements around. More launches than twice the parts: step by step, the
// larger products make better use of the GPU.
template <class T, class Sequence, class Kernel>
Plan<Kernel> plan(const Sequence& k, std::initializer_list<Choice<Kernel>> choices) {
  Plan<Kernel> best;
  if (k.rows <= 0 || k.length <= 0 || k.n <= 0 || k.n % kChunk<T> != 0 ||
      k.state_row % kQuarter<T> != 0 || !capabilities().cooperative)
    return best;
  // Offsets within an array are counted in 32 bits.
  constexpr int64_t kMost = int64_t{1} << 31;
  const int64_t widest = k.state_row > 4 * k.n ? k.state_row : 4 * k.n;
  if (k.rows >= kMost / k.length || k.rows * k.length >= kMost / widest) return best;
  for (int i = 0; i < k.parts; ++i)
    if (!arrays_aligned<T>(k.part[i])) return best;
  for (const Choice<Kernel>& choice : choices) {
    const size_t bytes = static_cast<size_t>(choice.bytes);
    if (bytes > capabilities().shared) continue;
    int blocks = 0;  // on a multiprocessor at the same time: the occupancy
    if (cudaFuncSetAttribute(choice.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(bytes)) != cudaSuccess ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, choice.kernel, kThreads, bytes) !=
            cudaSuccess) {
      cudaGetLastError();  // so that the next launch does not take it for its own
      continue;
    }
    const int64_t units = 8 * choice.unit_tiles, rows = 16 * (kWarps / choice.unit_tiles);
    const int64_t slices = ceil_div(k.n, units), row_blocks = ceil_div(k.rows, rows);
    const int64_t at_once = int64_t{blocks} * multiprocessors() / slices;
    if (at_once == 0) continue;
    const Plan<Kernel> found{.kernel = choice.kernel,
                             .bytes = bytes,
                             .row_blocks = static_cast<int>(row_blocks),
                             .slices = static_cast<int>(slices),
                             .groups = static_cast<int>(row_blocks * k.parts),
                             .at_once = static_cast<int>(at_once)};
    if (found.launches() > 2 * k.parts) continue;
    if (!best.kernel || found.launches() < best.launches()) best = found;
  }
  return best;
}

template <class T>
using Forward = void (*)(CellSequence<T>, Share);
template <class T>
using Back = void (*)(CellSequenceGrad<T>, Share, float4*);

template <Cell cell, class T>
Plan<Forward<T>> plan_cell(const CellSequence<T>& k) {
  const auto bytes = [&](int unit_tiles) {
    return (k.n / kChunk<T> * gate_count(cell) * unit_tiles + kWarps * kWarps) * kWarp *
           int64_t{16};
  };
  return plan<T, CellSequence<T>, Forward<T>>(k, {{forward<cell, 4, T>, 4, bytes(4)},
                                                  {forward<cell, 2, T>, 2, bytes(2)},
                                                  {forward<cell, 1, T>, 1, bytes(1)}});
}
template <Cell cell, class T>
Plan<Back<T>> plan_cell(const CellSequenceGrad<T>& k) {
  const auto bytes = [&](int unit_tiles) {
    const int64_t row_tiles = kWarps / unit_tiles;
    return column_chunks<T>(cell, unit_tiles) * (k.n / 8 + 2 * row_tiles) * kWarp * int64_t{16};
  };
  return plan<T, CellSequenceGrad<T>, Back<T>>(k, {{back<cell, 4, T>, 4, bytes(4)},
                                                   {back<cell, 2, T>, 2, bytes(2)},
                                                   {back<cell, 1, T>, 1, bytes(1)}});
}
template <class Sequence>
auto plan_of(const Sequence& k) {
  return k.cell == Cell::rnn   ? plan_cell<Cell::rnn>(k)
         : k.cell == Cell::gru ? plan_cell<Cell::gru>(k)
                               : plan_cell<Cell::lstm>(k);
}

// `share_bytes`: of scratch memory for every group, beside its counts of steps.
template <class Kernel, class Launch>
void launch_all(Cuda device, const char* name, const Plan<Kernel>& plan, size_t share_bytes,
                Launch&& launch) {
  require(plan.kernel, name, ": does not fit on this GPU; ask fits() first");
  for (int first = 0; first < plan.groups; first += plan.at_once) {
    const int groups = plan.groups - first < plan.at_once ? plan.groups - first : plan.at_once;
    const size_t counts = static_cast<size_t>(groups) * static_cast<size_t>(plan.slices);
    const size_t before = (counts * sizeof(unsigned) + 255) / 256 * 256;
    char* const scratch = static_cast<char*>(
        cuda_scratch(device, before + static_cast<size_t>(groups) * share_bytes));
    Share share{.first = first,
                .row_blocks = plan.row_blocks,
                .slices = plan.slices,
                .done = reinterpret_cast<unsigned*>(scratch)};
    if (const cudaError_t error =
            cudaMemsetAsync(scratch, 0, counts * sizeof(unsigned), stream_of(device));
        error != cudaSuccess)
      fail(name, ": cannot clear its counts: ", cudaGetErrorString(error));
    const dim3 grid(static_cast<unsigned>(counts));
    if (const cudaError_t error = launch(grid, share, scratch + before); error != cudaSuccess)
      fail(name, ": cannot be launched on the GPU: ", cudaGetErrorString(error));
  }
}

template <class T>
void start(Cuda device, const CellSequence<T>& k) {
  const Plan<Forward<T>> plan = plan_of(k);
  launch_all(device, "cell_sequence", plan, 0, [&](dim3 grid, Share& share, char*) {
    void* arguments[] = {const_cast<CellSequence<T>*>(&k), &share};
    return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(plan.kernel), grid,
                                       dim3(kThreads), arguments, plan.bytes, stream_of(device));
  });
}

template <class T>
void start(Cuda device, const CellSequenceGrad<T>& k) {
  const Plan<Back<T>> plan = plan_of(k);
  const size_t slices = static_cast<size_t>(plan.slices);
  const size_t shares = 2 * slices * slices * kWarps * kWarp * sizeof(float4);
  launch_all(device, "cell_sequence_grad", plan, shares,
             [&](dim3 grid, Share& share, char* scratch) {
               float4* to = reinterpret_cast<float4*>(scratch);
               void* arguments[] = {const_cast<CellSequenceGrad<T>*>(&k), &share, &to};
               return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(plan.kernel), grid,
                                                  dim3(kThreads), arguments, plan.bytes,
                                                  stream_of(device));
             });
}

}  // namespace

bool fits(Cuda, const CellSequence<float>& k) { return plan_of(k).kernel != nullptr; }
bool fits(Cuda, const CellSequence<bf16>& k) { return plan_of(k).kernel != nullptr; }
bool fits(Cuda, const CellSequenceGrad<float>& k) { return plan_of(k).kernel != nullptr; }
bool fits(Cuda, const CellSequenceGrad<bf16>& k) { return plan_of(k).kernel != nullptr; }

void run(Cuda device, const CellSequence<float>& k) { start(device, k); }
void run(Cuda device, const CellSequence<bf16>& k) { start(device, k); }
void run(Cuda device, const CellSequenceGrad<float>& k) { start(device, k); }
void run(Cuda device, const CellSequenceGrad<bf16>& k) { start(device, k); }

}  // namespace heed::kernels
