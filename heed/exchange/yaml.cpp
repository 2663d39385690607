#include "heed/exchange/yaml.h"

#include <charconv>
#include <optional>

#include "heed/base/check.h"
#include "heed/base/unicode.h"

namespace heed {
namespace {

// Lines end with a newline alone: NEL is a character of a key.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    out.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\t')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\t')) text.remove_suffix(1);
  return text;
}

std::string double_quoted(std::string_view text, const std::string& what) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    require(++i < text.size(), what, ": a text that ends in a backslash");
    const char c = text[i];
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      uint32_t code = 0;
      const std::string_view hex = text.substr(i + 1, static_cast<size_t>(digits));
      const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
      require(error == std::errc() && end == hex.data() + digits && code < 0x110000 &&
                  (code < 0xD800 || code > 0xDFFF),
              what, ": '\\", text.substr(i, 9), "' is no character");
      out += encode_utf8(std::u32string(1, static_cast<char32_t>(code)));
      i += static_cast<size_t>(digits);
      continue;
    }
    switch (c) {
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case 'r': out += '\r'; break;
      case '0': out += '\0'; break;
      case 'a': out += '\a'; break;
      case 'b': out += '\b'; break;
      case 'v': out += '\v'; break;
      case 'f': out += '\f'; break;
      case 'e': out += '\x1b'; break;
      case 'N': out += "\u0085"; break;
      case '_': out += "\u00a0"; break;
      case 'L': out += "\u2028"; break;
      case 'P': out += "\u2029"; break;
      default: out += c;  // a quote, a backslash, a slash, a space
    }
  }
  return out;
}

// A text, quoted or plain, without comments.
std::string scalar(std::string_view text, const std::string& what) {
  text = trimmed(text);
  if (text.size() >= 2 && text.front() == '\'' && text.back() == '\'') {
    std::string out;
    const std::string_view inner = text.substr(1, text.size() - 2);
    for (size_t i = 0; i < inner.size(); ++i) {
      out += inner[i];
      if (inner[i] == '\'' && i + 1 < inner.size() && inner[i + 1] == '\'') ++i;
    }
    return out;
  }
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    return double_quoted(text.substr(1, text.size() - 2), what);
  return std::string(text);
}

std::optional<int64_t> whole(std::string_view text) {
  text = trimmed(text);
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return out;
}

}  // namespace

YamlConfig parse_yaml_config(std::string_view text, const std::string& what) {
  YamlConfig out;
  std::vector<std::string>* list = nullptr;
  for (const std::string_view line : lines_of(text)) {
    const std::string_view part = trimmed(line);
    if (part.empty() || part.starts_with('#') || part == "---") continue;
    if (part.starts_with("- ") || part == "-") {
      if (list) list->push_back(scalar(part.substr(1), what));
      continue;
    }
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos || line.starts_with(' ')) continue;
    std::vector<std::string>& values = out[scalar(part.substr(0, colon), what)];
    values.clear();
    list = &values;
    const std::string_view value = trimmed(part.substr(colon + 1));
    if (value.starts_with('[') && value.ends_with(']')) {
      std::string_view rest = trimmed(value.substr(1, value.size() - 2));
      while (!rest.empty()) {
        const size_t comma = std::min(rest.find(','), rest.size());
        values.push_back(scalar(rest.substr(0, comma), what));
        rest = trimmed(rest.substr(std::min(comma + 1, rest.size())));
      }
    } else if (!value.empty()) {
      values.push_back(scalar(value, what));
    }
  }
  return out;
}

std::vector<std::string> placed_by_id(std::vector<std::pair<std::string, int64_t>> entries,
                                      const std::string& what) {
  require(!entries.empty(), what, ": has no entries");
  int64_t most = 0;
  for (const auto& [piece, id] : entries) most = std::max(most, id);
  // Ids usually have no gaps; far beyond the entries they are damaged.
  require(most < 16 * std::ssize(entries) + 65536, what, ": has ", entries.size(),
          " entries and an id of ", most);
  std::vector<std::string> out(static_cast<size_t>(most) + 1);
  std::vector<bool> there(out.size());
  for (auto& [piece, id] : entries) {
    require(id >= 0 && !there[static_cast<size_t>(id)], what, ": id ", id, " of '", piece,
            "' is negative, or comes twice");
    there[static_cast<size_t>(id)] = true;
    out[static_cast<size_t>(id)] = std::move(piece);
  }
  return out;
}

std::vector<std::string> parse_yaml_vocabulary(std::string_view text, const std::string& what) {
  std::vector<std::pair<std::string, int64_t>> entries;
  std::optional<std::string> key;  // of "? key", whose id is on the next line
  size_t number = 0;
  for (const std::string_view line : lines_of(text)) {
    ++number;
    const std::string where = what + ": line " + std::to_string(number);
    if (line.empty() || line == "---" ||
        (line.starts_with('#') && !whole(line.substr(std::min(line.rfind(": ") + 2, line.size())))))
      continue;
    if (line.starts_with("? ") && !line.ends_with(':')) {
      if (!whole(line.substr(line.rfind(": ") == std::string_view::npos ? line.size()
                                                                        : line.rfind(": ") + 2))) {
        key = scalar(line.substr(2), where);
        continue;
      }
    }
    if (key && line.starts_with(':')) {
      const auto id = whole(line.substr(1));
      require(id.has_value(), where, " has no id");
      entries.emplace_back(std::move(*key), *id);
      key.reset();
      continue;
    }
    const size_t colon = line.rfind(": ");
    const auto id = colon == std::string_view::npos ? std::nullopt : whole(line.substr(colon + 2));
    require(id.has_value(), where, " is no entry of a vocabulary (piece: id)");
    entries.emplace_back(scalar(line.substr(0, colon), where), *id);
  }
  return placed_by_id(std::move(entries), what);
}

}  // namespace heed
