// Fused attention on the CPU: scores, softmax and the mean of the values, tiling into kRows queries
// by kStep keys, with an online softmax (running maximum and sum; Milakov and Gimelshein, 2018;
// Rabe and Staats, 2021; Dao et al., 2022, "FlashAttention"). Nothing of size Tq x Tk is ever held;
// saved for backward is the log-sum-exp of each row.
//
// Tiles begin at fixed keys, every sum has one order, and keys that a row does not see add exact
// zeros: so a row's bits do not depend on the rows beside it, and a decoder that goes step by step
// gets what a whole sequence gets at once. Inside, scores are multiplied by log2(e), so that
// weights are powers of 2, which cost less than powers of e.
#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
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

template <class T>
using TileScores = Scores<T, kStep>;

// Keys and values of a group as the tiles read them; null: they are laid out when their turn comes.
template <class T>
struct Packed {
  const T *keys = nullptr, *values = nullptr;
};

// The online softmax of a row. Exponentials are taken from an integer `from` near the maximum,
// which moves only when those of a tile sum up to more than 2^kSlack in some lane: factors are
// exact powers of 2 and seldom needed, and the maximum is looked for in a row's first tile alone.
constexpr int kSlack = 8;
template <class T>
struct Running {
  T from;
  HWY_ALIGN T sums[HWY_LANES(T)];  // of the exponentials, one for each lane

  void begin() {
    from = kNone<T>;
    std::fill_n(sums, HWY_LANES(T), T(0));
  }
};

// The largest scores of a row by lanes, -inf if there is none. Four vectors at a time: their chains
// overlap.
template <class T>
HWY_INLINE Vec<T> largest(int64_t n, const T* HWY_RESTRICT score) {
  const Tag<T> d;
  constexpr int64_t lanes = HWY_LANES(T);
  Vec<T> most[4];
  for (int u = 0; u < 4; ++u) most[u] = hn::Set(d, kNone<T>);
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes)
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) most[u] = larger(hn::LoadU(d, score + j + u * lanes), most[u]);
  for (; j < n; j += lanes) most[0] = larger(hn::LoadU(d, score + j), most[0]);
  return larger(larger(most[0], most[1]), larger(most[2], most[3]));
}

// Moves `from` to a row's largest score; `context`, what was summed so far, too.
template <class T>
HWY_INLINE void move_from(T most, Running<T>& run, int64_t m, T* HWY_RESTRICT context) {
  const Tag<T> d;
  const T now = std::ceil(most);
  if (!(now > run.from)) return;
  if (run.from != kNone<T>) {
    const auto factor = exp2_of_negative(hn::Set(d, run.from - now));
    hn::Store(hn::Mul(factor, hn::Load(d, run.sums)), d, run.sums);
    for (int64_t i = 0; i < m; i += HWY_LANES(T))
      hn::StoreU(hn::Mul(factor, hn::LoadU(d, context + i)), d, context + i);
  }
  run.from = now;
}

// Scores become exponentials; returns their sums by lanes. Four chains of vectors; two of them take
// what is left at the end, as if zeros followed: the bits stay the same.
template <class T>
HWY_INLINE Vec<T> exponentiate(int64_t n, T* HWY_RESTRICT score, T from) {
  const Tag<T> d;
  constexpr int64_t lanes = HWY_LANES(T);
  // Where all scores are -inf so far, any finite number gives exponentials of 0.
  if (from == kNone<T>) from = 0;
  if (HWY_UNLIKELY(!(std::abs(from) < kMostFrom<T>))) {
    for (int64_t i = 0; i < n; i += lanes)
      hn::StoreU(hn::Sub(hn::LoadU(d, score + i), hn::Set(d, from)), d, score + i);
    from = 0;
  }
  const Exp2From<T> exp2(from);
  Vec<T> sum[4];
  for (int u = 0; u < 4; ++u) sum[u] = hn::Zero(d);
  const auto take = [&](int64_t j, int u) HWY_ATTR {
    const auto e = exp2(hn::LoadU(d, score + j + u * lanes));
    hn::StoreU(e, d, score + j + u * lanes);
    sum[u] = hn::Add(sum[u], e);
  };
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) take(j, 0), take(j, 1), take(j, 2), take(j, 3);
  static_assert(kNr<T> == 2 * lanes);
  if (j < n) take(j, 0), take(j, 1);
  return hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
}

