#include "heed/text/sentences.h"

#include <algorithm>
#include <string>

#include "heed/base/unicode.h"
#include "heed/text/abbreviations.h"
#include "heed/text/characters.h"
#include "heed/text/signs.h"

namespace heed {
namespace {

bool is_line_break(char32_t c) {
  return c == '\n' || c == '\r' || c == 0x0B || c == 0x0C || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}
bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
bool is_dash(char32_t c) { return c == '-' || c == 0x2013 || c == 0x2014 || c == 0x2015; }
bool is_opening_mark(char32_t c) { return c == U'¿' || c == U'¡'; }
// The blocks of Unicode that have the emoticons and most other faces.
bool is_face(char32_t c) {
  return (c >= 0x1F600 && c <= 0x1F64F) || (c >= 0x1F910 && c <= 0x1F92F);
}
// Of a script without capitals: Arabic, Hebrew, Devanagari.
bool is_caseless(char32_t c) {
  return is_letter(c) && !is_upper(c) && !is_lower(c) && !is_written_unspaced(c);
}
bool is_superscript(char32_t c) {
  return c == U'¹' || c == U'²' || c == U'³' || c == 0x2070 || (c >= 0x2074 && c <= 0x2079);
}
// Those that stand before something only. “ closes in German.
bool opens_only(char32_t c) {
  return std::u32string_view(U"([{‚„「『（《〈【〔［｛").find(c) != std::u32string_view::npos;
}

// One line of a text, from left to right.
class Line {
 public:
  Line(std::u32string_view text, const Abbreviations& words) : text_(text), words_(words) {}

