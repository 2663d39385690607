#include "heed/kernels/cuda/rows_product.cuh"

#include "heed/kernels/cuda/rows_product.h"

namespace heed::kernels {
namespace {

// Slices of a sum: by k alone.
int slices_of(int64_t k) {
  for (const int slices : {8, 4, 2})
    if (k % (slices * kChunk) == 0) return slices;
  return 1;
}

struct Grid {
  int64_t items, rows, n;
  dim3 of(int m, int columns) const {
    return {static_cast<unsigned>(ceil_div(n, columns)), static_cast<unsigned>(ceil_div(rows, m)),
            static_cast<unsigned>(items)};
  }
  int64_t blocks(int m, int columns) const {
    return ceil_div(n, columns) * ceil_div(rows, m) * items;
  }
};

template <int kMi, int kNi, bool kTransposed>
void few(cudaStream_t stream, const Grid& grid, const RowsProduct& p, int slices) {
  using Tile = FewRows<kMi, kNi, kTransposed>;
  const auto kernel = few_rows<kMi, kNi, kTransposed>;
  const size_t bytes = Tile::shared(slices, static_cast<int>(p.k / slices / kChunk));
  static const bool allowed = (allow_shared(kernel, Tile::shared(8, Tile::kStages)), true);
  static_cast<void>(allowed);
  kernel<<<grid.of(Tile::kM, Tile::kN), slices * kWarp, bytes, stream>>>(p);
}

template <bool kTransposed>
void launch(cudaStream_t stream, int64_t items, const RowsProduct& p) {
  const Grid grid{items, p.rows, p.n};
  const int slices = slices_of(p.k);
  // The smallest tiles, which read x and w most often, as long as all of them run at once.
  const int64_t most = multiprocessors() * 3 / 2;
  if (grid.blocks(16, 8) <= most) {
    few<1, 1, kTransposed>(stream, grid, p, slices);
  } else if (grid.blocks(16, 16) <= most) {
    few<1, 2, kTransposed>(stream, grid, p, slices);
  } else if (grid.blocks(32, 16) <= most) {
    few<2, 2, kTransposed>(stream, grid, p, slices);
  } else if (grid.blocks(32, 32) <= most) {
    few<2, 4, kTransposed>(stream, grid, p, slices);
  } else {
    using Tile = ManyRows<kTransposed>;
    const auto kernel = many_rows<kTransposed>;
    static const bool allowed = (allow_shared(kernel, Tile::kShared), true);
    static_cast<void>(allowed);
    kernel<<<grid.of(Tile::kM, Tile::kN), Tile::kThreads, Tile::kShared, stream>>>(
        p, static_cast<int>(p.k / slices / kChunk));
  }
}

bool aligned(const float* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

bool rows_product(Cuda device, const Matmul<float>& k) {
  const int64_t items = k.outer * k.inner;
  const bool together = k.outer == 1 || k.inner == 1;
  const auto step = [&](const BatchStride& s) { return k.inner == 1 ? s.outer : s.inner; };
  const bool transposed = k.b.col != 1;
  const int64_t w_row = transposed ? k.b.col : k.b.row;
  const RowsProduct p{.rows = k.m,
                      .n = k.n,
                      .k = k.k,
                      .x = k.a.data,
                      .x_row = k.a.row,
                      .w = k.b.data,
                      .w_row = w_row,
                      .y = k.c.data,
                      .y_row = k.c.row,
                      .bias = k.bias,
                      .relu = k.activation == Activation::relu,
                      .x_step = step(k.a_batch),
                      .w_step = step(k.b_batch),
                      .y_step = step(k.c_batch),
                      .bias_step = k.bias_step};
  if (!together || k.accumulate || k.a.col != 1 || k.c.col != 1 || k.k % kChunk != 0 ||
      k.a.row % 4 != 0 || w_row % 4 != 0 || p.x_step % 4 != 0 || p.w_step % 4 != 0 ||
      !aligned(p.x) || !aligned(p.w) || items > 65535 || ceil_div(k.m, 16) > 65535)
    return false;
  const auto stream = stream_of(device);
  transposed ? launch<true>(stream, items, p) : launch<false>(stream, items, p);
  launched("rows of a product");
  return true;
}

}  // namespace heed::kernels
