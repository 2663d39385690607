#include "heed/serve/access.h"

#include <algorithm>
#include <charconv>

#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/files/lines.h"

namespace heed::serve {
namespace {

struct Span {
  const char* name;
  std::chrono::seconds length;
  std::optional<int64_t> Rates::*limit;
};
constexpr std::array<Span, 3> kSpans = {{{"minute", std::chrono::minutes(1), &Rates::minute},
                                         {"hour", std::chrono::hours(1), &Rates::hour},
                                         {"day", std::chrono::hours(24), &Rates::day}}};

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

std::optional<std::string> RateLimit::take(const std::string& who, int64_t cost, const Rates& rates,
                                           Clock::time_point now) {
  if (!rates.minute && !rates.hour && !rates.day) return std::nullopt;
  const std::lock_guard lock(mutex_);
  if (now - swept_ > kSpans[0].length) forget_old(now);
  Windows& windows = windows_[who];
  for (size_t i = 0; i < kSpans.size(); ++i) {
    Window& w = windows[i];
    while (!w.taken.empty() && now - w.taken.front().first >= kSpans[i].length) {
      w.sum -= w.taken.front().second;
      w.taken.pop_front();
    }
    const std::optional<int64_t> limit = rates.*kSpans[i].limit;
    if (limit && w.sum + cost > *limit) return std::to_string(*limit) + " per 1 " + kSpans[i].name;
  }
  for (size_t i = 0; i < kSpans.size(); ++i) {
    if (!(rates.*kSpans[i].limit)) continue;
    Window& w = windows[i];
    w.sum += cost;
    // Together with others of the same part, until the last of them is old.
    if (w.taken.size() > 1 && now - w.taken[w.taken.size() - 2].first < kSpans[i].length / 60)
      w.taken.back() = {now, w.taken.back().second + cost};
    else
      w.taken.emplace_back(now, cost);
  }
  return std::nullopt;
}

void RateLimit::forget_old(Clock::time_point now) {
  swept_ = now;
  std::erase_if(windows_, [&](const auto& one) {
    for (size_t i = 0; i < kSpans.size(); ++i) {
      const auto& taken = one.second[i].taken;
      if (!taken.empty() && now - taken.back().first < kSpans[i].length) return false;
    }
    return true;
  });
}

}  // namespace heed::serve
