#include "heed/nn/layers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

#include "heed/ops/bf16.h"
#include "heed/tensor/cuda.h"
#include "heed/tensor/graph.h"

namespace heed {

Linear::Linear(const Params& params, int64_t in, int64_t out, Bias bias)
    : weight_(params.add("weight", {in, out}, glorot(), Params::Use::product)) {
  if (bias == Bias::yes) bias_ = params.add("bias", {out}, constant(0));
}

Tensor Linear::operator()(const Tensor& x, Activation f) const {
  if (!Tape::current()) return linear(x, weight_, bias_, f);
  return linear(x, weight(), bias(), f);
}

std::optional<Tensor> Linear::bias() const {
  return bias_ ? std::optional(compute_copy(*bias_)) : std::nullopt;
}

Embedding::Embedding(const Params& params, int64_t vocabulary, int64_t size)
    : table_(params.add("table", {vocabulary, size},
                        normal_values(1 / std::sqrt(static_cast<double>(size))),
                        Params::Use::table)) {}

LayerNorm::LayerNorm(const Params& params, int64_t size, double epsilon)
    : gain_(params.add("gain", {size}, constant(1))),
      bias_(params.add("bias", {size}, constant(0))),
      epsilon_(epsilon) {}

Normed LayerNorm::of_sum(const Tensor& x, const Tensor& y, double p) const {
  if (epsilon_ == kEpsilon) return add_dropout_norm(x, y, p, gain_, bias_);
  const Tensor sum = add_dropout(x, y, p);
  return {sum, layer_norm(sum, gain_, bias_, epsilon_)};
}

Tensor LayerNorm::rounded(const Tensor& x) const {
  return bf16_layer_norm(x, gain_, bias_, epsilon_);
}
Normed LayerNorm::rounded_of_sum(const Tensor& x, const Tensor& y) const {
  return bf16_add_norm(x, y, gain_, bias_, epsilon_);
}

RmsNorm::RmsNorm(const Params& params, int64_t size)
    : gain_(params.add("gain", {size}, constant(1))) {}

FeedForward::FeedForward(const Params& params, int64_t size, int64_t inner, double dropout,
                         Activation f)
    : inner_(params / "inner", size, inner),
      outer_(params / "outer", inner, size),
      dropout_(dropout),
      activation_(f) {}

namespace {

struct NamedActivation {
  const char* name;
  Activation fused;
  Tensor (*after)(const Tensor&);
};
const NamedActivation kActivations[] = {
    {"relu", Activation::relu, nullptr},
    {"swish", Activation::none, swish},
    {"gelu", Activation::gelu, nullptr},
    {"gelu_erf", Activation::none, gelu_erf},
    {"gelu_sigmoid", Activation::none, [](const Tensor& x) { return x * sigmoid(x * 1.702); }},
    {"tanh", Activation::tanh, nullptr},
    {"sigmoid", Activation::sigmoid, nullptr},
};
const NamedActivation& activation_named(const std::string& name) {
  for (const NamedActivation& row : kActivations)
    if (name == row.name) return row;
  fail(unknown_name("activation", name, feed_forward_names()));
}

}  // namespace

std::vector<std::string> feed_forward_names() {
  std::vector<std::string> names;
  for (const NamedActivation& row : kActivations) names.emplace_back(row.name);
  return names;
}

FeedForward::FeedForward(const Params& params, int64_t size, int64_t inner, double dropout,
                         const std::string& activation)
    : FeedForward(params, size, inner, dropout, activation_named(activation).fused) {
  after_ = activation_named(activation).after;
}

bool FeedForward::multiplies_in_bf16() const {
  const Tensor inner = inner_.weight();
  return inner.device() == Device::cuda && is_bf16_weight(inner) && is_bf16_weight(outer_.weight());
}

Tensor FeedForward::operator()(const Tensor& x) const {
  if (after_) return outer_(dropout(after_(inner_(x)), dropout_));
  // What only another product reads, which would round it as well.
  if (activation_ == Activation::relu && multiplies_in_bf16())
    return outer_(bf16_linear(x, inner_.weight(), inner_.bias(), activation_, Type::bf16));
  return outer_(linear_dropout(x, inner_.weight(), inner_.bias(), activation_, dropout_));
}

// max(x, 0) - |x| Q(|x|), Q being the normal distribution's tail as Abramowitz and Stegun have it
// (7.1.26): off by 7.5e-8 at most.
Tensor gelu_erf(const Tensor& x) {
  const Tensor a = abs(x), t = 1.0 / (a * (0.3275911 / std::sqrt(2.0)) + 1.0);
  Tensor sum = t * 1.061405429 - 1.453152027;
  for (const double c : {1.421413741, -0.284496736, 0.254829592}) sum = sum * t + c;
  return relu(x) - a * (sum * t) * exp(square(x) * -0.5) * 0.5;
}

namespace {

// Rows from `first` on.
std::vector<double> sinusoids(int64_t length, int64_t size, int64_t first, Sinusoid kind) {
  const int64_t half = size / 2;
  const bool closed = kind == Sinusoid::closed || kind == Sinusoid::from_one;
  const double steps = double(closed ? std::max<int64_t>(1, half - 1) : half);
  if (kind == Sinusoid::from_one) ++first;
  std::vector<double> rows(static_cast<size_t>(length * size));
  for (int64_t i = 0; i < half; ++i) {
    const double turn = closed ? std::pow(10000.0, -double(i) / steps)
                               : std::pow(10000.0, -2.0 * double(i) / double(size));
    const int64_t sine = kind == Sinusoid::interleaved ? 2 * i : i;
    const int64_t cosine = kind == Sinusoid::interleaved ? 2 * i + 1 : half + i;
    for (int64_t t = 0; t < length; ++t) {
      const double angle = static_cast<double>(first + t) * turn;
      rows[static_cast<size_t>(t * size + sine)] = std::sin(angle);
      rows[static_cast<size_t>(t * size + cosine)] = std::cos(angle);
    }
  }
  return rows;
}

}  // namespace

std::optional<Sinusoid> sinusoid_named(const std::string& position) {
  if (position == "sinusoidal") return Sinusoid::halves;
  if (position == "sinusoidal_marian") return Sinusoid::closed;
  if (position == "sinusoidal_from_one") return Sinusoid::from_one;
  if (position == "sinusoidal_interleaved") return Sinusoid::interleaved;
  return std::nullopt;
}

Tensor sinusoidal_positions(int64_t length, int64_t size, int64_t first, Type type, Sinusoid kind) {
  require(size % 2 == 0, "sinusoidal_positions: wants an even size, given ", size);
  return tensor(sinusoids(length, size, first, kind), {length, size}, type);
}

struct SinusoidalPositions::Tables {
  std::mutex mutex;
  std::vector<double> rows;  // so far, for all tables
  // By device, its index and type; earlier ones, which a captured graph may still name, stay.
  std::map<std::array<int64_t, 3>, std::vector<Tensor>> tables;
  std::map<Device, std::shared_ptr<Arena>> arenas;
};

SinusoidalPositions::SinusoidalPositions(int64_t size, Sinusoid kind)
    : size_(size), kind_(kind), tables_(std::make_shared<Tables>()) {}

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
    const std::vector<double> more = sinusoids(wanted - known, size_, known, kind_);
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

Tensor SinusoidalPositions::operator()(const Tensor& at, int64_t most, const Shape& shape,
                                       Type type) const {
  return reshape(embedding(table(most, type), at), shape);
}

}  // namespace heed
