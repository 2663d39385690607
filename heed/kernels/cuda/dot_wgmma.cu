// Fused attention by dot products of bf16 on Hopper, forward: warp specialization into producer
// warps, which have the TMA load tiles, and two or three consumer warpgroups with 64 queries each
// by tiles of 128 keys, which multiply by wgmma. Online softmax: while a group takes that of one
// tile's scores, tensor cores multiply weights and values of the tile before for it, or do another
// group's products (Shah et al., 2024, "FlashAttention-3"). The log-sum-exp of each row is saved
// for backward. A unit is one head.
//
// A persistent kernel, where there are many tiles of queries: a block takes one (a job) after the
// other, and while its consumers end one, the next one's queries, keys and values are on their way,
// for a block's beginning and end take as long as 128 queries by 512 keys do. Jobs come in pairs,
// the last tile of a head's queries with the first, the last but one with the second: under a
// causal mask all pairs see equally many keys, so blocks that take equally many of them end
// together.
//
// Of the producer warps, one prepares jobs, which come through a ring of two stages; one has the
// TMA load keys, two values, which come through another ring one after the other: of a job's tile
// t, uses n + 2 t and n + 2 t + 1.
#include <algorithm>

#include "heed/kernels/cuda/dot_wgmma.cuh"

namespace heed::kernels {
namespace {

constexpr int kKeys = 2 * kTile;  // of a tile
constexpr int kStages = 4;        // for tiles of keys and values
constexpr int kJobs = 2;          // stages of jobs: one is worked on, one is on its way

// How the work is cut: consumer warpgroups of 64 queries each.
template <int D_, int kGroups_>
struct Cut {
  static constexpr int D = D_, kGroups = kGroups_;
  static constexpr int kRows = kGroups * kTile, kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kWarps = kGroups * kGroupThreads / kWarp;  // consumers
};

template <class C>
struct Job {
  static constexpr int kSpans = C::kRows / kWarp;
  alignas(1024) bf16 q[C::kGroups][kTile * C::D];  // then their context
  int2 range[C::kRows];                            // of keys that a query sees
  Span span[kSpans], all;
  int b, g;            // of the batch, of the heads of keys
  int rows;            // that there are; 0: no more jobs
  int64_t number;      // of the first among all rows
  bf16* context;       // of the first
  const bf16* values;  // of this head

  __device__ int first() const { return all.low / kKeys; }  // tiles of keys that any row sees
  __device__ int last() const { return (all.high + kKeys - 1) / kKeys; }
};

template <class C>
struct Shared {
  alignas(1024) bf16 keys_values[kStages][kKeys * C::D];
  Job<C> jobs[kJobs];
  Ring<kStages, 1, C::kWarps, false> ring;
  Ring<kJobs, kWarp, C::kWarps + 3, true> job_ring;  // full when the queries are there
  Barrier known[kJobs];                              // but for the queries, all of the job is there
  Barrier landed[kStages];  // values that are looked at before they are given on
  int non_finite[kStages];  // whether a tile of values had NaN or infinities
};

struct TensorMaps {
  TensorMap<kTile> q;
  TensorMap<kKeys> k, value;
};

// Which jobs there are, by number: first both of each pair, pair by pair, then, of an odd number of
// tiles, those in the middle of each unit, which have no other. A persistent block takes a pair or
// one of those, then the one that is a grid's further.
struct TileScheduler {
  int tiles, pairs, count;  // tiles of a unit; pairs of all units, jobs
  bool persistent;

  __device__ int first() const {
    const int i = static_cast<int>(blockIdx.x);
    return persistent ? begin(i) : i;
  }
  __device__ int next(int job) const {
    if (!persistent) return count;
    if (job < 2 * pairs && job % 2 == 0) return job + 1;
    return begin((job < 2 * pairs ? job / 2 : job - pairs) + static_cast<int>(gridDim.x));
  }
  __device__ int unit(int job) const {
    return job < 2 * pairs ? job / 2 / (tiles / 2) : job - 2 * pairs;
  }
  __device__ int tile(int job) const {
    if (job >= 2 * pairs) return tiles / 2;
    const int pair = job / 2 % (tiles / 2);
    return job % 2 ? pair : tiles - 1 - pair;
  }

