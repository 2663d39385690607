// The best cut into a unigram model's pieces, beside all cuts.
#include "heed/data/unigram_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "heed/base/random.h"

namespace heed {
namespace {

// Two ways to write the same score: SentencePiece up to 0.2.1 takes the other one.
TEST(UnigramCut, OfEqualCutsTakesTheOneThatF32Finds) {
  const UnigramCut cut({{"<unk>", 0, true}, {"▁", -4.81f}, {"'", -7.45f}, {"''", -6.94f}});
  const auto at = [&](std::string_view text) {
    std::vector<size_t> out;
    for (const auto& part : cut.cut(text)) out.push_back(part.from);
    return out;
  };
  EXPECT_EQ(at("▁'''"), (std::vector<size_t>{0, 3, 4}));
  EXPECT_EQ(at(""), std::vector<size_t>{});
  EXPECT_EQ(at("▁€x'"), (std::vector<size_t>{0, 3, 6, 7}));
  EXPECT_EQ(cut.cut("▁€''")[1].id, UnigramCut::kUnknown);
  EXPECT_EQ(cut.cut("▁€''")[2].id, 3);
}

TEST(UnigramCut, IsAsGoodAsTheBestOfAllCuts) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const auto drawn = [&](size_t most) {
      std::string text;
      for (size_t n = 1 + random.split() % most; n > 0; --n)
        text += std::array{"a", "b", "é"}[random.split() % 3];
      return text;
    };
    std::map<std::string, float> scores{{"a", -3}, {"é", -4}};  // b is none by itself
    for (int i = 0; i < 12; ++i) scores[drawn(4)] = -1 - 8 * static_cast<float>(random.uniform());
    scores.erase("b");
    std::vector<ScoredPiece> pieces;
    float least = 0;
    for (const auto& [text, score] : scores)
      pieces.push_back({text, score}), least = std::min(least, score);
    const UnigramCut cut(pieces);
    const std::string text = drawn(9);
    // All ways to cut what is left, one after the other.
    const std::function<double(std::string_view)> best = [&](std::string_view rest) -> double {
      if (rest.empty()) return 0;
      double most = rest[0] == 'b' ? least - 10 + best(rest.substr(1)) : -1e9;
      for (const auto& [piece, score] : scores)
        if (rest.starts_with(piece)) most = std::max(most, score + best(rest.substr(piece.size())));
      return most;
    };
    double found = 0;
    size_t end = 0;
    for (const auto& part : cut.cut(text)) {
      EXPECT_EQ(part.from, end);
      end = part.to;
      if (part.id == UnigramCut::kUnknown) {
        EXPECT_EQ(text.substr(part.from, part.to - part.from), "b");
        found += least - 10;
      } else {
        const ScoredPiece& piece = pieces.at(static_cast<size_t>(part.id));
        EXPECT_EQ(text.substr(part.from, part.to - part.from), piece.text);
        found += piece.score;
      }
    }
    EXPECT_EQ(end, text.size());
    EXPECT_NEAR(found, best(text), 1e-4) << text;
  }
}

}  // namespace
}  // namespace heed
