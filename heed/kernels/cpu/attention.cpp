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
#include <limits>
#include <utility>
#include <vector>

#include "heed/kernels/cpu/scratch.h"
#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/additive-inl.h"
#include "heed/kernels/cpu/tile-inl.h"

#ifndef HEED_KERNELS_CPU_ATTENTION_ONCE
#define HEED_KERNELS_CPU_ATTENTION_ONCE
namespace heed::kernels {

constexpr int64_t kRows = 84;             // queries of a tile: 6 strips of 14 rows, or 14 of 6
constexpr int64_t kKeys = 256;            // keys of a tile
constexpr int64_t kTileRow = kKeys + 16;  // rows of a tile do not share a set of the cache

template <class T, int Use>
T* attention_scratch(int64_t count) {
  thread_local Scratch<T> scratch;
  return scratch.at_least(count);
}

}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

constexpr int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

template <class T>
constexpr T kNone = -std::numeric_limits<T>::infinity();

// ---- the work

// The queries that share one key head: rows of all its heads, one after the other.
template <class T>
struct Group {
  const Attention<T>& a;
  int64_t b, g;

  int64_t heads() const { return a.heads / a.key_heads; }
  int64_t rows() const { return heads() * a.queries; }
  int64_t head(int64_t row) const { return g * heads() + row / a.queries; }
  int64_t position(int64_t row) const { return row % a.queries; }
  int64_t number(int64_t row) const {
    return (b * a.heads + head(row)) * a.queries + position(row);
  }
  template <class U>
  U* row_of(const Heads<U>& x, int64_t row) const {
    return x.at(b, head(row), position(row));
  }
  const T* key(int64_t j) const { return a.k.at(b, g, j); }
  const T* value(int64_t j) const { return a.value.at(b, g, j); }
  // Rows of a block. Those of additive attention have one v, hence one head.
  int64_t block_end(int64_t row) const {
    const int64_t end = a.form == ScoreForm::additive ? (row / a.queries + 1) * a.queries : rows();
    return std::min(row + kRows, end);
  }
};

// Some rows of a group, and the keys that they see.
struct Block {
  int64_t row0 = 0, rows = 0;
  int64_t low = 0, high = 0;  // keys that some row sees lie in [low, high)
  int64_t begin[kRows], end[kRows];

  bool empty(int64_t r) const { return begin[r] >= end[r]; }
  bool all_see(int64_t key, int64_t count) const {
    for (int64_t r = 0; r < rows; ++r)
      if (begin[r] > key || end[r] < key + count) return false;
    return true;
  }
};

template <class T>
Block block_at(const Group<T>& group, int64_t row0) {
  const Attention<T>& a = group.a;
  Block block;
  block.row0 = row0, block.rows = group.block_end(row0) - row0;
  block.low = a.keys;
  for (int64_t r = 0; r < block.rows; ++r) {
    block.begin[r] = 0, block.end[r] = a.keys;
    if (a.range) {
      const Id* range = a.range + group.b * a.range_batch + group.head(row0 + r) * a.range_head +
                        2 * group.position(row0 + r);
      block.begin[r] = std::max<int64_t>(0, range[0]);
      block.end[r] = std::min<int64_t>(a.keys, range[1]);
    }
    if (block.empty(r)) continue;
    block.low = std::min(block.low, block.begin[r]);
    block.high = std::max(block.high, block.end[r]);
  }
  return block;
}

// Distances between rows of scratch arrays: room for whole panels, and not a power of two, so that
// rows do not share a set of the cache.
template <class T>
struct Widths {
  int64_t size, value;  // of queries and keys; of values
  explicit Widths(const Attention<T>& a)
      : size(rounded_up(a.size, kNr<T>) + 16), value(rounded_up(a.value_size, kNr<T>) + 16) {}
};

// ---- products of tiles