 private:
  __device__ int begin(int i) const { return i < pairs ? 2 * i : pairs + i; }
};

// ---- producer warps

template <class C>
__device__ void prepare_jobs(const Attention<bf16>& a, const TensorMaps& maps,
                             const TileScheduler& scheduler, Shared<C>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int j = 0;
#pragma unroll 1
  for (int number = scheduler.first(); number < scheduler.count; number = scheduler.next(number)) {
    const int row0 = scheduler.tile(number) * C::kRows;
    const Unit unit(a, scheduler.unit(number), 1);
    Job<C>& job = shared.jobs[j % kJobs];
    shared.job_ring.producer_acquire(j);
    Span all = Span::none(static_cast<int>(a.keys));
#pragma unroll
    for (int i = 0; i < Job<C>::kSpans; ++i) {
      const int row = i * kWarp + lane;
      const int2 range = unit.range(a, row0 + row);
      job.range[row] = range;
      Span span = Span::none(static_cast<int>(a.keys));
      if (row0 + row < unit.rows) span.add(range);
      span.add_warp();
      if (lane == 0) job.span[i] = span;
      all.add(span);
    }
    if (lane == 0) {
      job.all = all;
      job.b = static_cast<int>(unit.b), job.g = static_cast<int>(unit.g);
      job.rows = min(C::kRows, unit.rows - row0);
      job.number = unit.number(a, row0);
      job.context = unit.row_of(a.context, row0);
      job.values = row_at(a.value, unit.b, unit.g, 0);
    }
    // Each lane says itself that what it wrote is there.
    Barrier& full = shared.job_ring.full[j % kJobs];
    if (lane == 0) {
      full.expect(C::kGroups * kTileBytes<C::D>);
      for (int i = 0; i < C::kGroups; ++i)
        Panels<C::D>::take(job.q[i], maps.q, unit.b, unit.first_head, row0 + i * kTile, full);
    }
    shared.known[j % kJobs].arrive();
    full.arrive();
    ++j;
  }
  shared.job_ring.producer_acquire(j);
  if (lane == 0) shared.jobs[j % kJobs].rows = 0;
  shared.known[j % kJobs].arrive();
  shared.job_ring.full[j % kJobs].arrive();
}

// Loads keys, by one warp, or values, by two: warp `number` of `count` has every `count`th tile,
// and so stages of its own.
template <bool kValues, class C>
__device__ void produce(const TensorMap<kKeys>& from, Shared<C>& shared, int number, int count) {
  using S = Panels<C::D, kKeys>;
  constexpr int kBytes = kKeys / kTile * kTileBytes<C::D>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int looks = 0;
  for (int j = 0, n = kValues;; ++j) {
    shared.known[j % kJobs].wait(j / kJobs & 1);
    const Job<C>& job = shared.jobs[j % kJobs];
    if (job.rows == 0) return;
    const int first = job.first(), tiles = max(job.last() - first, 0);
    const int b = job.b, g = job.g;
    const Span all = job.all;
    shared.job_ring.consumer_release(j);
#pragma unroll 1
    for (int t = (number + n / 2) % count; t < tiles; t += count) {
      const int i = n + 2 * t, stage = i % kStages, key = (first + t) * kKeys;
      // 0 * NaN is NaN: where not all rows see all of a tile, the product finds 0 instead of what
      // is non-finite. Keys that a row does not see are given the score -inf.
      const bool look = kValues && !all.all_see(key, kKeys);
      bf16* const tile = shared.keys_values[stage];
      Barrier& there = look ? shared.landed[stage] : shared.ring.full[stage];
      shared.ring.producer_acquire(i);
      if (lane == 0) {
        if (kValues && !look) shared.non_finite[stage] = 0;
        there.arrive_and_expect(kBytes);
        S::take(tile, from, b, g, key, there);
      }
      if (!look) continue;
      there.wait(looks++ & 1);
      const bool bad = __any_sync(~0u, S::template zero_non_finite<kWarp>(tile, lane));
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) {
        shared.non_finite[stage] = bad;
        shared.ring.full[stage].arrive();
      }
    }
    n += 2 * tiles;
  }
}

// ---- consumer warpgroups

// One job, by a consumer warpgroup; n: the next use of the ring.
template <class C>
__device__ void attend(const Attention<bf16>& a, Job<C>& job, Shared<C>& shared, int& n) {
  constexpr int D = C::D;
  using S = Panels<D>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = warp_number(), group = warp / 4;
  const int first = job.first(), last = job.last();  // tiles of keys
  const int own = group * kTile;                     // this group's rows of the job
  const int own_row = warp % 4 * 16 + lane / 4;      // and of these, this lane's first
  Span span = job.span[2 * group];
  span.add(job.span[2 * group + 1]);
  const uint64_t q = matrix(shared_address(job.q[group]));

  float s[kKeys / 2], sums[D / 2];
  uint32_t weight[kKeys / 16][4];
  float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, factor[2];
  zero(sums);
  const float scale = a.scale * kLog2E;
  const auto stage_of = [&](int i) { return shared_address(shared.keys_values[i % kStages]); };
  // The online softmax: scores of tile t to exponentials; factor: what brings sums to the new
  // maximum.
  const auto softmax = [&](int t) {
    if (!span.all_see(t * kKeys, kKeys)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int2 range = job.range[own + own_row + h * 8];
        // Of this lane's elements; all that varies below is known to the compiler.
        const int low = range.x - t * kKeys - lane % 4 * 2, high = range.y - range.x + low;
#pragma unroll
        for (int i = 2 * h; i < kKeys / 2; i += 4)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (i / 4 * 8 + e < low || i / 4 * 8 + e >= high) s[i + e] = -INFINITY;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float now = most[h];
#pragma unroll
      for (int i = 2 * h; i < kKeys / 2; i += 4) now = fmaxf(now, fmaxf(s[i], s[i + 1]));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 1));
      now = fmaxf(now, __shfl_xor_sync(~0u, now, 2));
      // Where all scores are -inf so far, any finite maximum gives exponentials of 0.
      const float from = now == -INFINITY ? 0.0f : now * scale;
      // Exactly 1 where the maximum stays, so that a tile of which a row sees nothing changes
      // nothing.
      factor[h] = now == most[h] ? 1.0f : power_of_2(fmaf(most[h], scale, -from));
      most[h] = now;
      float added[2] = {0, 0};
#pragma unroll
      for (int i = 2 * h; i < kKeys / 2; i += 4)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          s[i + e] = power_of_2(fmaf(s[i + e], scale, -from));
          added[e] += s[i + e];
        }
      sum[h] = fmaf(sum[h], factor[h], added[0] + added[1]);
    }
  };
  // The values of tile t, use i of the ring, were weighed. Where one is non-finite, the rows that
  // see it get it here.
  const auto weighed = [&](int t, int i) {
    int any_non_finite = 0;
    if (lane == 0) any_non_finite = shared.non_finite[i % kStages];
    any_non_finite = __shfl_sync(~0u, any_non_finite, 0);
    shared.ring.consumer_release(i);
    if (!any_non_finite) return;
#pragma unroll 1
    for (int key = t * kKeys; key < min(t * kKeys + kKeys, static_cast<int>(a.keys)); ++key)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int2 range = job.range[own + own_row + h * 8];
        if (key < range.x || key >= range.y) continue;
        const bf16* value = job.values + key * a.value.row + lane % 4 * 2;
#pragma unroll
        for (int c = 2 * h; c < D / 2; c += 4) {
          const float2 x = wide_pair(*reinterpret_cast<const uint32_t*>(value + c / 4 * 8));
          if (x.x - x.x != 0) sums[c] += x.x;
          if (x.y - x.y != 0) sums[c + 1] += x.y;
        }
      }
  };

  if (first < last) {
    shared.ring.consumer_wait(n);
    products_begin();
    multiply<D>(s, q, matrix(stage_of(n)));
    products_end();
    products_wait<0>(s);
    shared.ring.consumer_release(n);
    softmax(first);
    round_left(s, weight);
#pragma unroll 1
    for (int t = first + 1; t < last; ++t) {
      n += 2;
      shared.ring.consumer_wait(n);
      products_begin();
      multiply<D>(s, q, matrix(stage_of(n)));
      products_end();
      shared.ring.consumer_wait(n - 1);
      products_begin();
      add_product(sums, weight, transposed<kKeys>(stage_of(n - 1)));
      products_end();
      products_wait<1>(s);
      shared.ring.consumer_release(n);
      softmax(t);
      products_wait<0>(sums);
      weighed(t - 1, n - 1);
#pragma unroll
      for (int i = 0; i < D / 2; ++i) sums[i] *= factor[i / 2 % 2];
      round_left(s, weight);
    }
    shared.ring.consumer_wait(n + 1);
    products_begin();
    add_product(sums, weight, transposed<kKeys>(stage_of(n + 1)));
    products_end();
    products_wait<0>(sums);
    weighed(last - 1, n + 1);
    n += 2;
  }

  // The context goes where this group's queries were, to go to memory in whole pieces.
  group_barrier(group);
  unsigned char* const to = reinterpret_cast<unsigned char*>(job.q[group]);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = sum[h];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const bool none = most[h] == -INFINITY;
    const float share = none ? 0.0f : 1 / total;
    const int r = own_row + h * 8;
    if (lane % 4 == 0 && own + r < job.rows)
      a.lse[job.number + own + r] = none ? -INFINITY : fmaf(most[h], scale, log2f(total));
