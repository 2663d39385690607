// A parallel corpus: sentences and their translations, from files to cleaned ids.
//
// A corpus of up to CorpusOptions::window lines is encoded once and kept: one window. A larger one
// streams, one window being used while the next is read. Each is made of 32 runs of 4,096 lines
// from anywhere, drawn anew for each epoch, and is shuffled in itself (batch.h), so that what the
// corpus is sorted by matters little. (Packed files that cannot be read from anywhere are gone
// through in their order.)
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "heed/data/alignment.h"
#include "heed/data/pairs.h"
#include "heed/data/tokenizer.h"

namespace heed {

// Pairs of a corpus that are split off to validate on: one of every `each` lines. What is trained
// on then has neither these lines nor any other with the same sentence on either side.
class HeldOut {
 public:
  // Throws Error if `each` is less than 2, or there are no such lines.
  HeldOut(const CorpusIndex& index, int64_t each);

  bool chosen(int64_t line) const { return line % each_ == first(); }  // from 1
  int64_t first() const { return each_ / 2; }                          // that is chosen
  bool leaks(const TextPair& pair) const;  // chosen, or the same on one side as one that is
  int64_t each() const { return each_; }

 private:
  int64_t each_;
  std::unordered_set<uint64_t> sources_, targets_;  // hashes of theirs
};

// What can be wrong with a line.
enum class Flaw {
  torn,        // no tab in a TSV file
  not_utf8,    //
  empty,       // on either side
  too_long,    // on either side
  wild_ratio,  // one side is so much longer that it can hardly be a translation
  bad_links,   // not Pharaoh's form, or a word that is not there; the pair is kept without links
  surplus,     // lines that one file has more than the other
  held_out     // no flaw: split off to validate on, or the same as what is
};
inline constexpr size_t kFlaws = 8;

struct CorpusOptions {
  int64_t max_length = 256;  // pieces a side; longer pairs are left out
  double max_ratio = 9;      // longer side to shorter side, in pieces
  Surplus surplus = Surplus::refuse;
  // A corpus of more lines streams, in windows of as many at most; two are in memory at a time.
  int64_t window = 1'000'000;
  // Not 0: in each epoch every sentence comes in pieces that are drawn anew (piece_sampler.h), a
  // function of (seed, epoch, line). One that is then longer than max_length comes as it is;
  // max_ratio is of plain pieces. One more window is in memory then.
  double sampling = 0;
  uint64_t seed = 1;
  // Not null: the corpus is what is left to train on, or what is held out.
  std::shared_ptr<const HeldOut> held_out = {};
  enum class Part { training, held_out } part = Part::training;
};

// What cleaning found and did.
struct CleaningReport {
  struct Finding {
    int64_t count = 0;
    std::vector<int64_t> lines;  // the first few, from 1
  };

  std::string name;  // of the corpus
  CorpusOptions limits;
  int64_t pairs = 0;           // of the corpus; more than were read: only those are told of
  int64_t read = 0, kept = 0;  // pairs
  std::array<Finding, kFlaws> findings;

  // Of what was kept: pairs whose two sides are the same text, and pieces.
  int64_t identical = 0;
  struct Pieces {
    int64_t all = 0, unknown = 0;
  };
  Pieces source = {}, target = {};

  const Finding& operator[](Flaw flaw) const { return findings[static_cast<size_t>(flaw)]; }
  void add(Flaw flaw, int64_t line, int64_t count = 1);
  void add(const CleaningReport& other);  // of the lines after these

  // One line in all, and one for each flaw that was found: how many, the first line numbers, what
  // was done. For people.
  std::string text() const;
};

// A pair as ids, borrowed from its window. Links are between pieces.
struct PairView {
  std::span<const Id> source, target;
  std::span<const Link> links = {};
  int64_t line = 0;
  bool goes_on = false;  // the target is cut out of a longer text: no end follows it
};

// The cleaned pairs of some consecutive lines, as ids.
class CorpusWindow {
 public:
  int64_t size() const { return static_cast<int64_t>(lines_.size()); }
  PairView operator[](int64_t i) const;
  void add(const PairView& pair) {
    source_.insert(source_.end(), pair.source.begin(), pair.source.end());
    target_.insert(target_.end(), pair.target.begin(), pair.target.end());
    links_.insert(links_.end(), pair.links.begin(), pair.links.end());
    ends_.push_back({source_.size(), target_.size(), links_.size()});
    lines_.push_back(pair.line);
    goes_on_.push_back(pair.goes_on);
  }

