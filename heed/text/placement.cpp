#include "heed/text/placement.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "heed/text/tokens.h"

namespace heed {
namespace {

// A range of target tokens.
struct Range {
  size_t begin = 0, end = 0;
};

class Placer {
 public:
  Placer(const AlignedPair& pair, std::span<const Inlay> inlays,
         const std::function<std::string(std::string_view)>& escape)
      : pair_(pair), inlays_(inlays), escape_(escape) {}

  std::string run() {
    match_kept();
    source_ = tokens_of(pair_.source, source_kept_);
    std::vector<TextSpan> taken;
    for (const auto& [number, span] : matched_) taken.push_back(span);
    std::sort(taken.begin(), taken.end(),
              [](const TextSpan& a, const TextSpan& b) { return a.begin < b.begin; });
    target_ = tokens_of(pair_.target, taken);
    links_ = token_links(source_, target_, pair_.links);
    link_kept();
    make_tree();
    place_children(kRoot, {0, target_.size()});
    std::string out;
    write(kRoot, 0, pair_.target.size(), out);
    return out;
  }

 private:
  static constexpr size_t kRoot = static_cast<size_t>(-1);

  struct Placed {
    size_t begin = 0, end = 0;            // bytes of the target
    std::string before = {}, after = {};  // spaces that it needs
  };

  // What is kept and stands in the translation as it does in the source.
  void match_kept() {
    std::map<std::string_view, size_t> from;
    for (size_t n = 0; n < inlays_.size(); ++n) {
      const Inlay& inlay = inlays_[n];
      if (inlay.kind != Inlay::Kind::kept || inlay.begin == inlay.end) continue;
      source_kept_.push_back({inlay.begin, inlay.end});
      std::vector<TextSpan> taken;
      for (const auto& [number, span] : matched_) taken.push_back(span);
      const std::string_view part = pair_.source.substr(inlay.begin, inlay.end - inlay.begin);
      if (const auto at = find_whole(pair_.target, part, from[part], taken)) {
        matched_[n] = {*at, *at + part.size()};
        from[part] = *at + part.size();
      }
    }
  }

  size_t token_at(const std::vector<TextToken>& tokens, size_t byte) const {
    const auto found = std::find_if(tokens.begin(), tokens.end(),
                                    [&](const TextToken& t) { return t.end > byte; });
    return static_cast<size_t>(found - tokens.begin());
  }

  void link_kept() {
    std::set<size_t> kept_source;
    for (const auto& [number, span] : matched_)
      kept_source.insert(token_at(source_, inlays_[number].begin));
    for (auto& list : links_)
      std::erase_if(list, [&](size_t s) { return kept_source.contains(s); });
    for (const auto& [number, span] : matched_)
      links_[token_at(target_, span.begin)] = {token_at(source_, inlays_[number].begin)};
  }

  void make_tree() {
    for (size_t n = 0; n < inlays_.size(); ++n)
      children_[inlays_[n].parent.value_or(kRoot)].push_back(n);
  }

  // The source tokens of an element: those that are wholly in it.
  Range source_range(const Inlay& inlay) const {
    Range r{source_.size(), 0};
    for (size_t i = 0; i < source_.size(); ++i)
      if (source_[i].begin < inlay.end && source_[i].end > inlay.begin)
        r.begin = std::min(r.begin, i), r.end = i + 1;
    if (r.end == 0) r.begin = 0;
    return r;
  }

  // Elements first, those that reach to an end before the others and small ones before large;
  // then what stands between words.
  void place_children(size_t parent, Range in) {
    std::vector<size_t> elements;
    for (const size_t n : children_[parent])
      if (inlays_[n].kind == Inlay::Kind::element) elements.push_back(n);
    const auto rank = [&](size_t n) {
      const Inlay& inlay = inlays_[n];
      const Range r = source_range(inlay);
      return std::pair(inlay.from_before || inlay.goes_on ? 0 : 1, r.end - r.begin);
    };
    std::stable_sort(elements.begin(), elements.end(),
                     [&](size_t a, size_t b) { return rank(a) < rank(b); });
    std::vector<Range> taken;
    for (const size_t n : elements) {
      const Range r = window(n, in, taken);
      if (r.begin < r.end) {
        placed_[n] = {target_[r.begin].begin, target_[r.end - 1].end};
        taken.push_back(r);
      } else {
        place_point(n, in, taken);
      }
      ranges_[n] = r;
      place_children(n, r);
    }
    for (const size_t n : children_[parent]) {
      if (inlays_[n].kind == Inlay::Kind::element) continue;
      if (const auto found = matched_.find(n); found != matched_.end()) {
        placed_[n] = {found->second.begin, found->second.end};
        // Kept inside an element whose range lies elsewhere: the nearest element that has it, or
        // none, writes it (write() goes by the place).
        continue;
      }
      place_point(n, in, taken);
    }
  }

