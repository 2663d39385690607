// Data: words, tokenizers, corpora, batches, and the grammar that makes a corpus.
#include "heed/data/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/data/alignment.h"
#include "heed/data/corpus.h"
#include "heed/data/text.h"
#include "heed/data/tokenizer.h"
#include "heed/files/lines.h"
#include "heed/studies/grammar.h"
#include "tests/folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

TextStream stream(const Strings& lines) {
  return [lines, i = size_t{0}]() mutable {
    return i < lines.size() ? std::optional(lines[i++]) : std::nullopt;
  };
}

const Grammar& grammar() {
  static const Grammar made(fs::path(__FILE__).parent_path().parent_path() / "data" / "grammar");
  return made;
}

Strings english(int64_t count) {
  Strings lines;
  for (const AlignedPair& pair : grammar().pairs(count, 3)) lines.push_back(pair.english);
  return lines;
}

// ---- text

TEST(Text, WordsStandBetweenWhitespace) {
  EXPECT_EQ(split_words("  a\tb  c\r").size(), 3u);
  EXPECT_TRUE(split_words(" \t ").empty());
  EXPECT_EQ(split_fields("a\t\tb", '\t').size(), 3u);
  EXPECT_EQ(split_characters("aé▁\xFF").size(), 4u);
  const std::vector<size_t> offsets = {0, 1, 2, 3, 4, 5, 6, 9};
  EXPECT_EQ(words_at(" ab  c ", offsets), (std::vector<int32_t>{0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(999), "999");
}

TEST(Alignment, GoesFromWordsToPiecesAndBack) {
  const std::vector<int32_t> source = {0, 0, 1}, target = {0, 1, 1, 2};
  const Links words = {{0, 1}, {1, 0}};
  const Links pieces = to_pieces(words, source, target);
  EXPECT_EQ(to_pharaoh(pieces), "0-1 0-2 1-1 1-2 2-0");
  EXPECT_EQ(to_words(pieces, source, target), words);
  EXPECT_TRUE(has(message([&] { to_words(Links{{3, 0}}, source, target); }), "link 3-0"));
  const Links unsure = {{0, 1, 0.5f}, {1, 0}};
  EXPECT_EQ(to_pharaoh(to_pieces(unsure, source, target)),
            "0-1:0.5000 0-2:0.5000 1-1:0.5000 1-2:0.5000 2-0");
  EXPECT_EQ(to_words(to_pieces(unsure, source, target), source, target), unsure);
}

// ---- tokenizers

std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& kind, int64_t size = 400) {
  return learn_tokenizer(stream(english(2000)), {.kind = kind, .size = size});
}

TEST(Tokenizer, EveryKindRoundTripsAndIsKept) {
  const Strings lines = english(2000);
  for (const std::string& kind : tokenizer_kinds()) {
    const Folder folder;
    const auto tokenizer = learn_tokenizer(stream(lines), {.kind = kind, .size = 2000});
    TokenizerPair{tokenizer, tokenizer}.save(folder.path());
    const TokenizerPair kept = TokenizerPair::load(folder.path());
    EXPECT_EQ(kept.source, kept.target) << kind;
    EXPECT_EQ(tokenizer->kind(), kind);
    EXPECT_EQ(kept.source->kind(), kind);
    EXPECT_EQ(kept.source->size(), tokenizer->size()) << kind;
    EXPECT_EQ(tokenizer->special(), SpecialIds{}) << kind;
    for (size_t i = 0; i < 200; ++i) {
      const Sentence encoded = tokenizer->encode(lines[i]);
      ASSERT_EQ(encoded.ids, kept.source->encode(lines[i]).ids) << kind;
      const Sentence decoded = tokenizer->decode(encoded.ids);
      ASSERT_EQ(decoded.text, lines[i]) << kind;
      ASSERT_EQ(decoded.word, encoded.word) << kind;
      for (const Id id : encoded.ids) ASSERT_TRUE(id >= 4 && id < tokenizer->size()) << kind;
    }
  }
}

TEST(Tokenizer, TheSameTextAndSeedGiveTheSameBytes) {
  for (const std::string& kind : tokenizer_kinds()) {
    const Folder folder;
    for (const char* name : {"a", "b"})
      learn_tokenizer(stream(english(1500)), {.kind = kind, .size = 300, .sentences = 500})
          ->save(folder.path(), name);
    std::map<std::string, std::string> bytes;
    for (const auto& file : fs::directory_iterator(folder.path()))
      bytes[file.path().stem()] = read(file.path());
    ASSERT_EQ(bytes.size(), 2u) << kind;
    EXPECT_EQ(bytes["a"], bytes["b"]) << kind;
  }
}

TEST(Tokenizer, PiecesKnowTheirWord) {
  for (const std::string& kind : tokenizer_kinds()) {
    const auto tokenizer = tokenizer_of(kind, kind == "words" ? 2000 : 120);
    const std::string text = "  the small\t elephant   sneezes .";
    const Sentence sentence = tokenizer->encode(text);
    ASSERT_EQ(sentence.word.size(), sentence.ids.size()) << kind;
    EXPECT_TRUE(std::is_sorted(sentence.word.begin(), sentence.word.end())) << kind;
    EXPECT_EQ(sentence.word.front(), 0) << kind;
    EXPECT_EQ(sentence.word.back(), 4) << kind;
    // The pieces of each word, joined, are that word.
    const auto words = split_words(text);
    for (size_t w = 0; w < words.size(); ++w) {
      std::vector<Id> ids;
      for (size_t i = 0; i < sentence.ids.size(); ++i)
        if (sentence.word[i] == static_cast<int32_t>(w)) ids.push_back(sentence.ids[i]);
      const std::string joined_word = tokenizer->decode(ids).text;
      EXPECT_EQ(joined_word.substr(joined_word.find_first_not_of(" \t")), words[w]) << kind;
    }
  }
}

TEST(Tokenizer, SpecialPiecesAreNoText) {
  for (const std::string& kind : tokenizer_kinds()) {
    const auto tokenizer = tokenizer_of(kind);
    const SpecialIds special = tokenizer->special();
    for (const char* spelled : {"<s>", "</s>", "<pad>", "the </s> cat"})
      for (const Id id : tokenizer->encode(spelled).ids)
        EXPECT_TRUE(id != special.pad && id != special.begin && id != special.end) << kind;
    std::vector<Id> ids = tokenizer->encode("the cat").ids;
    ids.insert(ids.begin(), special.begin);
    ids.push_back(special.end);
    ids.push_back(special.pad);
    const Sentence decoded = tokenizer->decode(ids);
    EXPECT_EQ(decoded.text, "the cat") << kind;
    EXPECT_EQ(decoded.word.front(), -1) << kind;
    EXPECT_EQ(decoded.word[1], 0) << kind;
    EXPECT_EQ(decoded.word.back(), -1) << kind;
    EXPECT_EQ(tokenizer->piece(special.end), "</s>") << kind;
    const bool bytes = kind == "bpe" || kind == "unigram";
    EXPECT_EQ(tokenizer->writes_all(), bytes) << kind;
    EXPECT_EQ(tokenizer->encode("\xE2\x82\xAC").ids.back() == special.unknown, !bytes) << kind;
    EXPECT_TRUE(has(message([&] { tokenizer->piece(tokenizer->size()); }), "it has")) << kind;
    EXPECT_TRUE(tokenizer->encode("").ids.empty() && tokenizer->decode({}).text.empty()) << kind;
  }
}

TEST(Tokenizer, VeryLongSentencesAreTaken) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "elephant ";
  for (const std::string& kind : tokenizer_kinds()) {
    const Sentence sentence = tokenizer_of(kind)->encode(text);
    EXPECT_GE(sentence.ids.size(), 5000u) << kind;
    EXPECT_EQ(sentence.word.back(), 4999) << kind;
  }
}

