// The backward pass of fused attention by dot products of bf16 on tensor cores, for up to 64 keys:
// one block has all of a key head, so one launch gives everything. Each warp has 16 rows of every
// 64 (or 32, where that is all, for a higher occupancy) for weights, recomputed from the saved
// log-sum-exp, d score and dq; these weights and dscores go through shared memory, where each warp
// takes 16 keys of them for dk and dvalue. Equations: dot_grad.cu.
#include "heed/kernels/cuda/dot_mma.cuh"

namespace heed::kernels {
namespace {

template <int D, int kStep>
struct Tile {  // of shared memory; kStep rows, and keys
  alignas(1024) bf16 k[kStep * D];
  alignas(1024) bf16 value[kStep * D];
  alignas(1024) bf16 q[kStep * D];
  alignas(1024) bf16 g[kStep * D];
  alignas(1024) bf16 weight[kStep * kStep];  // rows by keys
  alignas(1024) bf16 dscore[kStep * kStep];
  int2 range[kStep];
  float mean[kStep];
};

// Sums of 16 rows from `row` on by kTiles times 8 columns from `column` on, rounded.
template <int kStep, int kTiles>
__device__ void put_sums(const float (&x)[1][kTiles][4], bf16* to, int row, int column) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int j = 0; j < kTiles; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      *reinterpret_cast<uint32_t*>(reinterpret_cast<unsigned char*>(to) +
                                   Swizzled<kStep>::offset(row + h * 8 + lane / 4, column / 8 + j) +
                                   lane % 4 * 4) = narrow_pair(x[0][j][2 * h], x[0][j][2 * h + 1]);
}

// kOne: there is one step. Then dq, dvalue and dk are in registers one after the other.
template <int D, bool kOne, int kStep>
constexpr int kBlocks =  // the occupancy of a multiprocessor, by its shared memory or registers
    D == 128 ? (kStep == 32 ? 6 : 2) : (kOne ? 4 : 3) * (64 / kStep);

template <int D, bool kOne, int kStep, bool kDrop>
__global__ void __launch_bounds__(kStep * 2, kBlocks<D, kOne, kStep>)
    grad_short(const __grid_constant__ AttentionGrad<bf16> k, Drop drop) {
  using S = Swizzled<D>;
  constexpr int kThreads = kStep * 2;  // a warp for each 16 rows
  constexpr int kChunk = 4;            // tiles of eight keys that are worked on at once
  extern __shared__ __align__(1024) unsigned char shared[];
  auto& tile = *reinterpret_cast<Tile<D, kStep>*>(shared);
  const Attention<bf16>& a = k.forward;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  const Unit unit(a, blockIdx.x, static_cast<int>(a.heads / a.key_heads));
  const int keys = static_cast<int>(a.keys);
  const int own = warp * 16;  // this warp's rows, and its keys
  const uint64_t seed = kDrop ? key_of(a.seed) : 0;

  S::template take<kStep, kThreads>(shared_address(tile.k), row_at(a.k, unit.b, unit.g, 0), a.k.row,
                                    0, keys);
  S::template take<kStep, kThreads>(shared_address(tile.value), row_at(a.value, unit.b, unit.g, 0),
                                    a.value.row, 0, keys);
  float dk[1][D / 8][4], dvalue[1][D / 8][4];  // of this warp's keys
  if (!kOne) zero(dk), zero(dvalue);
  const auto add = [&](float(&sums)[1][D / 8][4], const bf16* weights, const bf16* rows,
                       int count) {
    const uint32_t left_transposed = Swizzled<kStep>::left_transposed(shared_address(weights)),
                   right_transposed = S::right_transposed(shared_address(rows));
#pragma unroll 1
    for (int r = 0; r < count; r += 16) {
      uint32_t left[4], right[4];
      load_transposed(left, Swizzled<kStep>::at(left_transposed, r, warp));
#pragma unroll
      for (int c = 0; c < D / 8; c += 2) {
        load_transposed(right, S::at(right_transposed, r, c / 2));
        mma(sums[0][c], left, right[0], right[1]);
        mma(sums[0][c + 1], left, right[2], right[3]);
      }
    }
  };
  const auto put = [&](const float(&sums)[1][D / 8][4], const Heads<bf16>& heads, float by) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int j = own + h * 8 + lane / 4;
      put_row(sums[0], h, by, row_at(heads, unit.b, unit.g, j), j < keys, k.add);
    }
  };
  const float scale = a.scale * kLog2E;
  const uint32_t q_begin = S::left(shared_address(tile.q)),
                 g_begin = S::left(shared_address(tile.g));
  const uint32_t k_begin = S::right(shared_address(tile.k)),
                 value_begin = S::right(shared_address(tile.value)),
                 k_transposed = S::right_transposed(shared_address(tile.k));

  int row0 = 0;