// Scores of some rows of a block, as take_scores left them, become exponentials, times what dropout
// leaves of them. `plain`: nothing is added to the scores, and all is seen. Not inline: the
// constants stay in registers.
template <class T>
HWY_NOINLINE void weigh(const Group<T>& group, const Block& block, Rows rows, Keys keys, bool plain,
                        const Panels<T>& panels, const TileScores<T>& s, Running<T>* run,
                        T* context, int64_t context_row) {
  const Attention<T>& a = group.a;
  const Tag<T> d;
  const int64_t written = rounded_up(keys.count, kNr<T>);
  const auto finish = [&](int64_t i) {
    if (!plain || written != keys.count)
      finish_scores(group, block, rows.first + i, keys, s.tile + i * s.kRow);
  };
  const auto move = [&](int64_t i) HWY_ATTR {
    const auto most = largest(written, s.tile + i * s.kRow);
    move_from(hn::GetLane(hn::MaxOfLanes(d, most)), run[rows.first + i], a.value_size,
              context + i * context_row);
  };
  for (int64_t i = 0; i < rows.count; ++i) {
    finish(i);
    if (run[rows.first + i].from == kNone<T>) move(i);
  }
  const auto limit = hn::Set(d, T(1 << kSlack));
  for (int64_t i = 0; i < rows.count; ++i) {
    Running<T>& running = run[rows.first + i];
    T* score = s.tile + i * s.kRow;
    auto sums = exponentiate(written, score, running.from);
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(sums, limit)))) {  // once more, from further up
      take_scores(group, {rows.first + i, 1}, keys, panels, s, score);
      finish(i);
      move(i);
      sums = exponentiate(written, score, running.from);
    }
    hn::Store(hn::Add(hn::Load(d, running.sums), sums), d, running.sums);
  }
  if (!(a.dropout > 0)) return;
  for (int64_t i = 0; i < rows.count; ++i) {
    HWY_ALIGN T factor[kStep];
    drop_factors(a, group.number(block.row0 + rows.first + i), keys.first, written, factor);
    T* weight = s.tile + i * s.kRow;
    map_range<T>(
        0, written, [](Vec<T> x, Vec<T> y) { return hn::Mul(x, y); }, weight,
        static_cast<const T*>(weight), static_cast<const T*>(factor));
  }
}

// Asks for the first of `rows` keys or values that are read next, once, from memory: so the reading
// does not stop between two tiles.
template <class T>
void ask_for(const T* x, int64_t rows, int64_t row) {
  const int64_t n = std::min(rows * row, int64_t{2048} / static_cast<int64_t>(sizeof(T)));
  for (int64_t i = 0; i < n; i += 64 / static_cast<int64_t>(sizeof(T))) hwy::Prefetch(x + i);
}

// The tiles of keys that some row of a block sees: body(keys, panels of the keys).
template <class T, class Body>
void for_tiles(const Group<T>& group, const Block& block, const Packed<T>& packed, TileScores<T>& s,
               Body body) {
  for (int64_t key = block.low / kStep * kStep; key < block.high; key += kStep) {
    const Keys keys{key, std::min(kStep, block.high - key)};
    if (!packed.values) ask_for(group.value(key), keys.count, group.a.value.row);
    const Panels<T> panels = take_keys(group, keys, packed.keys, s);
    if (!packed.values && key + kStep < block.high)
      ask_for(group.key(key + kStep), block.high - key - kStep, group.a.k.row);
    body(keys, panels);
  }
}

// Weights of a block, for those who want to see them: scores recomputed, against the known lse.
template <class T>
void write_weights(const Group<T>& group, const Block& block, const Packed<T>& packed,
                   TileScores<T>& s) {
  const Attention<T>& a = group.a;
  const Tag<T> d;
  for (int64_t r = 0; r < block.rows; ++r)
    std::fill_n(group.row_of(a.weights, block.row0 + r), a.keys, T(0));
  for_tiles(group, block, packed, s, [&](Keys keys, const Panels<T>& panels) {
    for_strips(a, block, [&](Rows rows) {
      take_scores(group, rows, keys, panels, s, s.tile);
      for (int64_t i = 0; i < rows.count; ++i) {
        const int64_t r = rows.first + i;
        if (block.empty(r)) continue;
        T* score = s.tile + i * s.kRow;
        finish_scores(group, block, r, keys, score);
        const auto lse = hn::Set(d, a.lse[group.number(block.row0 + r)]);
        map_range<T>(
            0, keys.count, [&](Vec<T> x) { return exp2_of_negative(hn::Sub(x, lse)); },
            group.row_of(a.weights, block.row0 + r) + keys.first, static_cast<const T*>(score));
      }
    });
  });
}

