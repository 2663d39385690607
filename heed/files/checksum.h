// What tells a file from a damaged copy of it.
#pragma once

#include <filesystem>
#include <string>

namespace heed {

// CRC-32 of all bytes (that of gzip and PNG), as eight hexadecimal digits.
std::string checksum(const std::filesystem::path& file);

}  // namespace heed