TEST(Tokenizer, BadRequestsAreExplained) {
  const auto learn = [](const Strings& lines, const TokenizerOptions& options) {
    return message([&] { learn_tokenizer(stream(lines), options); });
  };
  EXPECT_TRUE(has(learn({"a"}, {.kind = "unigrams"}), "did you mean 'unigram'?"));
  for (const std::string& kind : tokenizer_kinds())
    EXPECT_TRUE(has(learn({"", " ", "\xFF"}, {.kind = kind}), "no text to learn")) << kind;
  EXPECT_TRUE(has(learn(english(100), {.kind = "bpe", .size = 8}), "special entries alone are "));
  EXPECT_TRUE(has(learn(english(100), {.kind = "bpe", .size = 4}), "leaves no room"));
  EXPECT_TRUE(has(learn({"a"}, {.kind = "words", .size = 3}), "leaves no room"));
  EXPECT_TRUE(has(learn({"a"}, {.kind = "bpe", .coverage = 2}), "coverage of 2"));
  const Folder folder;
  const auto load = [&](const std::string& kind, const std::string& path) {
    return message([&] { load_tokenizer(kind, path); });
  };
  EXPECT_TRUE(has(load("bpe", folder.put("a.spm", "nonsense")), "not a SentencePiece model"));
  EXPECT_TRUE(has(load("bpe", folder.put("e.spm", "")), "not a SentencePiece model"));
  EXPECT_TRUE(has(load("bpe", folder / "none"), "cannot be read"));
  EXPECT_TRUE(has(load("words", folder.put("w", "a\nb\na\n")), "'a' comes twice"));
  EXPECT_TRUE(has(load("words", folder.put("v", "a\n\n")), "line 2 is empty"));
  EXPECT_TRUE(has(message([&] { TokenizerPair::load(folder.path()); }), "no source tokenizer"));
}

