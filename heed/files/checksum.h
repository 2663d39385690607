// What tells a file from a damaged copy of it (docs/decisions/files.md).
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// CRC-32 of all bytes (that of gzip and PNG), as eight hexadecimal digits.
std::string checksum(const std::filesystem::path& file);

// ---- text that has its own checksum

// `object`, a JSON object as text in several lines, with one key more at its end, "checksum": the
// CRC-32 of all bytes of what is returned, where its own eight digits count as zeros.
std::string with_own_checksum(std::string object);
// Throws Error, `where` at its head, unless `text` has such a checksum, and it is that of the text.
void check_own_checksum(std::string_view text, std::string_view where);

// ---- much at once

// XXH64 with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md).
uint64_t xxh64(std::span<const std::byte> bytes);

// Of parts one after the other, at memory's speed: each is cut into blocks of 1 MiB, which the
// threads of the pool in use take; the result is the XXH64 of the blocks' own, eight bytes each, as
// sixteen hexadecimal digits.
inline constexpr size_t kBlocksDigits = 16;
std::string checksum_of_blocks(std::span<const std::span<const std::byte>> parts);
// The same of parts that come one at a time.
class BlocksChecksum {
 public:
  void add(std::span<const std::byte> part);
  std::string digits() const;

 private:
  std::vector<uint64_t> sums_;  // of the blocks
};

}  // namespace heed
