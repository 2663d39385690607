// Random numbers for a position in a corpus: the same whoever draws them and when.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "heed/base/random.h"

namespace heed {

// The last word of a place is its kind, four letters: it keeps the streams of different uses apart,
// and from those of a plain Random with the same seed.
inline Random stream_of(uint64_t seed, const std::array<uint32_t, 4>& place) {
  const auto bits = philox(place, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return Random(uint64_t{bits[0]} << 32 | bits[1]);
}

// std::shuffle's result is left to each library; this one's is the same everywhere.
template <class T>
void shuffle(std::vector<T>& items, Random& random) {
  for (size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[random.below(static_cast<uint32_t>(i))]);
}

}  // namespace heed