TEST(Tokenizer, SentencePieceKeepsItsErrorsOffTheScreen) {
  testing::internal::CaptureStderr();
  tokenizer_of("unigram");
  message([&] { learn_tokenizer(stream({"abc"}), {.kind = "unigram", .size = 5}); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Vocabulary, IsSortedByFrequencyAndCut) {
  const Strings lines = {"b b b a a c c d", "</s> e"};
  const auto small = learn_tokenizer(stream(lines), {.kind = "words", .size = 7});
  EXPECT_EQ(small->piece(4) + small->piece(5) + small->piece(6), "bac");
  EXPECT_EQ(small->size(), 7);
  EXPECT_EQ(learn_tokenizer(stream(lines), {.kind = "words", .min_count = 2})->size(), 7);
  EXPECT_TRUE(
      has(message([&] { learn_tokenizer(stream(lines), {.kind = "words", .min_count = 99}); }),
          "nothing comes 99 times"));
}

// A file has an entry a line, and behind a tab what other tools write there.
TEST(Vocabulary, EntriesThatWouldEndALineComeBack) {
  const Folder folder;
  const std::vector<std::string> odd{"\t", "\r", "\n", "a\tb", "<0x09>", "<0x", "<0x3C>0x", "<"};
  Vocabulary::Counts counts;
  for (const std::string& word : odd) counts[word] = 2;
  Vocabulary::learn(counts, {}).save(folder.path() / "v.words");
  const Vocabulary back = Vocabulary::load(folder.path() / "v.words");
  EXPECT_EQ(back.size(), static_cast<int64_t>(odd.size()) + 4);
  for (const std::string& word : odd) EXPECT_EQ(back[back.id(word)], word);
}

TEST(Vocabulary, OfAnotherToolIsTaken) {
  const Folder folder;
  const auto words = load_tokenizer("words", folder.put("v.txt", "<unk>\t0\n</s>\t0\nthe\t-3.5\n"));
  EXPECT_EQ(words->special(), (SpecialIds{.pad = 0, .unknown = 2, .begin = 1, .end = 3}));
  EXPECT_EQ(words->encode("the cat").ids, (std::vector<Id>{4, 2}));
}

// ---- corpora

struct Files {
  Folder folder;
  CorpusFiles names;
  TokenizerPair tokenizers;
};

// A corpus of the grammar with its links, and tokenizers for it.
std::unique_ptr<Files> grammar_files(int64_t count, const std::string& kind = "words") {
  auto files = std::make_unique<Files>();
  std::string source, target, links;
  for (const AlignedPair& pair : grammar().pairs(count, 5)) {
    source += pair.english + "\n";
    target += pair.french + "\n";
    links += to_pharaoh(pair.links) + "\n";
  }
  files->names = {.source = files->folder.put("c.en", source),
                  .target = files->folder.put_gzip("c.fr.gz", target),
                  .alignment = files->folder.put("c.align", links)};
  const TokenizerOptions options{.kind = kind, .size = 1500};
  files->tokenizers = {learn_tokenizer(texts(files->names, Side::source), options),
                       learn_tokenizer(texts(files->names, Side::target), options)};
  return files;
}

TEST(Corpus, CleaningSaysWhatItFoundAndDid) {
  const Folder folder;
  std::string long_one;
  for (int i = 0; i < 5000; ++i) long_one += "a ";
  const CorpusFiles files{
      .source = folder.put("s", "a b\n\n" + long_one + "\na\nbad \xFF\na b c\r\na\n  \n"),
      .target = folder.put("t", "a\nb\na\nb b b b b b b b b b b\nb\nc\nb\nb\n"),
      .alignment = folder.put("a", "0-0\n\n\n\n\n0-5\nx\n\n")};
  const auto words = learn_tokenizer(stream({"a b c"}), {.kind = "words"});
  Corpus corpus(files, {words, words}, {.max_length = 100});
  const CleaningReport report = corpus.report();
  EXPECT_EQ(report.read, 8);
  EXPECT_EQ(report.kept, 3);
  EXPECT_EQ(report[Flaw::empty].lines, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(report[Flaw::too_long].lines, std::vector<int64_t>{3});
  EXPECT_EQ(report[Flaw::wild_ratio].lines, std::vector<int64_t>{4});
  EXPECT_EQ(report[Flaw::not_utf8].lines, std::vector<int64_t>{5});
  EXPECT_EQ(report[Flaw::bad_links].lines, (std::vector<int64_t>{6, 7}));
  EXPECT_TRUE(has(report.text(), "8 pairs read, 3 kept"));
  EXPECT_TRUE(has(report.text(), "1 line longer than 100 pieces: left out (line 3)"))
      << report.text();
  EXPECT_TRUE(has(report.text(), "2 lines empty on one side: left out (lines 2, 8)"));
  const auto window = corpus.window(0);
  ASSERT_EQ(window->size(), 3);
  EXPECT_EQ((*window)[1].line, 6);
  EXPECT_EQ((*window)[1].source.size(), 3u);
  EXPECT_EQ((*window)[0].links.size(), 1u);
  EXPECT_TRUE((*window)[1].links.empty());
}

TEST(Corpus, FilesOfDifferentLengthAreRefusedOrCut) {
  const Folder folder;
  const auto words = learn_tokenizer(stream({"a"}), {.kind = "words"});
  const CorpusFiles files{.source = folder.put("s", "a\na\na\n"), .target = folder.put("t", "a\n")};
  EXPECT_TRUE(has(message([&] { Corpus(files, {words, words}); }), "s has 3 lines and"));
  Corpus corpus(files, {words, words}, {.surplus = Surplus::cut});
  EXPECT_EQ(corpus.report().kept, 1);
  EXPECT_EQ(corpus.report()[Flaw::surplus].count, 2);
  EXPECT_TRUE(has(corpus.report().text(), "left out, from the end (lines 2 on)"))
      << corpus.report().text();
}

TEST(Corpus, BadInputIsExplained) {
  const Folder folder;
  const auto words = learn_tokenizer(stream({"a"}), {.kind = "words"});
  const auto complaint = [&](const std::string& source, const std::string& target) {
    return message([&] { Corpus({.source = source, .target = target}, {words, words}); });
  };
  const std::string good = folder.put("good", "a\n"), empty = folder.put("empty", "");
  EXPECT_TRUE(has(complaint(good, folder / "none"), "none: cannot be read"));
  EXPECT_TRUE(has(complaint(good, folder.path().string()), "is a directory"));
  EXPECT_TRUE(has(complaint(empty, empty), "empty; one sentence a line"));
  EXPECT_TRUE(has(complaint(good, empty), "has 1 lines"));
  EXPECT_TRUE(has(complaint(folder.put("blank", "\n"), good), "nothing is left to learn from"));
  EXPECT_TRUE(has(complaint("/dev/null", good), "not a regular file"));
  EXPECT_TRUE(has(complaint("-", good), "not a regular file"));
  EXPECT_TRUE(has(complaint("", ""), "no files"));
}

TEST(Corpus, TsvHasTwoColumns) {
  const Folder folder;
  const auto words = learn_tokenizer(stream({"a b"}), {.kind = "words"});
  const CorpusFiles files{.source = folder.put("c.tsv", "a b\tb\nlonely\na\tb a\tnote\n"),
                          .target = ""};
  Corpus corpus(files, {words, words});
  EXPECT_EQ(corpus.report().kept, 2);
  EXPECT_EQ(corpus.report()[Flaw::torn].lines, std::vector<int64_t>{2});
  const TextStream both = texts(files, Side::both);
  Strings seen;
  while (const auto line = both()) seen.push_back(*line);
  EXPECT_EQ(seen, (Strings{"a b", "b", "lonely", "", "a", "b a"}));
}

TEST(Corpus, LinksAreBetweenPieces) {
  for (const std::string& kind : tokenizer_kinds()) {
    const auto files = grammar_files(300, kind);
    Corpus corpus(files->names, files->tokenizers);
    EXPECT_EQ(corpus.report()[Flaw::bad_links].count, 0) << kind;
    const auto window = corpus.window(0);
    ASSERT_EQ(window->size(), 300) << kind;
    const Strings source = read_lines(files->names.source[0]),
                  target = read_lines(files->names.target[0]);
    const Strings links = read_lines(files->names.alignment[0]);
    for (int64_t i = 0; i < window->size(); ++i) {
      const PairView pair = (*window)[i];
      const auto s = files->tokenizers.source->encode(source[static_cast<size_t>(i)]);
      const auto t = files->tokenizers.target->encode(target[static_cast<size_t>(i)]);
      ASSERT_EQ(to_pharaoh(to_words(pair.links, s.word, t.word)), links[static_cast<size_t>(i)])
          << kind;
    }
  }
}

TEST(Corpus, AnyNumberOfThreadsGivesTheSame) {
  const auto files = grammar_files(500, "bpe");
  const int before = threads();
  std::vector<std::vector<Id>> seen;
  for (const int count : {1, 2}) {
    set_threads(count);
    Corpus corpus(files->names, files->tokenizers);
    std::vector<Id> all;
    for (int64_t i = 0; i < corpus.window(0)->size(); ++i) {
      const PairView pair = (*corpus.window(0))[i];
      all.insert(all.end(), pair.target.begin(), pair.target.end());
    }
    seen.push_back(all);
  }
  set_threads(before);
  EXPECT_EQ(seen[0], seen[1]);
}

// ---- batches

TEST(Batch, RowsEndAndArePadded) {
  const std::vector<Id> s0 = {10, 11, 12}, s1 = {13}, t0 = {20}, t1 = {21, 22};
  const Links links = {{0, 0}};
  const std::vector<PairView> rows = {{.source = s0, .target = t0, .links = links, .line = 7},
                                      {.source = s1, .target = t1, .links = {}, .line = 9}};
  const SpecialIds special;
  const Batch batch = make_batch(rows, special, special);
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.source_width, 4);
  EXPECT_EQ(batch.target_width, 3);
  EXPECT_EQ(batch.source, (std::vector<Id>{10, 11, 12, 3, 13, 3, 0, 0}));
  EXPECT_EQ(batch.target, (std::vector<Id>{20, 3, 0, 21, 22, 3}));
  EXPECT_EQ(batch.target_in, (std::vector<Id>{2, 20, 0, 2, 21, 22}));
  EXPECT_EQ(batch.source_lengths, (std::vector<Id>{4, 2}));
  EXPECT_EQ(batch.target_lengths, (std::vector<Id>{2, 3}));
  EXPECT_EQ(batch.lines, (std::vector<int64_t>{7, 9}));
  EXPECT_EQ(to_pharaoh(batch.links[0]), "0-0 3-1");
  EXPECT_TRUE(batch.links[1].empty());
  EXPECT_EQ(batch.source_tokens() + batch.target_tokens(), 11);
  EXPECT_DOUBLE_EQ(batch.padding(), 1 - 11.0 / 14);
}

TEST(Batch, AnEpochHasEveryPairOnceWithinTheLimits) {
  const auto files = grammar_files(2000);
  const auto corpus =
      std::make_shared<Corpus>(files->names, files->tokenizers, CorpusOptions{.max_length = 64});
  const BatchOptions options{.tokens = 400, .sentences = 30, .pool = 500};
  Batches batches(corpus, options);
  std::multiset<int64_t> lines;
  double cells = 0, tokens = 0;
  while (true) {
    const Batch batch = batches.next();
    EXPECT_LE(batch.rows * std::max(batch.source_width, batch.target_width), 400);
    EXPECT_LE(batch.rows, 30);
    EXPECT_EQ(batch.links.size(), static_cast<size_t>(batch.rows));
    lines.insert(batch.lines.begin(), batch.lines.end());
    cells += static_cast<double>(batch.source.size() + batch.target.size());
    tokens += static_cast<double>(batch.source_tokens() + batch.target_tokens());
    if (batch.after.epoch == 1) break;
  }
  EXPECT_EQ(lines.size(), 2000u);
  EXPECT_EQ(std::set<int64_t>(lines.begin(), lines.end()).size(), 2000u);
  EXPECT_LT(1 - tokens / cells, 0.12);
  EXPECT_EQ(batches.next().position, (DataPosition{.epoch = 1}));

  const std::vector<Batch> once = batches_once(*corpus, options);
  EXPECT_GE(once.front().source_width, once.back().source_width);
  int64_t rows = 0;
  for (const Batch& batch : once) rows += batch.rows;
  EXPECT_EQ(rows, 2000);
}

std::vector<Batch> take(Batches& batches, size_t count) {
  std::vector<Batch> taken;
  while (taken.size() < count) taken.push_back(batches.next());
  return taken;
}

// In memory, and streaming through windows of 300 lines.
TEST(Batch, StoppingAnywhereAndGoingOnChangesNothing) {
  const auto files = grammar_files(1000);
  for (const int64_t window : {1'000'000, 300}) {
    const CorpusOptions limits{.max_length = 64, .window = window};
    const BatchOptions options{.tokens = 600, .seed = 9};
    const auto fresh = [&] {
      return std::make_shared<Corpus>(files->names, files->tokenizers, limits);
    };
    Batches whole(fresh(), options);
    const std::vector<Batch> expected = take(whole, 60);
    ASSERT_GE(expected.back().position.epoch, 1);
    for (size_t stop = 0; stop + 1 < expected.size(); stop += window == 300 ? 3 : 1) {
      EXPECT_LT(expected[stop].position, expected[stop].after);
      Batches rest(fresh(), options, expected[stop].after);
      const size_t count = std::min<size_t>(3, expected.size() - stop - 1);
      const std::vector<Batch> got = take(rest, count);
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(got[i].lines, expected[stop + 1 + i].lines) << window << " " << stop;
        ASSERT_EQ(got[i].source, expected[stop + 1 + i].source);
        ASSERT_EQ(got[i].target, expected[stop + 1 + i].target);
        ASSERT_EQ(got[i].links, expected[stop + 1 + i].links);
        ASSERT_EQ(got[i].position, expected[stop + 1 + i].position);
      }
    }
  }
}

TEST(Batch, EpochsAndSeedsDiffer) {
  const auto files = grammar_files(400);
  Corpus corpus(files->names, files->tokenizers);
  const auto window = corpus.window(0);
  const auto plan = [&](uint64_t seed, int64_t epoch) {
    return plan_batches(*window, {.tokens = 500, .seed = seed}, epoch, 0);
  };
  EXPECT_EQ(plan(1, 0), plan(1, 0));
  EXPECT_NE(plan(1, 0), plan(1, 1));
  EXPECT_NE(plan(1, 0), plan(2, 0));
}

// A GPU's steps are captured by shape: a corpus of one pool has all of them in its first epoch.
TEST(Batch, EveryEpochHasTheSameShapes) {
  const auto files = grammar_files(1000);
  Corpus corpus(files->names, files->tokenizers);
  const auto window = corpus.window(0);
  const auto shapes = [&](int64_t epoch) {
    std::multiset<std::array<int64_t, 3>> out;
    for (const auto& batch : plan_batches(*window, {.tokens = 500}, epoch, 0)) {
      std::array<int64_t, 3> shape{static_cast<int64_t>(batch.size()), 0, 0};
      for (const int64_t i : batch) {
        const PairView pair = (*window)[i];
        shape[1] = std::max(shape[1], static_cast<int64_t>(pair.source.size()));
        shape[2] = std::max(shape[2], static_cast<int64_t>(pair.target.size()));
      }
      out.insert(shape);
    }
    return out;
  };
  EXPECT_GT(shapes(0).size(), 10u);
  EXPECT_EQ(shapes(0), shapes(1));
  EXPECT_EQ(shapes(0), shapes(2));
}

TEST(Batch, AStreamedEpochHasEveryPairOnce) {
  const auto files = grammar_files(1000);
  const auto corpus = std::make_shared<Corpus>(files->names, files->tokenizers,
                                               CorpusOptions{.max_length = 64, .window = 170});
  EXPECT_EQ(corpus->windows(), 6);
  Batches batches(corpus, {.tokens = 500});
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::multiset<int64_t> lines;
    while (true) {
      const Batch batch = batches.next();
      EXPECT_EQ(batch.position.epoch, epoch);
      lines.insert(batch.lines.begin(), batch.lines.end());
      if (batch.after.epoch > epoch) break;
    }
    EXPECT_EQ(lines.size(), 1000u);
    EXPECT_EQ(*lines.begin(), 1);
    EXPECT_EQ(*lines.rbegin(), 1000);
  }
  EXPECT_EQ(corpus->report().read, 1000);
}

