#include "heed/files/lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <iomanip>
#include <sstream>
#include <system_error>

#include "heed/base/check.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

constexpr size_t kChunk = size_t{1} << 16;

std::string system_words(int error) { return std::generic_category().message(error); }

std::string hex(char byte) {
  std::ostringstream out;
  out << "0x" << std::hex << std::uppercase << std::setw(2) << std::setfill('0')
      << static_cast<int>(static_cast<unsigned char>(byte));
  return out.str();
}

}  // namespace

// zlib's reader takes plain files as they are.
struct LineReader::Stream {
  explicit Stream(int descriptor) : file(::gzdopen(descriptor, "rb")) {
    if (!file) ::close(descriptor);
  }
  ~Stream() {
    if (file) ::gzclose(file);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  gzFile file;
};

LineReader::LineReader(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  const int descriptor = path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                     : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    const int error = errno;
    fail(name_, ": cannot be opened: ", system_words(error));
  }
  struct stat status = {};
  const bool folder = ::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode);
  stream_ = std::make_unique<Stream>(descriptor);
  require(!folder, name_, ": is a directory; the name of a file was wanted");
  require(stream_->file != nullptr, name_, ": no memory to read it");
}

LineReader::~LineReader() = default;

// Appends to the buffer what comes next; false at the end.
bool LineReader::read_more() {
  buffer_.erase(0, at_);
  at_ = 0;
  const size_t have = buffer_.size();
  buffer_.resize(have + kChunk);
  const int got = ::gzread(stream_->file, buffer_.data() + have, kChunk);
  buffer_.resize(have + static_cast<size_t>(got > 0 ? got : 0));
  if (got > 0) return true;
  // At the end of a stream that is cut short zlib gives what it has, then says Z_BUF_ERROR.
  int error = Z_OK;
  const char* const words = ::gzerror(stream_->file, &error);
  const std::string system = error == Z_ERRNO ? system_words(errno) : "";
  require(error != Z_BUF_ERROR, name_, ": cut short after line ", count_,
          ": the gzip stream has no end; copy the file again");
  require(error == Z_OK || error == Z_STREAM_END, name_, ": cannot be read after line ", count_,
          ": ", error == Z_ERRNO ? system : std::string(words));
  return false;
}

std::optional<std::string_view> LineReader::next() {
  size_t end = buffer_.find('\n', at_);
  while (end == buffer_.npos && !at_end_) {
    const size_t searched = buffer_.size() - at_;
    at_end_ = !read_more();
    end = buffer_.find('\n', searched);
  }
  if (end == buffer_.npos && at_ == buffer_.size()) return {};
  std::string_view line(buffer_);
  line = line.substr(at_, end == buffer_.npos ? buffer_.npos : end - at_);
  at_ = end == buffer_.npos ? buffer_.size() : end + 1;
  if (line.ends_with('\r')) line.remove_suffix(1);
  ++count_;
  if (const std::optional<size_t> wrong = utf8_error(line))
    fail(name_, ":", count_, ": not UTF-8: byte ", *wrong + 1, " is ", hex(line[*wrong]),
         "; convert the file first, as with iconv -f latin1 -t utf-8");
  return line;
}

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  while (const std::optional<std::string_view> line = reader.next()) lines.emplace_back(*line);
  return lines;
}

}  // namespace heed
