// Fused attention on the CPU: scores, softmax and the mean of the values in tiles of kRows queries
// by kKeys keys, with a running maximum and sum (Milakov and Gimelshein, 2018; Rabe and Staats,
// 2021; Dao et al., 2022). Nothing of size Tq x Tk is ever held.
//
// Tiles begin at fixed keys, every sum has one order, and keys that a row does not see add exact
// zeros: so a row's bits do not depend on the rows beside it, and a decoder that goes step by step
// gets what a whole sequence gets at once. Inside, scores are multiplied by log2(e), so that
// weights are powers of 2, which cost less than powers of e.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// Keys and values of a group as the tiles read them; null: they are laid out when their turn comes.
template <class T>
struct Packed {
  const T *keys = nullptr, *values = nullptr;
};

// The running softmax of a row. Exponentials are taken from an integer `from` near the maximum,
// which costs one operation less than from the maximum itself, and it moves only when a score is
// more than kSlack above it: then factors are exact powers of 2, and seldom needed.
constexpr int kSlack = 8;
template <class T>
struct Running {
  T from = kNone<T>;
  HWY_ALIGN T sums[HWY_LANES(T)] = {};  // of the exponentials, one for each lane
};

// The largest score of a row, -inf if there is none. Four vectors at a time: their chains overlap.
template <class T>
HWY_INLINE T largest(int64_t n, const T* HWY_RESTRICT score) {
  const Tag<T> d;
  constexpr int64_t lanes = HWY_LANES(T);
  Vec<T> most[4];
  for (int u = 0; u < 4; ++u) most[u] = hn::Set(d, kNone<T>);
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) most[u] = hn::Max(hn::LoadU(d, score + j + u * lanes), most[u]);
  for (; j < n; j += lanes) most[0] = hn::Max(hn::LoadU(d, score + j), most[0]);
  return hn::GetLane(
      hn::MaxOfLanes(d, hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]))));
}

// Moves `from` where a row's largest score asks for it; `context`, what was summed so far, too.
template <class T>
HWY_INLINE void move_from(T most, Running<T>& run, int64_t m, T* HWY_RESTRICT context) {
  if (!(most > run.from + kSlack)) return;
  const Tag<T> d;
  const T now = std::ceil(most);
  if (run.from != kNone<T>) {
    const auto factor = exp2_of_negative(hn::Set(d, run.from - now));
    hn::Store(hn::Mul(factor, hn::Load(d, run.sums)), d, run.sums);
    for (int64_t i = 0; i < m; i += HWY_LANES(T))
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, context + i)), d, context + i);
  }
  run.from = now;
}

// Scores become exponentials. Four vectors at a time again; what is left at the end goes to the
// chain that it would be in if more zeros followed: the bits stay the same.
template <class T>
HWY_INLINE void exponentiate(int64_t n, T* HWY_RESTRICT score, Running<T>& run) {
  const Tag<T> d;
  constexpr int64_t lanes = HWY_LANES(T);
  // Where all scores are -inf so far, any finite number gives exponentials of 0.
  T from = run.from == kNone<T> ? T(0) : run.from;
  if (!(std::abs(from) < kMostFrom<T>)) {
    for (int64_t i = 0; i < n; i += lanes)
      hn::StoreU(hn::Sub(hn::LoadU(d, score + i), hn::Set(d, from)), d, score + i);
    from = 0;
  }
  const Exp2From<T> exp2(from);
  Vec<T> sum[4];
  for (int u = 0; u < 4; ++u) sum[u] = hn::Zero(d);
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const auto e = exp2(hn::LoadU(d, score + j + u * lanes));
      hn::StoreU(e, d, score + j + u * lanes);
      sum[u] = hn::Add(sum[u], e);
    }
  for (int u = 0; j < n; j += lanes, ++u) {
    const auto e = exp2(hn::LoadU(d, score + j));
    hn::StoreU(e, d, score + j);
    sum[u] = hn::Add(sum[u], e);
  }
  const auto all = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  hn::Store(hn::Add(hn::Load(d, run.sums), all), d, run.sums);
}

