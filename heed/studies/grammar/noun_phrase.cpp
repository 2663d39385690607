// Determiners, adjectives, possessors, pronouns: who and what a sentence is about.
#include "heed/studies/grammar/speaker.h"

namespace heed::grammar {

const std::vector<Pronoun>& pronouns() {
  static const Words you_all = {"you", "all"};
  static const std::vector<Pronoun> table = {
      {{"i"}, {"me"}, "je", "j'", "me", "m'", "me", "m'", "moi", {1, false, false}},
      {{"you"}, {"you"}, "tu", "", "te", "t'", "te", "t'", "toi", {2, false, false}},
      {{"he"}, {"him"}, "il", "", "le", "l'", "lui", "", "lui", {3, false, false}},
      {{"she"}, {"her"}, "elle", "", "la", "l'", "lui", "", "elle", {3, false, true}},
      {{"we"}, {"us"}, "nous", "", "nous", "", "nous", "", "nous", {1, true, false}},
      {you_all, you_all, "vous", "", "vous", "", "vous", "", "vous", {2, true, false}},
      {{"they"}, {"them"}, "ils", "", "les", "", "leur", "", "eux", {3, true, false}},
      {{"it"}, {"it"}, "", "", "le", "l'", "", "", "", {3, false, false}},
  };
  return table;
}

// Words that mean the same: one by one where there are equally many, else all of all.
Phrase Speaker::phrase(const Words& english, const Words& french) {
  const int whole = meaning();
  if (english.size() != french.size()) return {tokens(english, {whole}), tokens(french, {whole})};
  Phrase result;
  for (size_t i = 0; i < english.size(); ++i) {
    const int means = meaning();
    result.english.push_back({.text = english[i], .means = {means}});
    result.french.push_back({.text = french[i], .means = {means}});
  }
  return result;
}

Phrase Speaker::determiner(const Noun& noun, const Agreement& a, Role role,
                           bool adjective_precedes) {
  const int means = meaning();
  const auto both = [&](const Words& english, Tokens french) {
    return Phrase{tokens(english, {means}), std::move(french)};
  };
  const auto plain = [&](const std::string& text, const std::string& before_vowel = "") {
    return Tokens{{.text = text, .means = {means}, .before_vowel = before_vowel}};
  };
  const auto my = [&](const std::string& english, const std::string& letter) {  // mon, ma, mes
    if (a.plural) return both({english}, plain(letter + "es"));
    return both({english}, a.feminine ? plain(letter + "a", letter + "on") : plain(letter + "on"));
  };
  const bool definite = role == Role::place;
  const uint32_t roll = random_.below(100);
  if (roll < 24) {
    switch (random_.below(6)) {
      case 0: return my("my", "m");
      case 1: return my("your", "t");
      case 2: return my("his", "s");
      case 3: return my("her", "s");
      case 4: return both({"our"}, plain(a.plural ? "nos" : "notre"));
      default: return both({"their"}, plain(a.plural ? "leurs" : "leur"));
    }
  }
  if (roll < 31) {
    if (a.plural) return both({"these"}, plain("ces"));
    return both({"this"}, a.feminine ? plain("cette") : plain("ce", "cet"));
  }
  if (!definite && roll < 60) {
    const bool negated = role == Role::negated_object;
    if (!a.plural && noun.counted()) {
      if (roll < 36 && role == Role::object) return both({"every"}, plain("chaque"));
      Phrase one = both({"a"}, negated ? Tokens{de(means)} : plain(a.feminine ? "une" : "un"));
      one.english[0].before_vowel = "an";
      return one;
    }
    if (a.plural && roll < 40) {
      static const std::array<std::array<std::string, 2>, 4> numbers = {
          {{"two", "deux"}, {"three", "trois"}, {"four", "quatre"}, {"five", "cinq"}}};
      const auto& number = numbers[random_.below(4)];
      return both({number[0]}, plain(number[1]));
    }
    if (a.plural && roll < 44) {
      Tokens french = plain("beaucoup");
      french.push_back(de(means));
      return both({"many"}, std::move(french));
    }
    if (negated) return both({"any"}, {de(means)});
    if (!a.plural) return both({"some"}, {de(means), le(a, means)});  // du pain, de l' eau
    if (adjective_precedes) return both({"some"}, {de(means)});       // de petits chats
    return both({"some"}, plain("des"));
  }
  // Not of objects: "gives you all the books" could be said to one or to several.
  if (a.plural && roll >= 94 && role == Role::subject) {
    Phrase all = both({"all"}, plain(a.feminine ? "toutes" : "tous"));
    const int the = meaning();
    all.english.push_back({.text = "the", .means = {the}});
    all.french.push_back(le(a, the));
    return all;
  }
  return both({"the"}, {le(a, means)});
}

Phrase Speaker::with_adjectives(const Noun& noun, const Agreement& a, const Adjective* before,
                                const Adjective* after) {
  Phrase result;
  const auto add = [&](const Adjective& adjective) {
    const int means = meaning();
    result.english.push_back({.text = adjective.english, .means = {means}});
    Token token{.text = adjective.french[a.plural][a.feminine], .means = {means}};
    if (!a.plural && !a.feminine) token.before_vowel = adjective.before_vowel;
    result.french.push_back(std::move(token));
  };
  if (before) add(*before);
  const size_t where = result.french.size();
  if (after) add(*after);
  const int means = meaning();
  result.english.push_back({.text = noun.english[a.plural], .means = {means}});
  result.french.insert(result.french.begin() + static_cast<int64_t>(where),
                       {.text = noun.french[a.plural], .means = {means}});
  return result;
}

// the king 's big cat: le gros chat du roi
NounPhrase Speaker::possessed(const Noun& noun, const Agreement& a) {
  const auto possessor = [&]() -> NounPhrase {
    if (chance(50)) return name();
    const Noun& person = pick_if(lexicon_.nouns, [](const Noun& n) { return share(n.kinds, "p"); });
    const Agreement one{.person = 3, .plural = false, .feminine = person.feminine};
    const int means = meaning();
    NounPhrase result{.phrase = {{{.text = "the", .means = {means}}}, {le(one, means)}},
                      .agreement = one};
    append(result.phrase, with_adjectives(person, one, nullptr, nullptr));
    return result;
  }();
  const auto* adjective = chance(70) ? nullptr : &pick_if(lexicon_.adjectives, [&](const auto& x) {
    return share(x.kinds, noun.kinds);
  });
  const bool precedes = adjective && adjective->precedes;
  const Phrase core =
      with_adjectives(noun, a, precedes ? adjective : nullptr, precedes ? nullptr : adjective);
  const int of = meaning();
  NounPhrase result{.phrase = {possessor.phrase.english, {le(a, of)}}, .agreement = a};
  result.phrase.english.push_back({.text = "'s", .means = {of}});
  append(result.phrase, core);
  result.phrase.french.push_back(de(of));
  append(result.phrase.french, possessor.phrase.french);
  return result;
}

NounPhrase Speaker::noun_phrase(const Kinds& kinds, Role role) {
  const Noun& noun = pick_if(lexicon_.nouns, [&](const Noun& n) { return share(n.kinds, kinds); });
  const Agreement a{.person = 3,
                    .plural = noun.counted() && chance(role == Role::place ? 10 : 35),
                    .feminine = noun.feminine};
  if (chance(8)) return possessed(noun, a);
  const auto adjective = [&](bool precedes) -> const Adjective* {
    const auto fits = [&](const Adjective& x) {
      return x.precedes == precedes && share(x.kinds, noun.kinds);
    };
    if (std::none_of(lexicon_.adjectives.begin(), lexicon_.adjectives.end(), fits)) return nullptr;
    return &pick_if(lexicon_.adjectives, fits);
  };
  const uint32_t roll = random_.below(100);
  const Adjective* before = roll < 24 ? adjective(true) : nullptr;
  const Adjective* after = roll >= 18 && roll < 45 ? adjective(false) : nullptr;
  NounPhrase result{.phrase = determiner(noun, a, role, before != nullptr), .agreement = a};
  append(result.phrase, with_adjectives(noun, a, before, after));
  return result;
}

NounPhrase Speaker::name() {
  const Name& name = pick(lexicon_.names);
  return {.phrase = phrase({name.text}, {name.text}),
          .agreement = {.person = 3, .plural = false, .feminine = name.feminine}};
}

NounPhrase Speaker::subject(const Kinds& kinds) {
  const bool person = share(kinds, "p");
  const uint32_t roll = random_.below(100);
  if (person && roll < 42) {
    const Pronoun& pronoun = pronouns()[random_.below(kPersons)];
    const int means = meaning();
    return {.phrase = {tokens(pronoun.subject_en, {means}),
                       {{.text = pronoun.subject,
                         .means = {means},
                         .before_vowel = pronoun.subject_elided}}},
            .agreement = pronoun.agreement};
  }
  if (person && roll < 54) return name();
  if (person && roll < 59) {
    NounPhrase both = name();
    NounPhrase other = chance(50) ? name() : noun_phrase("p", Role::place);
    while (other.phrase.english[0].text == both.phrase.english[0].text) other = name();
    append(both.phrase, phrase({"and"}, {"et"}));
    append(both.phrase, other.phrase);
    both.agreement = {.person = 3,
                      .plural = true,
                      .feminine = both.agreement.feminine && other.agreement.feminine};
    return both;
  }
  NounPhrase noun = noun_phrase(kinds, Role::subject);
  if (person && roll >= 95) append(noun.phrase, relative(noun.agreement));
  return noun;
}

Phrase Speaker::place() {
  const Preposition& preposition = pick(lexicon_.prepositions);
  const int means = meaning();
  Phrase result{tokens(preposition.english, {means}), tokens(preposition.french, {means})};
  if (result.french.back().text == "de") result.french.back() = de(means);
  if (share(preposition.kinds, "p") && chance(50)) {
    const Pronoun& pronoun = pronouns()[random_.below(kPersons)];
    append(result, phrase(pronoun.object_en, {pronoun.strong}));
  } else {
    append(result, noun_phrase(preposition.kinds, Role::place).phrase);
  }
  return result;
}

}  // namespace heed::grammar
