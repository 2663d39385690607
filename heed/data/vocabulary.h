// Words and their ids, for tokenizers that look words up.
//
// On disk: a UTF-8 file, one entry a line; the line's number, from 0, is the id. The first four
// are the special ones.
//
// Threads: a value; different ones may be used by different threads, one by many that only read
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heed/base/id.h"

namespace heed {

// Ids that stand for no text. Text never encodes to pad, begin or end, not even text that is
// spelled like them.
struct SpecialIds {
  Id pad = 0;      // fills up a batch's shorter rows
  Id unknown = 1;  // whatever the vocabulary does not have
  Id begin = 2;    // what a decoder reads before the first token
  Id end = 3;      // after the last token
  // What a source's tokens stand between.
  bool source_begin = false, source_end = true;
  bool operator==(const SpecialIds&) const = default;

  static constexpr Id kCount = 4;
};

// A source's tokens as an encoder reads them.
inline std::vector<Id> framed(std::span<const Id> source, const SpecialIds& special) {
  std::vector<Id> out;
  if (special.source_begin) out.push_back(special.begin);
  out.insert(out.end(), source.begin(), source.end());
  if (special.source_end) out.push_back(special.end);
  return out;
}

class Vocabulary {
 public:
  // How often each word was seen.
  using Counts = std::unordered_map<std::string, int64_t>;

  struct Limits {
    int64_t size = 0;       // entries at most, the special ones included; 0: no limit
    int64_t min_count = 1;  // rarer words are left out
  };

  // The special entries, then words from frequent to rare; equally frequent ones in the order of
  // their bytes.
  static Vocabulary learn(const Counts& counts, Limits limits);

  // Reads such a file. One of another tool is taken too: what follows a tab is dropped (a score or
  // a count), and special entries that are missing are added at the front.
  static Vocabulary load(const std::filesystem::path& path);

  void save(const std::filesystem::path& path) const;

  // The id of `word`: `unknown` if it is not there or is spelled like a special entry.
  Id id(std::string_view word) const;

  const std::string& operator[](Id id) const;

  Id size() const { return static_cast<Id>(entries_.size()); }
  const SpecialIds& special() const { return special_; }

 private:
  explicit Vocabulary(std::vector<std::string> entries, const std::string& what);

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  std::vector<std::string> entries_;
  std::unordered_map<std::string, Id, Hash, std::equal_to<>> ids_;  // without the special ones
  SpecialIds special_;
};

}  // namespace heed
