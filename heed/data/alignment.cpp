#include "heed/data/alignment.h"

#include <algorithm>
#include <utility>

#include "heed/base/check.h"

namespace heed {

Links to_pieces(std::span<const Link> words, std::span<const int32_t> source_word,
                std::span<const int32_t> target_word) {
  // A word's pieces stand together, and words ascend, so its first piece is found by halving.
  const auto pieces_of = [](std::span<const int32_t> word_of, int32_t word) {
    return std::equal_range(word_of.begin(), word_of.end(), word);
  };
  HEED_ASSERT(std::is_sorted(source_word.begin(), source_word.end()));
  HEED_ASSERT(std::is_sorted(target_word.begin(), target_word.end()));
  Links pieces;
  for (const Link& link : words) {
    const auto [s_begin, s_end] = pieces_of(source_word, link.source);
    const auto [t_begin, t_end] = pieces_of(target_word, link.target);
    for (auto s = s_begin; s != s_end; ++s)
      for (auto t = t_begin; t != t_end; ++t)
        pieces.push_back({static_cast<int32_t>(s - source_word.begin()),
                          static_cast<int32_t>(t - target_word.begin()), link.weight});
  }
  return sorted_links(std::move(pieces));
}

Links to_words(std::span<const Link> pieces, std::span<const int32_t> source_word,
               std::span<const int32_t> target_word) {
  Links words;
  for (const Link& link : pieces) {
    require(link.source >= 0 && static_cast<size_t>(link.source) < source_word.size() &&
                link.target >= 0 && static_cast<size_t>(link.target) < target_word.size(),
            "to_words: link ", link.source, "-", link.target, " is outside a sentence of ",
            source_word.size(), " and one of ", target_word.size(), " pieces");
    const int32_t source = source_word[static_cast<size_t>(link.source)];
    const int32_t target = target_word[static_cast<size_t>(link.target)];
    if (source >= 0 && target >= 0) words.push_back({source, target, link.weight});
  }
  return sorted_links(std::move(words));
}

}  // namespace heed
