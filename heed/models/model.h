// A model that turns one sequence into another, as training and search see it. A language model is
// one whose source is empty: ids [B, 0], all lengths 0.
//
// Training calls forward(), which is teacher forcing: the whole target is known. Search calls
// start() and step(), and moves hypotheses about in the State between steps; it knows nothing of
// what is in there.
//
// A model does not change: all its functions may be called from many threads at once, each in a
// context of its own (tensor/context.h), unless somebody trains it meanwhile.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heed/attention/kv_cache.h"
#include "heed/attention/score.h"
#include "heed/models/config.h"

namespace heed {

struct Source {
  Tensor ids;               // [B, Ts]
  std::vector<Id> lengths;  // [B]
};

// What a decoder keeps between steps. Row b K + k of a hypothesis' entry belongs to hypothesis k of
// sentence b; entries of sentences are shared by their hypotheses. Each sentence has a position of
// its own: sentences that began at different times take a step together.
struct State {
  State() = default;
  explicit State(const Source& source)  // before the first step
      : lengths(source.lengths), positions(source.lengths.size(), 0) {}

  // [B, n], or [B, G, Ts, n] of which a sentence's first `length` along Ts are read.
  std::map<std::string, Tensor> sentence;
  std::map<std::string, Tensor> hypothesis;    // [B K, n]
  std::map<std::string, KeyValueCache> cache;  // by hypothesis
  std::vector<Id> lengths;                     // [B]: of the sources
  std::vector<Id> positions;                   // [B]: steps taken so far
  // Of a batch whose steps are repeated without the host (search/resident_beams.h): what a step
  // would upload of lengths and positions, where it computes.
  struct Places {
    Tensor positions;  // ids [B K]
    Tensor past;       // ranges of keys, as Mask has them: each row's own [B K, 1, 1, 2]
    Tensor source;     // and the source's [B, 1, K, 2]
    Tensor steps;      // ids [B]: the positions, of sentences
  };
  std::optional<Places> places = {};

  int64_t sentences() const { return static_cast<int64_t>(lengths.size()); }
  // Of every row, for `each` hypotheses of a sentence.
  std::vector<Id> row_positions(int64_t each) const;
  void advance();  // all positions by one
  // Hypothesis i becomes what hypothesis from[i] was, sentence j what sentence kept[j] was. Counts
  // may change.
  void choose(std::span<const Id> from, std::span<const Id> kept);
  // The same for hypotheses alone, by ids [B K] that the host need not know: each becomes what
  // another one of its sentence was. Caches have a fixed capacity.
  void choose(const Tensor& from);
};

// Weights of one attention of the decoder over the source or, in a language model, over its own
// past: column j belongs to word j of target_in.
struct Weights {
  int64_t layer = 0;
  // [B, H, Tt, Ts]; from step(): [B K, H, Ts]. Over the past, Ts is the words so far or, in a cache
  // with a fixed capacity, the capacity.
  Tensor values;
};

// What an attention of the decoder over the source compares and reads: its score is what the terms
// stand for (attention/score.h), its context the mean of the values.
struct AttentionTerms {
  int64_t layer = 0;
  ScoreTerms score;  // q [B or 1, H, Tt, n], k [B or 1, G, Ts, n]
  Tensor values;     // [B, G, Ts, m]
};

// Whose weights align: a layer (-1: the last) and a head (-1: the mean of the first `mean_of`, 0:
// of all), at the step that writes a word or, with a shift of 1, at the one after it, which reads
// the word and so knows what it is to find (Chen et al., 2020, "Accurate Word Alignment
// Induction"). `whole`: where all of the target is known, as of a given translation, the weights
// are of a pass that sees all of it (Garg et al., 2019, "Jointly Learning to Align and Translate").
// `threshold`: how likely a link must be that is made of them, where that was learnt
// (data/word_weights.h).
struct AlignmentHead {
  int64_t layer = -1, head = -1, shift = 0, mean_of = 0;
  bool whole = false;
  std::optional<double> threshold = {};
  bool operator==(const AlignmentHead&) const = default;
};

// Which weights a forward pass shows.
class WantWeights {
 public:
  WantWeights(bool all) : layer_(all ? kAll : kNone) {}  // NOLINT: meant to be converted to
  static WantWeights of_layer(int64_t layer) {
    WantWeights out(false);
    out.layer_ = layer;
    return out;
  }
  // And those by which the encoder and the decoder read themselves, and what attention over the
  // source compares and reads.
  static WantWeights and_self() {
    WantWeights out(true);
    out.self_ = true;
    return out;
  }
  // And those of `layer` in a pass of the decoder that sees all of the target, whose rows are so
  // long; AlignmentHead::whole says whether a model knows what to do with it.
  WantWeights& and_whole(int64_t layer, std::span<const Id> target_lengths) {
    whole_layer_ = layer, target_lengths_.assign(target_lengths.begin(), target_lengths.end());
    return *this;
  }
  bool of(int64_t layer) const { return layer_ == kAll || layer_ == layer; }
  bool of_self() const { return self_; }
  bool whole() const { return whole_layer_ != kNone; }
  int64_t whole_layer() const { return whole_layer_; }
  const std::vector<Id>& target_lengths() const { return target_lengths_; }

