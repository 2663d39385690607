#include "heed/serve/documents.h"

#include <algorithm>
#include <optional>

#include "heed/base/check.h"
#include "heed/base/words.h"

namespace heed::serve {
namespace {

using Format = TextOptions::Format;

// A line, and what ends it: "\n", "\r\n", or nothing at the end of a file.
struct Line {
  std::string text, end;
};

std::vector<Line> lines_of(const std::string& content) {
  std::vector<Line> out;
  for (size_t at = 0; at < content.size();) {
    const size_t newline = std::min(content.find('\n', at), content.size());
    const bool windows = newline > at && content[newline - 1] == '\r';
    const size_t stop = windows ? newline - 1 : newline;
    out.push_back({content.substr(at, stop - at), content.substr(stop, newline + 1 - stop)});
    at = newline + 1;
  }
  return out;
}

bool blank(const std::string& text) { return split_words(text).empty(); }

// ---- subtitles

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

// `text` on `count` lines of about the same length, or fewer.
std::vector<std::string> wrapped(const std::string& text, size_t count) {
  const auto words = words_and_tags(text);
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

std::string translate_srt(const std::string& content, const TranslateTexts& translate) {
  const std::vector<Line> lines = lines_of(content);
  // Lines that are one text: those of a subtitle, or of one of its speakers.
  struct Group {
    size_t begin = 0, end = 0;
  };
  std::vector<Group> groups;
  std::vector<std::string> texts;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].text.find("-->") == std::string::npos) continue;
    size_t at = i + 1;
    while (at < lines.size() && !blank(lines[at].text) &&
           lines[at].text.find("-->") == std::string::npos) {
      Group group{at, at + 1};
      std::string text = lines[at].text;
      const bool speaker = text.starts_with('-');
      while (group.end < lines.size() && !blank(lines[group.end].text) &&
             lines[group.end].text.find("-->") == std::string::npos &&
             !(speaker && lines[group.end].text.starts_with('-')))
        text += " " + lines[group.end++].text;
      groups.push_back(group);
      texts.push_back(speaker ? text.substr(1) : text);
      at = group.end;
    }
    i = at - 1;
  }
  const std::vector<std::string> found = translate(texts, Format::html);
  std::string out;
  size_t done = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (; done < groups[g].begin; ++done) out += lines[done].text + lines[done].end;
    const std::string dash = lines[done].text.starts_with('-') ? "- " : "";
    const auto written = wrapped(found[g], groups[g].end - groups[g].begin);
    for (size_t i = 0; i < written.size(); ++i)
      out += (i == 0 ? dash : "") + without_entities(written[i]) +
             (i + 1 < written.size() ? lines[done].end : lines[groups[g].end - 1].end);
    done = groups[g].end;
  }
  for (; done < lines.size(); ++done) out += lines[done].text + lines[done].end;
  return out;
}

// ---- gettext

// What stands between the quotes of a line, as it means; nothing if it is no string.
std::optional<std::string> string_of(std::string_view line) {
  const size_t first = line.find('"'), last = line.rfind('"');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  std::string out;
  for (size_t i = first + 1; i < last; ++i) {
    if (line[i] != '\\' || i + 1 == last) {
      out += line[i];
      continue;
    }
    const char c = line[++i];
    out += c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  return out;
}

std::string escaped(std::string_view text) {
  std::string out = "\"";
  for (const char c : text)
    out += c == '\n'   ? "\\n"
           : c == '\t' ? "\\t"
           : c == '\r' ? "\\r"
           : c == '"'  ? "\\\""
           : c == '\\' ? "\\\\"
                       : std::string(1, c);
  return out + "\"";
}

// A string of several lines has one of the file for each, after an empty one, as gettext has it.
std::string written_string(const std::string& text, const std::string& end) {
  const size_t newline = text.find('\n');
  if (newline == std::string::npos || newline + 1 == text.size()) return escaped(text) + end;
  std::string out = "\"\"" + end;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find('\n', at), text.size() - 1) + 1;
    out += escaped(std::string_view(text).substr(at, next - at)) + end;
    at = next;
  }
  return out;
}

struct Entry {
  size_t begin = 0, end = 0;                     // lines
  std::optional<size_t> flags = {}, first = {};  // the lines "#, ..." and the first keyword's
  std::string id = {}, plural = {};
  struct Str {
    size_t begin = 0, end = 0;
    std::string keyword, text;
  };
  std::vector<Str> strs = {};
};

