// Random numbers for a position in a corpus: the same whoever draws them and when.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <array>
#include <cstdint>

#include "heed/base/random.h"

namespace heed {

// The last word of a place is its kind, four letters: it keeps the streams of different uses apart,
// and from those of a plain Random with the same seed.
inline Random stream_of(uint64_t seed, const std::array<uint32_t, 4>& place) {
  const auto bits = philox(place, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return Random(uint64_t{bits[0]} << 32 | bits[1]);
}

}  // namespace heed
