// The backward pass of fused attention (attention.cpp), tile by tile of keys: weights are
// recomputed from the saved log-sum-exp (Dao et al., 2022).
#include <algorithm>

#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/attention_grad.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// With w the weights, z what dropout multiplies them by, g = d context and D = g . context:
//   d value_j = sum_i w_ij z_ij g_i,   d score_ij = w_ij (z_ij g_i . value_j - D_i),
// and from d score on as the form has it.

template <class T>
using GradScores = Scores<T, kKeys>;
constexpr int64_t kTileRow = GradScores<float>::kRow;

// With fewer rows, laying out keys and values would cost more than the products.
constexpr int64_t kFewRows = 4;

// What flows to the keys of a tile, or to their values: sum_i tile_ij x_i over rows i. With many
// rows it is summed transposed, x^T tile, in panels of kPanel keys, so that the product reads rows
// of the tile as they stand; transposed back once, at the end. The bits are the same.
template <class T>
struct KeySums {
  T* data;
  int64_t size, width;  // of x; distance of rows where not transposed
  bool transposed;

  void clear(int64_t keys) const {
    std::fill_n(data, transposed ? rounded_up(keys, kPanel<T>) * size : keys * width, T(0));
  }
  // `keys` counted from the first of the tile.
  void add(int64_t rows, Keys keys, const T* tile, const T* x) const {
    if (transposed)
      for (int64_t j = 0; j < keys.count; j += kPanel<T>)
        multiply<T>(size, std::min(kPanel<T>, keys.count - j), rows, {x, 1, width},
                    {tile + j, kPanel<T>, kTileRow}, data + (keys.first + j) * size, kPanel<T>,
                    true);
    else
      multiply<T>(keys.count, size, rows, {tile, 1, kTileRow}, {x, kPanel<T>, width},
                  data + keys.first * width, width, true);
  }
  // body(j, row j): `workspace` holds kPanel rows.
  template <class Body>
  void for_rows(int64_t keys, T* workspace, Body body) const {
    for (int64_t j = 0; j < keys; ++j) {
      if (transposed && j % kPanel<T> == 0)
        transpose(size, std::min(kPanel<T>, keys - j), data + j * size, kPanel<T>, workspace,
                  width);
      body(j, transposed ? workspace + j % kPanel<T> * width : data + j * width);
    }
  }
};

// A piece of work: the keys [first, last) of a group, against all of its rows.
template <class T>
struct Piece {
  Group<T> group;
  int64_t first, last;
  T *dq, *dv,
      *dplace;  // what it adds up: [rows, width.size], [heads of the group, width.size], [rows]
};

// Some rows of a tile: scores become weights (as dropped), `dscores`, which hold g . value, become
// d score.
template <class T>
void take_dscores(const AttentionGrad<T>& k, const Group<T>& group, const Block& block, Rows rows,
                  Keys keys, const T* mean, T* scores, T* dscores, T* dplace) {
  const Attention<T>& a = group.a;
  const auto [key, count] = keys;
  const Tag<T> d;
  const auto zero = hn::Zero(d);
  for (int64_t r = rows.first; r < rows.first + rows.count; ++r) {
    T *score = scores + r * kTileRow, *dscore = dscores + r * kTileRow;
    HWY_ALIGN T raw[kKeys], factor[kKeys];
    if (a.form == ScoreForm::log_dot) std::copy_n(score, count, raw);
    const int64_t n = finish_scores(group, block, r, keys, score);
    const int64_t number = group.number(block.row0 + r);
    const T lse = a.lse[number];
    const auto from = hn::Set(d, lse == kNone<T> ? T(0) : lse), less = hn::Set(d, mean[r]);
    if (a.dropout > 0) drop_factors(a, number, key, n, factor);
    for (int64_t j = 0; j < n; j += HWY_LANES(T)) {
      const auto w = exp2_of_negative(hn::Sub(hn::LoadU(d, score + j), from));
      auto dweight = hn::LoadU(d, dscore + j), dropped = w;
      if (a.dropout > 0) {
        const auto z = hn::Load(d, factor + j);
        dweight = hn::Mul(dweight, z), dropped = hn::Mul(w, z);
      }
      // What is not seen has weight 0, whatever g . value is there.
      auto ds = hn::IfThenElseZero(hn::Ne(w, zero), hn::Mul(w, hn::Sub(dweight, less)));
      hn::StoreU(dropped, d, score + j);
      hn::StoreU(ds, d, dscore + j);
    }
    if (k.dbias.data) {
      T* to = group.row_of(k.dbias, block.row0 + r) + key;
      for (int64_t j = 0; j < count; ++j) to[j] += dscore[j];
    }
    if (k.dplace) {
      const int64_t first = key / kKeys * kKeys;
      const T place = a.place[number] - static_cast<T>(first);
      for (int64_t j = 0; j < count; ++j)
        dplace[block.row0 + r] +=
            dscore[j] * 2 * a.falloff * (static_cast<T>(key - first + j) - place);
    }
    if (a.form == ScoreForm::log_dot)
      for (int64_t j = 0; j < count; ++j)
        dscore[j] = dscore[j] == 0 ? T(0) : dscore[j] * a.scale / raw[j];
  }
}

