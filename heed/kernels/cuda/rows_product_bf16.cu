// Products of a model's rows with weights in bf16: which tile takes them (rows_product_bf16.cuh).
#include <algorithm>
#include <cstdint>
#include <limits>

#include "heed/kernels/bf16.h"
#include "heed/kernels/cuda/launch.cuh"
#include "heed/kernels/cuda/rows_product_bf16.cuh"

namespace heed::kernels {
namespace {

// Slices of a sum of so many chunks of kFewDepth: by their number alone, each of 64 elements at
// least where there are so many.
int slices_of(int chunks) {
  if (chunks >= 32 && chunks % 8 == 0) return 8;
  if (chunks >= 8 && chunks % 4 == 0) return 4;
  return chunks % 2 == 0 ? 2 : 1;
}

template <class X, class Y>
struct Wanted {
  Cuda device;
  RowsProduct<X, bf16, Y> p;
  int64_t items;
  int slices, chunks_of_slice;

  dim3 grid(int m, int columns) const {
    return {static_cast<unsigned>(ceil_div(p.n, columns)),
            static_cast<unsigned>(ceil_div(p.rows, m)), static_cast<unsigned>(items)};
  }
  int64_t blocks(int m, int columns) const {
    return ceil_div(p.n, columns) * ceil_div(p.rows, m) * items;
  }
};

template <int kMi, int kNi, bool kColumns, class X, class Y>
void few(const Wanted<X, Y>& w) {
  constexpr int kStages = 4;  // at most
  using Chunk = Bf16Chunk<X, 16 * kMi, 8 * kNi, kFewDepth, kColumns>;
  const auto room = static_cast<int>(capabilities().shared) / (w.slices * Chunk::kBytes);
  const int stages = std::min({kStages, w.chunks_of_slice, room});
  launch_kernel(w.device, bf16_few_rows<X, Y, kMi, kNi, kColumns>, w.grid(16 * kMi, 8 * kNi),
                w.slices * kWarp, static_cast<size_t>(w.slices * stages * Chunk::kBytes), w.p,
                w.chunks_of_slice, stages);
}

template <int kMi, int kNi, int kDown, int kAcross, int kDepth, bool kColumns, class X, class Y>
void many(const Wanted<X, Y>& w, int most_stages) {
  using Tile = Bf16Tile<X, Y, kMi, kNi, kDown, kAcross, kDepth, kColumns>;
  const auto room = static_cast<int>(capabilities().shared) / Tile::Chunk::kBytes;
  const int stages = std::min(most_stages, room);
  launch_kernel(w.device, bf16_many_rows<X, Y, kMi, kNi, kDown, kAcross, kDepth, kColumns>,
                w.grid(Tile::kM, Tile::kN), Tile::kThreads,
                static_cast<size_t>(stages * Tile::Chunk::kBytes), w.p, w.slices,
                w.chunks_of_slice * kFewDepth / kDepth, stages);
}

// The tile with which a multiprocessor reads least: most products wait for what they read. Blocks
// that are more than one a multiprocessor share it, so a part of a round counts as that part; the
// largest tiles, of which few run at a time, take half as long again as that says (by a table of
// all tiles on an H200). Of larger tiles two stages must fit.
template <bool kColumns, class X, class Y>
void by_tile(const Wanted<X, Y>& w) {
  constexpr int kDepth = 2 * kFewDepth;  // of larger tiles, where slices are that long
  struct Tile {
    int m, n, bytes;
    double slower = 1;
  };
  constexpr Tile kTiles[] = {{16, 8, 0},
                             {16, 16, 0},
                             {32, 16, 0},
                             {32, 32, 0},
                             {64, 64, Bf16Chunk<X, 64, 64, kDepth, kColumns>::kBytes},
                             {64, 128, Bf16Chunk<X, 64, 128, kDepth, kColumns>::kBytes, 1.5},
                             {128, 128, Bf16Chunk<X, 128, 128, kDepth, kColumns>::kBytes, 1.5}};
  const bool deep = w.chunks_of_slice % 2 == 0;
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < static_cast<int>(std::size(kTiles)); ++i) {
    const Tile& t = kTiles[i];
    if (2 * static_cast<size_t>(t.bytes) > capabilities().shared || (!deep && t.n > 64)) continue;
    const int64_t a_block = min(int64_t{t.m}, w.p.rows) * static_cast<int64_t>(sizeof(X)) + t.n * 2;
    const double rounds = double(w.blocks(t.m, t.n)) / multiprocessors();
    const double read = std::max(1.0, rounds) * double(a_block) * t.slower;
    if (read <= least) least = read, best = i;
  }
  switch (best) {
    case 0: return few<1, 1, kColumns>(w);
    case 1: return few<1, 2, kColumns>(w);
    case 2: return few<2, 2, kColumns>(w);
    case 3: return few<2, 4, kColumns>(w);
    case 4:
      return deep ? many<2, 4, 2, 2, kDepth, kColumns>(w, 4)
                  : many<2, 4, 2, 2, kFewDepth, kColumns>(w, 4);
    case 5: return many<2, 8, 2, 2, kDepth, kColumns>(w, 3);
    default: return many<2, 8, 4, 2, kDepth, kColumns>(w, 3);
  }
}

template <class X, class Y>
void product(Cuda device, const Bf16Rows<X, Y>& k) {
  if (k.m == 0 || k.n == 0) return;
  const Wanted<X, Y> w = [&] {
    const auto chunks = static_cast<int>(ceil_div(k.k, kFewDepth));
    const int slices = slices_of(chunks);
    return Wanted<X, Y>{.device = device,
                        .p = {.rows = k.m,
                              .n = k.n,
                              .k = k.k,
                              .x = k.x,
                              .x_row = k.k,
                              .x_col = 1,
                              .w = k.w.data,
                              .w_row = k.w.row,
                              .w_col = k.w.col,
                              .y = k.y,
                              .y_row = k.n,
                              .bias = k.bias,
                              .relu = k.relu,
                              .accumulate = false,
                              .inner = k.items,
                              .x_step = {},
                              .w_step = {0, k.w_step},
                              .y_step = {0, k.m * k.n},
                              .bias_step = k.bias_step},
                        .items = k.items,
                        .slices = slices,
                        .chunks_of_slice = chunks / slices};
  }();
  require(k.items <= 65535 && ceil_div(k.m, 16) <= 65535, "matrix product: ", k.m,
          " rows are more than a launch takes; a smaller --batch is not");
  if (k.w.row == 1 && k.w.col != 1)
    by_tile<true>(w);
  else
    by_tile<false>(w);
}

}  // namespace

void run(Cuda device, const Bf16Rows<float, float>& k) { product(device, k); }
void run(Cuda device, const Bf16Rows<float, bf16>& k) { product(device, k); }
void run(Cuda device, const Bf16Rows<bf16, float>& k) { product(device, k); }
void run(Cuda device, const Bf16Rows<bf16, bf16>& k) { product(device, k); }

}  // namespace heed::kernels
