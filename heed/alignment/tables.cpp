#include "heed/alignment/tables.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "heed/base/parallel.h"

namespace heed {
namespace {

// Between two looks at the tables' size: pairs of sentences, and words of theirs that meet.
constexpr int64_t kRound = 1024;
constexpr uint64_t kMeetingsAtATime = uint64_t{1} << 22;
constexpr int64_t kGrain = 16;
constexpr uint64_t kMostSketch = uint64_t{1} << 29;
constexpr uint32_t kRare = 2;  // occurrences of a word whose every meeting may matter

void sorted_unique(std::span<const uint32_t> from, std::vector<uint32_t>& to) {
  to.assign(from.begin(), from.end());
  std::ranges::sort(to);
  to.erase(std::ranges::unique(to).begin(), to.end());
}

void count_side(const BitextSide& text, const PieceIds& ids, SideTables& side) {
  side.frequency.assign(ids.size(), 0);
  for (const uint32_t id : text.ids) ++side.frequency[id];
  side.empty.assign(ids.size(), 0);
  side.next_empty.assign(ids.size(), 0);
  side.fertility.assign(ids.size() * kFertilities, 0);
  side.next_fertility.assign(ids.size() * kFertilities, 0);
  side.jump_counts.assign(kJumps, 0);
}

// Each piece's share of its stem; a tenth of an occurrence more, so that none has nothing.
void share_stems(const PieceIds& ids, SideTables& side) {
  std::vector<double> sum(ids.stem_count());
  for (uint32_t id = 0; id < ids.size(); ++id) sum[ids.stem(id)] += side.frequency[id] + 0.1;
  side.share.resize(ids.size());
  for (uint32_t id = 0; id < ids.size(); ++id)
    side.share[id] = static_cast<float>((side.frequency[id] + 0.1) / sum[ids.stem(id)]);
}

// How many pairs a thread has put into the tables.
struct News {
  uint64_t pairs = 0, stems = 0;
};

// How many pairs of sentences, 2 for more, two words meet in; two pairs of words may share a place,
// which makes it look like more.
class Sketch {
 public:
  explicit Sketch(uint64_t meetings)
      : seen_(std::bit_ceil(std::min(std::max<uint64_t>(meetings, 1024), kMostSketch))) {}
  void add(uint64_t key) {
    std::atomic_ref<uint8_t> seen(seen_[place(key)]);
    if (seen.load(std::memory_order_relaxed) < 2) seen.fetch_add(1, std::memory_order_relaxed);
  }
  bool twice(uint64_t key) const { return seen_[place(key)] >= 2; }

