// The backward pass of a decoder's steps with additive attention, in two parts (kernels.h, StepGrad
// and StepsGrad): a step reads keys and values and gives dq; dk, dvalue and dv are computed once
// for all steps (deferred gradients). A step that added to dk and dvalue would read and write twice
// what it reads now.
#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/kernels/cpu/scratch.h"
#include "heed/kernels/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/additive_step.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, as Highway wants it.
#include "heed/kernels/cpu/additive-inl.h"

#ifndef HEED_KERNELS_CPU_ADDITIVE_STEP_ONCE
#define HEED_KERNELS_CPU_ADDITIVE_STEP_ONCE
namespace heed::kernels {

constexpr int64_t kStepKeys = 256;  // keys of a tile
constexpr int64_t kStepRows = 64;   // steps of a tile, on the way to the keys

}  // namespace heed::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::kernels::HWY_NAMESPACE {

// One sentence and head: weights w_j = exp(score_j - lse), recomputed, d score_j = w_j (g . value_j
// - g . context), and dq = sum_j d score_j v (1 - tanh^2).
template <class T>
void step_back(const StepGrad<T>& k, int64_t b, int64_t h) {
  const Attention<T>& a = k.forward;
  const Tag<T> d;
  const int64_t width = additive_width<T>(a.size), number = b * a.heads + h;
  T* const q = scratch<Scratch::attention_block, T>(2 * width + kStepKeys +
                                                      AdditiveTile<T>::count(width, 1, kStepKeys));
  T *const dq = q + width, *const score = dq + width;
  AdditiveTile<T> tile(score + kStepKeys, a.size, width, 1, kStepKeys);
  std::copy_n(a.q.at(b, h, 0), a.size, q);
  std::fill(q + a.size, q + width, T(0));
  std::fill_n(dq, width, T(0));
  tile.take_queries(1, q, a.v + h * a.size);
  int64_t begin = 0, end = a.keys;
  if (a.range) {
    const Id* range = a.range + b * a.range_batch + h * a.range_head;
    begin = std::max<int64_t>(0, range[0]), end = std::min<int64_t>(a.keys, range[1]);
  }
  T *const dscores = k.saved + number * a.keys, *const weights =
                                                    dscores + a.batch * a.heads * a.keys;
  std::fill_n(dscores, a.keys, T(0));
  std::fill_n(weights, a.keys, T(0));
  const T* const g = k.dcontext.at(b, h, 0);
  const auto dot = [&](const T* x) {
    return sum_range<T>(
        a.value_size, [](Vec<T> u, Vec<T> w) { return hn::Mul(u, w); }, g, x);
  };
  const T mean = begin < end ? dot(a.context.at(b, h, 0)) : T(0), lse = a.lse[number];
  for (int64_t key = begin; key < end && lse != -std::numeric_limits<T>::infinity();
       key += kStepKeys) {
    const int64_t count = std::min(kStepKeys, end - key);
    const T* const keys = a.k.at(b, h, key);
    if (a.powers)
      tile.take_powers(a.powers + number * key_powers_size(a.keys, a.size), a.keys, key, count);
    else
      tile.take_keys(count, keys, a.k.row);
    tile.scores({0, 1}, count, q, keys, a.k.row, score, kStepKeys);
    const auto from = hn::Set(d, lse);
    map_range<T>(
        0, count, [&](Vec<T> x) { return exp2_of_negative(hn::Sub(x, from)); }, weights + key,
        static_cast<const T*>(score));
    for (int64_t j = key; j < key + count; ++j)
      dscores[j] = weights[j] == 0 ? T(0) : weights[j] * (dot(a.value.at(b, h, j)) - mean);
    tile.query_gradient(count, dscores + key, q, keys, a.k.row, dq);
  }
  map_range<T>(
      0, a.size, [&](Vec<T> x, Vec<T> v) { return hn::Mul(hn::Mul(hn::Set(d, T(4)), v), x); },
      k.dq.at(b, h, 0), static_cast<const T*>(dq), a.v + h * a.size);
}

template <class T>
void apply(const KeyPowers<T>& k) {
  parallel_for(k.batch * k.heads, 1, [&](int64_t i, int64_t) {
    AdditiveTile<T>::write_powers(k.keys, k.size, k.k.at(i / k.heads, i % k.heads, 0), k.k.row,
                                  k.powers + i * key_powers_size(k.keys, k.size));
  });
}

template <class T>
void apply(const StepGrad<T>& k) {
  const Attention<T>& a = k.forward;
  parallel_for(a.batch * a.heads, 1,
               [&](int64_t i, int64_t) { step_back(k, i / a.heads, i % a.heads); });
}

