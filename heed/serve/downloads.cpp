#include "heed/serve/downloads.h"

#include <algorithm>
#include <cstdio>
#include <random>

namespace heed::serve {
namespace {

constexpr std::chrono::minutes kFor{30};
constexpr size_t kBytes = 256 << 20;

// A UUID of version 4 (RFC 9562) from the system's random numbers.
std::string uuid() {
  std::random_device random;
  unsigned words[4];
  for (unsigned& w : words) w = random();
  char text[40];
  std::snprintf(text, sizeof text, "%08x-%04x-4%03x-%04x-%04x%08x", words[0], words[1] >> 16,
                words[1] & 0xfff, 0x8000 | (words[2] >> 16 & 0x3fff), words[2] & 0xffff, words[3]);
  return text;
}

}  // namespace

void Downloads::forget_old(size_t room) {
  const auto drop = [&](auto at) {
    bytes_ -= at->second.file.content.size();
    return files_.erase(at);
  };
  const auto now = Clock::now();
  for (auto at = files_.begin(); at != files_.end();)
    at = now - at->second.since > kFor ? drop(at) : std::next(at);
  while (!files_.empty() && bytes_ + room > kBytes)
    drop(std::min_element(files_.begin(), files_.end(), [](const auto& a, const auto& b) {
      return a.second.since < b.second.since;
    }));
}

std::string Downloads::keep(File file) {
  const std::lock_guard lock(mutex_);
  forget_old(file.content.size());
  bytes_ += file.content.size();
  const std::string key = uuid() + "." + file.name;
  files_[key] = {std::move(file), Clock::now()};
  return key;
}

std::optional<Downloads::File> Downloads::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  forget_old(0);
  const auto at = files_.find(key);
  if (at == files_.end()) return std::nullopt;
  return at->second.file;
}

}  // namespace heed::serve
