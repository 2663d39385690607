#include "heed/kernels/cuda/launch.cuh"
#include "heed/kernels/cuda/rows_product.cuh"

#include "heed/kernels/cuda/rows_product.h"

namespace heed::kernels {
namespace {

// Slices of a sum of so many chunks: by their number alone.
int slices_of(int chunks) {
  for (const int slices : {8, 4, 2})
    if (chunks % slices == 0) return slices;
  return 1;
}

struct Sizes {
  int64_t items, rows, n;
  int slices, chunks_of_slice;

  dim3 grid(int m, int columns) const {
    return {static_cast<unsigned>(ceil_div(n, columns)), static_cast<unsigned>(ceil_div(rows, m)),
            static_cast<unsigned>(items)};
  }
  int64_t blocks(int m, int columns) const {
    return ceil_div(n, columns) * ceil_div(rows, m) * items;
  }
};

template <int kMi, int kNi, Reads kReads>
void few(Cuda device, const Sizes& s, const RowsProduct<>& p) {
  using Tile = FewRows<kMi, kNi, kReads>;
  const auto kernel = few_rows<kMi, kNi, kReads>;
  const int stages = Tile::stages(s.slices, s.chunks_of_slice, capabilities().shared);
  launch_kernel(device, kernel, s.grid(Tile::kM, Tile::kN), s.slices * kWarp,
                static_cast<size_t>(s.slices * stages) * Tile::kBytes, p, s.chunks_of_slice,
                stages);
}
template <Reads kReads>
void many(Cuda device, const Sizes& s, const RowsProduct<>& p) {
  using Tile = ManyRows<kReads>;
  const auto kernel = many_rows<kReads>;
  launch_kernel(device, kernel, s.grid(Tile::kM, Tile::kN), Tile::kThreads, Tile::kShared, p,
                s.slices, s.chunks_of_slice);
}

// The smallest tiles, which read x and w most often, as long as all of them run at once.
template <Reads kReads>
void by_fours(Cuda device, const Sizes& s, const RowsProduct<>& p) {
  const int64_t most = multiprocessors() * 3 / 2;
  if (s.blocks(16, 8) <= most)
    few<1, 1, kReads>(device, s, p);
  else if (s.blocks(16, 16) <= most)
    few<1, 2, kReads>(device, s, p);
  else if (s.blocks(32, 16) <= most)
    few<2, 2, kReads>(device, s, p);
  else if (s.blocks(32, 32) <= most)
    few<2, 4, kReads>(device, s, p);
  else
    many<kReads>(device, s, p);
}

bool by_fours(const float* data, int64_t lead, ItemStep step) {
  return aligned(data, 16) && lead % 4 == 0 && step.outer % 4 == 0 && step.inner % 4 == 0;
}
ItemStep step_of(const BatchStride& s) { return {s.outer, s.inner}; }

}  // namespace

void rows_product(Cuda device, const Matmul<float>& k) {
  const RowsProduct<> p{.rows = k.m,
                        .n = k.n,
                        .k = k.k,
                        .x = k.a.data,
                        .x_row = k.a.row,
                        .x_col = k.a.col,
                        .w = k.b.data,
                        .w_row = k.b.row,
                        .w_col = k.b.col,
                        .y = k.c.data,
                        .y_row = k.c.row,
                        .bias = k.bias,
                        .relu = k.activation == Activation::relu,
                        .accumulate = k.accumulate,
                        .inner = k.inner,
                        .x_step = step_of(k.a_batch),
                        .w_step = step_of(k.b_batch),
                        .y_step = step_of(k.c_batch),
                        .bias_step = k.bias_step};
  const auto chunks = static_cast<int>(ceil_div(k.k, kChunk));
  const int slices = slices_of(chunks);
  const Sizes sizes{k.outer * k.inner, k.m, k.n, slices, chunks / slices};
  require(sizes.items <= 65535 && ceil_div(k.m, 16) <= 65535, "matrix product: a batch of ",
          sizes.items, " with ", k.m,
          " rows is more than a launch takes; a smaller --batch is not");
  const bool rows_by_fours = k.k % 4 == 0 && p.x_col == 1 && by_fours(p.x, p.x_row, p.x_step);
  if (device.state->exact_products)
    many<Reads::exactly>(device, sizes, p);
  else if (rows_by_fours && p.w_row == 1 && by_fours(p.w, p.w_col, p.w_step))
    by_fours<Reads::by_columns>(device, sizes, p);
  else if (rows_by_fours && p.w_col == 1 && k.n % 4 == 0 && by_fours(p.w, p.w_row, p.w_step))
    by_fours<Reads::by_rows>(device, sizes, p);
  else
    many<Reads::singly>(device, sizes, p);
}

}  // namespace heed::kernels
