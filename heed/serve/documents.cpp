#include "heed/serve/documents.h"

#include <algorithm>
#include <optional>

#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/serve/subtitles.h"

namespace heed::serve {
namespace {

using Format = TextOptions::Format;

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

std::vector<Entry> entries_of(const std::vector<FileLine>& lines) {
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
    if (is_blank(text) || (comment && !now.strs.empty()) ||
        (!now.strs.empty() && (text.starts_with("msgid ") || text.starts_with("msgctxt"))))
      finish(i);
    if (is_blank(text)) continue;
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
  const std::vector<FileLine> lines = lines_of(content);
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
    {".srt", translate_subtitles},
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
  // Windows' editors begin a file with a mark that it is UTF-8: no part of its first line.
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (content.starts_with(kMark))
    return std::string(kMark) + translate_document(kind, content.substr(kMark.size()), translate);
  for (const Kind& k : kKinds)
    if (k.name == kind) return k.translate(content, translate);
  fail(unknown_name("kind of file", kind, document_kinds()));
}

}  // namespace heed::serve
