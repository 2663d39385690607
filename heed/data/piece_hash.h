// A number that tells rows of ids apart (FNV-1a, 64 bits).
//
// Threads: all functions may be called from any number at once.
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
    add(row.size());
    for (const Id id : row) add(static_cast<uint64_t>(id));
  }
  void add(uint64_t number) { hash_ = (hash_ ^ number) * 0x100000001B3; }
  std::string text() const {
    char out[17];
    std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash_));
    return out;
  }

 private:
  uint64_t hash_ = 0xCBF29CE484222325;
};

}  // namespace heed
