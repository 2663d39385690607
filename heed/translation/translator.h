// A trained translator: lines of text in, lines of text out, with their alignments.
//
//   const Translator translator("model");
//   std::cout << translator.translate({"the cat sleeps ."})[0].best().text;
//
// All functions may be called from any number of threads at once: their sentences share the
// batches of one engine, and each result has the same bytes as alone. A copy shares the model.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "heed/data/word_weights.h"
#include "heed/translation/loaded_model.h"

namespace heed {

struct TranslateOptions {
  // Its special ids are set from the model, and where it says neither layer nor head, so are they.
  SearchOptions search = {};
  // The search is as it is to be: of what the model's makers search with (SearchDefaults), the
  // caller has taken what he wants. Else that holds wherever `search` is as SearchOptions begins,
  // but for beam, normalize, patience and max_ratio, which are the caller's.
  bool search_is_whole = false;
  // Sentences at a time, with those of other callers; not given: what the device likes, 32 on a CPU
  // and on a GPU 1,024 or, with a beam, 256.
  std::optional<int64_t> batch = {};
  // Of long sentences fewer: so many tokens at a time, which are sentences times the longest source
  // times the beam, bound what a search holds on a CPU. One sentence is always let in.
  int64_t batch_tokens = 32768;
  int64_t max_length = 1000;  // pieces; what a line has more is cut off
  // A word (or character) that the vocabulary does not have is replaced by the source's that it
  // weighs most. Throws Error for a model that has no attention, or other subwords than words and
  // characters.
  bool replace_unknown = false;
  std::optional<Id> end = {};   // a token that ends a translation in the place of the model's end
  ExtractOptions extract = {};  // how links are made of weights (word_alignment)
  // The number of the first line: for messages and, where search has no numbers, for sampling.
  int64_t first_line = 1;
  std::function<void(int64_t done)> progress = {};  // called on the calling thread
  // Called by whichever threads take steps, `wanted` by several at once: be quick. `partial`: line
  // so much (from 0) as it is so far, which may change, and what search.want_tree wants of the
  // steps since it was last called. `wanted`: false ends it with an Error.
  std::function<void(size_t line, const std::string& text, const std::vector<SearchNode>& grown)>
      partial = {};
  std::function<bool()> wanted = {};
};

// Searches as the model's makers do, but for what the caller has `given`, by the names of
// SearchDefaults. A beam that is not given is at least as wide as `best`.
void take_search_defaults(TranslateOptions& options, const ModelFolder& model,
                          std::set<std::string> given);

struct Translation {
  Sentence source;
  bool cut = false;  // the source was longer than max_length
  struct Candidate {
    Sentence target;
    std::string text;
    double log_probability = 0, score = 0;
    // For each target piece, then the end: weights on the source's pieces, then its end.
    PieceWeights weights = {};
  };
  std::vector<Candidate> candidates;  // best first; at least one
  std::vector<SearchNode> tree = {};  // if wanted: every word that the search kept

  const Candidate& best() const { return candidates.front(); }
};

// The links between the words of a source and a target that had these weights, by the model's
// threshold where none is given.
Links word_alignment(const ModelFolder& model, const Sentence& source, const Sentence& target,
                     const PieceWeights& weights, ExtractOptions options = {});

class Translator {
 public:
  explicit Translator(const std::filesystem::path& folder);
  explicit Translator(std::shared_ptr<const LoadedModel> model);
  // Borrows a model that is being trained: for one thread.
  explicit Translator(const ModelFolder& folder);

  // In the order of the lines. An empty line has an empty translation. The result of a line depends
  // neither on the others nor on the size of batches.
  std::vector<Translation> translate(const std::vector<std::string>& lines,
                                     const TranslateOptions& options = {}) const;

  // Given pairs: their scores and, if wanted, the weights that would have produced the targets.
  std::vector<Translation> score(const std::vector<std::string>& sources,
                                 const std::vector<std::string>& targets,
                                 const TranslateOptions& options = {}) const;

  // What every attention of the decoder weighs where it produces the best candidate: by layer,
  // [1, H, pieces + 1, source pieces + 1], the ends last. The model reads both sides once more.
  std::vector<Weights> all_weights(const Translation& translation) const;
  // And those by which the model reads itself, none if it is recurrent: the source's pieces and its
  // end, [1, H, source pieces + 1, the same]; and what is written so far, [1, H, pieces + 1, the
  // same], whose rows are the pieces that are written and then the end, whose columns the begin and
  // then the pieces that are read.
  // And what each head over the source compares and reads: the score of row i of q and row j of k
  // is, by its form, scale q.k ("dot"), scale log(q.k) ("log_dot") or v.tanh(q + k) ("additive"),
  // plus the bias where there is one; what is read, the values' mean by the weights.
  struct HeadTerms {
    std::string form;
    int64_t size = 0, value_size = 0;  // of a row of q and of k, of a value
    double scale = 1;
    std::vector<double> q, k, v, bias, values;  // row by row
  };
  struct Attentions {
    std::vector<Weights> cross, encoder_self, decoder_self;
    std::vector<std::vector<HeadTerms>> terms = {};  // by layer and head
    // Keys and values are of all that the model reads: so many of them stand before the first piece
    // (a begin, where it reads one), and an end that it does not read has none.
    int64_t before = 0;
  };
  Attentions attentions(const Translation& translation) const;

  // Pieces that a line may have with these options, and with this model.
  int64_t longest(const TranslateOptions& options) const;
  // How many sentences run at a time.
  int64_t batch(const TranslateOptions& options) const;

  const ModelFolder& model() const { return model_->folder(); }
  const LoadedModel& loaded() const { return *model_; }

 private:
  Attentions read_again(const Translation& translation, const WantWeights& wanted) const;
  SearchOptions of_model(const TranslateOptions& options) const;
  void check_replacing() const;

  std::shared_ptr<const LoadedModel> model_;
};

}  // namespace heed
