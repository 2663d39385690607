// The aligner's work on one pair of sentences: counts in, posteriors of both directions out, and
// from them the counts that the pair adds, or its links.
//
// Threads: an object serves one at a time; any number of objects share the tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/alignment/added_counts.h"
#include "heed/alignment/symmetrize.h"
#include "heed/alignment/tables.h"
#include "heed/base/alignment.h"

namespace heed {

// What is to be known of a pair beside its words.
struct PairOptions {
  AlignmentStage stage = AlignmentStage::model1;  // by which model
  // What the pair has itself added to the counts, as add() gave it; null: nothing.
  const uint8_t* own = nullptr;
  // Expected jumps are added here, kJumps for each direction, unless they are empty.
  std::span<double> forward_jumps = {}, backward_jumps = {};
};

class PairAligner {
 public:
  // The pieces' numbers are those of the tables, or have them as parent.
  PairAligner(AlignmentTables& tables, const PieceIds& source_ids, const PieceIds& target_ids)
      : tables_(tables), source_ids_(source_ids), target_ids_(target_ids), code_(tables.unit) {}

  // The posteriors by a model; says where `own` ended.
  const uint8_t* align(std::span<const uint32_t> source, std::span<const uint32_t> target,
                       const PairOptions& options);

  // Adds the joint posteriors of what was aligned last to the tables, and to `added` what they
  // were; fertilities, too, if a model is next that uses them.
  enum class Fertilities { skip, count };
  void add(std::vector<uint8_t>& added, Fertilities fertilities);

  // The links of what was aligned last, between pieces. `threshold` is for Combine::posterior,
  // whose links have their probability.
  Links links(Combine how, float threshold) const;
  // Of one direction: for each target (or source) the most probable partner, unless that is the
  // empty word.
  Links best(bool of_targets) const;

  // The posteriors of what was aligned last, source i and target j, by either direction and by
  // both; and those of the empty word.
  float forward(uint32_t i, uint32_t j) const { return forward_.posterior()[j * I_ + i]; }
  float backward(uint32_t i, uint32_t j) const { return backward_.posterior()[i * J_ + j]; }
  float both(uint32_t i, uint32_t j) const;
  float empty_forward(uint32_t j) const { return forward_.empty_posterior()[j]; }
  float empty_backward(uint32_t i) const { return backward_.empty_posterior()[i]; }

 private:
  // The different pieces of a sentence, or the different stems of those.
  struct Types {
    std::vector<uint32_t> ids;    // each once
    std::vector<uint32_t> index;  // of every element
    std::vector<uint32_t> own;    // units that the pair itself has added
    void find(std::span<const uint32_t> of);
  };
  // A pair's slots, and what it has itself added there: [source types, target types].
  struct Meetings {
    std::vector<uint64_t> place;
    std::vector<PairCounts::Slot*> slot;
    std::vector<uint32_t> own;
    void find(PairCounts& counts, const Types& source, const Types& target);
  };

  void take_off();
  void translations();
  void add_fertilities();

  AlignmentTables& tables_;  // changed by add() alone
  const PieceIds &source_ids_, &target_ids_;
  uint32_t I_ = 0, J_ = 0;  // pieces of the source and the target
  std::span<const uint32_t> source_, target_;
  ChainAligner forward_, backward_;  // steps are targets; steps are sources
  Types source_types_, target_types_, source_stems_, target_stems_;
  Meetings pairs_, stems_;
  std::vector<float> forward_type_, backward_type_;  // t by types
  std::vector<Fertility> fertilities_;
  const PosteriorCode code_;
  // Of what was taken off, or added: of links [I, J], and of the empty word's.
  std::vector<uint8_t> links_, empty_source_, empty_target_;
};

}  // namespace heed
