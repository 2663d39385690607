#include "heed/text/document.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/base/words.h"
#include "heed/text/characters.h"
#include "heed/text/numbers.h"
#include "heed/text/spans.h"

namespace heed {
namespace {

// The character at byte `at`, and the one that ends before it.
char32_t character_at(std::string_view text, size_t at) {
  const size_t bytes = character_bytes(text.substr(at));
  return bytes == 0 ? U'\0' : decode_utf8(text.substr(at, bytes))[0];
}
char32_t character_before(std::string_view text, size_t at) {
  if (at == 0) return U'\0';
  size_t begin = at - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return character_at(text, begin);
}
size_t next_character(std::string_view text, size_t at) {
  return at + std::max<size_t>(character_bytes(text.substr(at)), 1);
}

bool has_letters(std::string_view text) {
  for (size_t at = 0; at < text.size(); at = next_character(text, at))
    if (is_letter(character_at(text, at))) return true;
  return false;
}

// A mark that stands right after a word.
bool ends_something(char32_t c) {
  return is_full_stop(c) || ends_sentence(c) || goes_on(c) || c == ';' || c == ')' || c == ']' ||
         c == U'»' || c == U'”';
}

// Numbers that stand for things: none whose digits the sentence has anywhere.
class StandIns {
 public:
  explicit StandIns(std::string_view sentence) : sentence_(sentence) {}

  std::string next() {
    if (next_ == kFirst) read();
    while (taken_.contains(next_)) ++next_;
    return std::to_string(next_++);
  }

 private:
  // Once: a text may be one sentence with very many things in it.
  void read() {
    for (size_t begin = 0; begin < sentence_.size(); ++begin) {
      if (sentence_[begin] == '0') continue;  // no number begins so
      uint64_t value = 0;
      for (size_t at = begin; at < std::min(begin + kDigits, sentence_.size()); ++at) {
        if (sentence_[at] < '0' || sentence_[at] > '9') break;
        value = 10 * value + static_cast<uint64_t>(sentence_[at] - '0');
        if (value >= kFirst) taken_.insert(value);
      }
    }
  }

  static constexpr uint64_t kFirst = 71;
  static constexpr size_t kDigits = 9;  // more things are in no text
  std::string_view sentence_;
  uint64_t next_ = kFirst;
  std::unordered_set<uint64_t> taken_;
};

constexpr char32_t kSoftHyphen = 0xAD;
// Longer ones a model is not asked to copy.
constexpr size_t kLongestCopied = 24;

}  // namespace

// Makes the parts of one segment.
class Document::Planner {
 public:
  Planner(Document& document, const DocumentOptions& options, const TextSegment& segment)
      : document_(document), options_(options), segment_(segment), text_(segment.text) {
    find_all_kept();
  }

  void run() {
    for (const TextSpan& sentence : sentences()) cut(sentence, pieces(sentence));
  }

 private:
  struct Kept {
    TextSpan span;
    bool emoji = false;
  };
  // How what is kept is shown.
  enum class Way { as_is, stand_in, left_out };

  bool is_unknown(char32_t c) const { return options_.knows && is_letter(c) && !options_.knows(c); }

