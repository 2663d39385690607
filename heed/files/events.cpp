#include "heed/files/events.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "heed/base/check.h"

namespace heed {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ (rest & 1 ? 0x82F63B78u : 0u);
    table[byte] = rest;
  }
  return table;
}

// A CRC of bytes that hold CRCs says little, so those in files are rotated and moved.
uint32_t masked(uint32_t crc) { return std::rotr(crc, 15) + 0xA282EAD8u; }

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string out;
  for (size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
  return out;
}

std::string record(const std::string& data) {
  const std::string length = little_endian(uint64_t{data.size()});
  return length + little_endian(masked(crc32c(length))) + data +
         little_endian(masked(crc32c(data)));
}

// ---- Protocol Buffers: a field is its number and its wire type, then its value.

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>((value & 127) | 128);
  return out + static_cast<char>(value);
}
std::string key(uint64_t field, uint64_t wire_type) { return varint(field << 3 | wire_type); }
std::string number_field(uint64_t field, uint64_t value) { return key(field, 0) + varint(value); }
std::string double_field(uint64_t field, double value) {
  return key(field, 1) + little_endian(std::bit_cast<uint64_t>(value));
}
std::string bytes_field(uint64_t field, const std::string& bytes) {
  return key(field, 2) + varint(bytes.size()) + bytes;
}
std::string float_field(uint64_t field, float value) {
  return key(field, 5) + little_endian(std::bit_cast<uint32_t>(value));
}

// ---- Event: wall_time 1, step 2, file_version 3, summary 5. Summary: value 1. Value: tag 1,
// simple_value 2.

std::string now() {
  const std::chrono::duration<double> time = std::chrono::system_clock::now().time_since_epoch();
  return double_field(1, time.count());
}

std::string summary(std::span<const Scalar> scalars) {
  std::string values;
  for (const Scalar& s : scalars)
    values += bytes_field(1, bytes_field(1, s.tag) + float_field(2, static_cast<float>(s.value)));
  return bytes_field(5, values);
}

std::filesystem::path new_name(const std::filesystem::path& folder) {
  static std::atomic<int> number = 0;
  char machine[256] = "";
  if (gethostname(machine, sizeof machine - 1) != 0) machine[0] = '\0';
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  const std::string stem = kEventFile + std::to_string(seconds) + "." +
                           (machine[0] ? machine : "heed") + "." + std::to_string(getpid()) + ".";
  std::filesystem::path path;
  // A container's processes have the same numbers each time.
  do path = folder / (stem + std::to_string(number++));
  while (std::filesystem::exists(path));
  return path;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require(
      !error && std::filesystem::is_directory(folder), folder.string(),
      ": the folder for TensorBoard cannot be made: ", error ? error.message() : "it is a file");
  path_ = new_name(folder);
  out_.open(path_, std::ios::binary);
  require(out_.good(), path_.string(), ": cannot be written to: ", std::strerror(errno));
  append(now() + bytes_field(3, "brain.Event:2"));
}

void EventFile::write(int64_t step, std::span<const Scalar> scalars) {
  append(now() + number_field(2, static_cast<uint64_t>(step)) + summary(scalars));
}

void EventFile::append(const std::string& event) {
  const std::string bytes = record(event);
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out_.flush();
  require(out_.good(), path_.string(), ": cannot be written to: ", std::strerror(errno));
}

}  // namespace heed