 private:
  uint64_t place(uint64_t key) const { return PairCounts::place_of(key, seen_.size()); }
  std::vector<uint8_t> seen_;
};

}  // namespace

void AlignmentTables::find_pairs(const BitextSide& sources, const BitextSide& targets,
                                 uint64_t exact_meetings) {
  count_side(sources, source_ids, source);
  count_side(targets, target_ids, target);
  // No count is more than the most frequent stem's; counts have 31 bits.
  uint64_t most = 1;
  const auto frequent = [&](const PieceIds& ids, const SideTables& side) {
    std::vector<uint64_t> sum(ids.stem_count());
    for (uint32_t id = 0; id < ids.size(); ++id) sum[ids.stem(id)] += side.frequency[id];
    most = std::max(most, *std::ranges::max_element(sum));
  };
  frequent(source_ids, source);
  frequent(target_ids, target);
  unit = 1u << std::clamp(31 - static_cast<int>(std::bit_width(most)), 0, 14);

  const auto n = static_cast<int64_t>(sources.sentences());
  const auto meetings_of = [&](int64_t begin, int64_t end) {
    uint64_t sum = 0;
    for (auto s = static_cast<size_t>(begin); s < static_cast<size_t>(end); ++s)
      sum += uint64_t{sources.length(s)} * targets.length(s);
    return sum;
  };
  // body(e, f, news) for all pairs of different words of the sentences from `first` on.
  const auto each_pair = [&](int64_t first, int64_t count, auto body) {
    parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
      std::vector<uint32_t> ours, theirs;
      News news;
      for (int64_t s = first + begin; s < first + end; ++s) {
        sorted_unique(sources.pieces(static_cast<size_t>(s)), ours);
        sorted_unique(targets.pieces(static_cast<size_t>(s)), theirs);
        for (const uint32_t e : ours)
          for (const uint32_t f : theirs) body(e, f, news);
      }
      pairs.inserted(news.pairs);
      stems.inserted(news.stems);
    });
  };
  const uint64_t meetings = meetings_of(0, n);
  const bool all = meetings <= exact_meetings;
  Sketch sketch(all ? 0 : meetings / 4);
  if (!all)
    each_pair(0, n, [&](uint32_t e, uint32_t f, News&) { sketch.add(PairCounts::key_of(e, f)); });
  // About as many as there will be of europarl's size: every time that tables grow costs.
  if (all) pairs.reserve(meetings / 5), stems.reserve(meetings / 9);
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += count) {
    // All that meet may be new: of long lines few at a time.
    uint64_t more = meetings_of(first, first + 1);
    for (count = 1; count < kRound && first + count < n; ++count) {
      const uint64_t with_next = more + meetings_of(first + count, first + count + 1);
      if (with_next > kMeetingsAtATime) break;
      more = with_next;
    }
    pairs.reserve(more);
    stems.reserve(more);
    each_pair(first, count, [&](uint32_t e, uint32_t f, News& news) {
      if (all || source.frequency[e] <= kRare || target.frequency[f] <= kRare ||
          sketch.twice(PairCounts::key_of(e, f))) {
        news.pairs += pairs.insert(e, f);
        news.stems += stems.insert(source_ids.stem(e), target_ids.stem(f));
      }
    });
  }
}

void AlignmentTables::turn() {
  pairs.turn();
  stems.turn();
  for (SideTables* side : {&source, &target}) {
    side->empty.swap(side->next_empty);
    std::ranges::fill(side->next_empty, 0);
    side->fertility.swap(side->next_fertility);
    std::ranges::fill(side->next_fertility, 0);
  }
  sum_up();
}

void AlignmentTables::sum_up() {
  const auto sum_side = [&](SideTables& side, const PieceIds& ids, auto piece_of) {
    side.total.assign(ids.size(), 0);
    side.stem_total.assign(ids.stem_count(), 0);
    for (const PairCounts::Slot& slot : pairs.slots())
      if (slot.count > 0) side.total[piece_of(slot)] += slot.count;
    for (uint32_t id = 0; id < ids.size(); ++id) side.stem_total[ids.stem(id)] += side.total[id];
    side.empty_total = 0;
    for (const uint32_t count : side.empty) side.empty_total += count;
    share_stems(ids, side);
  };
  parallel_for(2, 1, [&](int64_t which, int64_t) {
    if (which == 0)
      sum_side(source, source_ids, [](const PairCounts::Slot& slot) { return slot.source(); });
    else
      sum_side(target, target_ids, [](const PairCounts::Slot& slot) { return slot.target(); });
  });
}

Fertility AlignmentTables::fertility_of(const SideTables& side, uint32_t piece, uint32_t unit) {
  constexpr float kPrior = 0.5f;
  Fertility p;
  const uint32_t* count = nullptr;
  if ((size_t{piece} + 1) * kFertilities <= side.fertility.size())
    count = &side.fertility[size_t{piece} * kFertilities];
  for (size_t phi = 0; phi < kFertilities; ++phi)
    p[phi] = (count ? static_cast<float>(count[phi]) / static_cast<float>(unit) : 0) + kPrior;
  p[kFertilities - 1] = p[kFertilities - 2] / 10;  // "more" is many numbers, none of them likely
  return p;
}

}  // namespace heed
