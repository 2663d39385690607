// n-grams of several texts at once, as numbers: equal n-grams have equal numbers, from 0 on, so
// that counting them is counting in an array. Orders are made one from another: an (n+1)-gram is an
// n-gram and the symbol after it.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace heed {

// texts[t][i] is the number of the n-gram at position i of text t; all numbers are below `kinds`.
struct Ngrams {
  std::vector<std::vector<uint32_t>> texts;
  uint32_t kinds = 0;
};

// Order 1: of texts that are sequences of words or of characters.
template <class Symbols>
Ngrams first_order(const std::vector<Symbols>& texts) {
  std::unordered_map<typename Symbols::value_type, uint32_t> numbers;
  Ngrams out;
  for (const Symbols& symbols : texts) {
    std::vector<uint32_t>& ids = out.texts.emplace_back();
    ids.reserve(symbols.size());
    for (const auto& symbol : symbols)
      ids.push_back(
          numbers.try_emplace(symbol, static_cast<uint32_t>(numbers.size())).first->second);
  }
  out.kinds = static_cast<uint32_t>(numbers.size());
  return out;
}

// Order n + 1, from order n and order 1.
inline Ngrams next_order(const Ngrams& grams, const Ngrams& symbols, size_t n) {
  std::unordered_map<uint64_t, uint32_t> numbers;
  Ngrams out;
  for (size_t t = 0; t < grams.texts.size(); ++t) {
    std::vector<uint32_t>& ids = out.texts.emplace_back();
    ids.reserve(grams.texts[t].size());
    for (size_t i = 0; i + n < symbols.texts[t].size(); ++i) {
      const uint64_t key = uint64_t{grams.texts[t][i]} << 32 | symbols.texts[t][i + n];
      ids.push_back(numbers.try_emplace(key, static_cast<uint32_t>(numbers.size())).first->second);
    }
  }
  out.kinds = static_cast<uint32_t>(numbers.size());
  return out;
}

// How often each n-gram is in text t.
inline std::vector<uint32_t> count(const Ngrams& grams, size_t t) {
  std::vector<uint32_t> counts(grams.kinds);
  for (const uint32_t id : grams.texts[t]) ++counts[id];
  return counts;
}

// How many n-grams two texts, so counted, have in common.
inline uint64_t matches(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
  uint64_t common = 0;
  for (size_t i = 0; i < a.size(); ++i) common += std::min(a[i], b[i]);
  return common;
}

}  // namespace heed