// c [m x n] (+)= a [m x k] b [k x n], b in panels of kNr columns `panel` apart, rows of a panel
// b_row apart. Writes whole panels.
template <class T>
struct Panels {
  const T* data;
  int64_t panel, row;
};
template <class T>
HWY_INLINE void multiply(int64_t m, int64_t n, int64_t k, Strip<T> a, Panels<T> b, T* c,
                         int64_t c_row, bool add) {
  const int64_t height = strip_height(m);
  for (int64_t j = 0; j < n; j += kNr<T>)
    for (int64_t i = 0; i < m; i += height)
      tile_of<kMr>(std::min(height, m - i), k, {a.a + i * a.row, a.row, a.col},
                   b.data + j / kNr<T> * b.panel, b.row, c + i * c_row + j, c_row, add);
}
// c += a^T b for a tile of scores a [k x m]: strip by strip, since the tile comes from the
// second-level cache, and b stays in the first.
template <class T>
HWY_INLINE void multiply_turned(int64_t m, int64_t n, int64_t k, const T* a, Panels<T> b, T* c,
                                int64_t c_row) {
  const int64_t height = strip_height(m);
  for (int64_t i = 0; i < m; i += height)
    for (int64_t j = 0; j < n; j += kNr<T>)
      tile_of<kMr>(std::min(height, m - i), k, {a + i, 1, kTileRow}, b.data + j / kNr<T> * b.panel,
                   b.row, c + i * c_row + j, c_row, true);
}

// Rows [0, k) of a matrix as panels: where it stands, if its columns fill panels; else packed into
// `room`.
template <class T>
Panels<T> panels_of(int64_t k, int64_t n, const T* x, int64_t row, T* room) {
  if (n % kNr<T> == 0) return {x, kNr<T>, row};
  for (int64_t j = 0; j < n; j += kNr<T>)
    pack_panel<T>(k, std::min(kNr<T>, n - j), {x + j, row, 1}, room + j * k);
  return {room, k * kNr<T>, kNr<T>};
}
// Rows [0, count) of length k, turned: panels of kNr rows, packed into `room`.
template <class T>
Panels<T> turned_panels(int64_t count, int64_t k, const T* x, int64_t row, T* room) {
  for (int64_t j = 0; j < count; j += kNr<T>)
    pack_panel<T>(k, std::min(kNr<T>, count - j), {x + j * row, 1, row}, room + j * k);
  return {room, k * kNr<T>, kNr<T>};
}

template <class T>
bool all_finite(int64_t rows, int64_t n, const T* x, int64_t row) {
  for (int64_t i = 0; i < rows; ++i)
    // x - x is 0 for a number, else NaN.
    if (sum_range<T>(
            n, [](Vec<T> v) { return hn::Sub(v, v); }, x + i * row) != 0)
      return false;
  return true;
}

// c += a b where rows of a tile see different keys. 0 * NaN is NaN: if there is anything but
// numbers in b, each row reads only what it sees. The zeros it leaves out would not change a bit.
template <class T>
void multiply_seen(const Block& block, int64_t key, int64_t count, int64_t n, const T* a,
                   Panels<T> b, bool numbers, T* c, int64_t c_row) {
  if (numbers) return multiply<T>(block.rows, n, count, {a, kTileRow, 1}, b, c, c_row, true);
  for (int64_t r = 0; r < block.rows; ++r) {
    const int64_t begin = std::max<int64_t>(0, block.begin[r] - key);
    const int64_t end = std::min(count, block.end[r] - key);
    if (begin < end)
      multiply<T>(1, n, end - begin, {a + r * kTileRow + begin, kTileRow, 1},
                  {b.data + begin * b.row, b.panel, b.row}, c + r * c_row, c_row, true);
  }
}

// ---- scores

// Keys and values of a group as the tiles read them; null: they are laid out when their turn comes.
template <class T>
struct Packed {
  const T *keys = nullptr, *values = nullptr;
};