  // Elements that say so, what spans.h finds, and words of which the model has no letter.
  void find_all_kept() {
    std::vector<Kept> signs;         // entities, which may be part of an address
    std::vector<size_t> cuts;        // where tags are that no span may reach over
    std::map<size_t, size_t> taken;  // begins and ends, disjoint
    const auto take = [&](const Kept& k) {
      kept_.push_back(k);
      size_t& end = taken[k.span.begin];
      end = std::max(end, k.span.end);
    };
    for (const InlineTag& tag : segment_.tags) {
      if (tag.kind != InlineTag::Kind::kept)
        cuts.push_back(tag.at);
      else if (document_.text_[tag.source.begin] == '&')
        signs.push_back({{tag.at, tag.end}});
      else
        take({{tag.at, tag.end}});
    }
    const auto next_cut = [&](size_t at) { return std::upper_bound(cuts.begin(), cuts.end(), at); };
    const auto is_torn = [&](const TextSpan& span) {
      const auto cut = next_cut(span.begin);
      return cut != cuts.end() && *cut < span.end;
    };
    const auto add = [&](const Kept& found) {
      const auto after = taken.lower_bound(found.span.end);
      const bool free = after == taken.begin() || std::prev(after)->second <= found.span.begin;
      if (!is_torn(found.span) && free) take(found);
    };
    for (const KeptSpan& found : find_kept(text_)) {
      if (!is_torn(found.span)) {
        add({found.span, found.emoji});
        continue;
      }
      // What tags tear is looked for in its pieces: 😀<b>😀</b>.
      for (size_t at = found.span.begin; at < found.span.end;) {
        const auto cut = next_cut(at);
        const size_t end = cut == cuts.end() ? found.span.end : std::min(*cut, found.span.end);
        for (const KeptSpan& piece : find_kept(std::string_view(text_).substr(at, end - at)))
          add({{at + piece.span.begin, at + piece.span.end}, piece.emoji});
        at = end;
      }
    }
    for (const TextSpan& mark : footnotes()) add({mark});
    for (const Kept& sign : signs) add(sign);
    if (options_.knows)
      for (const TextSpan& word : unknown_words()) add({word});
    std::sort(kept_.begin(), kept_.end(),
              [](const Kept& a, const Kept& b) { return a.span.begin < b.span.begin; });
    // What touches is one: "%d%%".
    std::vector<Kept> joined;
    for (const Kept& k : kept_) {
      const bool touches = !joined.empty() && joined.back().span.end == k.span.begin &&
                           !std::binary_search(cuts.begin(), cuts.end(), k.span.begin);
      if (touches)
        joined.back().span.end = k.span.end, joined.back().emoji = joined.back().emoji && k.emoji;
      else
        joined.push_back(k);
    }
    kept_ = std::move(joined);
  }

  // Numbers that an element hangs on a word: cat<sup>1</sup>.
  std::vector<TextSpan> footnotes() const {
    std::vector<TextSpan> out;
    for (const InlineTag& tag : segment_.tags) {
      if (tag.kind != InlineTag::Kind::open || tag.at == 0 || is_space(text_[tag.at - 1])) continue;
      size_t end = tag.at;
      while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
      if (end > tag.at && segment_.tags[tag.partner].at == end) out.push_back({tag.at, end});
    }
    return out;
  }

  std::vector<TextSpan> unknown_words() const {
    std::vector<TextSpan> out;
    for (size_t at = 0; at < text_.size();) {
      TextSpan word{at, at};
      size_t known = 0, unknown = 0;
      while (word.end < text_.size() && !is_white_space(character_at(text_, word.end))) {
        const char32_t c = character_at(text_, word.end);
        if (!is_letter(c) && !joins_before(c)) break;
        (is_unknown(c) ? unknown : known) += is_letter(c);
        word.end = next_character(text_, word.end);
      }
      const char32_t before = at > 0 ? character_before(text_, at) : U' ';  // "09Z", "°C"
      if (unknown > 0 && known == 0 && !is_number(before) && !is_symbol(before))
        out.push_back(word);
      at = std::max(word.end, next_character(text_, at));
    }
    return out;
  }

  // The number of the first that begins at `at` or after it.
  size_t first_kept(size_t at) const {
    const auto found =
        std::lower_bound(kept_.begin(), kept_.end(), at,
                         [](const Kept& k, size_t wanted) { return k.span.begin < wanted; });
    return static_cast<size_t>(found - kept_.begin());
  }
  // Tags in a part of the text and at its edges.
  std::span<const InlineTag> tags_of(const TextSpan& span) const {
    const auto begin = std::lower_bound(segment_.tags.begin(), segment_.tags.end(), span.begin,
                                        [](const auto& t, size_t at) { return t.at < at; });
    const auto end = std::upper_bound(begin, segment_.tags.end(), span.end,
                                      [](size_t at, const auto& t) { return at < t.at; });
    return {begin, end};
  }