  bool all_letters_in(Range r) const {
    for (size_t i = 0; i < source_.size(); ++i)
      if (source_[i].letters && (i < r.begin || i >= r.end)) return false;
    return true;
  }

  // How many tokens of punctuation the range has at its end (or beginning), at most all.
  template <class At>
  static size_t marks(size_t count, At is_letters) {
    size_t n = 0;
    while (n < count && !is_letters(n)) ++n;
    return n;
  }

  Range window(size_t n, Range in, const std::vector<Range>& taken) const {
    const Inlay& inlay = inlays_[n];
    const Range s = source_range(inlay);
    const size_t front =
        marks(s.end - s.begin, [&](size_t k) { return source_[s.begin + k].letters; });
    const size_t back =
        marks(s.end - s.begin, [&](size_t k) { return source_[s.end - 1 - k].letters; });
    const auto is_free = [&](size_t t) {
      return t >= in.begin && t < in.end && std::none_of(taken.begin(), taken.end(), [&](Range r) {
               return t >= r.begin && t < r.end;
             });
    };
    Range best;
    if (inlay.from_before && inlay.goes_on) {
      best = in;
    } else if (s.begin == s.end) {
      return {};
    } else if (front == s.end - s.begin) {
      return only_marks(s, in, is_free);
    } else if (all_letters_in(s)) {
      best = letters_within(in);
    } else {
      best = best_window(s, in, is_free);
      if (best.begin == best.end) best = between_neighbours(s, in, is_free);
    }
    if (best.begin == best.end && !inlay.from_before && !inlay.goes_on) return {};
    if (best.begin < best.end) {
      for (size_t k = 0; k < back && is_free(best.end) && !target_[best.end].letters &&
                         !is_space_between(best.end);
           ++k)
        ++best.end;
      for (size_t k = 0; k < front && best.begin > in.begin && is_free(best.begin - 1) &&
                         !target_[best.begin - 1].letters;
           ++k)
        --best.begin;
      if (back > 0 && all_letters_in(s)) best.end = std::max(best.end, in.end);
    }
    if (inlay.goes_on) {
      if (best.begin == best.end) best.begin = in.end;
      best.end = in.end;
      // What stands before the words may not be passed over by another that reaches the end, too.
      for (const Range& r : taken)
        if (r.end > best.begin && r.begin <= best.begin) best.begin = r.end;
    }
    if (inlay.from_before) {
      best.begin = in.begin;
      if (best.end < best.begin) best.end = best.begin;
      for (const Range& r : taken)
        if (r.begin < best.end) best.end = std::max(best.begin, r.begin);
    }
    return best;
  }

  // Set off by a space: a mark that has a token of its own still belongs to what it follows.
  bool is_space_between(size_t) const { return false; }

  Range letters_within(Range in) const {
    Range r = in;
    while (r.begin < r.end && !target_[r.begin].letters) ++r.begin;
    while (r.end > r.begin && !target_[r.end - 1].letters) --r.end;
    return r.begin < r.end ? r : in;
  }

  // The contiguous free tokens that have the most of what comes from s, and the least of what comes
  // from elsewhere.
  template <class Free>
  Range best_window(Range s, Range in, Free is_free) const {
    std::vector<double> value(target_.size(), -0.01);
    for (size_t t = in.begin; t < in.end; ++t) {
      if (links_[t].empty()) continue;
      const auto ours = std::count_if(links_[t].begin(), links_[t].end(),
                                      [&](size_t x) { return x >= s.begin && x < s.end; });
      const double share = static_cast<double>(ours) / static_cast<double>(links_[t].size());
      value[t] = 2 * share - (1 - share);
    }
    Range best;
    double most = 0;
    for (size_t i = in.begin; i < in.end; ++i) {
      double sum = 0;
      for (size_t j = i; j < in.end && is_free(j); ++j) {
        sum += value[j];
        if (sum > most || (sum == most && sum > 0 && j + 1 - i > best.end - best.begin))
          most = sum, best = {i, j + 1};
      }
    }
    return best;
  }