// What a thread needs for the scores of a tile.
template <class T>
struct Scores {
  Widths<T> width;
  T *q, *keys, *tile;
  AdditiveTile<T> additive;

  static int64_t count(const Attention<T>& a) {
    const Widths<T> w(a);
    return kRows * w.size + kKeys * w.size + kRows * kTileRow +
           AdditiveTile<T>::count(w.size, kRows, kKeys);
  }
  Scores(const Attention<T>& a, T* memory)
      : width(a),
        q(memory),
        keys(q + kRows * width.size),
        tile(keys + kKeys * width.size),
        additive(tile + kRows * kTileRow, a.size, width.size, kRows, kKeys) {}
};

// The queries of a block: for dot products scaled, for additive scores exponentials. Rows that see
// nothing are zeros.
template <class T>
void take_queries(const Group<T>& group, const Block& block, Scores<T>& s) {
  const Attention<T>& a = group.a;
  const auto scale = hn::Set(Tag<T>(), a.form == ScoreForm::dot ? a.scale * kLog2E<T> : T(1));
  for (int64_t r = 0; r < block.rows; ++r) {
    T* to = s.q + r * s.width.size;
    std::fill(to + a.size, to + s.width.size, T(0));
    if (block.empty(r))
      std::fill_n(to, a.size, T(0));
    else
      map_range<T>(
          0, a.size, [&](Vec<T> x) { return hn::Mul(x, scale); }, to,
          group.row_of(a.q, block.row0 + r));
  }
  if (a.form == ScoreForm::additive)
    s.additive.take_queries(block.rows, s.q, a.v + group.head(block.row0) * a.size);
}

// Scores of a block against `count` keys from `key` on, before bias and mask.
template <class T>
void take_scores(const Group<T>& group, const Block& block, int64_t key, int64_t count,
                 const Packed<T>& packed, Scores<T>& s) {
  const Attention<T>& a = group.a;
  if (a.form == ScoreForm::additive) {
    s.additive.take_keys(count, group.key(key), a.k.row);
    return s.additive.scores(block.rows, count, s.q, group.key(key), a.k.row, s.tile, kTileRow);
  }
  const Panels<T> panels = packed.keys
                               ? Panels<T>{packed.keys + key * a.size, a.size * kNr<T>, kNr<T>}
                               : turned_panels(count, a.size, group.key(key), a.k.row, s.keys);
  multiply<T>(block.rows, count, a.size, {s.q, s.width.size, 1}, panels, s.tile, kTileRow, false);
}

// scale * log2(x), where the form asks for it.
template <class T>
HWY_INLINE Vec<T> shaped(const Attention<T>& a, Vec<T> x) {
  const Tag<T> d;
  return a.form == ScoreForm::log_dot ? hn::Mul(hn::Set(d, a.scale * kLog2E<T>), hn::Log(d, x)) : x;
}

// A row of scores made ready for the softmax: form, bias, and -inf where nothing is seen, up to a
// whole vector. Returns how many numbers that is.
template <class T>
int64_t finish_scores(const Group<T>& group, const Block& block, int64_t r, int64_t key,
                      int64_t count, T* score) {
  const Attention<T>& a = group.a;
  if (a.form == ScoreForm::log_dot)
    map_range<T>(
        0, count, [&](Vec<T> x) { return shaped(a, x); }, score, static_cast<const T*>(score));
  if (a.bias.data)
    map_range<T>(
        0, count, [](Vec<T> x, Vec<T> y) { return hn::MulAdd(y, hn::Set(Tag<T>(), kLog2E<T>), x); },
        score, static_cast<const T*>(score), group.row_of(a.bias, block.row0 + r) + key);
  if (a.place) {
    const T place = a.place[group.number(block.row0 + r)] - static_cast<T>(key);
    const T falloff = a.falloff * kLog2E<T>;
    for (int64_t j = 0; j < count; ++j)
      score[j] -= falloff * (static_cast<T>(j) - place) * (static_cast<T>(j) - place);
  }
  const int64_t n = rounded_up(count, HWY_LANES(T));
  if (block.begin[r] <= key && block.end[r] >= key + n) return n;
  std::fill(score, score + std::clamp<int64_t>(block.begin[r] - key, 0, n), kNone<T>);
  std::fill(score + std::clamp<int64_t>(block.end[r] - key, 0, count), score + n, kNone<T>);
  return n;
}

