// Translated files that wait to be fetched: in memory, for half an hour, so many bytes at most.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace heed::serve {

class Downloads {
 public:
  struct File {
    std::string name, content;
  };
  // Where it can be fetched: a name that cannot be guessed, and its own after a dot. The oldest go
  // where there is no room.
  std::string keep(File file);
  std::optional<File> find(const std::string& key);

 private:
  using Clock = std::chrono::steady_clock;
  struct Kept {
    File file;
    Clock::time_point since;
  };
  void forget_old(size_t room);

  std::mutex mutex_;
  std::map<std::string, Kept> files_;
  size_t bytes_ = 0;
};

}  // namespace heed::serve