#pragma unroll
    for (int j = 0; j < D / 8; ++j)
      *reinterpret_cast<uint32_t*>(to + S::offset(r, j) + lane % 4 * 4) =
          narrow_pair(sums[4 * j + 2 * h] * share, sums[4 * j + 2 * h + 1] * share);
  }
  __syncwarp();
#pragma unroll 4
  for (int x = lane; x < 16 * S::kPieces; x += kWarp) {
    const int r = warp % 4 * 16 + x / S::kPieces, piece = x % S::kPieces;
    if (own + r < job.rows)
      *reinterpret_cast<uint4*>(job.context + (own + r) * a.context.row + piece * 8) =
          *reinterpret_cast<const uint4*>(to + S::offset(r, piece));
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    attend_wgmma(const __grid_constant__ Attention<bf16> a, const __grid_constant__ TensorMaps maps,
                 const TileScheduler scheduler) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Shared<C>& shared = *reinterpret_cast<Shared<C>*>(bytes);
  if (threadIdx.x == 0) {
    shared.ring.begin(), shared.job_ring.begin();
    for (Barrier& x : shared.known) x.begin(kWarp);
    for (Barrier& x : shared.landed) x.begin(1);
    barriers_begun();
  }
  __syncthreads();
  const int warp = warp_number(), group = warp / 4;
  if (group == C::kGroups) {
    setmaxnreg_dec<C::kGroups>();
    if (warp % 4 == 0) return prepare_jobs(a, maps, scheduler, shared);
    if (warp % 4 == 1) return produce<false>(maps.k, shared, 0, 1);
    return produce<true>(maps.value, shared, warp % 2, 2);
  }
  setmaxnreg_inc<C::kGroups>();
  for (int j = 0, n = 0;; ++j) {
    Job<C>& job = shared.jobs[j % kJobs];
    shared.job_ring.consumer_wait(j);
    if (job.rows == 0) return;
    attend(a, job, shared, n);
    fence_proxy_async();  // the next job's queries come there
    shared.job_ring.consumer_release(j);
  }
}

