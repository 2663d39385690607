// Corpora that nobody can mean to train from.
#include "heed/data/corpus_check.h"

#include <gtest/gtest.h>

#include "heed/studies/grammar.h"
#include "tests/folder.h"

namespace heed {
namespace {

struct Text {
  std::vector<std::string> english, french;
};

Text pairs(int64_t count, uint64_t seed) {
  static const Grammar grammar(std::filesystem::path(__FILE__).parent_path().parent_path() /
                               "data" / "grammar");
  Text text;
  for (const AlignedPair& pair : grammar.pairs(count, seed)) {
    text.english.push_back(pair.english);
    text.french.push_back(pair.french);
  }
  return text;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

struct Files {
  Folder folder;
  CorpusFiles put(const std::string& name, const std::vector<std::string>& source,
                  const std::vector<std::string>& target) const {
    return {.source = folder.put(name + ".s", joined(source)),
            .target = folder.put(name + ".t", joined(target))};
  }
};

TokenizerPair learn(const CorpusFiles& files, const TokenizerOptions& options) {
  return {learn_tokenizer(texts(files, Side::source), options),
          learn_tokenizer(texts(files, Side::target), options)};
}

Corpus corpus_of(const CorpusFiles& files, const std::string& kind = "words") {
  return Corpus(files, learn(files, {.kind = kind}));
}

std::vector<CorpusDoubt> doubts_of(const Corpus& corpus) {
  return heed::doubts_of(corpus, corpus.look());
}

TEST(CorpusCheck, AGoodCorpusIsNotDoubted) {
  const Files files;
  const Text text = pairs(500, 1);
  for (const std::string kind : {"words", "characters", "unigram"}) {
    const Corpus corpus = corpus_of(files.put("a", text.english, text.french), kind);
    for (const CorpusDoubt& doubt : doubts_of(corpus)) ADD_FAILURE() << doubt.told;
  }
}

TEST(CorpusCheck, ManyPairsThatAreLeftOutAreTold) {
  const Files files;
  Text text = pairs(500, 1);
  for (size_t i = 0; i < 25; ++i) text.french[20 * i] = "";
  const auto some = doubts_of(corpus_of(files.put("a", text.english, text.french)));
  ASSERT_EQ(some.size(), 1u);
  EXPECT_TRUE(has(some[0].told, "5.0 % (25 of 500) of the pairs are left out")) << some[0].told;
  EXPECT_FALSE(some[0].grave);
  for (size_t i = 0; i < 100; ++i) text.french[5 * i] = "";
  const auto many = doubts_of(corpus_of(files.put("b", text.english, text.french)));
  ASSERT_EQ(many.size(), 1u);
  EXPECT_TRUE(many[0].grave);
}

TEST(CorpusCheck, AnotherEncodingIsNamedWithItsFirstLine) {
  const Files files;
  Text text = pairs(500, 1);
  for (size_t i = 3; i < 100; ++i) text.french[i] += " \xE9";
  const auto found = doubts_of(corpus_of(files.put("a", text.english, text.french)));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].grave);
  EXPECT_TRUE(has(found[0].told, "19.4 % (97 of 500)")) << found[0].told;
  EXPECT_TRUE(has(found[0].told, "a.t: line 4: not UTF-8")) << found[0].told;
  EXPECT_TRUE(has(found[0].told, "iconv -f latin1 -t utf-8")) << found[0].told;
  const CorpusFiles none = files.put("n", {"a", "b"}, {"caf\xE9", "na\xEFve"});
  EXPECT_TRUE(
      has(message([&] { Corpus(none, learn(files.put("m", {"a"}, {"b"}), {.kind = "words"})); }),
          "n.t: line 1: not UTF-8"));
  // UTF-16 without a mark is UTF-8 by the letter, and no text.
  std::vector<std::string> wide;
  for (const std::string& line : text.english) {
    std::string out;
    for (const char c : line) out += c, out += '\0';
    wide.push_back(out);
  }
  const CorpusFiles names = files.put("w", wide, wide);
  const std::string told = message([&] { learn_tokenizer(texts(names, Side::source), {}); });
  EXPECT_TRUE(has(told, "iconv -f utf-16")) << told;
}

TEST(CorpusCheck, TheSameTextOnBothSidesIsTold) {
  const Files files;
  const Text text = pairs(300, 1);
  const auto found = doubts_of(corpus_of(files.put("a", text.english, text.english)));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].grave);
  EXPECT_TRUE(has(found[0].told, "100.0 % (300 of 300) of the pairs have the same text"))
      << found[0].told;
}

