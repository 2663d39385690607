#include "heed/files/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "heed/base/check.h"
#include "heed/files/atomic_file.h"
#include "heed/files/checksum.h"

namespace heed {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

struct DtypeRow {
  std::string_view name;
  int bits;
};

// In the order of StoredDtype.
constexpr std::array<DtypeRow, 22> kDtypes = {{
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
}};

// The length of the longest part of `text`, from its start, that is whole UTF-8.
std::size_t valid_utf8(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  for (std::size_t i = 0; i < text.size();) {
    const unsigned lead = byte(i);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : lead >= 0xE0 && lead < 0xF0 ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    if (length == 0 || length > text.size() - i) return i;
    for (std::size_t k = 1; k < length; ++k)
      if ((byte(i + k) & 0xC0) != 0x80) return i;
    // Too long a form, halves of surrogate pairs, past the last code point.
    if (length > 2) {
      const unsigned next = byte(i + 1);
      if ((lead == 0xE0 && next < 0xA0) || (lead == 0xED && next > 0x9F) ||
          (lead == 0xF0 && next < 0x90) || (lead == 0xF4 && next > 0x8F))
        return i;
    }
    i += length;
  }
  return text.size();
}

// `text` as one short line without control characters: what stands in a file may be meant for the
// terminal that shows the message.
std::string printable(std::string_view text, std::size_t limit = 120) {
  const std::string_view head = text.substr(0, limit);
  std::string result(head.substr(0, valid_utf8(head)));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  if (result.size() < text.size()) result += "...";
  return result;
}

std::string hex(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'0', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

std::string tensor_at(std::string_view what, std::string_view name) {
  return std::string(what) + ": tensor '" + printable(name) + "'";
}

std::string shape_text(std::span<const std::int64_t> shape) {
  constexpr std::size_t kShown = 8;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), kShown); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() > kShown ? ", ...]" : "]");
}

struct HeaderTensor {
  std::string name;
  StoredDtype dtype = StoredDtype::F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderTensor> tensors;
  std::map<std::string, std::string> metadata;
};

// Takes the header's JSON event by event. The events keep what a tree would lose, names that come
// twice, and need no recursion: however deep a header is nested, only `depth_` counts it.
class HeaderReader : public nlohmann::json::json_sax_t {
 public:
  explicit HeaderReader(std::string_view what) : what_(what) {}

  Header take() { return std::move(header_); }

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("true or false"); }
  // Only numbers with a minus come this way.
  bool number_integer(number_integer_t number) override {
    return value(number == 0 ? "-0" : std::to_string(number));
  }
  bool number_float(number_float_t, const string_t& digits) override {
    return value(printable(digits, 40));
  }
  bool binary(binary_t&) override { return value("binary data"); }

  bool number_unsigned(number_unsigned_t number) override {
    if (at_ == At::kShape) {
      if (number > std::numeric_limits<std::int64_t>::max())
        fail(where(), ": shape has the size ", number, ", which overflows 63 bits");
      tensor_.shape.push_back(static_cast<std::int64_t>(number));
      return true;
    }
    if (at_ == At::kOffsets) {
      if (offsets_ == 2) fail(where(), ": data_offsets has more than two numbers");
      (offsets_ == 0 ? tensor_.begin : tensor_.end) = number;
      ++offsets_;
      return true;
    }
    return value(std::to_string(number));
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadata) {
      header_.metadata[field_name_] = std::move(text);
      return true;
    }
    if (at_ == At::kTensor && field_ == Field::kDtype) {
      tensor_.dtype = known_dtype(text);
      return true;
    }
    return value("a string");
  }

  bool start_object(std::size_t) override {
    if (at_ == At::kStart) {
      at_ = At::kHeader;
    } else if (at_ == At::kHeader && is_metadata_) {
      at_ = At::kMetadata;
    } else if (at_ == At::kHeader) {
      at_ = At::kTensor;
    } else {
      enter_ignored("an object");
    }
    return true;
  }

  bool end_object() override {
    if (at_ == At::kIgnored) {
      leave_ignored();
    } else if (at_ == At::kHeader) {
      at_ = At::kEnd;
    } else {
      if (at_ == At::kTensor) finish_tensor();
      at_ = At::kHeader;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ == At::kTensor && field_ == Field::kShape) {
      at_ = At::kShape;
    } else if (at_ == At::kTensor && field_ == Field::kOffsets) {
      at_ = At::kOffsets;
    } else {
      enter_ignored("an array");
    }
    return true;
  }

  bool end_array() override {
    if (at_ == At::kIgnored) {
      leave_ignored();
      return true;
    }
    if (at_ == At::kOffsets && offsets_ != 2)
      fail(where(), ": data_offsets has ", offsets_, " of two numbers, begin and end");
    at_ = At::kTensor;
    return true;
  }

  bool key(string_t& name) override {
    if (at_ == At::kHeader) start_entry(name);
    if (at_ == At::kTensor) start_field(name);
    if (at_ == At::kMetadata) {
      if (header_.metadata.contains(name)) fail(where(), ": '", printable(name), "' comes twice");
      field_name_ = std::move(name);
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view words = e.what();  // "[json.exception....] parse error at line 1, ..."
    words.remove_prefix(std::min(words.find("] ") + 2, words.size()));
    fail(what_, ": the header is not JSON: ", printable(words, 200));
  }

 private:
  enum class At { kStart, kHeader, kMetadata, kTensor, kShape, kOffsets, kIgnored, kEnd };
  enum class Field { kDtype, kShape, kOffsets, kOther };
  static constexpr std::array<const char*, 3> kFieldNames = {"dtype", "shape", "data_offsets"};
  static constexpr int kMaxDepth = 100;

  void start_entry(string_t& name) {
    is_metadata_ = name == kMetadataKey;
    if (is_metadata_) {
      require(!std::exchange(has_metadata_, true), what_, ": '", kMetadataKey, "' comes twice");
      return;
    }
    tensor_ = {};
    tensor_.name = std::move(name);
    has_field_ = {};
    offsets_ = 0;
  }

  void start_field(const string_t& name) {
    const auto found = std::find(kFieldNames.begin(), kFieldNames.end(), name);
    field_ = static_cast<Field>(found - kFieldNames.begin());
    if (field_ == Field::kOther) return;
    if (std::exchange(has_field_[static_cast<std::size_t>(field_)], true))
      fail(where(), ": '", name, "' comes twice");
  }

  void finish_tensor() {
    for (std::size_t i = 0; i < has_field_.size(); ++i)
      if (!has_field_[i]) fail(where(), ": has no '", kFieldNames[i], "'");
    header_.tensors.push_back(std::move(tensor_));
  }

  StoredDtype known_dtype(std::string_view name) const {
    if (const auto dtype = stored_dtype(name)) return *dtype;
    std::vector<std::string> known;
    for (const DtypeRow& row : kDtypes) known.emplace_back(row.name);
    fail(where(), ": ", unknown_name("dtype", printable(name, 40), known));
  }

  // A value other than the ones the format wants: passed over in a field that the format does not
  // know, as the reference reader does, and refused anywhere else.
  bool value(std::string_view found) const {
    if (at_ == At::kIgnored || (at_ == At::kTensor && field_ == Field::kOther)) return true;
    refuse(found);
  }

  void enter_ignored(std::string_view found) {
    value(found);
    at_ = At::kIgnored;
    if (++depth_ > kMaxDepth)
      fail(where(), ": the header is nested more than ", kMaxDepth, " deep");
  }

  void leave_ignored() {
    if (--depth_ == 0) at_ = At::kTensor;
  }

  std::string where() const {
    if (at_ == At::kMetadata || is_metadata_)
      return std::string(what_) + ": " + std::string(kMetadataKey);
    return tensor_at(what_, tensor_.name);
  }

  [[noreturn]] void refuse(std::string_view found) const {
    switch (at_) {
      case At::kMetadata:
        fail(where(), ": '", printable(field_name_), "' is ", found, "; a string was wanted");
      case At::kShape:
      case At::kOffsets:
        fail(where(), ": ", at_ == At::kShape ? "shape" : "data_offsets", " holds ", found,
             "; whole numbers from 0 were wanted");
      case At::kTensor:
        fail(where(), ": ", kFieldNames[static_cast<std::size_t>(field_)], " is ", found, "; ",
             field_ == Field::kDtype ? "a string" : "an array", " was wanted");
      default:  // kHeader; no other is left, for the header starts with '{' and ends with '}'
        fail(where(), ": is ", found, "; an object was wanted");
    }
  }

  std::string_view what_;
  Header header_;
  At at_ = At::kStart;
  HeaderTensor tensor_;  // the one being read
  Field field_ = Field::kOther;
  std::array<bool, 3> has_field_ = {};
  int offsets_ = 0;  // how many of the two have been seen
  std::string field_name_;
  bool is_metadata_ = false;
  bool has_metadata_ = false;
  int depth_ = 0;  // within a value that is passed over
};

