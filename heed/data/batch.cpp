#include "heed/data/batch.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <numeric>
#include <optional>
#include <system_error>
#include <tuple>

#include "heed/base/check.h"
#include "heed/data/stream.h"

namespace heed {
namespace {

int64_t width(size_t pieces) { return static_cast<int64_t>(pieces) + 1; }  // with end
int64_t target_width(const PairView& pair) {
  return width(pair.target.size()) - (pair.goes_on ? 1 : 0);
}
int64_t wider(const PairView& pair) {
  return std::max(width(pair.source.size()), target_width(pair));
}

struct Keyed {
  size_t source, target;
  int64_t pair;
};

// Neighbors are of similar length on both sides. Sorted by source first and target second, targets
// would differ wildly within a batch; so the pairs are cut into strips by source, and each strip is
// sorted by target, up and down in turn. As many strips as there are batches in one give both
// sides the same share. Pairs of equal lengths stay as they were shuffled; the row of lengths is a
// function of the pool alone, so that a corpus of one pool has the same shapes in every epoch
// (unless its pieces are drawn anew).
void sort_by_length(std::span<int64_t> pairs, const CorpusWindow& window,
                    const BatchOptions& options) {
  std::vector<Keyed> keyed;
  keyed.reserve(pairs.size());
  double cells = 0;
  for (const int64_t i : pairs) {
    const PairView pair = window[i];
    keyed.push_back({pair.source.size(), pair.target.size(), i});
    cells += static_cast<double>(wider(pair));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [](const Keyed& a, const Keyed& b) {
    return std::tie(a.source, a.target) < std::tie(b.source, b.target);
  });

  const auto count = static_cast<double>(pairs.size());
  double rows = static_cast<double>(options.tokens) * count / std::max(1.0, cells);  // of a batch
  if (options.sentences > 0) rows = std::min(rows, static_cast<double>(options.sentences));
  const auto strip = static_cast<size_t>(std::max(1.0, std::sqrt(count * rows)));
  bool up = true;
  for (size_t begin = 0; begin < keyed.size(); begin += strip, up = !up)
    std::stable_sort(keyed.begin() + static_cast<int64_t>(begin),
                     keyed.begin() + static_cast<int64_t>(std::min(begin + strip, keyed.size())),
                     [up](const Keyed& a, const Keyed& b) {
                       return up ? a.target < b.target : b.target < a.target;
                     });
  std::transform(keyed.begin(), keyed.end(), pairs.begin(), [](const Keyed& k) { return k.pair; });
}

// Neighbors together, for as long as the padded rectangle stays within the limits.
void cut(std::span<const int64_t> pairs, const CorpusWindow& window, const BatchOptions& options,
         std::vector<std::vector<int64_t>>& batches) {
  int64_t widest = 0;
  std::vector<int64_t> batch;
  for (const int64_t i : pairs) {
    const int64_t wide = wider(window[i]);
    const int64_t rows = static_cast<int64_t>(batch.size()) + 1;
    const bool full = rows * std::max(widest, wide) > options.tokens ||
                      (options.sentences > 0 && rows > options.sentences);
    if (full && !batch.empty()) {
      batches.push_back(std::move(batch));
      batch.clear();
      widest = 0;
    }
    batch.push_back(i);
    widest = std::max(widest, wide);
  }
  if (!batch.empty()) batches.push_back(std::move(batch));
}

Batch make_batch(const CorpusWindow& window, std::span<const int64_t> pairs,
                 const Examples& examples) {
  std::vector<PairView> rows;
  rows.reserve(pairs.size());
  for (const int64_t i : pairs) rows.push_back(window[i]);
  Batch batch = make_batch(rows, examples.tokenizers().source->special(),
                           examples.tokenizers().target->special());
  if (!examples.has_links()) batch.links.clear();
  return batch;
}

void check(const Examples& examples, const BatchOptions& options) {
  require(options.sentences >= 0 && options.pool > 0 && options.ahead > 0, "batches: sentences (",
          options.sentences, ") must not be negative, pool (", options.pool, ") and ahead (",
          options.ahead, ") must be positive");
  require(options.tokens > examples.longest(), "batches: a batch of ", options.tokens,
          " tokens does not hold the longest sentence allowed, ", examples.longest(),
          " pieces and the end; allow larger batches or shorter sentences");
}

}  // namespace

// ---- one batch

int64_t Batch::source_tokens() const {
  return std::accumulate(source_lengths.begin(), source_lengths.end(), int64_t{0});
}

int64_t Batch::target_tokens() const {
  return std::accumulate(target_lengths.begin(), target_lengths.end(), int64_t{0});
}

double Batch::padding() const {
  const auto cells = static_cast<double>(source.size() + target.size());
  return cells > 0 ? 1 - static_cast<double>(source_tokens() + target_tokens()) / cells : 0;
}

Batch make_batch(std::span<const PairView> rows, const SpecialIds& source,
                 const SpecialIds& target) {
  Batch batch;
  batch.rows = static_cast<int64_t>(rows.size());
  const size_t before = source.source_begin ? 1 : 0, around = before + (source.source_end ? 1 : 0);
  for (const PairView& row : rows) {
    batch.source_width =
        std::max(batch.source_width, static_cast<int64_t>(row.source.size() + around));
    batch.target_width = std::max(batch.target_width, target_width(row));
  }
  batch.source.assign(static_cast<size_t>(batch.rows * batch.source_width), source.pad);
  batch.target.assign(static_cast<size_t>(batch.rows * batch.target_width), target.pad);
  batch.target_in = batch.target;
  for (size_t b = 0; b < rows.size(); ++b) {
    const PairView& row = rows[b];
    const size_t s = row.source.size(), t = row.target.size();
    const auto from = batch.source.begin() + static_cast<int64_t>(b) * batch.source_width;
    std::ranges::copy(framed(row.source, source), from);
    const auto to = batch.target.begin() + static_cast<int64_t>(b) * batch.target_width;
    const auto after = std::copy(row.target.begin(), row.target.end(), to);
    if (!row.goes_on) *after = target.end;
    const auto in = batch.target_in.begin() + static_cast<int64_t>(b) * batch.target_width;
    *in = target.begin;
    std::copy(row.target.begin(), row.target.end() - (row.goes_on ? 1 : 0), in + 1);

    batch.source_lengths.push_back(static_cast<Id>(s + around));
    batch.target_lengths.push_back(static_cast<Id>(target_width(row)));
    batch.lines.push_back(row.line);
    Links& links = batch.links.emplace_back(row.links.begin(), row.links.end());
    if (!links.empty() && source.source_end)
      links.push_back({static_cast<int32_t>(s), static_cast<int32_t>(t)});
    for (Link& link : links) link.source += static_cast<int32_t>(before);
  }
  return batch;
}

// ---- the order of batches

std::vector<std::vector<int64_t>> plan_batches(const CorpusWindow& window,
                                               const BatchOptions& options, int64_t epoch,
                                               int64_t window_number) {
  Random random =
      stream_of(options.seed, {static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32),
                               static_cast<uint32_t>(window_number), 0x64617461});
  std::vector<int64_t> pairs(static_cast<size_t>(window.size()));
  std::iota(pairs.begin(), pairs.end(), int64_t{0});
  shuffle(pairs, random);
  std::vector<std::vector<int64_t>> batches;
  for (std::span<int64_t> rest(pairs); !rest.empty();) {
    const auto pool = rest.first(std::min(rest.size(), static_cast<size_t>(options.pool)));
    sort_by_length(pool, window, options);
    cut(pool, window, options, batches);
    rest = rest.subspan(pool.size());
  }
  shuffle(batches, random);
  return batches;
}