 private:
  struct Ends {
    size_t source = 0, target = 0, links = 0;
  };
  std::vector<Id> source_, target_;  // all sentences, one after the other
  std::vector<Link> links_;
  std::vector<Ends> ends_ = {{}};  // of pair i: [i] to [i + 1]
  std::vector<int64_t> lines_;
  std::vector<bool> goes_on_;
};

// What batches are made of: pairs of ids, window by window. Thread-safe.
class Examples {
 public:
  virtual ~Examples() = default;

  virtual int64_t windows() const = 0;
  // Window n, from 0, as it is in this epoch: a function of the two. Null if `stop` becomes true
  // meanwhile.
  virtual std::shared_ptr<const CorpusWindow> window_of(int64_t epoch, int64_t n,
                                                        const std::atomic<bool>& stop) = 0;
  virtual const TokenizerPair& tokenizers() const = 0;
  virtual int64_t longest() const = 0;  // pieces that a side may have, its end not counted
  virtual bool has_links() const { return false; }
  // What was read and what was left out, for people.
  virtual std::string summary() const = 0;
  // A position in the examples (DataPosition) is one in examples of this identity: the same number
  // of lines, and the same pieces, or where those are streamed the same limits.
  virtual std::string identity() const = 0;
};

class Corpus final : public Examples {
 public:
  // A corpus of one window is encoded now, on all threads. Throws Error if nothing is left of it.
  Corpus(std::shared_ptr<const CorpusIndex> index, TokenizerPair tokenizers,
         CorpusOptions options = {});
  // Reads every file through once.
  Corpus(const CorpusFiles& files, TokenizerPair tokenizers, const CorpusOptions& options = {})
      : Corpus(std::make_shared<CorpusIndex>(files, options.surplus), std::move(tokenizers),
               options) {}

  int64_t lines() const { return index_->lines(); }
  int64_t windows() const override;

  // Window n, from 0, of the first epoch, in plain pieces; read now unless it is the only one.
  std::shared_ptr<const CorpusWindow> window(int64_t n) { return plain_window(0, n, false); }
  std::shared_ptr<const CorpusWindow> window_of(int64_t epoch, int64_t n,
                                                const std::atomic<bool>& stop) override;

  // What was found so far. Windows that were not read yet, or out of turn, are not in it.
  CleaningReport report() const;
  // What cleaning finds: in all of it or, of a corpus that is streamed, in up to `most` lines here
  // and there, which are read now.
  CleaningReport look(int64_t most = 20'000) const;
  std::string summary() const override { return report().text(); }
  std::string identity() const override;

  const TokenizerPair& tokenizers() const override { return tokenizers_; }
  int64_t longest() const override { return options_.max_length; }
  const CorpusOptions& options() const { return options_; }
  const CorpusFiles& files() const { return index_->files(); }
  const CorpusIndex& index() const { return *index_; }
  bool has_links() const override { return !files().alignment.empty(); }

 private:
  enum class Threads { one, all };
  struct Block;
  bool is_held_out() const;
  std::vector<LineRun> lines_of(int64_t epoch, int64_t n) const;
  void encode(Block& block, Threads threads) const;
  std::shared_ptr<const CorpusWindow> plain_window(int64_t epoch, int64_t n,
                                                   const std::atomic<bool>& stop);
  std::shared_ptr<const CorpusWindow> read_window(const std::vector<LineRun>& lines,
                                                  PairReader& reader, Threads threads,
                                                  const std::atomic<bool>& stop,
                                                  CleaningReport& found) const;
  std::shared_ptr<const CorpusWindow> drawn(const CorpusWindow& plain, int64_t epoch,
                                            const std::atomic<bool>& stop) const;

  const std::shared_ptr<const CorpusIndex> index_;
  const TokenizerPair tokenizers_;
  const CorpusOptions options_;
  std::shared_ptr<const PieceSampler> source_sampler_, target_sampler_;  // null: plain pieces

  std::shared_ptr<const CorpusWindow> only_;  // where there is one window

  std::mutex reading_;                // guards the next two
  std::optional<PairReader> reader_;  // where the last window ended; none: nothing was read yet
  int64_t reported_ = 0;              // windows of the first epoch that are in report_

  mutable std::mutex reporting_;  // guards the next; apart, so that report() need not wait
  CleaningReport report_;
};

}  // namespace heed
