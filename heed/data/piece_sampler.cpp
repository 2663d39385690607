#include "heed/data/piece_sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <queue>
#include <string_view>
#include <unordered_map>

#include "heed/data/text.h"

namespace heed {
namespace {

constexpr Id kNone = -1;

// Two ids to a third. Looked up some hundred times a sentence, each time in one place or two: half
// of the places are free.
class PairTable {
 public:
  struct Entry {
    Id first, second, value;
  };

  explicit PairTable(const std::vector<Entry>& entries)
      : places_(std::bit_ceil(2 * entries.size() + 2), Entry{kNone, kNone, kNone}) {
    for (const Entry& e : entries) places_[place_of(e.first, e.second)] = e;
  }
  // kNone: there is none.
  Id operator()(Id first, Id second) const { return places_[place_of(first, second)].value; }

 private:
  // Of this pair or, where it is not there, a free one.
  size_t place_of(Id first, Id second) const {
    const uint64_t key =
        uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
    size_t at = (key * 0x9E3779B97F4A7C15ull) >> 32;
    while (true) {
      const Entry& e = places_[at &= places_.size() - 1];
      if (e.value == kNone || (e.first == first && e.second == second)) return at;
      ++at;
    }
  }

  std::vector<Entry> places_;  // a power of two
};

// The text of some plain pieces, each character as the piece that it is by itself.
struct Stretch {
  std::vector<Id> characters;
  std::vector<int32_t> from;  // for each, the plain piece it was in

  size_t size() const { return characters.size(); }
  void clear() { characters.clear(), from.clear(); }
};

// What both kinds do: a text goes back to characters, and what stands between fixed pieces is cut
// anew.
class CutsAnew : public PieceSampler {
 public:
  explicit CutsAnew(const std::vector<ScoredPiece>& pieces) : characters_(pieces.size()) {
    for (size_t i = 0; i < pieces.size(); ++i)
      if (!pieces[i].fixed) ids_.emplace(pieces[i].text, static_cast<Id>(i));
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].fixed) continue;
      for (const std::string_view c : split_characters(pieces[i].text))
        characters_[i].push_back(id_of(c));
      // One with a character that is no piece by itself cannot be cut: it is as good as fixed.
      if (std::ranges::count(characters_[i], kNone) > 0) characters_[i].clear();
    }
  }

  DrawnPieces draw(std::span<const Id> plain, Random& random) const final {
    DrawnPieces out;
    Stretch stretch;
    const auto cut_stretch = [&] {
      if (stretch.size() > 0) cut(stretch, random, out);
      stretch.clear();
    };
    for (size_t i = 0; i < plain.size(); ++i) {
      const std::span<const Id> characters = characters_of(plain[i]);
      if (characters.empty()) {
        cut_stretch();
        out.ids.push_back(plain[i]);
        out.from.push_back(static_cast<int32_t>(i));
      }
      for (const Id c : characters) {
        stretch.characters.push_back(c);
        stretch.from.push_back(static_cast<int32_t>(i));
      }
    }
    cut_stretch();
    return out;
  }

 protected:
  // Empty: it is fixed.
  std::span<const Id> characters_of(Id id) const {
    const auto i = static_cast<size_t>(id);
    return i < characters_.size() ? std::span<const Id>(characters_[i]) : std::span<const Id>();
  }
  // kNone: there is no such piece, or it is fixed.
  Id id_of(std::string_view text) const {
    const auto found = ids_.find(std::string(text));
    return found == ids_.end() ? kNone : found->second;
  }

 private:
  // Adds the pieces of the stretch, of which there is one at least.
  virtual void cut(const Stretch& stretch, Random& random, DrawnPieces& out) const = 0;

  std::unordered_map<std::string, Id> ids_;
  std::vector<std::vector<Id>> characters_;  // by id
};

class Bpe final : public CutsAnew {
 public:
  Bpe(const std::vector<ScoredPiece>& pieces, double p)
      : CutsAnew(pieces),
        scores_(pieces.size()),
        merged_(merges_of(pieces)),
        p_(static_cast<float>(p)) {
    for (size_t i = 0; i < pieces.size(); ++i) scores_[i] = pieces[i].score;
  }

 private:
  // Every two pieces that make a third.
  std::vector<PairTable::Entry> merges_of(const std::vector<ScoredPiece>& pieces) const {
    std::vector<PairTable::Entry> merges;
    for (size_t i = 0; i < pieces.size(); ++i) {
      const std::string_view text = pieces[i].text;
      const Id both = static_cast<Id>(i);
      if (characters_of(both).empty()) continue;
      size_t middle = 0;
      for (const std::string_view c : split_characters(text)) {
        const Id left = id_of(text.substr(0, middle)), right = id_of(text.substr(middle));
        if (left != kNone && right != kNone) merges.push_back({left, right, both});
        middle += c.size();
      }
    }
    return merges;
  }

  struct Merge {
    Id left, right, both;
    float score;
    size_t at;
    // The queue's top is the best score and, of equal ones, the leftmost.
    bool operator<(const Merge& other) const {
      return score != other.score ? score < other.score : at > other.at;
    }
  };

