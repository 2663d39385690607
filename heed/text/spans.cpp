#include "heed/text/spans.h"

#include <algorithm>
#include <array>
#include <string>

#include "heed/base/unicode.h"
#include "heed/base/words.h"
#include "heed/text/characters.h"

namespace heed {
namespace {

bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_alpha(c) || is_digit(c) || c == '_'; }
bool is_beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

constexpr std::array<std::string_view, 36> kDomains = {
    "com", "org", "net", "edu", "gov", "int", "mil", "info", "biz", "io", "dev", "app",
    "eu",  "de",  "fr",  "es",  "it",  "pt",  "nl",  "be",   "ch",  "at", "uk",  "us",
    "ca",  "au",  "jp",  "cn",  "in",  "br",  "ru",  "pl",   "se",  "ai", "tv",  "me"};

constexpr std::string_view kFiles[] = {
    "png",  "jpg",  "jpeg", "gif", "svg", "webp", "pdf", "txt", "csv", "json", "xml",
    "yaml", "yml",  "html", "htm", "css", "js",   "ts",  "py",  "cpp", "md",   "docx",
    "xlsx", "pptx", "odt",  "zip", "gz",  "tar",  "exe", "dll", "log", "ini",  "conf",
    "cfg",  "sh",   "mp3",  "mp4", "wav", "avi",  "mkv", "srt", "po",  "deb",  "iso"};

// Reads from a place of a text; what it finds there has a length, or 0.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  size_t at(size_t i) const {
    // What can stand inside a word is looked for at its beginning alone.
    const bool inside = i > 0 && (is_name(text_[i - 1]) || is_beyond_ascii(text_[i - 1]));
    switch (text_[i]) {
      case '%': return percent(i, inside);
      case '{': return braces(i, '{', '}');
      case '[': return bracket(i);
      case ']': return get(i + 1) == '(' ? longer(1, link(i + 1)) : 0;
      case '\\': return backslash(i);
      case '_': return inside ? 0 : underscores(i);
      case '$': return dollar(i);
      case '#':
        if (starts(i, "#{")) return longer(1, braces(i + 1, '{', '}'));
        return inside ? 0 : tagged(i);
      case '<': return tag(i);
      case '&': return entity(i);
      case '`': return code(i);
      case ':': return inside ? 0 : colons(i);
      case '@':
        if (starts(i, "@{")) return longer(1, braces(i + 1, '{', '}'));
        return inside ? 0 : tagged(i);
      case '~':
      case '.':
      case '/': return inside ? 0 : path(i);
      default: break;
    }
    if (inside || !is_name(text_[i])) return 0;
    if (const size_t host = numeric_host(i)) return host;
    if (const size_t version = version_at(i)) return version;
    if (const size_t code = number_of_groups(i)) return code;
    if (const size_t mail = address(i)) return mail;
    if (const size_t url = web(i)) return url;
    if (const size_t name = identifier(i)) return name;
    return drive(i);
  }

  // A face made of signs that stands by itself: ":-)".
  size_t face(size_t i) const {
    if (!is_one_of(text_[i], ":;=") || (i > 0 && !is_space(text_[i - 1]))) return 0;
    const size_t mouth = i + 1 + (get(i + 1) == '-' || get(i + 1) == '\'');
    if (mouth >= text_.size() || !is_one_of(text_[mouth], ")(DPp|/*")) return 0;
    return mouth + 1 == text_.size() || is_space(text_[mouth + 1]) ? mouth + 1 - i : 0;
  }

 private:
  // Nothing that is kept has more bytes, and no name of a host or of a mailbox: what is looked at
  // again from every character of a long run must have an end.
  static constexpr size_t kLongestKept = 4096, kLongestName = 320;

  char get(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }
  bool starts(size_t i, std::string_view with) const { return text_.substr(i).starts_with(with); }
  static size_t longer(size_t by, size_t length) { return length == 0 ? 0 : by + length; }

  // printf's, Python's, Qt's and Windows': %s %-5.2f %1$s %(name)s %{name} %1 %L1 %NAME% %%NAME%%
  // %%
  size_t percent(size_t i, bool inside) const {
    size_t k = i + 1;
    if (get(k) == '%') {
      size_t end = k + 1;
      while (is_name(get(end))) ++end;
      if (end > k + 1 && starts(end, "%%")) return end + 2 - i;
      return inside && !is_digit(text_[i - 1]) ? 0 : 2;
    }
    if (get(k) == '{') return longer(1, braces(k, '{', '}'));
    if (get(k) == '(') {
      constexpr size_t kLongest = 60;
      const size_t close = text_.substr(k, kLongest + 1).find(')');
      if (close == std::string_view::npos || !is_alpha(get(k + close + 1))) return 0;
      return k + close + 2 - i;
    }
    size_t name = k;
    while (is_name(get(name))) ++name;
    if (name > k + 1 && get(name) == '%' && is_alpha(get(k))) return name + 1 - i;
    if (inside && !is_alpha(text_[i - 1])) return 0;  // 50%
    if (get(k) == 'L' && is_digit(get(k + 1))) ++k;
    const size_t digits = k;
    while (is_digit(get(k))) ++k;
    if (k > digits && get(k) == '$') ++k;
    while (is_one_of(get(k), "-+#0'")) ++k;
    while (is_digit(get(k)) || get(k) == '*') ++k;
    if (get(k) == '.' && (is_digit(get(k + 1)) || get(k + 1) == '*'))
      for (++k; is_digit(get(k)) || get(k) == '*';) ++k;
    const size_t plain = k;
    while (k < plain + 2 && is_one_of(get(k), "hlLqjzt")) ++k;
    if (is_one_of(get(k), "diouxXeEfFgGaAcspn@") && get(k) != 0 && !is_name(get(k + 1)))
      return k + 1 - i;
    return plain > digits && !is_name(get(plain)) && plain - digits <= 2 ? plain - i : 0;
  }

  // Balanced, on one line and not too long.
  size_t braces(size_t i, char open, char close) const {
    constexpr size_t kLongest = 200;
    int64_t depth = 0;
    for (size_t k = i; k < text_.size() && k - i < kLongest && text_[k] != '\n'; ++k) {
      depth += text_[k] == open ? 1 : text_[k] == close ? -1 : 0;
      if (depth == 0) return k + 1 - i;
    }
    return 0;
  }

  size_t dollar(size_t i) const {  // $NAME, ${name}, $NAME/folder
    size_t k = i + 1;
    if (get(k) == '{') {
      const size_t length = braces(k, '{', '}');
      if (length == 0) return 0;
      k += length;
    } else {
      if (!is_alpha(get(k)) && get(k) != '_') return 0;
      while (is_name(get(k))) ++k;
    }
    if (get(k) == '/' && is_name(get(k + 1))) k += until_space(k);
    return k - i;
  }

  // The line from i on, as far as something that is kept can reach.
  std::string_view line(size_t i) const {
    const std::string_view rest = text_.substr(i, kLongestKept);
    return rest.substr(0, rest.find('\n'));
  }
  // Up to what closes it, on the same line; 0 if nothing does.
  size_t until(size_t i, std::string_view close) const {
    const size_t end = line(i).find(close, 2);
    return end != std::string_view::npos ? end + close.size() : 0;
  }

  size_t tag(size_t i) const {
    if (starts(i, "<!--")) return until(i, "-->");
    if (starts(i, "<%")) return until(i, "%>");
    if (starts(i, "<?")) return until(i, "?>");
    const size_t name = i + 1 + (get(i + 1) == '/');
    if (!is_name(get(name))) return 0;
    const std::string_view all = line(i);
    for (size_t k = name - i; k < all.size(); ++k) {
      if (all[k] == '>') return k + 1;
      if (all[k] == '<') return 0;
      // What an attribute is may hold anything: title="a > b".
      const bool quoted = all[k] == '=' && k + 1 < all.size() && is_one_of(all[k + 1], "\"'");
      const size_t close = quoted ? all.find(all[k + 1], k + 2) : std::string_view::npos;
      if (close != std::string_view::npos) k = close;
    }
    return 0;
  }

  // [[x]], [12], [::1]:80, and [X12X], which Weblate puts for placeholders of its own.
  size_t bracket(size_t i) const {
    if (starts(i, "[[")) return braces(i, '[', ']');
    if (const size_t host = longer(1, numeric_host(i + 1)); host > 0 && get(i + host) == ']') {
      size_t end = i + host + 1;
      if (get(end) == ':' && is_digit(get(end + 1)))
        for (++end; is_digit(get(end));) ++end;
      return end - i;
    }
    const bool marked = get(i + 1) == 'X';
    size_t k = i + 1 + marked;
    const size_t digits = k;
    while (is_digit(get(k)) && k < digits + 9) ++k;
    if (k == digits || (marked && get(k++) != 'X')) return 0;
    return get(k) == ']' ? k + 1 - i : 0;
  }

  // Where a link of Markdown goes: [the cat](https://a.org), with a title: (a.html "the cat").
  size_t link(size_t i) const {
    const size_t length = braces(i, '(', ')');
    const std::string_view all = text_.substr(i, length);
    const auto space = std::find_if(all.begin(), all.end(), is_space);
    if (space == all.end()) return length;
    const std::string_view title(space + 1, all.end());
    const bool quoted =
        title.size() > 2 && is_one_of(title[0], "\"'") && title[title.size() - 2] == title[0];
    return quoted && space - all.begin() > 1 ? length : 0;
  }

  // What stands for a character in code, \n \" \u00e9; a share, \\host\a.
  size_t backslash(size_t i) const {
    if (get(i + 1) == '\\' && is_name(get(i + 2))) {
      size_t k = i + 2;
      while (k < i + kLongestKept &&
             (is_name(get(k)) || (get(k) != 0 && is_one_of(get(k), "\\.$-"))))
        ++k;
      while (is_one_of(text_[k - 1], ".-")) --k;
      return k - i;
    }
    const auto hex = [&](size_t digits) {
      for (size_t k = i + 2; k < i + 2 + digits; ++k)
        if (!is_hex(get(k))) return size_t{0};
      return digits + 2;
    };
    if (get(i + 1) == 'u') return hex(4);
    if (get(i + 1) == 'x') return hex(2);
    return get(i + 1) != 0 && is_one_of(get(i + 1), "nrt0123456789\"'\\") ? 2 : 0;
  }

  size_t underscores(size_t i) const {  // __NAME__
    size_t k = i;
    while (is_name(get(k)) && k < i + kLongestName) ++k;
    const std::string_view name = text_.substr(i, k - i);
    return !is_name(get(k)) && name.size() > 4 && name.starts_with("__") && name.ends_with("__")
               ? k - i
               : 0;
  }

  // Of the internet: 192.168.0.1:80, 10.0.0.0/8, 2001:db8::1.
  size_t numeric_host(size_t i) const {
    size_t k = i, colons = 0, stops = 0;
    while (k < i + 64 && (is_hex(get(k)) || get(k) == ':' || get(k) == '.')) {
      colons += get(k) == ':', stops += get(k) == '.';
      ++k;
    }
    const std::string_view all = text_.substr(i, k - i);
    if (is_name(get(k))) return 0;
    if (stops == 0 && colons >= 2) {  // an hour has two, and digits alone
      const bool shortened = all.find("::") != std::string_view::npos;
      return (shortened || colons == 7) && !all.ends_with(':') ? k - i : 0;
    }
    k = i;
    for (int group = 0; group < 4; ++group) {
      const size_t from = k;
      while (is_digit(get(k)) && k < from + 4) ++k;
      if (k == from || k > from + 3 || (group < 3 && get(k++) != '.')) return 0;
    }
    if (get(k) == '.' && is_digit(get(k + 1))) return 0;
    if ((get(k) == ':' || get(k) == '/') && is_digit(get(k + 1)))
      for (++k; is_digit(get(k));) ++k;
    return is_name(get(k)) ? 0 : k - i;
  }

  // v1.2, 1.2.3-rc.1+build.5
  size_t version_at(size_t i) const {
    const std::string_view all = text_.substr(i, kLongestName);
    const size_t first = all.starts_with('v');
    size_t k = first, stops = 0;
    for (; k < all.size() && (is_digit(all[k]) || all[k] == '.'); ++k) stops += all[k] == '.';
    for (; k > first && all[k - 1] == '.'; --k) --stops;
    if (k == first || all[first] == '.' || all.find("..") < k) return 0;
    size_t end = k;
    while (end < all.size() && (is_name(all[end]) || is_one_of(all[end], "+-."))) ++end;
    while (end > k && !is_name(all[end - 1])) --end;
    const bool tagged = end > k + 1 && is_one_of(all[k], "+-") && is_alpha(all[k + 1]);
    if (end > k && !tagged) return 0;
    return (first == 1 && stops > 0) || (tagged && stops > 1) ? end : 0;
  }

  // Of books, telephones, accounts: 978-3-16-148410-0. A date has fewer digits.
  size_t number_of_groups(size_t i) const {
    size_t k = i, digits = 0, groups = 1;
    for (; k < i + kLongestName; ++k) {
      if (is_digit(get(k)))
        ++digits;
      else if (get(k) == '-' && is_digit(get(k + 1)) && k > i)
        ++groups;
      else
        break;
    }
    return digits > 8 && groups > 2 && !is_name(get(k)) ? k - i : 0;
  }

  // A name of a program's: file_name, doIt().
  size_t identifier(size_t i) const {
    size_t k = i;
    while (is_name(get(k)) && k < i + kLongestName) ++k;
    if (starts(k, "()")) return k + 2 - i;
    const std::string_view name = text_.substr(i, k - i);
    const bool joined = name.size() > 2 && name.find('_', 1) != std::string_view::npos;
    return joined && name.back() != '_' && !(k < text_.size() && is_beyond_ascii(text_[k])) ? k - i
                                                                                            : 0;
  }

  size_t entity(size_t i) const {
    if (starts(i, "&lt;")) {  // a tag that was escaped: &lt;b&gt;
      const std::string_view all = line(i).substr(4, 200);
      const size_t end = all.find("&gt;"), name = all.starts_with('/');
      if (end < all.size() && end > name && is_alpha(all[name]) &&
          all.substr(0, end).find_first_of("<>") == std::string_view::npos &&
          all.substr(0, end).find("&lt;") == std::string_view::npos)
        return 4 + end + 4;
    }
    size_t k = i + 1 + (get(i + 1) == '#');
    const size_t name = k;
    while (is_name(get(k)) && k - name < 32) ++k;
    return k > name + 1 && get(k) == ';' ? k + 1 - i : 0;
  }

  size_t code(size_t i) const {  // `a`, ``a ` b``
    const std::string_view all = line(i);
    const size_t ticks = std::min(all.substr(0, 10).find_first_not_of('`'), all.size());
    if (ticks > 9) return 0;
    for (size_t k = ticks; k < all.size();) {
      const size_t run = std::min(all.find_first_not_of('`', k), all.size()) - k;
      if (run == ticks) return k + run;
      k += std::max<size_t>(run, 1);
    }
    return 0;
  }

  size_t colons(size_t i) const {  // :smile:, Laravel's :name, ::1
    if (const size_t host = starts(i, "::") ? numeric_host(i) : 0) return host;
    size_t k = i + 1;
    while (is_name(get(k)) || get(k) == '+' || get(k) == '-') ++k;
    if (k < i + 3 || !is_alpha(get(i + 1))) return 0;
    if (get(k) == ':') return k + 1 - i;
    const bool apart = i == 0 || is_space(text_[i - 1]) || is_one_of(text_[i - 1], "(\"");
    while (is_one_of(text_[k - 1], "+-")) --k;
    return apart && k > i + 2 ? k - i : 0;
  }

  size_t tagged(size_t i) const {  // @name, #name
    size_t k = i + 1;
    while (is_name(get(k)) || is_beyond_ascii(get(k))) ++k;
    return k > i + 2 && !is_digit(get(i + 1)) ? k - i : 0;
  }

  // Up to white space or what no address has, less the punctuation of the sentence around it.
  size_t until_space(size_t i) const {
    size_t k = i;
    while (k < text_.size() && k < i + kLongestKept && !is_space(text_[k]) &&
           !is_one_of(text_[k], "<>\"{}|\\^`") && !is_beyond_ascii(text_[k]))
      ++k;
    const auto count = [&](char c) {
      return std::count(text_.begin() + static_cast<ptrdiff_t>(i),
                        text_.begin() + static_cast<ptrdiff_t>(k), c);
    };
    // Brackets that close more than was opened are the sentence's.
    std::ptrdiff_t round = count(')') - count('('), square = count(']') - count('[');
    for (; k > i; --k) {
      const char last = text_[k - 1];
      if (last == ')' && round > 0)
        --round;
      else if (last == ']' && square > 0)
        --square;
      else if (!is_one_of(last, ".,;:!?'"))
        break;
    }
    return k - i;
  }

  size_t web(size_t i) const {
    size_t k = i;
    while (k < i + kLongestName && (is_name(get(k)) || is_one_of(get(k), "+.-"))) {
      if (get(k) == 0) break;
      ++k;
    }
    if (k > i + 1 && starts(k, "://") && is_alpha(get(i))) {
      const size_t length = until_space(i);
      return length > k + 3 - i ? length : 0;
    }
    if (starts(i, "mailto:")) return until_space(i);
    if (starts(i, "www.") && is_name(get(i + 4))) return until_space(i);
    // A name of a domain: labels, the last a known one.
    size_t end = k;
    while (end > i && is_one_of(text_[end - 1], "+.-")) --end;
    const std::string_view host = text_.substr(i, end - i);
    const size_t dot = host.rfind('.');
    if (dot == std::string_view::npos || dot == 0 || host.find("..") != std::string_view::npos)
      return 0;
    const std::string_view last = host.substr(dot + 1);
    if (std::find(std::begin(kFiles), std::end(kFiles), last) != std::end(kFiles)) return end - i;
    if (std::find(kDomains.begin(), kDomains.end(), last) == kDomains.end()) return 0;
    // "end.in" may be two words that lost a space; a short domain wants a path or a label more.
    const bool sure = last.size() > 2 || host.find('.') != dot || get(end) == '/';
    if (!sure && !is_one_of(last[0], "de")) return 0;
    return get(end) == '/' || get(end) == ':' || get(end) == '?' ? until_space(i) : end - i;
  }

  size_t address(size_t i) const {
    size_t k = i;
    const auto in_mailbox = [&](size_t at) {
      // "john.o'neil", but "d'info": what is elided is short and has no other name before it.
      if (get(at) == '\'') return at > i + 2 || get(i) == 'o' || get(i) == 'O';
      return is_name(get(at)) || (get(at) != 0 && is_one_of(get(at), ".+-"));
    };
    while (k < i + kLongestName && in_mailbox(k)) ++k;
    if (k == i || get(k) != '@') return 0;
    size_t end = k + 1;
    while (is_name(get(end)) || (get(end) != 0 && is_one_of(get(end), ".-"))) ++end;
    while (end > k && is_one_of(text_[end - 1], ".-")) --end;
    const std::string_view host = text_.substr(k + 1, end > k ? end - k - 1 : 0);
    return host.find('.') != std::string_view::npos ? end - i : 0;
  }

  size_t path(size_t i) const {  // /usr/bin, ./a, ~/a, ../a
    if (starts(i, "//") || (i > 0 && is_one_of(text_[i - 1], "./"))) return 0;
    if (text_[i] != '/' && !starts(i, "./") && !starts(i, "../") && !starts(i, "~/")) return 0;
    const size_t length = until_space(i);
    const std::string_view all = text_.substr(i, length);
    const bool deep = std::count(all.begin(), all.end(), '/') > (text_[i] == '/');
    const bool named = std::any_of(all.begin(), all.end(), is_name);
    return deep && named ? length : 0;
  }

  size_t drive(size_t i) const {  // C:\folder
    if (!is_alpha(get(i)) || get(i + 1) != ':' || get(i + 2) != '\\') return 0;
    size_t k = i + 3;
    while (k < text_.size() && !is_space(text_[k]) && !is_one_of(text_[k], "<>\"|?*,;")) ++k;
    while (k > i + 3 && is_one_of(text_[k - 1], ".)!")) --k;
    return k - i;
  }

  std::string_view text_;
};

}  // namespace

