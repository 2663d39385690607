#include "heed/alignment/hmm.h"

#include <algorithm>
#include <cmath>

#include "heed/base/check.h"

namespace heed {
namespace {

constexpr float kEmpty = 0.05f;   // how probable the empty word is, before anything is seen
constexpr float kTiny = 1e-30f;   // no scale is larger than one over this
constexpr float kNoMass = 1e-9f;  // what less than this would add is left out
constexpr double kJumpPrior = 0.5;

// y += a x. All of both passes is in this form, which compilers make SIMD of without changing the
// order of any sum.
void add_scaled(float* y, float a, const float* x, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) y[i] += a * x[i];
}

}  // namespace

JumpWeights::JumpWeights() : forward_(kJumps), backward_(kJumps) {
  for (int jump = -kLongestJump; jump <= kLongestJump; ++jump) {
    const float weight = std::exp(-0.2f * std::abs(static_cast<float>(jump - 1))) + 1e-4f;
    forward_[static_cast<size_t>(kLongestJump + jump)] = weight;
    backward_[static_cast<size_t>(kLongestJump - jump)] = weight;
  }
}

JumpWeights::JumpWeights(std::span<const double> counts) : forward_(kJumps), backward_(kJumps) {
  HEED_ASSERT(counts.size() == kJumps);
  double sum = 0;
  for (const double count : counts) sum += count;
  for (size_t i = 0; i < kJumps; ++i) {
    const auto weight = static_cast<float>((counts[i] + kJumpPrior) / (sum + 100 * kJumpPrior));
    forward_[i] = backward_[kJumps - 1 - i] = weight;
  }
}

void ChainAligner::start(uint32_t steps, uint32_t states) {
  steps_ = steps, states_ = states;
  const size_t cells = size_t{steps} * states;
  translation_.resize(cells);
  posterior_.resize(cells);
  empty_.resize(steps);
  empty_posterior_.resize(steps);
}

void ChainAligner::model1() {
  const float share = (1 - kEmpty) / static_cast<float>(states_);
  for (uint32_t l = 0; l < steps_; ++l) {
    const float* t = &translation_[size_t{l} * states_];
    float* p = &posterior_[size_t{l} * states_];
    const float none = kEmpty * empty_[l];
    float sum = none;
    for (uint32_t k = 0; k < states_; ++k) sum += p[k] = share * t[k];
    const float scale = 1 / std::max(sum, kTiny);
    for (uint32_t k = 0; k < states_; ++k) p[k] *= scale;
    empty_posterior_[l] = none * scale;
  }
}

void ChainAligner::hmm(const JumpWeights& weights, std::span<double> jumps) {
  const float* w = weights.by();
  const auto K = static_cast<int>(states_);
  inverse_sum_.resize(states_);
  // Weights are normalized over where one can go: any state, or the end.
  for (int k = 0; k < K; ++k) {
    float sum = 0;
    for (int to = -k; to <= K - k; ++to) sum += w[to];
    inverse_sum_[static_cast<size_t>(k)] = 1 / sum;
  }
  float sum = 0;
  for (int to = 1; to <= K; ++to) sum += w[to];
  inverse_sum_of_start_ = 1 / sum;
  forward(weights);
  backward(weights, jumps);
  if (!jumps.empty()) count_jumps(weights, jumps);
}

void ChainAligner::forward(const JumpWeights& weights) {
  const uint32_t K = states_;
  const float* w = weights.by();
  made_.resize((size_t{steps_} + 1) * K);
  at_.resize(made_.size());
  before_.assign(steps_ + 1, 0);
  scale_.assign(steps_ + 1, 1);
  std::fill_n(at_.begin(), K, 0.f);
  before_[0] = 1;
  for (uint32_t l = 0; l < steps_; ++l) {
    const float* last = &at_[size_t{l} * K];
    float* made = &made_[(size_t{l} + 1) * K];
    float* at = &at_[(size_t{l} + 1) * K];
    sum_.assign(K, 0);
    for (uint32_t k = 0; k < K; ++k)
      if (const float mass = last[k] * inverse_sum_[k]; mass > kNoMass)
        add_scaled(sum_.data(), mass, w - k, K);
    if (before_[l] > 0) add_scaled(sum_.data(), before_[l] * inverse_sum_of_start_, w + 1, K);
    const float* t = &translation_[size_t{l} * K];
    const float none = kEmpty * empty_[l];
    for (uint32_t k = 0; k < K; ++k) {
      made[k] = sum_[k] * t[k] * (1 - kEmpty);
      at[k] = made[k] + none * last[k];
    }
    before_[l + 1] = none * before_[l];
    float total = before_[l + 1];
    for (uint32_t k = 0; k < K; ++k) total += at[k];
    const float scale = 1 / std::max(total, kTiny);
    for (uint32_t k = 0; k < K; ++k) made[k] *= scale, at[k] *= scale;
    before_[l + 1] *= scale;
    scale_[l + 1] = scale;
  }
}

