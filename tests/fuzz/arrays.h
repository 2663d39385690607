// What the fuzz targets of archives of arrays have in common.
#pragma once

#include "heed/exchange/foreign_model.h"
#include "tests/fuzz/fuzz.h"

namespace heed::fuzz {

// What was returned has as many numbers as its shape says.
inline void look_at_all(const Arrays& arrays) {
  for (const auto& [name, array] : arrays) {
    std::int64_t count = 1;
    for (const std::int64_t n : array.shape) count *= n;
    demand(std::ssize(array.values) == count);
  }
}

}  // namespace heed::fuzz
