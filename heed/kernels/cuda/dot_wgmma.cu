// Attention by dot products of bf16 on Hopper's warpgroup products: two or three groups with 64
// queries each by tiles of 128 keys. While a group takes the softmax of one tile's scores, tensor
// cores weigh the values of the tile before for it, or do another group's products (Shah et al.,
// 2024, "FlashAttention-3"). A unit is one head.
//
// A block takes one tile of queries (a job) behind the other, where there are many: while its
// groups end one, the next one's queries, keys and values are on their way, for a block's beginning
// and end take as long as 128 queries by 512 keys do. Jobs come in pairs, the last tile of a head's
// queries with the first, the last but one with the second: under a causal mask all pairs see
// equally many keys, so blocks that take equally many of them end together.
//
// Of the warps that fetch, one prepares jobs, which come through a ring of two places; one asks the
// copy engine for keys, two for values, which come through another ring one behind the other: of a
// job's tile t, uses n + 2 t and n + 2 t + 1.
#include <algorithm>

#include "heed/kernels/cuda/dot_wgmma.cuh"

namespace heed::kernels {
namespace {

constexpr int kKeys = 2 * kTile;  // of a tile
constexpr int kPlaces = 4;        // for tiles of keys and values
constexpr int kJobs = 2;          // at once: one is worked on, one is on its way

// How the work is cut: groups of 64 queries each.
template <int D_, int kGroups_>
struct Cut {
  static constexpr int D = D_, kGroups = kGroups_;
  static constexpr int kRows = kGroups * kTile, kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kWarps = kGroups * kGroupThreads / kWarp;  // that multiply
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
  alignas(1024) bf16 keys_values[kPlaces][kKeys * C::D];
  Job<C> jobs[kJobs];
  Ring<kPlaces, 1, C::kWarps, false> ring;
  Ring<kJobs, kWarp, C::kWarps + 3, true> job_ring;  // full when the queries are there
  Barrier known[kJobs];                              // but for the queries, all of the job is there
  Barrier landed[kPlaces];  // values that are looked at before they are given on
  int strange[kPlaces];     // whether a tile of values had what is no number
};

struct AllBoxes {
  Boxes<kTile> q;
  Boxes<kKeys> k, value;
};

// Which jobs there are, by number: first both of each pair, pair by pair, then, of an odd number of
// tiles, those in the middle of each unit, which have no other. A block that stays takes a pair or
// one of those, then the one that is a grid's further.
struct Order {
  int tiles, pairs, count;  // tiles of a unit; pairs of all units, jobs
  bool stay;

