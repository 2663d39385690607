// Significance by drawing lines: bootstrap and approximate randomization.
//
// The random numbers are NumPy's default_rng(seed), so that a p-value here is the p-value there.
// Sums and scores are doubles; sacreBLEU sums in float32 and its last digits change with NumPy's
// version, so resampled scores agree to what is printed, not to the bit.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "heed/base/check.h"
#include "heed/base/stop.h"
#include "heed/metrics/metrics.h"

namespace heed {
namespace {

__extension__ using Uint128 = unsigned __int128;

// SeedSequence of NumPy (after O'Neill's seed_seq_fe): spreads a seed over eight 32-bit words.
std::array<uint32_t, 8> spread(uint64_t seed) {
  const auto shifted = [](uint32_t x) { return x ^ (x >> 16); };
  uint32_t constant = 0x43B0D7E5;
  const auto hash = [&](uint32_t value) {
    value ^= constant;
    constant *= 0x931E8875;
    return shifted(value * constant);
  };
  std::array<uint32_t, 4> pool{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (uint32_t& word : pool) word = hash(word);
  for (size_t from = 0; from < pool.size(); ++from)
    for (size_t to = 0; to < pool.size(); ++to)
      if (from != to) pool[to] = shifted(0xCA01F9DD * pool[to] - 0x4973F715 * hash(pool[from]));
  std::array<uint32_t, 8> words{};
  constant = 0x8B51F9DD;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint32_t value = pool[i % pool.size()] ^ constant;
    constant *= 0x58F38DED;
    words[i] = shifted(value * constant);
  }
  return words;
}

// PCG64 (O'Neill, 2014: XSL-RR 128/64), with NumPy's ways of drawing from it.
class Pcg64 {
 public:
  explicit Pcg64(uint64_t seed) {
    const std::array<uint32_t, 8> words = spread(seed);
    const auto join = [&](size_t i) {  // two words are a number, the higher numbers come first
      const auto half = [&](size_t k) { return uint64_t{words[k + 1]} << 32 | words[k]; };
      return Uint128{half(i)} << 64 | half(i + 2);
    };
    increment_ = join(4) << 1 | 1;
    step();
    state_ += join(0);
    step();
  }

  // Uniform in [0, n), by Lemire's multiplication (2019). One possible answer takes no draw.
  uint32_t below(uint32_t n) {
    if (n == 1) return 0;
    uint64_t product = uint64_t{next32()} * n;
    if (static_cast<uint32_t>(product) < n) {
      const uint32_t threshold = (0u - n) % n;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{next32()} * n;
    }
    return static_cast<uint32_t>(product >> 32);
  }

  // The bits of a draw, the lowest first.
  bool coin() {
    if (coins_left_-- == 0) coins_ = next32(), coins_left_ = 31;
    const bool heads = coins_ & 1;
    coins_ >>= 1;
    return heads;
  }

 private:
  void step() {
    constexpr Uint128 kMultiplier = Uint128{0x2360ED051FC65DA4} << 64 | 0x4385DF649FCCF645;
    state_ = state_ * kMultiplier + increment_;
  }
  // The lower half of 64 bits, then the higher.
  uint32_t next32() {
    if (has_half_) {
      has_half_ = false;
      return half_;
    }
    step();
    const auto high = static_cast<uint64_t>(state_ >> 64), low = static_cast<uint64_t>(state_);
    const uint64_t bits = std::rotr(high ^ low, static_cast<int>(high >> 58));
    half_ = static_cast<uint32_t>(bits >> 32);
    has_half_ = true;
    return static_cast<uint32_t>(bits);
  }

  Uint128 state_ = 0, increment_ = 0;
  uint32_t half_ = 0, coins_ = 0, coins_left_ = 0;
  bool has_half_ = false;
};

void add_to(Statistics& total, const Statistics& line) {
  for (size_t i = 0; i < total.size(); ++i) total[i] += line[i];
}

double mean(std::span<const double> values) {
  // Compensated (Neumaier, 1974): rounded once, as it were.
  double total = 0, lost = 0;
  for (const double value : values) {
    const double next = total + value;
    lost += std::abs(total) >= std::abs(value) ? (total - next) + value : (value - next) + total;
    total = next;
  }
  return (total + lost) / static_cast<double>(values.size());
}

// The observed difference counts as one of the trials, so p is never 0.
double p_value(int64_t larger, size_t trials) {
  return static_cast<double>(larger + 1) / static_cast<double>(trials + 1);
}

}  // namespace

std::vector<double> resample(const Metric& metric, std::span<const Statistics> lines, int trials,
                             uint64_t seed) {
  require(!lines.empty() && lines.size() < UINT32_MAX && trials > 0, "resample: ", lines.size(),
          " lines and ", trials, " trials given; at least one of each is wanted");
  Pcg64 random(seed);
  std::vector<double> scores;
  Statistics sums(lines.front().size());
  for (int trial = 0; trial < trials; ++trial) {
    stop_if_asked();
    std::fill(sums.begin(), sums.end(), 0);
    for (size_t i = 0; i < lines.size(); ++i)
      add_to(sums, lines[random.below(static_cast<uint32_t>(lines.size()))]);
    scores.push_back(metric.score(sums));
  }
  return scores;
}

Confidence confidence(std::vector<double> scores) {
  require(!scores.empty(), "confidence: no scores");
  std::sort(scores.begin(), scores.end());
  const size_t tail = scores.size() / 40;
  return {mean(scores), 0.5 * (scores[scores.size() - tail - 1] - scores[tail])};
}

double bootstrap_p_value(std::span<const double> baseline, std::span<const double> system,
                         double difference) {
  require(baseline.size() == system.size() && !system.empty(), "bootstrap: ", baseline.size(),
          " scores of the baseline and ", system.size(),
          " of the system; as many of both are wanted");
  std::vector<double> differences;
  for (size_t i = 0; i < system.size(); ++i)
    differences.push_back(std::abs(system[i] - baseline[i]));
  // Around their mean they are what chance alone makes of equally good systems.
  const double center = mean(differences);
  const auto larger = std::count_if(differences.begin(), differences.end(),
                                    [&](double d) { return d - center > std::abs(difference); });
  return p_value(larger, system.size());
}

double randomization_p_value(const Metric& metric, std::span<const Statistics> baseline,
                             std::span<const Statistics> system, int trials, uint64_t seed) {
  require(baseline.size() == system.size(), "randomization: ", baseline.size(),
          " lines of the baseline and ", system.size(), " of the system; the same are wanted");
  const double difference =
      std::abs(metric.score(sum_statistics(baseline)) - metric.score(sum_statistics(system)));
  Pcg64 random(seed);
  int64_t larger = 0;
  for (int trial = 0; trial < trials; ++trial) {
    Statistics a(baseline.front().size()), b(a.size());
    for (size_t i = 0; i < baseline.size(); ++i) {
      const bool keep = random.coin();
      add_to(a, keep ? baseline[i] : system[i]);
      add_to(b, keep ? system[i] : baseline[i]);
    }
    if (std::abs(metric.score(a) - metric.score(b)) > difference) ++larger;
  }
  return p_value(larger, static_cast<size_t>(trials));
}

}  // namespace heed