  // Words that nothing is linked with: those unlinked ones of the target that stand between what
  // their neighbours became.
  template <class Free>
  Range between_neighbours(Range s, Range in, Free is_free) const {
    const auto after = after_source(s.begin, in);
    if (!after) return {};
    Range r{*after, *after};
    while (r.end < in.end && is_free(r.end) && links_[r.end].empty() && target_[r.end].letters)
      ++r.end;
    return r;
  }

  // Behind the last target token that comes from the nearest linked token before source token `s`.
  std::optional<size_t> after_source(size_t s, Range in) const {
    for (size_t k = s; k-- > 0;)
      for (size_t t = in.end; t-- > in.begin;)
        if (std::find(links_[t].begin(), links_[t].end(), k) != links_[t].end()) return t + 1;
    return std::nullopt;
  }
  std::optional<size_t> before_source(size_t s, Range in) const {
    for (size_t k = s; k < source_.size(); ++k)
      for (size_t t = in.begin; t < in.end; ++t)
        if (std::find(links_[t].begin(), links_[t].end(), k) != links_[t].end()) return t;
    return std::nullopt;
  }

  std::string_view text_of(const TextToken& t, std::string_view text) const {
    return text.substr(t.begin, t.end - t.begin);
  }

  // An element of punctuation alone: the same marks, where the target has them.
  template <class Free>
  Range only_marks(Range s, Range in, Free is_free) const {
    const double where = static_cast<double>(s.begin) / static_cast<double>(source_.size());
    Range best;
    double nearest = 2;
    for (size_t t = in.begin; t < in.end; ++t) {
      const double distance =
          std::abs(static_cast<double>(t) / static_cast<double>(target_.size()) - where);
      if (is_free(t) && distance < nearest &&
          text_of(target_[t], pair_.target) == text_of(source_[s.begin], pair_.source))
        best = {t, t + 1}, nearest = distance;
    }
    return best;
  }

  // Between two target tokens: behind what comes from the word before, or before what comes from
  // the one after.
  size_t boundary(const Inlay& inlay, Range in) const {
    size_t before = source_.size(), after = source_.size();  // source tokens beside it
    for (size_t i = 0; i < source_.size(); ++i) {
      if (source_[i].end <= inlay.begin) before = i;
      if (after == source_.size() && source_[i].begin >= inlay.end) after = i;
    }
    if (before == source_.size()) return in.begin;
    if (after == source_.size()) return in.end;
    // Before the marks that end the sentence.
    const bool marks_alone =
        std::none_of(source_.begin() + static_cast<ptrdiff_t>(after), source_.end(),
                     [](const TextToken& t) { return t.letters; });
    if (marks_alone) {
      size_t end = in.end;
      size_t most = source_.size() - after;
      while (end > in.begin && most-- > 0 && !target_[end - 1].letters) --end;
      return end;
    }
    const bool marks_before =
        std::none_of(source_.begin(), source_.begin() + static_cast<ptrdiff_t>(before + 1),
                     [](const TextToken& t) { return t.letters; });
    if (marks_before) {
      size_t begin = in.begin;
      size_t most = before + 1;
      while (begin < in.end && most-- > 0 && !target_[begin].letters) ++begin;
      return begin;
    }
    const bool leans_on_next = inlay.space_before && joins_next(inlay);
    const auto left = after_source(before + 1, in), right = before_source(after, in);
    if (leans_on_next && right) return *right;
    if (left) {
      // A mark of the source that stood between: "word, {x}".
      size_t at = *left;
      for (size_t k = before + 1;
           k-- > 0 && !source_[k].letters && at < in.end && !target_[at].letters &&
           text_of(target_[at], pair_.target) == text_of(source_[k], pair_.source);)
        ++at;
      return at;
    }
    if (right) return *right;
    return in.begin + (in.end - in.begin) * (before + 1) / source_.size();
  }

  // Whether a word went on at once after it, or stopped right before it.
  bool joins_next(const Inlay& inlay) const {
    return !inlay.space_after &&
           std::any_of(source_.begin(), source_.end(),
                       [&](const TextToken& t) { return t.letters && t.begin == inlay.end; });
  }
  bool joins_previous(const Inlay& inlay) const {
    return !inlay.space_before &&
           std::any_of(source_.begin(), source_.end(),
                       [&](const TextToken& t) { return t.letters && t.end == inlay.begin; });
  }