  // No sentence ends in the middle of what is kept.
  std::vector<TextSpan> sentences() const {
    std::vector<TextSpan> out;
    for (const TextSpan& s : split_sentences(text_, options_.language)) {
      const auto k = std::upper_bound(kept_.begin(), kept_.end(), s.begin,
                                      [](size_t at, const Kept& one) { return at < one.span.end; });
      const bool torn = !out.empty() && k != kept_.end() && k->span.begin < out.back().end;
      if (torn)
        out.back().end = s.end;
      else
        out.push_back(s);
    }
    return out;
  }

  size_t pieces(const TextSpan& span) const {
    const std::string text = line(span, Way::left_out).text;
    return options_.count_pieces ? options_.count_pieces(text) : text.size();
  }

  // What is too long is cut near its middle: after a mark, else at a space, else anywhere.
  void cut(TextSpan span, size_t count) {
    const std::optional<size_t> at =
        count > std::max<size_t>(options_.longest, 1) ? cut_place(span) : std::nullopt;
    if (!at) {
      add_part(span);
      return;
    }
    TextSpan left{span.begin, *at}, right{*at, span.end};
    while (left.end > left.begin && is_white_space(character_before(text_, left.end)))
      left.end -= encode_utf8(std::u32string(1, character_before(text_, left.end))).size();
    while (right.begin < right.end && is_white_space(character_at(text_, right.begin)))
      right.begin = next_character(text_, right.begin);
    for (const TextSpan& half : {left, right})
      if (half.size() > 0) cut(half, pieces(half));
  }

  std::optional<size_t> cut_place(const TextSpan& span) const {
    std::optional<size_t> best;
    double least = std::numeric_limits<double>::infinity();
    const size_t middle = span.begin + span.size() / 2;
    size_t kept = first_kept(span.begin);
    for (size_t at = next_character(text_, span.begin); at < span.end;
         at = next_character(text_, at)) {
      while (kept < kept_.size() && kept_[kept].span.end <= at) ++kept;
      if (kept < kept_.size() && kept_[kept].span.begin < at) continue;
      const char32_t c = character_at(text_, at), before = character_before(text_, at);
      if (joins_before(c)) continue;
      const bool mark = goes_on(before) || before == ';' || before == U'；' || before == U'，';
      const bool space = is_white_space(c);
      const double distance = static_cast<double>(at > middle ? at - middle : middle - at) /
                              static_cast<double>(span.size());
      // A mark may be far from the middle, a space nearer; anywhere else is worse than both.
      const double cost = distance + (mark && (space || is_written_unspaced(before)) ? 0
                                      : space                                        ? 0.3
                                                                                     : 1);
      if (cost < least) least = cost, best = at;
    }
    return best;
  }

  void add_part(const TextSpan& span) {
    Plan plan;
    plan.outer = {segment_.source[span.begin].begin, segment_.source[span.end - 1].end};
    Part part{.source = plan.outer};
    for (const InlineTag& tag : tags_of(span)) {  // those at its edges whose other half is within
      if (!is_inside(tag, span)) continue;
      plan.outer.begin = std::min(plan.outer.begin, tag.source.begin);
      plan.outer.end = std::max(plan.outer.end, tag.source.end);
    }
    outer_ = plan.outer;
    std::string rest;
    bool any = false, copies = true;
    size_t at = span.begin;
    for (size_t n = first_kept(span.begin); n < kept_.size(); ++n) {
      const Kept& k = kept_[n];
      if (k.span.end > span.end) break;
      rest += text_.substr(at, k.span.begin - at);
      at = k.span.end;
      any = any || !k.emoji;
      const std::string_view shown = std::string_view(text_).substr(k.span.begin, k.span.size());
      if (!k.emoji && options_.count_pieces && options_.count_pieces(shown) > kLongestCopied)
        copies = false;
    }
    rest += text_.substr(at, span.end - at);
    if (has_letters(rest)) {
      const auto try_as = [&](Way way) {  // what is kept may be long
        Line shown = line(span, way);
        if (!options_.count_pieces || options_.count_pieces(shown.text) <= options_.longest)
          plan.lines.push_back(std::move(shown));
      };
      if (any && copies) try_as(Way::as_is);
      if (any && (!options_.knows || options_.knows('7'))) try_as(Way::stand_in);
      plan.lines.push_back(line(span, Way::left_out));
    }
    for (const Line& l : plan.lines) part.lines.push_back(l.text);
    document_.plans_.push_back(std::move(plan));
    document_.parts_.push_back(std::move(part));
  }

