// From the weights of a model, which are between pieces, to weights between words, and from those
// to links.
//
// Threads: all functions may be called from any number at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heed/base/alignment.h"
#include "heed/data/tokenizer.h"

namespace heed {

// For each target piece, then the end: weights on the source's pieces, then its end.
using PieceWeights = std::vector<std::vector<float>>;

// Weights between words, row by row.
struct WordWeights {
  size_t targets = 0, sources = 0;  // rows and columns
  std::vector<float> values;
  float at(size_t target, size_t source) const { return values[target * sources + source]; }
};

// The sum over the pieces of a source word, the mean over those of a target word. Which word a
// piece belongs to the two lists say, as Sentence::word does; -1: to none, and it is left out. They
// may be shorter than the weights: what they do not reach is left out, too.
WordWeights join_weights(const PieceWeights& weights, std::span<const int32_t> source_word,
                         std::span<const int32_t> target_word);

// The words that links are between.
struct LinkedWords {
  // Of each piece; -1 for punctuation at the ends of a word that has more to it ("Friday,"), which
  // has partners of its own and makes no links, as in an aligner (alignment/bitext.h).
  std::vector<int32_t> word;
  std::vector<bool> mark;  // by word: it is punctuation and nothing else
};
LinkedWords linked_words(const Tokenizer& tokenizer, const Sentence& sentence);

enum class Extract {
  best,       // each target word with the source word that it weighs most
  threshold,  // words whose weight both ways is above a threshold
  path        // the same after words have heard where the words beside them look
};
// "best", "threshold", "path": as flags spell them, in the order of the enum.
const std::vector<std::string>& extract_names();
// Throws Error, with the nearest name, for any other.
Extract extract_named(std::string_view name);

// How links are made of weights.
//
// `threshold` reads a matrix of weights both ways. p = w(t, s) is how much of target word t's
// weight is on s; q = w(t, s) / (sum over t' of w(t', s)) how much of what is on s comes from t,
// which is what attention the other way might be. A link wants joint_posterior(p, q), the rule of
// the statistical aligner, above the threshold, so that a word may have several links or none. A
// word of punctuation and one of anything else have no link, and their weight does not count.
//
// `path` first replaces the weights by posteriors of a chain (Vogel et al., 1996) whose states are
// source words, whose emissions are the weights, and in which a jump from one place to another
// costs as much as it is longer than one word: exp(-0.3 min(|j - i - 1|, 6)). The source's end
// stands for the empty word, which keeps the place. Where a model is sure that changes nothing;
// where it is not, the words beside a word decide.
//
// In all of them a target word that weighs the source's end more than any word has no link.
struct ExtractOptions {
  Extract how = Extract::path;
  // Not given: the model's, where one was learnt (AlignmentHead::threshold), else kLinkThreshold.
  std::optional<double> threshold = {};
  // Links have what was compared with the threshold for a weight, instead of all being sure; those
  // of `best` have no such thing.
  bool want_probabilities = false;
};
inline constexpr double kLinkThreshold = 0.35;

// A pair of sentences, and the weights that produced the target or would have. Borrows them all.
struct WeighedPair {
  const TokenizerPair& tokenizers;
  const Sentence &source, &target;
  const PieceWeights& weights;
};

// The links between its words; none where there are no weights.
Links word_alignment(const WeighedPair& pair, const ExtractOptions& options = {});

}  // namespace heed
