#include "heed/base/alignment.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
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

// A number above 0 and up to 1, and nothing else.
std::optional<float> parse_probability(std::string_view text) {
  float value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last || !(value > 0 && value <= 1)) return std::nullopt;
  return value;
}

}  // namespace

Links sorted_links(Links links) {
  const auto words = [](const Link& link) { return std::pair(link.source, link.target); };
  std::ranges::sort(links, [&](const Link& a, const Link& b) {
    return words(a) != words(b) ? words(a) < words(b) : a.weight > b.weight;
  });
  links.erase(std::ranges::unique(links, {}, words).begin(), links.end());
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
    const size_t colon = word.find(':');
    std::optional<Link> link = parse_link(word.substr(0, colon));
    if (!link) return std::nullopt;
    if (colon != std::string_view::npos) {
      const std::optional<float> weight = parse_probability(word.substr(colon + 1));
      if (!weight) return std::nullopt;
      link->weight = *weight;
    }
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
    if (link.weight == 1) continue;
    char weight[32];
    std::snprintf(weight, sizeof weight, ":%.4f", double(std::max(link.weight, 1e-4f)));
    line += weight;
  }
  return line;
}

}  // namespace heed