  void cut(const Stretch& stretch, Random& random, DrawnPieces& out) const override {
    const size_t n = stretch.size();
    std::vector<Id> piece = stretch.characters;  // at its first character
    std::vector<size_t> after(n), before(n);     // where the neighbors begin
    for (size_t i = 0; i < n; ++i) after[i] = i + 1, before[i] = i - 1;
    std::priority_queue<Merge> merges;
    const auto propose = [&](size_t at) {
      if (after[at] >= n) return;
      const Id left = piece[at], right = piece[after[at]];
      const Id both = merged_(left, right);
      if (both != kNone) merges.push({left, right, both, scores_[static_cast<size_t>(both)], at});
    };
    for (size_t i = 0; i + 1 < n; ++i) propose(i);
    while (!merges.empty()) {
      const Merge m = merges.top();
      merges.pop();
      if (piece[m.at] != m.left || after[m.at] >= n || piece[after[m.at]] != m.right) continue;
      if (p_ > 0 && random.uniform() < p_) continue;
      const size_t gone = after[m.at];
      piece[m.at] = m.both;
      piece[gone] = kNone;
      after[m.at] = after[gone];
      if (after[gone] < n) before[after[gone]] = m.at;
      if (m.at > 0) propose(before[m.at]);
      propose(m.at);
    }
    for (size_t i = 0; i < n; i = after[i]) {
      out.ids.push_back(piece[i]);
      out.from.push_back(stretch.from[i]);
    }
  }

  std::vector<float> scores_;
  PairTable merged_;
  float p_;
};

class Unigram final : public CutsAnew {
 public:
  Unigram(const std::vector<ScoredPiece>& pieces, double alpha)
      : CutsAnew(pieces), weights_(pieces.size()), children_(tree_of(pieces.size())) {
    for (size_t i = 0; i < pieces.size(); ++i)
      weights_[i] = alpha * static_cast<double>(pieces[i].score);
  }

 private:
  // Fills ends_.
  std::vector<PairTable::Entry> tree_of(size_t pieces) {
    std::map<std::pair<Id, Id>, Id> children;
    ends_.push_back(kNone);
    for (size_t i = 0; i < pieces; ++i) {
      const std::span<const Id> characters = characters_of(static_cast<Id>(i));
      if (characters.empty()) continue;
      Id node = 0;
      for (const Id c : characters) {
        const auto [at, is_new] =
            children.emplace(std::pair(node, c), static_cast<Id>(ends_.size()));
        if (is_new) ends_.push_back(kNone);
        node = at->second;
      }
      ends_[static_cast<size_t>(node)] = static_cast<Id>(i);
    }
    std::vector<PairTable::Entry> entries;
    for (const auto& [from, to] : children) entries.push_back({from.first, from.second, to});
    return entries;
  }

  struct Step {
    Id piece;
    size_t to;
    double weight;  // log: of all cuts from here on that begin with it
  };

  // Backward filtering, forward sampling: rest[i] is the log of the summed weights of all cuts of
  // what stands after i, so each next piece can be drawn with its true probability.
  void cut(const Stretch& stretch, Random& random, DrawnPieces& out) const override {
    const size_t n = stretch.size();
    std::vector<Step> steps;
    std::vector<size_t> first(n + 1);  // of the steps from i: first[i] to first[i + 1], backwards
    std::vector<double> rest(n + 1, 0);
    for (size_t i = n; i-- > 0;) {
      first[i + 1] = steps.size();
      double most = -INFINITY;
      Id node = 0;
      for (size_t to = i; to < n; ++to) {
        node = children_(node, stretch.characters[to]);
        if (node == kNone) break;
        const Id piece = ends_[static_cast<size_t>(node)];
        if (piece == kNone) continue;
        steps.push_back({piece, to + 1, weights_[static_cast<size_t>(piece)] + rest[to + 1]});
        most = std::max(most, steps.back().weight);
      }
      double sum = 0;
      for (size_t k = first[i + 1]; k < steps.size(); ++k) sum += std::exp(steps[k].weight - most);
      rest[i] = most + std::log(sum);
    }
    first[0] = steps.size();
    for (size_t i = 0; i < n;) {
      double left = (static_cast<double>(random.next()) + 0.5) * 0x1p-32;
      size_t k = first[i + 1];
      while (k + 1 < first[i] && (left -= std::exp(steps[k].weight - rest[i])) > 0) ++k;
      out.ids.push_back(steps[k].piece);
      out.from.push_back(stretch.from[i]);
      i = steps[k].to;
    }
  }

  std::vector<Id> ends_;         // by node of the tree: the piece that ends there, or kNone
  std::vector<double> weights_;  // by id: alpha times the log-probability
  PairTable children_;           // a tree of all pieces: node and character to node
};

}  // namespace

std::shared_ptr<const PieceSampler> sample_bpe(const std::vector<ScoredPiece>& pieces, double p) {
  return std::make_shared<Bpe>(pieces, p);
}

std::shared_ptr<const PieceSampler> sample_unigram(const std::vector<ScoredPiece>& pieces,
                                                   double alpha) {
  return std::make_shared<Unigram>(pieces, alpha);
}

}  // namespace heed
