// A model's steps as a search takes them: hypotheses are put in order, each gets the scores of its
// next word, and the likeliest words come to the host.
//
// On a GPU all of that is one graph (tensor/graph.h) with one upload and one read-back, for a whole
// search and for every later one of the same sizes. So sizes are few there: sentences and source
// widths are rounded up, a finished sentence's place idles until half of all places do, every
// sentence has all its hypotheses from the first step on, and caches have a fixed room, which
// doubles when it is full. What lasts from step to step lies in memory that belongs to its size.
//
// On a CPU a step is computed for the hypotheses that there are.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heed/models/model.h"
#include "heed/search/search.h"
#include "heed/tensor/graph.h"

namespace heed {

// What the searches with one model share. It borrows the model, whose parameters may change where
// they lie. On a GPU one search of a process at a time; what it keeps there, about as much as four
// searches of the largest size need, goes with it.
class Decoder {
 public:
  // Graphs are for GPUs, but on a CPU their steps compute the same, one kernel after the other.
  enum class Steps { by_device, as_graphs, plain };
  explicit Decoder(const Model& model, Steps steps = Steps::by_device)
      : model_(model), steps_(steps) {}

  const Model& model() const { return model_; }
  int64_t replayed() const { return graphs_ ? graphs_->replayed() : 0; }  // steps, as graphs

 private:
  friend class Decoding;
  using Key = std::pair<std::string, std::vector<int64_t>>;  // a name and sizes

  const Model& model_;
  Steps steps_;
  std::optional<StepGraphs> graphs_;  // once there was a search that wants them
  std::map<Key, Tensor> tensors_;     // what lasts from step to step
  std::map<Key, KeyValueCache> caches_;
};

// The steps of one search.
class Decoding {
 public:
  // Begins with one hypothesis of each sentence.
  Decoding(Decoder& decoder, const Source& source, const SearchOptions& options);

  // One further word of every hypothesis; `last` has the words before, by sentence.
  void step(std::span<const Id> last);

  // What came of it, for hypothesis k of sentence i.
  struct Likeliest {
    std::span<const float> log_probabilities;  // falling
    std::span<const Id> words;
  };
  Likeliest likeliest(int64_t i, int64_t k) const;
  std::span<const float> weights(int64_t i, int64_t k) const;         // if wanted
  std::span<const float> log_probabilities(int64_t i, int64_t k);     // of all words
  int64_t words() const { return found_.log_probabilities.size(1); }  // V

  // Sentence j becomes what sentence kept[j] was, a rising list, and its hypothesis k what from[j *
  // K + k] of its hypotheses was.
  void choose(std::span<const Id> from, std::span<const Id> kept);

 private:
  // Of a captured step.
  struct Sizes {
    int64_t places = 0, width = 0, room = 0;
  };
  int64_t row(int64_t i, int64_t k) const { return places_[static_cast<size_t>(i)] * each_ + k; }
  int64_t room_for(int64_t positions) const;
  StepGraphs::Shape shape(int64_t kind) const;
  Tensor kept(const std::string& name, const Tensor& x);
  KeyValueCache kept_cache(const std::string& name) const;
  void begin(const Source& source);
  void resize(const Sizes& to);
  void captured_step(std::span<const Id> last);
  void compute(State& state, std::span<const Id> last);

  Decoder& decoder_;
  const SearchOptions& options_;
  const Device device_;
  const bool captured_;
  State state_;
  Sizes sizes_;
  int64_t each_ = 1;             // rows of a sentence
  std::vector<int64_t> places_;  // of the sentences
  std::vector<Id> from_;         // what choose() was given, for a captured step
  struct Found {
    Tensor log_probabilities;         // [rows, V]
    std::optional<Ranked> likeliest;  // from here on on the host: [rows, most]
    std::optional<Tensor> weights;    // [rows, Ts]
  } found_;
  std::optional<Tensor> all_;  // found_.log_probabilities on the host
};

}  // namespace heed
