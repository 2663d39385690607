#include "heed/translation/shortlist.h"

#include <algorithm>
#include <cstring>

#include "heed/base/check.h"

namespace heed {
namespace {

constexpr uint64_t kMagic = 0xF11A48D5013417F5;
constexpr size_t kHeader = 48;

template <class T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

}  // namespace

Shortlist::Shortlist(std::string_view bytes, const std::string& what) {
  require(bytes.size() >= kHeader && number_at<uint64_t>(bytes, 0) == kMagic, what,
          ": not a binary shortlist of Marian's");
  first_ = number_at<uint64_t>(bytes, 16);
  const auto offsets = number_at<uint64_t>(bytes, 32), entries = number_at<uint64_t>(bytes, 40);
  require(offsets > 0 && offsets <= bytes.size() / 8 && entries <= bytes.size() / 4 &&
              bytes.size() == kHeader + 8 * offsets + 4 * entries,
          what, ": a shortlist of ", offsets, " offsets and ", entries, " entries in ",
          bytes.size(), " bytes; it is damaged");
  for (uint64_t i = 0; i < offsets; ++i) {
    offsets_.push_back(number_at<uint64_t>(bytes, kHeader + 8 * i));
    require(offsets_[i] <= entries && (i == 0 || offsets_[i - 1] <= offsets_[i]), what, ": word ",
            i, " of the shortlist has no entries; it is damaged");
  }
  constexpr uint64_t kMost = 1 << 30;
  require(first_ <= kMost, what, ": a shortlist that always allows ", first_, " words");
  largest_ = static_cast<Id>(first_ > 0 ? first_ - 1 : 0);
  for (uint64_t i = 0; i < entries; ++i) {
    const auto id = number_at<uint32_t>(bytes, kHeader + 8 * offsets + 4 * i);
    require(id <= kMost, what, ": the shortlist has id ", id);
    ids_.push_back(static_cast<Id>(id));
    largest_ = std::max(largest_, ids_.back());
  }
}

std::vector<Id> Shortlist::of(std::span<const Id> source) const {
  std::vector<Id> out(first_);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<Id>(i);
  for (const Id w : source) {
    if (w < 0 || w >= source_words()) continue;  // such as what was added to begin with
    const auto word = static_cast<size_t>(w);
    const auto entry = [&](size_t i) {
      return ids_.begin() + static_cast<std::ptrdiff_t>(offsets_[i]);
    };
    out.insert(out.end(), entry(word), entry(word + 1));
  }
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

}  // namespace heed