#pragma unroll 1
  do {
    const int count = min(kStep, unit.rows - row0);
    if (!kOne && row0 > 0) __syncthreads();  // the last step was read
    // All that a step reads is asked for at once: what a small launch costs is waiting. Of several
    // steps, registers hold other things.
    {
      constexpr int kRowsAtOnce = kThreads / S::kPieces;
      const int piece = thread % S::kPieces;
      const uint32_t q_tile = shared_address(tile.q), g_tile = shared_address(tile.g);
#pragma unroll
      for (int r0 = 0; r0 < kStep; r0 += kRowsAtOnce) {
        const int r = r0 + thread / S::kPieces;
        const bool there = r < count;
        copy16(q_tile + S::offset(r, piece),
               there ? unit.row_of(a.q, row0 + r) + piece * 8 : a.q.data, there);
        copy16(g_tile + S::offset(r, piece),
               there ? unit.row_of(k.dcontext, row0 + r) + piece * 8 : k.dcontext.data, there);
      }
    }
    copies_end();
    constexpr int kContexts = 16 * S::kPieces / kWarp;  // rows that a lane has a piece of
    uint4 context[kContexts];
    float lses[2];
    const auto ask = [&] {
#pragma unroll
      for (int i = 0; i < kContexts; ++i) {
        const int r = own + i * (kWarp / S::kPieces) + lane / S::kPieces;
        context[i] = piece_of<S>(r < count ? unit.row_of(a.context, row0 + r) : nullptr);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = own + h * 8 + lane / 4;
        lses[h] = r < count ? a.lse[unit.number(a, row0 + r)] : 0.0f;
      }
    };
    if (kOne) ask();
    bool blind = false;  // a row that sees nothing
    if (thread < kStep) {
      const int2 range = unit.range(a, row0 + thread);
      tile.range[thread] = range;
      blind = thread < count && range.x >= range.y;
    }
    copies_wait<0>();
    if (__syncthreads_or(blind)) {  // such rows are zeros, whatever stands there
      for (int x = thread; x < kStep * S::kPieces; x += kThreads) {
        const int r = x / S::kPieces;
        if (tile.range[r].x < tile.range[r].y) continue;
        const uint32_t at = S::offset(r, x % S::kPieces);
        for (bf16* to : {tile.q, tile.g})
          *reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(to) + at) =
              make_uint4(0, 0, 0, 0);
      }
      __syncthreads();
    }
    if (a.range && row0 == 0) {
      // 0 * NaN is NaN: what is non-finite in a key is made 0. Rows that see NaN have it as their
      // lse, and get it. (Infinities in a key whose score is -inf count as 0, too.)
      zero_non_finite(tile.k, kStep * D);
      __syncthreads();
    }
    if (own < count) {
      if (!kOne) ask();
#pragma unroll
      for (int i = 0; i < kContexts; ++i) {
        const int r = own + i * (kWarp / S::kPieces) + lane / S::kPieces;
        const bool sees = tile.range[r].x < tile.range[r].y;
        const float sum = mean_of<S>(sees ? context[i] : make_uint4(0, 0, 0, 0), tile.g, r);
        if (lane % S::kPieces == 0) tile.mean[r] = sum;
      }
      __syncwarp();
      float dq[1][D / 8][4];
      zero(dq);
#pragma unroll 1
      for (int j0 = 0; j0 < keys; j0 += 8 * kChunk) {
        float s[1][kChunk][4], dscore[1][kChunk][4];
        multiply_both<D>(q_begin, g_begin, own, k_begin, value_begin, j0, s, dscore);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int r = own + h * 8 + lane / 4;
          const int2 range = tile.range[r];
          const float mean = tile.mean[r], lse = lses[h];
          const uint32_t kept =
              kDrop ? kept_keys<kChunk>(drop, seed, unit.number(a, row0 + r), j0) : ~0u;
#pragma unroll
          for (int j = 0; j < kChunk; ++j)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; ++e) {
              const int at = j0 + j * 8 + lane % 4 * 2 + e % 2;
              const bool seen = at >= range.x && at < range.y;
              const float w = power_of_2(fmaf(s[0][j][e], scale, -lse));
              const float z = !kDrop ? 1.0f : kept >> (2 * j + e % 2) & 1 ? drop.keep : 0.0f;
              dscore[0][j][e] = seen ? w * (dscore[0][j][e] * z - mean) : 0.0f;
              s[0][j][e] = seen ? w * z : 0.0f;
            }
        }
        put_sums<kStep>(s, tile.weight, own, j0);
        put_sums<kStep>(dscore, tile.dscore, own, j0);
        add_product<D>(dscore, k_transposed, j0, dq);
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = own + h * 8 + lane / 4;
        put_row(dq[0], h, a.scale, unit.row_of(k.dq, row0 + r), r < count, false);
      }
    }
    __syncthreads();
    if (!kOne && own < keys) {
      add(dvalue, tile.weight, tile.g, count);
      add(dk, tile.dscore, tile.q, count);
    }
    row0 += kStep;
  } while (!kOne && row0 < unit.rows);

  if (own >= keys) return;
  if (kOne) zero(dvalue), add(dvalue, tile.weight, tile.g, unit.rows);
  put(dvalue, k.dvalue, 1);
  if (kOne) zero(dk), add(dk, tile.dscore, tile.q, unit.rows);
  put(dk, k.dk, a.scale);
}