TEST(CorpusCheck, UnknownWordsAreCountedOnBothSides) {
  const Files files;
  const Text text = pairs(500, 1);
  const CorpusFiles names = files.put("a", text.english, text.french);
  const Corpus corpus(names,
                      {learn_tokenizer(texts(names, Side::source), {.kind = "words"}),
                       learn_tokenizer(texts(names, Side::target), {.kind = "words", .size = 30})});
  const auto found = doubts_of(corpus);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].grave);
  EXPECT_TRUE(has(found[0].told, "of the target's words are not in the vocabulary"))
      << found[0].told;
  EXPECT_TRUE(has(found[0].told, "--vocabulary")) << found[0].told;
}

TEST(CorpusCheck, SidesThatHaveChangedPlacesAreFound) {
  const Files files;
  const Text text = pairs(500, 1), other = pairs(60, 2);
  const CorpusFiles names = files.put("a", text.english, text.french);
  const auto joint = learn_tokenizer(texts(names, Side::both), {.kind = "bpe", .size = 300});
  for (const TokenizerPair& tokenizers :
       {learn(names, {.kind = "words"}), learn(names, {.kind = "bpe", .size = 200}),
        TokenizerPair{joint, joint}}) {
    const Corpus corpus(names, tokenizers);
    const Corpus right(files.put("r", other.english, other.french), tokenizers);
    const Corpus wrong(files.put("w", other.french, other.english), tokenizers);
    EXPECT_TRUE(swapped_sides(corpus, right).empty());
    const auto found = swapped_sides(corpus, wrong);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_TRUE(found[0].grave);
    EXPECT_TRUE(has(found[0].told, "its sides have changed places")) << found[0].told;
  }
  // One language on both sides has no sides to change, and a few words say nothing.
  const Corpus same(files.put("s", text.english, pairs(500, 3).english), learn(names, {}));
  const Corpus also(files.put("o", other.english, pairs(60, 4).english), same.tokenizers());
  EXPECT_TRUE(swapped_sides(same, also).empty());
  const Corpus few(files.put("f", {other.french[0]}, {other.english[0]}), same.tokenizers());
  EXPECT_TRUE(swapped_sides(Corpus(names, same.tokenizers()), few).empty());
}

TEST(CorpusCheck, PairsThatAreLearntFromAndValidatedOnAreFound) {
  const Files files;
  const Text text = pairs(500, 1);
  const CorpusFiles names = files.put("a", text.english, text.french);
  const TokenizerPair tokenizers = learn(names, {.kind = "words"});
  const Corpus corpus(names, tokenizers);
  const auto found = [&](size_t known) {  // of 20, the others with one side alike
    Text other;
    for (size_t i = 0; i < 20; ++i) {
      other.english.push_back(text.english[i]);
      other.french.push_back(text.french[i] + (i < known ? "" : " oui"));
    }
    return known_pairs(corpus, Corpus(files.put("v", other.english, other.french), tokenizers));
  };
  EXPECT_TRUE(found(2).empty());
  const std::vector<CorpusDoubt> doubts = found(3);
  ASSERT_EQ(doubts.size(), 1u);
  EXPECT_FALSE(doubts[0].grave);
  EXPECT_TRUE(has(doubts[0].told, "v.t: 15.0 % (3 of 20) of its pairs are also in"))
      << doubts[0].told;
}

TEST(CorpusCheck, OfACorpusThatIsStreamedLinesHereAndThereAreLookedAt) {
  const Files files;
  Text text = pairs(600, 1);
  for (size_t i = 300; i < 600; ++i) text.french[i] = "";
  const CorpusFiles names = files.put("a", text.english, text.french);
  const TokenizerPair tokenizers = learn(names, {.kind = "words"});
  const Corpus streamed(names, tokenizers, {.window = 100});
  const CleaningReport some = streamed.look(60);
  EXPECT_EQ(some.read, 60);
  EXPECT_EQ(some[Flaw::empty].count, 30);
  EXPECT_TRUE(has(some.text(), "600 pairs, streamed; of 60 pairs here and there 30 kept"))
      << some.text();
  const auto found = doubts_of(streamed);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(has(found[0].told, "50.0 % (300 of 600)")) << found[0].told;
  EXPECT_EQ(streamed.report().read, 0);
}

}  // namespace
}  // namespace heed
