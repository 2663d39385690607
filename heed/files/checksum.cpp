#include "heed/files/checksum.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <vector>

#include "heed/base/check.h"
#include "heed/base/parallel.h"

namespace heed {
namespace {

std::string hexadecimal(uint64_t value, int digits) {
  char text[17];
  std::snprintf(text, sizeof text, "%0*llx", digits, static_cast<unsigned long long>(value));
  return text;
}

}  // namespace

std::string checksum(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  require(in.good(), file.string(), ": cannot be read");
  std::array<char, 1 << 16> part;
  uLong sum = crc32(0, nullptr, 0);
  while (in.read(part.data(), part.size()) || in.gcount() > 0)
    sum = crc32(sum, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(in.gcount()));
  require(!in.bad(), file.string(), ": cannot be read to its end");
  return hexadecimal(sum, 8);
}

// ---- text that has its own checksum

namespace {

constexpr std::string_view kKey = "\"checksum\"", kBlank = "00000000";

// Where the digits stand, if they do: after the last such key.
std::optional<size_t> place_of_digits(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t key = text.rfind(kKey);
  if (key == text.npos) return std::nullopt;
  const size_t colon = text.find_first_not_of(kSpace, key + kKey.size());
  if (colon == text.npos || text[colon] != ':') return std::nullopt;
  const size_t quote = text.find_first_not_of(kSpace, colon + 1);
  if (quote == text.npos || text[quote] != '"') return std::nullopt;
  if (text.size() - quote < kBlank.size() + 2 || text[quote + 1 + kBlank.size()] != '"')
    return std::nullopt;
  return quote + 1;
}

std::string crc_with_blank(std::string text, size_t place) {
  text.replace(place, kBlank.size(), kBlank);
  return hexadecimal(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()), 8);
}

}  // namespace

std::string with_own_checksum(std::string object) {
  constexpr std::string_view kEnd = "\n}";
  HEED_ASSERT(object.ends_with(kEnd));
  object.resize(object.size() - kEnd.size());
  object += ",\n " + std::string(kKey) + ": \"" + std::string(kBlank) + "\"\n}\n";
  const size_t place = *place_of_digits(object);
  return object.replace(place, kBlank.size(), crc_with_blank(object, place));
}

void check_own_checksum(std::string_view text, std::string_view where) {
  const std::optional<size_t> place = place_of_digits(text);
  require(place.has_value(), where, ": has no checksum of itself (a last key ", kKey,
          ", eight digits): it is damaged, or not as heed wrote it; copy it again");
  const std::string_view given = text.substr(*place, kBlank.size());
  const std::string found = crc_with_blank(std::string(text), *place);
  require(given == found, where, ": damaged, or changed by hand: its checksum is ", found,
          ", not the one in it; copy it again or, if you changed it, write ", kKey, ": \"", found,
          "\" into it");
}

// ---- much at once

namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F,
                   kPrime3 = 0x165667B19E3779F9, kPrime4 = 0x85EBCA77C2B2AE63,
                   kPrime5 = 0x27D4EB2F165667C5;

template <class Lane>
uint64_t lane(const std::byte* at) {
  static_assert(std::endian::native == std::endian::little);
  Lane value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t round(uint64_t sum, uint64_t input) {
  return std::rotl(sum + input * kPrime2, 31) * kPrime1;
}

}  // namespace

uint64_t xxh64(std::span<const std::byte> bytes) {
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  uint64_t sum = kPrime5;
  if (left >= 32) {
    uint64_t a = kPrime1 + kPrime2, b = kPrime2, c = 0, d = 0 - kPrime1;
    for (; left >= 32; at += 32, left -= 32) {
      a = round(a, lane<uint64_t>(at)), b = round(b, lane<uint64_t>(at + 8));
      c = round(c, lane<uint64_t>(at + 16)), d = round(d, lane<uint64_t>(at + 24));
    }
    sum = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (const uint64_t part : {a, b, c, d}) sum = (sum ^ round(0, part)) * kPrime1 + kPrime4;
  }
  sum += bytes.size();
  for (; left >= 8; at += 8, left -= 8)
    sum = std::rotl(sum ^ round(0, lane<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  if (left >= 4) {
    sum = std::rotl(sum ^ lane<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    at += 4, left -= 4;
  }
  for (; left > 0; ++at, --left) sum = std::rotl(sum ^ lane<uint8_t>(at) * kPrime5, 11) * kPrime1;
  sum = (sum ^ sum >> 33) * kPrime2;
  sum = (sum ^ sum >> 29) * kPrime3;
  return sum ^ sum >> 32;
}

namespace {

std::vector<uint64_t> sums_of_blocks(std::span<const std::span<const std::byte>> parts) {
  constexpr size_t kBlock = size_t{1} << 20;
  std::vector<std::span<const std::byte>> blocks;
  for (const auto& part : parts)
    for (size_t at = 0; at < part.size(); at += kBlock)
      blocks.push_back(part.subspan(at, std::min(kBlock, part.size() - at)));
  std::vector<uint64_t> sums(blocks.size());
  parallel_for(static_cast<int64_t>(blocks.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      sums[i] = xxh64(blocks[i]);
  });
  return sums;
}
std::string digits_of(std::span<const uint64_t> sums) {
  return hexadecimal(xxh64(std::as_bytes(sums)), kBlocksDigits);
}

}  // namespace

std::string checksum_of_blocks(std::span<const std::span<const std::byte>> parts) {
  return digits_of(sums_of_blocks(parts));
}

void BlocksChecksum::add(std::span<const std::byte> part) {
  const std::vector<uint64_t> more = sums_of_blocks(std::span(&part, 1));
  sums_.insert(sums_.end(), more.begin(), more.end());
}
std::string BlocksChecksum::digits() const { return digits_of(sums_); }

}  // namespace heed
