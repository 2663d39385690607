// Random numbers from a counter: Philox4x32 with 7 rounds (Salmon et al., 2011, "Parallel random
// numbers: as easy as 1, 2, 3"; 7 rounds pass BigCrush). The n-th number of a stream is a function
// of (seed, stream, n) alone: the same on every device, for any number of threads, in any order.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace heed {

struct PhiloxKey {
  uint32_t low, high;
};

inline constexpr int kPhiloxRounds = 7;
inline constexpr uint32_t kPhiloxMul0 = 0xD2511F53, kPhiloxMul1 = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9, kPhiloxWeyl1 = 0xBB67AE85;

inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMul0} * c[0], p1 = uint64_t{kPhiloxMul1} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key.low, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key.high, static_cast<uint32_t>(p0)};
    key.low += kPhiloxWeyl0;
    key.high += kPhiloxWeyl1;
  }
  return c;
}

// A position in the stream of random numbers. Copying it copies the position; two numbers say all
// of it, which is what a checkpoint stores.
class Random {
 public:
  explicit Random(uint64_t seed, uint64_t position = 0) : seed_(seed), position_(position) {}

  uint64_t seed() const { return seed_; }
  uint64_t position() const { return position_; }

  uint32_t next() {
    if (position_ % 4 == 0 || !filled_) block_ = block(position_ / 4), filled_ = true;
    return block_[position_++ % 4];
  }
  // Uniform in [0, 1), 24 bits.
  float uniform() { return static_cast<float>(next() >> 8) * 0x1p-24f; }
  // Uniform in [0, n).
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t{next()} * n) >> 32); }
  // Normal with mean 0 and variance 1 (Box and Muller).
  float normal() {
    const double u = (static_cast<double>(next()) + 0.5) * 0x1p-32;
    const double v = (static_cast<double>(next()) + 0.5) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v));
  }
  // A seed for something that draws its own numbers (a dropout mask, say).
  uint64_t split() {
    const uint64_t high = next();
    return high << 32 | next();
  }

 private:
  std::array<uint32_t, 4> block(uint64_t n) const {
    return philox({static_cast<uint32_t>(n), static_cast<uint32_t>(n >> 32), 0, 0},
                  {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)});
  }

  uint64_t seed_, position_;
  bool filled_ = false;
  std::array<uint32_t, 4> block_{};
};

}  // namespace heed
