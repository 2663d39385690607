// TER: how many edits turn the hypothesis into the reference, where moving a block of words is one.
//
// Finding the best moves is hard, so TER is defined by a greedy search (Snover et al., 2006), and
// by its limits: as long as some move lowers the edit distance, the one that lowers it most is
// made. Order of preference and limits are those of Tercom as sacreBLEU has them; any other choice
// gives other scores.
//
// What takes time is the edit distance of every possible move. Three things make it short: rows
// above the first moved word are those of the unmoved hypothesis; only a band around the diagonal
// is filled (Tercom's rule as well); and a row that cannot lead to a better move than is known
// already ends the matter.
//
// Statistics: edits, mean length of the references.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "heed/metrics/metrics.h"
#include "heed/metrics/ngrams.h"

namespace heed {
namespace {

using Words = std::vector<uint32_t>;

constexpr int kLongestMove = 10;   // words
constexpr int kFarthestMove = 50;  // words
constexpr int kMostMovesTried = 1000;
constexpr int kBeam = 25;
constexpr int kFar = 1 << 28;  // farther than any real distance

// Where each word of the reference stands in the hypothesis (-1: before its first word; a word that
// was not found stands with the one before it), and which words of either are wrong.
struct Matching {
  std::vector<int> place;
  std::vector<bool> reference_wrong, hypothesis_wrong;
};

// The matrix of edit distances between the beginnings of a hypothesis (rows) and those of the
// reference (columns), near its diagonal. Row i holds columns begin(i) to end(i) - 1.
class EditMatrix {
 public:
  EditMatrix(const Words& hypothesis, const Words& reference)
      : reference_(reference),
        rows_(static_cast<int>(hypothesis.size())),
        columns_(static_cast<int>(reference.size())),
        slope_(hypothesis.empty() ? 1 : double(columns_) / rows_),
        beam_(kBeam < slope_ / 2 ? static_cast<int>(std::ceil(slope_ / 2 + kBeam)) : kBeam),
        width_(static_cast<size_t>(std::min(columns_ + 1, 2 * beam_ + 2))),
        costs_((hypothesis.size() + 1) * width_),
        scratch_(2 * width_) {
    update(hypothesis);
  }

  // The distance of the hypothesis that was last given.
  int distance() const { return rows_ == 0 ? columns_ : cost(rows_, columns_); }

  void update(const Words& hypothesis) {
    for (int i = 1; i <= rows_; ++i)
      fill(i, hypothesis[static_cast<size_t>(i - 1)], row(i - 1), row(i));
  }

  // The distance of another hypothesis of the same length, whose first `same` words are unchanged;
  // nothing if it is above `limit`.
  std::optional<int> distance_of(const Words& hypothesis, int same, int limit) {
    const int* above = row(same);
    for (int i = same + 1; i <= rows_; ++i) {
      int* const now = scratch_.data() + static_cast<size_t>(i % 2) * width_;
      if (fill(i, hypothesis[static_cast<size_t>(i - 1)], above, now) > limit) return {};
      above = now;
    }
    const int result = same == rows_ ? distance() : above[columns_ - begin(rows_)];
    return result > limit ? std::nullopt : std::optional(result);
  }

  // Back from the end, by the step that is preferred among the shortest: to the left and up (words
  // matched or substituted), up, left.
  Matching matching(const Words& hypothesis) const {
    Matching out{std::vector<int>(reference_.size()), std::vector<bool>(reference_.size()),
                 std::vector<bool>(hypothesis.size())};
    for (int i = rows_, j = columns_; i > 0 || j > 0;) {
      const auto h = static_cast<size_t>(i - 1), r = static_cast<size_t>(j - 1);
      const int wrong = i > 0 && j > 0 && hypothesis[h] != reference_[r] ? 1 : 0;
      if (i > 0 && j > 0 && cost(i, j) == cost(i - 1, j - 1) + wrong) {
        out.place[r] = --i, --j;
        out.reference_wrong[r] = out.hypothesis_wrong[h] = wrong;
      } else if (i > 0 && (j == 0 || cost(i, j) == cost(i - 1, j) + 1)) {
        out.hypothesis_wrong[h] = true, --i;
      } else {
        out.place[r] = i - 1, --j;
        out.reference_wrong[r] = true;
      }
    }
    return out;
  }

