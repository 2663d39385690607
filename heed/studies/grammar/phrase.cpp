#include "heed/studies/grammar/phrase.h"

#include <algorithm>
#include <map>

namespace heed::grammar {
namespace {

bool begins_with_vowel(const std::string& word, bool french) {
  static const std::vector<std::string> english_consonants = {"use", "uni", "eu"};
  if (!french) {
    if (word.starts_with("honest")) return true;
    for (const std::string& start : english_consonants)
      if (word.starts_with(start)) return false;
    return !word.empty() && std::string("aeiou").find(word[0]) != std::string::npos;
  }
  if (word.starts_with('h')) return true;  // an aspirated one is marked, and begins with "*"
  static const std::vector<std::string> vowels = {"a", "e", "i", "o", "u", "y", "à", "â",
                                                  "é", "è", "ê", "î", "ô", "œ", "û"};
  return std::any_of(vowels.begin(), vowels.end(),
                     [&](const std::string& v) { return word.starts_with(v); });
}

// Elision, then contraction: de + le = du, but de + l' stays; then the marks go.
Tokens spelled(Tokens tokens, bool french) {
  for (size_t i = 0; i + 1 < tokens.size(); ++i)
    if (!tokens[i].before_vowel.empty() && begins_with_vowel(tokens[i + 1].text, french))
      tokens[i].text = tokens[i].before_vowel;
  static const std::map<std::pair<std::string, std::string>, std::string> contractions = {
      {{"de", "le"}, "du"}, {{"de", "les"}, "des"}, {{"à", "le"}, "au"}, {{"à", "les"}, "aux"}};
  Tokens result;
  for (Token& token : tokens) {
    if (token.article && !result.empty()) {
      const auto at = contractions.find({result.back().text, token.text});
      if (at != contractions.end()) {
        result.back().text = at->second;
        result.back().means.insert(result.back().means.end(), token.means.begin(),
                                   token.means.end());
        continue;
      }
    }
    if (token.text.starts_with('*')) token.text.erase(0, 1);
    result.push_back(std::move(token));
  }
  return result;
}

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const Token& token : tokens) text += (text.empty() ? "" : " ") + token.text;
  return text;
}

}  // namespace

AlignedPair spelled(const Phrase& phrase) {
  const Tokens english = spelled(phrase.english, false), french = spelled(phrase.french, true);
  AlignedPair pair{.english = joined(english), .french = joined(french), .links = {}};
  for (size_t i = 0; i < english.size(); ++i)
    for (size_t j = 0; j < french.size(); ++j)
      if (std::find_first_of(english[i].means.begin(), english[i].means.end(),
                             french[j].means.begin(),
                             french[j].means.end()) != english[i].means.end())
        pair.links.push_back({static_cast<int32_t>(i), static_cast<int32_t>(j)});
  return pair;
}

Tokens tokens(const Words& words, const Meanings& means) {
  Tokens result;
  for (const std::string& word : words) result.push_back({.text = word, .means = means});
  return result;
}

void append(Tokens& to, const Tokens& from) { to.insert(to.end(), from.begin(), from.end()); }

void append(Phrase& to, const Phrase& from) {
  append(to.english, from.english);
  append(to.french, from.french);
}

Token de(int means) { return {.text = "de", .means = {means}, .before_vowel = "d'"}; }
Token ne(int means) { return {.text = "ne", .means = {means}, .before_vowel = "n'"}; }
Token que(int means) { return {.text = "que", .means = {means}, .before_vowel = "qu'"}; }

Token le(const Agreement& a, int means) {
  if (a.plural) return {.text = "les", .means = {means}, .before_vowel = {}, .article = true};
  return {
      .text = a.feminine ? "la" : "le", .means = {means}, .before_vowel = "l'", .article = true};
}

}  // namespace heed::grammar