  // Whether a tag is part of the sentence, rather than of what stands around it. At an edge it is
  // if the other end of its element is inside.
  bool is_inside(const InlineTag& tag, const TextSpan& span) const {
    const auto within = [&](size_t at) { return at > span.begin && at < span.end; };
    if (within(tag.at)) return true;
    if (tag.kind == InlineTag::Kind::open && tag.at == span.begin)
      return within(segment_.tags[tag.partner].at);
    if (tag.kind == InlineTag::Kind::close && tag.at == span.end)
      return within(segment_.tags[tag.partner].at);
    return false;
  }

  bool space_before(size_t at, const TextSpan& span) const {
    return at > span.begin && is_white_space(character_before(text_, at));
  }
  bool space_after(size_t at, const TextSpan& span) const {
    return at < span.end && is_white_space(character_at(text_, at));
  }
  std::string source_text(const TextSpan& s) const {
    return document_.text_.substr(s.begin, s.size());
  }

  // What the model reads of `span`, with what is kept in one of the ways.
  Line line(const TextSpan& span, Way way) const {
    Line out;
    std::vector<size_t> place(span.size() + 1, 0);  // byte of the segment: byte of the line
    std::vector<Placed> items;
    StandIns stand_ins(std::string_view(text_).substr(span.begin, span.size()));
    bool space = false, dropped = false;
    size_t next_kept = first_kept(span.begin);
    for (size_t at = span.begin; at < span.end;) {
      while (next_kept < kept_.size() && kept_[next_kept].span.begin < at) ++next_kept;
      const bool is_kept = next_kept < kept_.size() && kept_[next_kept].span.begin == at &&
                           kept_[next_kept].span.end <= span.end;
      const char32_t c = character_at(text_, at);
      const size_t end = is_kept ? kept_[next_kept].span.end : next_character(text_, at);
      const bool shown = is_kept && way != Way::left_out && !kept_[next_kept].emoji;
      if (is_kept && !shown) {
        for (size_t i = at; i < end; ++i) place[i - span.begin] = out.text.size();
        items.push_back({segment_.source[at].begin, kept_point(kept_[next_kept].span, span, out)});
        dropped = true;
      } else if (!is_kept && is_white_space(c)) {
        for (size_t i = at; i < end; ++i) place[i - span.begin] = out.text.size();
        space = !out.text.empty();
        dropped = false;
      } else if (!is_kept && c == kSoftHyphen) {
        for (size_t i = at; i < end; ++i) place[i - span.begin] = out.text.size();
      } else {
        // "See {x}." without it is "See."
        if (space && !(dropped && !is_kept && ends_something(c))) out.text += ' ';
        space = dropped = false;
        for (size_t i = at; i < end; ++i)
          place[i - span.begin] = out.text.size() + (is_kept ? 0 : i - at);
        const size_t begin = out.text.size();
        const std::string_view own = std::string_view(text_).substr(at, end - at);
        out.text += is_kept && way == Way::stand_in ? stand_ins.next() : shown_text(own);
        if (is_kept)
          items.push_back(
              {segment_.source[at].begin,
               {.kind = Inlay::Kind::kept,
                .begin = begin,
                .end = out.text.size(),
                .open = source_text({segment_.source[at].begin, segment_.source[end - 1].end})}});
      }
      at = end;
    }
    place[span.size()] = out.text.size();
    add_tags(span, place, out, std::move(items));
    return out;
  }