TEST(Batch, ErrorsOfTheThreadReachTheReader) {
  const auto files = grammar_files(1000);
  const auto corpus = std::make_shared<Corpus>(files->names, files->tokenizers,
                                               CorpusOptions{.max_length = 64, .window = 100});
  Batches batches(corpus, {.tokens = 500});
  const Batch first = batches.next();
  fs::resize_file(files->names.source[0], 100);
  std::string error;
  for (int i = 0; i < 1000 && error.empty(); ++i) error = message([&] { batches.next(); });
  EXPECT_TRUE(has(error, "c.en")) << error;
  EXPECT_EQ(message([&] { batches.next(); }), error);
}

TEST(Batch, StopsAtOnceWhileTheQueueIsFull) {
  const auto files = grammar_files(500);
  const auto corpus = std::make_shared<Corpus>(files->names, files->tokenizers);
  for (int i = 0; i < 20; ++i) Batches batches(corpus, {.ahead = 1});
  Batches one(corpus, {.ahead = 1});
  one.next();
}

TEST(Batch, BadRequestsAreExplained) {
  const auto files = grammar_files(100);
  const auto corpus = std::make_shared<Corpus>(files->names, files->tokenizers);
  EXPECT_TRUE(has(message([&] { Batches(corpus, {.tokens = 256}); }), "longest sentence allowed"));
  EXPECT_TRUE(has(message([&] { Batches(corpus, {.pool = 0}); }), "pool (0)"));
  EXPECT_TRUE(has(message([&] { Batches(corpus, {}, {.window = 1}); }), "is it the same one?"));
  Batches beyond(corpus, {}, {.epoch = 0, .window = 0, .batch = 1000});
  EXPECT_TRUE(has(message([&] { beyond.next(); }), "cannot go on at batch 1000"));
}

