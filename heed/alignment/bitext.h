// Sentence pairs as an aligner sees them: numbers for words.
//
// A word, between ASCII whitespace, is put into lower case, and punctuation at its ends is taken
// off as a piece of its own: text need not be tokenized, and "Freitag," counts as a "freitag".
// Apostrophes stay, since they make words ("l'", "'s"). Every piece has a stem, its first four
// characters, with which rare words share what they know.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed {

// The pieces of one language, by number; 0 is the empty word, and has the empty stem.
class PieceIds {
 public:
  // With a `parent`, its numbers come first and stay as they are; it must outlive this.
  explicit PieceIds(const PieceIds* parent = nullptr);

  uint32_t add(std::string_view piece);  // its number, a new one if it has none
  uint32_t size() const { return first_ + static_cast<uint32_t>(pieces_.size()); }
  const std::string& piece(uint32_t id) const {
    return id < first_ ? parent_->piece(id) : *pieces_[id - first_];
  }
  uint32_t stem(uint32_t id) const { return id < first_ ? parent_->stem(id) : stems_[id - first_]; }
  uint32_t stem_count() const { return first_stem_ + static_cast<uint32_t>(stem_ids_.size()); }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  using Map = std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>>;
  // 0 and up; size() or stem_count() for what is not there.
  uint32_t find(std::string_view piece) const;
  uint32_t find_stem(std::string_view stem) const;

  const PieceIds* parent_;
  uint32_t first_ = 0, first_stem_ = 0;
  Map ids_, stem_ids_;
  std::vector<const std::string*> pieces_;  // keys of ids_, which stay where they are
  std::vector<uint32_t> stems_;
};

// One side of all pairs.
struct BitextSide {
  // Which word of its line a piece belongs to, and whether it is punctuation at a word's end, which
  // makes no link.
  static constexpr uint16_t kAttached = 0x8000;

  std::vector<uint32_t> ids;          // all sentences, one after the other
  std::vector<uint16_t> word;         // of each piece, with kAttached
  std::vector<uint64_t> begin = {0};  // where each sentence begins, and where the last ends

  size_t sentences() const { return begin.size() - 1; }
  uint32_t length(size_t sentence) const {
    return static_cast<uint32_t>(begin[sentence + 1] - begin[sentence]);
  }
  std::span<const uint32_t> pieces(size_t sentence) const {
    return {ids.data() + begin[sentence], length(sentence)};
  }
  const uint16_t* words(size_t sentence) const { return word.data() + begin[sentence]; }
};

struct BitextOptions {
  bool lower_case = true;
};

// Pieces of a line at most: a longer one is taken for empty (`too_long` counts), since the time for
// a pair grows with the third power of its length.
inline constexpr uint32_t kLongestLine = 2048;

// The lines of one side. Throws Error for one that is not UTF-8.
BitextSide read_side(std::span<const std::string> lines, PieceIds& ids, BitextOptions options,
                     int64_t& too_long);

}  // namespace heed
