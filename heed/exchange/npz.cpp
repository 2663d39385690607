#include "heed/exchange/npz.h"

#include <charconv>
#include <cmath>

#include "heed/exchange/bytes.h"
#include "heed/exchange/zip.h"

namespace heed {
namespace {

struct Described {
  std::string type;  // "<f4"
  bool column_major = false;
  std::vector<int64_t> shape;
  std::string_view data;
};

// The value of a key of a Python dictionary in text.
std::string_view value_of(std::string_view text, std::string_view key, const std::string& what) {
  const size_t at = text.find("'" + std::string(key) + "'");
  require(at != std::string_view::npos, what, ": its description has no '", key, "'");
  const size_t colon = text.find(':', at);
  require(colon != std::string_view::npos, what, ": its description is damaged");
  std::string_view rest = text.substr(colon + 1);
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return rest;
}

Described described(std::string_view bytes, const std::string& what) {
  Bytes in(bytes, what);
  require(in.take(6, "the magic bytes") == "\x93NUMPY", what, ": not a .npy array");
  const auto version = in.number<uint8_t>("the version");
  in.number<uint8_t>("the version");
  const uint64_t length = version == 1 ? in.number<uint16_t>("the description")
                                       : in.number<uint32_t>("the description");
  const std::string_view text = in.take(length, "the description");
  Described out;
  const std::string_view type = value_of(text, "descr", what);
  require(type.size() > 2 && (type[0] == '\'' || type[0] == '"'), what,
          ": elements of a kind that heed does not know");
  out.type = std::string(type.substr(1, type.find(type[0], 1) - 1));
  out.column_major = value_of(text, "fortran_order", what).starts_with("True");
  std::string_view sizes = value_of(text, "shape", what);
  require(sizes.starts_with('(') && sizes.find(')') != std::string_view::npos, what,
          ": its shape is damaged");
  sizes = sizes.substr(1, sizes.find(')') - 1);
  while (!sizes.empty()) {
    const size_t digits = sizes.find_first_of("0123456789");
    if (digits == std::string_view::npos) break;
    sizes.remove_prefix(digits);
    int64_t n = 0;
    const auto [end, error] = std::from_chars(sizes.data(), sizes.data() + sizes.size(), n);
    require(error == std::errc(), what, ": its shape is damaged");
    out.shape.push_back(n);
    sizes.remove_prefix(static_cast<size_t>(end - sizes.data()));
  }
  out.data = in.take(in.left(), "the elements");
  return out;
}

template <class T>
void read_as(std::string_view data, std::vector<float>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<float>(value);
  }
}

Array array_of(const Described& d, const std::string& what) {
  Array out{d.shape, {}};
  const std::string kind = d.type.size() > 1 ? d.type.substr(1) : "";
  require(!d.type.starts_with('>'), what, ": elements in big-endian order");
  const size_t size =
      kind.size() == 2 && kind[1] > '0' && kind[1] <= '8' ? static_cast<size_t>(kind[1] - '0') : 0;
  require(size > 0, what, ": elements of type '", d.type, "', which heed does not know");
  const int64_t count = elements_of(d.shape, d.data.size(), what);
  require(static_cast<uint64_t>(count) * size <= d.data.size(), what, ": is cut short: ", count,
          " elements of ", size, " bytes want more than the ", d.data.size(), " that are there");
  out.values.resize(static_cast<size_t>(count));
  if (kind == "f4")
    read_as<float>(d.data, out.values);
  else if (kind == "f8")
    read_as<double>(d.data, out.values);
  else if (kind == "i1" || kind == "b1")
    read_as<int8_t>(d.data, out.values);
  else if (kind == "u1")
    read_as<uint8_t>(d.data, out.values);
  else if (kind == "i2")
    read_as<int16_t>(d.data, out.values);
  else if (kind == "i4")
    read_as<int32_t>(d.data, out.values);
  else if (kind == "i8")
    read_as<int64_t>(d.data, out.values);
  else if (kind == "f2")
    for (size_t i = 0; i < out.values.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, d.data.data() + 2 * i, 2);
      out.values[i] = from_f16(bits);
    }
  else
    fail(what, ": elements of type '", d.type, "', which heed does not know");
  if (d.column_major && d.shape.size() > 1) {
    require(d.shape.size() == 2, what, ": a column-major array of ", d.shape.size(), " sizes");
    out.shape = {d.shape[1], d.shape[0]};
    out = transposed(out);
  }
  return out;
}

}  // namespace

Array parse_npy(std::string_view bytes, const std::string& what) {
  return array_of(described(bytes, what), what);
}

Npz parse_npz(std::string_view bytes, const std::string& what) {
  const Zip zip(bytes, what);
  Npz out;
  for (const std::string& member : zip.names()) {
    require(member.ends_with(".npy"), what, ": member '", member, "' is not an array (.npy)");
    const std::string name = member.substr(0, member.size() - 4), data = zip.read(member);
    const Described d = described(data, what + ": " + name);
    if (d.type.ends_with("1") && d.shape.size() == 1)
      out.texts[name] = std::string(d.data);
    else
      out.arrays[name] = array_of(d, what + ": " + name);
  }
  return out;
}

}  // namespace heed