  // One space for each stretch of white space, which what is kept may have inside.
  static std::string shown_text(std::string_view text) {
    std::string out;
    for (const char c : text)
      if (!is_space(c))
        out += c;
      else if (out.empty() || out.back() != ' ')
        out += ' ';
    return out;
  }

  struct Placed {
    size_t source = 0;  // where it begins: their order
    Inlay inlay = {};
    size_t end = 0;  // an element: where it ends in the source
  };

  Inlay kept_point(const TextSpan& kept, const TextSpan& span, const Line& so_far) const {
    return {
        .kind = Inlay::Kind::point,
        .begin = so_far.text.size(),
        .end = so_far.text.size(),
        .open = source_text({segment_.source[kept.begin].begin, segment_.source[kept.end - 1].end}),
        .space_before = space_before(kept.begin, span),
        .space_after = space_after(kept.end, span)};
  }

  void add_tags(const TextSpan& span, const std::vector<size_t>& place, Line& out,
                std::vector<Placed> items) const {
    const auto at = [&](size_t byte) {
      return place[std::clamp(byte, span.begin, span.end) - span.begin];
    };
    for (const InlineTag& tag : tags_of(span)) {
      const bool here = tag.source.begin >= outer_.begin && tag.source.end <= outer_.end;
      if (tag.kind == InlineTag::Kind::kept || !here) continue;
      Placed p{.source = tag.source.begin, .inlay = {}, .end = tag.source.end};
      Inlay& inlay = p.inlay;
      inlay.open = source_text(tag.source);
      inlay.begin = inlay.end = at(tag.at);
      inlay.space_before = space_before(tag.at, span),
      inlay.space_after = space_after(tag.at, span);
      if (tag.kind == InlineTag::Kind::open || tag.kind == InlineTag::Kind::close) {
        const InlineTag& other = segment_.tags[tag.partner];
        const bool both = other.source.begin >= outer_.begin && other.source.end <= outer_.end;
        if (tag.kind == InlineTag::Kind::close && both) continue;  // with its beginning
        inlay.kind = Inlay::Kind::element;
        if (tag.kind == InlineTag::Kind::open) {
          inlay.end = both ? at(other.at) : at(span.end);
          inlay.close = both ? source_text(other.source) : "";
          inlay.goes_on = !both;
          p.end = both ? other.source.end : std::numeric_limits<size_t>::max();
          if (both) inlay.space_after = space_after(other.at, span);
        } else {
          inlay.from_before = true;
          inlay.begin = 0;
          std::swap(inlay.open, inlay.close);
          p.source = other.source.begin;
        }
      }
      items.push_back(std::move(p));
    }
    std::stable_sort(items.begin(), items.end(),
                     [](const Placed& a, const Placed& b) { return a.source < b.source; });
    std::vector<size_t> open;
    for (size_t n = 0; n < items.size(); ++n) {
      while (!open.empty() && items[open.back()].end <= items[n].source) open.pop_back();
      if (!open.empty()) items[n].inlay.parent = open.back();
      if (items[n].inlay.kind == Inlay::Kind::element) open.push_back(n);
      out.inlays.push_back(items[n].inlay);
    }
  }

