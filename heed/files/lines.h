// Text line by line, from a file, plain or packed (gzip, zstd, xz), or from standard input, without
// ever holding the whole of it.
//
// Which of them a file is, its first bytes say, not its name. A line is what stands before "\n",
// less a "\r" at its end (files from Windows); the byte order mark that some editors put at the
// beginning of a file is dropped. Nothing else is changed: whether the text is UTF-8 is for the
// caller to ask (base/unicode.h).
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heed/files/byte_input.h"

namespace heed {

class LineReader {
 public:
  // A place between two lines. Bytes are counted in the text as it is after unpacking.
  struct Position {
    uint64_t byte = 0;
    uint64_t line = 0;              // lines before it
    ByteInput::Member member = {};  // of a packed file, where unpacking can begin
    bool operator==(const Position&) const = default;
  };

  // "-" is standard input. Throws Error if the file is absent, unreadable or a directory.
  explicit LineReader(const std::string& path);
  // Goes on where another reader of the same file was. In a packed file this unpacks what of its
  // member is before. Standard input can only be read from its beginning.
  LineReader(const std::string& path, Position position);

  // The next line; nothing at the end. Throws Error if the file is damaged or cut short, or has a
  // line of more than a GiB, which no text has.
  std::optional<std::string> next();

  // Whether something can be read within this time, or it is the end. A pipe or a terminal may make
  // next() wait, a file never does.
  bool ready(std::chrono::milliseconds wait) const;

  // Passes over up to `count` lines and says how many there were.
  uint64_t skip(uint64_t count);

  // Where next() will read.
  Position position() const;
  bool packed() const { return input_->packed(); }
  // What errors call it: the path, or "standard input".
  const std::string& name() const { return name_; }

 private:
  bool fill();
  template <class Append>
  bool advance(Append append);

  std::string name_;
  std::unique_ptr<ByteInput> input_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // what of the buffer is still unread
  Position position_;
};

// Throws Error if it can be read only once, as a pipe. (One that is not there is its reader's.)
void want_file(const std::string& path);

// How many lines a file has that can be read again.
int64_t count_lines(const std::string& path);

// Is told of a line that is not UTF-8: where it is, what is wrong with it, and what to do.
using BadLine = std::function<void(const std::string& told)>;

// `line`, which stands at `where` ("a.de: line 3"), if it is UTF-8. If it is not, it comes with
// U+FFFD for what is bad, and `bad` is told; without `bad` this throws Error.
std::string as_text(std::string line, const std::string& where, const BadLine& bad = {});

// What errors call a path: "-" is standard input.
std::string name_of_input(const std::string& path);

// All lines of a file, or with "-" of standard input.
std::vector<std::string> read_lines(const std::string& path);
// The same as_text().
std::vector<std::string> read_text(const std::string& path, const BadLine& bad = {});

// Where the first line of a file is that is not UTF-8, and what is wrong with it; nothing if all
// are.
std::optional<std::string> first_bad_line(const std::string& path);

}  // namespace heed
