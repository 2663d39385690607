// A trained language model: text in, its probability or its continuation out.
//
//   const LanguageModel model("m");
//   std::cout << model.score("To be, or not to be\n").nats_per_character();
//   std::cout << model.generate("ROMEO:\n", {.search = {.beam = 1, .sample = true}})[0].text;
//
// All functions may be called from any number of threads at once. A copy shares the model.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heed/data/text_corpus.h"
#include "heed/files/lines.h"
#include "heed/translation/loaded_model.h"

namespace heed {

// How probable a text is. In a model of lines the end of a line counts as a piece, a word and a
// character; in a stream the newline is a piece and a character.
struct TextScore {
  double log_probability = 0;
  int64_t pieces = 0, words = 0, characters = 0;
  int64_t unknown = 0;  // of the pieces: those are all alike to the model

  double nats_per_piece() const { return -log_probability / double(pieces); }
  double nats_per_character() const { return -log_probability / double(characters); }
  double perplexity_by_piece() const;
  double perplexity_by_word() const;
  TextScore& operator+=(const TextScore& other);
};

struct ScoreOptions {
  int64_t batch = 16;  // rows at a time
  // Of a stream, how many pieces a row adds to those before it, at most the context: the less, the
  // more past each piece has, and the longer it takes. 0: half the context.
  int64_t stride = 0;
  // Is told of lines that are not UTF-8, which are then read with U+FFFD; none: they are errors.
  BadLine bad = {};
  std::function<void(const TextScore&)> progress = {};
};

// A text piece by piece.
struct ReadText {
  std::vector<Id> in, out;              // what was read, from begin on; what was to be predicted
  std::vector<double> log_probability;  // of out
  std::vector<Weights> weights = {};    // [1, H, T, T], if wanted: rows of out, columns of in
};

struct GenerateOptions {
  SearchOptions search = {};          // its special ids, lengths and prefixes are set by generate()
  int64_t length = 256;               // new pieces, at most
  int64_t count = 1;                  // texts; more than one: sampling, or the best of a beam
  std::function<bool()> wanted = {};  // as TranslateOptions has it
};

struct Generated {
  std::string text;  // the prompt and what follows it
  std::vector<Id> ids;
  double log_probability = 0;  // of the pieces behind the prompt, given those before each
};

class LanguageModel {
 public:
  explicit LanguageModel(const std::filesystem::path& folder);
  explicit LanguageModel(std::shared_ptr<const LoadedModel> model);
  // Borrows a model that is being trained: for one thread.
  explicit LanguageModel(const ModelFolder& folder);

  // Of a text; a model of lines takes each line by itself.
  TextScore score(const std::string& text, const ScoreOptions& options = {}) const;
  // The same of a file that need not fit into memory.
  TextScore score(const TextPart& part, const ScoreOptions& options = {}) const;
  // Line by line, for a model of lines.
  std::vector<TextScore> score_lines(const std::vector<std::string>& lines,
                                     const ScoreOptions& options = {}) const;

  // A text that fits into the context; `line` is its number, for messages.
  ReadText read(const std::string& text, bool want_weights, int64_t line = 1) const;

  // Texts that begin with the prompt, best first. What is longer than the context goes on from the
  // last half of it; a model of lines ends by itself. A function of model, prompt and options.
  std::vector<Generated> generate(const std::string& prompt,
                                  const GenerateOptions& options = {}) const;

  bool of_lines() const { return model().config.reads == "lines"; }
  int64_t context() const { return *longest_sentence(model().config); }
  const Tokenizer& tokenizer() const { return *model().tokenizers.target; }
  const ModelFolder& model() const { return model_->folder(); }

 private:
  // What is said of each row's pieces from `from` on.
  struct Row {
    std::vector<Id> out;
    size_t from = 0;
  };
  std::vector<double> log_probabilities(const std::vector<Row>& rows) const;
  // Where lines come from, for messages.
  struct Place {
    std::string before = {};  // "file: "
    int64_t line = 1;         // the first one's number

    std::string at(int64_t number) const { return before + "line " + std::to_string(number); }
  };
  std::vector<TextScore> score_lines(const std::vector<std::string>& lines,
                                     const ScoreOptions& options, const Place& place) const;
  template <class Next>
  TextScore score_stream(Next next_line, const ScoreOptions& options, const Place& place) const;

  std::shared_ptr<const LoadedModel> model_;
};

}  // namespace heed
