// Matrix products for the CPU (docs/decisions/matrix-products.md says why they are ours).
//
// The form of Goto and van de Geijn (2008, "Anatomy of high-performance matrix multiplication"): b
// is packed into panels; a tile of kTall rows by a panel's width stays in registers while the
// product runs down k; a is read where it stands (or, transposed, packed strip by strip). k is cut
// at kDepth, and the parts are added to c in rising order. So every element of c is summed in one
// order that depends on k alone: neither the size of the batch nor the threads change a bit of it.
#include <algorithm>
#include <cstring>

#include "heed/kernels/cpu/scratch.h"
#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/tile-inl.h"

#ifndef HEED_KERNELS_CPU_GEMM_ONCE
#define HEED_KERNELS_CPU_GEMM_ONCE
namespace heed::kernels {

constexpr int64_t kDepth = 256;        // k of a packed block
constexpr int64_t kColumns = 1024;     // most columns packed at a time
constexpr int64_t kCached = 1 << 17;   // elements of an operand that the second-level cache keeps
constexpr int64_t kTileColumns = 256;  // columns of a thread's piece of work
constexpr int64_t kFewRows = 48;

}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// Padding between packed rows, so that they do not share a set of the cache.
constexpr int64_t kApart = 16;

// `rows` rows of `a` for one block of k, of it [p0, p1): rows as they are but k + kApart apart or,
// transposed, strip after strip, each k long and as wide as the strip is high.
template <class T>
void pack_rows(Matrix<const T> a, int64_t rows, int64_t k, int64_t p0, int64_t p1, T* out) {
  if (a.col == 1) {
    for (int64_t i = 0; i < rows; ++i)
      std::copy(a.data + i * a.row + p0, a.data + i * a.row + p1, out + i * (k + kApart) + p0);
    return;
  }
  // Along each row of a^T as it lies in memory, to all strips at once.
  const int64_t height = strip_height(rows);
  for (int64_t p = p0; p < p1; ++p) {
    const T* in = a.data + p * a.col;
    for (int64_t row = 0; row < rows; row += height) {
      const int64_t m = std::min(height, rows - row);
      T* to = out + row * k + p * m;
      if (m == kTall)  // a size the compiler knows
        std::memcpy(to, in + row, kTall * sizeof(T));
      else
        std::copy_n(in + row, m, to);
    }
  }
}

// b [k x n] as panels, block of k after block of k, on all threads. A row-major b is read along its
// rows, a few at a time and several panels side by side, as memory likes it.
template <class T>
void pack_blocks(int64_t depth, int64_t n, Matrix<const T> b, T* out) {
  constexpr int64_t nr = kPanel<T>;
  const bool by_rows = b.col == 1;
  const int64_t width = (by_rows ? 8 : 2) * nr, part = by_rows ? kDepth / 4 : kDepth;
  const int64_t groups = chunk_count(n, width);
  parallel_for(chunk_count(depth, part) * groups, 1, [&](int64_t t, int64_t) {
    const int64_t first = t / groups * part, last = std::min(depth, first + part);
    const int64_t k0 = first / kDepth * kDepth, k = std::min(kDepth, depth - k0);
    const int64_t col0 = t % groups * width, col1 = std::min(n, col0 + width);
    T* const block = out + k0 * chunk_count(n, nr) * nr;
    const int64_t step = by_rows ? 8 : part;
    for (int64_t p = first; p < last; p += step)
      for (int64_t j = col0; j < col1; j += nr)
        pack_panel<T>(std::min(step, last - p), std::min(nr, n - j),
                      {b.data + p * b.row + j * b.col, b.row, b.col},
                      block + j * k + (p - k0) * nr);
  });
}

