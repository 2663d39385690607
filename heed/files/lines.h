// Text, line by line: plain or gzip files, or standard input.
//
// A line ends with "\n" or "\r\n", and neither belongs to it; the last one may lack it. All text is
// UTF-8: a line that is not, and a file that cannot be read to its end, is an Error that names the
// file and the line.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

class LineReader {
 public:
  // "-" is standard input. Whether a file is gzip is seen from its first bytes, not from its name.
  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // The next line, which is borrowed until the next call; nothing at the end.
  std::optional<std::string_view> next();
  // How many lines next() has given.
  size_t count() const { return count_; }
  // What errors call the file: its path, or "standard input".
  const std::string& name() const { return name_; }

 private:
  bool read_more();

  std::string name_;
  struct Stream;
  std::unique_ptr<Stream> stream_;
  std::string buffer_;
  size_t at_ = 0;  // where the next line begins in buffer_
  size_t count_ = 0;
  bool at_end_ = false;
};

// All lines of a file.
std::vector<std::string> read_lines(const std::string& path);

}  // namespace heed
