// Zip archives, as NumPy (.npz) and PyTorch write them: members stored or deflated. Read by the
// central directory; nothing is believed that the file cannot hold.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heed {

bool is_zip(std::string_view bytes);  // by its first bytes

// Borrows `bytes`.
class Zip {
 public:
  Zip(std::string_view bytes, std::string what);
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return members_.contains(name); }
  // Its bytes, unpacked, compared with their CRC-32.
  std::string read(const std::string& name) const;

 private:
  struct Member {
    uint16_t method = 0;
    uint32_t crc = 0;
    uint64_t packed = 0, size = 0, at = 0;  // `at`: of its local header
  };
  std::string_view bytes_;
  std::string what_;
  std::map<std::string, Member> members_;
};

// An archive of stored members, for files below 4 GiB.
std::string zip_of(std::span<const std::pair<std::string, std::string>> members);

}  // namespace heed