 private:
  static constexpr int64_t kNone = -1, kAll = -2;
  int64_t layer_;
  bool self_ = false;
  int64_t whole_layer_ = kNone;
  std::vector<Id> target_lengths_;
};

// Words that are to be predicted from hidden vectors; a negative one does not count.
struct Prediction {
  Tensor hidden;  // [B, T, D]
  Tensor words;   // ids [B, T]
};

struct TeacherForced {
  Tensor hidden;  // [B, Tt, D]: what the output weights score words by
  std::vector<Weights> weights = {};
  std::optional<Weights> whole = {};  // if wanted: seeing all of the target
  // Self-attention, if it is wanted and the model has it: [B, H, Ts, Ts] and [B, H, Tt, Tt], whose
  // column j is word j of target_in.
  std::vector<Weights> encoder_self = {}, decoder_self = {};
  std::vector<AttentionTerms> terms = {};  // wanted with these; of scores that have such a form
  std::vector<Prediction> also = {};       // what is learnt beside the target
};
struct Step {
  Tensor hidden;  // [B K, D]: as above
  std::vector<Weights> weights = {};
};

// The vectors of each word in its sentence, by layer: the table's, which know no sentence, at 0.
// The rows of a sentence are its words, [B, T or T - 1, any]; what stands after them is the end.
struct WordLayers {
  std::vector<Tensor> layers;
  std::optional<Tensor> mix = {};  // of all layers, if the model has learnt how to mix them
};

class Model {
 public:
  virtual ~Model() = default;

  // All steps at once: target_in [B, Tt] begins with the begin symbol. Row t of the weights is
  // those that produced word t.
  virtual TeacherForced forward(const Source& source, const Tensor& target_in,
                                const WantWeights& want_weights) const = 0;

  virtual State start(const Source& source) const = 0;
  // One further token of every hypothesis; `last` has the ones before, ids [B K]. Advances the
  // state.
  virtual Step step(State& state, const Tensor& last, bool want_weights) const = 0;
  Step step(State& state, std::span<const Id> last, bool want_weights) const {
    return step(state, ids(last, {std::ssize(last)}), want_weights);
  }

  // [D, V], and [V] if it has one.
  virtual Tensor output_weight() const = 0;
  virtual std::optional<Tensor> output_bias() const { return std::nullopt; }
  // The scores of words [..., V] from hidden vectors [..., D].
  virtual Tensor logits(const Tensor& hidden) const {
    return linear(hidden, output_weight(), output_bias());
  }

  // The positions that it can have; none: as many as you like.
  virtual std::optional<int64_t> positions() const { return std::nullopt; }

  // The attention that a given alignment teaches (guided alignment), and that then aligns.
  virtual AlignmentHead guided_head() const { return {}; }

  // Does every op of it have a kernel for bf16 activations on a GPU?
  virtual bool trains_in_bf16() const { return false; }

  // Of a model that reads sentences both ways. `begin` is what stands before the first word.
  virtual WordLayers word_layers(const Source& source, Id begin) const;
};

// What `cell` of a configuration stands for.
inline Cell cell_of(const std::string& name) {
  return name == "rnn" ? Cell::rnn : name == "lstm" ? Cell::lstm : Cell::gru;
}

struct Vocabularies {
  int64_t source = 0, target = 0;  // sizes
  bool shared = false;             // one table of word vectors for both
};
std::unique_ptr<Model> make_model(const Params& params, const ModelConfig& config,
                                  const Vocabularies& vocabularies);

}  // namespace heed