// bias and activation for rows of c that are still in the cache.
template <class T>
void finish_rows(const Matmul<T>& g, T* c, int64_t row0, int64_t row1, int64_t col0, int64_t col1) {
  using V = Vec<T>;
  const Tag<T> d;
  const int64_t n = col1 - col0;
  for (int64_t i = row0; i < row1; ++i) {
    T* y = c + i * g.c.row + col0;
    const T* x = y;
    const auto with = [&](auto f) {
      if (g.bias)
        map_range<T>(
            0, n, [&](V v, V b) { return f(hn::Add(v, b)); }, y, x, g.bias + col0);
      else
        map_range<T>(0, n, f, y, x);
    };
    switch (g.activation) {
      case Activation::none: with([](V v) { return v; }); break;
      case Activation::relu: with([d](V v) { return larger(hn::Zero(d), v); }); break;
      case Activation::tanh: with([](V v) { return tanh_of(v); }); break;
      case Activation::sigmoid: with([](V v) { return sigmoid_of<T>(v); }); break;
      case Activation::gelu:
        with([d](V v) {
          const auto c1 = hn::Set(d, static_cast<T>(1.5957691216057308));
          const auto c3 = hn::Set(d, static_cast<T>(1.5957691216057308 * 0.044715));
          return hn::Mul(v, sigmoid_of<T>(hn::Mul(v, hn::MulAdd(hn::Mul(v, v), c3, c1))));
        });
        break;
    }
  }
}

// Where the operands of one block of k are: a packed (or null: as it stands), b packed from column
// `base` on (or null: as it stands). `next`: the panel that this thread reads next, if it is worth
// asking for.
template <class T>
struct Block {
  const T *a, *b;
  T* c;
  const T *packed_a, *panels, *next;
  int64_t base, k0;
  bool pack_late;
};
struct Piece {
  int64_t row0, row1, col0, col1;
};

// One block of k for one piece of c.
template <class T>
void multiply_tile(const Matmul<T>& g, const Block<T>& block, const Piece& piece) {
  constexpr int64_t nr = kPanel<T>, half = nr / 2;
  const auto [row0, row1, col0, col1] = piece;
  const T* const panels = block.panels;
  T* const c = block.c;
  const int64_t k0 = block.k0, k = std::min(kDepth, g.k - k0);
  const bool add = k0 > 0 || g.accumulate;
  // A narrow c has taller tiles, unless a is packed for the others.
  const bool narrow = col1 - col0 <= half && (!block.packed_a || g.a.col == 1);
  const int64_t height = strip_height(row1 - row0, narrow ? kMr : kTall);
  const T* const packed_rows = block.packed_a ? block.packed_a + row0 * (k + kApart) : nullptr;
  const auto strip_at = [&](int64_t i, int64_t m) -> Strip<T> {
    if (!packed_rows) return {block.a + i * g.a.row + k0, g.a.row, 1};
    if (g.a.col == 1) return {packed_rows + (i - row0) * (k + kApart), k + kApart, 1};
    return {packed_rows + (i - row0) * k, 1, m};
  };
  for (int64_t j = col0; j < col1; j += nr) {  // a panel of b stays in the second-level cache
    const int64_t n = std::min(nr, col1 - j);
    const T* panel = panels ? panels + (j - block.base) * k : block.b + k0 * g.b.row + j * g.b.col;
    int64_t panel_row = panels ? nr : g.b.row;
    HWY_ALIGN T own_panel[kDepth * kPanel<T>];
    if (!panels && (n % half != 0 || block.pack_late)) {
      pack_panel<T>(k, n, {panel, g.b.row, g.b.col}, own_panel);
      panel = own_panel;
      panel_row = nr;
    }
    for (int64_t i = row0; i < row1; i += height) {
      const int64_t m = std::min(height, row1 - i);
      const Strip<T> strip = strip_at(i, m);
      // c is wanted at the end of a tile; asked for now, it is there by then.
      T* at = c + i * g.c.row + j;
      for (int64_t r = 0; r < m; ++r)
        for (int64_t x = 0; x < n; x += HWY_LANES(T)) hwy::Prefetch(at + r * g.c.row + x);
      // The right edge: a tile beside, then the columns that exist.
      HWY_ALIGN T edge[kMr * kPanel<T>];
      const bool at_edge = n % half != 0;
      for (int64_t r = 0; r < m && at_edge && add; ++r)
        std::copy_n(at + r * g.c.row, n, edge + r * nr);
      T* const to = at_edge ? edge : at;
      const int64_t to_row = at_edge ? nr : g.c.row;
      // A vector for each k: as many strips as there are in a panel's row ask for a part of it
      // each.
      if (const int64_t part = (i - row0) / height; n <= half)
        tile_of<kMr, kWide / 2>(m, k, strip, panel, panel_row, to, to_row, add);
      else if (block.next && part < kWide)
        tile_of<kTall, kWide, true>(m, k, strip, panel, panel_row, to, to_row, add,
                                    block.next + part * k * HWY_LANES(T));
      else
        tile_of<kTall, kWide>(m, k, strip, panel, panel_row, to, to_row, add);
      for (int64_t r = 0; r < m && at_edge; ++r) std::copy_n(edge + r * nr, n, at + r * g.c.row);
    }
  }
  const bool last = k0 + kDepth >= g.k;
  if (last && (g.bias || g.activation != Activation::none))
    finish_rows(g, c, row0, row1, col0, col1);
}