  Document& document_;
  const DocumentOptions& options_;
  const TextSegment& segment_;
  const std::string& text_;
  std::vector<Kept> kept_;
  TextSpan outer_ = {};
};

Document::Document(std::string_view text, const DocumentOptions& options)
    : text_(text), html_(options.html) {
  require(is_utf8(text_), "a text is not UTF-8");
  for (const TextSegment& segment : html_ ? read_html(text_) : read_plain(text_))
    Planner(*this, options, segment).run();
}

size_t Document::choose(size_t part, const std::vector<std::string_view>& targets) const {
  const std::vector<Line>& lines = plans_.at(part).lines;
  for (size_t n = 0; n + 1 < lines.size(); ++n) {
    bool all = true;
    for (const Inlay& inlay : lines[n].inlays) {
      if (inlay.kind != Inlay::Kind::kept) continue;
      const auto text =
          std::string_view(lines[n].text).substr(inlay.begin, inlay.end - inlay.begin);
      const auto wanted =
          std::count_if(lines[n].inlays.begin(), lines[n].inlays.end(), [&](const Inlay& other) {
            return other.kind == Inlay::Kind::kept &&
                   std::string_view(lines[n].text).substr(other.begin, other.end - other.begin) ==
                       text;
          });
      all = all && std::cmp_equal(count_whole(targets[n], text), wanted);
    }
    if (all) return n;
  }
  return lines.size() - 1;
}

std::string Document::write(size_t part, size_t line, std::string_view target,
                            std::span<const Link> links) const {
  const Line& plan = plans_.at(part).lines.at(line);
  const std::string repaired =
      repair_numbers({.source = plan.text, .target = target, .links = links});
  std::vector<Inlay> inlays = plan.inlays;
  for (const TextSpan& number : lost_numbers(plan.text, repaired)) {
    const auto around = [&](const Inlay& i) {
      return i.begin <= number.begin && i.end >= number.end;
    };
    if (std::any_of(plan.inlays.begin(), plan.inlays.end(),
                    [&](const Inlay& i) { return i.kind == Inlay::Kind::kept && around(i); }))
      continue;
    Inlay inlay{.kind = Inlay::Kind::kept, .begin = number.begin, .end = number.end};
    inlay.open = plan.text.substr(number.begin, number.size());
    inlay.space_before = number.begin > 0 && plan.text[number.begin - 1] == ' ';
    inlay.space_after = number.end < plan.text.size() && plan.text[number.end] == ' ';
    for (size_t n = 0; n < plan.inlays.size(); ++n)
      if (plan.inlays[n].kind == Inlay::Kind::element && around(plan.inlays[n])) inlay.parent = n;
    inlays.push_back(std::move(inlay));
  }
  return place(
      {.source = plan.text, .target = repaired, .links = links}, inlays,
      [&](std::string_view text) { return html_ ? escape_html(text) : std::string(text); });
}

Document::Joined Document::join(const std::vector<std::string>& parts) const {
  Joined out;
  size_t done = 0;
  for (size_t n = 0; n < plans_.size(); ++n) {
    const Plan& plan = plans_[n];
    const std::string_view part =
        plan.lines.empty() ? std::string_view(text_).substr(plan.outer.begin, plan.outer.size())
                           : std::string_view(parts.at(n));
    std::string_view between = std::string_view(text_).substr(done, plan.outer.begin - done);
    // Scripts without spaces have none between sentences, others have.
    if (n > 0 && !out.text.empty() && !part.empty()) {
      const bool unspaced = is_written_unspaced(character_before(out.text, out.text.size())) ||
                            is_written_unspaced(character_at(part, 0));
      const bool was_unspaced = between.empty() && plan.outer.begin == plans_[n - 1].outer.end;
      if (was_unspaced && !unspaced && is_written_unspaced(character_before(text_, done)))
        out.text += ' ';
      if (between == " " && is_written_unspaced(character_before(out.text, out.text.size())) &&
          is_written_unspaced(character_at(part, 0)))
        between = {};
    }
    out.text += between;
    const size_t begin = out.text.size();
    out.text += part;
    out.places.push_back({begin, out.text.size()});
    done = plan.outer.end;
  }
  out.text += text_.substr(done);
  return out;
}

}  // namespace heed
