#include "heed/nn/layers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

namespace heed {

Linear::Linear(const Params& params, int64_t in, int64_t out, Bias bias)
    : weight_(params.add("weight", {in, out}, glorot())) {
  if (bias == Bias::yes) bias_ = params.add("bias", {out}, constant(0));
}

Tensor Linear::operator()(const Tensor& x, Activation f) const {
  return linear(x, weight(), bias(), f);
}

std::optional<Tensor> Linear::bias() const {
  return bias_ ? std::optional(compute_copy(*bias_)) : std::nullopt;
}

Embedding::Embedding(const Params& params, int64_t vocabulary, int64_t size)
    : table_(params.add("table", {vocabulary, size},
                        normal_values(1 / std::sqrt(static_cast<double>(size))))) {}

LayerNorm::LayerNorm(const Params& params, int64_t size)
    : gain_(params.add("gain", {size}, constant(1))),
      bias_(params.add("bias", {size}, constant(0))) {}

RmsNorm::RmsNorm(const Params& params, int64_t size)
    : gain_(params.add("gain", {size}, constant(1))) {}

FeedForward::FeedForward(const Params& params, int64_t size, int64_t inner, double dropout,
                         Activation f)
    : inner_(params / "inner", size, inner),
      outer_(params / "outer", inner, size),
      dropout_(dropout),
      activation_(f) {}

Tensor sinusoidal_positions(int64_t length, int64_t size, int64_t first, Type type) {
  require(size % 2 == 0, "sinusoidal_positions: wants an even size, given ", size);
  // Of each size the rows so far: sines took a host longer than all else it does for a small step.
  static std::mutex mutex;
  static std::map<int64_t, std::vector<double>> tables;
  const std::lock_guard lock(mutex);
  std::vector<double>& table = tables[size];
  const int64_t half = size / 2, known = std::ssize(table) / std::max<int64_t>(size, 1);
  table.resize(static_cast<size_t>(std::max(known, first + length) * size));
  for (int64_t t = known; t < first + length; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(10000.0, -2.0 * double(i) / double(size));
      table[static_cast<size_t>(t * size + i)] = std::sin(angle);
      table[static_cast<size_t>(t * size + half + i)] = std::cos(angle);
    }
  const auto rows = std::span(table).subspan(static_cast<size_t>(first * size),
                                             static_cast<size_t>(length * size));
  return tensor(rows, {length, size}, type);
}

}  // namespace heed