 private:
  int diagonal(int i) const { return static_cast<int>(std::floor(i * slope_)); }
  int begin(int i) const { return std::max(0, diagonal(i) - beam_); }
  int end(int i) const {
    return i == rows_ ? columns_ + 1 : std::min(columns_ + 1, diagonal(i) + beam_);
  }
  int* row(int i) { return costs_.data() + static_cast<size_t>(i) * width_; }

  // Row 0 is not stored: from nothing to j words takes j edits.
  int cost(int i, int j) const {
    if (i == 0) return j;
    if (j < begin(i) || j >= end(i)) return kFar;
    return costs_[static_cast<size_t>(i) * width_ + static_cast<size_t>(j - begin(i))];
  }

  // Row i from row i - 1. Returns a bound below which the whole distance cannot be: for every place
  // in the row, at least as many edits are to come as the rests of both texts differ in length.
  int fill(int i, uint32_t word, const int* above, int* now) const {
    const int first = begin(i), last = end(i), above_begin = begin(i - 1), above_end = end(i - 1);
    const auto up = [&](int j) {
      return i == 1 ? j : j >= above_begin && j < above_end ? above[j - above_begin] : kFar;
    };
    int diagonal = first > 0 ? up(first - 1) : kFar, left = kFar, bound = kFar;
    for (int j = first; j < last; ++j) {
      const int over = up(j);
      const bool same = j > 0 && reference_[static_cast<size_t>(j - 1)] == word;
      left = std::min({diagonal + (same ? 0 : 1), over + 1, left + 1});
      now[j - first] = left;
      bound = std::min(bound, left + std::abs((rows_ - i) - (columns_ - j)));
      diagonal = over;
    }
    return bound;
  }

  const Words& reference_;
  int rows_, columns_;
  double slope_;
  int beam_;
  size_t width_;
  std::vector<int> costs_, scratch_;
};

struct Move {
  int gain = 0, length = 0, start = 0, target = 0;
  // The larger gain, then the longer block, the earlier start, the earlier target.
  auto rank() const { return std::tuple(gain, length, -start, -target); }
};

// The block goes before the word at `target`. Aimed at itself it goes as far forward as it is long.
Words moved(const Words& words, const Move& move) {
  Words out = words;
  const auto at = [&](int i) { return out.begin() + std::min<ptrdiff_t>(i, std::ssize(out)); };
  const int end = move.start + move.length;
  if (move.target < move.start)
    std::rotate(at(move.target), at(move.start), at(end));
  else
    std::rotate(at(move.start), at(end),
                at(move.target > end ? move.target : move.length + move.target));
  return out;
}

// The running number of wrong words, so that any stretch can be asked for one.
std::vector<int> running_sum(const std::vector<bool>& wrong) {
  std::vector<int> sums{0};
  for (const bool w : wrong) sums.push_back(sums.back() + (w ? 1 : 0));
  return sums;
}

class MoveSearch {
 public:
  MoveSearch(Words hypothesis, const Words& reference)
      : hypothesis_(std::move(hypothesis)),
        reference_(reference),
        matrix_(hypothesis_, reference_) {}

  int edits() {
    int moves = 0;
    while (const std::optional<Move> best = best_move()) {
      hypothesis_ = moved(hypothesis_, *best);
      matrix_.update(hypothesis_);
      ++moves;
    }
    return moves + matrix_.distance();
  }

 private:
  // The move that lowers the distance most; none if none does, or if too many have been tried: then
  // the best so far is not made either.
  std::optional<Move> best_move() {
    matching_ = matrix_.matching(hypothesis_);
    reference_wrong_ = running_sum(matching_.reference_wrong);
    hypothesis_wrong_ = running_sum(matching_.hypothesis_wrong);
    std::optional<Move> best;
    const auto rows = static_cast<int>(hypothesis_.size()),
               columns = static_cast<int>(reference_.size());
    for (int h = 0; h < rows; ++h)
      for (int r = std::max(0, h - kFarthestMove); r < std::min(columns, h + kFarthestMove + 1);
           ++r)
        for (int length = 1; length <= kLongestMove && h + length <= rows &&
                             r + length <= columns && same_word(h + length - 1, r + length - 1);
             ++length) {
          try_moves(h, r, length, best);
          if (tried_ >= kMostMovesTried) return {};
        }
    return best;
  }

