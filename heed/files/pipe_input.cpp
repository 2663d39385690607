#include "heed/files/pipe_input.h"

#include <poll.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "heed/base/check.h"

namespace heed {
namespace {

constexpr size_t kRawBytes = size_t{1} << 16;
constexpr char kGzip[] = {'\x1f', '\x8b'};
constexpr char kByteOrderMark[] = {'\xEF', '\xBB', '\xBF'};

// Whether more bytes are wanted to say what this is the beginning of.
bool could_be(const char* begin, size_t size, const char* mark, size_t mark_size) {
  return size < mark_size && std::memcmp(begin, mark, size) == 0;
}

}  // namespace

struct PipeInput::Inflate {
  Inflate() { require(inflateInit2(&stream, 15 + 16) == Z_OK, "no memory for unpacking"); }
  ~Inflate() { inflateEnd(&stream); }

  z_stream stream = {};
  bool between = false;  // two members of a file, or its end
  std::string damage = {};
};

PipeInput::PipeInput(int descriptor) : descriptor_(descriptor), raw_(kRawBytes) {}
PipeInput::~PipeInput() { ::close(descriptor_); }

bool PipeInput::ready(std::chrono::milliseconds wait) const {
  if (begin_ < end_ || over_) return true;
  pollfd one{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, static_cast<int>(wait.count())) != 0;
}

bool PipeInput::more() {
  if (over_) return false;
  if (begin_ == end_) begin_ = end_ = 0;
  ssize_t count = 0;
  do count = ::read(descriptor_, raw_.data() + end_, raw_.size() - end_);
  while (count < 0 && errno == EINTR);
  if (count < 0) fail(": cannot be read: ", std::generic_category().message(errno));
  over_ = count == 0;
  end_ += static_cast<size_t>(count);
  return count > 0;
}

size_t PipeInput::read(char* to, size_t size) {
  if (!begun_) {
    begun_ = true;
    while (more() && (could_be(raw_.data(), end_, kGzip, sizeof kGzip) ||
                      could_be(raw_.data(), end_, kByteOrderMark, sizeof kByteOrderMark))) {
    }
    if (end_ >= sizeof kGzip && std::memcmp(raw_.data(), kGzip, sizeof kGzip) == 0)
      inflate_ = std::make_unique<Inflate>();
  }
  if (!inflate_) {
    if (begin_ == end_ && !more()) return 0;
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(to, raw_.data() + begin_, count);
    begin_ += count;
    return count;
  }
  z_stream& z = inflate_->stream;
  z.next_out = reinterpret_cast<Bytef*>(to);
  z.avail_out = static_cast<uInt>(size);
  while (z.avail_out == size && inflate_->damage.empty()) {
    if (begin_ == end_ && !more()) {
      if (!inflate_->between) fail(": the gzip file ends too early");
      return 0;
    }
    if (inflate_->between) {
      // What follows a member is another one; anything else belongs to nobody, as gzip has it.
      if (raw_[begin_] != kGzip[0]) {
        begin_ = end_;
        continue;
      }
      inflateReset(&z);
      inflate_->between = false;
    }
    z.next_in = reinterpret_cast<Bytef*>(raw_.data() + begin_);
    z.avail_in = static_cast<uInt>(end_ - begin_);
    const int code = inflate(&z, Z_NO_FLUSH);
    begin_ = end_ - z.avail_in;
    if (code == Z_STREAM_END)
      inflate_->between = true;
    else if (code != Z_OK && code != Z_BUF_ERROR)
      inflate_->damage = z.msg ? z.msg : "unpacking failed";
    // What was read before it comes first.
    if (!inflate_->damage.empty()) break;
  }
  if (z.avail_out == size && !inflate_->damage.empty())
    fail(": damaged gzip file (", inflate_->damage, ")");
  return size - z.avail_out;
}

}  // namespace heed