// A matrix times a vector (n = 1): a panel would be all but empty. Again each element has an order
// of its own that depends on k alone: by rows a dot product, by columns one chain down k.
template <class T>
void multiply_vector(const Matmul<T>& g, const T* a, const T* b, T* c) {
  const Tag<T> d;
  T* x = scratch<Scratch::product_right, T>(g.k);
  for (int64_t p = 0; p < g.k; ++p) x[p] = b[p * g.b.row];
  const auto put = [&](int64_t i, T sum) {
    T* at = c + i * g.c.row;
    *at = g.accumulate ? *at + sum : sum;
  };
  if (g.a.col == 1) {
    parallel_for(g.m, row_grain(g.k), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        put(i, sum_range<T>(
                   g.k, [](Vec<T> u, Vec<T> v) { return hn::Mul(u, v); }, a + i * g.a.row,
                   static_cast<const T*>(x)));
    });
  } else {
    constexpr int64_t width = 4 * HWY_LANES(T);
    parallel_for(chunk_count(g.m, width), 1, [&](int64_t chunk, int64_t) {
      const int64_t i = chunk * width, m = std::min(width, g.m - i);
      HWY_ALIGN T sums[width] = {};
      if (m == width) {
        auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
        for (int64_t p = 0; p < g.k; ++p) {
          const auto v = hn::Set(d, x[p]);
          const T* row = a + i + p * g.a.col;
          s0 = hn::MulAdd(hn::LoadU(d, row), v, s0);
          s1 = hn::MulAdd(hn::LoadU(d, row + HWY_LANES(T)), v, s1);
          s2 = hn::MulAdd(hn::LoadU(d, row + 2 * HWY_LANES(T)), v, s2);
          s3 = hn::MulAdd(hn::LoadU(d, row + 3 * HWY_LANES(T)), v, s3);
        }
        hn::Store(s0, d, sums);
        hn::Store(s1, d, sums + HWY_LANES(T));
        hn::Store(s2, d, sums + 2 * HWY_LANES(T));
        hn::Store(s3, d, sums + 3 * HWY_LANES(T));
      } else {
        for (int64_t q = 0; q < m; q += HWY_LANES(T)) {
          const size_t rest = static_cast<size_t>(std::min<int64_t>(HWY_LANES(T), m - q));
          auto sum = hn::Zero(d);
          for (int64_t p = 0; p < g.k; ++p)
            sum = hn::MulAdd(load_part<T>(a + i + q + p * g.a.col, rest), hn::Set(d, x[p]), sum);
          hn::Store(sum, d, sums + q);
        }
      }
      for (int64_t q = 0; q < m; ++q) put(i + q, sums[q]);
    });
  }
}

