// What the fuzz targets have in common. A target is one file, named after the reader, with one
// function: whatever the bytes, the reader takes them or throws heed::Error. Anything else, another
// exception included, ends the process, which is a finding.
//
// `make fuzz` has libFuzzer draw the bytes; `make test` replays the seeds (replay.cpp).
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "heed/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace heed::fuzz {

inline void demand(bool holds) {
  if (!holds) std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// True if `read` takes what it is given, false if it says why not.
template <class Read>
bool takes(Read read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    demand(!std::string_view(error.what()).empty());
    return false;
  }
}

// The bytes as a file that has a path, and is nowhere on the disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    demand(descriptor_ >= 0);
    demand(::write(descriptor_, bytes.data(), bytes.size()) ==
           static_cast<::ssize_t>(bytes.size()));
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace heed::fuzz
