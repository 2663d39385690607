// Safetensors files: named arrays with a type and a shape, in a format that other tools read.
//
//   8 bytes   N, the length of the header, unsigned, little-endian
//   N bytes   the header: a JSON object, name -> {dtype, shape, data_offsets}, and strings under
//             "__metadata__"; spaces may follow it
//   the rest  the arrays, row-major, little-endian, one directly after the other
//
// A file is checked wholly before anything of it is returned, so what has been returned can be
// used without further checks of sizes. The format: github.com/huggingface/safetensors.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

// The format's types, spelled as in the file and in the order in which the reference writer ranks
// them. Not the types heed computes in: most of these are only carried.
enum class StoredDtype {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64
};

std::string_view to_string(StoredDtype dtype);
std::optional<StoredDtype> stored_dtype(std::string_view name);

// Bits of one element; not always whole bytes.
int bits(StoredDtype dtype);

struct TensorEntry {
  std::string name;
  StoredDtype dtype = StoredDtype::F32;
  std::vector<std::int64_t> shape;  // [] is one element
  // Borrowed, and not always aligned for the dtype: other writers may not have padded the header.
  std::span<const std::byte> bytes;
};

// The metadata's entry for a file's own checksum, sixteen hexadecimal digits: over the length and
// the header, in which these digits count as zeros, then each array in the order of their bytes
// (checksum_of_blocks in files/checksum.h). The writer fills it in where the metadata has it.
inline constexpr const char* kChecksumEntry = "heed.checksum";

struct SafetensorsOptions {
  // Some writers leave bytes after the last array. Read such a file all the same; trailing_bytes
  // says how many there were, so that the caller can warn.
  bool allow_trailing_bytes = false;
  // A file that has its checksum is always compared with it, which reads all of it. Refuse one
  // that has none.
  bool want_checksum = false;
};

struct SafetensorsContents {
  std::vector<TensorEntry> entries;  // in the order of their bytes; these point into the input
  std::map<std::string, std::string> metadata;
  std::uint64_t trailing_bytes = 0;  // 0 unless allowed
};

// Checks `file`, a whole safetensors file in memory, and says what is in it. `what` stands at the
// head of every message: a path, usually. Throws Error for a file that breaks a rule of the format,
// saying which, where, and the numbers. Stricter than the reference reader in two points: names
// may not come twice, and a shape's sizes may not overflow even where one of them is 0.
SafetensorsContents parse_safetensors(std::span<const std::byte> file, std::string_view what,
                                      SafetensorsOptions options = {});

// A safetensors file, mapped into memory: opening reads the header, and the arrays come from the
// disk as they are touched, or with a checksum at once, by all threads of the pool in use. Entries
// and their bytes live as long as this object, and moving it leaves them valid. Nobody may shorten
// the file meanwhile (the system would end the process); replacing it by rename, as
// write_safetensors does, is safe.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path, SafetensorsOptions options = {});

  // In the order of their bytes.
  const std::vector<TensorEntry>& entries() const { return contents_.entries; }
  const std::map<std::string, std::string>& metadata() const { return contents_.metadata; }
  std::uint64_t trailing_bytes() const { return contents_.trailing_bytes; }

  // The entry of that name; nullptr if there is none.
  const TensorEntry* find(std::string_view name) const;

  // The entry of that name; throws Error, with the nearest name, if there is none.
  const TensorEntry& at(std::string_view name) const;

 private:
  struct Unmap {
    std::size_t size;
    void operator()(const std::byte* start) const noexcept;
  };
  using Mapping = std::unique_ptr<const std::byte, Unmap>;

  static Mapping map(const std::filesystem::path& path);
  SafetensorsFile(std::string path, Mapping mapping, SafetensorsOptions options);

  std::string path_;
  Mapping mapping_;
  SafetensorsContents contents_;
  std::vector<std::size_t> by_name_;  // indices into entries(), sorted by name
};

// Writes `tensors` as the reference writer does, byte for byte: by dtype, the last of StoredDtype
// first, then by name, with the header padded to a multiple of 8, so that every array is aligned
// for its type. Metadata goes in order of its keys; kChecksumEntry's value, whatever it was, is the
// checksum. The file is written whole or not at all
// (AtomicFile), and may be the one that `tensors` are mapped from. `align`, of 8 or a multiple, is
// what the header is padded to, with spaces, which readers pass over: where arrays are multiples of
// it, all of them begin at one. `bytes_of`, where there is one, is asked for the bytes of each in
// the order of the file, when those before it are written: so that not all are in memory at once.
using BytesOf = std::function<std::span<const std::byte>(const TensorEntry&)>;
void write_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       std::size_t align = 8, const BytesOf& bytes_of = {});

}  // namespace heed