// ---- the grammar

TEST(Grammar, PairsAreDistinctAndStayTheSame) {
  const std::vector<AlignedPair> pairs = grammar().pairs(10'000, 1),
                                 fewer = grammar().pairs(100, 1);
  std::set<std::string> said;
  for (const AlignedPair& pair : pairs)
    EXPECT_TRUE(said.insert(pair.english).second && said.insert(pair.french).second);
  for (size_t i = 0; i < fewer.size(); ++i) {
    EXPECT_EQ(fewer[i].english, pairs[i].english);
    EXPECT_EQ(fewer[i].french, pairs[i].french);
  }
  EXPECT_NE(grammar().pairs(1, 2)[0].english, pairs[0].english);
}

// The same English never has two translations, however it came about.
TEST(Grammar, EnglishHasOneTranslation) {
  Random random(4);
  std::map<std::string, std::string> french;
  for (int i = 0; i < 20'000; ++i) {
    const AlignedPair pair = grammar().pair(random);
    const auto [at, is_new] = french.emplace(pair.english, pair.french);
    EXPECT_EQ(at->second, pair.french) << pair.english;
  }
}

TEST(Grammar, LinksAreInRangeAndLeaveNoWordOut) {
  size_t crossing = 0;
  for (const AlignedPair& pair : grammar().pairs(5000, 1)) {
    const size_t source = split_words(pair.english).size(),
                 target = split_words(pair.french).size();
    EXPECT_EQ(parse_pharaoh(to_pharaoh(pair.links)), pair.links);
    std::set<int32_t> sources, targets;
    int32_t highest = 0;
    bool crosses = false;
    for (const Link& link : pair.links) {
      sources.insert(link.source);
      targets.insert(link.target);
      crosses |= link.target < highest;
      highest = std::max(highest, link.target);
    }
    crossing += crosses;
    EXPECT_EQ(sources.size(), source) << pair.english << " | " << pair.french;
    EXPECT_EQ(targets.size(), target) << pair.english << " | " << pair.french;
    EXPECT_EQ(*sources.rbegin(), static_cast<int32_t>(source) - 1);
    EXPECT_EQ(*targets.rbegin(), static_cast<int32_t>(target) - 1);
  }
  EXPECT_GT(crossing, 2500u);
}

TEST(Grammar, ElidesAndContracts) {
  using Set = std::set<std::string>;
  const Set elidable = {"le", "la", "je", "me", "te", "ne", "de", "que", "ce", "ma", "ta", "sa"};
  const Set singular = {"un", "le", "ce", "mon", "ton", "son", "notre", "leur", "chaque"};
  const Set two_forms = {"beau", "vieux", "nouveau"};
  const Set aspirated = {"héros",    "hibou",  "hiboux",  "hérisson", "hérissons", "haricot",
                         "haricots", "homard", "homards", "hache",    "haches"};
  const Set accents = {"é", "â", "î", "œ", "ê"};
  for (const AlignedPair& pair : grammar().pairs(5000, 8)) {
    const auto words = split_words(pair.french);
    std::string before;
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      const std::string word(words[i]), next(words[i + 1]);
      const bool vowel =
          !aspirated.contains(next) && (std::string("aeiouyh").find(next[0]) != std::string::npos ||
                                        accents.contains(next.substr(0, 2)));
      EXPECT_FALSE(elidable.contains(word) && vowel) << pair.french;
      EXPECT_FALSE(singular.contains(before) && two_forms.contains(word) && vowel) << pair.french;
      EXPECT_FALSE(word.ends_with('\'') && !vowel) << pair.french;
      EXPECT_FALSE((word == "de" || word == "à") && (next == "le" || next == "les")) << pair.french;
      before = word;
    }
  }
}

