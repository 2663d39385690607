#include "heed/exchange/zip.h"

#include <zlib.h>

#include <algorithm>

#include "heed/exchange/bytes.h"

namespace heed {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the number stands in an extra field

uint32_t crc_of(std::string_view bytes) {
  uLong crc = crc32(0, nullptr, 0);
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = std::min<size_t>(bytes.size() - at, 1 << 30);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes.data() + at), static_cast<uInt>(n));
    at += n;
  }
  return static_cast<uint32_t>(crc);
}

std::string inflated(std::string_view packed, uint64_t size, const std::string& what) {
  // Deflate makes at most 1032 bytes of one.
  require(size / 1032 <= packed.size() + 1, what, ": says that it unpacks to ", size,
          " bytes, which ", packed.size(), " cannot hold");
  std::string out(size, '\0');
  z_stream stream{};
  require(inflateInit2(&stream, -MAX_WBITS) == Z_OK, what, ": cannot be unpacked");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  size_t in = packed.size(), room = out.size();
  int status = Z_OK;
  while (status == Z_OK) {
    const auto some = static_cast<uInt>(std::min<size_t>(in, 1 << 30)),
               free = static_cast<uInt>(std::min<size_t>(room, 1 << 30));
    stream.avail_in = some, stream.avail_out = free;
    status = inflate(&stream, Z_NO_FLUSH);
    in -= some - stream.avail_in, room -= free - stream.avail_out;
    if (some == stream.avail_in && free == stream.avail_out) break;
  }
  inflateEnd(&stream);
  require(status == Z_STREAM_END && room == 0, what, ": its packed bytes are damaged");
  return out;
}

}  // namespace

bool is_zip(std::string_view bytes) { return bytes.starts_with("PK\x03\x04"); }

Zip::Zip(std::string_view bytes, std::string what) : bytes_(bytes), what_(std::move(what)) {
  // The end is the last 22 bytes, and a comment of up to 64 KiB.
  constexpr size_t kEndSize = 22;
  require(bytes.size() >= kEndSize, what_, ": is cut short: a zip archive has at least ", kEndSize,
          " bytes");
  const size_t first = bytes.size() - std::min<size_t>(bytes.size(), kEndSize + 0xFFFF);
  size_t end = bytes.rfind(std::string_view("PK\x05\x06", 4), bytes.size() - kEndSize);
  require(end != std::string_view::npos && end >= first, what_,
          ": is cut short: the directory of a zip archive, at its end, is missing");
  Bytes in(bytes, what_);
  in.go_to(end + 10, "the directory");
  uint64_t count = in.number<uint16_t>("the directory");
  in.number<uint32_t>("the directory");
  uint64_t at = in.number<uint32_t>("the directory");
  if ((at == kIn64 || count == 0xFFFF) && end >= 20) {
    in.go_to(end - 20, "the directory");
    if (in.number<uint32_t>("the directory") == kLocator64) {
      in.number<uint32_t>("the directory");
      in.go_to(in.number<uint64_t>("the directory"), "the directory");
      require(in.number<uint32_t>("the directory") == kEnd64, what_, ": a damaged zip archive");
      in.take(28, "the directory");
      count = in.number<uint64_t>("the directory");
      in.number<uint64_t>("the directory");
      at = in.number<uint64_t>("the directory");
    }
  }
  in.go_to(at, "the directory");
  uint64_t packed = 0;  // of all: members that share their bytes would unpack to any size
  for (uint64_t i = 0; i < count; ++i) {
    require(in.number<uint32_t>("a member") == kCentral, what_, ": member ", i,
            " of the zip archive is damaged");
    Member m;
    in.take(4, "a member");
    const auto flags = in.number<uint16_t>("a member");
    m.method = in.number<uint16_t>("a member");
    in.take(4, "a member");
    m.crc = in.number<uint32_t>("a member");
    m.packed = in.number<uint32_t>("a member"), m.size = in.number<uint32_t>("a member");
    const auto name_size = in.number<uint16_t>("a member"), extra = in.number<uint16_t>("a member"),
               comment = in.number<uint16_t>("a member");
    in.take(8, "a member");
    m.at = in.number<uint32_t>("a member");
    const std::string name(in.take(name_size, "a member's name"));
    Bytes more(in.take(extra, "a member's fields"), what_);
    in.take(comment, "a member's comment");
    while (more.left() >= 4) {
      const auto id = more.number<uint16_t>("a field"), size = more.number<uint16_t>("a field");
      Bytes field(more.take(std::min<uint64_t>(size, more.left()), "a field"), what_);
      if (id != 1) continue;
      for (uint64_t* const number : {&m.size, &m.packed, &m.at})
        if (*number == kIn64) *number = field.number<uint64_t>("a size of 64 bits");
    }
    require((flags & 1) == 0, what_, ": member '", name, "' is encrypted");
    packed += std::min<uint64_t>(m.packed, bytes.size());
    require(packed <= bytes.size(), what_, ": its members have more bytes than the file");
    require(m.method == 0 || m.method == 8, what_, ": member '", name, "' is packed by method ",
            m.method, "; stored (0) and deflated (8) ones are read");
    require(members_.emplace(name, m).second, what_, ": member '", name, "' comes twice");
  }
}

std::vector<std::string> Zip::names() const {
  std::vector<std::string> out;
  for (const auto& [name, m] : members_) out.push_back(name);
  return out;
}

std::string Zip::read(const std::string& name) const {
  const auto found = members_.find(name);
  require(found != members_.end(), what_, ": has no member '", name, "'");
  const Member& m = found->second;
  Bytes in(bytes_, what_);
  in.go_to(m.at, "a member");
  require(in.number<uint32_t>("a member") == kLocal, what_, ": member '", name, "' is damaged");
  in.take(22, "a member");
  const auto name_size = in.number<uint16_t>("a member"), extra = in.number<uint16_t>("a member");
  in.take(uint64_t{name_size} + extra, "a member");
  const std::string_view packed = in.take(m.packed, "a member's bytes");
  require(m.method != 0 || m.packed == m.size, what_, ": member '", name, "' is damaged");
  std::string out = m.method == 0 ? std::string(packed) : inflated(packed, m.size, what_);
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION  // which nothing that is drawn would get by
  require(crc_of(out) == m.crc, what_, ": member '", name,
          "' is damaged: its CRC-32 is another one");
#endif
  return out;
}

std::string zip_of(std::span<const std::pair<std::string, std::string>> members) {
  std::string out, directory;
  const auto put = [](std::string& to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i));
  };
  for (const auto& [name, data] : members) {
    require(data.size() < kIn64 && out.size() < kIn64, "zip: an archive of 4 GiB or more");
    const size_t at = out.size();
    std::string same;
    put(same, 20, 2), put(same, 0, 2), put(same, 0, 2), put(same, 0, 2), put(same, 33, 2);
    put(same, crc_of(data), 4), put(same, data.size(), 4), put(same, data.size(), 4);
    put(same, name.size(), 2), put(same, 0, 2);
    put(out, kLocal, 4);
    out += same + name + data;
    put(directory, kCentral, 4), put(directory, 20, 2);
    directory += same;
    put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 4);
    put(directory, at, 4);
    directory += name;
  }
  const size_t at = out.size();
  require(at + directory.size() < kIn64 && members.size() < 0xFFFF,
          "zip: an archive of 4 GiB or more");
  out += directory;
  put(out, kEnd, 4), put(out, 0, 4), put(out, members.size(), 2), put(out, members.size(), 2);
  put(out, directory.size(), 4), put(out, at, 4), put(out, 0, 2);
  return out;
}

}  // namespace heed
