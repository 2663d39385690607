// Who may ask, and how often: API keys, and requests a minute in a moving window.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace heed::serve {

// What a key may do in place of everybody's limits; not given: as everybody.
struct Key {
  std::optional<int64_t> requests = {};    // a minute
  std::optional<int64_t> characters = {};  // of a text
};

// A file with a key a line and, if wanted, its requests a minute and its characters a text:
// "key 120 5000". "#" begins a comment. Throws Error that names the line.
std::map<std::string, Key> read_keys(const std::filesystem::path& file);

class Keys {
 public:
  void set(std::map<std::string, Key> keys);
  // Takes as long for a key that is nearly right as for any other.
  std::optional<Key> find(const std::string& key) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Key> keys_;
};

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  // Whether `who` may ask for so much now, if he may for `limit` a minute; then it is counted.
  bool take(const std::string& who, int64_t cost, int64_t limit,
            Clock::time_point now = Clock::now());

 private:
  struct Window {
    std::deque<std::pair<Clock::time_point, int64_t>> taken;
    int64_t sum = 0;
  };
  void forget_old(Clock::time_point now);

  std::mutex mutex_;
  std::map<std::string, Window> windows_;
  Clock::time_point swept_ = {};
};

}  // namespace heed::serve
