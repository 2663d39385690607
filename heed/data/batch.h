// Sentences of similar length, padded to a rectangle of ids; and all the batches of a corpus, in an
// order that depends on (seed, epoch) alone, prepared by a thread of their own.
//
// Each window of the corpus is shuffled, cut into pools, each pool sorted by length and cut into
// batches of about the same number of tokens, and the batches shuffled. docs/decisions/batches.md
// has what that costs in padding.
#pragma once

#include <atomic>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "heed/data/corpus.h"

namespace heed {

// A position in the endless sequence of batches: what a checkpoint stores to go on exactly there.
// In a corpus that is held in memory, the window is 0.
struct DataPosition {
  int64_t epoch = 0, window = 0, batch = 0;
  auto operator<=>(const DataPosition&) const = default;
};

// Piece k of a sentence stands in column k, on both sides: a source row is its pieces, then end
// (or what else its SpecialIds say: a begin before them shifts them by one); of a target there are
// two, shifted by one, for teacher forcing. The decoder reads `target_in`
// (begin, then the pieces) and predicts `target` (the pieces, then end), so the weights in its row
// k are those that produced piece k. The rest of a row is padding. A target that goes on (PairView)
// has no end, neither in the row nor in its length.
struct Batch {
  int64_t rows = 0, source_width = 0, target_width = 0;  // B, Ts, Tt
  std::vector<Id> source;                                // [B, Ts]
  std::vector<Id> target_in, target;                     // [B, Tt]
  std::vector<Id> source_lengths, target_lengths;        // [B]: without padding, with end
  std::vector<int64_t> lines;                            // [B]: where in the corpus, from 1
  // [B], or empty where the corpus has no alignment: links from columns of `source` to columns of
  // `target`. The two ends are linked too, except in a row without links.
  std::vector<Links> links;
  DataPosition position, after;  // of this batch, and of the next

  int64_t source_tokens() const;
  int64_t target_tokens() const;  // what a loss is divided by
  // The share of `source` and `target` that is padding.
  double padding() const;
};

// A batch of these rows, in this order. For translation, leave the targets empty.
Batch make_batch(std::span<const PairView> rows, const SpecialIds& source,
                 const SpecialIds& target);

// The same batch with sizes rounded up, so that few shapes come back often: a GPU's steps are
// captured by shape. What is added is padding, at most a sixteenth of a long side; rows of it have
// no tokens.
Batch rounded_up(const Batch& batch, Id source_pad, Id target_pad);

struct BatchOptions {
  int64_t tokens = 4096;   // rows times columns of the wider side, padding counted, at most
  int64_t sentences = 0;   // rows at most; 0: no limit
  int64_t pool = 100'000;  // pairs that are sorted by length together
  uint64_t seed = 1;
  int64_t ahead = 8;  // batches that are prepared in advance
  // Of every so many batches, counted from the start, those in [first, last) are made, and the
  // others passed over: somebody else has them.
  int64_t every = 1, first = 0, last = 1;
};

// The pairs of each batch of a window, by their numbers in the window.
std::vector<std::vector<int64_t>> plan_batches(const CorpusWindow& window,
                                               const BatchOptions& options, int64_t epoch,
                                               int64_t window_number);

// Every pair once, as they are in the first epoch, long ones first, unshuffled: for validation.
std::vector<Batch> batches_once(Examples& examples, const BatchOptions& options);

// The batches of a corpus without end, epoch after epoch.
class Batches {
 public:
  // Starts the thread at `start`; where the system starts none (ulimit -u), next() makes them. The
  // examples may be shared; nothing else may be changed meanwhile.
  Batches(std::shared_ptr<Examples> examples, BatchOptions options, DataPosition start = {});

  // Stops the thread and waits for it.
  ~Batches();

  Batches(const Batches&) = delete;
  Batches& operator=(const Batches&) = delete;

  // The next batch; waits for it where it is not ready. If the thread has met an error, throws it,
  // after the batches that were made before it.
  Batch next();

  // As many rows as the limits let in of the longest source and the longest target of the window
  // that it starts in: no batch of that takes more memory. Of no position; next() goes on as if it
  // had not been asked for.
  Batch longest();

 private:
  class Making;
  bool put(Batch batch);
  void wait_for_one(std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<Examples> examples_;
  const BatchOptions options_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable filled_, taken_;
  std::deque<Batch> ready_;
  Batch longest_;  // known with the first that is ready
  std::exception_ptr error_;
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<Making> making_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace heed
