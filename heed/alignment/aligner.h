// A statistical word aligner: from nothing but sentence pairs to links between their words.
//
//   const std::vector<std::string> sources = read_text("a.de"), targets = read_text("a.en");
//   const LearntAlignment learnt = WordAligner::learn(sources, targets);
//   to_pharaoh(learnt.links[0]);                        // "0-0 1-2 2-1"
//   learnt.aligner.save("de-en.aligner");
//   WordAligner::load("de-en.aligner").align(others, theirs);
//
// A ladder of models, each of which begins with what the one before it has found, in both
// directions at once: model 1, the HMM, fertilities (hmm.h). After each pass a link's count is the
// geometric mean of its posteriors in the two directions (alignment by agreement: Liang et al.,
// 2006), shared by both; counts become probabilities by Dirichlet priors and with a pair's own
// counts left out (tables.h). docs/align.md has the formulas and what each step is worth.
//
// Nothing is drawn at random, and counts are whole numbers: the same text gives the same bytes on
// any number of threads.
//
// Memory, bytes: of text 6 for each piece of either side; 16 / 0.7, and half as much again or more
// while tables grow, for each pair of words that has a count and each such pair of stems; for what
// a pair has added at most 1 for each meeting of two pieces. With europarl's 25 words a line 20,000
// pairs of lines take 0.34 GB, a million 3.3 (there words that meet once get no count: tables.h).
//
// Threads: learn() and align() use those of the pool in use. What is made does not change; it may
// be called from any number at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "heed/alignment/symmetrize.h"
#include "heed/base/alignment.h"

namespace heed {

class AlignmentTables;

struct AlignerProgress {
  const char* stage = "";  // "model 1", "HMM", "fertility", "aligning"
  int pass = 0, passes = 0;
  int64_t done = 0, pairs = 0;  // of this pass
};

struct AlignerOptions {
  bool lower_case = true;
  // Passes over the corpus by each model, no fewer than one in all; the last one's links are those
  // that come back. -1: one, or two for less than 2,000 pairs.
  int model1 = 4, hmm = -1, fertility = 1;
  Combine combine = Combine::posterior;
  // Combine::posterior: a link wants more than this, of 0 to 1. Less gives more links.
  float threshold = 0.35f;
  // Corpora where words meet more often than this (100,000 pairs of lines, say) leave out pairs of
  // words that are hardly translations.
  uint64_t exact_meetings = uint64_t{1} << 26;
  // Combine::posterior: links have that probability, instead of all being sure.
  bool want_probabilities = false;
  bool want_posteriors = false;
  std::function<void(const AlignerProgress&)> progress = {};  // called by the calling thread
};

// How probable the links between a pair's words are, row by row [target words + 1, source words +
// 1]. The last column and row are the empty word's: `forward` has in each row where a target word
// comes from, `backward` in each column what a source word becomes, and either sums to one there
// but for punctuation at words' ends, which has no row or column. `joint` is what links are chosen
// by (Combine::posterior).
struct Posteriors {
  size_t targets = 0, sources = 0;  // words, the empty one not counted
  std::vector<float> forward, backward, joint;
};

// How far the two directions agree, each of which gives a word its best partner: of the links that
// either has, those that both have.
struct Agreement {
  int64_t both = 0, either = 0;
  double share() const { return either > 0 ? double(both) / double(either) : 1; }
};

struct AlignedPairs {
  std::vector<Links> links;
  Agreement agreement = {};
  int64_t too_long = 0;                     // pairs that were left out
  std::vector<Posteriors> posteriors = {};  // if wanted
};

struct LexiconEntry {
  std::string source, target;
  double probability = 0;  // of the target word, among those that the source word is linked with
};

struct LearntAlignment;

class WordAligner {
 public:
  // Learns from pairs of lines, and aligns them. An empty line has no links; one of more than 2,048
  // words and marks is left out and has none either. Throws Error if the sides have not as many
  // lines, or one is not UTF-8.
  static LearntAlignment learn(std::span<const std::string> sources,
                               std::span<const std::string> targets,
                               const AlignerOptions& options = {});

  // By what was learnt, without learning more. Of the options those of learning mean nothing.
  AlignedPairs align(std::span<const std::string> sources, std::span<const std::string> targets,
                     const AlignerOptions& options = {}) const;

  // What words are linked with, in lower case unless it was learnt otherwise: source words in the
  // order of the text, the most probable target word of each first; those of at least 0.1 %.
  std::vector<LexiconEntry> lexicon() const;

  // One file, written whole or not at all. Throws Error, saying what is wrong, for one that is
  // damaged, or not of an aligner.
  void save(const std::filesystem::path& file) const;
  static WordAligner load(const std::filesystem::path& file);

  WordAligner(WordAligner&&) noexcept;
  WordAligner& operator=(WordAligner&&) noexcept;
  ~WordAligner();

 private:
  WordAligner();
  std::unique_ptr<AlignmentTables> tables_;
  bool lower_case_ = true;
};

struct LearntAlignment : AlignedPairs {
  WordAligner aligner;
};

}  // namespace heed