std::vector<KeptSpan> find_kept(std::string_view text) {
  std::vector<KeptSpan> out;
  const Reader reader(text);
  for (size_t i = 0; i < text.size();) {
    if (const size_t face = reader.face(i)) {
      out.push_back({{i, i + face}, true});
      i += face;
      continue;
    }
    if (!is_beyond_ascii(text[i]) && !is_digit(text[i]) && text[i] != '#' && text[i] != '*') {
      const size_t length = reader.at(i);
      if (length > 0) out.push_back({{i, i + length}, false});
      i += std::max<size_t>(length, 1);
      continue;
    }
    // An emoji is a few code points; the longest known have fewer than 20.
    constexpr size_t kLongest = 80;
    size_t to = std::min(text.size(), i + kLongest);
    while (to < text.size() && (static_cast<unsigned char>(text[to]) & 0xC0) == 0x80) --to;
    size_t length = 0;
    if (const bool may_be = !is_digit(text[i]) || to > i + 3; may_be) {
      const size_t ascii =
          static_cast<size_t>(std::find_if(text.begin() + static_cast<ptrdiff_t>(i + 1),
                                           text.begin() + static_cast<ptrdiff_t>(to),
                                           [](char c) { return !is_beyond_ascii(c); }) -
                              text.begin());
      const std::u32string points = decode_utf8(text.substr(i, ascii - i));
      if (const size_t count = emoji_at(points, 0))
        length = encode_utf8(std::u32string_view(points).substr(0, count)).size();
    }
    if (length > 0) {
      if (!out.empty() && out.back().emoji && out.back().span.end == i)
        out.back().span.end += length;
      else
        out.push_back({{i, i + length}, true});
      i += length;
    } else if (is_beyond_ascii(text[i])) {
      i += std::max<size_t>(character_bytes(text.substr(i)), 1);
    } else {
      const size_t ours = reader.at(i);
      if (ours > 0) out.push_back({{i, i + ours}, false});
      i += std::max<size_t>(ours, 1);
    }
  }
  return out;
}

}  // namespace heed
