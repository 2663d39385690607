// Says one sentence in both languages. What it says is left to chance; that it goes together (one
// eats food), to the lexicon; that it is right, to noun_phrase.cpp and clause.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "heed/base/check.h"
#include "heed/base/random.h"
#include "heed/studies/grammar/lexicon.h"
#include "heed/studies/grammar/phrase.h"

namespace heed::grammar {

struct Pronoun {
  Words subject_en, object_en;
  std::string subject, subject_elided;
  std::string direct, direct_elided;      // il me voit
  std::string indirect, indirect_elided;  // il me parle
  std::string strong;                     // avec moi
  Agreement agreement;
};

// I, you, he, she, we, you all, they; and "it", which is never a subject here and masculine, since
// nobody could tell its gender.
const std::vector<Pronoun>& pronouns();
inline constexpr uint32_t kPersons = 7;  // the pronouns without "it"
inline constexpr size_t kThem = 6, kIt = 7;

enum class Tense { present, past, modal };
enum class Polarity { positive, negative, never };

struct Manner {
  Tense tense = Tense::present;
  size_t modal = 0;  // will, can, must, want
  Polarity polarity = Polarity::positive;
  bool question = false;

  bool denied() const { return polarity != Polarity::positive; }
};

class Speaker {
 public:
  Speaker(const Lexicon& lexicon, Random& random) : lexicon_(lexicon), random_(random) {}

  Phrase sentence();

 private:
  // What a determiner depends on: French says "pas de pain", and "près de" goes with "le", not
  // "un".
  enum class Role { subject, object, negated_object, place };

  // The objects of a verb. In French, pronouns stand before the verb.
  struct Objects {
    struct Clitic {
      int rank;  // me te nous vous, then le la les, then lui leur
      Token token;
    };
    Phrase phrase;
    std::vector<Clitic> clitics;
    std::optional<Agreement> before;  // the direct one, if it stands before the participle
  };

  // ---- chance
  bool chance(int percent) { return random_.below(100) < static_cast<uint32_t>(percent); }
  template <class T>
  const T& pick(const std::vector<T>& items) {
    return items[random_.below(static_cast<uint32_t>(items.size()))];
  }
  // One of those for which it holds; at least one must.
  template <class T, class F>
  const T& pick_if(const std::vector<T>& items, F holds) {
    require(std::any_of(items.begin(), items.end(), holds),
            "grammar: the lexicon lacks a word for a sentence it began");
    while (true)
      if (const T& item = pick(items); holds(item)) return item;
  }
  int meaning() { return meanings_++; }
  const Pronoun& person_other_than(const Agreement& subject);
  const Verb& verb(const Kinds& subjects, bool with_clause);
  Manner manner(bool may_ask);

  // ---- noun_phrase.cpp
  Phrase phrase(const Words& english, const Words& french);
  Phrase determiner(const Noun& noun, const Agreement& a, Role role, bool adjective_precedes);
  Phrase with_adjectives(const Noun& noun, const Agreement& a, const Adjective* before,
                         const Adjective* after);
  NounPhrase noun_phrase(const Kinds& kinds, Role role);
  NounPhrase possessed(const Noun& noun, const Agreement& a);
  NounPhrase name();
  NounPhrase subject(const Kinds& kinds);
  Phrase place();

  // ---- clause.cpp
  Phrase clause(bool may_ask);
  Phrase verb_clause(const NounPhrase& subject, const Verb& verb, const Manner& manner);
  Phrase copula_clause(const NounPhrase& subject, const Kinds& kinds, const Manner& manner);
  Phrase existence(const Manner& manner);
  Phrase relative(const Agreement& a);
  Objects objects(const Verb& verb, const Agreement& subject, const Manner& manner, int does);
  Objects to_whom(const Verb& verb, const Agreement& subject, int does);
  Objects given(const Verb& verb, const Agreement& subject, Role role);
  Phrase middle_adverb(const Manner& manner);
  void add_time(Phrase& clause, const Manner& manner);

  const Lexicon& lexicon_;
  Random& random_;
  int meanings_ = 0;
};

}  // namespace heed::grammar
