#include "heed/text/numbers.h"

#include <algorithm>
#include <utility>

#include "heed/base/words.h"

namespace heed {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
}

// "$20", "50%", "30€"
TextSpan with_unit(std::string_view text, TextSpan number) {
  constexpr std::string_view kSigns[] = {"%", "$", "€", "£", "¥", "°", "‰"};
  for (const std::string_view sign : kSigns)
    if (text.substr(0, number.begin).ends_with(sign)) {
      number.begin -= sign.size();
      break;
    }
  for (const std::string_view sign : kSigns)
    if (text.substr(number.end).starts_with(sign)) {
      number.end += sign.size();
      break;
    }
  return number;
}

}  // namespace

std::vector<TextSpan> find_numbers(std::string_view text) {
  std::vector<TextSpan> out;
  const auto inner = [](char c) {
    return std::string_view(".,:/-'").find(c) != std::string_view::npos;
  };
  for (size_t i = 0; i < text.size();) {
    if (!is_name(text[i])) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && (is_name(text[end]) || inner(text[end]))) ++end;
    const size_t next = end;
    while (inner(text[end - 1])) --end;
    const std::string_view word = text.substr(i, end - i);
    if (std::any_of(word.begin(), word.end(), is_digit)) out.push_back({i, end});
    i = next;
  }
  return out;
}

std::string number_digits(std::string_view number) {
  std::string out;
  std::copy_if(number.begin(), number.end(), std::back_inserter(out), is_digit);
  return out;
}

std::string repair_numbers(const AlignedPair& pair) {
  struct Number {
    TextSpan span;
    size_t word;
    std::string digits;
  };
  const auto numbers = [](std::string_view text) {
    std::vector<Number> out;
    for (const TextSpan& span : find_numbers(text)) {
      const auto before = split_words(text.substr(0, span.begin));
      const bool inside = span.begin > 0 && !is_space(text[span.begin - 1]);
      out.push_back(
          {span, before.size() - inside, number_digits(text.substr(span.begin, span.size()))});
    }
    return out;
  };
  std::vector<Number> source = numbers(pair.source), target = numbers(pair.target);
  // Dates and hours change their form: "5 p.m." is "17 Uhr".
  const auto changes_form = [](std::string_view text, const Number& n) {
    const auto after = split_words(text.substr(n.span.end));
    const bool hour =
        !after.empty() && (after[0].starts_with("p.m") || after[0].starts_with("a.m") ||
                           after[0].starts_with("pm") || after[0].starts_with("am"));
    const std::string_view own = text.substr(n.span.begin, n.span.size());
    return hour || own.find_first_not_of("0123456789.,") != std::string_view::npos;
  };
  // Those that both have are in order.
  for (auto s = source.begin(); s != source.end();) {
    const auto same = std::find_if(target.begin(), target.end(),
                                   [&](const Number& t) { return t.digits == s->digits; });
    if (same == target.end()) {
      ++s;
      continue;
    }
    target.erase(same);
    s = source.erase(s);
  }
  std::vector<std::pair<TextSpan, std::string>> changes;
  std::erase_if(source, [&](const Number& n) { return changes_form(pair.source, n); });
  std::erase_if(target, [&](const Number& n) { return changes_form(pair.target, n); });
  for (const Number& s : source) {
    auto wrong = target.end();
    for (const Link& link : pair.links)
      if (std::cmp_equal(link.source, s.word) && wrong == target.end())
        wrong = std::find_if(target.begin(), target.end(),
                             [&](const Number& t) { return std::cmp_equal(t.word, link.target); });
    if (wrong == target.end() && source.size() == 1 && target.size() == 1) wrong = target.begin();
    if (wrong == target.end()) continue;
    changes.push_back({wrong->span, std::string(pair.source.substr(s.span.begin, s.span.size()))});
    target.erase(wrong);
  }
  std::sort(changes.begin(), changes.end(),
            [](const auto& a, const auto& b) { return a.first.begin > b.first.begin; });
  std::string out(pair.target);
  for (const auto& [span, text] : changes) out.replace(span.begin, span.size(), text);
  return out;
}

std::vector<TextSpan> lost_numbers(std::string_view source, std::string_view target) {
  std::vector<std::string> there;
  for (const TextSpan& span : find_numbers(target))
    there.push_back(number_digits(target.substr(span.begin, span.size())));
  std::vector<TextSpan> out;
  for (const TextSpan& span : find_numbers(source)) {
    const std::string_view number = source.substr(span.begin, span.size());
    const std::string digits = number_digits(number);
    const auto letters = std::count_if(number.begin(), number.end(), is_name) -
                         static_cast<std::ptrdiff_t>(digits.size());
    const auto same = std::find(there.begin(), there.end(), digits);
    if (same != there.end())
      there.erase(same);
    else if ((digits.size() > 2 || (digits.size() == 2 && digits > "12")) && letters <= 2)
      out.push_back(with_unit(source, span));
  }
  return out;
}

}  // namespace heed
