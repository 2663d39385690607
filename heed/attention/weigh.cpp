#include "heed/attention/weigh.h"

#include <cmath>
#include <vector>

namespace heed {
namespace {

constexpr WeighRow kKinds[] = {
    {"soft", "softmax(s / temperature)", Weigh::Kind::soft},
    {"hard", "1 at the largest s", Weigh::Kind::hard},
    {"straight_through", "hard forward, soft backward", Weigh::Kind::straight_through},
    {"reinforce", "one key drawn by softmax(s), learned by its reward", Weigh::Kind::reinforce},
    {"gumbel", "softmax((s + Gumbel noise) / temperature)", Weigh::Kind::gumbel},
    {"sparsemax", "the nearest point to s whose weights sum to 1", Weigh::Kind::sparsemax},
    {"entmax", "1.5-entmax(s)", Weigh::Kind::entmax},
};

// -log(-log(u)) for uniform u: the largest of scores with such noise is a draw by their softmax.
Tensor with_gumbel_noise(const Tensor& scores, Random& random) {
  std::vector<double> noise(static_cast<size_t>(scores.count()));
  for (double& x : noise) x = -std::log(-std::log((double(random.next()) + 0.5) * 0x1p-32));
  return scores + tensor(noise, scores.shape(), scores.type());
}

}  // namespace

std::span<const WeighRow> weigh_table() { return kKinds; }

Weigh::Kind weigh_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const WeighRow& row : kKinds) {
    if (row.name == name) return row.kind;
    names.emplace_back(row.name);
  }
  fail(unknown_name("weigh", name, names));
}

Weighed weigh(const Weigh& how, const Tensor& given) {
  require(how.temperature > 0, "weigh: temperature wants a number above 0, given ",
          how.temperature);
  const Tensor scores = how.temperature == 1 ? given : given * (1 / how.temperature);
  Tape* const tape = Tape::current();
  switch (how.kind) {
    case Weigh::Kind::soft: return {softmax(scores), {}};
    case Weigh::Kind::hard: return {one_hot_max(scores), {}};
    case Weigh::Kind::straight_through: {
      // p - p is 0, but only the first p is followed back.
      const Tensor p = softmax(scores);
      return {one_hot_max(scores) + (p - p.detached()), {}};
    }
    case Weigh::Kind::reinforce: {
      if (!tape) return {one_hot_max(scores), {}};
      const Tensor drawn = one_hot_max(with_gumbel_noise(scores.detached(), tape->random()));
      // Where nothing is seen the sum is 0, and so is its gradient.
      return {drawn, log(sum(drawn * softmax(scores), -1) + 1e-30)};
    }
    case Weigh::Kind::gumbel:
      if (!tape) return {one_hot_max(scores), {}};
      return {softmax(with_gumbel_noise(given, tape->random()) * (1 / how.temperature)), {}};
    case Weigh::Kind::sparsemax: return {entmax(scores, 2), {}};
    case Weigh::Kind::entmax: return {entmax(scores, 1.5), {}};
  }
  fail("weigh: no such kind");
}

Tensor reinforce_loss(const Tensor& log_probability, const Tensor& reward, const Tensor& baseline) {
  require(log_probability.shape() == reward.shape() && reward.shape() == baseline.shape(),
          "reinforce_loss: wants three tensors [B, H, Tq], given ", log_probability.shape(), ", ",
          reward.shape(), ", ", baseline.shape());
  const Tensor advantage = reward.detached() - baseline;
  return mean(square(advantage)) - mean(advantage.detached() * log_probability);
}

Baseline::Baseline(const Params& params, int64_t size)
    : w_(params.add("w", {size, 1}, constant(0))), bias_(params.add("bias", {1}, constant(0))) {}

Tensor Baseline::operator()(const Tensor& q) const {
  return reshape(linear(q.detached(), w_, bias_), {q.size(0), q.size(1), q.size(2)});
}

}  // namespace heed
