#include "heed/search/reweigh.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heed/base/check.h"

namespace heed {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

}  // namespace

std::vector<float> reweighed(std::span<const float> scores, const Reweigh& how) {
  std::vector<float> out(scores.begin(), scores.end());
  const auto is_token = [&](Id w) { return w >= 0 && w < std::ssize(out); };
  if (how.repetition_penalty != 1)
    for (const Id w : how.said) {  // once, however often it was said
      const float x = scores[static_cast<size_t>(w)];
      out[static_cast<size_t>(w)] = static_cast<float>(x < 0 ? double(x) * how.repetition_penalty
                                                             : double(x) / how.repetition_penalty);
    }
  if (!how.only.empty()) {
    std::vector<float> kept(out.size(), kNever);
    for (const Id w : how.only) kept[static_cast<size_t>(w)] = out[static_cast<size_t>(w)];
    out = std::move(kept);
  }
  for (const Id w : how.forbidden)
    if (is_token(w)) out[static_cast<size_t>(w)] = kNever;
  const float top = *std::max_element(out.begin(), out.end());
  if (top == kNever) return out;
  double sum = 0;
  for (const float x : out) sum += std::exp(double(x) - double(top));
  const double normalizer = double(top) + std::log(sum);
  for (float& x : out) x = static_cast<float>(double(x) - normalizer);
  if (!how.towards) return out;
  const double rest = std::log1p(-how.bias);
  for (float& x : out) x = static_cast<float>(double(x) + rest);
  float& favoured = out[static_cast<size_t>(*how.towards)];
  favoured = static_cast<float>(std::log(std::exp(double(favoured)) + how.bias));
  return out;
}

}  // namespace heed
