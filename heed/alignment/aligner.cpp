#include "heed/alignment/aligner.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <utility>

#include "heed/alignment/pair_aligner.h"
#include "heed/alignment/tables.h"
#include "heed/base/check.h"
#include "heed/base/parallel.h"

namespace heed {
namespace {

constexpr int64_t kBlock = 16;     // pairs that one thread takes at a time
constexpr int64_t kRound = 16384;  // pairs between two reports of progress
// Jumps are counted in this unit, so that their sums do not depend on the order.
constexpr double kJumpUnit = 1 << 20;

struct JumpSums {
  std::vector<int64_t> sums = std::vector<int64_t>(kJumps);
  void add(std::span<const double> counts) {
    for (size_t i = 0; i < kJumps; ++i)
      if (const auto n = static_cast<int64_t>(std::llround(counts[i] * kJumpUnit)))
        std::atomic_ref<int64_t>(sums[i]).fetch_add(n, std::memory_order_relaxed);
  }
  std::vector<double> counts() const {
    std::vector<double> out(kJumps);
    for (size_t i = 0; i < kJumps; ++i) out[i] = static_cast<double>(sums[i]) / kJumpUnit;
    return out;
  }
};

struct Bitext {
  BitextSide source, target;
  size_t pairs() const { return source.sentences(); }
  bool has_words(size_t pair) const { return source.length(pair) > 0 && target.length(pair) > 0; }
};

void check_sides(std::span<const std::string> sources, std::span<const std::string> targets) {
  require(sources.size() == targets.size(), "align: ", sources.size(), " source lines, but ",
          targets.size(), " target lines; line by line they must be pairs");
}

// Both sides at once, on two threads. Of two errors the source's is thrown.
Bitext read_bitext(std::span<const std::string> sources, std::span<const std::string> targets,
                   PieceIds& source_ids, PieceIds& target_ids, BitextOptions options,
                   int64_t& too_long) {
  Bitext text;
  std::exception_ptr trouble[2];
  int64_t left_out[2] = {};
  parallel_for(2, 1, [&](int64_t side, int64_t) {
    try {
      if (side == 0)
        text.source = read_side(sources, source_ids, options, left_out[0]);
      else
        text.target = read_side(targets, target_ids, options, left_out[1]);
    } catch (...) {
      trouble[side] = std::current_exception();
    }
  });
  for (const std::exception_ptr& thrown : trouble)
    if (thrown) std::rethrow_exception(thrown);
  too_long = left_out[0] + left_out[1];
  return text;
}

Links to_words(const Bitext& text, size_t pair, const Links& pieces) {
  const uint16_t *source = text.source.words(pair), *target = text.target.words(pair);
  Links words;
  for (const Link& link : pieces) {
    const uint16_t s = source[link.source], t = target[link.target];
    if (!((s | t) & BitextSide::kAttached)) words.push_back({s, t, link.weight});
  }
  return sorted_links(std::move(words));
}

// Those of words, by the piece of each that is no punctuation at its end.
Posteriors posteriors_of(const Bitext& text, size_t pair, const PairAligner& aligner) {
  const auto pieces = [&](const BitextSide& side) {  // by word
    std::vector<uint32_t> out;
    for (uint32_t i = 0; i < side.length(pair); ++i)
      if (!(side.words(pair)[i] & BitextSide::kAttached)) out.push_back(i);
    return out;
  };
  const std::vector<uint32_t> source = pieces(text.source), target = pieces(text.target);
  const size_t columns = source.size() + 1, size = (target.size() + 1) * columns;
  Posteriors out{target.size(), source.size(), std::vector<float>(size), std::vector<float>(size),
                 std::vector<float>(size)};
  for (size_t t = 0; t < target.size(); ++t) {
    for (size_t s = 0; s < source.size(); ++s) {
      out.forward[t * columns + s] = aligner.forward(source[s], target[t]);
      out.backward[t * columns + s] = aligner.backward(source[s], target[t]);
      out.joint[t * columns + s] = aligner.both(source[s], target[t]);
    }
    const size_t last = t * columns + source.size();
    out.forward[last] = out.joint[last] = aligner.empty_forward(target[t]);
  }
  for (size_t s = 0; s < source.size(); ++s) {
    const size_t last = target.size() * columns + s;
    out.backward[last] = out.joint[last] = aligner.empty_backward(source[s]);
  }
  return out;
}

// What is told of pairs: each fills its own places, in any order and on any thread.
class Collected {
 public:
  Collected(AlignedPairs& out, const Bitext& text, const AlignerOptions& options)
      : out_(out), text_(text), options_(options) {
    out_.links.resize(text.pairs());
    if (options.want_posteriors) out_.posteriors.resize(text.pairs());
  }
  // What `aligner` aligned last.
  void add(size_t pair, const PairAligner& aligner) {
    Links& links = out_.links[pair];
    links = to_words(text_, pair, aligner.links(options_.combine, options_.threshold));
    if (!options_.want_probabilities)
      for (Link& link : links) link.weight = 1;
    if (options_.want_posteriors) out_.posteriors[pair] = posteriors_of(text_, pair, aligner);
    const Links forward = to_words(text_, pair, aligner.best(true)),
                backward = to_words(text_, pair, aligner.best(false));
    count(agreement_[0], combine(forward, backward, Combine::intersection).size());
    count(agreement_[1], combine(forward, backward, Combine::unite).size());
  }
  void finish() { out_.agreement = {.both = agreement_[0], .either = agreement_[1]}; }

