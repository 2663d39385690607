#include "heed/data/alignment.h"

#include <algorithm>
#include <charconv>

#include "heed/base/check.h"
#include "heed/data/text.h"

namespace heed {
namespace {

Links tidied(Links links) {
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  return links;
}

// A whole number from 0 up and nothing else.
std::optional<int32_t> parse_index(std::string_view text) {
  int32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<Links> parse_pharaoh(std::string_view line) {
  Links links;
  for (const std::string_view word : split_words(line)) {
    const size_t dash = word.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    const auto source = parse_index(word.substr(0, dash));
    const auto target = parse_index(word.substr(dash + 1));
    if (!source || !target) return std::nullopt;
    links.push_back({*source, *target});
  }
  return tidied(std::move(links));
}

std::string to_pharaoh(std::span<const Link> links) {
  std::string line;
  for (const Link& link : links) {
    if (!line.empty()) line += ' ';
    line += std::to_string(link.source) + "-" + std::to_string(link.target);
  }
  return line;
}

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
                          static_cast<int32_t>(t - target_word.begin())});
  }
  return tidied(std::move(pieces));
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
    if (source >= 0 && target >= 0) words.push_back({source, target});
  }
  return tidied(std::move(words));
}

}  // namespace heed
