// The pointwise part of recurrent cells on a GPU: everything of a step that is not a matrix
// product, forward and backward, each one launch, one thread for each element of the state.
// Formulas and gate orders: kernels.h.
#include "heed/kernels/cuda/device.cuh"

namespace heed::kernels {
namespace {

constexpr int kThreads = 128;

// The row and the column of this thread; false after the end of the row.
__device__ bool index(int64_t n, int64_t& i, int64_t& j) {
  const int64_t tiles = (n + kThreads - 1) / kThreads;
  i = blockIdx.x / tiles;
  j = blockIdx.x % tiles * kThreads + threadIdx.x;
  return j < n;
}
unsigned blocks(int64_t rows, int64_t n) {
  return static_cast<unsigned>(rows * ceil_div(n, kThreads));
}

template <Cell cell>
__global__ void __launch_bounds__(kThreads) step(const __grid_constant__ CellStep<float> k) {
  int64_t i, j;
  const int64_t n = k.n;
  if (!index(n, i, j)) return;
  const float *x = k.x + i * k.x_row + j, *u = k.u + i * k.u_row + j, *h = k.h + i * k.h_row + j;
  float *h_new = k.h_new + i * k.h_new_row + j, *saved = k.gates + i * k.gates_row + j;
  if (k.live && !k.live[i]) {
    *h_new = *h;
    if constexpr (cell == Cell::lstm) k.c_new[i * k.c_new_row + j] = k.c[i * k.c_row + j];
    constexpr int kSaved = saved_gates(cell);
    for (int gate = 0; gate < kSaved; ++gate) saved[gate * n] = 0;
    return;
  }
  if constexpr (cell == Cell::rnn) {
    *saved = *h_new = tanhf(*x + *u);
  } else if constexpr (cell == Cell::gru) {
    const float before = *h, uc = u[2 * n], xc = x[2 * n];
    const float r = sigmoid(x[0] + u[0]), z = sigmoid(x[n] + u[n]);
    const float c = tanhf(fmaf(r, uc, xc));
    saved[0] = r;
    saved[n] = z;
    saved[2 * n] = c;
    saved[3 * n] = uc;
    *h_new = fmaf(z, before - c, c);
  } else {
    const float before = k.c[i * k.c_row + j];
    const float gi = sigmoid(x[0] + u[0]), gf = sigmoid(x[n] + u[n]);
    const float gg = tanhf(x[2 * n] + u[2 * n]), go = sigmoid(x[3 * n] + u[3 * n]);
    const float c = fmaf(gf, before, gi * gg);
    saved[0] = gi;
    saved[n] = gf;
    saved[2 * n] = gg;
    saved[3 * n] = go;
    k.c_new[i * k.c_new_row + j] = c;
    *h_new = go * tanhf(c);
  }
}

__device__ float tanh_derivative(float y) { return fmaf(-y, y, 1.0f); }
__device__ float sigmoid_derivative(float y) { return fmaf(-y, y, y); }

template <Cell cell>
__global__ void __launch_bounds__(kThreads)
    step_grad(const __grid_constant__ CellStepGrad<float> k) {
  int64_t i, j;
  const int64_t n = k.n;
  if (!index(n, i, j)) return;
  const float* saved = k.gates + i * k.gates_row + j;
  const float dy = k.dh_new[i * k.dh_new_row + j];
  const float dc_new = k.dc_new ? k.dc_new[i * k.dc_new_row + j] : 0;
  float *dx = k.dx + i * k.dx_row + j, *du = k.du ? k.du + i * k.du_row + j : nullptr;
  float *dh = k.dh + i * k.dh_row + j, *dc = k.dc ? k.dc + i * k.dc_row + j : nullptr;
  const auto both = [&](float g, int gate) {
    dx[gate * n] = g;
    if (du) du[gate * n] = g;
  };
  if (k.live && !k.live[i]) {
    *dh = dy;
    if (dc) *dc = dc_new;
    constexpr int kGates = gate_count(cell);
    for (int gate = 0; gate < kGates; ++gate) both(0, gate);
    return;
  }
  if constexpr (cell == Cell::rnn) {
    both(dy * tanh_derivative(*saved), 0);
    *dh = 0;
  } else if constexpr (cell == Cell::gru) {
    const float r = saved[0], z = saved[n], c = saved[2 * n], uc = saved[3 * n];
    const float h = k.h[i * k.h_row + j];
    const float da = dy * (1 - z) * tanh_derivative(c);  // the candidate's
    both(da * uc * sigmoid_derivative(r), 0);
    both(dy * (h - c) * sigmoid_derivative(z), 1);
    dx[2 * n] = da;
    du[2 * n] = da * r;
    *dh = dy * z;
  } else {
    const float gi = saved[0], gf = saved[n], gg = saved[2 * n], go = saved[3 * n];
    const float before = k.c[i * k.c_row + j], tc = tanhf(k.c_new[i * k.c_new_row + j]);
    const float dcell = dy * go * tanh_derivative(tc) + dc_new;
    both(dcell * gg * sigmoid_derivative(gi), 0);
    both(dcell * before * sigmoid_derivative(gf), 1);
    both(dcell * gi * tanh_derivative(gg), 2);
    both(dy * tc * sigmoid_derivative(go), 3);
    *dc = dcell * gf;
    *dh = 0;
  }
}

}  // namespace

void run(Cuda device, const CellStep<float>& k) {
  if (k.rows == 0 || k.n == 0) return;
  const auto kernel = k.cell == Cell::rnn   ? step<Cell::rnn>
                      : k.cell == Cell::gru ? step<Cell::gru>
                                            : step<Cell::lstm>;
  kernel<<<blocks(k.rows, k.n), kThreads, 0, stream_of(device)>>>(k);
  launched("cell_step");
}

void run(Cuda device, const CellStepGrad<float>& k) {
  if (k.rows == 0 || k.n == 0) return;
  const auto kernel = k.cell == Cell::rnn   ? step_grad<Cell::rnn>
                      : k.cell == Cell::gru ? step_grad<Cell::gru>
                                            : step_grad<Cell::lstm>;
  kernel<<<blocks(k.rows, k.n), kThreads, 0, stream_of(device)>>>(k);
  launched("cell_step_grad");
}

}  // namespace heed::kernels
