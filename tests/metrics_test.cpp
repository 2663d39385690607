// Metrics: sacreBLEU's numbers to the last digit (tests/golden/sacrebleu.json was made with it),
// published alignment error rates, and what must hold for any text.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "heed/base/check.h"
#include "heed/base/parallel.h"
#include "heed/base/random.h"
#include "heed/files/lines.h"
#include "heed/metrics/metrics.h"
#include "tests/folder.h"

namespace heed {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Strings = std::vector<std::string>;

const Json& golden() {
  static const Json json = [] {
    std::ifstream file(fs::path(__FILE__).parent_path() / "golden" / "sacrebleu.json");
    return Json::parse(file);
  }();
  return json;
}

double number(const Json& json) { return std::stod(json.get<std::string>()); }

Statistics corpus(const Metric& metric, const Strings& hypotheses,
                  const std::vector<Strings>& references) {
  return sum_statistics(statistics(metric, hypotheses, references));
}
double corpus_score(const Metric& metric, const Strings& hypotheses,
                    const std::vector<Strings>& references) {
  return metric.score(corpus(metric, hypotheses, references));
}
double sentence_score(const Metric& metric, std::string_view hypothesis,
                      std::string_view reference) {
  return metric.score(metric.line(hypothesis, std::vector{reference}));
}

Smoothing smoothing(const std::string& name) {
  return name == "none"    ? Smoothing::none
         : name == "floor" ? Smoothing::floor
         : name == "add-k" ? Smoothing::add_k
                           : Smoothing::exp;
}

// "bleu tok=13a lc=False smooth=floor sv=0.5", "bleu tok=zh 2refs", "bleu 13a eff"
BleuOptions bleu_options(const std::string& config) {
  BleuOptions options;
  const auto field = [&](const std::string& key) -> std::string {
    const size_t at = config.find(key + "=");
    if (at == config.npos) return "";
    const size_t begin = at + key.size() + 1;
    return config.substr(begin, config.find(' ', begin) - begin);
  };
  if (!field("tok").empty()) options.tokenizer = field("tok");
  options.lowercase = field("lc") == "True";
  options.smoothing = smoothing(field("smooth"));
  if (!field("sv").empty() && field("sv") != "None") options.smooth_value = std::stod(field("sv"));
  options.effective_order = config.ends_with(" eff");
  return options;
}

// "chrf {"word_order": 2}", "chrf++ 2refs"
ChrfOptions chrf_options(const std::string& config) {
  const size_t brace = config.find('{');
  const Json json = brace == config.npos ? Json::object() : Json::parse(config.substr(brace));
  return {.char_order = json.value("char_order", 6),
          .word_order = json.value("word_order", config.starts_with("chrf++") ? 2 : 0),
          .beta = json.value("beta", 2),
          .lowercase = json.value("lowercase", false),
          .whitespace = json.value("whitespace", false),
          .eps_smoothing = json.value("eps_smoothing", false)};
}

TerOptions ter_options(const std::string& config) {
  const size_t brace = config.find('{');
  const Json json = brace == config.npos ? Json::object() : Json::parse(config.substr(brace));
  return {.normalized = json.value("normalized", false),
          .no_punctuation = json.value("no_punct", false),
          .asian_support = json.value("asian_support", false),
          .case_sensitive = json.value("case_sensitive", false)};
}

std::unique_ptr<Metric> metric_of(const std::string& config) {
  if (config.starts_with("bleu")) return make_bleu(bleu_options(config));
  if (config.starts_with("chrf")) return make_chrf(chrf_options(config));
  return make_ter(ter_options(config));
}

TEST(Golden, EveryCorpusConfigurationToTheLastDigit) {
  EXPECT_EQ(golden()["corpus"].size(), 53u);
  const auto hypotheses = golden()["hyp"].get<Strings>();
  for (const Json& entry : golden()["corpus"]) {
    const auto config = entry["config"].get<std::string>();
    SCOPED_TRACE(config);
    std::vector<Strings> references{golden()["ref"].get<Strings>()};
    if (config.ends_with("2refs")) references.push_back(golden()["ref2"].get<Strings>());
    const auto metric = metric_of(config);
    const Statistics sums = corpus(*metric, hypotheses, references);
    EXPECT_EQ(metric->score(sums), number(entry["score"]));
    const std::string sig = signature(*metric, {.references = static_cast<int>(references.size())});
    EXPECT_EQ(sig, entry["sig"]);
    EXPECT_EQ(score_text({metric->name(), metric->score(sums), {}, metric->details(sums)}, sig, 2),
              entry["format_w2"]);
    if (entry.contains("precisions")) {
      const BleuParts parts = bleu_parts(sums, bleu_options(config));
      EXPECT_EQ(Json(parts.counts), entry["counts"]);
      EXPECT_EQ(Json(parts.totals), entry["totals"]);
      EXPECT_EQ(Json(parts.precisions), entry["precisions"]);
      EXPECT_EQ(parts.brevity_penalty, entry["bp"]);
      EXPECT_EQ(parts.hypothesis_length, entry["sys_len"]);
      EXPECT_EQ(parts.reference_length, entry["ref_len"]);
    }
    if (entry.contains("num_edits")) {
      EXPECT_EQ(sums[0], entry["num_edits"]);
      EXPECT_EQ(sums[1], entry["ref_length"]);
    }
  }
}

TEST(Golden, EverySentenceToTheLastDigit) {
  const auto bleu = make_bleu({.effective_order = true});
  const auto chrf = make_chrf(), chrf_pp = make_chrf({.word_order = 2}), ter = make_ter();
  for (size_t i = 0; i < golden()["sentence"].size(); ++i) {
    SCOPED_TRACE(i);
    const Json& wanted = golden()["sentence"][i];
    const auto hypothesis = golden()["hyp"][i].get<std::string>();
    const auto reference = golden()["ref"][i].get<std::string>();
    EXPECT_EQ(sentence_score(*bleu, hypothesis, reference), number(wanted["bleu"]));
    EXPECT_EQ(sentence_score(*chrf, hypothesis, reference), number(wanted["chrf2"]));
    EXPECT_EQ(sentence_score(*chrf_pp, hypothesis, reference), number(wanted["chrf2++"]));
    EXPECT_EQ(sentence_score(*ter, hypothesis, reference), number(wanted["ter"]));
  }
}

TEST(Golden, EveryTokenization) {
  for (const Json& entry : golden()["tok"])
    for (const auto& [tokenizer, lines] : entry.items())
      for (size_t i = 0; i < lines.size(); ++i)
        // The file has what sacreBLEU gives, before it splits at white space.
        EXPECT_EQ(tokenize_for_bleu(golden()["hyp"][i].get<std::string>(), tokenizer),
                  tokenize_for_bleu(lines[i].get<std::string>(), "none"))
            << tokenizer;
}

TEST(Golden, EdgeCasesUnderEverySmoothing) {
  std::map<std::string, std::pair<Strings, Strings>> inputs;
  for (const Json& input : golden()["smoothing_inputs"])
    inputs[input["case"]] = {input["hyp"].get<Strings>(), input["ref"].get<Strings>()};
  for (const Json& entry : golden()["smoothing"]) {
    SCOPED_TRACE(entry.dump());
    const auto& [hypotheses, reference] = inputs.at(entry["case"]);
    const std::string name = entry.value("metric", "bleu");
    if (name != "bleu") {
      const auto metric =
          name == "ter" ? make_ter() : make_chrf({.eps_smoothing = name == "chrf_eps"});
      EXPECT_EQ(corpus_score(*metric, hypotheses, {reference}), number(entry["score"]));
      continue;
    }
    BleuOptions options{.smoothing = smoothing(entry["smooth"]), .effective_order = entry["eff"]};
    if (!entry["sv"].is_null()) options.smooth_value = entry["sv"].get<double>();
    const auto metric = make_bleu(options);
    const BleuParts parts = bleu_parts(corpus(*metric, hypotheses, {reference}), options);
    EXPECT_EQ(parts.score, number(entry["score"]));
    EXPECT_EQ(parts.brevity_penalty, number(entry["bp"]));
    for (size_t n = 0; n < parts.precisions.size(); ++n)
      EXPECT_EQ(parts.precisions[n], number(entry["precisions"][n]));
    EXPECT_EQ(signature(*metric, {}), entry["sig"]);
  }
}

TEST(Golden, BootstrapIntervalAndItsLine) {
  const auto metric = make_bleu();
  const auto lines =
      statistics(*metric, golden()["hyp"].get<Strings>(), {golden()["ref"].get<Strings>()});
  const Json& wanted = golden()["bootstrap"];
  const Confidence interval = confidence(resample(*metric, lines, 1000));
  EXPECT_DOUBLE_EQ(interval.mean, number(wanted["mean"]));
  EXPECT_DOUBLE_EQ(interval.half_width, number(wanted["ci"]));
  const std::string sig = signature(*metric, {.bootstrap = 1000});
  EXPECT_EQ(sig, wanted["sig"]);
  const Statistics sums = sum_statistics(lines);
  EXPECT_EQ(score_text({"BLEU", metric->score(sums), interval, metric->details(sums)}, sig, 2),
            wanted["line"]);
}

// "score=59.4,p_value=0.2,mean=59.0,ci=14.4"
double field(const Json& result, const std::string& key) {
  const auto text = "," + result.get<std::string>();
  return std::stod(text.substr(text.find("," + key + "=") + key.size() + 2));
}

TEST(Golden, PairedTestsGiveTheSamePValues) {
  const auto reference = golden()["ref"].get<Strings>();
  for (const std::string name : {"BLEU", "chrF2"}) {
    SCOPED_TRACE(name);
    const auto metric = name == "BLEU" ? make_bleu() : make_chrf();
    const auto baseline = statistics(*metric, golden()["hyp"].get<Strings>(), {reference});
    const auto system = statistics(*metric, golden()["ref2"].get<Strings>(), {reference});
    const Json &bootstrap = golden()["paired_bs"], &randomized = golden()["paired_ar"];
    const Json& wanted = bootstrap["res"][name];
    EXPECT_EQ(metric->score(sum_statistics(system)), field(wanted[1], "score"));
    const auto a = resample(*metric, baseline, 1000), b = resample(*metric, system, 1000);
    // sacreBLEU divides in float32 here.
    EXPECT_NEAR(confidence(a).mean, field(wanted[0], "mean"), 1e-5);
    EXPECT_NEAR(confidence(b).mean, field(wanted[1], "mean"), 1e-5);
    EXPECT_NEAR(confidence(b).half_width, field(wanted[1], "ci"), 1e-5);
    const double difference =
        metric->score(sum_statistics(system)) - metric->score(sum_statistics(baseline));
    EXPECT_EQ(bootstrap_p_value(a, b, difference), field(wanted[1], "p_value"));
    EXPECT_EQ(randomization_p_value(*metric, baseline, system, 10000),
              field(randomized["res"][name][1], "p_value"));
    EXPECT_EQ(signature(*metric, {.bootstrap = 1000}), bootstrap["sig"][name]);
    EXPECT_EQ(signature(*metric, {.randomization = 10000}), randomized["sig"][name]);
  }
}

TEST(Signature, ShortForm) {
  const Circumstances drawn{.references = 2, .bootstrap = 1000};
  EXPECT_EQ(signature(*make_bleu({.smoothing = Smoothing::floor}), drawn, SignatureForm::brief),
            "#:2|bs:1000|rs:12345|c:mixed|e:no|tok:13a|s:floor[0.10]|v:2.6.0");
  EXPECT_EQ(signature(*make_chrf(), {}, SignatureForm::brief),
            "#:1|c:mixed|e:yes|nc:6|nw:0|s:no|v:2.6.0");
  EXPECT_EQ(signature(*make_ter(), {}, SignatureForm::brief),
            "#:1|c:lc|t:tercom|nr:no|pn:yes|as:no|v:2.6.0");
}

// Where the corpora lie that may not be part of the project, if they are there.
std::optional<fs::path> data_folder() {
  const char* const given = std::getenv("HEED_DATA");
  const fs::path folder =
      given ? fs::path(given)
            : fs::path(__FILE__).parent_path().parent_path().parent_path() / "shared" / "data";
  if (!fs::is_directory(folder)) return {};
  return folder;
}

TEST(Aer, AgreesWithPublishedRates) {
  const std::optional<fs::path> data = data_folder();
  if (!data || !fs::exists(*data / "alignments"))
    GTEST_SKIP() << "no alignments; say where they are with HEED_DATA";
  const fs::path folder = *data / "alignments" / "de-en";
  const Strings gold = read_lines((folder / "gold.gz").string());
  const auto metric = make_aer();
  for (const auto& [name, wanted] : {std::pair{"fastalign.forward", 28.5},
                                     {"fastalign.reverse", 32.0},
                                     {"fastalign.grow-diagonal", 27.0},
                                     {"fastalign.intersection", 28.0},
                                     {"fastalign.union", 31.9},
                                     {"giza.forward", 21.0},
                                     {"giza.reverse", 23.1},
                                     {"giza.grow-diagonal-final", 20.6},
                                     {"giza.intersection", 23.4},
                                     {"giza.union", 20.9}}) {
    const std::string file = std::string("baseline.") + name + ".gz";
    const Strings links = read_lines((folder / file).string());
    EXPECT_NEAR(corpus_score(*metric, links, {gold}), wanted, 0.05) << name;
  }
}

TEST(Aer, CountsAsTheFormulaSays) {
  const auto aer = make_aer();
  // A has 3 links, 1 of them sure and 2 possible (the sure one among them); S has 2.
  EXPECT_DOUBLE_EQ(sentence_score(*aer, "0-0 1-1 2-2", "0-0 3-3 1p1"), 100 * (1 - 3. / 5));
  EXPECT_EQ(sentence_score(*aer, "0-0 1-2", "1-2 0-0"), 0);
  EXPECT_EQ(sentence_score(*aer, "0-0", "0p0"), 0);
  EXPECT_EQ(sentence_score(*aer, "", ""), 0);
  EXPECT_EQ(sentence_score(*aer, "", "0-0"), 100);
  EXPECT_EQ(aer->details(aer->line("0-0 1-1 2-2", std::vector<std::string_view>{"0-0 3-3 1p1"})),
            "precision = 66.7 recall = 50.0 (links = 3 sure = 2)");
}

TEST(Aer, GoldThatMayCountFromOneIsNotGuessedAt) {
  using Lines = std::vector<std::string>;
  const Lines from_one = {"1-1 3p2", "", "2-1"};
  const auto zero_based = [](const Lines& lines, CountedFrom from) {
    return zero_based_gold(lines, "gold", from);
  };
  EXPECT_EQ(zero_based(from_one, {.from_one = true}), (Lines{"0-0 2p1", "", "1-0"}));
  EXPECT_EQ(zero_based(from_one, {.from_zero = true}), from_one);
  EXPECT_EQ(zero_based({"", ""}, {}), (Lines{"", ""}));  // no links, nothing to tell from
  EXPECT_EQ(zero_based({"1-1", "2-0"}, {}), (Lines{"1-1", "2-0"}));
  EXPECT_TRUE(has(message([&] { zero_based(from_one, {}); }), "say --one-based"));
  EXPECT_TRUE(has(message([&] {
                    zero_based({"1-1", "0-1"}, {.from_one = true});
                  }),
                  "gold: line 2: has a word 0"));
}

TEST(Aer, ReadsGoldAlignments) {
  EXPECT_EQ(
      parse_gold_alignment(" 10-9  2p3\t2-3 1?0 0P7 10-9 "),
      (std::vector<GoldLink>{{{0, 7}, false}, {{1, 0}, false}, {{2, 3}, true}, {{10, 9}, true}}));
  EXPECT_TRUE(parse_gold_alignment("").empty());
  for (const std::string bad : {"1", "1-", "-1", "1--2", "1--0", "-1-2", "1p2-3", "1-2x", "x1-2",
                                "1_2", "1-2-3", "99999999999-1", "1.5-2", "+1-2"})
    EXPECT_THROW(parse_gold_alignment("0-0 " + bad), Error) << bad;
  try {
    parse_gold_alignment("0-0 1:1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "alignment: token 2, '1:1', is no link; wanted: source-target, as "
                 "3-4, or 3p4 for a possible one");
  }
}

// Lines of few different words, so that there is much to match and to move.
Strings random_lines(Random& random, int count, int longest) {
  static const std::vector<std::string> words = {"a",  "b",     "c",  "d.", "1,2",  "e-f",  "(g",
                                                 "h!", "ñandú", "猫", "İ",  "ΟΔΟΣ", "&amp;"};
  Strings lines;
  for (int i = 0; i < count; ++i) {
    std::string line;
    for (uint32_t n = random.below(static_cast<uint32_t>(longest) + 1); n > 0; --n)
      line += words[random.below(static_cast<uint32_t>(words.size()))] + (n > 1 ? " " : "");
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::unique_ptr<Metric>> text_metrics() {
  std::vector<std::unique_ptr<Metric>> metrics;
  for (const std::string& tokenizer : bleu_tokenizer_names())
    metrics.push_back(make_bleu({.tokenizer = tokenizer, .effective_order = true}));
  metrics.push_back(make_chrf());
  metrics.push_back(make_chrf({.word_order = 2}));
  metrics.push_back(make_ter());
  metrics.push_back(make_ter({.normalized = true, .asian_support = true}));
  return metrics;
}

TEST(Properties, TheReferenceItselfIsPerfect) {
  Random random(1);
  for (const std::string& line : random_lines(random, 50, 30)) {
    if (line.empty()) continue;
    for (const auto& metric : text_metrics())
      EXPECT_NEAR(sentence_score(*metric, line, line), metric->name() == "TER" ? 0 : 100, 1e-9)
          << metric->name() << ": " << line;
  }
}

TEST(Properties, MoreReferencesNeverHurtASentence) {
  Random random(2);
  const Strings hypotheses = random_lines(random, 60, 20), one = random_lines(random, 60, 20),
                two = random_lines(random, 60, 20);
  const auto chrf = make_chrf(), ter = make_ter();
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const std::vector<std::string_view> both{one[i], two[i]};
    EXPECT_EQ(chrf->score(chrf->line(hypotheses[i], both)),
              std::max(sentence_score(*chrf, hypotheses[i], one[i]),
                       sentence_score(*chrf, hypotheses[i], two[i])));
    EXPECT_LE(ter->line(hypotheses[i], both)[0],
              ter->line(hypotheses[i], std::vector<std::string_view>{one[i]})[0]);
  }
}

TEST(Properties, ScoresDoNotDependOnTheOrderOfLinesOrTheNumberOfThreads) {
  Random random(3);
  const Strings hypotheses = random_lines(random, 100, 20),
                reference = random_lines(random, 100, 20);
  const Strings backwards(hypotheses.rbegin(), hypotheses.rend()),
      reference_backwards(reference.rbegin(), reference.rend());
  const int before = threads();
  for (const auto& metric : text_metrics()) {
    set_threads(1);
    const double alone = corpus_score(*metric, hypotheses, {reference});
    set_threads(4);
    EXPECT_EQ(corpus_score(*metric, hypotheses, {reference}), alone);
    EXPECT_EQ(corpus_score(*metric, backwards, {reference_backwards}), alone);
  }
  set_threads(before);
}

TEST(Ter, AMovedBlockIsOneEdit) {
  const auto ter = make_ter();
  const auto edits = [&](std::string_view hypothesis, std::string_view reference) {
    return ter->line(hypothesis, std::vector{reference})[0];
  };
  EXPECT_EQ(edits("d e f a b c", "a b c d e f"), 1);
  EXPECT_EQ(edits("b a", "a b"), 1);
  EXPECT_EQ(edits("a b c", "a x c"), 1);
  EXPECT_EQ(edits("", "a b c"), 3);
  EXPECT_EQ(edits("a b c", ""), 3);
}

TEST(Ter, ReferencesArePreparedTwice) {
  // Once: "b , ,2"; twice, and so in references only: "b , , 2".
  const auto ter = make_ter({.normalized = true});
  EXPECT_EQ(ter->line("b,,2", std::vector<std::string_view>{"b,,2"}), (Statistics{2, 4}));
}

TEST(Ter, IsNeverAboveTheEditDistanceNorBelowTheDifferenceInLength) {
  Random random(4);
  const auto ter = make_ter();
  const Strings hypotheses = random_lines(random, 200, 40),
                reference = random_lines(random, 200, 40);
  for (size_t i = 0; i < hypotheses.size(); ++i) {
    const std::u32string h = lower_case(decode_utf8(hypotheses[i])),
                         r = lower_case(decode_utf8(reference[i]));
    const auto a = split_at_white_space(h), b = split_at_white_space(r);
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t x = 1; x <= a.size(); ++x) {
      size_t diagonal = std::exchange(row[0], x);
      for (size_t y = 1; y <= b.size(); ++y)
        diagonal = std::exchange(
            row[y], std::min({diagonal + (a[x - 1] != b[y - 1]), row[y] + 1, row[y - 1] + 1}));
    }
    const double edits = ter->line(hypotheses[i], std::vector<std::string_view>{reference[i]})[0];
    EXPECT_LE(edits, double(row.back()));
    EXPECT_GE(edits, std::abs(double(a.size()) - double(b.size())));
  }
}

TEST(Ter, LinesOfVeryDifferentLengthStayInTheBand) {
  const auto ter = make_ter();
  std::string longer;
  for (int i = 0; i < 2000; ++i) longer += "w" + std::to_string(i % 700) + " ";
  EXPECT_EQ(ter->line("w1", std::vector<std::string_view>{longer})[0], 1999);
  EXPECT_EQ(ter->line(longer, std::vector<std::string_view>{"w1"})[0], 1999);
  EXPECT_EQ(ter->line(longer, std::vector<std::string_view>{longer})[0], 0);
}

TEST(Resampling, EqualSystemsDoNotDiffer) {
  Random random(5);
  const auto metric = make_chrf();
  const auto lines =
      statistics(*metric, random_lines(random, 40, 20), {random_lines(random, 40, 20)});
  const auto scores = resample(*metric, lines, 100, 7);
  EXPECT_EQ(scores, resample(*metric, lines, 100, 7));
  EXPECT_NE(scores, resample(*metric, lines, 100, 8));
  EXPECT_EQ(bootstrap_p_value(scores, scores, 0), 1. / 101);  // no trial is above 0
  EXPECT_EQ(confidence({2, 2, 2}).half_width, 0);
  const std::vector<Statistics> one(lines.begin(), lines.begin() + 1);
  EXPECT_EQ(resample(*metric, one, 3, 7), std::vector<double>(3, metric->score(one[0])));
}

TEST(Errors, SayWhatIsWrong) {
  const auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message([] { make_bleu({.tokenizer = "13b"}); }),
            "unknown tokenizer '13b'; did you mean '13a'? have: 13a, none, intl, char, zh");
  EXPECT_EQ(message([] {
              statistics(*make_bleu(), {"a", "b"}, {{"a"}});
            }),
            "BLEU: 2 hypotheses, but 1 references; each line wants one");
  EXPECT_EQ(message([] { statistics(*make_ter(), {"a"}, {}); }),
            "TER: no reference to compare with");
  EXPECT_EQ(message([] {
              statistics(*make_chrf(), {"a", "\xFF"}, {{"a", "b"}});
            }),
            "line 2: decode_utf8: byte 1 of 1 is not UTF-8");
  EXPECT_EQ(message([] {
              statistics(*make_aer(), {"0-0"}, {{"0-0"}, {"0-0"}});
            }),
            "line 1: AER: one gold alignment is wanted, given 2");
  EXPECT_NE(message([] { sum_statistics({}); }), "");
  EXPECT_NE(message([] { make_chrf({.char_order = 0}); }), "");
}

}  // namespace
}  // namespace heed
