// Running text for language models: from a file to rows of ids.
//
//   stream   one long text, newlines and all, cut into rows of `context` pieces. Where it is cut
//            changes from epoch to epoch; no row has an end, since the text goes on.
//   lines    each line is a text of its own, and ends.
//
// Read in windows of lines, as a parallel corpus is (corpus.h): a text that fits into one is
// encoded once and kept, a larger one streams.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "heed/data/corpus.h"

namespace heed {

// Some consecutive lines of a file, plain or packed.
struct TextPart {
  std::string path;
  int64_t first = 0, count = -1;  // lines before it; how many it has, -1: all that follow
};

// The first part and the last, which has `share` of the bytes, to the nearest line.
std::pair<TextPart, TextPart> split_text(const std::string& path, double share);

// The lines of a part, for learn_tokenizer().
TextStream texts(const TextPart& part);

struct TextCorpusOptions {
  bool lines = false;          // each line is a text of its own
  int64_t context = 128;       // pieces a row; with `lines`, longer ones are left out
  bool with_sources = false;   // rows are sources too: for models that read both ways
  uint64_t seed = 1;           // of where a stream is cut
  int64_t window = 1'000'000;  // lines a window
};

class TextCorpus final : public Examples {
 public:
  // Reads the file through once to count its lines. Throws Error if nothing is left of it.
  TextCorpus(TextPart part, std::shared_ptr<const Tokenizer> tokenizer, TextCorpusOptions options);

  int64_t windows() const override;
  std::shared_ptr<const CorpusWindow> window_of(int64_t epoch, int64_t n,
                                                const std::atomic<bool>& stop) override;
  const TokenizerPair& tokenizers() const override { return tokenizers_; }
  int64_t longest() const override { return options_.context; }
  std::string summary() const override;
  std::string identity() const override;

 private:
  // The lines of a window as ids, one after the other.
  struct Encoded {
    std::vector<Id> ids;
    std::vector<size_t> ends = {0};  // of line i: [i] to [i + 1]
    std::vector<int64_t> numbers;    // of the lines in the file, from 1
  };
  struct Findings {
    int64_t lines = 0, pieces = 0, not_utf8 = 0, empty = 0, too_long = 0;
  };
  enum class Threads { one, all };
  std::shared_ptr<const Encoded> encode(int64_t n, Threads threads, const std::atomic<bool>& stop);
  std::shared_ptr<const CorpusWindow> cut(const Encoded& text, int64_t epoch, int64_t n) const;

  const TextPart part_;
  const TokenizerPair tokenizers_;
  const TextCorpusOptions options_;
  int64_t lines_ = 0;

  std::shared_ptr<const Encoded> only_;  // where there is one window

  std::mutex reading_;                        // guards the next two
  std::vector<LineReader::Position> starts_;  // of the windows found so far
  int64_t reported_ = 0;                      // windows that are in found_

  mutable std::mutex reporting_;  // guards the next
  Findings found_;
};

}  // namespace heed
