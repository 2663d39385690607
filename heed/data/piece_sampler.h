// Subword regularization: the same text in other pieces, drawn anew each time.
//
//   bpe      merges are made as ever, the best first, but each is left out with probability p when
//            its turn comes (BPE-dropout: Provilkov, Emelianenko and Voita, 2020)
//   unigram  every way to cut the text may come, with a probability in proportion to that of its
//            pieces to the power of alpha (Kudo, 2018, with all cuts: l = infinity)
//
// Why not the library's: docs/decisions/sampling.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/id.h"
#include "heed/base/random.h"

namespace heed {

// A piece of a SentencePiece model; its index in the list is its id.
struct ScoredPiece {
  std::string text;    // "▁" for a space
  float score = 0;     // bpe: higher ones are merged earlier; unigram: the log-probability
  bool fixed = false;  // is kept where it stands, and never drawn: special pieces, and the like
};

struct DrawnPieces {
  std::vector<Id> ids;
  std::vector<int32_t> from;  // for each, the number of the plain piece it begins in; ascends
};

// Immutable, and safe to use from several threads.
class PieceSampler {
 public:
  virtual ~PieceSampler() = default;

  // `plain` is a text as Tokenizer::encode() gives it; what is drawn decodes to the same text.
  virtual DrawnPieces draw(std::span<const Id> plain, Random& random) const = 0;
};

// With p = 0 the plain pieces are drawn, with p = 1 characters.
std::shared_ptr<const PieceSampler> sample_bpe(const std::vector<ScoredPiece>& pieces, double p);

// The smaller alpha, the more varied; as it grows the plain pieces alone are drawn.
std::shared_ptr<const PieceSampler> sample_unigram(const std::vector<ScoredPiece>& pieces,
                                                   double alpha);

}  // namespace heed
