// Subword regularization: what is drawn, how often, and that it is the same for the same seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "heed/base/parallel.h"
#include "heed/data/batch.h"
#include "heed/files/lines.h"
#include "heed/studies/grammar.h"
#include "tests/folder.h"

namespace heed {
namespace {

using Ids = std::vector<Id>;
const std::vector<std::string> kKinds = {"bpe", "unigram"};

// A corpus of the grammar with its links, and a joint tokenizer for it, small enough that words
// have several pieces.
struct Files {
  Folder folder;
  CorpusFiles names;
  TokenizerPair tokenizers;
  std::vector<std::string> lines;  // of both sides
};

std::unique_ptr<Files> grammar_files(int64_t count, const std::string& kind) {
  const std::filesystem::path words =
      std::filesystem::path(__FILE__).parent_path().parent_path() / "data" / "grammar";
  auto files = std::make_unique<Files>();
  std::string source, target, links;
  for (const AlignedPair& pair : Grammar(words).pairs(count, 5)) {
    source += pair.english + "\n", files->lines.push_back(pair.english);
    target += pair.french + "\n", files->lines.push_back(pair.french);
    links += to_pharaoh(pair.links) + "\n";
  }
  files->names = {.source = files->folder.put("c.en", source),
                  .target = files->folder.put("c.fr", target),
                  .alignment = files->folder.put("c.align", links)};
  const auto joint = learn_tokenizer(texts(files->names, Side::both), {.kind = kind, .size = 300});
  files->tokenizers = {joint, joint};
  return files;
}

// Draws that leave nothing to chance: bpe without dropout; unigram with all weight on the best.
double no_choice(const std::string& kind) { return kind == "bpe" ? 0 : 1e6; }
double some_choice(const std::string& kind) { return kind == "bpe" ? 0.3 : 0.2; }

// ---- what is drawn

TEST(Sampling, WithoutChoiceIsWhatSentencePieceEncodes) {
  for (const std::string& kind : kKinds) {
    const auto files = grammar_files(1500, kind);
    const Tokenizer& tokenizer = *files->tokenizers.source;
    const auto sampler = tokenizer.sampler(no_choice(kind));
    std::vector<std::string> lines = files->lines;
    // Unknown characters, alone and in a row, what is normalized, and what is spelled like control.
    for (const char* odd : {"", "€", "the € cat", "the€€cat", "  two   spaces ", "ﬁne ½ Ａ",
                            "</s> the", "thecatsleepsinthehouse", "qqq", "▁", "a▁b"})
      lines.push_back(odd);
    for (const std::string& line : lines) {
      const Ids plain = tokenizer.encode(line).ids;
      Random random(1);
      const DrawnPieces drawn = sampler->draw(plain, random);
      ASSERT_EQ(drawn.ids, plain) << kind << ": " << line;
      std::vector<int32_t> each(plain.size());
      std::iota(each.begin(), each.end(), 0);
      ASSERT_EQ(drawn.from, each) << kind << ": " << line;
    }
  }
}

TEST(Sampling, OtherPiecesAreTheSameText) {
  for (const std::string& kind : kKinds) {
    const auto files = grammar_files(500, kind);
    const Tokenizer& tokenizer = *files->tokenizers.source;
    const auto sampler = tokenizer.sampler(some_choice(kind));
    Random random(1);
    size_t others = 0;
    std::vector<std::string> lines = files->lines;
    lines.push_back("the € cat");
    for (const std::string& line : lines) {
      const Ids plain = tokenizer.encode(line).ids;
      const DrawnPieces drawn = sampler->draw(plain, random);
      EXPECT_EQ(tokenizer.decode(drawn.ids).text, tokenizer.decode(plain).text) << kind;
      ASSERT_EQ(drawn.from.size(), drawn.ids.size());
      EXPECT_TRUE(std::is_sorted(drawn.from.begin(), drawn.from.end()));
      others += drawn.ids != plain;
    }
    EXPECT_GT(others, lines.size() * 9 / 10) << kind;
  }
}

// Each way to cut a text, as often as the formula says: within four deviations of 20,000 draws.
void expect_shares(const PieceSampler& sampler, const Ids& plain,
                   const std::map<Ids, double>& wanted) {
  constexpr int kDraws = 20'000;
  std::map<Ids, int> seen;
  Random random(7);
  for (int i = 0; i < kDraws; ++i) ++seen[sampler.draw(plain, random).ids];
  for (const auto& [ids, count] : seen)
    ASSERT_TRUE(wanted.contains(ids)) << testing::PrintToString(ids);
  for (const auto& [ids, share] : wanted)
    EXPECT_NEAR(seen[ids] / double(kDraws), share, 4 * std::sqrt(share * (1 - share) / kDraws))
        << testing::PrintToString(ids);
}

TEST(Sampling, UnigramDrawsByTheProbabilitiesToThePowerOfAlpha) {
  const std::vector<ScoredPiece> pieces = {{"<unk>", 0, true}, {"a", -2},   {"b", -3},
                                           {"ab", -2.5f},      {"bab", -4}, {"aba", -9, true}};
  const Ids plain = {3, 3};  // abab
  const std::map<Ids, double> scores = {
      {{1, 2, 1, 2}, -10}, {{3, 1, 2}, -7.5}, {{1, 2, 3}, -7.5}, {{3, 3}, -5}, {{1, 4}, -6}};
  for (const double alpha : {0.1, 0.5, 1.0}) {
    std::map<Ids, double> wanted;
    double sum = 0;
    for (const auto& [ids, score] : scores) sum += wanted[ids] = std::exp(alpha * score);
    for (auto& [ids, share] : wanted) share /= sum;
    expect_shares(*sample_unigram(pieces, alpha), plain, wanted);
  }
}

TEST(Sampling, BpeLeavesOutMergesWithTheirProbability) {
  const std::vector<ScoredPiece> pieces = {{"<unk>", 0, true}, {"a", 0},   {"b", 0},   {"c", 0},
                                           {"ab", 0},          {"bc", -1}, {"abc", -2}};
  const double p = 0.3, q = 1 - p;
  // First ab, else bc; then abc, of either.
  expect_shares(
      *sample_bpe(pieces, p), {6},
      {{{6}, q * q + p * q * q}, {{4, 3}, q * p}, {{1, 5}, p * q * p}, {{1, 2, 3}, p * p}});
  expect_shares(*sample_bpe(pieces, 1), {6, 0, 4}, {{{1, 2, 3, 0, 1, 2}, 1}});
}

// A piece that a user defined, and one whose characters are no pieces: whole, or not at all.
TEST(Sampling, FixedPiecesStayWhole) {
  const std::vector<ScoredPiece> pieces = {
      {"a", -1}, {"b", -1}, {"ab", -1}, {"<mask>", 0, true}, {"a€", -1}};
  const Ids plain = {2, 3, 4, 2};
  for (const auto& sampler : {sample_bpe(pieces, 1), sample_unigram(pieces, -100)}) {
    Random random(1);
    const DrawnPieces drawn = sampler->draw(plain, random);
    EXPECT_EQ(drawn.ids, (Ids{0, 1, 3, 4, 0, 1}));
    EXPECT_EQ(drawn.from, (std::vector<int32_t>{0, 0, 1, 2, 3, 3}));
  }
}

TEST(Sampling, NewlinesStayWhole) {
  for (const std::string& kind : kKinds) {
    const auto files = grammar_files(300, kind);
    const auto tokenizer = learn_tokenizer(texts(files->names, Side::both),
                                           {.kind = kind, .size = 300, .newlines = true});
    const std::string text = "the cat\nthe dog <newline> .\n";  // the word is no newline
    const Ids plain = tokenizer->encode(text).ids;
    ASSERT_EQ(std::ranges::count(plain, *tokenizer->newline()), 2) << kind;
    const auto sampler = tokenizer->sampler(kind == "bpe" ? 1 : 0.01);
    Random random(1);
    const Ids drawn = sampler->draw(plain, random).ids;
    EXPECT_EQ(std::ranges::count(drawn, *tokenizer->newline()), 2) << kind;
    EXPECT_EQ(tokenizer->decode(drawn).text, text) << kind;
    EXPECT_GT(drawn.size(), plain.size()) << kind;
  }
}

// ---- in a corpus

// By line.
using Pieces = std::map<int64_t, Ids>;

void add_pieces(const CorpusWindow& window, Pieces& all) {
  for (int64_t i = 0; i < window.size(); ++i)
    for (const auto& side : {window[i].source, window[i].target})
      all[window[i].line].insert(all[window[i].line].end(), side.begin(), side.end());
}

TEST(Sampling, IsAFunctionOfSeedAndEpoch) {
  const int before = threads();
  for (const std::string& kind : kKinds) {
    const auto files = grammar_files(400, kind);
    // In memory and streaming, on one thread and two.
    const auto epoch_of = [&](int64_t epoch, uint64_t seed, int64_t window = 1'000'000) {
      Corpus corpus(files->names, files->tokenizers,
                    {.window = window, .sampling = some_choice(kind), .seed = seed});
      Pieces all;
      for (int64_t n = 0; n < corpus.windows(); ++n)
        add_pieces(*corpus.window_of(epoch, n, false), all);
      return all;
    };
    Pieces plain;
    add_pieces(*Corpus(files->names, files->tokenizers).window_of(3, 0, false), plain);
    const Pieces first = epoch_of(0, 1);
    EXPECT_NE(first, plain);
    EXPECT_NE(first, epoch_of(1, 1));
    EXPECT_NE(first, epoch_of(0, 2));
    for (const int count : {1, 2}) {
      set_threads(count);
      EXPECT_EQ(first, epoch_of(0, 1)) << kind << ", threads: " << count;
      EXPECT_EQ(first, epoch_of(0, 1, /*window=*/150)) << kind << ", threads: " << count;
    }
    set_threads(before);
  }
}

TEST(Sampling, LinksFollowThePieces) {
  for (const std::string& kind : kKinds) {
    const auto files = grammar_files(300, kind);
    Corpus corpus(files->names, files->tokenizers, {.sampling = some_choice(kind)});
    const Tokenizer& tokenizer = *files->tokenizers.source;
    const std::vector<std::string> links = read_lines(files->names.alignment[0]);
    const auto window = corpus.window_of(1, 0, false);
    ASSERT_EQ(window->size(), 300);
    for (int64_t i = 0; i < window->size(); ++i) {
      const PairView pair = (*window)[i];
      const Sentence s = tokenizer.decode(pair.source), t = tokenizer.decode(pair.target);
      const std::string& wanted = links[static_cast<size_t>(i)];
      EXPECT_EQ(to_pharaoh(to_words(pair.links, s.word, t.word)), wanted) << kind;
      EXPECT_EQ(Links(pair.links.begin(), pair.links.end()),
                to_pieces(*parse_pharaoh(wanted), s.word, t.word))
          << kind;
    }
  }
}

TEST(Sampling, NothingBecomesTooLong) {
  for (const std::string& kind : kKinds) {
    const auto files = grammar_files(300, kind);
    const int64_t longest = 16;
    Corpus corpus(files->names, files->tokenizers,
                  {.max_length = longest, .sampling = some_choice(kind)});
    const auto plain = corpus.window(0), drawn = corpus.window_of(0, 0, false);
    ASSERT_EQ(plain->size(), drawn->size());
    int64_t same = 0;
    for (int64_t i = 0; i < drawn->size(); ++i) {
      const std::span<const Id> was = (*plain)[i].source, is = (*drawn)[i].source;
      EXPECT_LE(static_cast<int64_t>(is.size()), longest);
      EXPECT_LE(static_cast<int64_t>((*drawn)[i].target.size()), longest);
      EXPECT_EQ((*plain)[i].line, (*drawn)[i].line);
      same += std::ranges::equal(was, is);
    }
    EXPECT_GT(same, 0) << kind;  // those that had become too long
    EXPECT_LT(same, drawn->size()) << kind;
  }
}

TEST(Sampling, WantsOneKindForBothSides) {
  const auto bpe = grammar_files(300, "bpe"), unigram = grammar_files(300, "unigram");
  EXPECT_TRUE(has(
      message([&] {
        Corpus(bpe->names, {bpe->tokenizers.source, unigram->tokenizers.target}, {.sampling = 0.1});
      }),
      "the source's vocabulary is bpe, the target's unigram"));
}

TEST(Sampling, WantsSubwords) {
  const Folder folder;
  const CorpusFiles files{.source = folder.put("s", "a b\n"), .target = folder.put("t", "b a\n")};
  for (const char* kind : {"words", "characters"}) {
    const auto t = learn_tokenizer(texts(files, Side::both), {.kind = kind});
    EXPECT_EQ(t->sampler(0.1), nullptr);
    EXPECT_TRUE(has(message([&] {
                      Corpus(files, {t, t}, {.sampling = 0.1});
                    }),
                    "take one of the kind bpe or unigram"))
        << kind;
    EXPECT_TRUE(has(message([&] {
                      Corpus(files, {t, t}, {.sampling = -1});
                    }),
                    "at least 0, given -1"));
  }
}

}  // namespace
}  // namespace heed
