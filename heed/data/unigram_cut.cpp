#include "heed/data/unigram_cut.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "heed/base/unicode.h"

namespace heed {
namespace {

uint64_t key_of(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<unsigned char>(byte);
}

}  // namespace

UnigramCut::UnigramCut(const std::vector<ScoredPiece>& pieces) {
  std::vector<std::pair<std::string_view, Id>> sorted;
  float least = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].fixed || pieces[i].text.empty()) continue;
    least = sorted.empty() ? pieces[i].score : std::min(least, pieces[i].score);
    sorted.emplace_back(pieces[i].text, static_cast<Id>(i));
  }
  constexpr float kUnknownPenalty = 10;  // the library's
  unknown_ = least - kUnknownPenalty;
  std::ranges::sort(sorted);
  size_t count = 0;  // of nodes but the root: what a piece does not share with the one before
  std::string_view before;
  for (const auto& [text, id] : sorted) {
    count += static_cast<size_t>(text.end() - std::ranges::mismatch(text, before).in1);
    before = text;
  }
  nodes_.reserve(count + 1);
  nodes_.emplace_back();
  steps_.resize(std::bit_ceil(2 * count + 2));
  for (const auto& [text, id] : sorted) {
    uint32_t node = 0;
    for (const char byte : text) {
      Step& next = steps_[place_of(node, byte)];
      if (next.to == 0) {
        next = {key_of(node, byte), static_cast<uint32_t>(nodes_.size())};
        nodes_.emplace_back();
      }
      node = next.to;
    }
    nodes_[node] = {pieces[static_cast<size_t>(id)].score, id};
  }
}

size_t UnigramCut::place_of(uint32_t node, char byte) const {
  const uint64_t key = key_of(node, byte);
  size_t at = (key * 0x9E3779B97F4A7C15ull) >> 32;
  while (true) {
    const Step& s = steps_[at &= steps_.size() - 1];
    if (s.to == 0 || s.key == key) return at;
    ++at;
  }
}

std::vector<UnigramCut::Part> UnigramCut::cut(std::string_view text) const {
  struct Best {  // of all cuts of what is before a place
    float score = 0;
    size_t from = 0;  // where the last piece begins
    Id id = kUnknown;
    bool reached = false;
  };
  std::vector<Best> best(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const size_t character = std::max<size_t>(1, character_bytes(rest));
    const auto propose = [&](size_t bytes, float score, Id id) {
      const float sum = best[at].score + score;
      Best& end = best[at + bytes];
      if (!end.reached || sum > end.score) end = {sum, at, id, true};
    };
    bool alone = false;  // the character is a piece
    uint32_t node = 0;
    for (size_t bytes = 1; bytes <= rest.size(); ++bytes) {
      node = steps_[place_of(node, rest[bytes - 1])].to;
      if (node == 0) break;
      if (nodes_[node].id == kUnknown) continue;
      propose(bytes, nodes_[node].score, nodes_[node].id);
      alone = alone || bytes == character;
    }
    if (!alone) propose(character, unknown_, kUnknown);
    at += character;
  }
  std::vector<Part> parts;
  for (size_t end = text.size(); end > 0; end = best[end].from)
    parts.push_back({best[end].from, end, best[end].id});
  std::ranges::reverse(parts);
  return parts;
}

}  // namespace heed