Header read_header(std::string_view text, std::string_view what) {
  require(!text.empty(), what, ": the header is empty; a JSON object was wanted");
  require(text[0] == '{', what, ": the header starts with byte ",
          hex(static_cast<unsigned char>(text[0])), "; it must start with '{'");
  const std::size_t valid = valid_utf8(text);
  require(valid == text.size(), what, ": the header is not UTF-8: its byte ", valid, " is ",
          hex(static_cast<unsigned char>(text[std::min(valid, text.size() - 1)])));
  // The JSON library takes a zero byte for the end of its input and would not see what follows.
  const std::size_t zero = text.find('\0');
  require(zero == text.npos, what, ": the header is not JSON: its byte ", zero, " is 0x00");

  HeaderReader reader(what);
  nlohmann::json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
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
    const std::uint64_t size = byte_size(what, tensor->name, tensor->dtype, tensor->shape);
    require(tensor->bytes.size() == size, who, ": ", tensor->bytes.size(),
            " bytes were given, but shape ", shape_text(tensor->shape), " of ",
            to_string(tensor->dtype), " is ", size);
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
    offset += tensor->bytes.size();
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

std::string_view to_string(StoredDtype dtype) {
  return kDtypes[static_cast<std::size_t>(dtype)].name;
}

int bits(StoredDtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].bits; }

std::optional<StoredDtype> stored_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i)
    if (kDtypes[i].name == name) return static_cast<StoredDtype>(i);
  return std::nullopt;
}

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
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const TensorEntry*> sorted;
  for (const TensorEntry& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return a->dtype != b->dtype ? a->dtype > b->dtype : a->name < b->name;
  });
  check_writable(sorted, metadata, path.string());
  std::map<std::string, std::string> written = metadata;
  const auto sum = written.find(kChecksumEntry);
  if (sum != written.end()) sum->second = std::string(kBlocksDigits, '0');
  const std::string header = header_for(sorted, written);
  require(header.size() <= kMaxHeaderBytes, path.string(), ": the header would be ", header.size(),
          " bytes; the most allowed is ", kMaxHeaderBytes);

  std::string start;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    start += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  start += header;
  if (sum != written.end())
    start.replace(*place_of_checksum(start), kBlocksDigits, checksum_of(start, sorted));
  AtomicFile file(path);
  file.write(start);
  for (const TensorEntry* tensor : sorted) file.write(tensor->bytes);
  file.commit();
}

}  // namespace heed
