#include "heed/files/lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>

#include "heed/base/check.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 17;
constexpr size_t kLongestLine = size_t{1} << 30;
constexpr char kStandardInput[] = "-";
constexpr char kByteOrderMark[] = "\xEF\xBB\xBF";

std::string system_words(int error) { return std::generic_category().message(error); }

}  // namespace

LineReader::LineReader(const std::string& path)
    : name_(name_of_input(path)), buffer_(kBufferBytes) {
  require(!path.empty(), "cannot read a text file: its path is empty");
  const int descriptor = path == kStandardInput ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                                : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(name_, ": cannot be read: ", system_words(errno));
  struct stat status = {};
  const bool folder = ::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
  input_ = std::make_unique<ByteInput>(descriptor);
  require(!folder, name_, ": is a directory; the name of a text file was wanted");
  constexpr size_t kMarkBytes = sizeof kByteOrderMark - 1;
  if (fill() && end_ >= kMarkBytes && !std::memcmp(buffer_.data(), kByteOrderMark, kMarkBytes)) {
    begin_ = kMarkBytes;
    position_.byte = kMarkBytes;
  }
}

LineReader::LineReader(const std::string& path, Position position) : LineReader(path) {
  if (position.byte <= position_.byte) return;  // the beginning, before or after a byte order mark
  require(path != kStandardInput, name_, ": cannot be read from byte ", position.byte,
          " on; save it to a file");
  // What was filled first is read again.
  if (position.byte - position_.byte <= end_ - begin_) {
    begin_ += position.byte - position_.byte;
    position_ = position;
    return;
  }
  require(input_->skip_to(position.byte, position.member), name_, ": has fewer than ",
          position.byte,
          " bytes, where reading was to go on; is it the file that was read before?");
  begin_ = end_ = 0;
  position_ = position;
}

LineReader::Position LineReader::position() const {
  Position here = position_;
  here.member = input_->member_of(here.byte);
  return here;
}

// Reads into the used-up buffer. False at the end of the file.
bool LineReader::fill() {
  try {
    input_->member_of(position_.byte);  // nobody asks for what was before
    begin_ = 0;
    end_ = input_->read(buffer_.data(), buffer_.size());
  } catch (const Error& error) {
    end_ = 0;
    fail(name_, position_.line > 0 ? ": after line " + std::to_string(position_.line) : "",
         error.what());
  }
  return end_ > 0;
}

// Moves past one line, handing its parts to `append`. False if there is none.
template <class Append>
bool LineReader::advance(Append append) {
  if (begin_ == end_ && !fill()) return false;
  size_t length = 0;
  do {
    const char* const start = buffer_.data() + begin_;
    const auto* const newline = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
    const size_t part = newline ? static_cast<size_t>(newline - start) : end_ - begin_;
    append(start, part);
    length += part;
    require(length <= kLongestLine, name_, ": line ", position_.line + 1,
            " has more than a GiB; is this a text file?");
    begin_ += part;
    position_.byte += part;
    if (newline) {
      ++begin_;
      ++position_.byte;
      break;
    }
  } while (fill());
  ++position_.line;
  return true;
}

std::optional<std::string> LineReader::next() {
  std::string line;
  if (!advance([&](const char* part, size_t size) { line.append(part, size); }))
    return std::nullopt;
  if (line.ends_with('\r')) line.pop_back();
  return line;
}

bool LineReader::ready(std::chrono::milliseconds wait) const {
  return std::memchr(buffer_.data() + begin_, '\n', end_ - begin_) || input_->ready(wait);
}

uint64_t LineReader::skip(uint64_t count) {
  uint64_t skipped = 0;
  while (skipped < count && advance([](const char*, size_t) {})) ++skipped;
  return skipped;
}

void want_file(const std::string& path) {
  require(
      path != "-" && (!std::filesystem::exists(path) || std::filesystem::is_regular_file(path) ||
                      std::filesystem::is_directory(path)),
      path, ": is not a regular file; a text is read several times, so save it to a file");
}

int64_t count_lines(const std::string& path) {
  want_file(path);
  return static_cast<int64_t>(LineReader(path).skip(std::numeric_limits<uint64_t>::max()));
}

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  while (auto line = reader.next()) lines.push_back(std::move(*line));
  return lines;
}

std::string as_text(std::string line, const std::string& where, const BadLine& bad) {
  const std::optional<std::string> trouble = encoding_trouble(line);
  if (!trouble) return line;
  const std::string told = where + ": " + *trouble;
  if (!bad) fail(told);
  bad(told);
  return repaired_utf8(line);
}

std::string name_of_input(const std::string& path) {
  return path == kStandardInput ? "standard input" : path;
}

std::vector<std::string> read_text(const std::string& path, const BadLine& bad) {
  std::vector<std::string> lines = read_lines(path);
  for (size_t i = 0; i < lines.size(); ++i)
    lines[i] =
        as_text(std::move(lines[i]), name_of_input(path) + ": line " + std::to_string(i + 1), bad);
  return lines;
}

std::optional<std::string> first_bad_line(const std::string& path) {
  LineReader reader(path);
  while (const std::optional<std::string> line = reader.next())
    if (const std::optional<std::string> trouble = encoding_trouble(*line))
      return reader.name() + ": line " + std::to_string(reader.position().line) + ": " + *trouble;
  return {};
}

}  // namespace heed
