#include "heed/files/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"
#include "heed/files/safetensors_header.h"

namespace heed {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

std::string shape_text(std::span<const std::int64_t> shape) {
  constexpr std::size_t kShown = 8;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), kShown); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() > kShown ? ", ...]" : "]");
}

// What a file that is clearly something else may be.
std::string_view likely_format(std::string_view file) {
  if (file.starts_with("version https://git-lfs"))
    return "; this is a Git LFS pointer: fetch the file itself with 'git lfs pull'";
  if (file.starts_with("PK\x03\x04")) return "; this is a zip archive, as PyTorch writes them";
  return "; this is not a safetensors file";
}

std::string_view header_text(std::string_view file, std::string_view what) {
  require(file.size() >= kLengthBytes, what, ": is ", file.size(),
          " bytes long; a safetensors file begins with 8 that hold the length of its header");
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(file[i]);
  require(length <= kMaxHeaderBytes, what, ": claims a header of ", length,
          " bytes; the most allowed is ", kMaxHeaderBytes, likely_format(file));
  require(length <= file.size() - kLengthBytes, what, ": is cut short: its header is ", length,
          " bytes long, and only ", file.size() - kLengthBytes, " follow");
  return file.substr(kLengthBytes, length);
}

// The bytes an array takes. Messages are put together only when they are needed: a header may
// hold millions of sizes.
std::uint64_t byte_size(std::string_view what, std::string_view name, StoredDtype dtype,
                        std::span<const std::int64_t> shape) {
  const auto refuse = [&](const auto&... why) {
    fail(tensor_at(what, name), ": shape ", shape_text(shape), " of ", to_string(dtype), why...);
  };
  bool empty = false;
  std::int64_t total = bits(dtype);
  for (const std::int64_t size : shape) {
    if (size < 0) refuse(" has a negative size");
    empty |= size == 0;
    // A 0 must not hide an overflow: strides are products of the other sizes.
    if (__builtin_mul_overflow(total, std::max<std::int64_t>(size, 1), &total))
      refuse(" overflows: its size in bits is not below 2^63");
  }
  if (empty) return 0;
  if (total % 8 != 0) refuse(" is ", total, " bits, which is not whole bytes");
  return static_cast<std::uint64_t>(total) / 8;
}

std::string range_text(const HeaderTensor& tensor) {
  return "bytes " + std::to_string(tensor.begin) + ".." + std::to_string(tensor.end);
}

// A name that stands in the list twice.
std::optional<std::string_view> repeated(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::nullopt : std::optional(*twice);
}

void check_names(std::span<const HeaderTensor> tensors, std::string_view what) {
  std::vector<std::string_view> names;
  for (const HeaderTensor& tensor : tensors) names.push_back(tensor.name);
  if (const auto name = repeated(std::move(names)))
    fail(tensor_at(what, *name), ": the name comes twice");
}

// Arrays follow one another from byte 0, without gaps and overlaps, each of its own size. They
// must be sorted by their offsets. Returns where the last one ends.
std::uint64_t check_layout(std::span<const HeaderTensor> tensors, std::string_view what) {
  const HeaderTensor* previous = nullptr;
  for (const HeaderTensor& tensor : tensors) {
    const auto refuse = [&](const auto&... why) {
      fail(tensor_at(what, tensor.name), ": ", range_text(tensor), why...);
    };
    if (tensor.end < tensor.begin) refuse(" end before they begin");
    if (!previous && tensor.begin != 0)
      refuse(" start late: they come first, and the first tensor must start at byte 0");
    if (previous && tensor.begin != previous->end)
      refuse(tensor.begin < previous->end ? " overlap" : " leave a gap after", " tensor '",
             printable(previous->name), "', ", range_text(*previous));
    const std::uint64_t size = byte_size(what, tensor.name, tensor.dtype, tensor.shape);
    if (tensor.end - tensor.begin != size)
      refuse(" are ", tensor.end - tensor.begin, ", but shape ", shape_text(tensor.shape), " of ",
             to_string(tensor.dtype), " is ", size);
    previous = &tensor;
  }
  return previous ? previous->end : 0;
}

void check_text(std::string_view text, std::string_view what, std::string_view kind) {
  const std::size_t valid = valid_utf8(text);
  require(valid == text.size(), what, ": ", kind, " '", printable(text),
          "' cannot be written: it is not UTF-8 from its byte ", valid);
}

std::string json_string(std::string_view text) { return nlohmann::json(text).dump(); }

