// Curves for TensorBoard: a file of events, which grows while a run goes on.
//
// A record is, little-endian: u64 length, u32 masked CRC-32C of these eight bytes, the data, u32
// masked CRC-32C of the data (TFRecord). The data is an Event in Protocol Buffers' encoding.
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace heed {

struct Scalar {
  std::string tag;  // "train/loss": what stands before the slash groups curves
  double value = 0;
};

// What the names of event files begin with; TensorBoard finds them by it.
inline constexpr const char* kEventFile = "events.out.tfevents.";

class EventFile {
 public:
  // A new file in `folder`, which is made where it is not there. Its name has the second, the
  // machine, the process and a number, so a run that is resumed goes on in a file of its own.
  // Throws Error if it cannot be.
  explicit EventFile(const std::filesystem::path& folder);

  // What was measured at a step. The record is on its way to the disk when this returns, in one
  // piece: whoever reads meanwhile sees all of it or none. Throws Error if the disk is full.
  void write(int64_t step, std::span<const Scalar> scalars);

  const std::filesystem::path& path() const { return path_; }

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  std::ofstream out_;
};

// Castagnoli's polynomial, reflected: 0x82F63B78.
uint32_t crc32c(std::string_view bytes);

}  // namespace heed