  __device__ int first() const {
    const int i = static_cast<int>(blockIdx.x);
    return stay ? begin(i) : i;
  }
  __device__ int next(int job) const {
    if (!stay) return count;
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

// ---- the warps that fetch

template <class C>
__device__ void prepare_jobs(const Attention<bf16>& a, const AllBoxes& boxes, const Order& order,
                             Shared<C>& shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  int j = 0;
#pragma unroll 1
  for (int number = order.first(); number < order.count; number = order.next(number)) {
    const int row0 = order.tile(number) * C::kRows;
    const Unit unit(a, order.unit(number), 1);
    Job<C>& job = shared.jobs[j % kJobs];
    shared.job_ring.wait_empty(j);
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
        Panels<C::D>::take(job.q[i], boxes.q, unit.b, unit.first_head, row0 + i * kTile, full);
    }
    shared.known[j % kJobs].arrive();
    full.arrive();
    ++j;
  }
  shared.job_ring.wait_empty(j);
  if (lane == 0) shared.jobs[j % kJobs].rows = 0;
  shared.known[j % kJobs].arrive();
  shared.job_ring.full[j % kJobs].arrive();
}

// Keys, by one warp, or values, by two: warp `number` of `count` has every `count`th tile, and so
// places of its own.
template <bool kValues, class C>
__device__ void fetch(const Boxes<kKeys>& from, Shared<C>& shared, int number, int count) {
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
    shared.job_ring.is_empty(j);
#pragma unroll 1
    for (int t = (number + n / 2) % count; t < tiles; t += count) {
      const int i = n + 2 * t, place = i % kPlaces, key = (first + t) * kKeys;
      // 0 * NaN is NaN: where not all rows see all of a tile, the product finds 0 in the place of
      // what is no number. Keys that a row does not see are given the score -inf.
      const bool look = kValues && !all.all_see(key, kKeys);
      bf16* const tile = shared.keys_values[place];
      Barrier& there = look ? shared.landed[place] : shared.ring.full[place];
      shared.ring.wait_empty(i);
      if (lane == 0) {
        if (kValues && !look) shared.strange[place] = 0;
        there.arrive_and_expect(kBytes);
        S::take(tile, from, b, g, key, there);
      }
      if (!look) continue;
      there.wait(looks++ & 1);
      const bool bad = __any_sync(~0u, S::template make_numbers<kWarp>(tile, lane));
      written_for_engines();
      __syncwarp();
      if (lane == 0) {
        shared.strange[place] = bad;
        shared.ring.full[place].arrive();
      }
    }
    n += 2 * tiles;
  }
}

// ---- the groups that multiply

// One job, by a group that multiplies; n: the next use of the ring.
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
  const auto place_of = [&](int i) { return shared_address(shared.keys_values[i % kPlaces]); };
  // Scores of tile t to exponentials; factor: what brings sums to the new maximum.
  const auto softmax = [&](int t) {
    if (!span.all_see(t * kKeys, kKeys)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int2 range = job.range[own + own_row + h * 8];
        // Of this lane's numbers; all that varies below is known to the compiler.
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
  // The values of tile t, use i of the ring, were weighed. Where one is no number, the rows that
  // see it get it here.
  const auto weighed = [&](int t, int i) {
    int strange_ones = 0;
    if (lane == 0) strange_ones = shared.strange[i % kPlaces];
    strange_ones = __shfl_sync(~0u, strange_ones, 0);
    shared.ring.is_empty(i);
    if (!strange_ones) return;
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
    shared.ring.wait_full(n);
    products_begin();
    multiply<D>(s, q, matrix(place_of(n)));
    products_end();
    products_wait<0>(s);
    shared.ring.is_empty(n);
    softmax(first);
    round_left(s, weight);
#pragma unroll 1
    for (int t = first + 1; t < last; ++t) {
      n += 2;
      shared.ring.wait_full(n);
      products_begin();
      multiply<D>(s, q, matrix(place_of(n)));
      products_end();
      shared.ring.wait_full(n - 1);
      products_begin();
      add_product(sums, weight, turned<kKeys>(place_of(n - 1)));
      products_end();
      products_wait<1>(s);
      shared.ring.is_empty(n);
      softmax(t);
      products_wait<0>(sums);
      weighed(t - 1, n - 1);
#pragma unroll
      for (int i = 0; i < D / 2; ++i) sums[i] *= factor[i / 2 % 2];
      round_left(s, weight);
    }
    shared.ring.wait_full(n + 1);
    products_begin();
    add_product(sums, weight, turned<kKeys>(place_of(n + 1)));
    products_end();
    products_wait<0>(sums);
    weighed(last - 1, n + 1);
    n += 2;
  }

  // The context takes the place of this group's queries, to go to memory in whole pieces.
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
    attend_wgmma(const __grid_constant__ Attention<bf16> a, const __grid_constant__ AllBoxes boxes,
                 const Order order) {
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
    give_registers<C::kGroups>();
    if (warp % 4 == 0) return prepare_jobs(a, boxes, order, shared);
    if (warp % 4 == 1) return fetch<false>(boxes.k, shared, 0, 1);
    return fetch<true>(boxes.value, shared, warp % 2, 2);
  }
  take_registers<C::kGroups>();
  for (int j = 0, n = 0;; ++j) {
    Job<C>& job = shared.jobs[j % kJobs];
    shared.job_ring.wait_full(j);
    if (job.rows == 0) return;
    attend(a, job, shared, n);
    written_for_engines();  // the next job's queries come there
    shared.job_ring.is_empty(j);
  }
}

// ---- launch

template <class C>
void launch(Cuda device, const Attention<bf16>& a) {
  const int64_t units = a.batch * a.heads, processors = multiprocessors();
  Order order{};
  order.tiles = static_cast<int>(ceil_div(a.queries, C::kRows));
  const int64_t pairs = units * (order.tiles / 2), alone = units * (order.tiles % 2);
  order.pairs = static_cast<int>(pairs), order.count = static_cast<int>(2 * pairs + alone);
  // Blocks stay where that leaves less than a tenth of them idle. In the last round of pairs, those
  // without one take tiles from the middle; what is left of these comes behind.
  const int64_t rounds = ceil_div(pairs, processors);
  const int64_t left = std::max<int64_t>(0, alone - (rounds * processors - pairs));
  const int64_t longest = 2 * rounds + ceil_div(left, processors);
  order.stay = longest * processors * 9 <= (2 * pairs + alone) * 10;
  const AllBoxes boxes{boxes_of<kTile>(a.q, a.batch, a.heads, a.queries, a.size),
                       boxes_of<kKeys>(a.k, a.batch, a.key_heads, a.keys, a.size),
                       boxes_of<kKeys>(a.value, a.batch, a.key_heads, a.keys, a.size)};
  allow_shared(attend_wgmma<C>, sizeof(Shared<C>));
  attend_wgmma<C><<<static_cast<unsigned>(order.stay ? processors : order.count), C::kThreads,
                    sizeof(Shared<C>), stream_of(device)>>>(a, boxes, order);
  launched("attention");
}

}  // namespace

void wgmma_attention(Cuda device, const Attention<bf16>& a) {
  if (a.size == 128) return launch<Cut<128, 2>>(device, a);
  // Three groups are faster where their tiles have hardly more rows that are not there than two's.
  const int64_t three = ceil_div(a.queries, 3 * kTile) * 3,
                two = ceil_div(a.queries, 2 * kTile) * 2;
  return three * 24 <= two * 25 ? launch<Cut<64, 3>>(device, a) : launch<Cut<64, 2>>(device, a);
}

}  // namespace heed::kernels
