// A number that tells rows of ids apart (FNV-1a, 64 bits).
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "heed/base/id.h"

namespace heed {

class PieceHash {
 public:
  void add(std::span<const Id> row) {
    mix(row.size());
    for (const Id id : row) mix(static_cast<uint64_t>(id));
  }
  std::string text() const {
    char out[17];
    std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash_));
    return out;
  }

 private:
  void mix(uint64_t number) { hash_ = (hash_ ^ number) * 0x100000001B3; }
  uint64_t hash_ = 0xCBF29CE484222325;
};

}  // namespace heed
