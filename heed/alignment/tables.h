// What an aligner has learnt, and what a word's translations are by it.
//
// Both directions share one count for a pair of words, n(e, f): the sum, over all places where the
// two meet, of how probable both directions together think their link (aligner.h). From it
//   t(f | e) = (n(e, f) + alpha + tau b(f | e)) / (n(e) + alpha V + tau),
// the mean of a Dirichlet posterior whose prior knows stems: b(f | e) is t of their stems, times
// f's share of its stem. t(e | f) is the same with the sides exchanged. The empty word has a count
// for each word and direction.
//
// Leaving out: while a pair of sentences is aligned, what it has itself added to the counts is
// taken off first, as collapsed Gibbs sampling and collapsed variational Bayes do (Asuncion et al.,
// 2009: CVB0). So a word that occurs once says nothing about its sentence, and cannot become the
// translation of whatever is left over there.
#pragma once

#include <cstdint>
#include <vector>

#include "heed/alignment/bitext.h"
#include "heed/alignment/hmm.h"
#include "heed/alignment/pair_counts.h"

namespace heed {

inline constexpr float kLexicalPrior = 1e-3f;  // alpha
inline constexpr float kStemWeight = 10;       // tau

// Up to which model it has learnt, and aligns by.
enum class AlignmentStage { start, model1, hmm, fertility };

// Of one language: by number of a piece, or of a stem.
struct SideTables {
  std::vector<uint32_t> frequency;          // how often a piece occurs
  std::vector<float> share;                 // of its stem
  std::vector<uint64_t> total, stem_total;  // sums of counts with anything
  // Units of steps that the empty word made of a piece, where this side has the steps.
  std::vector<uint32_t> empty, next_empty;
  uint64_t empty_total = 0;
  // Where this side has the states: [piece, fertility].
  std::vector<uint32_t> fertility, next_fertility;
  std::vector<double> jump_counts;
  JumpWeights jumps;
};

class AlignmentTables {
 public:
  PieceIds source_ids, target_ids;
  SideTables source, target;
  PairCounts pairs, stems;
  uint32_t unit = 1;  // counts are in 1/unit
  AlignmentStage stage = AlignmentStage::start;

  // Which pairs of words meet in `sources` and `targets`, before anything is counted. In a corpus
  // with more meetings than `exact_meetings`, two words of three or more occurrences that meet in a
  // single pair of sentences get no count: most of all pairs are such, and hardly any is a
  // translation. What is measured on small corpora is so on large ones, in bounded memory.
  void find_pairs(const BitextSide& sources, const BitextSide& targets, uint64_t exact_meetings);

  // After a pass: the counts that grew are those that hold.
  void turn();
  // From pairs.count, frequencies and fertilities: all that follows from them.
  void sum_up();

  // p(phi) for phi = 0, 1, ..., up to a factor.
  static Fertility fertility_of(const SideTables& side, uint32_t piece, uint32_t unit);
};

}  // namespace heed