void check_writable(std::span<const TensorEntry* const> sorted,
                    const std::map<std::string, std::string>& metadata, std::string_view what) {
  for (const auto& [name, text] : metadata) {
    check_text(name, what, "the metadata's name");
    check_text(text, what, "the metadata");
  }
  std::vector<std::string_view> names;
  for (const TensorEntry* tensor : sorted) {
    names.push_back(tensor->name);
    check_text(tensor->name, what, "the tensor's name");
    const std::string who = tensor_at(what, tensor->name);
    require(tensor->name != kMetadataKey, who, ": the format keeps this name for metadata");
    byte_size(what, tensor->name, tensor->dtype, tensor->shape);  // if there is one
  }
  if (const auto name = repeated(std::move(names)))
    fail(tensor_at(what, *name), ": the name was given twice");
}

std::string header_for(std::span<const TensorEntry* const> sorted,
                       const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  const auto separate = [&] { text += text.back() == '{' ? "" : ","; };
  if (!metadata.empty()) {
    text += json_string(kMetadataKey) + ":{";
    for (const auto& [name, value] : metadata) {
      separate();
      text += json_string(name) + ":" + json_string(value);
    }
    text += "}";
  }
  std::uint64_t offset = 0;
  for (const TensorEntry* tensor : sorted) {
    separate();
    text += json_string(tensor->name) + ":{\"dtype\":\"" + std::string(to_string(tensor->dtype)) +
            "\",\"shape\":[";
    for (std::size_t i = 0; i < tensor->shape.size(); ++i)
      text += (i ? "," : "") + std::to_string(tensor->shape[i]);
    text += "],\"data_offsets\":[" + std::to_string(offset) + ",";
    offset += byte_size("", tensor->name, tensor->dtype, tensor->shape);
    text += std::to_string(offset) + "]}";
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

// ---- the checksum

// Where its digits stand in the header. Text within JSON's strings has no bare quotation marks, so
// nothing but the entry itself looks like it.
std::optional<std::size_t> place_of_checksum(std::string_view text) {
  const std::string entry = json_string(kChecksumEntry) + ":\"";
  const std::size_t found = text.find(entry);
  if (found == text.npos || text.size() - found - entry.size() < kBlocksDigits) return std::nullopt;
  return found + entry.size();
}

// `start`: the length and the header, the checksum's digits zeros. Arrays in the order of bytes.
std::string checksum_of(std::string_view start, std::span<const TensorEntry* const> arrays) {
  std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(start))};
  for (const TensorEntry* array : arrays) parts.push_back(array->bytes);
  return checksum_of_blocks(parts);
}

void check_checksum(std::string_view start, const SafetensorsContents& contents,
                    std::string_view what, const SafetensorsOptions& options) {
  const auto given = contents.metadata.find(kChecksumEntry);
  if (given == contents.metadata.end()) {
    require(!options.want_checksum, what, ": has no checksum ('", kChecksumEntry,
            "' in its metadata): it is damaged, or another tool wrote it; copy it again");
    return;
  }
  const std::optional<std::size_t> place = place_of_checksum(start);
  require(place.has_value(), what,
          ": its checksum does not stand where heed writes it: another tool wrote the header anew");
  std::string blank(start);
  blank.replace(*place, kBlocksDigits, kBlocksDigits, '0');
  std::vector<const TensorEntry*> arrays;
  for (const TensorEntry& entry : contents.entries) arrays.push_back(&entry);
  const std::string found = checksum_of(blank, arrays);
  require(given->second == found, what, ": damaged, or changed by another tool: its checksum is ",
          found, ", the one in it ", printable(given->second, 40), "; copy it again");
}

}  // namespace

SafetensorsContents parse_safetensors(std::span<const std::byte> file, std::string_view what,
                                      SafetensorsOptions options) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const std::string_view header_bytes = header_text(text, what);
  const std::span<const std::byte> data = file.subspan(kLengthBytes + header_bytes.size());

  Header header = read_header(header_bytes, what);
  check_names(header.tensors, what);
  // Stable, so that several empty arrays at one offset keep the header's order.
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const HeaderTensor& a, const HeaderTensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  const std::uint64_t end = check_layout(header.tensors, what);
  require(end <= data.size(), what, ": is cut short: its tensors take ", end, " bytes, and only ",
          data.size(), " follow the header");
  require(end == data.size() || options.allow_trailing_bytes, what, ": has ", data.size() - end,
          " bytes too many: its tensors take ", end, ", and ", data.size(), " follow the header");

  SafetensorsContents contents;
  contents.trailing_bytes = data.size() - end;
  contents.metadata = std::move(header.metadata);
  contents.entries.reserve(header.tensors.size());
  for (HeaderTensor& tensor : header.tensors)
    contents.entries.push_back({std::move(tensor.name), tensor.dtype, std::move(tensor.shape),
                                data.subspan(tensor.begin, tensor.end - tensor.begin)});
  check_checksum(text.substr(0, kLengthBytes + header_bytes.size()), contents, what, options);
  return contents;
}

