// Alignment models of one direction, for one sentence pair: each word of the one side, a step l,
// was made by a word of the other, its state k, or by the empty word.
//
// Model 1 (Brown et al., 1993): all states are alike,
//   p(k | l) = t(f_l | e_k) / sum of t(f_l | e_k') over all k'.
// This is attention whose scores are fixed for two words, without any context.
//
// The HMM (Vogel et al., 1996): a state depends on how far it is from the last one,
//   p(f, a) = product over l of p(a_l - a_l-1) t(f_l | e_a_l),
// which is attention by place as well. The empty word keeps the last place (Och and Ney, 2003).
// Posteriors are exact, by the forward and the backward pass.
//
// Fertility: how many steps a state has made, phi_k, has a distribution for each word, which no
// chain can keep. It comes in as a factor for each step and state, the mean of
// p(phi + 1) / p(phi) over what the other steps make of phi (a mean-field step), with which the
// chain runs again.
//
// Threads: an object serves one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace heed {

// Weights of jumps from -kLongestJump to kLongestJump; one before the first word is the start, one
// after the last is the end.
inline constexpr int kLongestJump = 2052;
inline constexpr size_t kJumps = 2 * kLongestJump + 1;

struct JumpWeights {
  JumpWeights();  // before anything is known: one word forward is best, near is better than far
  // From counts, with half a count more for each.
  explicit JumpWeights(std::span<const double> counts);

  // by[jump] for a jump; back[-jump], the same weights in the other order, so that both passes read
  // forward.
  const float* by() const { return forward_.data() + kLongestJump; }
  const float* back() const { return backward_.data() + kLongestJump; }

 private:
  std::vector<float> forward_, backward_;
};

// How many words one word makes: for 0 to kFertilities - 2 each, and more.
inline constexpr size_t kFertilities = 8;
using Fertility = std::array<float, kFertilities>;  // p(phi)

class ChainAligner {
 public:
  // What is given: t(f_l | e_k) by [step, state], and of the empty word by [step].
  void start(uint32_t steps, uint32_t states);
  float* translation() { return translation_.data(); }  // [L, K]
  float* empty() { return empty_.data(); }              // [L]

  void model1();
  // Adds the expected number of each jump to `jumps`, kJumps of them, if there are any.
  void hmm(const JumpWeights& weights, std::span<double> jumps);
  // After hmm(): multiplies translation() by the factors of fertilities, one of each state.
  void apply_fertility(std::span<const Fertility> of_state);

  // What is found: how probable it is that state k made step l; where these do not sum to one over
  // the states, the empty word made it.
  const float* posterior() const { return posterior_.data(); }              // [L, K]
  const float* empty_posterior() const { return empty_posterior_.data(); }  // [L]

 private:
  void forward(const JumpWeights& weights);
  void backward(const JumpWeights& weights, std::span<double> jumps);
  void count_jumps(const JumpWeights& weights, std::span<double> jumps) const;

  uint32_t steps_ = 0, states_ = 0;
  std::vector<float> translation_, empty_, posterior_, empty_posterior_;
  // Passes. `at_` is the mass that was last in a state, also while the empty word made steps;
  // `before_` that which has not been in any.
  std::vector<float> inverse_sum_;  // of the weights from each state, [K]
  float inverse_sum_of_start_ = 0;
  std::vector<float> made_, at_, rest_;                // [L + 1, K]
  std::vector<float> before_, rest_before_, scale_;    // [L + 1]
  std::vector<float> moves_, moves_from_start_, sum_;  // [K, K], [K], [K]
};

}  // namespace heed
