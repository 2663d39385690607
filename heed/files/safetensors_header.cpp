#include "heed/files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "heed/base/check.h"

namespace heed {
namespace {

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

std::string printable(std::string_view text, std::size_t limit) {
  const std::string_view head = text.substr(0, limit);
  std::string result(head.substr(0, valid_utf8(head)));
  for (char& c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  if (result.size() < text.size()) result += "...";
  return result;
}

std::string tensor_at(std::string_view what, std::string_view name) {
  return std::string(what) + ": tensor '" + printable(name) + "'";
}

namespace {

std::string hex(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'0', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

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

}  // namespace

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

}  // namespace heed