template <class T>
void attend_block(const Group<T>& group, int64_t row0, const Packed<T>& packed) {
  const Attention<T>& a = group.a;
  const Block block = block_at(group, row0);
  const Widths<T> width(a);
  T* memory = scratch<Scratch::attention_block, T>(TileScores<T>::count(a, kStrip) +
                                                   (kRows + kStep) * width.value);
  T *sums = memory, *value_panels = sums + kRows * width.value;
  TileScores<T> s(a, kStrip, value_panels + kStep * width.value);
  Running<T> run[kRows];
  for (int64_t r = 0; r < block.rows; ++r) run[r].begin();
  std::fill_n(sums, block.rows * width.value, T(0));
  take_queries(group, block, s);
  for_tiles(group, block, packed, s, [&](Keys keys, const Panels<T>& panels) {
    const auto [key, count] = keys;
    const int64_t columns = rounded_up(a.value_size, kPanel<T>);
    const Panels<T> values =
        packed.values ? Panels<T>{packed.values + key * columns, kStep * kPanel<T>, kPanel<T>}
                      : panels_of(count, a.value_size, group.value(key), a.value.row, value_panels);
    const bool all_seen = block.all_see(keys);
    const bool finite = all_seen || all_finite(count, a.value_size, group.value(key), a.value.row);
    for_strips(a, block, [&](Rows rows) {
      take_scores(group, rows, keys, panels, s, s.tile);
      T* context = sums + rows.first * width.value;
      const bool plain = all_seen && a.form != ScoreForm::log_dot && !a.bias.data && !a.place;
      weigh(group, block, rows, keys, plain, panels, s, run, context, width.value);
      multiply_seen(block, rows, keys, a.value_size, s.tile, s.kRow, values, finite, context,
                    width.value);
    });
  });
  for (int64_t r = 0; r < block.rows; ++r) {
    const Tag<T> d;
    const bool none = run[r].from == kNone<T>;
    const T sum = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, run[r].sums)));
    if (a.lse) a.lse[group.number(row0 + r)] = none ? kNone<T> : run[r].from + std::log2(sum);
    const auto share = hn::Set(d, none ? T(0) : T(1) / sum);
    map_range<T>(
        0, a.value_size, [&](Vec<T> x) { return hn::Mul(x, share); },
        group.row_of(a.context, row0 + r), static_cast<const T*>(sums + r * width.value));
  }
  if (a.weights.data) write_weights(group, block, packed, s);
}

#if HWY_TARGET <= HWY_AVX3

// ---- few queries, as a decoder's step or a short sentence has: no blocks, and keys transposed in
// registers

constexpr int64_t kFew = 48;

template <class T>
bool has_few(const Attention<T>& a) {
  return std::is_same_v<T, float> && a.form == ScoreForm::dot && !a.bias.data && !a.place &&
         !a.weights.data && a.dropout == 0 && a.heads / a.key_heads * a.queries <= kFew &&
         a.keys <= kStep && a.size <= kStep && a.size % 16 == 0 && a.value_size <= kStep &&
         a.value_size % kNr<T> == 0 && (!a.origins || (a.queries == 1 && a.range_head == 0));
}

// sum_j score_j value_j of values that lie apart, as multiply() adds them.
inline void add_values(int64_t m, Keys keys, const float* score, const float* const* value,
                       float* out) {
  const Tag<float> d;
  for (int64_t i = 0; i < m; i += 32) {
    auto low = hn::Zero(d), high = low;
    for (int64_t j = keys.first; j < keys.first + keys.count; ++j) {
      const auto w = hn::Set(d, score[j]);
      low = hn::MulAdd(w, hn::LoadU(d, value[j] + i), low);
      high = hn::MulAdd(w, hn::LoadU(d, value[j] + i + 16), high);
    }
    hn::Store(low, d, out + i), hn::Store(high, d, out + i + 16);
  }
}

