#include "heed/base/alignment.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "heed/base/words.h"

namespace heed {
namespace {

// A whole number from 0 up and nothing else.
std::optional<int32_t> parse_index(std::string_view text) {
  int32_t value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || text.starts_with('-')) return std::nullopt;
  return value;
}

}  // namespace

Links sorted_links(Links links) {
  std::sort(links.begin(), links.end());
  links.erase(std::unique(links.begin(), links.end()), links.end());
  return links;
}

std::optional<Link> parse_link(std::string_view text, char between) {
  const size_t middle = text.find(between);
  if (middle == std::string_view::npos) return std::nullopt;
  const auto source = parse_index(text.substr(0, middle));
  const auto target = parse_index(text.substr(middle + 1));
  if (!source || !target) return std::nullopt;
  return Link{*source, *target};
}

std::optional<Links> parse_pharaoh(std::string_view line) {
  Links links;
  for (const std::string_view word : split_words(line)) {
    const std::optional<Link> link = parse_link(word);
    if (!link) return std::nullopt;
    links.push_back(*link);
  }
  return sorted_links(std::move(links));
}

float joint_posterior(float forward, float backward) {
  return std::max(0.5f * std::sqrt(forward * backward) + 0.25f * (forward + backward),
                  0.5f * std::max(forward, backward));
}

std::string to_pharaoh(std::span<const Link> links) {
  std::string line;
  for (const Link& link : links) {
    if (!line.empty()) line += ' ';
    line += std::to_string(link.source) + "-" + std::to_string(link.target);
  }
  return line;
}

}  // namespace heed
