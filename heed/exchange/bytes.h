// Reading numbers from a file's bytes, never beyond its end; all of them little-endian.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/check.h"

namespace heed {

class Bytes {
 public:
  // Borrows `bytes`; `what` stands at the head of every message.
  Bytes(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {}

  template <class T>
  T number(const char* of) {
    const std::string_view raw = take(sizeof(T), of);
    T value;
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  std::string_view take(uint64_t count, const char* of) {
    require(count <= left(), what_, ": is cut short: ", of, " wants ", count, " bytes at ", at_,
            ", the file has ", bytes_.size());
    const std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  uint64_t left() const { return bytes_.size() - at_; }
  uint64_t at() const { return at_; }
  void go_to(uint64_t at, const char* of) {
    require(at <= bytes_.size(), what_, ": is cut short: ", of, " stands at ", at,
            ", the file has ", bytes_.size(), " bytes");
    at_ = at;
  }
  const std::string& what() const { return what_; }

 private:
  std::string_view bytes_;
  std::string what_;
  uint64_t at_ = 0;
};

// How many elements a shape has; throws Error if a file of `most` bytes cannot hold them.
int64_t elements_of(const std::vector<int64_t>& shape, uint64_t most, const std::string& what);

// Half precision, and bfloat16, as f32.
float from_f16(uint16_t bits);
float from_bf16(uint16_t bits);

// All of a file. Throws Error that says so if it is not there, or is the pointer that Git LFS
// leaves in the place of a large file.
std::string read_whole(const std::string& path);

}  // namespace heed