// All rows of a group that see the same keys: what attend_block() does, with its bits.
HWY_NOINLINE void attend_few(const Group<float>& group, Keys keys) {
  const Attention<float>& a = group.a;
  const Tag<float> d;
  constexpr int64_t kRow = kStep + 16;
  const int64_t rows = group.rows(), end = keys.first + keys.count;
  const float *key_at[kStep], *value_at[kStep];  // where they lie, if that is elsewhere
  for (int64_t j = 0; a.origins && j < end; ++j) {
    const int64_t row = j < a.origins_known ? a.origins[group.b * a.origins_known + j] : group.b;
    key_at[j] = a.k.at(row, group.g, j), value_at[j] = a.value.at(row, group.g, j);
  }
  HWY_ALIGN float q[kFew * kStep], scores[kFew * kRow], context[kFew * kRow];
  const auto scale = hn::Set(d, a.scale * kLog2E<float>);
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = group.row_of(a.q, r);
    for (int64_t i = 0; i < a.size; i += 16)
      hn::Store(hn::Mul(hn::LoadU(d, from + i), scale), d, q + r * a.size + i);
  }
  for (int64_t i = 0; i < a.size; i += 16)
    for (int64_t j = 0; j < end; j += 16) {
      __m512 k[16];
      if (a.origins)
        transposed_16x16([&](int64_t n) { return key_at[j + n] + i; }, end - j, k);
      else
        transposed_16x16([&, from = group.key(j) + i](int64_t n) { return from + n * a.k.row; },
                         end - j, k);
      for (int64_t r = 0; r < rows; ++r) {
        float* const score = scores + r * kRow + j;
        auto sum = i == 0 ? hn::Zero(d) : hn::Load(d, score);
#pragma GCC unroll 16
        for (int p = 0; p < 16; ++p)
          sum = hn::MulAdd(hn::Set(d, q[r * a.size + i + p]), Vec<float>{k[p]}, sum);
        hn::Store(sum, d, score);
      }
    }
  Running<float> run[kFew];
  const int64_t written = rounded_up(end, kNr<float>);
  for (int64_t r = 0; r < rows; ++r) {
    float* const score = scores + r * kRow;
    std::fill_n(score, keys.first, kNone<float>);
    std::fill(score + end, score + written, kNone<float>);
    const auto most = largest(written, score);
    run[r].from = kNone<float>;
    move_from(hn::GetLane(hn::MaxOfLanes(d, most)), run[r], 0, context);
    hn::Store(exponentiate(written, score, run[r].from), d, run[r].sums);
  }
  if (a.origins)
    for (int64_t r = 0; r < rows; ++r)
      add_values(a.value_size, keys, scores + r * kRow, value_at, context + r * kRow);
  else
    multiply<float>(rows, a.value_size, keys.count, {scores + keys.first, kRow, 1},
                    {group.value(keys.first), kPanel<float>, a.value.row}, context, kRow, false);
  for (int64_t r = 0; r < rows; ++r) {
    const bool none = run[r].from == kNone<float>;
    const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, run[r].sums)));
    if (a.lse) a.lse[group.number(r)] = none ? kNone<float> : run[r].from + std::log2(sum);
    const auto share = hn::Set(d, none ? 0.0f : 1.0f / sum);
    float* const to = group.row_of(a.context, r);
    for (int64_t i = 0; i < a.value_size; i += 16)
      hn::StoreU(hn::Mul(hn::Load(d, context + r * kRow + i), share), d, to + i);
  }
}

// The keys that all rows of a group see, if these are the same for all.
inline std::optional<Keys> seen_by_all(const Group<float>& group) {
  const Attention<float>& a = group.a;
  const auto seen = [&](int64_t r) {
    if (!a.range) return Keys{0, a.keys};
    const Id* range =
        a.range + group.b * a.range_batch + group.head(r) * a.range_head + 2 * group.position(r);
    const int64_t begin = std::max<int64_t>(0, range[0]);
    return Keys{begin, std::min<int64_t>(a.keys, range[1]) - begin};
  };
  const Keys first = seen(0);
  for (int64_t r = 1; a.range && r < group.rows(); ++r)
    if (const Keys k = seen(r); k.first != first.first || k.count != first.count) return {};
  return first.count > 0 ? std::optional(first) : std::nullopt;
}

