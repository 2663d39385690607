#include "heed/nn/module.h"

#include <algorithm>
#include <cmath>

#include "heed/ops/bf16.h"
#include "heed/ops/into.h"

namespace heed {

Initializer glorot() {
  return [](const Shape& shape, Random& random, Type type) {
    require(shape.rank() >= 1, "glorot: wants at least one axis, given ", shape);
    const double fans = static_cast<double>(shape[0] + shape[shape.rank() - 1]);
    return uniform(shape, std::sqrt(6 / fans), random, type);
  };
}
Initializer normal_values(double deviation) {
  return [deviation](const Shape& shape, Random& random, Type type) {
    return normal(shape, deviation, random, type);
  };
}
Initializer constant(double value) {
  return [value](const Shape& shape, Random&, Type type) { return full(shape, value, type); };
}

Initializer orthogonal() {
  return [](const Shape& shape, Random& random, Type type) {
    require(shape.rank() == 2 && shape[0] > 0 && shape[1] % shape[0] == 0,
            "orthogonal: wants [n, G n], given ", shape);
    const int64_t n = shape[0], width = shape[1];
    std::vector<double> values(static_cast<size_t>(n * width));
    for (int64_t block = 0; block < width; block += n) {
      // Gram and Schmidt on random rows, twice over for exactness.
      std::vector<std::vector<double>> rows;
      while (static_cast<int64_t>(rows.size()) < n) {
        std::vector<double> row(static_cast<size_t>(n));
        for (double& x : row) x = static_cast<double>(random.normal());
        for (int again = 0; again < 2; ++again)
          for (const auto& other : rows) {
            double dot = 0;
            for (size_t j = 0; j < row.size(); ++j) dot += row[j] * other[j];
            for (size_t j = 0; j < row.size(); ++j) row[j] -= dot * other[j];
          }
        double norm = 0;
        for (const double x : row) norm += x * x;
        if (norm < 1e-12) continue;
        for (double& x : row) x /= std::sqrt(norm);
        rows.push_back(std::move(row));
      }
      for (int64_t i = 0; i < n; ++i)
        std::copy(rows[static_cast<size_t>(i)].begin(), rows[static_cast<size_t>(i)].end(),
                  values.begin() + i * width + block);
    }
    return tensor(values, shape, type);
  };
}

namespace {

// FNV-1a: a name's own stream of random numbers.
uint64_t hash(const std::string& name) {
  uint64_t h = 0xcbf29ce484222325;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

}  // namespace

Params::Params(uint64_t seed, Type type, First first)
    : set_(std::make_shared<Set>(
          Set{.seed = seed, .type = type, .first = first, .given = {}, .parameters = {}})) {}
Params::Params(Given given)
    : set_(std::make_shared<Set>(Set{.seed = 0,
                                     .type = Type::f32,
                                     .first = First::unset,
                                     .given = std::move(given),
                                     .parameters = {}})) {}

Params Params::operator/(const std::string& part) const {
  Params inner = *this;
  inner.prefix_ = prefix_ + part + ".";
  return inner;
}

Tensor Params::add(const std::string& name, const Shape& shape, const Initializer& init,
                   Use use) const {
  const std::string full_name = prefix_ + name;
  for (const Parameter& p : set_->parameters)
    require(p.name != full_name, "params: the name '", full_name, "' is taken");
  Random random(set_->seed ^ hash(full_name));
  const Tensor value = set_->given                   ? set_->given(full_name, shape, use)
                       : set_->first == First::drawn ? init(shape, random, set_->type)
                                                     : Tensor(shape, set_->type);
  const bool fixed =
      set_->given && use != Use::any && (value.type() == Type::i8 || is_bf16_weight(value));
  require(value.shape() == shape && (value.type() == set_->type || fixed) && value.contiguous(),
          "params: the initializer of '", full_name, "' gave ", value.shape(), ", wanted ", shape);
  set_->parameters.push_back({.name = full_name, .value = as_parameter(value)});
  return set_->parameters.back().value;
}

const Parameter& Params::at(const std::string& name) const {
  std::vector<std::string> known;
  for (const Parameter& p : set_->parameters) {
    if (p.name == name) return p;
    known.push_back(p.name);
  }
  throw Error(unknown_name("parameter", name, known));
}

int64_t Params::count() const {
  int64_t total = 0;
  for (const Parameter& p : all()) total += p.value.count();
  return total;
}

void Params::clear_gradients() const {
  for (const Parameter& p : all()) p.value.parameter_state()->grad = nullptr;
}

void Params::keep_compute_copies() const {
  const NoTape off;
  for (const Parameter& p : all())
    p.value.parameter_state()->compute_copy =
        std::make_shared<Tensor>(cast(p.value.detached(), Type::bf16));
}

void Params::refresh_compute_copies() const {
  const NoTape off;
  for (const Parameter& p : all())
    if (const auto& copy = p.value.parameter_state()->compute_copy)
      copy_into(cast(p.value.detached(), Type::bf16), *copy);
}

Tensor compute_copy(const Tensor& parameter) {
  if (!Tape::current() || !parameter.parameter_state() ||
      !parameter.parameter_state()->compute_copy)
    return parameter;
  Tensor copy = *parameter.parameter_state()->compute_copy;
  copy.set_parameter_state(parameter.parameter_state());
  return copy;
}

}  // namespace heed
