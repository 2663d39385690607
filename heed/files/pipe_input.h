// Bytes of a pipe or a terminal, plain or gzip, as soon as they are there. (zlib's own reader waits
// until its buffer is full, so whoever writes a line and waits for an answer would wait for ever.)
//
// Threads: an object serves one at a time; different ones are independent.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace heed {

class PipeInput {
 public:
  // Takes the descriptor, and closes it.
  explicit PipeInput(int descriptor);
  ~PipeInput();
  PipeInput(const PipeInput&) = delete;
  PipeInput& operator=(const PipeInput&) = delete;

  // At least one byte, and as many as are there; 0 at the end. Throws Error, whose words go after
  // the input's name, if it is damaged or cut short.
  size_t read(char* to, size_t size);
  // Whether there is something to read, or the end, within this time.
  bool ready(std::chrono::milliseconds wait) const;

 private:
  struct Inflate;
  bool more();  // into raw_; false at the end

  const int descriptor_;
  std::vector<char> raw_;
  size_t begin_ = 0, end_ = 0;
  bool begun_ = false, over_ = false;
  std::unique_ptr<Inflate> inflate_;  // of gzip
};

}  // namespace heed
