// From weights between pieces to links between words.
#include "heed/data/word_weights.h"

#include <gtest/gtest.h>

#include "heed/base/check.h"
#include "heed/base/words.h"
#include "tests/folder.h"

namespace heed {
namespace {

// Pieces are what stands between spaces; one that begins with "▁" begins a word, the first does
// anyway. So a test can say where words are cut.
class CutByHand : public Tokenizer {
 public:
  std::string_view kind() const override { return "words"; }
  Sentence encode(std::string_view text) const override {
    Sentence out{.text = std::string(text), .ids = {}, .word = {}};
    int32_t word = -1;
    for (const std::string_view piece : split_words(text)) {
      if (piece.starts_with("▁") || word < 0) ++word;
      out.ids.push_back(static_cast<Id>(pieces_.size()));
      out.word.push_back(word);
      pieces_.emplace_back(piece);
    }
    return out;
  }
  Sentence decode(std::span<const Id>) const override { return {}; }
  std::string piece(Id id) const override { return pieces_.at(static_cast<size_t>(id)); }
  Id size() const override { return static_cast<Id>(pieces_.size()); }
  bool writes_all() const override { return true; }
  SpecialIds special() const override { return {}; }
  std::optional<Id> newline() const override { return std::nullopt; }
  std::shared_ptr<const PieceSampler> sampler(double) const override { return nullptr; }
  void save(const std::filesystem::path&, const std::string&) const override {}

