#include "heed/serve/access.h"

#include <algorithm>
#include <charconv>

#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/files/lines.h"

namespace heed::serve {
namespace {

constexpr std::chrono::minutes kWindow{1};

bool equal_in_constant_time(const std::string& a, const std::string& b) {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    different |=
        static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(i < b.size() ? b[i] : '\0');
  return different == 0;
}

}  // namespace

std::map<std::string, Key> read_keys(const std::filesystem::path& file) {
  std::map<std::string, Key> out;
  int64_t number = 0;
  for (const std::string& line : read_text(file.string())) {
    ++number;
    const auto words = split_words(std::string_view(line).substr(0, line.find('#')));
    if (words.empty()) continue;
    const auto limit = [&](size_t i) -> std::optional<int64_t> {
      if (i >= words.size()) return std::nullopt;
      int64_t value = 0;
      const auto [end, failed] =
          std::from_chars(words[i].data(), words[i].data() + words[i].size(), value);
      require(failed == std::errc() && end == words[i].data() + words[i].size(), file.string(),
              ": line ", number, ": wants a key, requests a minute and characters a text; given '",
              words[i], "'");
      return value;
    };
    require(words.size() <= 3, file.string(), ": line ", number,
            ": wants at most three words, has ", words.size());
    out[std::string(words[0])] = {limit(1), limit(2)};
  }
  return out;
}

void Keys::set(std::map<std::string, Key> keys) {
  const std::lock_guard lock(mutex_);
  keys_ = std::move(keys);
}

std::optional<Key> Keys::find(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  std::optional<Key> found;
  for (const auto& [known, limits] : keys_)
    if (equal_in_constant_time(key, known)) found = limits;
  return found;
}

bool RateLimit::take(const std::string& who, int64_t cost, int64_t limit, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now - swept_ > kWindow) forget_old(now);
  Window& window = windows_[who];
  while (!window.taken.empty() && now - window.taken.front().first >= kWindow) {
    window.sum -= window.taken.front().second;
    window.taken.pop_front();
  }
  if (window.sum + cost > limit) return false;
  window.taken.emplace_back(now, cost);
  window.sum += cost;
  return true;
}

void RateLimit::forget_old(Clock::time_point now) {
  swept_ = now;
  std::erase_if(windows_, [&](const auto& one) {
    return one.second.taken.empty() || now - one.second.taken.back().first >= kWindow;
  });
}

}  // namespace heed::serve
