// The statistical aligner and what makes one alignment of two.
#include "heed/alignment/aligner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "heed/alignment/added_counts.h"
#include "heed/alignment/hmm.h"
#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/base/random.h"
#include "heed/base/words.h"
#include "heed/files/atomic_file.h"
#include "heed/files/safetensors.h"
#include "heed/metrics/metrics.h"
#include "heed/studies/grammar.h"
#include "tests/folder.h"

namespace heed {
namespace {

using Lines = std::vector<std::string>;

std::vector<std::string> pharaoh(const std::vector<Links>& links) {
  std::vector<std::string> out;
  for (const Links& line : links) out.push_back(to_pharaoh(line));
  return out;
}

struct Corpus {
  Lines source, target, gold;
};

Corpus grammar_corpus(int64_t pairs) {
  Corpus out;
  for (const AlignedPair& pair : Grammar(HEED_DATA "/grammar").pairs(pairs, 1)) {
    out.source.push_back(pair.english);
    out.target.push_back(pair.french);
    out.gold.push_back(to_pharaoh(pair.links));
  }
  return out;
}

double aer(const std::vector<Links>& links, const Lines& gold) {
  const auto metric = make_aer();
  return metric->score(sum_statistics(statistics(*metric, pharaoh(links), {gold})));
}

TEST(Symmetrize, IsThatOfThePapers) {
  const Links forward = *parse_pharaoh("0-0 1-1 2-1 4-4 5-7"),
              backward = *parse_pharaoh("0-0 1-1 1-2 3-4");
  const auto by = [&](const char* how) {
    return to_pharaoh(combine(forward, backward, combine_named(how)));
  };
  EXPECT_EQ(by("intersection"), "0-0 1-1");
  EXPECT_EQ(by("union"), "0-0 1-1 1-2 2-1 3-4 4-4 5-7");
  EXPECT_EQ(by("grow-diag"), "0-0 1-1 1-2 2-1");
  // 4-4 comes first, so 3-4 finds its target taken.
  EXPECT_EQ(by("grow-diag-final-and"), "0-0 1-1 1-2 2-1 4-4 5-7");
  EXPECT_NE(message([&] { by("posterior"); }).find("probabilities"), std::string::npos);
  EXPECT_NE(message([&] { by("unoin"); }).find("'union'"), std::string::npos);
}

TEST(Symmetrize, GrowsFromLinkToLink) {
  // Each link touches the one before it, by a side or a corner.
  const Links forward = *parse_pharaoh("0-0 1-1 2-2"), backward = *parse_pharaoh("0-0 3-2");
  EXPECT_EQ(to_pharaoh(combine(forward, backward, Combine::grow_diag)), "0-0 1-1 2-2 3-2");
  const Links far = *parse_pharaoh("2000000000-2000000000");
  EXPECT_EQ(to_pharaoh(combine(far, far, Combine::grow_diag_final_and)), to_pharaoh(far));
}

TEST(Symmetrize, ReversedLinksAscend) {
  EXPECT_EQ(to_pharaoh(reversed_links(*parse_pharaoh("0-5 1-2 3-0"))), "0-3 2-1 5-0");
}

// Beside all paths, one by one.
TEST(Hmm, PosteriorsAreThoseOfAllPaths) {
  constexpr uint32_t kSteps = 4, kStates = 3;
  ChainAligner chain;
  chain.start(kSteps, kStates);
  Random random(7);
  std::vector<double> t(kSteps * kStates), none(kSteps);
  for (size_t i = 0; i < t.size(); ++i) t[i] = chain.translation()[i] = 0.05f + random.uniform();
  for (size_t l = 0; l < kSteps; ++l) none[l] = chain.empty()[l] = 0.05f + random.uniform();
  std::vector<double> jumps(kJumps), given(kJumps);
  for (int jump = -4; jump <= 4; ++jump) given[size_t(kLongestJump + jump)] = 10 + 3 * jump;
  const JumpWeights weights(given);
  chain.hmm(weights, jumps);

  std::vector<double> wanted(t.size()), wanted_jumps(kJumps);
  double sum = 0;
  for (int path = 0; path < 256; ++path) {  // two bits a step; 3 is the empty word
    double p = 1;
    int last = -1;
    std::vector<int> made;
    const auto jump = [&](int to) {
      double all = 0;
      for (int k = 0; k <= int(kStates); ++k)
        if (last >= 0 || k < int(kStates)) all += double(weights.by()[k - last]);
      p *= double(weights.by()[to - last]) / all;
      made.push_back(to - last);
      last = to;
    };
    for (size_t l = 0; l < kSteps; ++l) {
      const int state = path >> (2 * l) & 3;
      if (state == 3) {
        p *= 0.05 * none[l];
      } else {
        jump(state);
        p *= 0.95 * t[l * kStates + size_t(state)];
      }
    }
    jump(kStates);
    sum += p;
    for (size_t l = 0; l < kSteps; ++l)
      if (const int state = path >> (2 * l) & 3; state < 3)
        wanted[l * kStates + size_t(state)] += p;
    for (const int d : made) wanted_jumps[size_t(kLongestJump + d)] += p;
  }
  for (size_t i = 0; i < t.size(); ++i)
    EXPECT_NEAR(chain.posterior()[i], wanted[i] / sum, 2e-6) << i;
  for (size_t l = 0; l < kSteps; ++l) {
    double all = chain.empty_posterior()[l];
    for (size_t k = 0; k < kStates; ++k) all += double(chain.posterior()[l * kStates + k]);
    EXPECT_NEAR(all, 1, 2e-6) << l;
  }
  // Where all steps are the empty word's, the one jump from start to end is not counted.
  wanted_jumps[size_t(kLongestJump + 4)] = jumps[size_t(kLongestJump + 4)];
  for (size_t i = 0; i < kJumps; ++i) EXPECT_NEAR(jumps[i], wanted_jumps[i] / sum, 1e-5) << i;
}

TEST(AddedCounts, WhatIsPackedComesBack) {
  Random random(3);
  std::vector<uint8_t> bytes;
  std::vector<std::vector<uint8_t>> all;
  for (const size_t size : {1, 2, 300, 2000})
    for (const float density : {0.f, 0.001f, 0.1f, 0.9f, 2.f}) {
      std::vector<uint8_t>& codes = all.emplace_back(size);
      for (uint8_t& code : codes)
        if (random.uniform() < density) code = density > 1 ? 7 : uint8_t(1 + random.below(255));
      const size_t before = bytes.size();
      pack(codes, bytes);
      EXPECT_LE(bytes.size() - before, size + 2);
      if (density == 0 || density > 1) {
        EXPECT_EQ(bytes.size() - before, 2u);  // all are alike
      }
    }
  const uint8_t* at = bytes.data();
  for (const std::vector<uint8_t>& codes : all) {
    std::vector<uint8_t> got(codes.size(), 99);
    at = unpack(at, got);
    EXPECT_EQ(got, codes);
  }
  EXPECT_EQ(at, bytes.data() + bytes.size());
}

TEST(AddedCounts, ACodeIsItsPosteriorButForRounding) {
  const PosteriorCode code(1 << 14);
  EXPECT_EQ(PosteriorCode::of(0.0009f), 0);
  EXPECT_EQ(PosteriorCode::of(NAN), 0);
  EXPECT_EQ(code.units(0), 0u);
  for (float p = 0.001f; p <= 1; p *= 1.01f) {
    EXPECT_NEAR(code.posterior(PosteriorCode::of(p)), p, p / 30);
    EXPECT_NEAR(code.units(PosteriorCode::of(p)), p * 16384, p * 16384 / 30 + 1);
  }
  EXPECT_EQ(code.units(PosteriorCode::of(1)), 16384u);
  EXPECT_EQ(code.units(PosteriorCode::of(1.001f)), 16384u);
  EXPECT_EQ(PosteriorCode(1).units(PosteriorCode::of(0.001f)), 1u);
}

TEST(Aligner, LearnsTheGrammar) {
  const Corpus corpus = grammar_corpus(3000);
  EXPECT_LT(aer(WordAligner::learn(corpus.source, corpus.target).links, corpus.gold), 10.5);
}

TEST(Aligner, EachModelOfTheLadderIsBetterThanTheOneBefore) {
  const Corpus corpus = grammar_corpus(3000);
  const auto error = [&](int model1, int hmm, int fertility) {
    AlignerOptions options;
    options.model1 = model1, options.hmm = hmm, options.fertility = fertility;
    return aer(WordAligner::learn(corpus.source, corpus.target, options).links, corpus.gold);
  };
  const double model1 = error(4, 0, 0), hmm = error(4, 1, 0);
  EXPECT_LT(model1, 25);
  EXPECT_LT(hmm, model1);
}

TEST(Aligner, IsTheSameOnAnyNumberOfThreads) {
  const Corpus corpus = grammar_corpus(700);
  Folder folder;
  std::vector<std::string> links[3], files[3];
  const int before = threads();
  const int counts[] = {1, 2, 4};
  for (size_t i = 0; i < 3; ++i) {
    set_threads(counts[i]);
    AlignerOptions options;
    options.exact_meetings = 0;  // the sketch, too, is filled by all threads
    const LearntAlignment learnt = WordAligner::learn(corpus.source, corpus.target, options);
    links[i] = pharaoh(learnt.links);
    learnt.aligner.save(folder / "a");
    files[i] = {read(folder / "a")};
  }
  set_threads(before);
  EXPECT_EQ(links[0], links[1]);
  EXPECT_EQ(links[0], links[2]);
  EXPECT_EQ(files[0], files[1]);
  EXPECT_EQ(files[0], files[2]);
}

TEST(Aligner, LeavingOutRareMeetingsCostsLittle) {
  const Corpus corpus = grammar_corpus(2000);
  AlignerOptions sketch;
  sketch.exact_meetings = 0;
  const double all = aer(WordAligner::learn(corpus.source, corpus.target).links, corpus.gold);
  const double some =
      aer(WordAligner::learn(corpus.source, corpus.target, sketch).links, corpus.gold);
  EXPECT_LT(some, all + 0.5);
}

TEST(Aligner, AlignsNewTextByWhatItHasLearnt) {
  const Corpus corpus = grammar_corpus(3500);
  const auto part = [](const Lines& lines, size_t begin, size_t end) {
    return Lines(lines.begin() + std::ptrdiff_t(begin), lines.begin() + std::ptrdiff_t(end));
  };
  const Lines source = part(corpus.source, 0, 500), target = part(corpus.target, 0, 500);
  const LearntAlignment learnt =
      WordAligner::learn(part(corpus.source, 500, 3500), part(corpus.target, 500, 3500));
  const std::vector<Links> links = learnt.aligner.align(source, target).links;
  EXPECT_LT(aer(links, part(corpus.gold, 0, 500)), 11.5);

  Folder folder;
  learnt.aligner.save(folder / "tables");
  EXPECT_EQ(pharaoh(WordAligner::load(folder / "tables").align(source, target).links),
            pharaoh(links));
  // Words it has never seen, one of them with a stem that it has.
  const Lines strange = {"the zyzzyva drinks waterish ."}, etrange = {"le zyzzyva boit d' eau ."};
  EXPECT_NE(to_pharaoh(learnt.aligner.align(strange, etrange).links[0]).find("2-2"),
            std::string::npos);
}

TEST(Aligner, TellsItsPosteriorsAndHowFarDirectionsAgree) {
  const Corpus corpus = grammar_corpus(600);
  const LearntAlignment learnt = WordAligner::learn(corpus.source, corpus.target);
  EXPECT_TRUE(learnt.posteriors.empty());
  AlignerOptions options{.want_posteriors = true};
  const AlignedPairs found = learnt.aligner.align(corpus.source, corpus.target, options);
  ASSERT_EQ(found.posteriors.size(), corpus.source.size());
  for (size_t i = 0; i < 50; ++i) {
    const Posteriors& p = found.posteriors[i];
    const size_t columns = p.sources + 1;
    ASSERT_EQ(p.sources, split_words(corpus.source[i]).size());
    ASSERT_EQ(p.targets, split_words(corpus.target[i]).size());
    ASSERT_EQ(p.joint.size(), columns * (p.targets + 1));
    Links likely;
    for (size_t t = 0; t < p.targets; ++t) {
      float row = 0;
      for (size_t s = 0; s < columns; ++s) row += p.forward[t * columns + s];
      EXPECT_NEAR(row, 1, 1e-3);
      for (size_t s = 0; s < p.sources; ++s)
        if (p.joint[t * columns + s] > options.threshold)
          likely.push_back({static_cast<int32_t>(s), static_cast<int32_t>(t)});
    }
    for (size_t s = 0; s < p.sources; ++s) {
      float column = 0;
      for (size_t t = 0; t <= p.targets; ++t) column += p.backward[t * columns + s];
      EXPECT_NEAR(column, 1, 1e-3);
    }
    EXPECT_EQ(sorted_links(likely), found.links[i]);
  }
  // The same count as of the two ways to join them.
  const auto count = [&](Combine how) {
    int64_t all = 0;
    for (const Links& links :
         learnt.aligner.align(corpus.source, corpus.target, {.combine = how}).links)
      all += std::ssize(links);
    return all;
  };
  EXPECT_EQ(found.agreement.both, count(Combine::intersection));
  EXPECT_EQ(found.agreement.either, count(Combine::unite));
  EXPECT_GT(found.agreement.share(), 0.5);
  EXPECT_LT(found.agreement.share(), 1);
  EXPECT_GT(learnt.agreement.share(), 0.5);
}

// The links of a low threshold, by how probable they are: those of a higher one are among them.
TEST(Aligner, LinksMaySayHowProbableTheyAre) {
  const Corpus corpus = grammar_corpus(2000);
  AlignerOptions options{.threshold = 0.1f, .want_probabilities = true};
  const std::vector<Links> all = WordAligner::learn(corpus.source, corpus.target, options).links;
  const std::vector<Links> sure = WordAligner::learn(corpus.source, corpus.target).links;
  int64_t unsure = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    Links likely;
    for (Link link : all[i]) {
      ASSERT_TRUE(link.weight > 0.1f && link.weight <= 1) << link.weight;
      if (link.weight <= AlignerOptions().threshold) ++unsure;
      if (link.weight <= AlignerOptions().threshold) continue;
      link.weight = 1;
      likely.push_back(link);
    }
    ASSERT_EQ(likely, sure[i]);
  }
  EXPECT_GT(unsure, 100);
}

TEST(Aligner, OddTextHasDefinedLinks) {
  const auto links = [](const Lines& source, const Lines& target) {
    return pharaoh(WordAligner::learn(source, target).links);
  };
  EXPECT_EQ(links({}, {}), Lines{});
  EXPECT_EQ(links({"", "a", " \t"}, {"b", "", ""}), (Lines{"", "", ""}));
  EXPECT_EQ(links({"house"}, {"Haus"}), Lines{"0-0"});  // a corpus of one pair
  EXPECT_EQ(links({"a b c"}, {"a b c"}).size(), 1u);
  EXPECT_EQ(links({"?!", "..."}, {"?!", "..."}), (Lines{"0-0", "0-0"}));  // punctuation alone
  // Case, and punctuation at a word's end, make no other word.
  const Lines source = {"Der Hund.", "der Mann", "ein Hund"},
              target = {"the dog .", "The man", "a DOG!"};
  EXPECT_EQ(links(source, target)[2], "0-0 1-1");
  EXPECT_NE(message([&] {
              links({"a", "b"}, {"a"});
            }).find("2 source lines, but 1 target"),
            std::string::npos);
  EXPECT_NE(message([&] { links({"a \xff"}, {"a"}); }), "");
}

TEST(Aligner, ASideCopiedIsAlignedWithItself) {
  const Lines text = grammar_corpus(300).source;
  const std::vector<Links> links = WordAligner::learn(text, text).links;
  int64_t all = 0, straight = 0;
  for (const Links& line : links)
    for (const Link& link : line) ++all, straight += link.source == link.target;
  EXPECT_GT(all, 2000);
  EXPECT_GT(straight * 100, all * 97);
}

TEST(Aligner, LongLinesAreAlignedAndTooLongOnesLeftOut) {
  Corpus corpus = grammar_corpus(400);
  const auto joined = [](const Lines& lines) {
    std::string out;
    for (size_t i = 0; i < 130; ++i) out += lines[i] + ' ';
    return out;
  };
  const std::string source = joined(corpus.source), target = joined(corpus.target);
  const auto words = [](const std::string& line) {
    return static_cast<int32_t>(std::ranges::count(line, ' '));
  };
  ASSERT_GT(words(source), 1000);
  corpus.source.insert(corpus.source.end(), {source, source + source + source, "x"});
  corpus.target.insert(corpus.target.end(), {target, "y", target + target + target});
  const LearntAlignment learnt = WordAligner::learn(corpus.source, corpus.target);
  EXPECT_EQ(learnt.too_long, 2);
  EXPECT_GT(learnt.links[400].size(), 700u);
  for (const Link& link : learnt.links[400])
    EXPECT_TRUE(link.source < words(source) && link.target < words(target));
  EXPECT_TRUE(learnt.links[401].empty() && learnt.links[402].empty());
}

TEST(Aligner, WaysToCombineAreNested) {
  const Corpus corpus = grammar_corpus(500);
  const auto by = [&](Combine how) {
    AlignerOptions options;
    options.combine = how;
    return WordAligner::learn(corpus.source, corpus.target, options).links;
  };
  const auto inside = [](const std::vector<Links>& a, const std::vector<Links>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (!std::ranges::includes(b[i], a[i])) return false;
    return true;
  };
  const auto both = by(Combine::intersection), grown = by(Combine::grow_diag),
             final_and = by(Combine::grow_diag_final_and), all = by(Combine::unite);
  EXPECT_TRUE(inside(both, grown) && inside(grown, final_and) && inside(final_and, all));
  EXPECT_NE(both, grown);
  EXPECT_NE(final_and, all);
}

TEST(Aligner, TheLexiconHasTheBestTranslationFirst) {
  const Corpus corpus = grammar_corpus(2000);
  const auto lexicon = WordAligner::learn(corpus.source, corpus.target).aligner.lexicon();
  const auto first = [&](const std::string& word) {
    const auto found = std::ranges::find(lexicon, word, &LexiconEntry::source);
    return found == lexicon.end() ? LexiconEntry{} : *found;
  };
  EXPECT_EQ(first("water").target, "eau");
  EXPECT_GT(first("water").probability, 0.6);
  EXPECT_EQ(first(".").target, ".");
  double sum = 0;
  for (const LexiconEntry& entry : lexicon)
    if (entry.source == "water") sum += entry.probability;
  EXPECT_NEAR(sum, 1, 0.02);
}

TEST(Aligner, ADamagedFileIsRefused) {
  Folder folder;
  const Corpus corpus = grammar_corpus(100);
  WordAligner::learn(corpus.source, corpus.target).aligner.save(folder / "a");
  const std::string whole = read(folder / "a");
  const auto said = [&](const std::string& bytes) {
    write_file(folder / "b", bytes);
    return message([&] { WordAligner::load(folder / "b"); });
  };
  EXPECT_EQ(said(whole), "");
  for (size_t at = 0; at < whole.size(); at += 997) {
    std::string bad = whole;
    bad[at] ^= 4;
    EXPECT_NE(said(bad), "") << at;
  }
  EXPECT_NE(said(whole.substr(0, whole.size() - 1)), "");
  EXPECT_NE(said(""), "");
}

// Whole, with the right checksum, and yet not what an aligner writes.
TEST(Aligner, AFileWhosePartsDoNotFitIsRefused) {
  Folder folder;
  const Corpus corpus = grammar_corpus(50);
  WordAligner::learn(corpus.source, corpus.target).aligner.save(folder / "a");
  const SafetensorsFile file = SafetensorsFile::open(folder / "a");
  using Bytes = std::vector<std::byte>;
  const auto said = [&](const std::string& name, const std::function<void(Bytes&)>& change,
                        std::map<std::string, std::string> metadata) {
    std::vector<TensorEntry> entries = file.entries();
    Bytes bytes;
    for (TensorEntry& entry : entries) {
      if (entry.name != name) continue;
      bytes.assign(entry.bytes.begin(), entry.bytes.end());
      change(bytes);
      entry.shape[0] = int64_t(bytes.size()) * 8 / bits(entry.dtype);
      entry.bytes = bytes;
    }
    write_safetensors(folder / "b", entries, metadata);
    return message([&] { WordAligner::load(folder / "b"); });
  };
  const auto changed = [&](const std::string& name, const std::function<void(Bytes&)>& change) {
    return said(name, change, file.metadata());
  };
  const auto with = [&](const std::string& key, const std::string& value) {
    std::map<std::string, std::string> metadata = file.metadata();
    metadata[key] = value;
    return said("", {}, metadata);
  };
  const auto high = [](Bytes& bytes) { std::fill_n(bytes.begin(), 8, std::byte{0xFF}); };
  const auto shorter = [](Bytes& bytes) { bytes.erase(bytes.end() - 8, bytes.end()); };
  EXPECT_EQ(with("heed.aligner", "1"), "");
  EXPECT_TRUE(has(with("heed.aligner", "2"), "an aligner of format 2; this heed reads format 1"));
  EXPECT_TRUE(has(with("unit", "0"), "has learnt nothing"));
  EXPECT_TRUE(has(with("stage", "9"), "stage is not as it should be"));
  EXPECT_TRUE(has(changed("pairs.source", high), "pairs are not as they should be"));
  EXPECT_TRUE(has(changed("pairs.target", high), "pairs are not as they should be"));
  EXPECT_TRUE(has(changed("source.jumps", high), "a count that is none"));  // not a number
  for (const char* name :
       {"pairs.count", "source.empty", "target.fertility", "target.jumps", "source.frequency"})
    EXPECT_TRUE(has(changed(name, shorter), "not as many values")) << name;
  EXPECT_TRUE(has(changed("target.pieces", [](Bytes& bytes) { bytes.pop_back(); }), "a line"));
  EXPECT_TRUE(
      has(changed("source.pieces",
                  [](Bytes& bytes) { bytes.insert(bytes.end(), bytes.begin(), bytes.end()); }),
          "a piece twice"));
  EXPECT_TRUE(has(message([&] {
                    write_safetensors(folder / "b", file.entries());
                    WordAligner::load(folder / "b");
                  }),
                  "checksum"));
}

}  // namespace
}  // namespace heed