 private:
  static void count(int64_t& sum, size_t more) {
    std::atomic_ref<int64_t>(sum).fetch_add(static_cast<int64_t>(more), std::memory_order_relaxed);
  }
  AlignedPairs& out_;
  const Bitext& text_;
  const AlignerOptions& options_;
  int64_t agreement_[2] = {};
};

// body(first pair, end) for blocks of all pairs, on all threads, with reports in between.
template <class Body>
void each_block(size_t pairs, const AlignerOptions& options, AlignerProgress progress, Body body) {
  progress.pairs = static_cast<int64_t>(pairs);
  for (int64_t first = 0; first < progress.pairs; first += kRound) {
    const int64_t count = std::min(kRound, progress.pairs - first);
    parallel_for(count, kBlock, [&](int64_t begin, int64_t end) {
      body(static_cast<size_t>(first + begin), static_cast<size_t>(first + end));
    });
    progress.done = first + count;
    if (options.progress) options.progress(progress);
  }
}

class Learning {
 public:
  Learning(AlignmentTables& tables, const Bitext& text, const AlignerOptions& options)
      : tables_(tables),
        text_(text),
        options_(options),
        added_((text.pairs() + kBlock - 1) / kBlock) {}

  // One pass: aligns every pair by what holds, and counts; `found` gets the links, if given.
  void pass(AlignmentStage stage, PairAligner::Fertilities fertilities, AlignerProgress progress,
            Collected* found) {
    JumpSums forward, backward;
    each_block(text_.pairs(), options_, progress, [&](size_t begin, size_t end) {
      PairAligner aligner(tables_, tables_.source_ids, tables_.target_ids);
      std::vector<double> jumps[2];
      if (stage >= AlignmentStage::hmm)
        for (auto& counts : jumps) counts.assign(kJumps, 0);
      std::vector<uint8_t> added;
      const uint8_t* own = added_[begin / kBlock].data();  // null before the first pass
      for (size_t pair = begin; pair < end; ++pair) {
        if (!text_.has_words(pair)) continue;
        own = aligner.align(
            text_.source.pieces(pair), text_.target.pieces(pair),
            {.stage = stage, .own = own, .forward_jumps = jumps[0], .backward_jumps = jumps[1]});
        aligner.add(added, fertilities);
        if (found) found->add(pair, aligner);
      }
      added.shrink_to_fit();
      added_[begin / kBlock] = std::move(added);
      if (stage < AlignmentStage::hmm) return;
      forward.add(jumps[0]);
      backward.add(jumps[1]);
    });
    tables_.turn();
    tables_.stage = stage;
    if (stage < AlignmentStage::hmm) return;
    tables_.source.jump_counts = forward.counts();
    tables_.target.jump_counts = backward.counts();
    tables_.source.jumps = JumpWeights(tables_.source.jump_counts);
    tables_.target.jumps = JumpWeights(tables_.target.jump_counts);
  }

