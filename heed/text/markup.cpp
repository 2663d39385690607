#include "heed/text/markup.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include "heed/base/unicode.h"
#include "heed/base/words.h"
#include "heed/text/characters.h"
#include "heed/text/entities.h"
#include "heed/text/spans.h"

namespace heed {
namespace {

using Names = std::string_view;

// Between spaces, so that a name is looked for with them.
constexpr Names kBlocks =
    " address article aside blockquote body br caption center col colgroup dd details dialog dir "
    "div "
    "dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header "
    "hgroup hr html legend li link main menu meta nav ol optgroup option p pre search section "
    "select "
    "summary table tbody td textarea tfoot th thead title tr ul base noscript xml ";
constexpr Names kVoids =
    " area base br col embed hr img input link meta param source track wbr basefont frame ";
// Their content is no text, or none to translate.
constexpr Names kOpaque =
    " script style pre textarea svg math object iframe template canvas audio video ";
// No text either, but they stand for a word.
constexpr Names kCode = " code kbd samp var tt ";

bool is_in(Names names, std::string_view name) {
  std::string wanted = " ";
  wanted.append(name).append(" ");
  return names.find(wanted) != Names::npos;
}

bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// A tag, a comment or a declaration of the source.
struct Markup {
  TextSpan source;
  std::string name;        // in lower case; empty: a comment, a declaration
  bool closes = false;     // </name>
  bool alone = false;      // <name/>, or of an element that has no content
  bool untouched = false;  // translate="no", class="notranslate"
};

class Reader {
 public:
  explicit Reader(std::string_view html) : html_(html) {}

  std::vector<TextSegment> run() {
    for (size_t at = 0; at < html_.size();) {
      const std::optional<Markup> markup = html_[at] == '<' ? markup_at(at) : std::nullopt;
      at = markup ? add_markup(*markup) : add_character(at);
    }
    finish();
    return std::move(segments_);
  }

 private:
  char get(size_t i) const { return i < html_.size() ? html_[i] : '\0'; }
  bool starts(size_t i, std::string_view with) const { return html_.substr(i).starts_with(with); }

  // What begins with "<" at `at`, up to its end; nothing if it is a character.
  std::optional<Markup> markup_at(size_t at) const {
    if (last_close_ == std::string_view::npos || at > last_close_) return std::nullopt;
    const auto until = [&](std::string_view end, size_t from) {
      const size_t found = html_.find(end, from);
      return found == std::string_view::npos ? html_.size() : found + end.size();
    };
    if (starts(at, "<!--")) return Markup{.source = {at, until("-->", at + 4)}, .name = {}};
    if (starts(at, "<![CDATA[")) return Markup{.source = {at, until("]]>", at)}, .name = {}};
    if (get(at + 1) == '!' || get(at + 1) == '?')
      return Markup{.source = {at, until(">", at)}, .name = {}};
    Markup m;
    m.closes = get(at + 1) == '/';
    const size_t name = at + 1 + m.closes;
    if (!is_alpha(get(name)) && !(get(name) >= '0' && get(name) <= '9')) return std::nullopt;
    size_t end = name;
    while (end < html_.size() && !is_space(html_[end]) && html_[end] != '>' && html_[end] != '/' &&
           html_[end] != '<')
      ++end;
    m.name = lower(html_.substr(name, end - name));
    if (!is_alpha(m.name[0]) && get(end) != '>' && get(end) != '/') return std::nullopt;  // a <3 b
    const size_t attributes = end;
    char quote = 0;
    for (; end < html_.size(); ++end) {
      const char c = html_[end];
      if (quote != 0) {
        if (c == quote) quote = 0;
      } else if ((c == '"' || c == '\'') && html_[end - 1] == '=') {
        quote = c;
      } else if (c == '>') {
        break;
      }
    }
    if (end == html_.size()) {
      // A quote that is never closed hides the end; without quotes it may be there.
      end = html_.find('>', attributes);
      if (end == std::string_view::npos) return std::nullopt;
    }
    m.source = {at, end + 1};
    m.alone = html_[end - 1] == '/' || is_in(kVoids, m.name);
    const std::string all = lower(html_.substr(attributes, end - attributes));
    m.untouched = all.find("translate=\"no\"") != std::string::npos ||
                  all.find("translate='no'") != std::string::npos ||
                  all.find("translate=no") != std::string::npos ||
                  all.find("notranslate") != std::string::npos;
    return m;
  }

  // Where the element ends that `begin` opens: after its own end tag; nothing if it has none.
  std::optional<size_t> element_end(const Markup& begin) {
    if (is_in(endless_, begin.name)) return std::nullopt;
    int64_t depth = 1;
    const bool raw = is_in(" script style textarea ", begin.name);
    for (size_t at = begin.source.end; at < html_.size();) {
      at = html_.find('<', at);
      if (at == std::string_view::npos) break;
      const std::optional<Markup> m = markup_at(at);
      if (!m || (raw && !(m->closes && m->name == begin.name))) {
        ++at;
        continue;
      }
      if (m->name == begin.name && !(m->alone && !m->closes)) depth += m->closes ? -1 : 1;
      at = m->source.end;
      if (depth == 0) return at;
    }
    endless_ += begin.name + ' ';  // nor has a later one: nobody looks again
    return std::nullopt;
  }