Batch rounded_up(const Batch& b, Id source_pad, Id target_pad) {
  const auto up = [](int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; };
  // Widths to a multiple of 2, beyond 64 of 4, beyond 128 of 8, and so on.
  const auto width = [&](int64_t n) {
    int64_t unit = 2;
    while (n > 32 * unit) unit *= 2;
    return up(n, unit);
  };
  Batch out = b;
  out.rows = up(b.rows, 4);
  out.source_width = width(b.source_width);
  out.target_width = width(b.target_width);
  const auto widen = [&](std::vector<Id>& ids, int64_t from, int64_t to, Id pad) {
    std::vector<Id> wide(static_cast<size_t>(out.rows * to), pad);
    for (int64_t i = 0; i < b.rows; ++i)
      std::copy_n(ids.begin() + i * from, from, wide.begin() + i * to);
    ids = std::move(wide);
  };
  widen(out.source, b.source_width, out.source_width, source_pad);
  widen(out.target_in, b.target_width, out.target_width, target_pad);
  widen(out.target, b.target_width, out.target_width, target_pad);
  out.source_lengths.resize(static_cast<size_t>(out.rows), 0);
  out.target_lengths.resize(static_cast<size_t>(out.rows), 0);
  if (!out.links.empty()) out.links.resize(static_cast<size_t>(out.rows));
  return out;
}

std::vector<Batch> batches_once(Examples& examples, const BatchOptions& options) {
  check(examples, options);
  std::vector<Batch> batches;
  for (int64_t n = 0; n < examples.windows(); ++n) {
    const auto window = examples.window_of(0, n, false);
    std::vector<int64_t> pairs(static_cast<size_t>(window->size()));
    std::iota(pairs.begin(), pairs.end(), int64_t{0});
    sort_by_length(pairs, *window, options);
    std::reverse(pairs.begin(), pairs.end());
    std::vector<std::vector<int64_t>> plan;
    cut(pairs, *window, options, plan);
    for (const auto& rows : plan) batches.push_back(make_batch(*window, rows, examples));
  }
  return batches;
}

// ---- one after the other

class Batches::Making {
 public:
  Making(Batches& all, const DataPosition& start) : all_(all), at_(start), coming_(read(start)) {}

