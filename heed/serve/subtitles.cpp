#include "heed/serve/subtitles.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "heed/base/unicode.h"
#include "heed/base/words.h"
#include "heed/text/characters.h"

namespace heed::serve {

std::vector<FileLine> lines_of(const std::string& content) {
  std::vector<FileLine> out;
  for (size_t at = 0; at < content.size();) {
    const size_t newline = std::min(content.find('\n', at), content.size());
    const bool windows = newline > at && content[newline - 1] == '\r';
    const size_t stop = windows ? newline - 1 : newline;
    out.push_back({content.substr(at, stop - at), content.substr(stop, newline + 1 - stop)});
    at = newline + 1;
  }
  return out;
}

bool is_blank(const std::string& text) { return split_words(text).empty(); }

namespace {

constexpr double kPause = 2;     // seconds after which a sentence does not go on
constexpr size_t kTogether = 6;  // subtitles that a sentence runs over at most

// Lines that are one text: those of a subtitle, or of one of its speakers.
struct Block {
  size_t begin = 0, end = 0;  // lines
  bool speaker = false;       // "- Who is it?"
  std::string text = {};
  std::optional<double> from = {}, to = {};  // seconds
};

bool is_time(const std::string& line) { return line.find("-->") != std::string::npos; }

// Words, with the spaces inside of tags.
std::vector<std::string> words_and_tags(std::string_view text) {
  std::vector<std::string> out(1);
  bool inside = false;
  for (const char c : text) {
    inside = c == '<' || (inside && c != '>');
    if (c == ' ' && !inside) {
      if (!out.back().empty()) out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

// Subtitles have tags and no entities.
std::string without_entities(std::string text) {
  for (const auto& [entity, character] :
       {std::pair<std::string_view, const char*>{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}})
    for (size_t at = 0; (at = text.find(entity, at)) != std::string::npos; ++at)
      text.replace(at, entity.size(), character);
  return text;
}

std::u32string without_tags(std::string_view text) {
  std::string out;
  bool inside = false;
  for (const char c : text) {
    inside = c == '<' || (inside && c != '>');
    if (!inside && c != '>') out += c;
  }
  return decode_utf8(repaired_utf8(out));
}

bool is_music(char32_t c) { return c == U'♪' || c == U'♫' || c == '#'; }

// What a text begins and ends with: the first and the last sign that is no space, quote or bracket.
struct Edges {
  char32_t first = 0, last = 0;
  bool bracket = false;   // before the first
  bool brackets = false;  // around all of it: "[door closes]"
};
Edges edges_of(const std::string& text) {
  Edges out;
  for (const char32_t c : without_tags(text)) {
    if (out.first == 0 && (c == '[' || c == '(')) out.bracket = true;
    if (!is_white_space(c)) out.brackets = out.bracket && (c == ']' || c == ')');
    if (is_white_space(c) || may_close(c) || joins_before(c)) continue;
    if (out.first == 0) out.first = c;
    out.last = c;
  }
  return out;
}

bool ends(const Block& block) {
  const Edges edges = edges_of(block.text);
  const char32_t c = edges.last;
  return c == 0 || edges.brackets || is_full_stop(c) || ends_sentence(c) || c == ':' || is_music(c);
}

// Whether the sentence of one goes on in the next. Where sentences have no marks, as in songs, a
// small letter says so; where they have, its absence does.
bool goes_on_in(const Block& one, const Block& next, bool has_marks) {
  if (ends(one) || next.speaker) return false;
  const Edges edges = edges_of(next.text);
  if (edges.first == 0 || edges.bracket || is_music(edges.first)) return false;
  if (one.to && next.from && *next.from - *one.to > kPause) return false;
  return has_marks || is_lower(edges.first) || edges_of(one.text).last == ',';
}

// `text` on `count` lines of about the same length, or fewer.
std::vector<std::string> wrapped(const std::vector<std::string>& words, size_t count) {
  size_t bytes = 0;
  for (const std::string& word : words) bytes += word.size() + 1;
  std::vector<std::string> out(1);
  size_t written = 0;
  for (const std::string& word : words) {
    // A line is full where its share of the text ends.
    if (!out.back().empty() && out.size() < count &&
        (written + word.size() / 2) * count >= bytes * out.size())
      out.emplace_back();
    if (!out.back().empty()) out.back() += ' ';
    out.back() += word;
    written += word.size() + 1;
  }
  return out;
}

// The words over as many places as there are shares: each ends near where its share does, rather
// after a mark than after a word.
std::vector<std::vector<std::string>> laid_over(const std::vector<std::string>& words,
                                                const std::vector<size_t>& shares) {
  std::vector<double> ends{0};  // where each word ends
  for (const std::string& word : words)
    ends.push_back(ends.back() + static_cast<double>(without_tags(word).size()) + 1);
  double whole = 0, so_far = 0;
  for (const size_t share : shares) whole += static_cast<double>(share);
  constexpr double kMark = 6;  // so many characters is a mark worth
  std::vector<std::vector<std::string>> out;
  size_t begin = 0;
  for (size_t n = 0; n < shares.size(); ++n) {
    so_far += static_cast<double>(shares[n]);
    size_t best = words.size();
    if (n + 1 < shares.size()) {
      const double wanted = ends.back() * so_far / std::max(whole, 1.0);
      double least = 0;
      // At least a word for each, as long as there are some.
      const size_t first = std::min(begin + 1, words.size());
      const size_t left = shares.size() - n - 1;
      const size_t last = std::max(first, words.size() > left ? words.size() - left : first);
      for (size_t end = first; end <= last && end <= words.size(); ++end) {
        const char32_t c = end > 0 ? edges_of(words[end - 1]).last : 0;
        const bool mark = goes_on(c) || is_full_stop(c) || ends_sentence(c) || c == ';';
        const double cost = std::abs(ends[end] - wanted) - (mark ? kMark : 0);
        if (end == first || cost < least) least = cost, best = end;
      }
    }
    out.emplace_back(words.begin() + static_cast<ptrdiff_t>(begin),
                     words.begin() + static_cast<ptrdiff_t>(best));
    begin = best;
  }
  return out;
}

// An element that goes on in the next subtitle ends in the one and begins again in the other.
void balance_tags(std::vector<std::vector<std::string>>& places) {
  struct Open {
    std::string name, tag;
  };
  std::vector<Open> open;
  const auto name_of = [](const std::string& tag) {
    return tag.substr(0, tag.find_first_of(" >", 1));  // "<i", "</i"
  };
  const auto closes_later = [&](const std::string& name, size_t place) {
    for (size_t p = place + 1; p < places.size(); ++p)
      for (const std::string& word : places[p])
        if (word.find("</" + name.substr(1) + ">") != std::string::npos) return true;
    return false;
  };
  for (size_t p = 0; p < places.size(); ++p) {
    std::vector<std::string>& words = places[p];
    if (words.empty()) continue;
    std::string again;
    for (const Open& o : open) again += o.tag;
    for (const std::string& word : words)
      for (size_t at = 0; (at = word.find('<', at)) != std::string::npos;) {
        const size_t end = std::min(word.find('>', at), word.size() - 1) + 1;
        const std::string tag = word.substr(at, end - at), name = name_of(tag);
        if (name.starts_with("</")) {
          if (!open.empty() && open.back().name == "<" + name.substr(2)) open.pop_back();
        } else if (!tag.ends_with("/>")) {
          open.push_back({name, tag});
        }
        at = end;
      }
    std::erase_if(open, [&](const Open& o) { return !closes_later(o.name, p); });
    words.front() = again + words.front();
    for (auto o = open.rbegin(); o != open.rend(); ++o)
      words.back() += "</" + o->name.substr(1) + ">";
  }
}

// "00:00:01,000 --> 00:00:02,500": both, in seconds.
std::pair<std::optional<double>, std::optional<double>> times_of(const std::string& line) {
  const auto time = [](const char* text) -> std::optional<double> {
    int h = 0, m = 0, s = 0, ms = 0;
    if (std::sscanf(text, " %d:%d:%d%*[,.]%d", &h, &m, &s, &ms) != 4) return std::nullopt;
    return h * 3600.0 + m * 60.0 + s + ms / 1000.0;
  };
  return {time(line.c_str()), time(line.c_str() + line.find("-->") + 3)};
}

std::vector<Block> blocks_of(const std::vector<FileLine>& lines) {
  std::vector<Block> out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (!is_time(lines[i].text)) continue;
    const auto [from, to] = times_of(lines[i].text);
    const auto is_text = [&](size_t at) {
      return at < lines.size() && !is_blank(lines[at].text) && !is_time(lines[at].text);
    };
    size_t at = i + 1;
    while (is_text(at)) {
      Block block{at, at + 1, lines[at].text.starts_with('-'), lines[at].text, from, to};
      while (is_text(block.end) && !(block.speaker && lines[block.end].text.starts_with('-')))
        block.text += " " + lines[block.end++].text;
      if (block.speaker) block.text.erase(0, 1);
      at = block.end;
      out.push_back(std::move(block));
    }
    i = at - 1;
  }
  return out;
}

}  // namespace

std::string translate_subtitles(const std::string& content, const TranslateTexts& translate) {
  const std::vector<FileLine> lines = lines_of(content);
  const std::vector<Block> blocks = blocks_of(lines);
  const bool has_marks = std::ranges::count_if(blocks, ends) * 3 >= std::ssize(blocks);
  std::vector<size_t> first;  // of those that are one text
  std::vector<std::string> texts;
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (b > 0 && b - first.back() < kTogether && goes_on_in(blocks[b - 1], blocks[b], has_marks)) {
      texts.back() += " " + blocks[b].text;
    } else {
      first.push_back(b);
      texts.push_back(blocks[b].text);
    }
  }
  const std::vector<std::string> found = translate(texts, TextOptions::Format::html);
  first.push_back(blocks.size());
  std::string out;
  size_t done = 0;
  for (size_t t = 0; t < texts.size(); ++t) {
    std::vector<size_t> shares;
    for (size_t b = first[t]; b < first[t + 1]; ++b)
      shares.push_back(without_tags(blocks[b].text).size());
    std::vector<std::vector<std::string>> places = laid_over(words_and_tags(found[t]), shares);
    if (places.size() > 1) balance_tags(places);
    for (size_t b = first[t]; b < first[t + 1]; ++b) {
      for (; done < blocks[b].begin; ++done) out += lines[done].text + lines[done].end;
      const size_t count = blocks[b].end - blocks[b].begin;
      const std::vector<std::string> written = wrapped(places[b - first[t]], count);
      for (size_t i = 0; i < written.size(); ++i)
        out += (i == 0 && blocks[b].speaker ? "- " : "") + without_entities(written[i]) +
               (i + 1 < written.size() ? lines[done].end : lines[blocks[b].end - 1].end);
      done = blocks[b].end;
    }
  }
  for (; done < lines.size(); ++done) out += lines[done].text + lines[done].end;
  return out;
}

}  // namespace heed::serve