// ---- launch

template <class C>
void launch(Cuda device, const Attention<bf16>& a) {
  const int64_t units = a.batch * a.heads, processors = multiprocessors();
  TileScheduler scheduler{};
  scheduler.tiles = static_cast<int>(ceil_div(a.queries, C::kRows));
  const int64_t pairs = units * (scheduler.tiles / 2), alone = units * (scheduler.tiles % 2);
  scheduler.pairs = static_cast<int>(pairs), scheduler.count = static_cast<int>(2 * pairs + alone);
  // Blocks are persistent where that leaves less than a tenth of them idle. In the last round of
  // pairs, those without one take tiles from the middle; what is left of these comes after.
  const int64_t rounds = ceil_div(pairs, processors);
  const int64_t left = std::max<int64_t>(0, alone - (rounds * processors - pairs));
  const int64_t longest = 2 * rounds + ceil_div(left, processors);
  scheduler.persistent = longest * processors * 9 <= (2 * pairs + alone) * 10;
  const TensorMaps maps{tensor_map_of<kTile>(a.q, a.batch, a.heads, a.queries, a.size),
                        tensor_map_of<kKeys>(a.k, a.batch, a.key_heads, a.keys, a.size),
                        tensor_map_of<kKeys>(a.value, a.batch, a.key_heads, a.keys, a.size)};
  allow_shared(attend_wgmma<C>, sizeof(Shared<C>));
  attend_wgmma<C><<<static_cast<unsigned>(scheduler.persistent ? processors : scheduler.count),
                    C::kThreads, sizeof(Shared<C>), stream_of(device)>>>(a, maps, scheduler);
  launched("attention");
}

}  // namespace

bool wgmma_is_there() {
  cudaFuncAttributes about{};
  const bool there = cudaFuncGetAttributes(&about, attend_wgmma<Cut<128, 2>>) == cudaSuccess;
  if (!there) cudaGetLastError();  // so that the next launch does not take it for its own
  return there;
}

void wgmma_attention(Cuda device, const Attention<bf16>& a) {
  if (a.size == 128) return launch<Cut<128, 2>>(device, a);
  // Three groups are faster where their tiles have hardly more rows that are not there than two's.
  const int64_t three = ceil_div(a.queries, 3 * kTile) * 3,
                two = ceil_div(a.queries, 2 * kTile) * 2;
  return three * 24 <= two * 25 ? launch<Cut<64, 3>>(device, a) : launch<Cut<64, 2>>(device, a);
}

}  // namespace heed::kernels
