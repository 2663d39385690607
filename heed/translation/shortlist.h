// The words that a translation may have, by the words of its source: a lexical shortlist, as
// Marian's and Firefox's models have them beside their weights. Its file is theirs:
//
//   u64 magic, u64 checksum of what follows, u64 first, u64 best, u64 words + 1, u64 entries,
//   u64 offsets [words + 1], u32 ids [entries], rising within a word
//
// The `first` smallest ids are always allowed.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/data/tokenizer.h"

namespace heed {

class Shortlist {
 public:
  // Throws Error that begins with `what` for bytes that are not such a file.
  Shortlist(std::string_view bytes, const std::string& what);

  // Those of a source's tokens, rising.
  std::vector<Id> of(std::span<const Id> source) const;

  int64_t source_words() const { return std::ssize(offsets_) - 1; }
  Id largest() const { return largest_; }  // of all ids

 private:
  uint64_t first_ = 0;
  std::vector<uint64_t> offsets_;
  std::vector<Id> ids_;
  Id largest_ = 0;
};

// The name that it has in a model's folder.
inline constexpr const char* kShortlistName = "shortlist.bin";

}  // namespace heed
