// Event files, read back by a reader of their own.
#include "heed/files/events.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <map>
#include <optional>
#include <vector>

#include "tests/folder.h"

namespace heed {
namespace {

// CRC-32C as it is defined: the remainder by 0x1EDC6F41 of the message, each byte's lowest bit
// first, bit by bit.
uint32_t crc_by_bits(std::string_view bytes) {
  uint32_t rest = ~0u;
  for (const char byte : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const uint32_t top = rest >> 31 ^ (static_cast<uint32_t>(byte) >> bit & 1);
      rest = rest << 1 ^ (top ? 0x1EDC6F41u : 0u);
    }
  uint32_t turned = 0;
  for (int bit = 0; bit < 32; ++bit) turned |= (~rest >> bit & 1) << (31 - bit);
  return turned;
}

template <class T>
T taken(std::string_view& bytes) {
  T value;
  require(bytes.size() >= sizeof value, "cut short");
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

uint64_t taken_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = taken<uint8_t>(bytes);
    value |= static_cast<uint64_t>(byte & 127) << shift;
    if (byte < 128) return value;
  }
}

// A message of Protocol Buffers: its fields by number, in order; numbers as their bytes.
std::multimap<uint64_t, std::string> message_fields(std::string_view bytes) {
  std::multimap<uint64_t, std::string> out;
  while (!bytes.empty()) {
    const uint64_t key = taken_varint(bytes), kind = key & 7;
    if (kind == 0) {
      out.emplace(key >> 3, std::to_string(taken_varint(bytes)));
      continue;
    }
    require(kind == 1 || kind == 2 || kind == 5, "wire type ", kind);
    const size_t size = kind == 1 ? 8 : kind == 5 ? 4 : taken_varint(bytes);
    require(size <= bytes.size(), "a field cut short");
    out.emplace(key >> 3, bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return out;
}

template <class T>
T number_in(const std::string& bytes) {
  std::string_view rest = bytes;
  return taken<T>(rest);
}

struct Event {
  double time = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
};

std::vector<Event> events_in(const std::string& file) {
  std::string_view bytes = file;
  const auto expect_crc = [](uint32_t stored, std::string_view of) {
    const uint32_t turned = stored - 0xA282EAD8u;
    EXPECT_EQ(turned << 15 | turned >> 17, crc_by_bits(of));
  };
  std::vector<Event> out;
  while (!bytes.empty()) {
    const std::string_view length_bytes = bytes.substr(0, 8);
    const uint64_t length = taken<uint64_t>(bytes);
    expect_crc(taken<uint32_t>(bytes), length_bytes);
    require(length <= bytes.size(), "a record cut short");
    const std::string_view data = bytes.substr(0, length);
    bytes.remove_prefix(length);
    expect_crc(taken<uint32_t>(bytes), data);
    Event event;
    for (const auto& [field, value] : message_fields(data)) {
      if (field == 1) event.time = number_in<double>(value);
      if (field == 2) event.step = std::stoll(value);
      if (field == 3) event.version = value;
      if (field != 5) continue;
      for (const auto& [summary_field, scalar] : message_fields(value)) {
        EXPECT_EQ(summary_field, 1u);
        const auto parts = message_fields(scalar);
        event.scalars[parts.find(1)->second] = number_in<float>(parts.find(2)->second);
      }
    }
    out.push_back(event);
  }
  return out;
}

TEST(Events, Crc32cIsCastagnolis) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);    // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);  // the same
  EXPECT_EQ(crc32c(""), 0u);
  std::string all;
  for (int i = 0; i < 256; ++i) {
    all += static_cast<char>(i);
    EXPECT_EQ(crc32c(all), crc_by_bits(all));
  }
}

TEST(Events, AnotherReaderReadsThem) {
  const Folder folder;
  const double before = double(std::time(nullptr));
  EventFile file(folder / "curves/run");
  file.write(1, std::vector<Scalar>{{"train/loss", 2.5}, {"train/rate", 1e-3}});
  file.write(300'000'000'000, std::vector<Scalar>{{std::string(200, 'x'), NAN}});
  // What was written is there, also while the file is open.
  const std::vector<Event> events = events_in(read(file.path()));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_TRUE(events[0].scalars.empty());
  EXPECT_EQ(events[1].version, "");
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].scalars,
            (std::map<std::string, float>{{"train/loss", 2.5f}, {"train/rate", 1e-3f}}));
  EXPECT_EQ(events[2].step, 300'000'000'000);
  EXPECT_TRUE(std::isnan(events[2].scalars.at(std::string(200, 'x'))));
  for (const Event& event : events) {
    EXPECT_GE(event.time, before);
    EXPECT_LT(event.time, before + 60);
  }
}

TEST(Events, EveryWriterHasAFileOfItsOwn) {
  const Folder folder;
  const EventFile first(folder.path()), second(folder.path());
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(first.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
  EXPECT_EQ(events_in(read(first.path())).size(), 1u);
}

TEST(Events, WhatCannotBeWrittenIsAnError) {
  const Folder folder;
  const std::string taken = folder.put("taken", "");
  EXPECT_TRUE(has(message([&] { EventFile file(taken); }), "taken: the folder for TensorBoard"));
  EXPECT_TRUE(has(message([&] { EventFile file(taken + "/in"); }), "cannot be made"));
  if (geteuid() == 0) return;
  std::filesystem::create_directory(folder / "closed");
  std::filesystem::permissions(folder / "closed", std::filesystem::perms::owner_read);
  EXPECT_TRUE(has(message([&] { EventFile file(folder / "closed"); }), "Permission denied"));
}

}  // namespace
}  // namespace heed