void SafetensorsFile::Unmap::operator()(const std::byte* start) const noexcept {
  ::munmap(const_cast<std::byte*>(start), size);
}

SafetensorsFile::Mapping SafetensorsFile::map(const std::filesystem::path& path) {
  const auto refuse = [&](std::string_view doing, int error) {
    fail(path.string(), ": ", doing, ": ", std::generic_category().message(error));
  };
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) refuse("cannot open", errno);
  struct Close {
    int descriptor;
    ~Close() { ::close(descriptor); }
  } const close{descriptor};

  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) refuse("cannot examine", errno);
  require(!S_ISDIR(status.st_mode), path.string(), ": is a directory; a file was wanted");
  require(S_ISREG(status.st_mode), path.string(),
          ": is a device, pipe or socket; a regular file was wanted");
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return Mapping(nullptr, Unmap{0});  // the system maps no empty files
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (start == MAP_FAILED) refuse("cannot map into memory", errno);
  return Mapping(static_cast<const std::byte*>(start), Unmap{size});
}

SafetensorsFile::SafetensorsFile(std::string path, Mapping mapping, SafetensorsOptions options)
    : path_(std::move(path)),
      mapping_(std::move(mapping)),
      contents_(parse_safetensors({mapping_.get(), mapping_.get_deleter().size}, path_, options)),
      by_name_(contents_.entries.size()) {
  std::iota(by_name_.begin(), by_name_.end(), std::size_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [&](std::size_t a, std::size_t b) {
    return contents_.entries[a].name < contents_.entries[b].name;
  });
}

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path,
                                      SafetensorsOptions options) {
  return SafetensorsFile(path.string(), map(path), options);
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](std::size_t i, std::string_view wanted) { return contents_.entries[i].name < wanted; });
  if (found == by_name_.end() || contents_.entries[*found].name != name) return nullptr;
  return &contents_.entries[*found];
}

const TensorEntry& SafetensorsFile::at(std::string_view name) const {
  if (const TensorEntry* entry = find(name)) return *entry;
  std::vector<std::string> known;
  for (const TensorEntry& entry : entries()) known.push_back(entry.name);
  const std::string near = nearest(name, known);
  fail(path_, ": has no tensor '", printable(name), "' among its ", known.size(),
       near.empty() ? "" : "; did you mean '" + printable(near) + "'?");
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorEntry> tensors,
                       const std::map<std::string, std::string>& metadata, std::size_t align,
                       const BytesOf& bytes_of) {
  std::vector<const TensorEntry*> sorted;
  for (const TensorEntry& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return a->dtype != b->dtype ? a->dtype > b->dtype : a->name < b->name;
  });
  check_writable(sorted, metadata, path.string());
  std::map<std::string, std::string> written = metadata;
  const auto sum = written.find(kChecksumEntry);
  if (sum != written.end()) sum->second = std::string(kBlocksDigits, '0');
  std::string header = header_for(sorted, written);
  while ((kLengthBytes + header.size()) % align != 0) header += ' ';
  require(header.size() <= kMaxHeaderBytes, path.string(), ": the header would be ", header.size(),
          " bytes; the most allowed is ", kMaxHeaderBytes);

  std::string start;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    start += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  start += header;
  BlocksChecksum checksum;
  const auto add = [&](std::span<const std::byte> bytes) {
    if (sum != written.end()) checksum.add(bytes);
  };
  AtomicFile file(path);
  file.write(start);
  add(std::as_bytes(std::span(start)));
  for (const TensorEntry* tensor : sorted) {
    const std::span<const std::byte> bytes = bytes_of ? bytes_of(*tensor) : tensor->bytes;
    const std::uint64_t size = byte_size(path.string(), tensor->name, tensor->dtype, tensor->shape);
    require(bytes.size() == size, tensor_at(path.string(), tensor->name), ": ", bytes.size(),
            " bytes were given, but shape ", shape_text(tensor->shape), " of ",
            to_string(tensor->dtype), " is ", size);
    file.write(bytes);
    add(bytes);
  }
  if (sum != written.end()) file.overwrite(*place_of_checksum(start), checksum.digits());
  file.commit();
}

}  // namespace heed