template <int D, bool kOne, int kStep, bool kDrop>
void launch(Cuda device, const AttentionGrad<bf16>& k) {
  constexpr size_t bytes = sizeof(Tile<D, kStep>);
  const auto blocks = static_cast<unsigned>(k.forward.batch * k.forward.key_heads);
  allow_shared(grad_short<D, kOne, kStep, kDrop>, bytes);
  grad_short<D, kOne, kStep, kDrop>
      <<<blocks, kStep * 2, bytes, stream_of(device)>>>(k, drop_of(k.forward));
  launched("attention, the backward pass");
}
template <int D, bool kOne, int kStep>
void launch(Cuda device, const AttentionGrad<bf16>& k) {
  return drop_of(k.forward).threshold ? launch<D, kOne, kStep, true>(device, k)
                                      : launch<D, kOne, kStep, false>(device, k);
}
template <int D>
void launch(Cuda device, const AttentionGrad<bf16>& k) {
  const Attention<bf16>& a = k.forward;
  const int64_t rows = a.heads / a.key_heads * a.queries;
  if (rows <= 32 && a.keys <= 32) return launch<D, true, 32>(device, k);
  return rows <= 64 ? launch<D, true, 64>(device, k) : launch<D, false, 64>(device, k);
}

}  // namespace

void mma_attention_grad_short(Cuda device, const AttentionGrad<bf16>& k) {
  if (k.forward.size == 32) return launch<32>(device, k);
  if (k.forward.size == 64) return launch<64>(device, k);
  return launch<128>(device, k);
}

}  // namespace heed::kernels
