#include "heed/files/byte_input.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "heed/base/check.h"

namespace heed {
namespace {

constexpr size_t kRawBytes = size_t{1} << 17;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

ByteInput::ByteInput(int descriptor) : descriptor_(descriptor), raw_(kRawBytes) {}
ByteInput::~ByteInput() { ::close(descriptor_); }

bool ByteInput::ready(std::chrono::milliseconds wait) const {
  if (begin_ < end_ || over_) return true;
  pollfd one{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, static_cast<int>(wait.count())) != 0;
}

bool ByteInput::more() {
  if (over_) return false;
  if (begin_ == end_) begin_ = end_ = 0;
  ssize_t count = 0;
  do count = ::read(descriptor_, raw_.data() + end_, raw_.size() - end_);
  while (count < 0 && errno == EINTR);
  if (count < 0) fail(": cannot be read: ", std::generic_category().message(errno));
  over_ = count == 0;
  read_ += static_cast<uint64_t>(count);
  end_ += static_cast<size_t>(count);
  return count > 0;
}

// As many bytes as say what this is.
void ByteInput::begin() {
  if (std::exchange(begun_, true)) return;
  const auto so_far = [&] { return std::string_view(raw_.data(), end_); };
  while (more() && (could_be_packed(so_far()) || (so_far().size() < kByteOrderMark.size() &&
                                                  kByteOrderMark.starts_with(so_far())))) {
  }
  unpacker_ = unpacker_for(so_far());
}

size_t ByteInput::read(char* to, size_t size) {
  begin();
  if (!unpacker_) {
    if (begin_ == end_ && !more()) return 0;
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(to, raw_.data() + begin_, count);
    begin_ += count;
    at_ += count;
    return count;
  }
  size_t written = 0;
  while (written == 0 && damage_.empty()) {
    const bool ended = begin_ == end_ && !more();
    if (ended && between_) return 0;
    if (between_) {
      if (raw_[begin_] == '\0') {  // xz pads its streams with zeros, tapes any file
        ++begin_;
        continue;
      }
      // What follows a member is another one; anything else belongs to nobody, as gzip has it.
      if (!unpacker_->can_begin(raw_[begin_])) {
        begin_ = end_;
        continue;
      }
      unpacker_->begin_again();
      between_ = false;
      if (members_.back().text == at_) members_.pop_back();  // it had no text
      members_.push_back({.file = read_ - (end_ - begin_), .text = at_});
    }
    Unpacker::Step step;
    try {
      step = unpacker_->step({raw_.data() + begin_, end_ - begin_}, {to, size});
    } catch (const Error& error) {
      damage_ = error.what();
      break;
    }
    // At the end of the file the unpacker may still have something.
    if (ended && step.written == 0 && !step.whole)
      fail(": the ", unpacker_->name(), " file ends too early");
    begin_ += step.read;
    written = step.written;
    between_ = step.whole;
  }
  if (written == 0) fail(": damaged ", unpacker_->name(), " file (", damage_, ")");
  at_ += written;
  return written;
}

ByteInput::Member ByteInput::member_of(uint64_t byte) {
  while (members_.size() > 1 && members_[1].text <= byte) members_.pop_front();
  return members_.front();
}

bool ByteInput::skip_to(uint64_t byte, const Member& member) {
  begin();
  const uint64_t in_file = unpacker_ ? member.file : byte;
  const uint64_t in_text = unpacker_ ? member.text : byte;
  if (in_text > at_ && in_file > read_) {
    const off_t end = ::lseek(descriptor_, 0, SEEK_END);
    if (end >= 0) {
      if (static_cast<uint64_t>(end) < in_file) return false;
      require(::lseek(descriptor_, static_cast<off_t>(in_file), SEEK_SET) >= 0,
              ": cannot be read from byte ", in_file, " on");
      begin_ = end_ = 0, over_ = false;
      at_ = in_text, read_ = in_file;
      if (unpacker_) {
        unpacker_->begin_again();
        between_ = false;
        members_ = {member};
      }
    }
  }
  std::vector<char> passed(kRawBytes);
  while (at_ < byte)
    if (read(passed.data(), std::min<uint64_t>(passed.size(), byte - at_)) == 0) return false;
  return true;
}

}  // namespace heed