  bool same_word(int h, int r) const {
    return hypothesis_[static_cast<size_t>(h)] == reference_[static_cast<size_t>(r)];
  }

  // Moves the block at h to where its copy in the reference, at r, is found: before each of its
  // words. Worth trying only if something is wrong at both places.
  void try_moves(int h, int r, int length, std::optional<Move>& best) {
    const auto any = [&](const std::vector<int>& wrong, int begin) {
      return wrong[static_cast<size_t>(begin + length)] > wrong[static_cast<size_t>(begin)];
    };
    const auto place = [&](int word) {
      return word < 0 ? -1 : matching_.place[static_cast<size_t>(word)];
    };
    if (!any(hypothesis_wrong_, h) || !any(reference_wrong_, r)) return;
    if (place(r) >= h && place(r) < h + length) return;
    int previous = -1;
    for (int word = r - 1; word < r + length; ++word) {
      Move move{.length = length, .start = h, .target = place(word) + 1};
      if (std::exchange(previous, move.target) == move.target) continue;
      ++tried_;
      const int limit = matrix_.distance() - (best ? best->gain : 1);
      const std::optional<int> distance =
          matrix_.distance_of(moved(hypothesis_, move), std::min(move.start, move.target), limit);
      if (!distance) continue;
      move.gain = matrix_.distance() - *distance;
      if (!best || move.rank() > best->rank()) best = move;
    }
  }

  Words hypothesis_;
  const Words& reference_;
  EditMatrix matrix_;
  Matching matching_;
  std::vector<int> reference_wrong_, hypothesis_wrong_;
  int tried_ = 0;
};

class Ter final : public Metric {
 public:
  explicit Ter(const TerOptions& options) : options_(options) {}

  std::string name() const override { return "TER"; }

  std::vector<SignaturePart> signature() const override {
    const auto yes = [](bool is) { return is ? "yes" : "no"; };
    return {{"case", "c", options_.case_sensitive ? "mixed" : "lc"},
            {"tok", "t", "tercom"},
            {"norm", "nr", yes(options_.normalized)},
            {"punct", "pn", yes(!options_.no_punctuation)},
            {"asian", "as", yes(options_.asian_support)},
            {"version", "v", "2.6.0"}};
  }

  // The fewest edits, but the mean length of all references.
  Statistics line(std::string_view hypothesis,
                  std::span<const std::string_view> references) const override {
    std::vector<std::u32string> texts{prepare_for_ter(decode_utf8(hypothesis), options_)};
    for (const std::string_view reference : references)
      texts.push_back(prepared_reference(decode_utf8(reference)));
    std::vector<std::vector<std::u32string_view>> split;
    for (const std::u32string& text : texts) split.push_back(split_at_white_space(text));
    const Ngrams words = first_order(split);
    int fewest = kFar;
    size_t length = 0;
    for (size_t t = 1; t < words.texts.size(); ++t) {
      const bool empty = words.texts[t].empty();
      fewest = std::min(fewest, empty ? static_cast<int>(words.texts[0].size())
                                      : MoveSearch(words.texts[0], words.texts[t]).edits());
      length += words.texts[t].size();
    }
    return {double(fewest), double(length) / double(references.size())};
  }

  double score(const Statistics& sums) const override {
    const double edits = sums[0], length = sums[1];
    return 100 * (length > 0 ? edits / length : edits > 0 ? 1 : 0);
  }

 private:
  // sacreBLEU prepares references twice, and what was set off once may be set off again.
  std::u32string prepared_reference(std::u32string_view text) const {
    return prepare_for_ter(prepare_for_ter(text, options_), options_);
  }

  TerOptions options_;
};

}  // namespace

std::unique_ptr<Metric> make_ter(const TerOptions& options) {
  return std::make_unique<Ter>(options);
}

}  // namespace heed