TEST(Grammar, CanSayIt) {
  Random random(1);
  std::map<std::string, AlignedPair> said;
  for (int i = 0; i < 400'000 && !said.contains("il m' a entarté ."); ++i) {
    AlignedPair pair = grammar().pair(random);
    if (has(pair.french, "entarté")) said.emplace(pair.french, pair);
  }
  ASSERT_TRUE(said.contains("il m' a entarté ."));
  const AlignedPair& pair = said.at("il m' a entarté .");
  EXPECT_EQ(pair.english, "he hit me with a pie .");
  EXPECT_EQ(to_pharaoh(pair.links), "0-0 1-2 1-3 2-1 3-3 4-3 5-3 6-4");
}

TEST(Grammar, BadTablesAreNamed) {
  const Folder folder;
  for (const auto& file :
       fs::directory_iterator(fs::path(__FILE__).parent_path().parent_path() / "data" / "grammar"))
    fs::copy(file.path(), folder.path());
  const auto complaint = [&](const std::string& name, const std::string& content) {
    const std::string before = read(folder / name);
    folder.put(name, content);
    const std::string said = message([&] { Grammar{folder.path()}; });
    folder.put(name, before);
    return said;
  };
  EXPECT_EQ(message([&] { Grammar{folder.path()}; }), "");
  EXPECT_TRUE(
      has(complaint("names.tsv", "# x\npaul\n"), "names.tsv: line 2: 1 columns; 2 were wanted"));
  EXPECT_TRUE(has(complaint("names.tsv", "paul\tx\n"), "unknown word in column 2 'x'"));
  EXPECT_TRUE(has(complaint("names.tsv", "# none\n"), "has no words"));
  EXPECT_TRUE(
      has(complaint("verbs.tsv", "see ~\tsees\tsaw\tvoir\tvois vois\tvu\tavoir\tdirect\tp\tp\t1\n"),
          "2 forms of the present"));
}