// One product, on all threads.
template <class T>
void multiply_one(const Matmul<T>& g, const T* a, const T* b, T* c) {
  constexpr int64_t nr = kPanel<T>;
  const bool few = g.m <= kFewRows;
  // Few rows: packing b would cost as much as the product. A transposed b must be packed.
  const bool direct = !g.packed_b && few && g.b.col == 1;
  // Not many: a panel is packed when its turn comes, used for all rows while it is in the cache,
  // and forgotten.
  const bool pack_late = !g.packed_b && !direct && g.m <= 320;
  const bool pack_early = !g.packed_b && !direct && !pack_late;
  // Sixteen strips to a tile, fewer where there would be too few tiles to share out evenly.
  int64_t rows_of_tile = 16 * kTall;
  const int64_t columns = chunk_count(std::min(g.n, kColumns), kTileColumns);
  while (rows_of_tile > 4 * kTall && chunk_count(g.m, rows_of_tile) * columns < 8 * threads())
    rows_of_tile /= 2;
  if (pack_late || few) rows_of_tile = chunk_count(g.m, kTall) * kTall;
  const int64_t row_tiles = chunk_count(g.m, rows_of_tile);
  const auto rows_at = [&](int64_t row) { return std::min(rows_of_tile, g.m - row); };
  // Rows a multiple of 4096 bytes apart would all fall into one set of the first-level cache.
  const bool a_in_place = g.a.col == 1 && g.a.row * static_cast<int64_t>(sizeof(T)) % 4096 != 0;
  for (int64_t col0 = 0; col0 < g.n; col0 += kColumns) {
    const int64_t n = std::min(kColumns, g.n - col0), panel_count = chunk_count(n, nr);
    // Narrow pieces where there are few rows, so that there is work for every thread.
    const int64_t width = row_tiles >= 4 ? kTileColumns : direct ? 2 * nr : nr;
    const int64_t col_tiles = chunk_count(n, width);
    // A block of k at a time. Where threads would have to meet after each: as much of k as the
    // cache keeps of what is read again, all of a or a piece of b.
    const int64_t again = std::max(a_in_place && !pack_late ? rows_of_tile : g.m, width);
    const int64_t depth =
        threads() == 1 ? kDepth : std::max<int64_t>(1, kCached / again / kDepth) * kDepth;
    for (int64_t k_begin = 0; k_begin < g.k; k_begin += depth) {
      const int64_t k_end = std::min(g.k, k_begin + depth);
      const int64_t blocks = chunk_count(k_end - k_begin, kDepth);
      const auto k_at = [&](int64_t k0) { return std::min(kDepth, k_end - k0); };
      T* const packed =
          pack_early ? scratch<Scratch::product_right, T>((k_end - k_begin) * (panel_count * nr))
                     : nullptr;
      if (packed)
        pack_blocks<T>(k_end - k_begin, n,
                       {b + k_begin * g.b.row + col0 * g.b.col, g.b.row, g.b.col}, packed);
      const auto panels_at = [&](int64_t k0) -> const T* {
        if (g.packed_b) return g.packed_b + k0 * chunk_count(g.n, nr) * nr + col0 * k_at(k0);
        return packed ? packed + (k0 - k_begin) * panel_count * nr : nullptr;
      };
      T* const packed_a = a_in_place
                              ? nullptr
                              : scratch<Scratch::product_left, T>(blocks * g.m * (kDepth + kApart));
      const auto packed_rows = [&](int64_t k0) {
        return packed_a ? packed_a + (k0 - k_begin) / kDepth * g.m * (kDepth + kApart) : nullptr;
      };
      constexpr int64_t part = kDepth / 4;  // of a block: one tile of rows is work for all threads
      if (packed_a)
        parallel_for(4 * blocks * row_tiles, std::max<int64_t>(1, kGrain / (rows_of_tile * part)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t q = begin; q < end; ++q) {
                         const int64_t row = q / (4 * blocks) * rows_of_tile;
                         const int64_t k0 = k_begin + q / 4 % blocks * kDepth, k = k_at(k0);
                         const int64_t p0 = std::min(k, q % 4 * part), p1 = std::min(k, p0 + part);
                         pack_rows<T>({a + row * g.a.row + k0 * g.a.col, g.a.row, g.a.col},
                                      rows_at(row), k, p0, p1,
                                      packed_rows(k0) + row * (k + kApart));
                       }
                     });
      // Few rows are through with a panel before the next is there.
      const auto panel_after = [&](int64_t k0, int64_t col) -> const T* {
        const bool last = k0 + kDepth >= k_end;  // then this thread's next piece, likely
        k0 = last ? k_begin : k0 + kDepth;
        if (last) col += threads() * nr;
        const bool asks = few && g.packed_b && col < col0 + n;
        return asks ? panels_at(k0) + (col - col0) * k_at(k0) : nullptr;
      };
      parallel_for(row_tiles * col_tiles, 1, [&](int64_t t, int64_t) {
        // Down the rows first: a piece of b stays in the second-level cache.
        const int64_t row = t % row_tiles * rows_of_tile, col = col0 + t / row_tiles * width;
        for (int64_t k0 = k_begin; k0 < k_end; k0 += kDepth)
          multiply_tile(
              g,
              {a, b, c, packed_rows(k0), panels_at(k0), panel_after(k0, col), col0, k0, pack_late},
              {row, row + rows_at(row), col, std::min(col0 + n, col + width)});
      });
    }
  }
}