// The tiles of keys that some row of a block sees: body(keys, panels of the keys).
template <class T, class Body>
void for_tiles(const Group<T>& group, const Block& block, const Packed<T>& packed, Scores<T>& s,
               Body body) {
  for (int64_t key = block.low / kKeys * kKeys; key < block.high; key += kKeys) {
    const Keys keys = block.seen_of({key, kKeys});
    body(keys, take_keys(group, keys, packed.keys, s));
  }
}

// Weights of a block, for those who want to see them: scores once more, against the known sums.
template <class T>
void write_weights(const Group<T>& group, const Block& block, const Packed<T>& packed,
                   Scores<T>& s) {
  const Attention<T>& a = group.a;
  const Tag<T> d;
  for (int64_t r = 0; r < block.rows; ++r)
    std::fill_n(group.row_of(a.weights, block.row0 + r), a.keys, T(0));
  for_tiles(group, block, packed, s, [&](Keys keys, const Panels<T>& panels) {
    for_strips(block, [&](Rows rows) {
      take_scores(group, rows, keys, panels, s, s.tile);
      for (int64_t i = 0; i < rows.count; ++i) {
        const int64_t r = rows.first + i;
        if (block.empty(r)) continue;
        T* score = s.tile + i * kTileRow;
        finish_scores(group, block, r, keys, score);
        const auto log_sum = hn::Set(d, a.log_sum[group.number(block.row0 + r)]);
        map_range<T>(
            0, keys.count, [&](Vec<T> x) { return exp2_of_negative(hn::Sub(x, log_sum)); },
            group.row_of(a.weights, block.row0 + r) + keys.first, static_cast<const T*>(score));
      }
    });
  });
}

// Asks for the queries and the context of the rows behind `rows`, a block further: they are in the
// cache when their turn comes.
template <class T>
void ask_for_next(const Group<T>& group, const Block& block, Rows rows) {
  const Attention<T>& a = group.a;
  constexpr int64_t line = 64 / sizeof(T);
  const int64_t first = block.row0 + block.rows + rows.first;
  for (int64_t row = first; row < std::min(group.rows(), first + rows.count); ++row) {
    for (int64_t x = 0; x < a.size; x += line) hwy::Prefetch(group.row_of(a.q, row) + x);
    for (int64_t x = 0; x < a.value_size; x += line)
      hwy::Prefetch(group.row_of(a.context, row) + x);
  }
}

template <class T>
void attend_block(const Group<T>& group, int64_t row0, const Packed<T>& packed) {
  const Attention<T>& a = group.a;
  const Block block = block_at(group, row0);
  const Widths<T> width(a);
  T* memory =
      scratch<Room::attention_block, T>(Scores<T>::count(a, kMr) + (kRows + kKeys) * width.value);
  T *sums = memory, *room = sums + kRows * width.value;
  Scores<T> s(a, kMr, room + kKeys * width.value);
  Running<T> run[kRows];
  std::fill_n(sums, block.rows * width.value, T(0));
  take_queries(group, block, s);
  for_tiles(group, block, packed, s, [&](Keys keys, const Panels<T>& panels) {
    const auto [key, count] = keys;
    const int64_t columns = rounded_up(a.value_size, kNr<T>);
    const Panels<T> values =
        packed.values
            ? Panels<T>{packed.values + key / kKeys * kKeys * columns, kKeys * kNr<T>, kNr<T>}
                  .below(key % kKeys)
            : panels_of(count, a.value_size, group.value(key), a.value.row, room);
    const bool numbers =
        block.all_see(keys) || all_finite(count, a.value_size, group.value(key), a.value.row);
    for_strips(block, [&](Rows rows) {
      if (key < kKeys) ask_for_next(group, block, rows);
      take_scores(group, rows, keys, panels, s, s.tile);
      T* context = sums + rows.first * width.value;
      int64_t n = 0;
      for (int64_t i = 0; i < rows.count; ++i) {
        T* score = s.tile + i * kTileRow;
        n = finish_scores(group, block, rows.first + i, keys, score);
        move_from(largest(n, score), run[rows.first + i], a.value_size, context + i * width.value);
      }
      for (int64_t i = 0; i < rows.count; ++i) {
        T* score = s.tile + i * kTileRow;
        exponentiate(n, score, run[rows.first + i]);
        if (a.dropout > 0) {
          HWY_ALIGN T factor[kKeys];
          drop_factors(a, group.number(row0 + rows.first + i), key, n, factor);
          map_range<T>(
              0, n, [](Vec<T> x, Vec<T> y) { return hn::Mul(x, y); }, score,
              static_cast<const T*>(score), static_cast<const T*>(factor));
        }
      }
      multiply_seen(block, rows, keys, a.value_size, s.tile, values, numbers, context, width.value);
    });
  });
  for (int64_t r = 0; r < block.rows; ++r) {
    const Tag<T> d;
    const bool none = run[r].from == kNone<T>;
    const T sum = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, run[r].sums)));
    a.log_sum[group.number(row0 + r)] = none ? kNone<T> : run[r].from + std::log2(sum);
    const auto share = hn::Set(d, none ? T(0) : T(1) / sum);
    map_range<T>(
        0, a.value_size, [&](Vec<T> x) { return hn::Mul(x, share); },
        group.row_of(a.context, row0 + r), static_cast<const T*>(sums + r * width.value));
  }
  if (a.weights.data) write_weights(group, block, packed, s);
}

