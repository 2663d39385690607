#include "heed/alignment/bitext.h"

#include <algorithm>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/base/words.h"

namespace heed {
namespace {

constexpr size_t kStemCharacters = 4;

bool is_apostrophe(char32_t c) { return c == U'\'' || c == U'’'; }

bool is_edge(char32_t c) { return is_punctuation(c) && !is_apostrophe(c); }

std::string_view stem_of(std::string_view piece) {
  size_t bytes = 0;
  for (size_t n = 0; n < kStemCharacters && bytes < piece.size(); ++n)
    bytes += std::max<size_t>(1, character_bytes(piece.substr(bytes)));
  return piece.substr(0, bytes);
}

}  // namespace

PieceIds::PieceIds(const PieceIds* parent) : parent_(parent) {
  if (parent_) {
    first_ = parent_->size(), first_stem_ = parent_->stem_count();
  } else {
    add("");
  }
}

uint32_t PieceIds::find(std::string_view piece) const {
  if (parent_)
    if (const uint32_t id = parent_->find(piece); id < first_) return id;
  const auto found = ids_.find(piece);
  return found == ids_.end() ? size() : found->second;
}

uint32_t PieceIds::find_stem(std::string_view stem) const {
  if (parent_)
    if (const uint32_t id = parent_->find_stem(stem); id < first_stem_) return id;
  const auto found = stem_ids_.find(stem);
  return found == stem_ids_.end() ? stem_count() : found->second;
}

uint32_t PieceIds::add(std::string_view piece) {
  const uint32_t id = find(piece);
  if (id < size()) return id;
  const std::string_view stem = stem_of(piece);
  const uint32_t stem_id = find_stem(stem);
  if (stem_id == stem_count()) stem_ids_.emplace(stem, stem_id);
  const auto at = ids_.emplace(piece, id).first;
  pieces_.push_back(&at->first);
  stems_.push_back(stem_id);
  return id;
}

BitextSide read_side(std::span<const std::string> lines, PieceIds& ids, BitextOptions options,
                     int64_t& too_long) {
  BitextSide side;
  side.begin.reserve(lines.size() + 1);
  for (const std::string& line : lines) {
    const size_t before = side.ids.size();
    const std::vector<std::string_view> words = split_words(line);
    const auto put = [&](std::u32string_view piece, size_t word, uint16_t attached) {
      if (piece.empty()) return;
      side.ids.push_back(ids.add(encode_utf8(piece)));
      side.word.push_back(static_cast<uint16_t>(word) | attached);
    };
    for (size_t w = 0; w < words.size() && side.ids.size() - before <= kLongestLine; ++w) {
      const std::u32string text = decode_utf8(words[w]);
      const std::u32string folded = options.lower_case ? lower_case(text) : text;
      const std::u32string_view word = folded;
      const auto first = std::ranges::find_if_not(word, is_edge);
      if (first == word.end()) {
        put(word, w, 0);  // all of it is punctuation
        continue;
      }
      const auto begin = static_cast<size_t>(first - word.begin());
      size_t end = word.size();
      while (is_edge(word[end - 1])) --end;
      put(word.substr(0, begin), w, BitextSide::kAttached);
      put(word.substr(begin, end - begin), w, 0);
      put(word.substr(end), w, BitextSide::kAttached);
    }
    if (side.ids.size() - before > kLongestLine) {
      ++too_long;
      side.ids.resize(before);
      side.word.resize(before);
    }
    side.begin.push_back(side.ids.size());
  }
  return side;
}

}  // namespace heed