#endif

// Keys and values of [key, key + kStep), laid out for many blocks.
template <class T>
void pack_tile(const Group<T>& group, int64_t key, T* keys, T* values) {
  const Attention<T>& a = group.a;
  const int64_t count = std::min(kStep, a.keys - key),
                columns = rounded_up(a.value_size, kPanel<T>);
  if (a.form != ScoreForm::additive)
    transposed_panels(count, a.size, group.key(key), a.k.row, keys + key * a.size);
  for (int64_t j = 0; j < a.value_size; j += kPanel<T>)
    pack_panel<T>(count, std::min(kPanel<T>, a.value_size - j),
                  {group.value(key) + j, a.value.row, 1}, values + key * columns + j * kStep);
}

// Keys and values of a group that lie in the rows of other sentences, brought together in this
// thread's scratch, where the group of `a` that is returned finds them.
template <class T>
Attention<T> gathered(const Attention<T>& a, int64_t b, int64_t g) {
  const int64_t n = a.size, m = a.value_size;
  T* const keys = scratch<Scratch::attention_whole, T>(a.keys * (n + m));
  T* const values = keys + a.keys * n;
  for (int64_t j = 0; j < a.keys; ++j) {
    const int64_t row = j < a.origins_known ? a.origins[b * a.origins_known + j] : b;
    std::copy_n(a.k.at(row, g, j), n, keys + j * n);
    std::copy_n(a.value.at(row, g, j), m, values + j * m);
  }
  Attention<T> own = a;
  own.origins = nullptr;
  own.k = {keys, 0, 0, n}, own.value = {values, 0, 0, m};
  return own;
}

template <class T>
void apply(const Attention<T>& a) {
  const int64_t groups = a.batch * a.key_heads;
  const int64_t tiles = chunk_count(a.keys, kStep);
  const auto group_at = [&](int64_t i) { return Group<T>{a, i / a.key_heads, i % a.key_heads}; };
  const auto blocks_of = [&](const Group<T>& group, auto&& body) {
    for (int64_t row = 0; row < group.rows(); row = group.block_end(row)) body(row);
  };
  const auto workspace = [&] {
    T* keys = scratch<Scratch::attention_whole, T>(tiles * kStep *
                                                   (a.size + rounded_up(a.value_size, kPanel<T>)));
    return std::pair(keys, keys + tiles * kStep * a.size);
  };
#if HWY_TARGET <= HWY_AVX3
  if constexpr (std::is_same_v<T, float>)
    if (has_few(a))
      return parallel_for(groups, 1, [&](int64_t i, int64_t) {
        const Group<float> group = group_at(i);
        if (const auto keys = seen_by_all(group))
          attend_few(group, *keys);
        else
          blocks_of(group, [&](int64_t row) { attend_block(group, row, Packed<T>()); });
      });
#endif
  if (a.origins)
    return parallel_for(groups, 1, [&](int64_t i, int64_t) {
      const Attention<T> own = gathered(a, i / a.key_heads, i % a.key_heads);
      const Group<T> group{own, i / a.key_heads, i % a.key_heads};
      blocks_of(group, [&](int64_t row) { attend_block(group, row, Packed<T>()); });
    });
  // Packing pays from the second block on.
  const bool pack = a.heads / a.key_heads * a.queries > kRows;
  if (groups >= 2 * threads() || !pack) {
    parallel_for(groups, 1, [&](int64_t i, int64_t) {
      const Group<T> group = group_at(i);
      Packed<T> packed;
      if (pack) {
        const auto [keys, values] = workspace();
        for (int64_t t = 0; t < tiles; ++t) pack_tile(group, t * kStep, keys, values);
        packed = {keys, values};
      }
      blocks_of(group, [&](int64_t row) { attend_block(group, row, packed); });
    });
    return;
  }
  // Few groups: the blocks of each are shared out.
  for (int64_t i = 0; i < groups; ++i) {
    const Group<T> group = group_at(i);
    const auto [keys, values] = workspace();
    parallel_for(tiles, 1, [&, keys = keys, values = values](int64_t t, int64_t) {
      pack_tile(group, t * kStep, keys, values);
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
