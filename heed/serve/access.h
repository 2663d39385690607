// Who may ask, and how often: API keys, and requests a minute, an hour and a day in moving windows.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <array>
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

// How often somebody may ask; none: as often as he likes.
struct Rates {
  std::optional<int64_t> minute = {}, hour = {}, day = {};
};

class RateLimit {
 public:
  using Clock = std::chrono::steady_clock;
  // Counts what `who` asks for, if he may ask for so much now; otherwise the limit that is passed,
  // "10 per 1 minute", and nothing is counted.
  std::optional<std::string> take(const std::string& who, int64_t cost, const Rates& rates,
                                  Clock::time_point now = Clock::now());

 private:
  // What was asked in the last minute, hour or day, in sixty parts: a day's is no longer than that.
  struct Window {
    std::deque<std::pair<Clock::time_point, int64_t>> taken;  // until then, so much
    int64_t sum = 0;
  };
  using Windows = std::array<Window, 3>;
  void forget_old(Clock::time_point now);

  std::mutex mutex_;
  std::map<std::string, Windows> windows_;
  Clock::time_point swept_ = {};
};

}  // namespace heed::serve
