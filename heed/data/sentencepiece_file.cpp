#include "heed/data/sentencepiece_file.h"

#include <cstdint>
#include <cstring>

namespace heed {
namespace {

// Calls found(field, value, bytes) for each field of a message: `value` is a whole number's, all
// else is `bytes`.
template <class Found>
void for_each_field(std::string_view message, Found found) {
  size_t at = 0;
  const auto number = [&] {  // seven bits a byte, the last byte below 128
    uint64_t value = 0;
    for (int shift = 0; at < message.size() && shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(message[at++]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) break;
    }
    return value;
  };
  while (at < message.size()) {
    const uint64_t tag = number(), form = tag & 7, value = form == 0 || form == 2 ? number() : 0;
    const uint64_t size = form == 1 ? 8 : form == 2 ? value : form == 5 ? 4 : 0;
    const std::string_view bytes = message.substr(at, size);
    at += bytes.size();
    found(tag >> 3, value, bytes);
  }
}

// Of ModelProto; and types of pieces, of which others are special or bytes.
constexpr uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5;
constexpr uint64_t kNormal = 1, kUserDefined = 4;

}  // namespace

SentencePieceFacts facts_of(std::string_view model) {
  uint64_t kind = 1;
  bool bytes_too = false, space_after = false, rewrites = false, user_defined = false;
  bool prefix = true, fewer_spaces = true, escapes = true;  // the message's defaults
  for_each_field(model, [&](uint64_t field, uint64_t, std::string_view bytes) {
    if (field == kPieces)
      for_each_field(bytes, [&](uint64_t part, uint64_t value, std::string_view) {
        if (part == 3 && value == kUserDefined) user_defined = true;
      });
    if (field == kTrainer)
      for_each_field(bytes, [&](uint64_t part, uint64_t value, std::string_view) {
        if (part == 3) kind = value;
        if (part == 24) space_after = value != 0;
        if (part == 35) bytes_too = value != 0;
      });
    if (field == kNormalizer || field == kDenormalizer)
      for_each_field(bytes, [&](uint64_t part, uint64_t value, std::string_view content) {
        if (part == 2 && !content.empty()) rewrites = true;
        if (field == kDenormalizer) return;
        if (part == 3) prefix = value != 0;
        if (part == 4) fewer_spaces = value != 0;
        if (part == 5) escapes = value != 0;
      });
  });
  return {.kind = kind == 1   ? "unigram"
                  : kind == 2 ? "bpe"
                              : "sentencepiece",
          .user_defined = user_defined,
          .exact = bytes_too && prefix && escapes && !rewrites && !fewer_spaces && !space_after};
}

std::vector<ScoredPiece> scored_pieces(std::string_view model) {
  std::vector<ScoredPiece> out;
  for_each_field(model, [&](uint64_t field, uint64_t, std::string_view bytes) {
    if (field != kPieces) return;
    ScoredPiece& piece = out.emplace_back();
    for_each_field(bytes, [&](uint64_t part, uint64_t value, std::string_view content) {
      if (part == 1) piece.text = content;
      if (part == 2 && content.size() == sizeof piece.score)
        std::memcpy(&piece.score, content.data(), sizeof piece.score);
      if (part == 3) piece.fixed = value != kNormal;
    });
  });
  return out;
}

std::string without_prefix(std::string model) {
  // A message that comes a second time is merged into the first: the normalizer's, with
  // add_dummy_prefix (field 3) false.
  return std::move(model) + std::string{"\x1A\x02\x18\x00", 4};
}

}  // namespace heed
