// Word alignments: links between the words of a sentence and those of its translation.
//
// In files they are written in Pharaoh's form, one line a pair: "0-0 1-2 2-1", source first,
// counted from 0. A link may say how probable it is, "1-2:0.8"; one that does not is sure.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed {

struct Link {
  int32_t source = 0, target = 0;
  float weight = 1;  // how probable, above 0 and at most 1
  auto operator<=>(const Link&) const = default;
};

using Links = std::vector<Link>;  // ascending, each once

// `links` in ascending order, each once: the most probable of those between the same words.
Links sorted_links(Links links);

// "3-4", or with another character between; nothing if `text` is not that.
std::optional<Link> parse_link(std::string_view text, char between = '-');

// The links of a line of a Pharaoh file; nothing if it is not one. An empty line has no links.
std::optional<Links> parse_pharaoh(std::string_view line);

// How probable both directions together think a link that one gives the probability `forward` and
// the other `backward`: the mean of their geometric and their arithmetic mean; or half of what one
// alone thinks, since a word with two translations can choose only one of them.
float joint_posterior(float forward, float backward);

// Probabilities with four digits, if the link is not sure.
std::string to_pharaoh(std::span<const Link> links);

}  // namespace heed