void ChainAligner::backward(const JumpWeights& weights, std::span<double> jumps) {
  const uint32_t K = states_, L = steps_;
  const float *w = weights.by(), *back = weights.back();
  rest_.resize((size_t{L} + 1) * K);
  rest_before_.assign(L + 1, 0);
  // The last jump is to the end.
  float* rest = &rest_[size_t{L} * K];
  float total = w[K + 1] * inverse_sum_of_start_ * before_[L];
  for (uint32_t k = 0; k < K; ++k) {
    rest[k] = w[K - k] * inverse_sum_[k];
    total += at_[size_t{L} * K + k] * rest[k];
  }
  const float scale = 1 / std::max(total, kTiny);
  for (uint32_t k = 0; k < K; ++k) rest[k] *= scale;
  rest_before_[L] = w[K + 1] * inverse_sum_of_start_ * scale;
  if (!jumps.empty()) {
    for (uint32_t k = 0; k < K; ++k)
      jumps[kLongestJump + K - k] += double(at_[size_t{L} * K + k] * rest[k]);
    moves_.assign(size_t{K} * K, 0);
    moves_from_start_.assign(K, 0);
  }
  std::vector<float>& here = sum_;  // of each state, that it makes this step, and all after it
  for (uint32_t l = L; l-- > 0;) {
    const float* next = &rest_[(size_t{l} + 1) * K];
    const float* t = &translation_[size_t{l} * K];
    const float* made = &made_[(size_t{l} + 1) * K];
    const float* last = &at_[size_t{l} * K];
    float* p = &posterior_[size_t{l} * K];
    const float scaled = (1 - kEmpty) * scale_[l + 1];
    const float none = kEmpty * empty_[l] * scale_[l + 1];
    here.resize(K);
    for (uint32_t k = 0; k < K; ++k) {
      here[k] = t[k] * next[k] * scaled;
      p[k] = made[k] * next[k];
    }
    rest = &rest_[size_t{l} * K];
    std::fill_n(rest, K, 0.f);
    float from_start = 0, nobody = before_[l] * rest_before_[l + 1];
    for (uint32_t q = 0; q < K; ++q) {
      if (here[q] > kNoMass) add_scaled(rest, here[q], back - q, K);
      from_start += here[q] * w[q + 1];
    }
    for (uint32_t k = 0; k < K; ++k) {
      rest[k] = rest[k] * inverse_sum_[k] + none * next[k];
      nobody += last[k] * next[k];
    }
    rest_before_[l] = from_start * inverse_sum_of_start_ + none * rest_before_[l + 1];
    empty_posterior_[l] = nobody * none;
    if (jumps.empty()) continue;
    for (uint32_t k = 0; k < K; ++k)
      if (const float mass = last[k] * inverse_sum_[k]; mass > 1e-6f)
        add_scaled(&moves_[size_t{k} * K], mass, here.data(), K);
    if (const float mass = before_[l] * inverse_sum_of_start_; mass > 1e-6f)
      add_scaled(moves_from_start_.data(), mass, here.data(), K);
  }
}

void ChainAligner::count_jumps(const JumpWeights& weights, std::span<double> jumps) const {
  const auto K = static_cast<int>(states_);
  double* count = jumps.data() + kLongestJump;
  for (int k = 0; k < K; ++k)
    for (int q = 0; q < K; ++q)
      count[q - k] += double(moves_[static_cast<size_t>(k * K + q)] * weights.by()[q - k]);
  for (int q = 0; q < K; ++q)
    count[q + 1] += double(moves_from_start_[static_cast<size_t>(q)] * weights.by()[q + 1]);
}

void ChainAligner::apply_fertility(std::span<const Fertility> of_state) {
  HEED_ASSERT(of_state.size() == states_);
  for (uint32_t k = 0; k < states_; ++k) {
    const Fertility& p = of_state[k];
    float mean = 0;
    for (uint32_t l = 0; l < steps_; ++l) mean += posterior_[size_t{l} * states_ + k];
    for (uint32_t l = 0; l < steps_; ++l) {
      const size_t at = size_t{l} * states_ + k;
      // What the other steps make of phi, as a Poisson distribution of their mean.
      const float others = std::max(0.f, mean - posterior_[at]);
      float probability = 1, more = 0, same = 0;
      for (size_t phi = 0; phi + 1 < kFertilities; ++phi) {
        more += probability * p[phi + 1];
        same += probability * p[phi];
        probability *= others / static_cast<float>(phi + 1);
      }
      translation_[at] *= more / same;
    }
  }
}

}  // namespace heed
