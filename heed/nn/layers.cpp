#include "heed/nn/layers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

#include "heed/tensor/cuda.h"
#include "heed/tensor/graph.h"

namespace heed {

Linear::Linear(const Params& params, int64_t in, int64_t out, Bias bias)
    : weight_(params.add("weight", {in, out}, glorot(), Params::Use::product)) {
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
                        normal_values(1 / std::sqrt(static_cast<double>(size))),
                        Params::Use::table)) {}

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

namespace {

// Rows from `first` on.
std::vector<double> sinusoids(int64_t length, int64_t size, int64_t first) {
  const int64_t half = size / 2;
  std::vector<double> rows(static_cast<size_t>(length * size));
  for (int64_t i = 0; i < half; ++i) {
    const double turn = std::pow(10000.0, -2.0 * double(i) / double(size));
    for (int64_t t = 0; t < length; ++t) {
      const double angle = static_cast<double>(first + t) * turn;
      rows[static_cast<size_t>(t * size + i)] = std::sin(angle);
      rows[static_cast<size_t>(t * size + half + i)] = std::cos(angle);
    }
  }
  return rows;
}

}  // namespace

Tensor sinusoidal_positions(int64_t length, int64_t size, int64_t first, Type type) {
  require(size % 2 == 0, "sinusoidal_positions: wants an even size, given ", size);
  return tensor(sinusoids(length, size, first), {length, size}, type);
}

struct SinusoidalPositions::Tables {
  std::mutex mutex;
  std::vector<double> rows;  // so far, for all tables
  // By device, its index and type; earlier ones, which a captured graph may still name, stay.
  std::map<std::array<int64_t, 3>, std::vector<Tensor>> tables;
  std::map<Device, std::shared_ptr<Arena>> arenas;
};

SinusoidalPositions::SinusoidalPositions(int64_t size)
    : size_(size), tables_(std::make_shared<Tables>()) {}

Tensor SinusoidalPositions::table(int64_t rows, Type type) const {
  constexpr int64_t kLeast = 128;
  const Device device = current_arena().device();
  const std::lock_guard lock(tables_->mutex);
  std::vector<Tensor>& all = tables_->tables[{
      static_cast<int64_t>(device), Context::current().index(), static_cast<int64_t>(type)}];
  if (!all.empty() && all.back().size(0) >= rows) return all.back();
  // A captured step names its table, for all positions that its caches have room for: as these, a
  // table's size is a power of two.
  const int64_t wanted =
      std::max(kLeast, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows))));
  const int64_t known = std::ssize(tables_->rows) / size_;
  if (known < wanted) {
    const std::vector<double> more = sinusoids(wanted - known, size_, known);
    tables_->rows.insert(tables_->rows.end(), more.begin(), more.end());
  }
  cannot_be_captured();  // memory that lasts
  auto& arena = tables_->arenas[device];
  if (!arena) arena = Arena::shared(device);
  const UseArena lasting(*arena);
  all.push_back(
      tensor(std::span<const double>(tables_->rows).first(static_cast<size_t>(wanted * size_)),
             {wanted, size_}, type));
  if (device == Device::cuda) cuda_synchronize();  // other contexts read it, too
  return all.back();
}

Tensor SinusoidalPositions::operator()(std::span<const Id> at, const Shape& shape,
                                       Type type) const {
  const int64_t count = std::ssize(at);
  require(shape.count() == count * size_, "sinusoidal positions: ", count, " of them of size ",
          size_, " as ", shape);
  if (count == 0) return zeros(shape, type);
  const int64_t most = *std::ranges::max_element(at) + 1;
  const Tensor rows = table(most, type);
  // The first ones, as of a whole sentence, are a view; where another one begins would be an
  // argument of a kernel, which a captured step may not have.
  bool first = count > 1;
  for (int64_t i = 0; i < count; ++i) first = first && at[static_cast<size_t>(i)] == i;
  if (first) return reshape(slice(rows, 0, 0, count), shape);
  return reshape(embedding(rows, ids(at, {count})), shape);
}

}  // namespace heed