  // Of the window that the last one is from.
  Batch longest() const {
    PairView both;
    for (int64_t i = 0; i < window_->size(); ++i) {
      const PairView pair = (*window_)[i];
      if (pair.source.size() >= both.source.size()) both.source = pair.source;
      if (pair.target.size() >= both.target.size())
        both.target = pair.target, both.goes_on = pair.goes_on;
    }
    int64_t rows = std::max<int64_t>(1, all_.options_.tokens / wider(both));
    if (all_.options_.sentences > 0) rows = std::min(rows, all_.options_.sentences);
    const std::vector<PairView> same(static_cast<size_t>(rows), both);
    const TokenizerPair& tokenizers = all_.examples_->tokenizers();
    Batch out = heed::make_batch(same, tokenizers.source->special(), tokenizers.target->special());
    if (!all_.examples_->has_links()) out.links.clear();
    return out;
  }

  // The next one; none if they are no longer wanted.
  std::optional<Batch> next() {
    while (true) {
      while (!window_ || at_.batch == count()) {
        if (window_) at_ = following_;
        if (!next_window()) return std::nullopt;
      }
      const DataPosition here = at_;
      const int64_t turn = passed_++ % all_.options_.every;
      ++at_.batch;
      if (turn < all_.options_.first || turn >= all_.options_.last) continue;
      Batch batch = make_batch(*window_, plan_[static_cast<size_t>(here.batch)], *all_.examples_);
      batch.position = here;
      batch.after = at_.batch < count() ? at_ : following_;
      return batch;
    }
  }

 private:
  using Window = std::shared_ptr<const CorpusWindow>;
  int64_t count() const { return std::ssize(plan_); }

  std::future<Window> read(const DataPosition& p) {
    const auto window = [this, p] {
      return all_.examples_->window_of(p.epoch, p.window, all_.stopping_);
    };
    try {
      return std::async(std::launch::async, window);
    } catch (const std::system_error&) {  // no further thread: then when it is asked for
      return std::async(std::launch::deferred, window);
    }
  }

  bool next_window() {
    window_ = coming_.get();
    if (!window_) return false;  // stopping
    const int64_t windows = all_.examples_->windows();
    plan_ = plan_batches(*window_, all_.options_, at_.epoch, at_.window);
    require(at_.batch <= count(), "batches: cannot go on at batch ", at_.batch, " of epoch ",
            at_.epoch, ", window ", at_.window, ", which has ", count(),
            "; corpus, tokenizers and batch size must be the same as before");
    empty_windows_ = count() == 0 ? empty_windows_ + 1 : 0;
    require(empty_windows_ < windows, "nothing is left to learn from:\n",
            all_.examples_->summary());
    following_ = at_.window + 1 == windows
                     ? DataPosition{.epoch = at_.epoch + 1, .window = 0, .batch = 0}
                     : DataPosition{.epoch = at_.epoch, .window = at_.window + 1, .batch = 0};
    coming_ = read(following_);  // while this one is used
    return true;
  }

  Batches& all_;
  DataPosition at_, following_ = {};
  Window window_;
  std::vector<std::vector<int64_t>> plan_;
  int64_t empty_windows_ = 0;  // in a row
  int64_t passed_ = 0;         // batches since the start
  std::future<Window> coming_;
};

// ---- the thread

Batches::Batches(std::shared_ptr<Examples> examples, BatchOptions options, DataPosition start)
    : examples_(std::move(examples)), options_(options) {
  require(examples_ != nullptr, "batches: no corpus was given");
  check(*examples_, options_);
  require(start.epoch >= 0 && start.batch >= 0 && start.window >= 0 &&
              start.window < examples_->windows(),
          "batches: cannot go on at epoch ", start.epoch, ", window ", start.window, ", batch ",
          start.batch, ": the corpus has ", examples_->windows(), " windows; is it the same one?");
  making_ = std::make_unique<Making>(*this, start);
  try {
    thread_ = std::thread([this] {
      try {
        while (std::optional<Batch> batch = making_->next())
          if (!put(std::move(*batch))) return;
      } catch (...) {
        const std::lock_guard lock(mutex_);
        error_ = std::current_exception();
        filled_.notify_all();
      }
    });
  } catch (const std::system_error&) {  // it can be done without
  }
}

Batches::~Batches() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  taken_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Batches::wait_for_one(std::unique_lock<std::mutex>& lock) {
  if (!thread_.joinable() && ready_.empty()) {
    ready_.push_back(std::move(making_->next()).value());
    if (longest_.rows == 0) longest_ = making_->longest();
  }
  filled_.wait(lock, [&] { return !ready_.empty() || error_; });
  if (ready_.empty()) std::rethrow_exception(error_);
}

Batch Batches::longest() {
  std::unique_lock lock(mutex_);
  wait_for_one(lock);
  return longest_;
}

Batch Batches::next() {
  std::unique_lock lock(mutex_);
  wait_for_one(lock);
  Batch batch = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  taken_.notify_one();
  return batch;
}

// False if the batches are no longer wanted.
bool Batches::put(Batch batch) {
  std::unique_lock lock(mutex_);
  taken_.wait(lock,
              [&] { return stopping_ || static_cast<int64_t>(ready_.size()) < options_.ahead; });
  if (stopping_) return false;
  if (longest_.rows == 0) longest_ = making_->longest();
  ready_.push_back(std::move(batch));
  lock.unlock();
  filled_.notify_one();
  return true;
}

}  // namespace heed
