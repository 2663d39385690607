// The best way to cut a text into the pieces of a unigram model (Kudo, 2018), by the Viterbi
// algorithm. SentencePiece does the same, but its versions disagree about cuts that are equally
// good, "′′ ′" or "′ ′′": up to 0.2.1 it compares sums of f64 with those of f32, from 0.2.2 on f32
// with f32. Here it is always the latter, whichever version is installed, so that heed cuts as
// those do who have the newest.
//
// Threads: what is made does not change; it may be called from any number at once.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "heed/data/piece_sampler.h"

namespace heed {

class UnigramCut {
 public:
  explicit UnigramCut(const std::vector<ScoredPiece>& pieces);

  struct Part {
    size_t from, to;  // in the text
    Id id;            // kUnknown: a character that is no piece
  };
  static constexpr Id kUnknown = -1;
  // Of a normalized text, with "▁" for spaces.
  std::vector<Part> cut(std::string_view text) const;

 private:
  // A tree of all pieces, byte by byte; node 0 is the root.
  struct Node {
    float score = 0;
    Id id = kUnknown;  // of the piece that ends here
  };
  struct Step {  // of a table by hash, of which half is free
    uint64_t key = 0;
    uint32_t to = 0;  // 0: free
  };
  // Of this step or, where it is not there, a free one.
  size_t place_of(uint32_t node, char byte) const;

  std::vector<Node> nodes_;
  std::vector<Step> steps_;  // a power of two
  float unknown_ = 0;        // the score of an unknown character
};

}  // namespace heed