// ---- dropout of weights

// 1 / (1 - p) for the weights that stay, 0 for the others: by numbers of 16 bits that are a
// function of (seed, row, key) alone. 128 keys take 16 calls of Philox; key j of them has word j /
// 16 % 4, half j / 64, of call j % 16.
template <class T>
void drop_factors(const Attention<T>& a, int64_t row, int64_t key, int64_t n, T* factor) {
  static_assert(kKeys % 128 == 0);
  const Tag<uint32_t> d;
  const auto threshold = static_cast<uint32_t>(std::lround(double(a.dropout) * 65536));
  const T keep = T(1) / (T(1) - static_cast<T>(a.dropout));
  for (int64_t j = 0; j < n; j += 128) {
    HWY_ALIGN uint32_t words[64];
    for (int64_t c = 0; c < 16; c += static_cast<int64_t>(hn::Lanes(d)))
      philox_words(hn::Iota(d, static_cast<uint32_t>((key + j) / 8 + c)),
                   {static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32), 1}, value(a.seed),
                   16, words + c);
    for (int64_t i = 0; i < 64; ++i) {
      factor[j + i] = (words[i] & 0xFFFF) >= threshold ? keep : T(0);
      factor[j + 64 + i] = words[i] >> 16 >= threshold ? keep : T(0);
    }
  }
}

// ---- forward

template <class T>
struct Running {  // of a row
  T most = kNone<T>, sum = 0;
};

// One row's step of the running softmax: scores become exponentials, what was summed so far is
// brought to the new maximum. Four vectors at a time: their chains of operations overlap.
template <class T>
HWY_INLINE void softmax_step(int64_t n, T* HWY_RESTRICT score, Running<T>& run, int64_t m,
                             T* HWY_RESTRICT sums) {
  const Tag<T> d;
  constexpr int64_t lanes = HWY_LANES(T);
  const int64_t whole = n / (4 * lanes) * (4 * lanes);
  Vec<T> most[4], sum[4];
  for (int u = 0; u < 4; ++u) most[u] = hn::Set(d, run.most), sum[u] = hn::Zero(d);
  int64_t j = 0;
  for (; j < whole; j += 4 * lanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) most[u] = hn::Max(hn::LoadU(d, score + j + u * lanes), most[u]);
  for (; j < n; j += lanes) most[0] = hn::Max(hn::LoadU(d, score + j), most[0]);
  const T now =
      hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(most[0], most[1]), hn::Max(most[2], most[3]))));
  if (now > run.most) {
    if (run.most != kNone<T>) {
      const auto factor = exp2_of_negative(hn::Set(d, run.most - now));
      run.sum *= hn::GetLane(factor);
      for (int64_t i = 0; i < m; i += lanes)
        hn::StoreU(hn::Mul(factor, hn::LoadU(d, sums + i)), d, sums + i);
    }
    run.most = now;
  }
  // Where all scores are -inf so far, any finite maximum gives exponentials of 0.
  const auto from = hn::Set(d, now == kNone<T> ? T(0) : now);
  for (j = 0; j < whole; j += 4 * lanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const auto e = exp2_of_negative(hn::Sub(hn::LoadU(d, score + j + u * lanes), from));
      hn::StoreU(e, d, score + j + u * lanes);
      sum[u] = hn::Add(sum[u], e);
    }
  // The rest goes to the chain that it would be in if more zeros followed: the bits stay the same.
  for (int u = 0; j < n; j += lanes, ++u) {
    const auto e = exp2_of_negative(hn::Sub(hn::LoadU(d, score + j), from));
    hn::StoreU(e, d, score + j);
    sum[u] = hn::Add(sum[u], e);
  }
  run.sum +=
      hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]))));
}

