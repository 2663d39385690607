// One text in several files, read one after the other, and where its lines are.
//
// Threads: a reader serves one at a time; an index does not change, and any number may ask it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/files/lines.h"

namespace heed {

// The files of a text, in their order. A path is those of a text, "" none at all.
class Paths {
 public:
  Paths() = default;
  Paths(const std::string& one) {  // NOLINT: made to be converted to
    if (!one.empty()) all_.push_back(one);
  }
  Paths(const char* one) : Paths(std::string(one)) {}               // NOLINT
  Paths(const std::filesystem::path& one) : Paths(one.string()) {}  // NOLINT
  explicit Paths(std::vector<std::string> all) : all_(std::move(all)) {}

  bool empty() const { return all_.empty(); }
  size_t size() const { return all_.size(); }
  const std::string& operator[](size_t i) const { return all_[i]; }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  // For messages: "a.en", or "a-00.en … a-11.en (12 files)".
  std::string name() const;
  bool operator==(const Paths&) const = default;

 private:
  std::vector<std::string> all_;
};

// Each word as it is where there is such a file; else all files that it matches as a pattern (*, ?,
// [...]), by name. Throws Error where there is none.
Paths expanded(const std::vector<std::string>& words);

// Line after line, as LineReader. A line does not go on in the next file.
class TextReader {
 public:
  struct Position {
    size_t file = 0;
    LineReader::Position in_file = {};
    uint64_t line = 0;  // of the text: lines before it
    bool operator==(const Position&) const = default;
  };

  explicit TextReader(Paths paths) : TextReader(std::move(paths), Position{}) {}
  TextReader(Paths paths, const Position& position);

  std::optional<std::string> next();
  uint64_t skip(uint64_t count);
  Position position() const;

 private:
  bool next_file();

  Paths paths_;
  size_t file_;
  std::optional<LineReader> reader_;
  uint64_t line_;
};

class TextIndex {
 public:
  struct File {
    uint64_t size = 0, modified = 0;  // bytes, nanoseconds
    uint64_t lines = 0, packed = 0;   // packed: 1 or 0
    bool operator==(const File&) const = default;
  };
  // Every so many lines a position is known, within 256 KiB or so.
  static constexpr uint64_t kEvery = 4096;

  TextIndex() = default;
  // Reads all of it. Throws Error for a file that can be read only once, or not at all.
  explicit TextIndex(const Paths& paths);
  // As data() gave it.
  struct Data {
    std::vector<File> files;
    std::vector<TextReader::Position> positions;  // of lines 0, kEvery, 2 kEvery, ...
    uint64_t checksum = 0;                        // of all lines
    bool operator==(const Data&) const = default;
  };
  // Throws Error if no text can have such an index.
  explicit TextIndex(Data data);

  const Data& data() const { return data_; }
  uint64_t lines() const;
  // The last known position at which no more than `line` lines are before.
  TextReader::Position before(uint64_t line) const;
  // Whether every position can be gone to at once: what is packed is so in short pieces.
  bool anywhere() const;
  // Whether the files still have the sizes and times of then.
  bool is_of(const Paths& paths) const;

 private:
  Data data_;
};

}  // namespace heed
