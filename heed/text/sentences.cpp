#include "heed/text/sentences.h"

#include <algorithm>
#include <string>

#include "heed/base/unicode.h"
#include "heed/text/abbreviations.h"
#include "heed/text/characters.h"

namespace heed {
namespace {

bool is_line_break(char32_t c) {
  return c == '\n' || c == '\r' || c == 0x0B || c == 0x0C || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_dash(char32_t c) { return c == '-' || c == 0x2013 || c == 0x2014 || c == 0x2015; }
bool is_opening_mark(char32_t c) { return c == U'¿' || c == U'¡'; }
// Quotes and brackets that can stand before a sentence.
bool may_open(char32_t c) { return may_close(c) && c != ')' && c != ']' && c != '}'; }

// One line of a text, from left to right.
class Line {
 public:
  Line(std::u32string_view text, const Abbreviations& words) : text_(text), words_(words) {}

  // Where sentences end, ascending; white space follows. The last is the end of the line.
  std::vector<size_t> ends() {
    std::vector<size_t> out;
    for (size_t at = 0; at < text_.size();) {
      note_quote(at);
      if (!is_full_stop(text_[at]) && !ends_sentence(text_[at])) {
        ++at;
        continue;
      }
      const Mark mark = read_mark(at);
      if (mark.close < text_.size() && breaks_after(mark)) {
        out.push_back(mark.close);
        begin_ = skip_spaces(mark.close);
        open_quotes_ = 0;
      }
      at = std::max(mark.close, at + 1);
    }
    out.push_back(text_.size());
    return out;
  }

 private:
  // Terminators [begin, end), and what belongs to them up to `close`: quotes, brackets, references,
  // emoji.
  struct Mark {
    size_t begin = 0, end = 0, close = 0;
    bool strong = false;    // more than full stops
    bool dots = false;      // an ellipsis
    bool closed = false;    // a quote or a bracket follows at once
    bool set_off = false;   // by spaces, as in text that was cut into tokens
    bool unspaced = false;  // of a script without spaces: 。
  };

  char32_t at(size_t i) const { return i < text_.size() ? text_[i] : U'\0'; }
  size_t skip_spaces(size_t i) const {
    while (i < text_.size() && is_white_space(text_[i])) ++i;
    return i;
  }

  void note_quote(size_t i) {
    if (text_[i] == U'«') ++open_quotes_;
    if (text_[i] == U'»') --open_quotes_;  // below 0: German has them the other way round
  }

  Mark read_mark(size_t i) {
    Mark m{.begin = i, .end = i};
    size_t stops = 0;
    for (; m.end < text_.size(); ++m.end) {
      const char32_t c = text_[m.end];
      if (is_full_stop(c))
        ++stops;
      else if (c == U'…')
        m.dots = true;
      else if (ends_sentence(c))
        m.strong = true, m.unspaced = m.unspaced || is_written_unspaced(c);
      else if (!joins_before(c))
        break;
    }
    m.dots = m.dots || stops > 1;
    m.close = m.end;
    while (may_close(at(m.close)) || is_reference(m.close) > 0) {
      // A bracket opens something, unless it is a reference: "known.[1]".
      const size_t reference = is_reference(m.close);
      if (reference == 0 && (at(m.close) == '(' || at(m.close) == '[' || at(m.close) == '{')) break;
      m.closed = m.closed || reference == 0;
      for (size_t k = 0; k < std::max<size_t>(reference, 1); ++k) note_quote(m.close + k);
      m.close += std::max<size_t>(reference, 1);
    }
    // French sets quotes off: « Oui ! »
    if (const size_t next = skip_spaces(m.close); at(next) == U'»' && open_quotes_ > 0) {
      note_quote(next);
      m.closed = true;
      m.close = next + 1;
    }
    // An emoji after the mark is its author's face, not the next sentence's.
    for (size_t next = skip_spaces(m.close);;) {
      const size_t length = emoji_at(text_, next);
      if (length == 0) break;
      m.close = next + length;
      next = skip_spaces(m.close);
    }
    const bool spaced_before = i > begin_ && is_white_space(text_[i - 1]);
    m.set_off = spaced_before && !m.closed && m.end < text_.size() && is_white_space(text_[m.end]);
    return m;
  }

  // The length of "[12]" at i; 0 if there is none.
  size_t is_reference(size_t i) const {
    if (at(i) != '[') return 0;
    size_t end = i + 1;
    while (is_digit(at(end))) ++end;
    return end > i + 1 && end - i <= 5 && at(end) == ']' ? end + 1 - i : 0;
  }

  bool breaks_after(const Mark& m) const {
    const size_t next = skip_spaces(m.close);
    if (next == text_.size()) return false;            // the end of the line
    if (m.begin == begin_ && !m.strong) return false;  // "... and": nothing is before it
    if (is_stray_stop(m, next)) return true;
    const bool spaced = next > m.close;
    if (!spaced) return m.unspaced && !goes_on(at(next)) && (!m.closed || may_open(at(next)));
    if (goes_on(at(next)) && !is_dash(at(next))) return false;
    if (is_dash(at(next))) {  // dialogue: "No lo sé. —Yo tampoco."
      size_t after = skip_spaces(next + 1);
      while (may_open(at(after))) ++after;
      return is_upper(at(after)) || is_opening_mark(at(after));
    }
    if (m.strong) return strong_breaks(m, next);
    if (m.set_off && !m.dots && !is_full_stop(at(next))) return true;
    if (!may_begin(next)) return false;
    return m.dots || full_stop_breaks(m, next);
  }

  // A full stop by itself that something new begins with: "It is so. . (FR) Mr President". After
  // one that is set off, too, it is an ellipsis: ". . ."
  bool is_stray_stop(const Mark& m, size_t next) const {
    const bool alone = next > m.close && is_full_stop(at(next)) && is_white_space(at(next + 1));
    if (m.set_off || !alone) return false;
    const size_t after = skip_spaces(next + 1);
    return is_upper(at(after)) || at(after) == '(';
  }

  bool strong_breaks(const Mark& m, size_t next) const {
    if (may_begin(next)) return !names_itself(m) || begins_sentence(next);
    if (m.closed || !is_lower(at(next))) return !is_lower(at(next)) && !may_close(at(next));
    return !names_itself(m);
  }

  // Whether a sentence can begin there: with a capital, a number, a letter without case, or a quote
  // or bracket before them.
  bool may_begin(size_t i) const {
    size_t k = i;
    while (may_open(at(k)) || (k > i && is_white_space(at(k)))) ++k;
    const char32_t c = at(k);
    if (c == 0) return k > i;
    if (is_lower(c)) return k == i && is_upper(at(k + 1));  // iPad
    return is_upper(c) || is_digit(c) || is_letter(c) || is_opening_mark(c) || is_number(c) ||
           is_symbol(c) || (k > i && at(i) != '(' && at(i) != '[') || is_placeholder(c);
  }
  static bool is_placeholder(char32_t c) { return c == '%' || c == '{' || c == '#' || c == '@'; }

  // The word that begins at i, after quotes; and the one that ends before i, with stops inside.
  std::u32string_view word_after(size_t i) const {
    while (i < text_.size() && may_open(text_[i])) ++i;
    size_t end = i;
    while (end < text_.size() && (is_letter(text_[end]) || joins_before(text_[end]))) ++end;
    return text_.substr(i, end - i);
  }
  size_t word_begin(size_t end) const {
    size_t i = end;
    while (i > begin_ && !is_white_space(text_[i - 1])) --i;
    while (i < end && may_close(text_[i])) ++i;
    return i;
  }

  bool begins_sentence(size_t i) const {
    return is_opening_mark(at(i)) || words_.begins_sentence(encode_utf8(word_after(i)));
  }

  // "Yahoo!" is a name.
  bool names_itself(const Mark& m) const {
    const std::u32string word =
        lower_case(text_.substr(word_begin(m.begin), m.begin - word_begin(m.begin)));
    return at(m.begin) == '!' && (word == U"yahoo" || word == U"jeopardy" || word == U"joomla");
  }

  // A single letter is more often a word ("I"), an initial or what an apostrophe follows ("C'est").
  static bool is_roman(std::u32string_view word) {
    return (word.size() > 1 || word == U"V" || word == U"X") &&
           std::all_of(word.begin(), word.end(), [](char32_t c) {
             return std::u32string_view(U"IVXLCDM").find(c) != std::u32string_view::npos;
           });
  }

  // Letters with stops between them, few in each part: "U.S", "J.-C", "p.m".
  static bool is_lettered(std::u32string_view word) {
    size_t part = 0, parts = 1;
    for (const char32_t c : word) {
      if (c == '.' || c == '-') {
        if (part == 0 && c == '.') return false;
        parts += c == '.', part = 0;
      } else if (!is_letter(c) || ++part > 2) {
        return false;
      }
    }
    return parts > 1;
  }

  // Whether the token before the word at `begin` is a letter with a stop: "z. B.", "a. m.".
  bool after_lettered(size_t begin) const {
    size_t end = begin;
    while (end > begin_ && is_white_space(text_[end - 1])) --end;
    if (end == begin || end < begin_ + 2 || !is_full_stop(text_[end - 1])) return false;
    const size_t letters = end - 1 - word_begin(end - 1);
    return letters == 1 || letters == 2;
  }
  // Whether a letter with a stop follows.
  bool before_lettered(size_t next) const {
    return is_letter(at(next)) && is_full_stop(at(next + 1));
  }

  bool is_number_word(std::u32string_view word) const {
    return !word.empty() && std::all_of(word.begin(), word.end(),
                                        [](char32_t c) { return is_digit(c) || c == '.'; });
  }

  // After one full stop, where a sentence could begin.
  bool full_stop_breaks(const Mark& m, size_t next) const {
    const size_t begin = word_begin(m.begin);
    const std::u32string_view word = text_.substr(begin, m.begin - begin);
    if (word.empty()) return true;
    const bool number_next = is_digit(at(next)) || is_roman(word_after(next));
    if (is_number_word(word)) {
      if (begin == begin_) return false;                        // "1. Open the door."
      const size_t digits = word.size() - word.rfind('.') - 1;  // npos + 1 is 0
      if (words_.has_ordinals() && digits <= 3 && !is_digit(at(next)))
        return begins_sentence(next) || m.closed;
      return true;
    }
    if (word.size() == 1 && is_letter(word[0]) && !m.closed) {
      // "I" is a word of its own in English, and so may be others before a word that begins.
      if (is_upper(word[0])) return begins_sentence(next) && !before_lettered(next);
      if (before_lettered(next)) return false;
      if (after_lettered(begin)) return begins_sentence(next);
    }
    if (words_.has_ordinals() && is_roman(word)) return begins_sentence(next);
    if (is_lettered(word) && words_.kind(encode_utf8(word)) == Abbreviation::none)
      return begins_sentence(next);
    switch (kind(word)) {
      case Abbreviation::always: return false;
      case Abbreviation::before_number: return !number_next && !before_lettered(next);
      case Abbreviation::maybe: return ends_with_maybe(m, next);
      case Abbreviation::none: break;
    }
    if (word.size() <= 2 && after_lettered(begin)) return begins_sentence(next);
    return true;
  }

  bool ends_with_maybe(const Mark& m, size_t next) const {
    return m.closed || begins_sentence(next);
  }

  // Of the word, or of its last part: "Dipl.-Ing", "l'art", "Goethestr".
  Abbreviation kind(std::u32string_view word) const {
    const auto known = words_.kind(encode_utf8(word));
    if (known != Abbreviation::none) return known;
    const size_t part = word.find_last_of(U".-'’/(");
    if (part != std::u32string_view::npos && part + 1 < word.size() && word[part] != '.')
      return words_.kind(encode_utf8(word.substr(part + 1)));
    if (words_.has_ordinals() && word.size() > 4 && word.ends_with(U"str"))
      return Abbreviation::before_number;
    return Abbreviation::none;
  }

  std::u32string_view text_;
  const Abbreviations& words_;
  size_t begin_ = 0;         // of the sentence
  int64_t open_quotes_ = 0;  // « without »
};

}  // namespace

std::vector<TextSpan> split_sentences(std::string_view text, std::string_view language) {
  const std::u32string all = decode_utf8(text);
  const Abbreviations words(language);
  std::vector<size_t> bytes(all.size() + 1);  // where each code point begins
  for (size_t i = 0, at = 0; i < all.size(); ++i) {
    bytes[i] = at;
    at += all[i] < 0x80 ? 1 : all[i] < 0x800 ? 2 : all[i] < 0x10000 ? 3 : 4;
  }
  bytes[all.size()] = text.size();
  std::vector<TextSpan> out;
  const auto add = [&](size_t begin, size_t end) {
    while (begin < end && is_white_space(all[begin])) ++begin;
    while (end > begin && is_white_space(all[end - 1])) --end;
    if (begin < end) out.push_back({bytes[begin], bytes[end]});
  };
  for (size_t begin = 0; begin < all.size();) {
    const auto end = static_cast<size_t>(
        std::find_if(all.begin() + static_cast<ptrdiff_t>(begin), all.end(), is_line_break) -
        all.begin());
    Line line(std::u32string_view(all).substr(begin, end - begin), words);
    size_t from = begin;
    for (const size_t to : line.ends()) {
      add(from, begin + to);
      from = begin + to;
    }
    begin = end + 1;
  }
  return out;
}

}  // namespace heed