  // Returns where to go on.
  size_t add_markup(const Markup& m) {
    const bool block = is_in(kBlocks, m.name);
    const bool skipped = is_in(kOpaque, m.name), code = is_in(kCode, m.name);
    if (!m.closes && !m.alone && (skipped || code || m.untouched)) {
      const std::optional<size_t> found = element_end(m);
      const size_t end = found.value_or(block ? html_.size() : m.source.end);
      if (block) {
        finish();
        return end;
      }
      InlineTag tag{
          .at = segment_.text.size(), .end = segment_.text.size(), .source = {m.source.begin, end}};
      if (!skipped && found) {
        add_content(m.source.end, end, tag.source);
        tag.end = segment_.text.size();
        if (tag.end > tag.at) tag.kind = InlineTag::Kind::kept;
      }
      segment_.tags.push_back(tag);
      return end;
    }
    if (block) {
      finish();
      return m.source.end;
    }
    const size_t here = segment_.text.size();
    segment_.tags.push_back({.at = here, .end = here, .source = m.source});
    if (m.name.empty() || (m.alone && !m.closes)) return m.source.end;
    if (!m.closes) {
      // Nobody nests so deep; what follows a tree goes as deep as the tree.
      constexpr size_t kDeepest = 64;
      if (open_.size() < kDeepest) open_.push_back({m.name, segment_.tags.size() - 1});
      return m.source.end;
    }
    const auto found = std::find_if(open_.rbegin(), open_.rend(),
                                    [&](const auto& o) { return o.first == m.name; });
    if (found == open_.rend()) return m.source.end;
    const size_t other = found->second, mine = segment_.tags.size() - 1;
    segment_.tags[other].kind = InlineTag::Kind::open;
    segment_.tags[other].partner = mine;
    segment_.tags[mine].kind = InlineTag::Kind::close;
    segment_.tags[mine].partner = other;
    open_.erase(std::prev(found.base()), open_.end());  // those inside it stay alone
    return m.source.end;
  }

  // The text of an element that is kept whole, without its tags: each byte stands for all of it.
  void add_content(size_t begin, size_t end, TextSpan whole) {
    std::string text;
    for (size_t at = begin; at < end;) {
      const std::optional<Markup> m = html_[at] == '<' ? markup_at(at) : std::nullopt;
      if (m) {
        at = m->source.end;
        continue;
      }
      const auto [character, bytes] = character_at(at);
      text += character;
      at += bytes;
    }
    // Without white space around it, which would not be in a sentence.
    std::u32string points = decode_utf8(text);
    points.erase(points.begin(), std::find_if_not(points.begin(), points.end(), is_white_space));
    text = encode_utf8(strip_right(points));
    segment_.text += text;
    segment_.source.insert(segment_.source.end(), text.size(), whole);
  }

  // The character at `at` as it is meant, and how many bytes it has in the source.
  std::pair<std::string, size_t> character_at(size_t at) const {
    if (html_[at] == '&')
      if (const auto entity = entity_at(html_.substr(at)))
        return {encode_utf8(entity->characters), entity->bytes};
    if (is_space(html_[at])) return {" ", 1};
    const size_t bytes = std::max<size_t>(character_bytes(html_.substr(at)), 1);
    return {std::string(html_.substr(at, bytes)), bytes};
  }

  size_t add_character(size_t at) {
    const auto [character, bytes] = character_at(at);
    const size_t here = segment_.text.size();
    segment_.text += character;
    segment_.source.insert(segment_.source.end(), character.size(), TextSpan{at, at + bytes});
    // Signs that were written as entities come back as they were.
    if (bytes > 1 && html_[at] == '&') {
      const std::u32string c = decode_utf8(character);
      if (c.size() == 1 && (c[0] == '&' || is_symbol(c[0])) && !within_word(at, at + bytes))
        segment_.tags.push_back({.kind = InlineTag::Kind::kept,
                                 .at = here,
                                 .end = segment_.text.size(),
                                 .source = {at, at + bytes}});
    }
    return at + bytes;
  }

  bool within_word(size_t begin, size_t end) const {
    const auto in_word = [](char c) {
      return is_alpha(c) || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80;
    };
    return begin > 0 && in_word(html_[begin - 1]) && in_word(get(end));
  }

  void finish() {
    const std::u32string text = decode_utf8(segment_.text);
    if (!std::all_of(text.begin(), text.end(), is_white_space))
      segments_.push_back(std::move(segment_));
    segment_ = {};
    open_.clear();
  }