// Keys and values of [key, key + kKeys), laid out for many blocks.
template <class T>
void pack_tile(const Group<T>& group, int64_t key, T* keys, T* values) {
  const Attention<T>& a = group.a;
  const int64_t count = std::min(kKeys, a.keys - key), columns = rounded_up(a.value_size, kNr<T>);
  if (a.form != ScoreForm::additive)
    turned_panels(count, a.size, group.key(key), a.k.row, keys + key * a.size);
  for (int64_t j = 0; j < a.value_size; j += kNr<T>)
    pack_panel<T>(count, std::min(kNr<T>, a.value_size - j), {group.value(key) + j, a.value.row, 1},
                  values + key * columns + j * kKeys);
}

template <class T>
void apply(const Attention<T>& a) {
  const int64_t groups = a.batch * a.key_heads;
  const int64_t tiles = chunk_count(a.keys, kKeys);
  const auto group_at = [&](int64_t i) { return Group<T>{a, i / a.key_heads, i % a.key_heads}; };
  const auto blocks_of = [&](const Group<T>& group, auto&& body) {
    for (int64_t row = 0; row < group.rows(); row = group.block_end(row)) body(row);
  };
  const auto room = [&] {
    T* keys = scratch<Room::attention_whole, T>(tiles * kKeys *
                                                (a.size + rounded_up(a.value_size, kNr<T>)));
    return std::pair(keys, keys + tiles * kKeys * a.size);
  };
  // Packing pays from the second block on.
  const bool pack = a.heads / a.key_heads * a.queries > kRows;
  if (groups >= 2 * threads() || !pack) {
    parallel_for(groups, 1, [&](int64_t i, int64_t) {
      const Group<T> group = group_at(i);
      Packed<T> packed;
      if (pack) {
        const auto [keys, values] = room();
        for (int64_t t = 0; t < tiles; ++t) pack_tile(group, t * kKeys, keys, values);
        packed = {keys, values};
      }
      blocks_of(group, [&](int64_t row) { attend_block(group, row, packed); });
    });
    return;
  }
  // Few groups: the blocks of each are shared out.
  for (int64_t i = 0; i < groups; ++i) {
    const Group<T> group = group_at(i);
    const auto [keys, values] = room();
    parallel_for(tiles, 1, [&, keys = keys, values = values](int64_t t, int64_t) {
      pack_tile(group, t * kKeys, keys, values);
    });
    std::vector<int64_t> rows;
    blocks_of(group, [&](int64_t row) { rows.push_back(row); });
    const Packed<T> packed{keys, values};
    parallel_for(static_cast<int64_t>(rows.size()), 1, [&](int64_t block, int64_t) {
      attend_block(group, rows[static_cast<size_t>(block)], packed);
    });
  }
}

HEED_KERNEL_BODIES(Attention)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(Attention)

}  // namespace heed::kernels
#endif
