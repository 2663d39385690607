// The pointwise part of recurrent cells on the CPU: everything of a step that is not a matrix
// product, forward and backward, in one pass. Formulas and gate orders: kernels.h.
#include <algorithm>
#include <vector>

#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/recurrent.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

template <class T>
void apply(const CellStep<T> &k) {
  const int64_t n = k.n;
  parallel_for(k.rows, row_grain(8 * n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *x = k.x + i * k.x_row, *u = k.u + i * k.u_row, *h = k.h + i * k.h_row;
      T *h_new = k.h_new + i * k.h_new_row, *saved = k.gates + i * k.gates_row;
      if (k.live && !k.live[i]) {
        std::copy_n(h, n, h_new);
        if (k.cell == Cell::lstm) std::copy_n(k.c + i * k.c_row, n, k.c_new + i * k.c_new_row);
        std::fill_n(saved, saved_gates(k.cell) * n, T(0));
        continue;
      }
      for_vectors<T>(n, [&](auto load, auto store, int64_t j) {
        const auto in = [&](int gate) {
          return hn::Add(load(x + gate * n + j), load(u + gate * n + j));
        };
        if (k.cell == Cell::rnn) {
          const auto y = tanh_of(in(0));
          store(y, saved + j);
          store(y, h_new + j);
        } else if (k.cell == Cell::gru) {
          const auto r = sigmoid_of<T>(in(0)), z = sigmoid_of<T>(in(1));
          const auto uc = load(u + 2 * n + j);
          const auto c = tanh_of(hn::MulAdd(r, uc, load(x + 2 * n + j)));
          store(r, saved + j);
          store(z, saved + n + j);
          store(c, saved + 2 * n + j);
          store(uc, saved + 3 * n + j);
          store(hn::MulAdd(z, hn::Sub(load(h + j), c), c), h_new + j);
        } else {
          const auto gi = sigmoid_of<T>(in(0)), gf = sigmoid_of<T>(in(1));
          const auto gg = tanh_of(in(2)), go = sigmoid_of<T>(in(3));
          const auto c = hn::MulAdd(gf, load(k.c + i * k.c_row + j), hn::Mul(gi, gg));
          store(gi, saved + j);
          store(gf, saved + n + j);
          store(gg, saved + 2 * n + j);
          store(go, saved + 3 * n + j);
          store(c, k.c_new + i * k.c_new_row + j);
          store(hn::Mul(go, tanh_of(c)), h_new + j);
        }
      });
    }
  });
}

template <class T>
void apply(const CellStepGrad<T> &k) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  const int64_t n = k.n;
  const auto tanh_derivative = [&](Vec<T> y) { return hn::NegMulAdd(y, y, one); };
  const auto sigmoid_derivative = [&](Vec<T> y) { return hn::NegMulAdd(y, y, y); };
  parallel_for(k.rows, row_grain(8 * n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T *saved = k.gates + i * k.gates_row, *dh_new = k.dh_new + i * k.dh_new_row;
      const T *dc_new = k.dc_new ? k.dc_new + i * k.dc_new_row : nullptr;
      T *dx = k.dx + i * k.dx_row, *du = k.du ? k.du + i * k.du_row : nullptr;
      T *dh = k.dh + i * k.dh_row, *dc = k.dc ? k.dc + i * k.dc_row : nullptr;
      if (k.live && !k.live[i]) {
        std::copy_n(dh_new, n, dh);
        if (dc && dc_new) std::copy_n(dc_new, n, dc);
        if (dc && !dc_new) std::fill_n(dc, n, T(0));
        std::fill_n(dx, gate_count(k.cell) * n, T(0));
        if (du) std::fill_n(du, gate_count(k.cell) * n, T(0));
        continue;
      }
      for_vectors<T>(n, [&](auto load, auto store, int64_t j) {
        const auto dy = load(dh_new + j);
        const auto both = [&](Vec<T> g, int gate) {
          store(g, dx + gate * n + j);
          if (du) store(g, du + gate * n + j);
        };
        if (k.cell == Cell::rnn) {
          both(hn::Mul(dy, tanh_derivative(load(saved + j))), 0);
          store(hn::Zero(d), dh + j);
        } else if (k.cell == Cell::gru) {
          const auto r = load(saved + j), z = load(saved + n + j), c = load(saved + 2 * n + j);
          const auto h = load(k.h + i * k.h_row + j);
          const auto da = hn::Mul(hn::Mul(dy, hn::Sub(one, z)), tanh_derivative(c));  // candidate's
          both(hn::Mul(hn::Mul(da, load(saved + 3 * n + j)), sigmoid_derivative(r)), 0);
          both(hn::Mul(hn::Mul(dy, hn::Sub(h, c)), sigmoid_derivative(z)), 1);
          store(da, dx + 2 * n + j);
          store(hn::Mul(da, r), du + 2 * n + j);
          store(hn::Mul(dy, z), dh + j);
        } else {
          const auto gi = load(saved + j), gf = load(saved + n + j), gg = load(saved + 2 * n + j),
                     go = load(saved + 3 * n + j);
          const auto tc = tanh_of(load(k.c_new + i * k.c_new_row + j));
          auto dcell = hn::Mul(hn::Mul(dy, go), tanh_derivative(tc));
          if (dc_new) dcell = hn::Add(dcell, load(dc_new + j));
          both(hn::Mul(hn::Mul(dcell, gg), sigmoid_derivative(gi)), 0);
          both(hn::Mul(hn::Mul(dcell, load(k.c + i * k.c_row + j)), sigmoid_derivative(gf)), 1);
          both(hn::Mul(hn::Mul(dcell, gi), tanh_derivative(gg)), 2);
          both(hn::Mul(hn::Mul(dy, tc), sigmoid_derivative(go)), 3);
          store(hn::Mul(dcell, gf), dc + j);
          store(hn::Zero(d), dh + j);
        }
      });
    }
  });
}

HEED_KERNEL_BODIES(CellStep)
HEED_KERNEL_BODIES(CellStepGrad)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(CellStep)
HEED_KERNEL_RUN(CellStepGrad)

}  // namespace heed::kernels
#endif