std::vector<Entry> entries_of(const std::vector<Line>& lines) {
  std::vector<Entry> out;
  Entry now;
  std::string* filling = nullptr;
  std::string ignored;
  const auto finish = [&](size_t at) {
    now.end = at;
    if (now.first) out.push_back(now);
    now = {.begin = at};
    filling = nullptr;
  };
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& text = lines[i].text;
    const bool comment = text.starts_with('#');
    if (blank(text) || (comment && !now.strs.empty()) ||
        (!now.strs.empty() && (text.starts_with("msgid ") || text.starts_with("msgctxt"))))
      finish(i);
    if (blank(text)) continue;
    if (comment) {
      if (text.starts_with("#,")) now.flags = i;
      continue;
    }
    const auto string = string_of(text);
    if (text.starts_with('"')) {
      if (filling && string) *filling += *string;
      if (!now.strs.empty()) now.strs.back().end = i + 1;
      continue;
    }
    if (!now.first) now.first = i;
    const std::string keyword = text.substr(0, text.find_first_of(" \t\""));
    ignored.clear();
    filling = &ignored;
    if (keyword == "msgid") filling = &now.id;
    if (keyword == "msgid_plural") filling = &now.plural;
    if (keyword.starts_with("msgstr")) {
      now.strs.push_back({i, i + 1, keyword, ""});
      filling = &now.strs.back().text;
    }
    if (string) *filling += *string;
  }
  finish(lines.size());
  return out;
}

std::string translate_po(const std::string& content, const TranslateTexts& translate) {
  const std::vector<Line> lines = lines_of(content);
  std::vector<Entry> wanted;
  std::vector<std::string> texts;
  for (Entry& e : entries_of(lines)) {
    const bool done = std::any_of(e.strs.begin(), e.strs.end(),
                                  [](const Entry::Str& s) { return !s.text.empty(); });
    if (e.id.empty() || e.strs.empty() || done) continue;  // the header, or somebody's own
    for (size_t i = 0; i < e.strs.size(); ++i)
      texts.push_back(i > 0 && !e.plural.empty() ? e.plural : e.id);
    wanted.push_back(std::move(e));
  }
  const std::vector<std::string> found = translate(texts, Format::text);
  std::string out;
  size_t done = 0, used = 0;
  for (const Entry& e : wanted) {
    const auto copy_to = [&](size_t line) {
      for (; done < line; ++done) {
        const std::string end = lines[done].end.empty() ? "\n" : lines[done].end;
        if (done == e.first && !e.flags) out += "#, fuzzy" + end;
        out += lines[done].text;
        if (done == e.flags && lines[done].text.find("fuzzy") == std::string::npos)
          out += ", fuzzy";
        out += lines[done].end;
      }
    };
    for (const Entry::Str& s : e.strs) {
      copy_to(s.begin);
      const std::string end = lines[s.begin].end.empty() ? "\n" : lines[s.begin].end;
      out += s.keyword + " " + written_string(found[used++], end);
      done = s.end;
    }
  }
  for (; done < lines.size(); ++done) out += lines[done].text + lines[done].end;
  return out;
}

std::string whole(const std::string& content, const TranslateTexts& translate, Format format) {
  return translate({content}, format).at(0);
}

struct Kind {
  std::string_view name;
  std::string (*translate)(const std::string&, const TranslateTexts&);
};
constexpr Kind kKinds[] = {
    {".html",
     [](const std::string& c, const TranslateTexts& t) { return whole(c, t, Format::html); }},
    {".po", translate_po},
    {".srt", translate_srt},
    {".txt",
     [](const std::string& c, const TranslateTexts& t) { return whole(c, t, Format::text); }}};

}  // namespace

std::vector<std::string> document_kinds() {
  std::vector<std::string> out;
  for (const Kind& k : kKinds) out.emplace_back(k.name);
  return out;
}

bool is_document_kind(std::string_view kind) {
  return std::ranges::any_of(kKinds, [&](const Kind& k) { return k.name == kind; });
}

std::string translate_document(std::string_view kind, const std::string& content,
                               const TranslateTexts& translate) {
  for (const Kind& k : kKinds)
    if (k.name == kind) return k.translate(content, translate);
  fail(unknown_name("kind of file", kind, document_kinds()));
}

}  // namespace heed::serve