// dk of one sentence and head, and what it adds to dv.
template <class T>
void keys_back(const StepsGrad<T>& k, int64_t b, int64_t h, T* dv) {
  const int64_t width = additive_width<T>(k.size);
  T* const q =
      scratch<Scratch::attention_block, T>((2 * kStepRows + kStepKeys + 1) * width +
                                             AdditiveTile<T>::count(width, kStepRows, kStepKeys));
  T *const dq = q + kStepRows * width, *const dk = dq + kStepRows * width,
           *const sum = dk + kStepKeys * width;
  AdditiveTile<T> tile(sum + width, k.size, width, kStepRows, kStepKeys);
  std::fill_n(sum, width, T(0));
  const T* const dscores = k.saved + (b * k.heads + h) * k.steps * k.keys;
  for (int64_t key = 0; key < k.keys; key += kStepKeys) {
    const int64_t count = std::min(kStepKeys, k.keys - key);
    std::fill_n(dk, count * width, T(0));
    tile.take_keys(count, k.k.at(b, h, key), k.k.row);
    for (int64_t t = 0; t < k.steps; t += kStepRows) {
      const int64_t rows = std::min(kStepRows, k.steps - t);
      int64_t begin[kStepRows], end[kStepRows];
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(k.q.at(b, h, t + r), k.size, q + r * width);
        std::fill(q + r * width + k.size, q + (r + 1) * width, T(0));
        // What a step does not see has d score 0.
        const T* dscore = dscores + (t + r) * k.keys + key;
        begin[r] = 0, end[r] = count;
        while (begin[r] < end[r] && dscore[begin[r]] == 0) ++begin[r];
        while (begin[r] < end[r] && dscore[end[r] - 1] == 0) --end[r];
      }
      std::fill_n(dq, rows * width, T(0));  // the steps have theirs
      tile.take_queries(rows, q, k.v + h * k.size);
      tile.gradient(rows, count, dscores + t * k.keys + key, k.keys, {begin, end, 0},
                    {q, k.k.at(b, h, key), k.k.row}, {dq, dk, sum});
    }
    for (int64_t j = 0; j < count; ++j) {
      T* to = k.dk.at(b, h, key + j);
      if (k.add)
        map_range<T>(
            0, k.size, [](Vec<T> x, Vec<T> old) { return hn::Add(x, old); }, to,
            static_cast<const T*>(dk + j * width), static_cast<const T*>(to));
      else
        std::copy_n(dk + j * width, k.size, to);
    }
  }
  std::copy_n(sum, k.size, dv);
}

template <class T>
void apply(const StepsGrad<T>& k) {
  // dvalue = weights^T dcontext for each sentence and head.
  run(Cpu{}, Matmul<T>{.m = k.keys,
                       .n = k.value_size,
                       .k = k.steps,
                       .a = {k.saved + k.batch * k.heads * k.steps * k.keys, 1, k.keys},
                       .b = {k.dcontext.data, k.dcontext.row, 1},
                       .c = {k.dvalue.data, k.dvalue.row},
                       .accumulate = k.add,
                       .outer = k.batch,
                       .inner = k.heads,
                       .a_batch = {k.heads * k.steps * k.keys, k.steps * k.keys},
                       .b_batch = {k.dcontext.batch, k.dcontext.head},
                       .c_batch = {k.dvalue.batch, k.dvalue.head}});
  T* const parts = scratch<Scratch::attention_whole, T>(k.batch * k.heads * k.size);
  parallel_for(k.batch * k.heads, 1, [&](int64_t i, int64_t) {
    keys_back(k, i / k.heads, i % k.heads, parts + i * k.size);
  });
  std::copy_n(parts, k.heads * k.size, k.dv);
  for (int64_t b = 1; b < k.batch; ++b)
    map_range<T>(
        0, k.heads * k.size, [](Vec<T> x, Vec<T> sum) { return hn::Add(x, sum); }, k.dv,
        static_cast<const T*>(parts + b * k.heads * k.size), static_cast<const T*>(k.dv));
}

HEED_KERNEL_BODIES(KeyPowers)
HEED_KERNEL_BODIES(StepGrad)
HEED_KERNEL_BODIES(StepsGrad)

}  // namespace heed::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::kernels {

HEED_KERNEL_RUN(KeyPowers)
HEED_KERNEL_RUN(StepGrad)
HEED_KERNEL_RUN(StepsGrad)

// The widest panel of any instruction set: two vectors of 16.
int64_t key_powers_size(int64_t keys, int64_t size) {
  return keys * (chunk_count(size, 32) * 32 + 17);
}

}  // namespace heed::kernels
#endif
