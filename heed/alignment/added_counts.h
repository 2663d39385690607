// What a pair of sentences has added to the counts, kept so that it can be taken off again exactly:
// a byte for each posterior, about a byte for where it is.
//
// A posterior of 2^-10 or more is rounded to five binary digits; a smaller one is none. What counts
// is the rounded one, so nothing is lost by keeping it in so few bits.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

namespace heed {

class PosteriorCode {
 public:
  // Counts are in 1/unit.
  explicit PosteriorCode(uint32_t unit);

  // 0 for none.
  static uint8_t of(float p) {
    if (!(p >= 0x1p-10f)) return 0;
    const uint32_t code = (std::bit_cast<uint32_t>(p) + (1u << 18)) >> 19;
    return static_cast<uint8_t>(code - kFirst < kLast ? code - kFirst + 1 : kLast);
  }
  uint32_t units(uint8_t code) const { return units_[code]; }
  float posterior(uint8_t code) const { return posterior_[code]; }

 private:
  static constexpr uint32_t kFirst = std::bit_cast<uint32_t>(0x1p-10f) >> 19;
  static constexpr uint32_t kLast = (std::bit_cast<uint32_t>(1.f) >> 19) - kFirst + 1;
  std::array<uint32_t, 256> units_{};
  std::array<float, 256> posterior_{};
};

// Appends `codes` to `bytes`: once if all are alike, else all of them or those that are not 0,
// whichever is less. unpack() reads as many codes as `codes` has room for, and says where it ended.
void pack(std::span<const uint8_t> codes, std::vector<uint8_t>& bytes);
const uint8_t* unpack(const uint8_t* bytes, std::span<uint8_t> codes);

}  // namespace heed
