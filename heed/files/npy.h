// NumPy's file format for one array (version 1.0), so that vectors can be read with numpy.load().
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace heed {

// What stands before the elements: the magic bytes, the version, the length of the description, and
// the description, padded so that the elements begin at a multiple of 64.
std::string npy_header(std::span<const int64_t> shape);

// Writes a row-major array of f32, whole or not at all (atomic_file.h).
void write_npy(const std::filesystem::path& path, std::span<const int64_t> shape,
               std::span<const float> values);

}  // namespace heed
