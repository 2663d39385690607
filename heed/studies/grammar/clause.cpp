// Verbs and what goes with them: tense, negation, questions, clitics, the participle's agreement.
#include "heed/studies/grammar/speaker.h"

namespace heed::grammar {
namespace {

struct Modal {
  Words english;
  std::array<std::string, 6> french;
};

const std::vector<Modal>& modals() {
  static const std::vector<Modal> table = {
      {{"will"}, {"vais", "vas", "va", "allons", "allez", "vont"}},
      {{"can"}, {"peux", "peux", "peut", "pouvons", "pouvez", "peuvent"}},
      {{"must"}, {"dois", "dois", "doit", "devons", "devez", "doivent"}},
      {{"want", "to"}, {"veux", "veux", "veut", "voulons", "voulez", "veulent"}},
  };
  return table;
}
constexpr size_t kWill = 0, kCan = 1, kWant = 3;

constexpr std::array kAvoir = {"ai", "as", "a", "avons", "avez", "ont"};
constexpr std::array kEtre = {"suis", "es", "est", "sommes", "êtes", "sont"};
constexpr std::array kEtait = {"étais", "étais", "était", "étions", "étiez", "étaient"};

const char* be(const Agreement& a, bool past) {
  const bool are = a.plural || a.person == 2;
  if (past) return are ? "were" : "was";
  return are ? "are" : a.person == 1 ? "am" : "is";
}

Token token(const std::string& text, const Meanings& means) {
  return {.text = text, .means = means};
}

void put_est_ce_que(Tokens& french, int asks) {
  french.push_back(token("est-ce", {asks}));
  french.push_back(que(asks));
}

Token pas(const Manner& manner, int denies) {
  return token(manner.polarity == Polarity::never ? "jamais" : "pas", {denies});
}

std::string agreeing(const std::string& participle, const Agreement& with) {
  std::string form = participle + (with.feminine ? "e" : "");
  if (with.plural && !form.ends_with('s')) form += 's';
  return form;
}

When when_of(const Manner& manner) {
  if (manner.tense == Tense::past) return When::past;
  if (manner.tense == Tense::present) return When::present;
  return manner.modal == kWill ? When::future : When::any;
}

// "they read": lest nobody could tell the tense, such a form is always the past.
Manner unambiguous(Manner manner, const Verb& verb, const Agreement& a) {
  if (verb.before[0] == verb.past && manner.tense == Tense::present && !manner.question &&
      manner.polarity != Polarity::negative && !a.third_singular())
    manner.tense = Tense::past;
  return manner;
}

// The meanings of a clause's parts.
struct Meant {
  int does, helps, denies, asks;
};

// English before the objects: an auxiliary, which a question puts before the subject, and the rest.
struct EnglishVerb {
  Tokens auxiliary, rest;
  bool with_do = false;
};

EnglishVerb english_verb(const Verb& verb, const Agreement& a, const Manner& manner,
                         const Phrase& adverb, const Meant& meant) {
  const bool is_modal = manner.tense == Tense::modal, past = manner.tense == Tense::past;
  const bool wants = is_modal && manner.modal == kWant;
  const bool negative = manner.polarity == Polarity::negative;
  EnglishVerb result;
  result.with_do = (manner.question || negative) && (!is_modal || wants);
  if (result.with_do)
    result.auxiliary = {token(past ? "did" : a.third_singular() ? "does" : "do", {meant.helps})};
  else if (is_modal && !wants)
    result.auxiliary = {token(modals()[manner.modal].english[0], {meant.helps})};
  if (manner.question) result.auxiliary[0].means.push_back(meant.asks);

  if (negative && is_modal && manner.modal == kCan)
    result.auxiliary = {token("cannot", {meant.helps, meant.denies})};
  else if (negative)
    result.rest.push_back(token("not", {meant.denies}));
  if (manner.polarity == Polarity::never) result.rest.push_back(token("never", {meant.denies}));
  append(result.rest, adverb.english);
  const bool third = a.third_singular() && !result.with_do;
  if (wants) append(result.rest, tokens({third ? "wants" : "want", "to"}, {meant.helps}));
  if (result.with_do || is_modal)
    result.rest.push_back(token(verb.before[0], {meant.does}));
  else if (past)
    result.rest.push_back(token(verb.past, {meant.does, meant.helps}));
  else
    result.rest.push_back(token(third ? verb.third : verb.before[0], {meant.does}));
  return result;
}

}  // namespace

// ---- what to say

Manner Speaker::manner(bool may_ask) {
  Manner result;
  const uint32_t tense = random_.below(100);
  result.tense = tense < 42 ? Tense::present : tense < 80 ? Tense::past : Tense::modal;
  result.modal = random_.below(static_cast<uint32_t>(modals().size()));
  const uint32_t polarity = random_.below(100);
  result.question = may_ask && polarity < 12;
  if (polarity >= 75) result.polarity = Polarity::negative;
  if (polarity >= 95) result.polarity = Polarity::never;
  return result;
}

const Verb& Speaker::verb(const Kinds& subjects, bool with_clause) {
  const auto weight = [&](const Verb& v) {
    const bool fits = share(v.subjects, subjects) && (with_clause || v.frame != Frame::that);
    return fits ? static_cast<uint32_t>(v.weight) : 0;
  };
  uint32_t total = 0;
  for (const Verb& v : lexicon_.verbs) total += weight(v);
  require(total > 0, "grammar: the lexicon has no verb for a subject of kind '", subjects, "'");
  uint32_t roll = random_.below(total);
  const auto chosen =
      std::find_if(lexicon_.verbs.begin(), lexicon_.verbs.end(), [&](const Verb& v) {
        const uint32_t w = weight(v);
        if (roll < w) return true;
        roll -= w;
        return false;
      });
  return *chosen;
}

// Not "i see me", nor "we see me".
const Pronoun& Speaker::person_other_than(const Agreement& subject) {
  while (true) {
    const Pronoun& p = pronouns()[random_.below(kPersons)];
    if (p.agreement.person == 3 || p.agreement.person != subject.person) return p;
  }
}

// ---- objects

Speaker::Objects Speaker::objects(const Verb& verb, const Agreement& subject, const Manner& manner,
                                  int does) {
  const Words particles(verb.before.begin() + 1, verb.before.end());
  const Role role = manner.denied() ? Role::negated_object : Role::object;
  if (verb.frame == Frame::to) return to_whom(verb, subject, does);
  if (verb.frame == Frame::give) return given(verb, subject, role);

  Objects result;
  if (verb.frame == Frame::that) {
    const int that = meaning();
    result.phrase = {tokens(particles, {that}), {que(that)}};
    append(result.phrase, clause(false));
    return result;
  }
  result.phrase.english = tokens(particles, {does});
  if (verb.frame == Frame::alone) return result;

  const bool animate = share(verb.objects, "pa");
  if (chance(animate ? 45 : 15)) {
    const Pronoun& p = animate ? person_other_than(subject) : pronouns()[chance(50) ? kIt : kThem];
    const int it = meaning();
    append(result.phrase.english, tokens(p.object_en, {it}));
    result.clitics.push_back({p.agreement.person < 3 ? 0 : 1,
                              {.text = p.direct, .means = {it}, .before_vowel = p.direct_elided}});
    result.before = p.agreement;
  } else if (share(verb.objects, "p") && chance(12)) {
    append(result.phrase, name().phrase);
  } else {
    append(result.phrase, noun_phrase(verb.objects, role).phrase);
  }
  append(result.phrase.english, tokens(verb.after, {does}));
  return result;
}

// talks to the king: parle au roi; talks to me: me parle
Speaker::Objects Speaker::to_whom(const Verb& verb, const Agreement& subject, int does) {
  const Words particles(verb.before.begin() + 1, verb.before.end());
  const int to = particles.empty() ? does : meaning();
  Objects result;
  result.phrase.english = tokens(particles, {to});
  if (share(verb.objects, "pa") && chance(45)) {
    const Pronoun& p = person_other_than(subject);
    const int whom = meaning();
    append(result.phrase.english, tokens(p.object_en, {whom}));
    result.clitics.push_back({p.agreement.person < 3 ? 0 : 2,
                              {.text = p.indirect,
                               .means = particles.empty() ? Meanings{whom} : Meanings{whom, to},
                               .before_vowel = p.indirect_elided}});
    return result;
  }
  result.phrase.french.push_back(token("à", {to}));
  const Role role = share(verb.objects, "g") ? Role::place : Role::object;
  append(result.phrase, share(verb.objects, "p") && chance(20)
                            ? name().phrase
                            : noun_phrase(verb.objects, role).phrase);
  return result;
}

// gives the book to the child, gives me the book, gives it to me
Speaker::Objects Speaker::given(const Verb& verb, const Agreement& subject, Role role) {
  const int whom = meaning(), to = meaning();
  Objects result;
  const uint32_t roll = random_.below(100);
  if (roll >= 60) {
    append(result.phrase, noun_phrase(verb.objects, role).phrase);
    append(result.phrase, {{token("to", {to})}, {token("à", {to})}});
    append(result.phrase, chance(30) ? name().phrase : noun_phrase("p", Role::object).phrase);
    return result;
  }
  const Pronoun& p = person_other_than(subject);
  Token clitic{.text = p.indirect, .means = {whom}, .before_vowel = p.indirect_elided};
  if (roll < 20) {
    const Pronoun& what = pronouns()[chance(60) ? kIt : kThem];
    const int it = meaning();
    append(result.phrase.english, tokens(what.object_en, {it}));
    result.phrase.english.push_back(token("to", {to}));
    append(result.phrase.english, tokens(p.object_en, {whom}));
    clitic.means.push_back(to);
    result.clitics.push_back(
        {1, {.text = what.direct, .means = {it}, .before_vowel = what.direct_elided}});
    result.before = what.agreement;
  } else {
    append(result.phrase.english, tokens(p.object_en, {whom}));
    append(result.phrase, noun_phrase(verb.objects, role).phrase);
  }
  result.clitics.push_back({p.agreement.person < 3 ? 0 : 2, std::move(clitic)});
  std::sort(result.clitics.begin(), result.clitics.end(),
            [](const auto& x, const auto& y) { return x.rank < y.rank; });
  return result;
}

// ---- clauses

// often: before the English verb, behind the French finite one
Phrase Speaker::middle_adverb(const Manner& manner) {
  if (manner.polarity == Polarity::never || !chance(10)) return {};
  const Adverb& adverb = pick_if(lexicon_.adverbs, [&](const Adverb& x) {
    return x.when == When::negated || (x.when == When::middle && !manner.denied());
  });
  return phrase(adverb.english, adverb.french);
}

Phrase Speaker::verb_clause(const NounPhrase& subject, const Verb& verb, const Manner& manner) {
  const Agreement& a = subject.agreement;
  const Meant meant{meaning(), meaning(), meaning(), meaning()};
  const Objects objects = this->objects(verb, a, manner, meant.does);
  const Phrase adverb = middle_adverb(manner);

  Phrase result;
  const EnglishVerb english = english_verb(verb, a, manner, adverb, meant);
  if (manner.question) append(result.english, english.auxiliary);
  append(result.english, subject.phrase.english);
  if (!manner.question) append(result.english, english.auxiliary);
  append(result.english, english.rest);
  append(result.english, objects.phrase.english);

  Tokens& french = result.french;
  const bool is_modal = manner.tense == Tense::modal, past = manner.tense == Tense::past;
  const auto put_clitics = [&] {
    for (const Objects::Clitic& clitic : objects.clitics) french.push_back(clitic.token);
  };
  if (manner.question) put_est_ce_que(french, meant.asks);
  append(french, subject.phrase.french);
  if (manner.denied()) french.push_back(ne(meant.denies));
  if (!is_modal) put_clitics();
  if (is_modal)
    french.push_back(token(modals()[manner.modal].french[a.form()], {meant.helps}));
  else if (past)
    french.push_back(token((verb.with_etre ? kEtre : kAvoir)[a.form()], {meant.helps}));
  else
    french.push_back(token(verb.present[a.form()], english.with_do
                                                       ? Meanings{meant.does, meant.helps}
                                                       : Meanings{meant.does}));
  if (manner.denied()) french.push_back(pas(manner, meant.denies));
  append(french, adverb.french);
  if (is_modal) put_clitics();
  // With être the participle agrees with the subject, with avoir with an object before it.
  if (is_modal)
    french.push_back(token(verb.infinitive, {meant.does}));
  else if (past)
    french.push_back(
        token(agreeing(verb.participle, verb.with_etre ? a : objects.before.value_or(Agreement{})),
              {meant.does}));
  append(french, objects.phrase.french);
  return result;
}

// the man who sleeps: l' homme qui dort
Phrase Speaker::relative(const Agreement& a) {
  Phrase result = phrase({"who"}, {"qui"});
  const Manner how{.tense = chance(50) ? Tense::present : Tense::past};
  const Verb& does = verb("p", false);
  append(result, verb_clause({.phrase = {}, .agreement = a}, does, unambiguous(how, does, a)));
  return result;
}

// the cat is not very big: le chat n' est pas très gros
Phrase Speaker::copula_clause(const NounPhrase& subject, const Kinds& kinds, const Manner& manner) {
  const Agreement& a = subject.agreement;
  const bool past = manner.tense == Tense::past;
  const int is = meaning(), denies = meaning(), asks = meaning();
  const Token verb = token(be(a, past), manner.question ? Meanings{is, asks} : Meanings{is});

  Phrase result;
  if (manner.question) {
    result.english.push_back(verb);
    put_est_ce_que(result.french, asks);
  }
  append(result, subject.phrase);
  if (!manner.question) result.english.push_back(verb);
  if (manner.denied()) {
    const bool never = manner.polarity == Polarity::never;
    result.english.push_back(token(never ? "never" : "not", {denies}));
    result.french.push_back(ne(denies));
  }
  result.french.push_back(token((past ? kEtait : kEtre)[a.form()], {is}));
  if (manner.denied()) result.french.push_back(pas(manner, denies));
  if (share(kinds, "pa") && chance(20)) {
    append(result, place());
    return result;
  }
  if (chance(20))
    append(result, chance(60) ? phrase({"very"}, {"très"}) : phrase({"too"}, {"trop"}));
  const Adjective& adjective =
      pick_if(lexicon_.adjectives, [&](const Adjective& x) { return share(x.kinds, kinds); });
  append(result, phrase({adjective.english}, {adjective.french[a.plural][a.feminine]}));
  return result;
}

// there are no owls in the garden: il n' y a pas de hiboux dans le jardin
Phrase Speaker::existence(const Manner& manner) {
  const int is = meaning(), asks = meaning(), denies = meaning(), some = meaning();
  const bool past = manner.tense == Tense::past;
  const Noun& noun =
      pick_if(lexicon_.nouns, [](const Noun& n) { return share(n.kinds, "pafdtrc"); });
  const Agreement a{.person = 3, .plural = noun.counted() && chance(50), .feminine = noun.feminine};
  const Token there = token("there", {is});
  const Token verb = token(be(a, past), manner.question ? Meanings{is, asks} : Meanings{is});
  Phrase result;
  result.english = manner.question ? Tokens{verb, there} : Tokens{there, verb};
  if (manner.question) put_est_ce_que(result.french, asks);
  result.french.push_back(token("il", {is}));
  if (manner.denied()) result.french.push_back(ne(denies));
  append(result.french, tokens({"y", past ? "avait" : "a"}, {is}));
  if (manner.denied())
    append(result, {{token("no", {denies})}, {token("pas", {denies}), de(denies)}});
  else if (a.plural)
    append(result, {{token("some", {some})}, {token("des", {some})}});
  else if (!noun.counted())
    append(result, {{token("some", {some})}, {de(some), le(a, some)}});
  else
    append(result, {{{.text = "a", .means = {some}, .before_vowel = "an"}},
                    {token(a.feminine ? "une" : "un", {some})}});
  append(result, with_adjectives(noun, a, nullptr, nullptr));
  append(result, place());
  return result;
}

void Speaker::add_time(Phrase& clause, const Manner& manner) {
  const When when = when_of(manner);
  const Adverb& adverb = pick_if(lexicon_.adverbs, [&](const Adverb& x) {
    return x.when == When::any || (x.when == when && when != When::any);
  });
  Phrase time = phrase(adverb.english, adverb.french);
  if (chance(40)) {
    append(time, phrase({","}, {","}));
    std::swap(time, clause);
  }
  append(clause, time);
}

Phrase Speaker::clause(bool may_ask) {
  Manner how = manner(may_ask);
  const uint32_t roll = random_.below(100);
  if (roll < 5) return existence(how);
  Phrase result;
  if (roll < 20) {
    static const std::vector<Kinds> described = {"p", "a", "f", "d", "t", "o", "v", "r", "c", "l"};
    const Kinds kinds = chance(50) ? "p" : pick(described);
    if (how.tense == Tense::modal) how.tense = Tense::present;
    result = copula_clause(subject(kinds), kinds, how);
  } else {
    const Kinds kinds = chance(80) ? "p" : "a";
    const Verb& does = verb(kinds, may_ask);
    // After "that" a negation or a question would ask for the subjunctive, a past for its own
    // sequence of tenses.
    const NounPhrase who = subject(kinds);
    if (does.frame == Frame::that) return verb_clause(who, does, {});
    how = unambiguous(how, does, who.agreement);
    result = verb_clause(who, does, how);
    if (does.frame == Frame::alone && chance(30)) append(result, place());
  }
  if (!how.denied() && chance(17)) add_time(result, how);
  return result;
}

Phrase Speaker::sentence() {
  Phrase result;
  bool question = false;
  if (chance(9)) {
    result = clause(false);
    switch (random_.below(3)) {
      case 0: append(result, phrase({"and"}, {"et"})); break;
      case 1: append(result, phrase({"but"}, {"mais"})); break;
      default: {
        const int why = meaning();
        append(result, {{token("because", {why})}, {token("parce", {why}), que(why)}});
      }
    }
    append(result, clause(false));
  } else {
    result = clause(true);
    question = std::any_of(result.french.begin(), result.french.end(),
                           [](const Token& t) { return t.text == "est-ce"; });
  }
  const std::string end = question ? "?" : chance(8) ? "!" : ".";
  append(result, phrase({end}, {end}));
  return result;
}

}  // namespace heed::grammar