  void place_point(size_t n, Range in, const std::vector<Range>& taken) {
    const Inlay& inlay = inlays_[n];
    size_t at = std::clamp(boundary(inlay, in), in.begin, in.end);
    for (const Range& r : taken)  // not into an element that it was not in
      if (at > r.begin && at < r.end) at = at - r.begin < r.end - at ? r.begin : r.end;
    // A translation without words: all in a row.
    if (target_.empty()) {
      placed_[n] = {0, 0, inlay.space_before && !points_.empty() ? " " : "", ""};
      points_.insert(0);
      return;
    }
    const bool leans_left = !inlay.space_before, leans_right = !inlay.space_after;
    const bool first = at == in.begin, last = at == in.end;
    const bool behind = last || (!first && (leans_left || !leans_right));
    Placed p;
    if (at == 0 && !behind) {
      p.begin = target_[0].begin;
      p.after = inlay.space_after ? " " : "";
    } else if (behind && at > 0) {
      p.begin = target_[at - 1].end;
      p.before = inlay.space_before ? " " : "";
      const bool joined = at < target_.size() && target_[at].begin == p.begin;
      p.after = joined && inlay.space_after && target_[at].letters ? " " : "";
    } else {
      p.begin = target_[at].begin;
      const bool joined = at > 0 && target_[at - 1].end == p.begin;
      p.before = joined && inlay.space_before ? " " : "";
      p.after = inlay.space_after ? " " : "";
    }
    p.end = p.begin;
    // It does not grow together with a word that it was apart from.
    const auto is_word = [&](size_t i) { return i < target_.size() && target_[i].letters; };
    if (p.after.empty() && is_word(at) && target_[at].begin == p.begin && !joins_next(inlay) &&
        inlay.kind != Inlay::Kind::element)
      p.after = " ";
    if (p.before.empty() && at > 0 && is_word(at - 1) && target_[at - 1].end == p.begin &&
        !joins_previous(inlay) && inlay.kind != Inlay::Kind::element)
      p.before = " ";
    // White space around the element that it begins or ends is outside of that.
    if (inlay.parent) {
      const Inlay& around = inlays_[*inlay.parent];
      if (first && inlay.begin == around.begin) p.before.clear();
      if (last && inlay.end == around.end) p.after.clear();
    }
    placed_[n] = p;
  }

  // Everything in [begin, end) of the target, with the children of `parent`, in the order of their
  // places. Kept spans are written by whichever element's range has them.
  void write(size_t parent, size_t begin, size_t end, std::string& out) {
    std::vector<size_t> order;
    for (const size_t n : children_[parent])
      if (!matched_.contains(n)) order.push_back(n);
    // By place; at the same one those without words come in the order of the source, before what
    // begins there and after what ends there.
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const Placed &x = placed_[a], &y = placed_[b];
      return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
    });
    size_t at = begin;
    for (const size_t n : order) {
      const Placed& p = placed_[n];
      write_text(at, p.begin, out);
      out += p.before;
      out += inlays_[n].open;
      if (inlays_[n].kind == Inlay::Kind::element) {
        write(n, p.begin, p.end, out);
        out += inlays_[n].close;
      }
      out += p.after;
      at = std::max(at, p.end);
    }
    write_text(at, end, out);
  }

  void write_text(size_t begin, size_t end, std::string& out) {
    for (size_t at = begin; at < end;) {
      size_t next = end, number = kRoot;
      for (const auto& [n, span] : matched_)
        if (span.begin >= at && span.begin < next) next = span.begin, number = n;
      out += escape_(pair_.target.substr(at, next - at));
      at = next;
      if (number != kRoot) {
        out += inlays_[number].open;
        at = matched_[number].end;
      }
    }
  }

  AlignedPair pair_;
  std::span<const Inlay> inlays_;
  const std::function<std::string(std::string_view)>& escape_;
  std::vector<TextSpan> source_kept_;
  std::map<size_t, TextSpan> matched_;  // kept inlays: bytes of the target
  std::vector<TextToken> source_, target_;
  TokenLinks links_;
  std::map<size_t, std::vector<size_t>> children_;
  std::map<size_t, Placed> placed_;
  std::map<size_t, Range> ranges_;
  std::set<size_t> points_;
};

}  // namespace

std::string place(const AlignedPair& pair, std::span<const Inlay> inlays,
                  const std::function<std::string(std::string_view)>& escape) {
  return Placer(pair, inlays, escape).run();
}

}  // namespace heed
