// Packed bytes to plain ones, as they come: gzip, zstd, xz, told by the first bytes.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace heed {

class Unpacker {
 public:
  virtual ~Unpacker() = default;

  struct Step {
    size_t read = 0, written = 0;
    bool whole = false;  // a member (frame, stream) ended just there; another may follow
  };
  // Reads of `in` and writes to `out` what it can. Throws Error with the library's words if the
  // bytes are damaged.
  virtual Step step(std::span<const char> in, std::span<char> out) = 0;
  // For what follows a member.
  virtual void begin_again() = 0;
  // Whether another member can begin with this byte. What else follows belongs to nobody.
  virtual bool can_begin(char first) const = 0;
  virtual const char* name() const = 0;  // "gzip"
};

inline constexpr size_t kLongestMagic = 6;  // xz's

// For what begins with these bytes; null: they are not packed.
std::unique_ptr<Unpacker> unpacker_for(std::string_view begin);
// Whether more bytes are wanted to say.
bool could_be_packed(std::string_view begin);

}  // namespace heed