// Weights of a block, for those who want to see them: scores once more, against the known sums.
template <class T>
void write_weights(const Group<T>& group, const Block& block, const Packed<T>& packed,
                   Scores<T>& s) {
  const Attention<T>& a = group.a;
  const Tag<T> d;
  for (int64_t r = 0; r < block.rows; ++r)
    std::fill_n(group.row_of(a.weights, block.row0 + r), a.keys, T(0));
  for (int64_t key = block.low / kKeys * kKeys; key < block.high; key += kKeys) {
    const int64_t count = std::min(kKeys, block.high - key);
    take_scores(group, block, key, count, packed, s);
    for (int64_t r = 0; r < block.rows; ++r) {
      if (block.empty(r)) continue;
      T* score = s.tile + r * kTileRow;
      finish_scores(group, block, r, key, count, score);
      const auto log_sum = hn::Set(d, a.log_sum[group.number(block.row0 + r)]);
      map_range<T>(
          0, count, [&](Vec<T> x) { return exp2_of_negative(hn::Sub(x, log_sum)); },
          group.row_of(a.weights, block.row0 + r) + key, static_cast<const T*>(score));
    }
  }
}

template <class T>
void attend_block(const Group<T>& group, int64_t row0, const Packed<T>& packed) {
  const Attention<T>& a = group.a;
  const Block block = block_at(group, row0);
  const Widths<T> width(a);
  T* memory = attention_scratch<T, 0>(Scores<T>::count(a) + (kRows + kKeys) * width.value);
  T *sums = memory, *room = sums + kRows * width.value;
  Scores<T> s(a, room + kKeys * width.value);
  Running<T> run[kRows];
  std::fill_n(sums, block.rows * width.value, T(0));
  take_queries(group, block, s);
  for (int64_t key = block.low / kKeys * kKeys; key < block.high; key += kKeys) {
    const int64_t count = std::min(kKeys, block.high - key);
    take_scores(group, block, key, count, packed, s);
    for (int64_t r = 0; r < block.rows; ++r) {
      T* score = s.tile + r * kTileRow;
      const int64_t n = finish_scores(group, block, r, key, count, score);
      softmax_step(n, score, run[r], a.value_size, sums + r * width.value);
      if (a.dropout > 0) {
        HWY_ALIGN T factor[kKeys];
        drop_factors(a, group.number(row0 + r), key, n, factor);
        map_range<T>(
            0, n, [](Vec<T> x, Vec<T> y) { return hn::Mul(x, y); }, score,
            static_cast<const T*>(score), static_cast<const T*>(factor));
      }
    }
    const int64_t columns = rounded_up(a.value_size, kNr<T>);
    const Panels<T> panels =
        packed.values ? Panels<T>{packed.values + key * columns, kKeys * kNr<T>, kNr<T>}
                      : panels_of(count, a.value_size, group.value(key), a.value.row, room);
    const bool numbers =
        block.all_see(key, count) || all_finite(count, a.value_size, group.value(key), a.value.row);
    multiply_seen(block, key, count, a.value_size, s.tile, panels, numbers, sums, width.value);
  }
  for (int64_t r = 0; r < block.rows; ++r) {
    const bool none = run[r].most == kNone<T>;
    a.log_sum[group.number(row0 + r)] = none ? kNone<T> : run[r].most + std::log2(run[r].sum);
    const auto share = hn::Set(Tag<T>(), none ? T(0) : T(1) / run[r].sum);
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
    T* keys = attention_scratch<T, 1>(tiles * kKeys * (a.size + rounded_up(a.value_size, kNr<T>)));
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

// ---- backward
//
// With w the weights, z what dropout multiplies them by, g = d context and D = g . context:
//   d value_j = sum_i w_ij z_ij g_i,   d score_ij = w_ij (z_ij g_i . value_j - D_i),
// and from d score on as the form has it.

constexpr int64_t kFewRows = 4;

// A piece of work: the keys [first, last) of a group, against all of its rows.
template <class T>
struct Piece {
  Group<T> group;
  int64_t first, last;
  T *dq, *dv,
      *dplace;  // what it adds up: [rows, width.size], [heads of the group, width.size], [rows]
};

// One tile: scores become weights (as dropped), `slopes`, which hold g . value, become d score.
template <class T>
void take_slopes(const AttentionGrad<T>& k, const Group<T>& group, const Block& block, int64_t key,
                 int64_t count, const T* mean, T* scores, T* slopes, T* dplace) {
  const Attention<T>& a = group.a;
  const Tag<T> d;
  const auto zero = hn::Zero(d);
  for (int64_t r = 0; r < block.rows; ++r) {
    T *score = scores + r * kTileRow, *slope = slopes + r * kTileRow;
    HWY_ALIGN T raw[kKeys], factor[kKeys];
    if (a.form == ScoreForm::log_dot) std::copy_n(score, count, raw);
    const int64_t n = finish_scores(group, block, r, key, count, score);
    const int64_t number = group.number(block.row0 + r);
    const T log_sum = a.log_sum[number];
    const auto from = hn::Set(d, log_sum == kNone<T> ? T(0) : log_sum), less = hn::Set(d, mean[r]);
    if (a.dropout > 0) drop_factors(a, number, key, n, factor);
    for (int64_t j = 0; j < n; j += HWY_LANES(T)) {
      const auto w = exp2_of_negative(hn::Sub(hn::LoadU(d, score + j), from));
      auto slope_w = hn::LoadU(d, slope + j), dropped = w;
      if (a.dropout > 0) {
        const auto z = hn::Load(d, factor + j);
        slope_w = hn::Mul(slope_w, z), dropped = hn::Mul(w, z);
      }
      // What is not seen has weight 0, whatever g . value is there.
      auto ds = hn::IfThenElseZero(hn::Ne(w, zero), hn::Mul(w, hn::Sub(slope_w, less)));
      hn::StoreU(dropped, d, score + j);
      hn::StoreU(ds, d, slope + j);
    }
    if (k.dbias.data) {
      T* to = group.row_of(k.dbias, block.row0 + r) + key;
      for (int64_t j = 0; j < count; ++j) to[j] += slope[j];
    }
    if (k.dplace) {
      const T place = a.place[number] - static_cast<T>(key);
      for (int64_t j = 0; j < count; ++j)
        dplace[block.row0 + r] += slope[j] * 2 * a.falloff * (static_cast<T>(j) - place);
    }
    if (a.form == ScoreForm::log_dot)
      for (int64_t j = 0; j < count; ++j)
        slope[j] = slope[j] == 0 ? T(0) : slope[j] * a.scale / raw[j];
  }
}

template <class T>
void take_back(const AttentionGrad<T>& k, const Piece<T>& piece) {
  const Group<T>& group = piece.group;
  const Attention<T>& a = group.a;
  const Widths<T> w(a);
  const bool additive = a.form == ScoreForm::additive;
  T* memory = attention_scratch<T, 0>(Scores<T>::count(a) + kRows * kTileRow + kRows +
                                      2 * kKeys * (w.size + w.value) + kRows * w.value);
  T *dk = memory, *dvalue = dk + kKeys * w.size, *turned_values = dvalue + kKeys * w.value,
    *key_room = turned_values + kKeys * w.value, *g = key_room + kKeys * w.size,
    *slopes = g + kRows * w.value, *mean = slopes + kRows * kTileRow;
  Scores<T> s(a, mean + kRows);
  for (int64_t key = piece.first; key < piece.last; key += kKeys) {
    const int64_t count = std::min(kKeys, a.keys - key);
    std::fill_n(dk, count * w.size, T(0));
    std::fill_n(dvalue, count * w.value, T(0));
    Panels<T> values{};  // turned, once some row sees the tile
    for (int64_t row = 0; row < group.rows(); row = group.block_end(row)) {
      const Block block = block_at(group, row);
      if (block.high <= key || block.low >= key + count) continue;
      if (!values.data && block.rows >= kFewRows)
        values = turned_panels(count, a.value_size, group.value(key), a.value.row, turned_values);
      take_queries(group, block, s);
      for (int64_t r = 0; r < block.rows; ++r) {
        T* to = g + r * w.value;
        std::fill(to + a.value_size, to + w.value, T(0));
        mean[r] = 0;
        if (block.empty(r)) {
          std::fill_n(to, a.value_size, T(0));
          continue;
        }
        std::copy_n(group.row_of(k.dcontext, row + r), a.value_size, to);
        mean[r] = sum_range<T>(
            a.value_size, [](Vec<T> x, Vec<T> y) { return hn::Mul(x, y); },
            static_cast<const T*>(to), static_cast<const T*>(group.row_of(a.context, row + r)));
      }
      take_scores(group, block, key, count, Packed<T>{}, s);
      if (block.rows >= kFewRows)
        multiply<T>(block.rows, count, a.value_size, {g, w.value, 1}, values, slopes, kTileRow,
                    false);
      else  // turning the values would cost more than the product
        for (int64_t r = 0; r < block.rows; ++r)
          for (int64_t j = 0; j < count; ++j)
            slopes[r * kTileRow + j] = sum_range<T>(
                a.value_size, [](Vec<T> x, Vec<T> y) { return hn::Mul(x, y); },
                static_cast<const T*>(g + r * w.value), group.value(key + j));
      take_slopes(k, group, block, key, count, mean, s.tile, slopes, piece.dplace);
      multiply_turned<T>(count, a.value_size, block.rows, s.tile, {g, kNr<T>, w.value}, dvalue,
                         w.value);
      T* dq = piece.dq + row * w.size;
      if (additive) {
        s.additive.gradient(block.rows, count, slopes, kTileRow, {block.begin, block.end, key},
                            {s.q, group.key(key), a.k.row},
                            {dq, dk, piece.dv + row / a.queries * w.size});
        continue;
      }
      multiply_turned<T>(count, a.size, block.rows, slopes, {s.q, kNr<T>, w.size}, dk, w.size);
      const Panels<T> keys = panels_of(count, a.size, group.key(key), a.k.row, key_room);
      const bool numbers =
          block.all_see(key, count) || all_finite(count, a.size, group.key(key), a.k.row);
      multiply_seen(block, key, count, a.size, slopes, keys, numbers, dq, w.size);
    }
    const auto put = [&](const Heads<T>& to, int64_t n, const T* from, int64_t row, T times) {
      const auto factor = hn::Set(Tag<T>(), times);
      for (int64_t j = 0; j < count; ++j) {
        T* y = to.at(group.b, group.g, key + j);
        if (k.add)
          map_range<T>(
              0, n, [&](Vec<T> x, Vec<T> old) { return hn::MulAdd(x, factor, old); }, y,
              from + j * row, static_cast<const T*>(y));
        else
          map_range<T>(
              0, n, [&](Vec<T> x) { return hn::Mul(x, factor); }, y, from + j * row);
      }
    };
    // The queries that dk was summed from had log2(e) in them.
    put(k.dk, a.size, dk, w.size, a.form == ScoreForm::dot ? 1 / kLog2E<T> : T(1));
    put(k.dvalue, a.value_size, dvalue, w.value, T(1));
  }
}

template <class T>
void apply(const AttentionGrad<T>& k) {
  const Attention<T>& a = k.forward;
  const Widths<T> w(a);
  const int64_t groups = a.batch * a.key_heads, tiles = chunk_count(a.keys, kKeys);
  const int64_t heads = a.heads / a.key_heads, rows = heads * a.queries;
  const bool additive = a.form == ScoreForm::additive;
  // Few groups: the keys of each are cut into pieces, which then have sums of their own for the
  // queries. The cuts depend on the sizes alone.
  const int64_t pieces = groups >= 16 || k.dbias.data ? 1 : std::clamp<int64_t>(tiles, 1, 8);
  const int64_t part = (rows + heads) * w.size + rows;
  T* parts = attention_scratch<T, 1>(groups * pieces * part);
  const auto run_piece = [&](int64_t i) {
    const int64_t group = i / pieces, p = i % pieces;
    T* dq = parts + i * part;
    std::fill_n(dq, part, T(0));
    take_back(k, Piece<T>{{a, group / a.key_heads, group % a.key_heads},
                          tiles * p / pieces * kKeys,
                          std::min(a.keys, tiles * (p + 1) / pieces * kKeys),
                          dq,
                          dq + rows * w.size,
                          dq + (rows + heads) * w.size});
  };
  if (k.dbias.data) {
    // A bias is shared by all sentences: their sum is one thread's for each head, in order.
    if (k.dbias.batch == 0)
      parallel_for(a.key_heads, 1, [&](int64_t g, int64_t) {
        for (int64_t b = 0; b < a.batch; ++b) run_piece(b * a.key_heads + g);
      });
    else
      parallel_for(groups, 1, [&](int64_t i, int64_t) { run_piece(i); });
  } else {
    parallel_for(groups * pieces, 1, [&](int64_t i, int64_t) { run_piece(i); });
  }
  // dq: the pieces in order, and the factor that they have in common.
  parallel_for(groups * rows, row_grain(a.size * pieces), [&](int64_t begin, int64_t end) {
    const Tag<T> d;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t g = i / rows, row = i % rows;
      const Group<T> group{a, g / a.key_heads, g % a.key_heads};
      T* to = group.row_of(k.dq, row);
      const T* from = parts + g * pieces * part + row * w.size;
      const T* v = additive ? a.v + group.head(row) * a.size : nullptr;
      for_vectors<T>(a.size, [&](auto load, auto store, int64_t x) {
        auto sum = load(from + x);
        for (int64_t p = 1; p < pieces; ++p) sum = hn::Add(sum, load(from + p * part + x));
        const auto factor = additive ? hn::Mul(hn::Set(d, T(4)), load(v + x))
                                     : hn::Set(d, a.form == ScoreForm::dot ? a.scale : T(1));
        store(hn::Mul(sum, factor), to + x);
      });
      if (k.dplace) {
        T sum = 0;
        for (int64_t p = 0; p < pieces; ++p)
          sum += parts[(g * pieces + p) * part + (rows + heads) * w.size + row];
        k.dplace[group.number(row)] = sum;
      }
    }
  });
  if (!additive) return;
  for (int64_t h = 0; h < a.heads; ++h) {
    T* dv = k.dv + h * a.size;
    std::fill_n(dv, a.size, T(0));
    for (int64_t b = 0; b < a.batch; ++b)
      for (int64_t p = 0; p < pieces; ++p) {
        const int64_t i = (b * a.key_heads + h / heads) * pieces + p;
        const T* from = parts + i * part + (rows + h % heads) * w.size;
        for (int64_t x = 0; x < a.size; ++x) dv[x] += from[x];
      }
  }
}

HEED_KERNEL_BODIES(Attention)
HEED_KERNEL_BODIES(AttentionGrad)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(Attention)
HEED_KERNEL_RUN(AttentionGrad)

}  // namespace heed::kernels
#endif
