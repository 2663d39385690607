// The aligner's work on one pair of sentences: counts in, posteriors of both directions out, and
// from them the counts that the pair adds, or its links.
//
// Threads: an object serves one at a time; any number of objects share the tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "heed/alignment/symmetrize.h"
#include "heed/alignment/tables.h"
#include "heed/base/alignment.h"

namespace heed {

// What a pair of sentences has added to the counts, in units, so that it can be taken off exactly.
struct AddedLink {
  uint16_t source, target, units;
};
struct AddedCounts {
  std::span<const AddedLink> links;
  std::span<const uint16_t> empty_source, empty_target;  // by piece; or all are empty: nothing was
};

class PairAligner {
 public:
  // The pieces' numbers are those of the tables, or have them as parent.
  PairAligner(AlignmentTables& tables, const PieceIds& source_ids, const PieceIds& target_ids)
      : tables_(tables), source_ids_(source_ids), target_ids_(target_ids) {}

  // The posteriors by a model. `jumps` are one array for each direction, or empty.
  void align(std::span<const uint32_t> source, std::span<const uint32_t> target,
             const AddedCounts& own, AlignmentStage stage, std::span<double> forward_jumps,
             std::span<double> backward_jumps);

  // Adds the joint posteriors of what was aligned last to the tables, and to `links` and `empty`
  // (source, then target pieces) what was added.
  void add(std::vector<AddedLink>& links, std::vector<uint16_t>& empty);

  // The links of what was aligned last, between pieces. `threshold` is for Combine::posterior.
  Links links(Combine how, float threshold) const;

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

  void take_off(const AddedCounts& own);
  void translations(const AddedCounts& own);
  void add_fertilities(std::span<const AddedLink> links);
  float forward(uint32_t i, uint32_t j) const { return forward_.posterior()[j * I_ + i]; }
  float backward(uint32_t i, uint32_t j) const { return backward_.posterior()[i * J_ + j]; }
  Links best(bool of_targets) const;

  AlignmentTables& tables_;  // changed by add() alone
  const PieceIds &source_ids_, &target_ids_;
  uint32_t I_ = 0, J_ = 0;  // pieces of the source and the target
  std::span<const uint32_t> source_, target_;
  ChainAligner forward_, backward_;  // steps are targets; steps are sources
  Types source_types_, target_types_, source_stems_, target_stems_;
  Meetings pairs_, stems_;
  std::vector<float> forward_type_, backward_type_;  // t by types
  std::vector<Fertility> fertilities_;
};

}  // namespace heed