 private:
  AlignmentTables& tables_;
  const Bitext& text_;
  const AlignerOptions& options_;
  std::vector<std::vector<uint8_t>> added_;  // of each block, what its pairs added to the counts
};

// A small corpus wants more passes until places are learnt.
int hmm_passes(int asked, size_t pairs) { return asked >= 0 ? asked : pairs < 2000 ? 2 : 1; }

}  // namespace

WordAligner::WordAligner() : tables_(std::make_unique<AlignmentTables>()) {}
WordAligner::WordAligner(WordAligner&&) noexcept = default;
WordAligner& WordAligner::operator=(WordAligner&&) noexcept = default;
WordAligner::~WordAligner() = default;

LearntAlignment WordAligner::learn(std::span<const std::string> sources,
                                   std::span<const std::string> targets,
                                   const AlignerOptions& options) {
  check_sides(sources, targets);
  LearntAlignment out{{}, WordAligner()};
  out.aligner.lower_case_ = options.lower_case;
  AlignmentTables& tables = *out.aligner.tables_;
  const Bitext text = read_bitext(sources, targets, tables.source_ids, tables.target_ids,
                                  {options.lower_case}, out.too_long);
  tables.find_pairs(text.source, text.target, options.exact_meetings);
  struct Stage {
    AlignmentStage stage;
    const char* name;
    int passes;
  };
  const Stage stages[] = {{AlignmentStage::model1, "model 1", options.model1},
                          {AlignmentStage::hmm, "HMM", hmm_passes(options.hmm, sources.size())},
                          {AlignmentStage::fertility, "fertility", options.fertility}};
  AlignerProgress progress;
  for (const Stage& stage : stages) {
    require(stage.passes >= 0, "align: ", stage.passes, " passes of the ", stage.name);
    progress.passes += stage.passes;
  }
  require(progress.passes > 0, "align: no pass of any model; wanted: at least one");
  Learning learning(tables, text, options);
  Collected collected(out, text, options);
  for (const Stage& stage : stages) {
    progress.stage = stage.name;
    for (int i = 0; i < stage.passes; ++i) {
      ++progress.pass;
      const bool last = progress.pass == progress.passes;
      const bool used = last || progress.pass >= progress.passes - options.fertility;
      learning.pass(stage.stage,
                    used ? PairAligner::Fertilities::count : PairAligner::Fertilities::skip,
                    progress, last ? &collected : nullptr);
    }
  }
  collected.finish();
  return out;
}

AlignedPairs WordAligner::align(std::span<const std::string> sources,
                                std::span<const std::string> targets,
                                const AlignerOptions& options) const {
  check_sides(sources, targets);
  PieceIds source_ids(&tables_->source_ids), target_ids(&tables_->target_ids);
  AlignedPairs out;
  const Bitext text =
      read_bitext(sources, targets, source_ids, target_ids, {lower_case_}, out.too_long);
  Collected collected(out, text, options);
  const AlignerProgress progress{.stage = "aligning", .pass = 1, .passes = 1};
  each_block(text.pairs(), options, progress, [&](size_t begin, size_t end) {
    PairAligner aligner(*tables_, source_ids, target_ids);
    for (size_t pair = begin; pair < end; ++pair)
      if (text.has_words(pair)) {
        aligner.align(text.source.pieces(pair), text.target.pieces(pair),
                      {.stage = tables_->stage});
        collected.add(pair, aligner);
      }
  });
  collected.finish();
  return out;
}

std::vector<LexiconEntry> WordAligner::lexicon() const {
  constexpr double kLeast = 1e-3;
  struct Found {
    uint32_t source, target, count;
  };
  std::vector<Found> found;
  const AlignmentTables& t = *tables_;
  for (const PairCounts::Slot& slot : t.pairs.slots())
    if (slot.count > 0 && slot.count >= kLeast * static_cast<double>(t.source.total[slot.source()]))
      found.push_back({slot.source(), slot.target(), slot.count});
  std::ranges::sort(found, [](const Found& a, const Found& b) {
    if (a.source != b.source) return a.source < b.source;
    return a.count != b.count ? a.count > b.count : a.target < b.target;
  });
  std::vector<LexiconEntry> out;
  out.reserve(found.size());
  for (const Found& f : found)
    out.push_back({t.source_ids.piece(f.source), t.target_ids.piece(f.target),
                   f.count / static_cast<double>(t.source.total[f.source])});
  return out;
}

}  // namespace heed