  // Where sentences end, ascending; white space follows. The last is the end of the line.
  std::vector<size_t> ends() {
    std::vector<size_t> out;
    for (size_t at = 0; at < text_.size();) {
      note_quote(at);
      if (const size_t close = faces_end(at); close > at) {
        if (face_breaks(at, close)) end_at(close, out);
        at = close;
        continue;
      }
      if (!is_full_stop(text_[at]) && !is_strong(text_[at])) {
        at = std::max(at + 1, title_end(text_, at));
        continue;
      }
      const Mark mark = read_mark(at);
      if (mark.close < text_.size() && breaks_after(mark)) end_at(mark.close, out);
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

  void end_at(size_t close, std::vector<size_t>& out) {
    out.push_back(close);
    begin_ = skip_spaces(close);
    open_quotes_ = 0;
    in_quotes_ = false;
  }

  // The end of a row of emoji that begins at i, the first of which is a face; else i.
  size_t faces_end(size_t i) const {
    if (!is_face(text_[i])) return i;
    size_t end = i;
    while (const size_t length = emoji_at(text_, skip_spaces(end))) end = skip_spaces(end) + length;
    return end;
  }
  // A face stands for a full stop: "Thanks a lot 😊 See you soon".
  bool face_breaks(size_t i, size_t close) const {
    const size_t next = skip_spaces(close);
    return i > begin_ && next > close && (is_upper(at(next)) || is_opening_mark(at(next)));
  }

  bool is_strong(char32_t c) const {
    return ends_sentence(c) || (c == ';' && words_.asks_with_semicolon());
  }
  char32_t at(size_t i) const { return i < text_.size() ? text_[i] : U'\0'; }
  size_t skip_spaces(size_t i) const {
    while (i < text_.size() && is_white_space(text_[i])) ++i;
    return i;
  }

  void note_quote(size_t i) {
    if (text_[i] == U'«') ++open_quotes_;
    if (text_[i] == U'»') --open_quotes_;  // below 0: German has them the other way round
    if (text_[i] == '"') in_quotes_ = !in_quotes_;
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
      else if (is_strong(c))
        m.strong = true, m.unspaced = m.unspaced || is_written_unspaced(c);
      else if (!joins_before(c))
        break;
    }
    if (stops == 1 && !m.strong) {  // ". . ."
      size_t end = m.end;
      while (is_white_space(at(end)) && is_full_stop(at(end + 1))) end += 2, ++stops;
      if (stops > 2) m.end = end;
    }
    m.dots = m.dots || stops > 1;
    m.close = m.end;
    while (may_close(at(m.close)) || reference_at(m.close, m) > 0) {
      // A bracket opens something, unless it is a reference: "known.[1]".
      const size_t reference = reference_at(m.close, m);
      if (reference == 0 && (opens_only(at(m.close)) || opens_next(m.close, m))) break;
      m.closed = m.closed || reference == 0;
      for (size_t k = 0; k < std::max<size_t>(reference, 1); ++k) note_quote(m.close + k);
      m.close += std::max<size_t>(reference, 1);
    }
    // French sets quotes off: « Oui ! » So does text that was cut into tokens: " Yes ! "
    while (const size_t length = set_off_close(m.close)) {
      note_quote(m.close + length - 1);
      m.closed = true;
      m.close += length;
    }
    // Marks of ASCII, too, between letters of scripts without spaces; "(laughs)" after them.
    m.unspaced = m.unspaced || (!m.dots && i > begin_ && is_written_unspaced(text_[i - 1]) &&
                                is_written_unspaced(at(m.close)));
    if (m.unspaced) m.close += aside_at(text_, m.close);
    // An emoji after the mark is its author's face, not the next sentence's.
    for (size_t next = skip_spaces(m.close);;) {
      const size_t length =
          std::max(emoji_at(text_, next), next > m.close ? face_at(text_, next) : 0);
      if (length == 0) break;
      m.close = next + length;
      next = skip_spaces(m.close);
    }
    const bool spaced_before = i > begin_ && is_white_space(text_[i - 1]);
    m.set_off = spaced_before && !m.closed && m.end < text_.size() && is_white_space(text_[m.end]);
    return m;
  }

  // Whether “ at i begins something: it stands after another that closes, 。”“, or after 。
  bool opens_next(size_t i, const Mark& m) const {
    if (at(i) != U'“' && at(i) != U'‘') return false;
    return m.unspaced || at(i - 1) == U'”' || at(i - 1) == U'’';
  }

  // The length of spaces and a closing quote or bracket that stands by itself; 0 if there is none.
  size_t set_off_close(size_t i) const {
    const size_t next = skip_spaces(i);
    if (next == i) return 0;
    if (at(next) == U'»' && open_quotes_ > 0) return next + 1 - i;
    const size_t size = at(next) == '\'' && at(next + 1) == '\'' ? 2 : 1;
    if (next + size < text_.size() && !is_white_space(at(next + size))) return 0;
    const bool closes = size == 2 || at(next) == ')' || at(next) == ']' || at(next) == U'”' ||
                        at(next) == U'»' || (at(next) == '"' && in_quotes_);
    return closes ? next + size - i : 0;
  }

  // The length of a reference at i, "[12]", ² or a footnote's number, "known.12 It"; 0 if there is
  // none.
  size_t reference_at(size_t i, const Mark& m) const {
    size_t end = i;
    while (is_superscript(at(end))) ++end;
    if (end > i) return end - i;
    const bool bracket = at(i) == '[';
    end = i + bracket;
    while (is_digit(at(end))) ++end;
    const size_t digits = end - i - bracket;
    if (bracket) return digits > 0 && digits < 4 && at(end) == ']' ? end + 1 - i : 0;
    if (digits == 0 || digits > 2 || i != m.end || !is_white_space(at(end))) return 0;
    const std::u32string_view word =
        text_.substr(word_begin(m.begin), m.begin - word_begin(m.begin));
    const bool plain = word.size() > 2 && std::all_of(word.begin(), word.end(), is_lower);
    return plain && kind(word) == Abbreviation::none ? digits : 0;
  }

  bool breaks_after(const Mark& m) const {
    const size_t next = skip_spaces(m.close);
    if (next == text_.size()) return false;                    // the end of the line
    if (m.begin == begin_ && !m.strong) return false;          // "... and": nothing is before it
    if (omission_end(text_, begin_) == m.close) return false;  // "(...) And"
    if (is_stray_stop(m, next)) return true;
    const bool spaced = next > m.close;
    if (!spaced) return m.unspaced && !goes_on(at(next)) && unspaced_breaks(m, next);
    if (goes_on(at(next)) && !is_dash(at(next)) && !is_low_quote(text_, next)) return false;
    if (is_dash(at(next))) {  // dialogue: "No lo sé. —Yo tampoco."
      size_t after = next;
      while (is_dash(at(after))) ++after;
      after = skip_opening(text_, skip_spaces(after));
      if (is_opening_mark(at(after))) return true;
      const char32_t first = at(after);
      return (is_upper(first) || is_caseless(first) || is_digit(first)) &&
             (m.strong || m.dots || m.set_off || full_stop_breaks(m, after));
    }
    if (m.strong) return strong_breaks(m, next);
    if (m.set_off && !m.dots && !is_full_stop(at(next))) return true;
    if (!may_begin(next)) return small_letter_breaks(m, next);
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
    if (may_begin(next))
      return (!names_itself(m) || begins_sentence(next)) && !(m.closed && is_reported(next));
    if (!is_lower(at(next))) return !may_close(at(next));
    if (m.closed || names_itself(m)) return false;
    // Where sentences begin with capitals a small letter goes on: "Help! was their fifth album."
    return !begins_with_capital(m.begin) || asks_again(m, next);
  }

  // "Who came? when did they leave?"
  bool asks_again(const Mark& m, size_t next) const {
    const auto is_question = [&](size_t i) { return i < text_.size() && text_[i] == U'?'; };
    size_t end = next;
    while (end < text_.size() && !is_full_stop(text_[end]) && !is_strong(text_[end])) ++end;
    return is_question(m.begin) && is_question(end) && begins_sentence(next);
  }

  // Before a small letter, after a word: an abbreviation that is not known is short, and text
  // without capitals begins without one: "i am going. call me."
  bool small_letter_breaks(const Mark& m, size_t next) const {
    const size_t begin = word_begin(m.begin);
    const std::u32string_view word = text_.substr(begin, m.begin - begin);
    const bool sure = !begins_with_capital(m.begin);
    return !m.dots && !m.closed && is_lower(at(next)) && word.size() >= (sure ? 2 : 5) &&
           std::all_of(word.begin(), word.end(),
                       [](char32_t c) { return is_lower(c) || c == '-'; }) &&
           kind(word) == Abbreviation::none;
  }

  // The sentence up to `end`.
  bool begins_with_capital(size_t end) const {
    letter_ = std::max(letter_, begin_);
    while (letter_ < text_.size() && !is_letter(text_[letter_])) ++letter_;
    // English writes "I" so everywhere: another capital says it.
    size_t capital = letter_;
    if (at(letter_) == 'I' && is_white_space(at(letter_ + 1)))
      for (++capital; capital < letter_ + 100 && capital < end && !is_upper(at(capital));)
        ++capital;
    return capital < end && is_upper(at(capital));
  }

  // After a quotation: whether the next words say whose it was: "Stop!" John Smith said.
  bool is_reported(size_t next) const {
    if (!is_letter(at(next)) || begins_sentence(next)) return false;
    for (int words = 0; words < 4; ++words) {
      const std::u32string_view word = word_after(next);
      if (word.empty()) return false;
      // Where there are capitals a verb that comes first has none.
      if ((words > 0 || !is_upper(word[0])) && words_.reports(encode_utf8(word))) return true;
      next += word.size() + (at(next + word.size()) == '.');
      if (!is_white_space(at(next))) return false;
      next = skip_spaces(next);
    }
    return false;
  }

  // Where no spaces are: 「行く。」と言った, “去吗？”他问。
  bool unspaced_breaks(const Mark& m, size_t next) const {
    if (may_open(at(next))) return true;
    if (!m.closed) return !is_particle(text_, next);
    static constexpr std::u32string_view kParticles = U"とっなをがに的等之";
    if (kParticles.find(at(next)) != std::u32string_view::npos) return false;
    // Who spoke was said before it: 他说：“…”
    const size_t open = quotation_begin(text_, begin_, m.close);
    const char32_t before = open > begin_ ? text_[open - 1] : U'\0';
    if (before == U'：' || before == ':' || before == U'，' || before == ',' || says(before))
      return true;
    for (size_t i = next; i < next + 8 && is_letter(at(i)); ++i)
      if (says(at(i))) return false;
    return true;
  }
  static bool says(char32_t c) {
    return std::u32string_view(U"说說问問道喊答叫想讲講").find(c) != std::u32string_view::npos;
  }

  // Whether a sentence can begin there: with a capital, a number, a letter without case, or a quote
  // or bracket before them.
  bool may_begin(size_t i) const {
    if (const size_t after = omission_end(text_, i); after > i) i = skip_spaces(after);
    if (at(i) == '(' && is_list_item(i + 1)) return true;
    size_t k = skip_opening(text_, i);
    while (k > i && (may_open(at(k)) || is_white_space(at(k)))) ++k;
    const char32_t c = at(k);
    if (c == 0) return k > i;
    if (is_lower(c)) {
      if (k == i) return is_upper(at(k + 1)) || is_list_item(k);   // iPad
      const bool elided = at(k - 1) == '\'' || at(k - 1) == U'’';  // 's Morgens
      return elided && is_white_space(at(k + 1)) && is_upper(at(k + 2));
    }
    if ((c == U'•' || c == U'‣' || c == '*') && is_white_space(at(k + 1))) return true;
    return is_upper(c) || is_digit(c) || is_letter(c) || is_opening_mark(c) || is_number(c) ||
           is_symbol(c) || (k > i && at(i) != '(' && at(i) != '[') || is_placeholder(c);
  }
  // "b) Second", "ii. Second"; "b. Second" where the sentence begins with "a. ".
  bool is_list_item(size_t i) const {
    size_t end = i;
    while (is_lower(at(end))) ++end;
    const std::u32string_view word = text_.substr(i, end - i);
    const bool next_letter = word.size() == 1 && at(begin_) + 1 == word[0] &&
                             is_full_stop(at(begin_ + 1)) && is_white_space(at(begin_ + 2));
    const bool marked =
        at(end) == ')' || (is_full_stop(at(end)) && (word.size() > 1 || next_letter));
    return is_list_letter(word) && marked && is_white_space(at(end + 1)) &&
           is_upper(at(skip_spaces(end + 1)));
  }
  static bool is_placeholder(char32_t c) { return c == '%' || c == '{' || c == '#' || c == '@'; }

  // The word that begins at i, after quotes; and the one that ends before i, with stops inside.
  std::u32string_view word_after(size_t i) const {
    i = std::min(skip_opening(text_, i), text_.size());
    size_t end = i;
    while (end < text_.size() && (is_letter(text_[end]) || joins_before(text_[end]))) ++end;
    return text_.substr(i, end - i);
  }
  size_t word_begin(size_t end) const {
    size_t i = end;
    while (i > begin_ && !is_white_space(text_[i - 1]) && !is_written_unspaced(text_[i - 1])) --i;
    while (i < end && may_close(text_[i])) ++i;
    return i;
  }
  // The word before the one at `begin`, with what stands around it.
  std::u32string_view word_before(size_t begin) const {
    size_t end = begin;
    while (end > begin_ && !is_white_space(text_[end - 1])) --end;  // quotes before the word
    while (end > begin_ && is_white_space(text_[end - 1])) --end;
    const size_t first = word_begin(end);
    return text_.substr(first, end - first);
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

  // Whether the token before the word at `begin` is a letter with a stop: "z. B.", "a. m.".
  bool after_lettered(size_t begin) const {
    size_t end = begin;
    while (end > begin_ && is_white_space(text_[end - 1])) --end;
    if (end == begin || end < begin_ + 2 || !is_full_stop(text_[end - 1])) return false;
    const std::u32string_view word =
        text_.substr(word_begin(end - 1), end - 1 - word_begin(end - 1));
    return (word.size() == 1 || word.size() == 2) &&
           std::all_of(word.begin(), word.end(), is_letter);
  }
  // Whether a letter with a stop follows.
  bool before_lettered(size_t next) const {
    return is_letter(at(next)) && is_full_stop(at(next + 1));
  }

  bool is_number_word(std::u32string_view word) const {
    return !word.empty() && std::all_of(word.begin(), word.end(),
                                        [](char32_t c) { return is_digit(c) || c == '.'; });
  }

  // The letters of "z. B", "a. m", "EE. UU" that end before `end`, joined: "z.b".
  Abbreviation joined_kind(size_t begin, size_t end) const {
    std::string joined = encode_utf8(text_.substr(begin, end - begin));
    Abbreviation found = Abbreviation::none;
    for (int parts = 1; parts < 4; ++parts) {
      const std::u32string_view before = word_before(begin);
      if (before.size() < 2 || before.size() > 4 || !is_full_stop(before.back())) break;
      begin = static_cast<size_t>(before.data() - text_.data());
      joined = encode_utf8(before) + joined;
      if (const auto known = words_.kind(joined); known != Abbreviation::none) found = known;
    }
    return found;
  }
  // Whether word and the one after it are an abbreviation: "i. Br.", "JJ. OO."
  bool joins_next(std::u32string_view word, size_t next) const {
    const std::u32string_view after = word_after(next);
    if (word.size() > 3 || after.empty() || after.size() > 3 ||
        !is_full_stop(at(next + after.size())))
      return false;
    const auto doubled = [](std::u32string_view w) {
      return w.size() == 2 && w[0] == w[1] && is_upper(w[0]);
    };
    return (doubled(word) && doubled(after)) ||
           words_.kind(encode_utf8(word) + "." + encode_utf8(after)) != Abbreviation::none;
  }

  // "5. 3. 1950": whether the number at next goes on with a date.
  bool goes_on_as_date(std::u32string_view word, size_t begin, size_t next) const {
    size_t end = next;
    while (is_digit(at(end))) ++end;
    const auto is_ordinal = [](std::u32string_view w) {
      return w.size() > 1 && w.size() < 4 && is_digit(w[0]) && is_full_stop(w.back());
    };
    if (word.size() > 2) return false;
    return end - next < 3 ? is_full_stop(at(end)) : is_ordinal(word_before(begin));
  }

  // "Am 3. Oktober", "das 2. Kapitel", but "in Kapitel 5. Dort".
  bool is_ordinal(size_t begin, size_t next) const {
    if (words_.follows_ordinal(encode_utf8(word_after(next)))) return true;
    const std::u32string_view before = word_before(begin);
    return before.empty() || is_lower(before[0]) || before.back() == ',' ||
           words_.begins_sentence(encode_utf8(before));
  }

  // "plan B", "strands B and C": no initial.
  bool is_labelled(size_t begin) const {
    const std::u32string_view before = word_before(begin);
    if (words_.is_label(encode_utf8(before))) return true;
    if (before.empty() || before.size() > 4 || !is_lower(before[0])) return false;
    const std::u32string_view first =
        word_before(static_cast<size_t>(before.data() - text_.data()));
    return first.size() == 1 && is_upper(first[0]);
  }

  // "at 5 p.m. The", but "at 5 p.m. Eastern time"; "At 5 p.m. Mr Smith" has only begun.
  bool hour_ends(size_t next) const {
    if (begins_sentence(next)) return true;
    const auto sentence = text_.substr(begin_, next - begin_);
    return is_upper(at(next)) && !words_.follows_hour(encode_utf8(word_after(next))) &&
           std::count_if(sentence.begin(), sentence.end(), is_white_space) > 3;
  }

  // After one full stop, where a sentence could begin.
  bool full_stop_breaks(const Mark& m, size_t next) const {
    const size_t begin = word_begin(m.begin);
    std::u32string_view word = text_.substr(begin, m.begin - begin);
    if (word.empty()) return true;
    if (const size_t mark = word.find_first_of(U"'’"); mark < word.size() && is_upper(word.back()))
      word.remove_prefix(mark + 1);  // "L'A.C. Milan"
    if (word.empty()) return true;
    const size_t number = next + (at(next) == '(');  // "eq. (3)"
    const bool number_next = is_digit(at(number)) || is_roman(word_after(next));
    if (is_digit(at(next)) && numbers_what_follows(word, begin, next)) return false;
    if (is_number_word(word)) {
      if (begin == begin_) return false;                        // "1. Open the door."
      const size_t digits = word.size() - word.rfind('.') - 1;  // npos + 1 is 0
      if (!words_.has_ordinals() || digits > 3) return true;
      if (is_digit(at(next))) return !goes_on_as_date(word, begin, next);
      if (word.find('.') < word.size()) return true;  // "am 12.5."
      return begins_sentence(next) || m.closed || !is_ordinal(begin, next);
    }
    if (m.closed && is_reported(next)) return false;
    if (begin == begin_ && is_list_letter(word) && !m.closed) return false;  // "B. Methods"
    if (joins_next(word, next)) return false;
    const std::u32string_view before = word_before(begin);
    if (words_.is_unit(encode_utf8(word)) && !before.empty() &&
        (is_digit(before.back()) || is_roman(before)))
      return !is_digit(at(next));
    Abbreviation found = joined_kind(begin, m.begin);
    if (found == Abbreviation::none) {
      if (word.size() == 1 && is_letter(word[0]) && !m.closed) {
        // "I" is a word of its own in English, and so may be others before a word that begins.
        if (is_upper(word[0]))
          return !before_lettered(next) && (begins_sentence(next) || is_labelled(begin));
        if (before_lettered(next)) return false;
        if (after_lettered(begin)) return begins_sentence(next);
        if (is_caseless(word[0])) return false;  // an initial
      }
      if (words_.has_ordinals() && is_roman(word)) return begins_sentence(next);
      if (is_lettered(word) && words_.kind(encode_utf8(word)) == Abbreviation::none)
        return begins_sentence(next);
      found = kind(word);
    }
    switch (found) {
      case Abbreviation::always: return false;
      case Abbreviation::before_number: return !number_next && !before_lettered(next);
      case Abbreviation::maybe:
        return m.closed || (is_hour(word, begin) ? hour_ends(next) : begins_sentence(next));
      case Abbreviation::before_small: return begin > begin_;  // "J.-C. Dupont"
      case Abbreviation::none: break;
    }
    if (word.size() <= 2 && is_letter(word.back()) && after_lettered(begin))
      return begins_sentence(next);
    return true;
  }

  // A short word before a number is an abbreviation in any language if it is a small letter, "l.
  // 633", alone with it in brackets, "(pop. 256,000)", a month's between day and year, or if a
  // comma is before it and nothing comes with the number: "555-0100, ext. 7."
  bool numbers_what_follows(std::u32string_view word, size_t begin, size_t next) const {
    if (word.size() > 4 || !std::all_of(word.begin(), word.end(), is_lower)) return false;
    if (word.size() == 1 || (begin > begin_ && text_[begin - 1] == '(')) return true;
    const std::u32string_view before = word_before(begin);
    size_t end = next;
    while (is_digit(at(end))) ++end;
    if (before.empty()) return false;
    if (before.size() < 3 && is_number_word(before) && end - next == 4) return true;
    return before.back() == ',' &&
           (end == text_.size() || is_full_stop(at(end)) || goes_on(at(end)));
  }

  // "5 p.m", "5 p. m", but "Frankfurt a. M."
  bool is_hour(std::u32string_view word, size_t begin) const {
    const std::u32string low = lower_case(word);
    const bool apart = low == U"m" && word_before(begin).size() == 2;
    if (apart) begin = static_cast<size_t>(word_before(begin).data() - text_.data());
    const std::u32string_view hour = word_before(begin);
    return (apart || low == U"a.m" || low == U"p.m") && !hour.empty() && is_digit(hour.back());
  }

  // Of the word, or of its last part: "Dipl.-Ing", "l'art", "Goethestr".
  Abbreviation kind(std::u32string_view word) const {
    const auto known = words_.kind(encode_utf8(word));
    if (known != Abbreviation::none) return known;
    const size_t part = word.find_last_of(U".-'’(");
    if (part != std::u32string_view::npos && part + 2 < word.size() && word[part] != '.')
      return words_.kind(encode_utf8(word.substr(part + 1)));
    if (word.size() > 1 && word[0] == U'و') return words_.kind(encode_utf8(word.substr(1)));  // and
    if (words_.has_ordinals() && word.size() > 4 && word.ends_with(U"str"))
      return Abbreviation::before_number;
    return Abbreviation::none;
  }

  std::u32string_view text_;
  const Abbreviations& words_;
  size_t begin_ = 0;           // of the sentence
  int64_t open_quotes_ = 0;    // « without »
  bool in_quotes_ = false;     // of those that look the same at both ends
  mutable size_t letter_ = 0;  // the first of the sentence is not before it
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