// For graphs of a GPU: few shapes, little more padding, the same words.
TEST(Batch, RoundedUpAddsPaddingAlone) {
  Batch b;
  b.rows = 3, b.source_width = 5, b.target_width = 65;
  b.source.assign(15, 7), b.target.assign(195, 8), b.target_in.assign(195, 9);
  b.source_lengths.assign(3, 5), b.target_lengths.assign(3, 65);
  const Batch up = rounded_up(b, 1, 2);
  EXPECT_EQ(up.rows, 4);
  EXPECT_EQ(up.source_width, 6);
  EXPECT_EQ(up.target_width, 68);
  EXPECT_EQ(up.source_tokens(), 15);
  EXPECT_EQ(up.target_tokens(), 195);
  EXPECT_EQ(std::count(up.source.begin(), up.source.end(), 7), 15);
  EXPECT_EQ(std::count(up.source.begin(), up.source.end(), 1), 4 * 6 - 15);
  EXPECT_EQ(std::count(up.target.begin(), up.target.end(), 2), 4 * 68 - 195);
  EXPECT_EQ(up.source[4], 7);
  EXPECT_EQ(up.source[5], 1);
  EXPECT_EQ(up.source[6], 7);
  EXPECT_EQ(up.source_lengths.back(), 0);
}

}  // namespace
}  // namespace heed
