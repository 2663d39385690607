// What tells a file from a damaged copy of it.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <filesystem>
#include <string>

namespace heed {

// CRC-32 of all bytes (that of gzip and PNG), as eight hexadecimal digits.
std::string checksum(const std::filesystem::path& file);

}  // namespace heed