template <class T>
void take_back(const AttentionGrad<T>& k, const Piece<T>& piece) {
  const Group<T>& group = piece.group;
  const Attention<T>& a = group.a;
  const Widths<T> w(a);
  const bool additive = a.form == ScoreForm::additive;
  const bool many = group.rows() >= kFewRows;
  T* memory = scratch<Scratch::attention_block, T>(
      GradScores<T>::count(a, kRows) + kRows * kTileRow + 2 * kKeys * (w.size + w.value) +
      kRows * w.value + kPanel<T> * std::max(w.size, w.value));
  T *dk_sums = memory, *dvalue_sums = dk_sums + kKeys * w.size,
    *transposed_values = dvalue_sums + kKeys * w.value,
    *key_panels = transposed_values + kKeys * w.value, *g = key_panels + kKeys * w.size,
    *dscores = g + kRows * w.value, *row_scratch = dscores + kRows * kTileRow;
  GradScores<T> s(a, kRows, row_scratch + kPanel<T> * std::max(w.size, w.value));
  T mean[kRows];  // not in the scratch memory, whose parts all begin where a vector does
  const KeySums<T> dk{dk_sums, a.size, w.size, many && !additive},
      dvalue{dvalue_sums, a.value_size, w.value, many};
  for (int64_t key = piece.first; key < piece.last; key += kKeys) {
    const Keys keys{key, std::min(kKeys, a.keys - key)};
    const int64_t count = keys.count;
    dk.clear(count);
    dvalue.clear(count);
    bool laid_out = false;  // once some row sees the tile
    Panels<T> key_columns{}, value_columns{}, key_rows{};
    for (int64_t row = 0; row < group.rows(); row = group.block_end(row)) {
      const Block block = block_at(group, row);
      if (block.high <= key || block.low >= key + count) continue;
      if (!laid_out) {
        laid_out = true;
        key_columns = take_keys<T>(group, keys, nullptr, s);
        if (many)
          value_columns = transposed_panels(count, a.value_size, group.value(key), a.value.row,
                                            transposed_values);
        if (!additive)
          key_rows = (many ? packed_panels<T> : panels_of<T>)(count, a.size, group.key(key),
                                                              a.k.row, key_panels);
      }
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
      // Exponentials of additive keys are counted from the first of the tile.
      const Keys part =
          additive ? Keys{key, std::min(keys.count, block.high - key)} : block.seen_of(keys);
      const int64_t from = part.first - key;
      for_strips(a, block, [&](Rows rows) {
        take_scores(group, rows, part, key_columns.from(from), s, s.tile + rows.first * kTileRow);
        if (many)
          multiply<T>(rows.count, part.count, a.value_size, {g + rows.first * w.value, w.value, 1},
                      value_columns.from(from), dscores + rows.first * kTileRow, kTileRow, false);
        else
          for (int64_t r = rows.first; r < rows.first + rows.count; ++r)
            for (int64_t j = 0; j < part.count; ++j)
              dscores[r * kTileRow + j] = sum_range<T>(
                  a.value_size, [](Vec<T> x, Vec<T> y) { return hn::Mul(x, y); },
                  static_cast<const T*>(g + r * w.value), group.value(part.first + j));
        take_dscores(k, group, block, rows, part, mean, s.tile, dscores, piece.dplace);
      });
      dvalue.add(block.rows, {from, part.count}, s.tile, g);
      T* dq = piece.dq + row * w.size;
      if (additive) {
        s.additive.gradient(block.rows, part.count, dscores, kTileRow,
                            {block.begin, block.end, key}, {s.q, group.key(key), a.k.row},
                            {dq, dk.data, piece.dv + row / a.queries * w.size});
        continue;
      }
      dk.add(block.rows, {from, part.count}, dscores, s.q);
      const bool finite =
          block.all_see(part) || all_finite(part.count, a.size, group.key(part.first), a.k.row);
      multiply_seen(block, {0, block.rows}, part, a.size, dscores, kTileRow, key_rows.below(from),
                    finite, dq, w.size);
    }
    const auto put = [&](const Heads<T>& to, const KeySums<T>& sums, T times) {
      const auto factor = hn::Set(Tag<T>(), times);
      sums.for_rows(count, row_scratch, [&](int64_t j, const T* from) {
        T* y = to.at(group.b, group.g, key + j);
        if (k.add)
          map_range<T>(
              0, sums.size, [&](Vec<T> x, Vec<T> old) { return hn::MulAdd(x, factor, old); }, y,
              from, static_cast<const T*>(y));
        else
          map_range<T>(
              0, sums.size, [&](Vec<T> x) { return hn::Mul(x, factor); }, y, from);
      });
    };
    // The queries that dk was summed from had log2(e) in them.
    put(k.dk, dk, a.form == ScoreForm::dot ? 1 / kLog2E<T> : T(1));
    put(k.dvalue, dvalue, T(1));
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
  const int64_t wanted = chunk_count(16, groups);
  const int64_t pieces =
      k.dbias.data ? 1 : std::clamp<int64_t>(tiles, 1, std::min<int64_t>(8, wanted));
  const int64_t part = (rows + heads) * w.size + rounded_up(rows, 16);  // as vectors begin
  T* parts = scratch<Scratch::attention_whole, T>(groups * pieces * part);
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

HEED_KERNEL_BODIES(AttentionGrad)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(AttentionGrad)

}  // namespace heed::kernels
#endif