template <class T>
void apply(const Matmul<T>& g) {
  const int64_t batch = g.outer * g.inner;
  if (g.m == 0 || g.n == 0 || batch == 0) return;
  const auto item = [&](int64_t q) {
    const int64_t i = q / g.inner, j = q % g.inner;
    T* c = g.c.data + i * g.c_batch.outer + j * g.c_batch.inner;
    if (g.k == 0) {  // an empty sum
      for (int64_t r = 0; r < g.m && !g.accumulate; ++r) std::fill_n(c + r * g.c.row, g.n, T(0));
      finish_rows(g, c, 0, g.m, 0, g.n);
      return;
    }
    const T* a = g.a.data + i * g.a_batch.outer + j * g.a_batch.inner;
    const T* b = g.b.data + i * g.b_batch.outer + j * g.b_batch.inner;
    if (g.n == 1 && !g.packed_b) {
      multiply_vector(g, a, b, c);
      if (g.bias || g.activation != Activation::none) finish_rows(g, c, 0, g.m, 0, 1);
    } else
      multiply_one(g, a, b, c);
  };
  if (batch < 4) {  // each item on all threads
    for (int64_t q = 0; q < batch; ++q) item(q);
    return;
  }
  // Items side by side, each on one thread (parallel_for inside runs alone).
  const int64_t cost = std::max<int64_t>(1, g.m * g.n * g.k);
  parallel_for(batch, std::max<int64_t>(1, (1 << 18) / cost), [&](int64_t begin, int64_t end) {
    for (int64_t q = begin; q < end; ++q) item(q);
  });
}

template <class T>
void apply(const PackMatrix<T>& p) {
  pack_blocks<T>(p.k, p.n, p.b, p.packed);
}

HEED_KERNEL_BODIES(Matmul)
HEED_KERNEL_BODIES(PackMatrix)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(Matmul)
HEED_KERNEL_RUN(PackMatrix)

// The widest panel of any instruction set: four vectors of 16.
int64_t packed_size(int64_t k, int64_t n) { return k * chunk_count(n, 64) * 64; }

}  // namespace heed::kernels
#endif
