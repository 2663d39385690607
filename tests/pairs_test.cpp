// Corpora in several files, packed or not, and the index that goes to any of their lines.
#include "heed/data/pairs.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>
#include <map>

#include "heed/data/batch.h"
#include "heed/files/safetensors.h"
#include "tests/folder.h"

namespace heed {
namespace {

std::string text_of(const std::string& word, int64_t first, int64_t last) {
  std::string text;
  for (int64_t i = first; i < last; ++i) text += word + std::to_string(i) + "\n";
  return text;
}

std::string frame(const std::string& bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

constexpr int64_t kLines = 30'000;

// The same 30,000 pairs, in three files a side: plain, gzip, and zstd in many frames.
CorpusFiles three_files(const Folder& folder) {
  const auto put = [&](const std::string& word) {
    std::string frames;
    for (int64_t i = 20'000; i < kLines; i += 1000) frames += frame(text_of(word, i, i + 1000));
    return Paths({folder.put(word + "-0", text_of(word, 0, 9000)),
                  folder.put_gzip(word + "-1.gz", text_of(word, 9000, 20'000)),
                  folder.put(word + "-2.zst", frames)});
  };
  return {.source = put("s"), .target = put("t")};
}

TEST(Pairs, OfSeveralFilesAreOneCorpus) {
  const Folder folder;
  const CorpusFiles files = three_files(folder);
  PairReader reader(files);
  for (int64_t i = 0; i < kLines; ++i) {
    const auto pair = reader.next();
    ASSERT_TRUE(pair);
    ASSERT_EQ(pair->source, "s" + std::to_string(i));
    ASSERT_EQ(pair->target, "t" + std::to_string(i));
    ASSERT_EQ(pair->line, i + 1);
  }
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(expanded({folder / "s-*"}), files.source);
  EXPECT_EQ(expanded({folder / "t-0", folder / "t-[12]*"}), files.target);
  EXPECT_TRUE(has(message([&] { expanded({folder / "u-*"}); }), "no file has such a name"));
  EXPECT_TRUE(has(files.source.name(), "s-2.zst (3 files)"));
}

TEST(Pairs, AnIndexGoesToAnyLine) {
  const Folder folder;
  const CorpusFiles files = three_files(folder);
  const CorpusIndex made(files);
  EXPECT_FALSE(made.was_kept());
  EXPECT_EQ(made.lines(), kLines);
  made.keep(folder.path() / "index");
  const CorpusIndex kept(files, Surplus::refuse, folder.path() / "index");
  EXPECT_TRUE(kept.was_kept());
  EXPECT_EQ(kept.checksum(), made.checksum());
  for (const CorpusIndex* index : {&made, &kept}) {
    EXPECT_TRUE(index->anywhere());
    PairReader reader = index->at(0);
    for (const int64_t line : {29'999, 0, 4095, 4096, 8999, 9000, 19'999, 20'000, 25'500, 12'345}) {
      index->go(reader, line);
      ASSERT_EQ(reader.next().value().source, "s" + std::to_string(line));
      EXPECT_EQ(index->at(line).next().value().target, "t" + std::to_string(line));
    }
  }
}

TEST(Pairs, AnIndexIsOfTheFilesAsTheyAre) {
  const Folder folder;
  const std::filesystem::path kept = folder.path() / "index";
  const CorpusFiles files{.source = folder.put("s", text_of("s", 0, 10'000)),
                          .target = folder.put("t", text_of("t", 0, 10'000))};
  const CorpusIndex before(files);
  before.keep(kept);
  EXPECT_TRUE(CorpusIndex(files, Surplus::refuse, kept).was_kept());
  folder.put("t", text_of("u", 0, 10'000));  // of the same size
  std::filesystem::last_write_time(
      folder / "t", std::filesystem::last_write_time(folder / "t") + std::chrono::seconds(1));
  const CorpusIndex after(files, Surplus::refuse, kept);
  EXPECT_FALSE(after.was_kept());
  EXPECT_NE(after.checksum(), before.checksum());
  EXPECT_EQ(after.at(7777).next().value().target, "u7777");
  // One that is damaged is made again.
  std::filesystem::resize_file(kept, 300);
  EXPECT_FALSE(CorpusIndex(files, Surplus::refuse, kept).was_kept());
}

// A checksum tells of accidents alone: what is read is looked at, too.
TEST(Pairs, AnIndexThatNoFilesCanHaveIsMadeAgain) {
  const Folder folder;
  const std::filesystem::path kept = folder.path() / "index";
  const CorpusFiles files{.source = folder.put("s", text_of("s", 0, 10'000)),
                          .target = folder.put("t", text_of("t", 0, 10'000))};
  const CorpusIndex made(files);
  const auto expect_made_again = [&](const std::string& what) {
    const CorpusIndex again(files, Surplus::refuse, kept);
    EXPECT_FALSE(again.was_kept()) << what;
    EXPECT_EQ(again.lines(), 10'000) << what;
    EXPECT_EQ(again.at(9000).next().value().target, "t9000") << what;
  };
  const auto change = [&](const std::string& name, size_t at, uint64_t value) {
    made.keep(kept);
    const auto file = SafetensorsFile::open(kept);
    std::vector<TensorEntry> entries(file.entries().begin(), file.entries().end());
    const TensorEntry& found = file.at(name);
    std::vector<uint64_t> numbers(found.bytes.size() / sizeof value);
    std::memcpy(numbers.data(), found.bytes.data(), found.bytes.size());
    if (at < numbers.size())
      numbers[at] = value;
    else
      numbers.clear();
    for (TensorEntry& entry : entries)
      if (entry.name == name) {
        entry.bytes = std::as_bytes(std::span(numbers));
        entry.shape[0] = static_cast<int64_t>(numbers.size()) / entry.shape[1];
      }
    write_safetensors(kept, entries, {{"heed.corpus", "1"}, {kChecksumEntry, ""}});
    expect_made_again(name + " " + std::to_string(at) + " is " + std::to_string(value));
  };
  constexpr uint64_t kHuge = uint64_t{1} << 63;
  for (const uint64_t value : {uint64_t{4000}, uint64_t{99'999}, kHuge})
    for (size_t column = 0; column < 6; ++column)
      if (column != 1 || value > 4000) change("target.positions", 6 + column, value);
  change("target.positions", 7, 4095);  // fewer bytes than lines are before it
  for (const uint64_t value : {uint64_t{0}, kHuge}) change("source.files", 2, value);
  change("source.files", 3, 2);
  change("source.checksum", 1, 0);  // none
  change("source.positions", 99, 0);
}

TEST(Pairs, FilesThatDoNotBelongTogetherAreRefused) {
  const Folder folder;
  const std::string three = folder.put("three", "a\na\na\n"), two = folder.put("two", "a\na\n");
  const auto complaint = [](std::vector<std::string> source, std::vector<std::string> target) {
    return message([&] {
      CorpusIndex(CorpusFiles{.source = Paths(source), .target = Paths(target)}, Surplus::cut);
    });
  };
  EXPECT_TRUE(has(complaint({three, two}, {three}), "2 and 1 files"));
  EXPECT_TRUE(has(complaint({three, "nowhere"}, {three}), "2 and 1 files"));  // before any is read
  // As many lines in all.
  EXPECT_TRUE(has(complaint({three, two}, {two, three}), "three has 3 lines and"));
  EXPECT_EQ(CorpusIndex({.source = three, .target = two}, Surplus::cut).surplus(), 1);
}

// As the one that --guided auto learns.
TEST(Pairs, AnAlignmentMayBeOneFileOfAllLines) {
  const Folder folder;
  const Paths sides({folder.put("three", "a\nb\nc\n"), folder.put("two", "d\ne\n")});
  const auto index = [&](const std::string& links) {
    return CorpusIndex({.source = sides, .target = sides, .alignment = folder.put("links", links)});
  };
  const CorpusIndex all = index("0-0\n0-0 1-1\n\n3-3\n4-4\n");
  EXPECT_EQ(all.lines(), 5);
  EXPECT_EQ(all.at(3).next().value().alignment, "3-3");
  EXPECT_TRUE(has(message([&] { index("0-0\n"); }), "links 1"));
  EXPECT_TRUE(
      has(message([&] { CorpusIndex({.source = "three", .target = "three", .alignment = sides}); }),
          "1 and 2 files; each wants its links beside it"));
}

// What stands far apart comes together, and an epoch has every pair once.
TEST(Pairs, AWindowIsOfLinesFromAnywhere) {
  const Folder folder;
  const CorpusFiles files = three_files(folder);
  const auto words = learn_tokenizer(texts(files, Side::both), {.kind = "characters"});
  const auto index = std::make_shared<CorpusIndex>(files);
  Corpus corpus(index, {words, words}, {.window = 3200, .seed = 5});
  EXPECT_EQ(corpus.windows(), 10);
  std::map<int64_t, std::vector<int64_t>> order;  // by epoch
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    for (int64_t n = 0; n < corpus.windows(); ++n) {
      const auto window = corpus.window_of(epoch, n, false);
      EXPECT_LE(window->size(), 3200);
      for (int64_t i = 0; i < window->size(); ++i) order[epoch].push_back((*window)[i].line);
      if (n + 1 == corpus.windows()) continue;
      EXPECT_GT((*window)[window->size() - 1].line - (*window)[0].line, kLines / 2) << n;
    }
    std::vector<int64_t> sorted = order[epoch];
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(std::ssize(sorted), kLines);
    for (int64_t i = 0; i < kLines; ++i) ASSERT_EQ(sorted[static_cast<size_t>(i)], i + 1);
  }
  EXPECT_NE(order[0], order[1]);
}

// Whether the corpus was read through now or is known from before, and where it began, is nothing
// that the batches show.
TEST(Pairs, BatchesGoOnFromAnIndexThatWasKept) {
  const Folder folder;
  const CorpusFiles files = three_files(folder);
  const auto words = learn_tokenizer(texts(files, Side::both), {.kind = "characters"});
  const auto corpus = [&](const CorpusIndex& index) {
    return std::make_shared<Corpus>(std::make_shared<CorpusIndex>(index),
                                    TokenizerPair{words, words}, CorpusOptions{.window = 5000});
  };
  const CorpusIndex made(files);
  made.keep(folder.path() / "index");
  Batches whole(corpus(made), {.tokens = 2000});
  Batch last = whole.next();
  while (last.position.epoch == 0 || last.position.window < 3) last = whole.next();
  Batches rest(corpus(CorpusIndex(files, Surplus::refuse, folder.path() / "index")),
               {.tokens = 2000}, last.after);
  for (int i = 0; i < 50; ++i) {
    const Batch a = whole.next(), b = rest.next();
    ASSERT_EQ(a.lines, b.lines);
    ASSERT_EQ(a.source, b.source);
    ASSERT_EQ(a.target, b.target);
  }
}

// One long packed file is gone through from its beginning.
TEST(Pairs, WhatCannotBeReadFromAnywhereComesInItsOrder) {
  const Folder folder;
  std::string all;
  for (int64_t i = 0; i < 100'000; ++i)
    all += std::string(200, 'x') + " " + std::to_string(i) + "\ty\n";
  const auto index = std::make_shared<CorpusIndex>(
      CorpusFiles{.source = folder.put("s.zst", frame(all)), .target = {}});
  EXPECT_FALSE(index->anywhere());
  EXPECT_EQ(index->lines(), 100'000);
  const auto words = learn_tokenizer(texts(index->files(), Side::target), {.kind = "words"});
  Corpus corpus(index, {words, words}, {.window = 3200});
  const int64_t size = 16 * 200;
  for (const int64_t epoch : {0, 1})
    for (const int64_t n : {0, 1, 30}) {
      const auto window = corpus.window_of(epoch, n, false);
      ASSERT_EQ(window->size(), size);
      for (int64_t i = 0; i < size; ++i) ASSERT_EQ((*window)[i].line, n * size + i + 1);
    }
}

}  // namespace
}  // namespace heed
