#include "heed/text/abbreviations.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "heed/base/unicode.h"
#include "heed/base/words.h"

namespace heed {
namespace {

// Words between spaces, in lower case. Those of the first row hold in every language; those after a
// * in their own alone, not where no language is said, because they are words of another.
struct Row {
  const char *language, *always, *before_number, *maybe, *starters;
};

constexpr Row kRows[] = {
    {"",
     "dr drs prof mr mrs ms mme mlle mgr mt ph.d phil cf vs viz e.g i.e approx ca resp incl "
     "inkl excl tel fax esq gen",
     "no nos nr fig figs vol vols p pp pg ch chap sec sect eq ref art par cap tab ed",
     "etc inc ltd co corp al jr sr bros dept st ste u.s u.k e.u u.n d.c ph.d b.a m.a b.sc m.sc a.m "
     "p.m",
     ""},
    {"en",
     "messrs rev hon sen rep reps gov lt col sgt capt cpt cmdr adm maj brig pvt cpl supt pres sra "
     "fr bp ven * v asst assoc mgr univ temp gen",
     "jan feb mar apr jun jul aug sep sept oct nov dec app fn ll art arts dec",
     "ave blvd rd hwy st ft tbsp tsp oz lbs lb min hrs hr sq est dist intl mfg a.s.a.p misc max "
     "approx avg est dec jan feb aug sept oct nov",
     "the a an he she it they we you i this that these those there then in on at but and or so if "
     "when while what who whom whose where why how which his her their our my your its however for "
     "from with as after before no not yes some many most all both each every one two now here "
     "later thus also do did does is are was were can could will would should may please let "
     "thanks thank nobody everyone nothing since because although though during under its by to "
     "of well oh such only even still yet once today yesterday tomorrow meanwhile finally first "
     "second third another other others several few more"},
    {"de",
     "hr fr frl dipl ing bzw vgl ggf sog geb gest evtl zzgl abzgl hrsg vors stellv allg bes d.h "
     "z.b u.a i.d.r v.a usf urspr zz eigtl insb insbes mind ehem schr kath ev hl hll fa rd "
     "dgl entspr i.s.d o.ä v.chr n.chr gem lt lat griech engl frz dt tägl tgl vorm nachm zb "
     "univ med jur rer nat habil präs mind * s v n chr abb jan feb "
     "mär apr jun jul aug sep sept okt nov dez str",
     "abs nr bd bde kap aufl ziff § anm jg lfg rn rdn tz vers",
     "usw etc uvm u.v.m min std sek mio mrd tsd st stk ff mwst jh jhd hd kl gr abt chr evtl s.o "
     "s.u "
     "o.g u.ä max",
     "der die das den dem des ein eine einen einem einer er sie es wir ihr ich du man dies diese "
     "dieser dieses diesen jene jener jenes dann da dort hier nun jetzt heute gestern morgen aber "
     "und oder denn doch auch wenn als weil obwohl während nachdem bevor seit im am um auf mit "
     "nach "
     "bei von vom zu zum zur für ohne gegen durch unter über in an was wer wie wo warum wann wieso "
     "welche welcher welches alle alles niemand nichts viele einige mehrere so ja nein nicht noch "
     "nur schon sehr sein seine seiner ihre ihrer unser unsere mein meine dein deine kein keine "
     "jedoch deshalb daher trotzdem dabei damit danach später bitte danke ist sind war waren hat "
     "haben kann können soll wird werden fragen lesen schließlich außerdem allerdings "
     "erstens zweitens drittens"},
    {"fr",
     "m mm mmes mlles mrs dr pr drs stes av apr env c.-à-d p.ex gén cdt cne sgt "
     "édit trad réf hab arr dép tél fém masc svp s.v.p n.d.l.r "
     "* me bd bld boul pl cie t l janv févr avr juil sept oct nov déc",
     "art n° no nos num fol chap vol tom liv t pp p §",
     "etc cie ets ex éd col lt s.a s.a.r.l j.-c sté min max h hab",
     "le la les l un une des il elle ils elles on nous vous je j tu ce c cet cette ces cela ça son "
     "sa ses leur leurs mon ma mes notre nos votre vos puis alors mais et ou donc or ni car si "
     "quand comme lorsque puisque que qui quoi où comment pourquoi combien quel quelle quels "
     "quelles en dans sur sous avec sans pour par à au aux de du d depuis pendant après avant "
     "ensuite enfin ainsi aussi oui non ne pas rien personne tout tous toute toutes plus moins "
     "beaucoup aujourd'hui hier demain ici là y merci est sont était avait selon d'autres pas"},
    {"es",
     "sr sra sres sras srta srtas dra dres dras d dña excmo excma ilmo ilma lic ing arq mons "
     "gral cnel cap tte sgto sto sta avda avd av ctra p.ej ej aprox máx mín tel tfno dpto depto "
     "prov admón adm fdo att atte pbro fr hno hna rvdo ud uds vd vds ee * c cta ntra ss",
     "núm núms n.º n pág págs vol cap art arts fig",
     "etc cía s.a s.l s.r.l ee.uu uu a.c d.c a.m p.m c.v ud uds vd vds máx mín",
     "el la los las lo un una unos unas él ella ellos ellas yo tú usted ustedes nosotros nosotras "
     "se me te nos le les su sus mi mis tu tus nuestro nuestra este esta estos estas ese esa esos "
     "esas eso esto aquel aquella luego entonces después antes pero y o u e ni si cuando como "
     "mientras aunque porque que qué quién quien dónde donde cómo cuándo por para en con sin sobre "
     "de del desde hasta al a no sí nada nadie todo todos toda todas algo algunos muchos muchas "
     "más menos hoy ayer mañana aquí allí ahora ya también tampoco es son era fue hay está según"},
    {"it",
     "sig sigg dott dottssa dott.ssa prof profssa prof.ssa ing avv arch geom rag on sen gen col "
     "cap "
     "sac mons ss p.es es ecc.mo egr spett gent tel v vs cfr * s d",
     "n art artt pag pagg cap vol num nn fig tav p pp", "ecc s.p.a s.r.l s.n.c a.c d.c",
     "il lo la i gli le un uno una l egli ella esso essi lei lui noi voi loro io tu questo questa "
     "questi queste quello quella ma e ed o se quando come mentre perché che chi dove in su per "
     "con "
     "di da a al nel nella poi allora non sì no anche dopo prima oggi ieri domani qui tutto tutti "
     "ogni è sono era nessuno"},
    {"pt",
     "sr sra srs sras srta dr dra drs dras d dona exmo exma ilmo prof profa eng engª arq gen cel "
     "cap "
     "ten sto sta av r p.ex ex tel aprox máx mín v vs depto dpto",
     "n nº núm pág págs p pp art arts cap vol fig", "etc ltda cia s.a a.c d.c",
     "o a os as um uma uns umas ele ela eles elas eu tu você vocês nós este esta estes estas esse "
     "essa isso isto aquele mas e ou se quando como enquanto porque que quem onde em no na nos nas "
     "por para com sem sobre de do da dos das desde até depois antes então não sim também hoje "
     "ontem "
     "amanhã aqui tudo todos é são era foi há"},
    {"nl",
     "dhr mevr mw mej drs ir ing mr prof ds st gebr nl bijv bv d.w.z m.a.w o.a m.b.t i.v.m t.a.v "
     "t.o.v zgn evt ong incl excl resp vgl jl a.s tel",
     "nr nrs art blz p pp hfdst afb fig bd dl", "enz etc e.d n.v b.v m.n min max",
     "de het een hij zij ze wij we ik jij je u jullie dit dat deze die er dan toen maar en of dus "
     "want als wanneer terwijl omdat hoewel wat wie waar hoe waarom welke in op aan bij met van "
     "voor naar na door over om uit zonder nu hier daar ook nog niet nee ja niemand niets alle "
     "alles vandaag gisteren morgen is zijn was waren heeft"},
    {"ru",
     "г гг ул пр пл пер д кв корп стр им проф акад доц см ср т.е т.к т.н т.о т.д напр тел обл р-н "
     "св о ст чл-корр ген полк кап инж гр тов",
     "рис табл гл с стр п пп ст т тт №",
     "др пр т.д т.п т.ч руб коп тыс млн млрд н.э г гг в вв мин ч сек",
     "он она оно они мы вы я ты это этот эта эти тот та те но и а или если когда как пока потому "
     "что кто где почему зачем в на по с со к из от до для без при о об за после затем потом не "
     "нет да там тут здесь сегодня вчера завтра все всё никто ничего его её их"},
};

// Languages that write ordinals with a full stop.
constexpr std::string_view kOrdinals[] = {"de", "da", "no", "nb", "nn", "fi", "is", "et", "lv",
                                          "cs", "sk", "pl", "sl", "hr", "sr", "bs", "hu", "tr"};

struct Words {
  std::unordered_map<std::string, Abbreviation> kinds;
  std::unordered_set<std::string> starters;
};

void add(Words& words, const Row& row, bool own) {
  const auto each = [&](const char* list, Abbreviation kind) {
    bool local = false;
    for (const std::string_view word : split_words(list)) {
      if (word == "*") local = true;
      if (word == "*" || (local && !own)) continue;
      // A word that is in two lists may end a sentence.
      Abbreviation& known = words.kinds[std::string(word)];
      known = std::max(known, kind);
    }
  };
  each(row.always, Abbreviation::always);
  each(row.before_number, Abbreviation::before_number);
  each(row.maybe, Abbreviation::maybe);
  for (const std::string_view word : split_words(row.starters)) words.starters.emplace(word);
}

// The tables of a language, made once. "" has what all of them share.
const Words& words_of(std::string_view language) {
  static const std::unordered_map<std::string, Words> all = [] {
    std::unordered_map<std::string, Words> made;
    for (const Row& row : kRows) {
      add(made[""], row, /*own=*/false);
      if (*row.language == 0) continue;
      add(made[row.language], kRows[0], true);
      add(made[row.language], row, true);
    }
    return made;
  }();
  const auto found = all.find(std::string(language));
  return found != all.end() ? found->second : all.at("");
}

std::string lower(std::string_view text) { return encode_utf8(lower_case(decode_utf8(text))); }

}  // namespace

Abbreviations::Abbreviations(std::string_view language)
    : language_(lower(language.substr(0, language.find_first_of("-_")))) {
  ordinals_ =
      std::find(std::begin(kOrdinals), std::end(kOrdinals), language_) != std::end(kOrdinals);
}

Abbreviation Abbreviations::kind(std::string_view word) const {
  const auto& kinds = words_of(language_).kinds;
  const auto found = kinds.find(lower(word));
  return found == kinds.end() ? Abbreviation::none : found->second;
}

bool Abbreviations::begins_sentence(std::string_view word) const {
  return words_of(language_).starters.contains(lower(word));
}

}  // namespace heed
