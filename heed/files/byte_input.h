// Bytes of a file, a pipe or a terminal, plain or packed (unpack.h), as soon as they are there.
// (zlib's own reader waits until its buffer is full, so whoever writes a line and waits for an
// answer would wait for ever.)
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "heed/files/unpack.h"

namespace heed {

class ByteInput {
 public:
  // Takes the descriptor, and closes it.
  explicit ByteInput(int descriptor);
  ~ByteInput();
  ByteInput(const ByteInput&) = delete;
  ByteInput& operator=(const ByteInput&) = delete;

  // At least one byte, and as many as are there; 0 at the end. Throws Error, whose words go after
  // the input's name, if it is damaged or cut short.
  size_t read(char* to, size_t size);
  // Whether there is something to read, or the end, within this time.
  bool ready(std::chrono::milliseconds wait) const;
  // Where unpacking can begin: this byte of the file is this one of the text. (Files of one member,
  // as gzip and zstd write them, have no such place but their beginning.)
  struct Member {
    uint64_t file = 0, text = 0;
    bool operator==(const Member&) const = default;
  };
  // Goes on at this byte of the text, which must not be behind: at once in a plain file, by reading
  // what is between, or follows that member, in others. False if the text ends before.
  bool skip_to(uint64_t byte, const Member& member);
  // The last one so far that begins at `byte` or before; those before it are forgotten.
  Member member_of(uint64_t byte);
  bool packed() const { return unpacker_ != nullptr; }

 private:
  bool more();  // into raw_; false at the end
  void begin();

  const int descriptor_;
  std::vector<char> raw_;
  size_t begin_ = 0, end_ = 0;
  bool begun_ = false, over_ = false;
  uint64_t at_ = 0, read_ = 0;  // of the text; of the file, up to end_
  std::deque<Member> members_ = {{}};
  std::unique_ptr<Unpacker> unpacker_;  // of what is packed
  bool between_ = false;                // two members of it, or at its end
  std::string damage_ = {};
};

}  // namespace heed