  std::string_view html_;
  size_t last_close_ = html_.rfind('>');
  TextSegment segment_ = {};
  std::vector<TextSegment> segments_;
  std::string endless_ = " ";  // names of elements that have no end
  std::vector<std::pair<std::string, size_t>>
      open_;  // name and tag of elements that are not closed
};

}  // namespace

std::vector<TextSegment> read_html(std::string_view html) { return Reader(html).run(); }

namespace {

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// What may open or close an element of plain text.
struct Mark {
  TextSpan span;
  std::string_view name;
  bool opens = false, closes = false;
};

// Where the bracket is opened that closes at `close`, with the ! of a picture; `close` if nowhere.
size_t link_begin(std::string_view line, size_t close) {
  constexpr size_t kLongest = 1000;
  int64_t depth = 1;
  for (size_t at = close; at > 0 && close - at < kLongest; --at) {
    depth += line[at - 1] == ']' ? 1 : line[at - 1] == '[' ? -1 : 0;
    if (depth == 0) return at - 1 - (at > 1 && line[at - 2] == '!');
  }
  return close;
}

// <b>, </b>, and Markdown's [ ](address) and **, in order.
std::vector<Mark> marks_of(std::string_view line) {
  std::vector<Mark> out;
  size_t done = 0;
  const auto bold = [&](size_t end) {
    const std::string_view before_end = line.substr(0, end);
    for (size_t at = done; (at = before_end.find("**", at)) != std::string_view::npos; at += 2) {
      const char before = at > 0 ? line[at - 1] : ' ';
      const char after = at + 2 < line.size() ? line[at + 2] : ' ';
      const bool opens = !is_space(after) && after != '*' && !is_alphanumeric(before);
      const bool closes = !is_space(before) && !is_alphanumeric(after);
      out.push_back({{at, at + 2}, "**", opens, closes});
    }
  };
  const std::vector<KeptSpan> all = find_kept(line);
  const auto is_kept = [&](size_t at) {
    const auto after =
        std::ranges::upper_bound(all, at, {}, [](const KeptSpan& k) { return k.span.begin; });
    return after != all.begin() && std::prev(after)->span.end > at;
  };
  for (const KeptSpan& kept : all) {
    bold(kept.span.begin);
    done = kept.span.end;
    const std::string_view text = line.substr(kept.span.begin, kept.span.size());
    if (text.starts_with("](")) {
      const size_t begin = link_begin(line, kept.span.begin);
      const size_t inner = line[begin] == '!' ? begin + 2 : begin + 1;
      if (begin == kept.span.begin || is_kept(begin) || is_kept(inner - 1)) continue;
      out.push_back({{begin, inner}, "[", true, false});
      out.push_back({kept.span, "[", false, true});
    } else if (text.starts_with('<') && !text.ends_with("/>")) {
      const bool closes = text.starts_with("</");
      const std::string_view inner = text.substr(1 + closes);
      out.push_back({kept.span, inner.substr(0, inner.find_first_of(" \t/>")), !closes, closes});
    }
  }
  bold(line.size());
  std::stable_sort(out.begin(), out.end(),
                   [](const Mark& x, const Mark& y) { return x.span.begin < y.span.begin; });
  return out;
}

// Tags of plain text that open and close an element on one line, in order.
std::vector<InlineTag> pairs_of(std::string_view line) {
  std::vector<InlineTag> out;
  std::vector<std::pair<std::string_view, size_t>> open;  // names, and numbers of their tags
  for (const Mark& mark : marks_of(line)) {
    constexpr ptrdiff_t kDeepest = 100;
    const auto deepest = open.rbegin() + std::min(kDeepest, std::ssize(open));
    const auto opened = std::find_if(
        open.rbegin(), deepest, [&](const auto& o) { return mark.closes && o.first == mark.name; });
    const bool closes = opened != deepest;
    if (!closes && !mark.opens) continue;
    const size_t partner = closes ? opened->second : 0;
    if (closes) {
      out[partner].partner = out.size();
      open.erase(std::prev(opened.base()), open.end());
    } else {
      open.emplace_back(mark.name, out.size());
    }
    out.push_back({.kind = closes ? InlineTag::Kind::close : InlineTag::Kind::open,
                   .source = mark.span,
                   .partner = partner});
  }
  // Those that nothing closes are words to a model, as other placeholders are.
  std::vector<InlineTag> paired;
  std::vector<size_t> number(out.size(), 0);
  for (size_t n = 0; n < out.size(); ++n) {
    if (out[n].kind == InlineTag::Kind::open && out[n].partner == 0) continue;
    number[n] = paired.size();
    paired.push_back(out[n]);
  }
  for (InlineTag& tag : paired) tag.partner = number[tag.partner];
  return paired;
}

}  // namespace

std::vector<TextSegment> read_plain(std::string_view text) {
  std::vector<TextSegment> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    TextSegment& line = out.emplace_back();
    line.tags = pairs_of(text.substr(begin, end - begin));
    size_t next = 0;
    for (size_t at = begin; at < end;) {
      if (next < line.tags.size() && line.tags[next].source.begin + begin == at) {
        InlineTag& tag = line.tags[next++];
        tag.at = tag.end = line.text.size();
        tag.source = {at, at + tag.source.size()};
        at = tag.source.end;
        continue;
      }
      const size_t bytes = std::max<size_t>(character_bytes(text.substr(at)), 1);
      line.text += text.substr(at, bytes);
      line.source.insert(line.source.end(), bytes, TextSpan{at, at + bytes});
      at += bytes;
    }
    begin = end + 1;
  }
  return out;
}

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

}  // namespace heed
