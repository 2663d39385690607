// What fused attention shares, forward and backward: which rows and keys belong together, products
// of tiles, scores made ready for the softmax, dropout. Included once for each instruction set.
#if defined(HEED_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/kernels/cpu/additive-inl.h"
#include "heed/kernels/cpu/scratch.h"
#include "heed/kernels/cpu/tile-inl.h"

#ifndef HEED_KERNELS_CPU_ATTENTION_ONCE
#define HEED_KERNELS_CPU_ATTENTION_ONCE
namespace heed::kernels {

constexpr int64_t kRows = 84;  // queries of a block: 14 register tiles of 6 rows, or 6 of 14
constexpr int64_t kStep =
    128;  // keys of a tile; in the backward pass tiles begin at multiples of it
constexpr int64_t kKeys = 512;  // keys of a tile in the backward pass

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

struct Rows {  // of a block
  int64_t first, count;
};
struct Keys {  // of a group
  int64_t first, count;
};

// Some rows of a group, and the keys that they see.
struct Block {
  int64_t row0 = 0, rows = 0;
  int64_t low = 0, high = 0;  // keys that some row sees lie in [low, high)
  int64_t begin[kRows], end[kRows];

  bool empty(int64_t r) const { return begin[r] >= end[r]; }
  // What of the keys some row may see. It begins a multiple of kStep after the first: the zeros
  // left out change no bit, since every chain of sums has the same terms.
  Keys seen_of(Keys keys) const {
    const int64_t first = std::max(keys.first, low / kStep * kStep);
    return {first, std::min(keys.first + keys.count, high) - first};
  }
  bool all_see(Keys keys) const {
    for (int64_t r = 0; r < rows; ++r)
      if (begin[r] > keys.first || end[r] < keys.first + keys.count) return false;
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

// The strips of a block: a strip's scores stay in the cache until they are used up. Additive
// queries stay in the first-level cache themselves, a number for each feature.
constexpr int64_t kStrip = 42;
template <class T, class Body>
void for_strips(const Attention<T>& a, const Block& block, Body body) {
  const int64_t most = a.form == ScoreForm::additive ? 14 : kStrip;
  for (int64_t r = 0; r < block.rows; r += most) body(Rows{r, std::min(most, block.rows - r)});
}

// Distances between rows of scratch arrays: whole panels, and not a power of two, so that rows do
// not share a set of the cache.
template <class T>
struct Widths {
  int64_t size, value;  // of queries and keys; of values
  explicit Widths(const Attention<T>& a)
      : size(a.form == ScoreForm::additive ? additive_width<T>(a.size)
                                           : rounded_up(a.size, kPanel<T>) + 16),
        value(rounded_up(a.value_size, kPanel<T>) + 16) {}
};

// ---- products of tiles

// c [m x n] (+)= a [m x k] b [k x n], b in panels of kPanel columns `panel` apart, rows of a panel
// `row` apart. Writes columns up to a multiple of kNr. kStep rows of a panel stay in the
// first-level cache while the rows of a pass. Not inline: all products of a kernel share this code,
// and its registers are its own.
template <class T>
struct Panels {
  const T* data;
  int64_t panel, row;
  Panels from(int64_t column) const { return {data + column / kPanel<T> * panel, panel, row}; }
  Panels below(int64_t rows) const { return {data + rows * row, panel, row}; }
};
template <int M, int V, class T>
HWY_INLINE void multiply_panel(int64_t m, int64_t k, Strip<T> a, const T* b, int64_t b_row, T* c,
                               int64_t c_row, bool add) {
  const int64_t height = strip_height(m, M);
  for (int64_t i = 0; i < m; i += height)
    tile_of<M, V>(std::min(height, m - i), k, {a.a + i * a.row, a.row, a.col}, b, b_row,
                  c + i * c_row, c_row, add);
}
template <class T>
HWY_NOINLINE void multiply(int64_t m, int64_t n, int64_t k, Strip<T> a, Panels<T> b, T* c,
                           int64_t c_row, bool add) {
  if (m == 0) return;
  int64_t p = 0;
  do {
    const int64_t depth = std::min(kStep, k - p);
    const Strip<T> part{a.a + p * a.col, a.row, a.col};
    for (int64_t j = 0; j < n; j += kPanel<T>) {
      const T* panel = b.below(p).from(j).data;
      if (n - j > kNr<T>)
        multiply_panel<kTall, kWide>(m, depth, part, panel, b.row, c + j, c_row, add || p > 0);
      else
        multiply_panel<kMr, kVectors>(m, depth, part, panel, b.row, c + j, c_row, add || p > 0);
    }
    p += kStep;
  } while (p < k);
}

// Rows [0, k) of a matrix as panels, packed into `workspace`; or, if they are used once, where they
// stand, as far as columns fill panels.
template <class T>
Panels<T> packed_panels(int64_t k, int64_t n, const T* x, int64_t row, T* workspace) {
  for (int64_t j = 0; j < n; j += kPanel<T>)
    pack_panel<T>(k, std::min(kPanel<T>, n - j), {x + j, row, 1}, workspace + j * k);
  return {workspace, k * kPanel<T>, kPanel<T>};
}
template <class T>
Panels<T> panels_of(int64_t k, int64_t n, const T* x, int64_t row, T* workspace) {
  if (n % kNr<T> == 0) return {x, kPanel<T>, row};
  return packed_panels(k, n, x, row, workspace);
}
// Rows [0, count) of length k, transposed: panels of kPanel rows, packed into `workspace`.
template <class T>
Panels<T> transposed_panels(int64_t count, int64_t k, const T* x, int64_t row, T* workspace) {
  for (int64_t j = 0; j < count; j += kPanel<T>) {
    const int64_t n = std::min(kPanel<T>, count - j);
    // multiply() reads no more of a narrow one.
    pack_panel<T>(k, n, {x + j * row, 1, row}, workspace + j * k, n > kNr<T> ? kPanel<T> : kNr<T>);
  }
  return {workspace, k * kPanel<T>, kPanel<T>};
}

template <class T>
bool all_finite(int64_t rows, int64_t n, const T* x, int64_t row) {
  for (int64_t i = 0; i < rows; ++i)
    // x - x is 0 for a finite x, else NaN.
    if (sum_range<T>(
            n, [](Vec<T> v) { return hn::Sub(v, v); }, x + i * row) != 0)
      return false;
  return true;
}

// c += a b for rows of a tile that see different keys. 0 * NaN is NaN: if there is anything but
// finite elements in b, each row reads only what it sees. The zeros it leaves out would not change
// a bit.
template <class T>
void multiply_seen(const Block& block, Rows rows, Keys keys, int64_t n, const T* a, int64_t a_row,
                   Panels<T> b, bool finite, T* c, int64_t c_row) {
  if (finite) return multiply<T>(rows.count, n, keys.count, {a, a_row, 1}, b, c, c_row, true);
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t begin = std::max<int64_t>(0, block.begin[rows.first + i] - keys.first);
    const int64_t end = std::min(keys.count, block.end[rows.first + i] - keys.first);
    // Chains end where those of other rows do.
    for (int64_t p = begin, next; p < end; p = next) {
      next = std::min(end, (p / kStep + 1) * kStep);
      multiply<T>(1, n, next - p, {a + i * a_row + p, a_row, 1}, b.below(p), c + i * c_row, c_row,
                  true);
    }
  }
}

// ---- scores

// What a thread needs for the scores of a tile.
template <class T, int64_t kTileKeys>
struct Scores {
  static constexpr int64_t kRow = kTileKeys + 16;  // rows do not share a set of the cache
  Widths<T> width;
  T *q, *keys, *tile;
  AdditiveTile<T> additive;