 private:
  mutable std::vector<std::string> pieces_;
};

std::string links(const std::string& source, const std::string& target, const PieceWeights& weights,
                  const ExtractOptions& options) {
  const auto tokenizer = std::make_shared<CutByHand>();
  const TokenizerPair both{tokenizer, tokenizer};
  const Sentence read = tokenizer->encode(source), written = tokenizer->encode(target);
  return to_pharaoh(word_alignment({both, read, written, weights}, options));
}

constexpr ExtractOptions kBest{.how = Extract::best}, kThreshold{.how = Extract::threshold},
    kPath{.how = Extract::path};

TEST(WordWeights, PiecesOfASourceWordAddUpAndThoseOfATargetWordAreAveraged) {
  const std::vector<int32_t> source{0, 0, 1, -1}, target{0, 1, 1};
  const WordWeights w = join_weights({{0.1f, 0.2f, 0.3f, 0.4f},
                                      {0.5f, 0.1f, 0.4f, 0.0f},
                                      {0.1f, 0.1f, 0.8f, 0.0f},
                                      {1.0f, 0.0f, 0.0f, 0.0f}},
                                     source, target);
  ASSERT_EQ(w.targets, 2u);
  ASSERT_EQ(w.sources, 2u);
  EXPECT_FLOAT_EQ(w.at(0, 0), 0.3f);
  EXPECT_FLOAT_EQ(w.at(0, 1), 0.3f);
  EXPECT_FLOAT_EQ(w.at(1, 0), 0.4f);
  EXPECT_FLOAT_EQ(w.at(1, 1), 0.6f);
}

// The best piece, of a word of one piece, has less than the two pieces of the other word together.
TEST(WordAlignment, LinksAWordWithTheWordThatItsPiecesWeighMost) {
  const PieceWeights weights{{0.3f, 0.3f, 0.4f, 0.0f}, {0.0f, 0.1f, 0.9f, 0.0f}, {0, 0, 0, 1}};
  EXPECT_EQ(links("▁a b ▁c", "▁x ▁y", weights, kBest), "0-0 1-1");
}

TEST(WordAlignment, AWordThatWeighsTheEndMostHasNoLink) {
  const PieceWeights weights{{0.4f, 0.0f, 0.6f}, {0.0f, 0.9f, 0.1f}, {0, 0, 1}};
  for (const ExtractOptions& how : {kBest, kThreshold, kPath})
    EXPECT_EQ(links("▁a ▁b", "▁x ▁y", weights, how), "1-1") << static_cast<int>(how.how);
}

TEST(WordAlignment, AWordMayHaveSeveralLinks) {
  const PieceWeights weights{{0.5f, 0.5f, 0.0f, 0.0f}, {0.0f, 0.0f, 1.0f, 0.0f}, {0, 0, 0, 1}};
  EXPECT_EQ(links("▁a ▁b ▁c", "▁x ▁y", weights, kBest), "0-0 2-1");
  for (const ExtractOptions& how : {kThreshold, kPath})
    EXPECT_EQ(links("▁a ▁b ▁c", "▁x ▁y", weights, how), "0-0 1-0 2-1");
}

// Nobody weighs b much, but most of what it gets comes from y.
TEST(WordAlignment, AMatrixIsReadBothWays) {
  const PieceWeights weights{{1.0f, 0.0f, 0.0f}, {0.7f, 0.3f, 0.0f}, {0, 0, 1}};
  EXPECT_EQ(links("▁a ▁b", "▁x ▁y", weights, kBest), "0-0 0-1");
  EXPECT_EQ(links("▁a ▁b", "▁x ▁y", weights, kThreshold), "0-0 0-1 1-1");
  EXPECT_EQ(links("▁a ▁b", "▁x ▁y", weights, {.how = Extract::threshold, .threshold = 0.6f}),
            "0-0");
}

// What a threshold is compared with comes along, if it is wanted: links of a higher threshold are
// those that are likelier.
TEST(WordAlignment, LinksAreAsLikelyAsTheyWereFound) {
  const PieceWeights weights{{1.0f, 0.0f, 0.0f}, {0.7f, 0.3f, 0.0f}, {0, 0, 1}};
  const auto tokenizer = std::make_shared<CutByHand>();
  const TokenizerPair both{tokenizer, tokenizer};
  const Sentence read = tokenizer->encode("▁a ▁b"), written = tokenizer->encode("▁x ▁y");
  for (const Extract how : {Extract::threshold, Extract::path}) {
    const WeighedPair pair{both, read, written, weights};
    const Links all =
        word_alignment(pair, {.how = how, .threshold = 0.1, .want_probabilities = true});
    ASSERT_EQ(all.size(), 3u);
    for (const double threshold : {0.2, 0.35, 0.5, 0.6, 0.7}) {
      Links likelier;
      for (Link link : all)
        if (link.weight > static_cast<float>(threshold)) link.weight = 1, likelier.push_back(link);
      EXPECT_EQ(likelier, word_alignment(pair, {.how = how, .threshold = threshold}));
    }
  }
  const Links found = word_alignment({both, read, written, weights},
                                     {.how = Extract::threshold, .want_probabilities = true});
  EXPECT_FLOAT_EQ(found[0].weight, joint_posterior(1.0f, 1.0f / 1.7f));
  EXPECT_FLOAT_EQ(found[1].weight, joint_posterior(0.7f, 0.7f / 1.7f));
  EXPECT_FLOAT_EQ(found[2].weight, joint_posterior(0.3f, 1.0f));
}

TEST(WordAlignment, PunctuationAndWordsHaveNoLink) {
  // x looks at the full stop, and a little at a.
  const PieceWeights weights{{0.3f, 0.7f, 0.0f}, {0.0f, 1.0f, 0.0f}, {0, 0, 1}};
  EXPECT_EQ(links("▁a ▁.", "▁x ▁.", weights, kThreshold), "0-0 1-1");
  EXPECT_EQ(links("▁a ▁.", "▁x ▁.", weights, kPath), "0-0 1-1");
}

TEST(WordAlignment, PunctuationAtAWordsEndMakesNoLink) {
  // The comma of "x," looks at that of "b,", and x at a.
  const PieceWeights weights{{1, 0, 0, 0}, {0, 0, 1, 0}, {0, 1, 0, 0}, {0, 0, 0, 1}};
  for (const ExtractOptions& how : {kBest, kThreshold, kPath})
    EXPECT_EQ(links("▁a ▁b ,", "▁x , ▁y", weights, how), "0-0 1-1") << static_cast<int>(how.how);
  const CutByHand tokenizer;
  const LinkedWords words = linked_words(tokenizer, tokenizer.encode("▁ ( a - b . ▁' ▁... ▁ !"));
  EXPECT_EQ(words.word, (std::vector<int32_t>{-1, -1, 0, 0, 0, -1, 1, 2, 3, 3}));
  EXPECT_EQ(words.mark, (std::vector<bool>{false, false, true, true}));
}

// The second word has no idea; its neighbors look to the left and to the right of b.
TEST(WordAlignment, OnAPathTheWordsBesideAWordDecide) {
  const PieceWeights weights{{0.9f, 0.03f, 0.04f, 0.03f, 0},
                             {0.23f, 0.25f, 0.25f, 0.27f, 0},
                             {0.03f, 0.04f, 0.9f, 0.03f, 0},
                             {0.03f, 0.03f, 0.04f, 0.9f, 0},
                             {0, 0, 0, 0, 1}};
  EXPECT_EQ(links("▁a ▁b ▁c ▁d", "▁w ▁x ▁y ▁z", weights, kThreshold), "0-0 1-1 2-2 3-3");
  EXPECT_EQ(
      links("▁a ▁b ▁c ▁d", "▁w ▁x ▁y ▁z", weights, {.how = Extract::threshold, .threshold = 0.5f}),
      "0-0 2-2 3-3");
  EXPECT_EQ(links("▁a ▁b ▁c ▁d", "▁w ▁x ▁y ▁z", weights, {.how = Extract::path, .threshold = 0.5f}),
            "0-0 1-1 2-2 3-3");
}

TEST(WordAlignment, EmptySentencesHaveNoLinks) {
  for (const ExtractOptions& how : {kBest, kThreshold, kPath}) {
    EXPECT_EQ(links("", "▁x", {{1}, {1}}, how), "");
    EXPECT_EQ(links("▁a", "", {{0.5f, 0.5f}}, how), "");
    EXPECT_EQ(links("▁a", "▁x", {}, how), "");  // a translation that could not be
  }
}

TEST(WordAlignment, NamesAreChecked) {
  for (const std::string& name : extract_names())
    EXPECT_EQ(extract_names().at(static_cast<size_t>(extract_named(name))), name);
  EXPECT_TRUE(has(message([] { extract_named("bets"); }), "did you mean 'best'"));
}

}  // namespace
}  // namespace heed
