#include "heed/training/report.h"

#include "heed/tensor/cuda.h"

namespace heed {

StepReport::Ticket StepReport::take(const Tensor& losses, const Tensor& squares) {
  const int64_t n = losses.count();
  if (losses.device() == Device::cpu) {
    const float* first = losses.data<float>();
    return {.count = n, .known = {{first, first + n}, squares.item()}};
  }
  return {.losses = read_later(losses.raw(), static_cast<size_t>(n) * sizeof(float)),
          .squares = read_later(squares.raw(), sizeof(double)),
          .count = n};
}

StepReport::Values StepReport::read(const Ticket& t) {
  if (!t.known.losses.empty()) return t.known;
  Values out{.losses = std::vector<float>(static_cast<size_t>(t.count))};
  read_now(t.losses, out.losses.data(), out.losses.size() * sizeof(float));
  read_now(t.squares, &out.squares, sizeof out.squares);
  return out;
}

}  // namespace heed