  // `rows` of the tile: a strip's, or a block's.
  static int64_t count(const Attention<T>& a, int64_t rows) {
    const Widths<T> w(a);
    return (kRows + kTileKeys) * w.size + rows * kRow +
           AdditiveTile<T>::count(w.size, kRows, kTileKeys);
  }
  Scores(const Attention<T>& a, int64_t rows, T* memory)
      : width(a),
        q(memory),
        keys(q + kRows * width.size),
        tile(keys + kTileKeys * width.size),
        additive(tile + rows * kRow, a.size, width.size, kRows, kTileKeys) {}
};

// The queries of a block: for dot products scaled, for additive scores exponentials. Rows that see
// nothing are zeros.
template <class T, int64_t N>
void take_queries(const Group<T>& group, const Block& block, Scores<T, N>& s) {
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

// Keys made ready for take_scores: for dot products transposed into panels, unless they are
// `packed`; for additive scores exponentials.
template <class T, int64_t N>
Panels<T> take_keys(const Group<T>& group, Keys keys, const T* packed, Scores<T, N>& s) {
  const Attention<T>& a = group.a;
  const T* from = group.key(keys.first);
  if (a.form == ScoreForm::additive) {
    const int64_t number = group.b * a.key_heads + group.g;
    if (a.powers)
      s.additive.take_powers(a.powers + number * key_powers_size(a.keys, a.size), a.keys,
                             keys.first, keys.count);
    else
      s.additive.take_keys(keys.count, from, a.k.row);
    return {};
  }
  if (packed) return {packed + keys.first * a.size, a.size * kPanel<T>, kPanel<T>};
  return transposed_panels(keys.count, a.size, from, a.k.row, s.keys);
}

// Scores of some rows of a block against the keys that were taken, before bias and mask.
template <class T, int64_t N>
void take_scores(const Group<T>& group, Rows rows, Keys keys, const Panels<T>& panels,
                 const Scores<T, N>& s, T* out) {
  const Attention<T>& a = group.a;
  if (a.form == ScoreForm::additive)
    s.additive.scores({rows.first, rows.count}, keys.count, s.q, group.key(keys.first), a.k.row,
                      out, s.kRow);
  else
    multiply<T>(rows.count, keys.count, a.size, {s.q + rows.first * s.width.size, s.width.size, 1},
                panels, out, s.kRow, false);
}

// scale * log2(x), where the form asks for it.
template <class T>
HWY_INLINE Vec<T> shaped(const Attention<T>& a, Vec<T> x) {
  if (a.form != ScoreForm::log_dot) return x;
  const Tag<T> d;
  return hn::Mul(hn::Set(d, a.scale * kLog2E<T>), log_of<T>(x));
}

// A row of scores made ready for the softmax: form, bias, and -inf where nothing is seen, as far as
// a product writes. Returns how many elements that is.
template <class T>
int64_t finish_scores(const Group<T>& group, const Block& block, int64_t r, Keys keys, T* score) {
  const Attention<T>& a = group.a;
  const auto [key, count] = keys;
  if (a.form == ScoreForm::log_dot)
    map_range<T>(
        0, count, [&](Vec<T> x) { return shaped(a, x); }, score, static_cast<const T*>(score));
  if (a.bias.data)
    map_range<T>(
        0, count, [](Vec<T> x, Vec<T> y) { return hn::MulAdd(y, hn::Set(Tag<T>(), kLog2E<T>), x); },
        score, static_cast<const T*>(score), group.row_of(a.bias, block.row0 + r) + key);
  if (a.place) {
    // Counted from a multiple of kKeys, wherever the keys begin: the bits stay the same.
    const int64_t first = key / kKeys * kKeys;
    const T place = a.place[group.number(block.row0 + r)] - static_cast<T>(first);
    const T falloff = a.falloff * kLog2E<T>;
    for (int64_t j = 0; j < count; ++j) {
      const T away = static_cast<T>(key - first + j) - place;
      score[j] -= falloff * away * away;
    }
  }
  const int64_t n = rounded_up(count, kNr<T>);
  if (block.begin[r] <= key && block.end[r] >= key + n) return n;
  std::fill(score, score + std::clamp<int64_t>(block.begin[r] - key, 0, n), kNone<T>);
  std::fill(score + std::clamp<int64_t>(block.end[r] - key, 0, count), score + n, kNone<T>);
  return n;
}

// ---- dropout of weights

// 1 / (1 - p) for the weights that stay, 0 for the others: by 16 random bits that are a
// function of (seed, row, key) alone. 128 keys take 16 calls of Philox; key j of them has word j /
// 16 % 4, half j / 64, of call j % 16.
template <class T>
void drop_factors(const Attention<T>& a, int64_t row, int64_t key, int64_t n, T* factor) {
  static_assert(kKeys % kStep == 0 && kStep % 128 == 0);
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

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // toggle
