// The words that a translation may have, by the words of its source: a lexical shortlist, as
// Marian's and Firefox's models have them beside their weights. An output layer then computes these
// alone. Its file is theirs:
//
//   u64 magic, u64 checksum of what follows, u64 first, u64 best, u64 words + 1, u64 entries,
//   u64 offsets [words + 1], u32 ids [entries], rising within a word
//
// The `first` smallest ids are always allowed. Words are the model's pieces. The checksum is read and
// written by Marian alone.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/alignment/aligner.h"
#include "heed/data/tokenizer.h"

namespace heed {

class Shortlist {
 public:
  // Throws Error that begins with `what` for bytes that are not such a file.
  Shortlist(std::string_view bytes, const std::string& what);
  // Of each source word those of targets[word], in any order, and of every source `always`.
  Shortlist(const std::vector<std::vector<Id>>& targets, const std::vector<Id>& always);

  // Those of a source's tokens, rising.
  std::vector<Id> of(std::span<const Id> source) const;

  int64_t source_words() const { return std::ssize(offsets_) - 1; }
  Id largest() const { return largest_; }  // of all ids
  std::string bytes() const;               // of its file; the checksum is 0

 private:
  std::span<const Id> entries(size_t word) const;

  uint64_t first_ = 0;
  std::vector<uint64_t> offsets_;
  std::vector<Id> ids_;
  Id largest_ = 0;
};

// The name that it has in a model's folder.
inline constexpr const char* kShortlistName = "shortlist.bin";

struct ShortlistOptions {
  int64_t always = 100;  // target pieces that are always allowed: the most frequent ones
  int64_t best = 100;    // target pieces of a source piece at most: the most probable ones
  std::function<void(const AlignerProgress&)> progress = {};
};

// From sentence pairs: what each source piece is linked with, by an aligner that learns from the
// pairs' pieces. Always allowed are also the end, and the unknown where a vocabulary needs it; of a
// source piece that is a target piece too, that one. Throws Error as WordAligner::learn() does.
Shortlist learn_shortlist(const TokenizerPair& tokenizers, std::span<const std::string> sources,
                          std::span<const std::string> targets,
                          const ShortlistOptions& options = {});

// From a file: a binary one as above, or a lexicon as 'heed align --keep-case --lexicon' writes it,
// source word, target word and probability with tabs between, whose words are cut into pieces.
// Throws Error that says what is wrong.
Shortlist read_shortlist(const std::filesystem::path& file, const TokenizerPair& tokenizers,
                         const ShortlistOptions& options = {});

}  // namespace heed
