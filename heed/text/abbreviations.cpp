#include "heed/text/abbreviations.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "heed/base/unicode.h"
#include "heed/base/words.h"

namespace heed {
namespace {

// Words between spaces, in lower case. Those of the first row hold in every language, unless its
// own row says otherwise; those after a * in their own alone, not where no language is said,
// because they are words of another. A word of two lists is of the later.
struct Row {
  const char* language = "";
  const char *always = "", *before_number = "", *maybe = "", *before_small = "";
  const char *units = "", *labels = "", *reports = "", *after_hour = "", *after_ordinal = "";
  const char* starters = "";
};

constexpr Row kRows[] = {
    {.language = "",
     .always =
         "dr drs prof mr mrs ms mme mlle mgr mt phil cf vs viz e.g i.e approx ca resp incl inkl "
         "excl tel esq gen p.s p.p.s n.b ibid op",
     .before_number =
         "no nos nr fax fig figs vol vols p pp pg ch chap sec sect eq ref art par cap tab ed",
     .maybe = "inc ltd co corp cos pty al jr sr bros dept st ste u.s u.k e.u u.n d.c ph.d b.a m.a "
              "b.sc m.sc a.m p.m",
     .before_small = "etc"},
    {.language = "en",
     .always =
         "messrs rev hon sen sens rep reps gov govs lt col sgt capt cpt cmdr adm maj brig pvt "
         "ps cpl supt pres sra fr bp ven det insp exh * v asst assoc mgr univ temp gen",
     .before_number = "jan feb mar apr jun jul aug sep sept oct nov dec app fn ll art arts para "
                      "paras cl ex ext rte a.d "
                      "no nos",
     .maybe =
         "ave blvd rd hwy st ft tbsp tsp oz lbs lb min hrs hr sq est dist intl mfg a.s.a.p misc "
         "max avg deg wed thurs tues calif conn fla ga ky md mich minn mo mont neb nev okla penn "
         "tenn tex vt wis wyo ala ariz colo dec jan feb aug sept oct nov approx",
     .before_small = "b.c b.c.e c.e",
     .units = "lbs lb oz tbsp tsp min hrs hr ft",
     .labels =
         "plan section part vitamin letter grade strand strands type class group appendix annex "
         "figure exhibit hepatitis point category level option item room gate objective schedule "
         "model phase stage zone block building unit wing column row table step",
     .reports =
         "said says asked asks cried shouted replied answered whispered yelled called exclaimed "
         "screamed muttered murmured added wrote told repeated continued demanded inquired "
         "enquired began laughed thought snapped sighed growled gasped groaned insisted "
         "responded remarked observed suggested declared",
     .after_hour =
         "monday tuesday wednesday thursday friday saturday sunday eastern central pacific "
         "mountain gmt utc est edt cst cdt pst pdt cet bst january february march april may june "
         "july august september october november december",
     .starters =
         "the a an he she it they we you i this that these those there then in on at but and or "
         "so if when while what who whom whose where why how which his her their our my your its "
         "however for from with as after before no not yes some many most all both each every "
         "one two now here later thus also do did does is are was were can could will would "
         "should may please let thanks thank nobody everyone nothing since because although "
         "though during under by to of well oh such only even still yet once today yesterday "
         "tomorrow meanwhile finally first second third another other others several few more "
         "next yours mine hers ours theirs everything everybody something somebody someone "
         "anything anybody anyone none any much less least lastly firstly secondly thirdly "
         "furthermore moreover nevertheless nonetheless therefore consequently unfortunately "
         "fortunately indeed perhaps maybe again instead otherwise besides despite according "
         "between among within without through throughout until unless whether like unlike given "
         "about above across against along around behind below beside beyond into near off over "
         "since than toward towards upon via had has have been being be am it's i'm i've i'll "
         "i'd he's she's we're we've they're that's there's don't didn't doesn't never always "
         "sometimes often usually recently currently soon almost nearly just quite rather very "
         "too either neither nor"},
    {.language = "de",
     .always =
         "az hr fr frl dipl ing bzw vgl ggf sog geb gest evtl zzgl abzgl hrsg vors stellv allg bes "
         "d.h z.b i.d.r v.a usf urspr zz eigtl insb insbes mind ehem schr kath ev hl hll fa "
         "rd dgl entspr i.s.d i.s.v o.ä gem lt lat griech engl frz dt tägl tgl vorm nachm zb "
         "univ med jur iur rer nat habil präs bzgl hinsichtl einschl ausschl bspw betr exkl gegr "
         "kgl lfd mtl röm südl nördl östl westl verh verw zus zzt österr staatl städt techn "
         "theol ugs z.t m.e u.u z.hd i.br o.d.t a.a.o d.gr dr.-ing a.d i.a i.v o.g ebd mult inh * "
         "s v "
         "n u d o chr abb jan feb mär apr jun jul aug sep sept okt nov dez str pfr st",
     .before_number = "abs nr nrn bd bde kap aufl ziff § anm jg lfg rn rdn tz vers art",
     .maybe =
         "u.a uvm u.v.m min std sek mio mrd tsd stk f ff mwst jh jhd hd kl gr abt evtl s.o s.u u.ä "
         "max e.v e.k a.m",
     .before_small = "usw etc v.chr n.chr u.a.m",
     .labels =
         "plan teil abschnitt vitamin buchstabe note typ klasse gruppe anhang anlage abbildung "
         "punkt kategorie stufe option ausrichtung phase zone block haus saal raum tor bahnsteig",
     .after_ordinal =
         "januar jänner februar feber märz april mai juni juli august september oktober november "
         "dezember jahrhundert jahrhunderts jahrtausend jahrtausends",
     .starters =
         "der die das den dem des ein eine einen einem einer er sie es wir ihr ich du man dies "
         "diese dieser dieses diesen jene jener jenes dann da dort hier nun jetzt heute gestern "
         "morgen aber und oder denn doch auch wenn als weil obwohl während nachdem bevor seit im "
         "am um auf mit nach bei von vom zu zum zur für ohne gegen durch unter über in an was "
         "wer wie wo warum wann wieso welche welcher welches alle alles niemand nichts viele "
         "einige mehrere so ja nein nicht noch nur schon sehr sein seine seiner ihre ihrer unser "
         "unsere mein meine dein deine kein keine jedoch deshalb daher trotzdem dabei damit "
         "danach später bitte danke ist sind war waren hat haben kann können soll wird werden "
         "fragen lesen schließlich außerdem allerdings erstens zweitens drittens viertens "
         "fünftens bis ab aus außer statt trotz wegen laut damals seitdem inzwischen zuerst "
         "zunächst zuletzt anschließend abschließend erst bald oft manchmal leider vielleicht "
         "natürlich dennoch dazu darum deswegen somit folglich ferner zudem übrigens insgesamt "
         "bereits beispielsweise gleichzeitig lassen jeder jede jedes jeden beide beides manche "
         "andere anderer anders solche weitere hinzu dafür dagegen dadurch davon daran darauf "
         "darin darüber hierzu hätte hätten wäre wären würde würden muss muß müssen sollte "
         "sollten darf dürfen möchte zwischen vor hinter neben innerhalb außerhalb aufgrund "
         "angesichts immer wieder nie"},
    {.language = "fr",
     .always = "rééd m mm mmes mlles mrs dr pr drs stes av ap apr env c.-à-d p.ex gén cdt cne sgt "
               "édit trad "
               "réf arr dép tél fém masc svp s.v.p n.d.l.r op.cit * me bd bld boul pl t l th ph ch "
               "janv févr avr juil sept oct nov déc",
     .before_number = "art n° no nos num fol chap tabl vol tom liv t pp p § al v r n",
     .maybe = "cie ets ex éd col lt s.a s.a.r.l sté max hab",
     .before_small = "etc j.-c",
     .units = "m h min s km cm mm kg g l cl t ha hab",
     .labels = "plan partie section vitamine lettre note type classe groupe annexe figure point "
               "catégorie volet phase zone bloc bâtiment salle porte option niveau",
     .starters =
         "le la les l un une des il elle ils elles on nous vous je j tu ce c cet cette ces cela "
         "ça son sa ses leur leurs mon ma mes notre nos votre vos puis alors mais et ou donc or "
         "ni car si quand comme lorsque puisque que qui quoi où comment pourquoi combien quel "
         "quelle quels quelles en dans sur sous avec sans pour par à au aux de du d depuis "
         "pendant après avant ensuite enfin ainsi aussi oui non ne pas rien personne tout tous "
         "toute toutes plus moins beaucoup aujourd'hui hier demain ici là y merci est sont était "
         "avait selon d'autres cependant toutefois néanmoins pourtant certes chaque chacun "
         "certains certaines plusieurs quelques autre autres voici voilà malgré grâce dès entre "
         "vers chez contre lors parce tandis bien très trop peu déjà encore toujours jamais "
         "souvent parfois bientôt maintenant finalement premièrement deuxièmement"},
    {.language = "es",
     .always =
         "reed profs bs.as sr sra sres sras srta srtas dra dres dras d dña excmo excma ilmo ilma "
         "lic ing arq mons "
         "gral cnel cap col tte sgto sto sta avda avd av ctra p.ej ej aprox máx mín tel tfno "
         "dpto depto prov admón adm fdo att atte pbro fr hno hna rvdo ee bco pte pdte p.d ob op "
         "ob.cit ed dir * c cta ntra ss",
     .before_number = "núm núms n.º n pág págs vol art arts fig párr apdo lám tít t s ss",
     .maybe = "cía uu c.v ud uds vd vds máx mín",
     .before_small = "etc ee.uu a.c d.c s.a s.l s.r.l s.l.u aa.pp ff.aa jj.oo cc.oo rr.hh ff.cc",
     .units = "m h min s km cm mm kg g l cl t ha",
     .labels =
         "plan parte sección vitamina letra nota tipo clase grupo anexo figura punto categoría "
         "fase zona bloque edificio sala puerta opción nivel",
     .starters =
         "el la los las lo un una unos unas él ella ellos ellas yo tú usted ustedes nosotros "
         "nosotras se me te nos le les su sus mi mis tu tus nuestro nuestra este esta estos "
         "estas ese esa esos esas eso esto aquel aquella luego entonces después antes pero y o u "
         "e ni si cuando como mientras aunque porque que qué quién quien dónde donde cómo cuándo "
         "por para en con sin sobre de del desde hasta al a no sí nada nadie todo todos toda "
         "todas algo algunos muchos muchas más menos hoy ayer mañana aquí allí ahora ya también "
         "tampoco es son era fue hay está según además así cada cual cualquier otro otra otros "
         "otras mucho poco pocos varios varias algunas ambos durante entre contra hacia tras "
         "ante bajo siempre nunca jamás quizá quizás tal vez finalmente primero segundo sin "
         "embargo gracias han ha había estaba"},
    {.language = "it",
     .always =
         "sig sigg sig.ra dott dottssa dott.ssa prof profssa prof.ssa ing avv arch geom rag on "
         "sen gen col cap sac mons ss p.es ecc.mo egr spett gent tel v vs cfr pagg * s d on es",
     .before_number = "n art artt pag pagg vol num nn fig tav p pp",
     .before_small = "ecc etc s.p.a s.r.l s.n.c a.c d.c",
     .starters =
         "il lo la i gli le un uno una l egli ella esso essi lei lui noi voi loro io tu questo "
         "questa questi queste quello quella ma e ed o se quando come mentre perché che chi dove "
         "in su per con di da a al nel nella poi allora non sì no anche dopo prima oggi ieri "
         "domani qui tutto tutti ogni è sono era nessuno inoltre però quindi così secondo "
         "durante tra fra senza molti alcuni"},
    {.language = "pt",
     .always =
         "sr sra srs sras srta dr dra drs dras d dona exmo exma ilmo prof profa eng engª arq gen "
         "cel cap ten sto sta av r p.ex ex tel aprox máx mín séc v vs depto dpto",
     .before_number = "n nº n.º núm pág págs p pp art arts vol fig",
     .maybe = "cia",
     .before_small = "etc ltda s.a a.c d.c",
     .starters =
         "o a os as um uma uns umas ele ela eles elas eu tu você vocês nós este esta estes estas "
         "esse essa isso isto aquele mas e ou se quando como enquanto porque que quem onde em no "
         "na nos nas por para com sem sobre de do da dos das desde até depois antes então não "
         "sim também hoje ontem amanhã aqui tudo todos é são era foi há além assim cada outro "
         "outra muitos alguns durante entre segundo porém"},
    {.language = "nl",
     .always =
         "dhr mevr mw mej drs ir ing mr prof ds st gebr nl bijv bv d.w.z m.a.w o.a m.b.t i.v.m "
         "t.a.v t.o.v zgn evt ong incl excl resp vgl jl a.s tel jan feb mrt apr aug sept okt nov "
         "dec",
     .before_number = "nr nrs art blz p pp hfdst afb fig bd dl op",
     .maybe = "m.n min max",
     .before_small = "enz etc e.d n.v b.v",
     .starters =
         "de het een hij zij ze wij we ik jij je u jullie dit dat deze die er dan toen maar en "
         "of dus want als wanneer terwijl omdat hoewel wat wie waar hoe waarom welke in op aan "
         "bij met van voor naar na door over om uit zonder nu hier daar ook nog niet nee ja "
         "niemand niets alle alles vandaag gisteren morgen is zijn was waren heeft bovendien "
         "echter daarom volgens tijdens tussen sinds elke ieder veel sommige"},
    {.language = "ru",
     .always =
         "г гг ул пр пл пер д кв корп стр им проф акад доц см ср т.е т.к т.н т.о напр тел обл "
         "р-н св о ст чл-корр ген полк кап инж гр тов г-н г-жа ок букв гл с стр п пп т тт",
     .before_number = "рис табл ст род №",
     .maybe = "т.ч мин ч сек",
     .before_small = "др пр т.д т.п н.э",
     .units = "г гг в вв руб коп тыс млн млрд м км кг ч мин сек",
     .starters =
         "он она оно они мы вы я ты это этот эта эти тот та те но и а или если когда как пока "
         "потому что кто где почему зачем в на по с со к из от до для без при о об за после "
         "затем потом не нет да там тут здесь сегодня вчера завтра все всё никто ничего его её "
         "их также однако поэтому каждый многие некоторые"},
    {.language = "pl",
     .always =
         "* ul al pl os inż hab np tzw tzn tj m.in św ks gen płk por zob śp im godz tel ok pt red "
         "dyr * w",
     .before_number = "* nr str rys tab poz ust art pkt rozdz t s",
     .before_small = "* itd itp r in",
     .units = "r w zł gr tys mln mld km kg m godz min"},
    {.language = "cs",
     .always = "* např tzv tj resp mj ing mgr judr mudr phdr doc bc gen sv ul nám tel př srov",
     .before_number = "* č čl odst str obr s r",
     .before_small = "* atd apod aj"},
    {.language = "sv",
     .always = "* t.ex bl.a d.v.s dvs s.k fr.o.m t.o.m hr fr ca jfr",
     .before_number = "* nr s kap fig st",
     .maybe = "* kr",
     .before_small = "* m.m m.fl o.s.v osv e.kr f.kr"},
    {.language = "el",
     .always = "κ κα κος κκ δρ καθ π.χ δηλ βλ λ.χ αγ",
     .before_number = "σελ αρ αρθ παρ εικ",
     .maybe = "μ.μ π.μ",
     .before_small = "κ.λπ κλπ κ.ά κτλ κ.τ.λ μ.χ π.χρ"},
    {.language = "ar",
     .always = "د أ م ا هـ",
     .before_number = "ص ج",
     .before_small = "إلخ الخ",
     .reports =
         "قال قالت سأل سألت صرخ صرخت أجاب أجابت رد ردت هتف هتفت صاح صاحت أضاف أضافت همس همست "
         "تساءل تساءلت"},
    {.language = "hi",
     .always = "डॉ श्री प्रो पं सु कु श्रीमती",
     .before_number = "पृ सं",
     .maybe = "रु",
     .before_small = "आदि इत्यादि"},
};

// Languages that write ordinals with a full stop.
constexpr std::string_view kOrdinals[] = {"de", "da", "no", "nb", "nn", "fi", "is", "et", "lv",
                                          "cs", "sk", "pl", "sl", "hr", "sr", "bs", "hu", "tr"};

struct Words {
  std::unordered_map<std::string, Abbreviation> kinds;
  std::unordered_set<std::string> units, labels, reports, after_hour, after_ordinal, starters;
};

void add(Words& words, const Row& row, bool own) {
  std::unordered_map<std::string, Abbreviation> kinds;
  const auto each = [&](const char* list, Abbreviation kind) {
    bool local = false;
    for (const std::string_view word : split_words(list)) {
      if (word == "*") local = true;
      if (word == "*" || (local && !own)) continue;
      kinds[std::string(word)] = kind;
    }
  };
  each(row.always, Abbreviation::always);
  each(row.before_number, Abbreviation::before_number);
  each(row.maybe, Abbreviation::maybe);
  each(row.before_small, Abbreviation::before_small);
  for (const auto& [word, kind] : kinds) {
    // Where no language is said, one may be a word of another: what says the least about it.
    Abbreviation& known = words.kinds[word];
    known = own ? kind : std::max(known, kind);
  }
  const auto fill = [](std::unordered_set<std::string>& set, const char* list) {
    for (const std::string_view word : split_words(list)) set.emplace(word);
  };
  fill(words.units, row.units);
  fill(words.labels, row.labels);
  fill(words.reports, row.reports);
  fill(words.after_hour, row.after_hour);
  fill(words.after_ordinal, row.after_ordinal);
  fill(words.starters, row.starters);
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
bool Abbreviations::is_unit(std::string_view word) const {
  return words_of(language_).units.contains(std::string(word));
}
bool Abbreviations::is_label(std::string_view word) const {
  return words_of(language_).labels.contains(lower(word));
}
bool Abbreviations::reports(std::string_view word) const {
  return words_of(language_).reports.contains(std::string(word));
}
bool Abbreviations::follows_hour(std::string_view word) const {
  return words_of(language_).after_hour.contains(lower(word));
}
bool Abbreviations::follows_ordinal(std::string_view word) const {
  return words_of(language_).after_ordinal.contains(lower(word));
}

}  // namespace heed
