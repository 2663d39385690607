// heed score: how good translations or alignments are, in sacreBLEU's numbers, words and fields.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "apps/bad_lines.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "heed/base/check.h"
#include "heed/base/unicode.h"
#include "heed/files/lines.h"
#include "heed/metrics/metrics.h"
#include "heed/view/heatmap.h"

namespace heed::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> hypotheses, references, metrics{"bleu"};
  std::string smoothing = "exp";
  bool lowercase = false, sentence = false, json = false, brief = false, score_only = false;
  CountedFrom gold;
  BleuOptions bleu;
  ChrfOptions chrf;
  TerOptions ter;
  int bootstrap = 0, randomization = 0, digits = 1;
  uint64_t seed = kResamplingSeed;
  BadLines bad;

  bool paired() const { return hypotheses.size() > 1 && bootstrap + randomization > 0; }
  Circumstances circumstances() const {
    return {static_cast<int>(references.size()), bootstrap, randomization, seed};
  }
  SignatureForm form() const { return brief ? SignatureForm::brief : SignatureForm::full; }
};

const std::vector<std::string> kMetrics = {"bleu", "chrf", "chrf++", "ter", "aer"};
const std::vector<std::string> kSmoothings = {"none", "floor", "add-k", "exp"};

std::unique_ptr<Metric> make_metric(const std::string& name, const Options& options) {
  if (name == "ter") return make_ter(options.ter);
  if (name == "aer") return make_aer();
  if (name == "bleu") {
    BleuOptions bleu = options.bleu;
    bleu.lowercase = options.lowercase;
    const auto smoothing = std::find(kSmoothings.begin(), kSmoothings.end(), options.smoothing);
    bleu.smoothing = static_cast<Smoothing>(smoothing - kSmoothings.begin());
    bleu.effective_order = options.sentence;
    return make_bleu(bleu);
  }
  ChrfOptions chrf = options.chrf;
  chrf.lowercase = options.lowercase;
  if (name == "chrf++") chrf.word_order = 2;
  return make_chrf(chrf);
}

// A file of lines, each of them checked to be what the metrics read.
struct Text {
  std::string name;
  std::vector<std::string> lines;
};

Text read_side(const std::string& path, const BadLine& bad) {
  Text text{name_of_input(path), read_text(path, bad)};
  for (std::string& line : text.lines) line.resize(strip_right(line).size());
  require(!text.lines.empty(), "score: ", text.name, " is empty; there is nothing to score");
  return text;
}

void check_alignments(const Text& text) {
  for (size_t i = 0; i < text.lines.size(); ++i) try {
      parse_gold_alignment(text.lines[i]);
    } catch (const Error& error) {
      fail(text.name, ": line ", i + 1, ": ", error.what());
    }
}

struct Input {
  std::vector<Text> systems;
  std::vector<std::vector<std::string>> references;
};

Input read_input(Options& options) {
  const bool alignments = options.metrics.front() == "aer";
  const BadLine bad = alignments ? BadLine() : options.bad.told();  // a link cannot be repaired
  const auto read = [&](const std::string& path) {
    Text text = read_side(path, bad);
    if (alignments) check_alignments(text);
    return text;
  };
  Input input;
  std::vector<Text> references;
  for (const std::string& path : options.references) references.push_back(read(path));
  for (const std::string& path : options.hypotheses) input.systems.push_back(read(path));
  options.bad.sum_up();
  const Text& first = references.front();
  const auto check = [&](const Text& other) {
    require(other.lines.size() == first.lines.size(), "score: ", first.name, " has ",
            first.lines.size(), " lines, ", other.name, " has ", other.lines.size(),
            "; line by line they must belong together");
  };
  for (const Text& text : references) check(text);
  for (const Text& text : input.systems) check(text);
  for (Text& text : references)
    input.references.push_back(alignments
                                   ? zero_based_gold(std::move(text.lines), text.name, options.gold)
                                   : std::move(text.lines));
  return input;
}

// BLEU counts words of running text; words that stand apart from their full stop already have been
// through a tokenizer, and the score will not compare with anybody's.
void warn_of_tokenized(const Options& options, const Text& system) {
  constexpr auto kMany = 100;
  const auto tokenized = std::count_if(system.lines.begin(), system.lines.end(),
                                       [](const auto& line) { return line.ends_with(" ."); });
  const auto& metrics = options.metrics;
  if (tokenized >= kMany && options.bleu.tokenizer != "none" &&
      std::find(metrics.begin(), metrics.end(), "bleu") != metrics.end())
    std::cerr << "heed: warning: " << tokenized << " lines of " << system.name
              << " end in ' .'; BLEU wants running text, so join the words first"
                 " (or say --tokenize none)\n";
}

ScoreReport report(const Metric& metric, const Statistics& sums) {
  return {metric.name(), metric.score(sums), {}, metric.details(sums)};
}

double rounded(double value, int digits) {
  return std::stod(number_text({.name = "", .value = value}, digits));
}

Json to_json(const ScoreReport& score, const std::string& signature, int digits) {
  Json out{{"name", score.name}, {"score", rounded(score.value, digits)}, {"signature", signature}};
  if (score.confidence && score.confidence->mean > 0) {
    out["confidence_mean"] = rounded(score.confidence->mean, digits);
    out["confidence_var"] = rounded(score.confidence->half_width, digits);
    const std::string number = number_text(score, digits);  // 61.2 (μ = 60.5 ± 20.4)
    const size_t open = number.find('(');
    out["confidence"] = number.substr(open + 1, number.size() - open - 2);
  }
  if (!score.details.empty()) out["verbose_score"] = score.details;
  for (size_t at = 0; at < signature.size();) {
    const size_t colon = signature.find(':', at);
    const size_t end = std::min(signature.find('|', at), signature.size());
    out[signature.substr(at, colon - at)] = signature.substr(colon + 1, end - colon - 1);
    at = end + 1;
  }
  return out;
}

void print_sentences(const Options& options, const Input& input,
                     const std::vector<std::unique_ptr<Metric>>& metrics) {
  std::vector<std::vector<Statistics>> all;
  for (const auto& metric : metrics)
    all.push_back(statistics(*metric, input.systems[0].lines, input.references));
  for (size_t i = 0; i < input.systems[0].lines.size(); ++i) {
    std::string line;
    Json json{{"line", i + 1}};
    for (size_t m = 0; m < metrics.size(); ++m) {
      const ScoreReport score = report(*metrics[m], all[m][i]);
      const std::string sig = signature(*metrics[m], options.circumstances(), options.form());
      json[score.name] = rounded(score.value, options.digits);
      line += m > 0 ? "\t" : "";
      line += options.score_only ? number_text(score, options.digits)
                                 : score_text(score, sig, options.digits);
    }
    std::cout << (options.json ? json.dump() : line) << '\n';
  }
}

// One system: a line a metric, set below each other at the equals sign.
void print_system(const Options& options, const Input& input,
                  const std::vector<std::unique_ptr<Metric>>& metrics) {
  std::vector<std::string> blocks;
  size_t left = 0;
  for (const auto& metric : metrics) {
    const auto lines = statistics(*metric, input.systems[0].lines, input.references);
    ScoreReport score = report(*metric, sum_statistics(lines));
    if (options.bootstrap > 0)
      score.confidence = confidence(resample(*metric, lines, options.bootstrap, options.seed));
    const SignatureForm form = options.json ? SignatureForm::full : options.form();
    const std::string sig = signature(*metric, options.circumstances(), form);
    blocks.push_back(options.json         ? to_json(score, sig, options.digits).dump(1)
                     : options.score_only ? number_text(score, options.digits)
                                          : score_text(score, sig, options.digits));
    left = std::max(left, std::min(blocks.back().find(" ="), blocks.back().size()));
  }
  const bool array = options.json && blocks.size() > 1;
  if (array) std::cout << "[\n";
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!options.json && !options.score_only)
      std::cout << std::string(left - blocks[i].find(" ="), ' ');
    std::cout << blocks[i] << (array && i + 1 < blocks.size() ? ",\n" : "\n");
  }
  if (array) std::cout << "]\n";
}

// One cell of the table of several systems.
struct Result {
  ScoreReport score;
  std::optional<double> p_value;
};

// One metric, all systems; the first is what the others are tested against.
std::vector<Result> compare(const Options& options, const Input& input, const Metric& metric) {
  std::vector<Result> results;
  std::vector<Statistics> baseline;
  std::vector<double> baseline_scores;
  for (const Text& system : input.systems) {
    const auto lines = statistics(metric, system.lines, input.references);
    Result result{report(metric, sum_statistics(lines)), {}};
    std::vector<double> scores;
    if (options.bootstrap > 0) {
      scores = resample(metric, lines, options.bootstrap, options.seed);
      result.score.confidence = confidence(scores);
    }
    if (results.empty()) {
      baseline = lines;
      baseline_scores = scores;
    } else if (options.bootstrap > 0) {
      const double difference = result.score.value - results[0].score.value;
      result.p_value = bootstrap_p_value(baseline_scores, scores, difference);
    } else if (options.randomization > 0) {
      result.p_value =
          randomization_p_value(metric, baseline, lines, options.randomization, options.seed);
    }
    results.push_back(std::move(result));
  }
  return results;
}

std::string cell_text(const Result& result, int digits) {
  std::string text = number_text(result.score, digits);
  if (!result.p_value) return text;
  char p[32];
  std::snprintf(p, sizeof p, " p = %.4f%s", *result.p_value, *result.p_value < 0.05 ? " *" : "");
  return text + p;
}

Json cell_json(const Options& options, const Result& result) {
  if (!options.paired()) return number_text(result.score, options.digits);
  const auto& interval = result.score.confidence;
  return Json{{"score", result.score.value},
              {"p_value", result.p_value ? Json(*result.p_value) : Json()},
              {"mean", interval ? Json(interval->mean) : Json()},
              {"ci", interval ? Json(interval->half_width) : Json()}};
}

void print_table(const std::vector<std::vector<std::string>>& columns) {
  for (size_t row = 0; row < columns[0].size(); ++row) {
    std::string line;
    for (const auto& column : columns) {
      int width = 0;
      for (const std::string& cell : column) width = std::max(width, display_width(cell));
      line += column[row] +
              std::string(static_cast<size_t>(width + 2 - display_width(column[row])), ' ');
    }
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

void print_systems(const Options& options, const Input& input,
                   const std::vector<std::unique_ptr<Metric>>& metrics) {
  std::vector<std::vector<std::string>> columns{{"System"}};
  Json rows = Json::array();
  for (const Text& system : input.systems) {
    const bool baseline = options.paired() && rows.empty();
    columns[0].push_back((baseline ? "Baseline: " : "") + system.name);
    rows.push_back({{"system", columns[0].back()}});
  }
  for (const auto& metric : metrics) {
    columns.push_back({metric->name()});
    size_t row = 0;
    for (const Result& result : compare(options, input, *metric)) {
      columns.back().push_back(cell_text(result, options.digits));
      rows[row++][metric->name()] = cell_json(options, result);
    }
  }
  if (options.json) {
    std::cout << rows.dump(4, ' ', true) << '\n';
    return;
  }
  print_table(columns);
  if (options.score_only) return;
  std::cout << '\n';
  for (const auto& metric : metrics)
    std::cout << metric->name() << '|'
              << signature(*metric, options.circumstances(), options.form()) << '\n';
}

// What can only be seen with all flags at hand.
void check_usage(const Options& options) {
  const auto demand = [](bool holds, const char* words) {
    if (!holds) throw CLI::ValidationError("score", words);
  };
  const auto from_stdin = std::ranges::count(options.hypotheses, "-");
  demand(from_stdin + std::ranges::count(options.references, "-") <= 1,
         "standard input (-) can be read once; give files");
  demand(from_stdin == 0 || !::isatty(STDIN_FILENO),
         "a hypothesis is wanted, as a file or on standard input");
  const auto alignments = std::count(options.metrics.begin(), options.metrics.end(), "aer");
  demand(alignments == 0 || alignments == std::ssize(options.metrics),
         "aer reads alignments, the other metrics read text; ask for them one after the other");
  demand(alignments == 0 || options.references.size() == 1,
         "aer wants one gold alignment; possible links are marked in it, as 3p4");
  demand(!(options.gold.from_one && options.gold.from_zero),
         "--one-based and --zero-based exclude each other");
  demand(alignments > 0 || !(options.gold.from_one || options.gold.from_zero),
         "--one-based and --zero-based are of the gold alignment of aer");
  demand(!options.sentence || (options.hypotheses.size() == 1 && options.bootstrap == 0),
         "--sentence takes one hypothesis and no --bootstrap");
  demand(options.randomization == 0 || options.hypotheses.size() > 1,
         "--randomization compares systems: give two hypotheses or more, the baseline first");
}

void run(Options options) {
  if (options.hypotheses.empty()) options.hypotheses = {"-"};
  check_usage(options);
  std::vector<std::unique_ptr<Metric>> metrics;
  for (const std::string& name : options.metrics) metrics.push_back(make_metric(name, options));
  const Input input = read_input(options);
  for (const Text& system : input.systems) warn_of_tokenized(options, system);
  if (options.sentence)
    print_sentences(options, input, metrics);
  else if (input.systems.size() == 1)
    print_system(options, input, metrics);
  else
    print_systems(options, input, metrics);
}

// A name of a table; any other is told with the nearest one.
CLI::Validator one_of(const std::string& kind, const std::vector<std::string>& known) {
  return CLI::Validator(
      [kind, known](const std::string& given) {
        const bool found = std::find(known.begin(), known.end(), given) != known.end();
        return found ? std::string() : unknown_name(kind, given, known);
      },
      "", kind);
}

void add_metric_options(CLI::App& score, Options& options) {
  score.add_option("-m,--metric", options.metrics, "bleu, chrf, chrf++, ter, aer")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(one_of("metric", kMetrics))
      ->default_str("bleu");
  score.add_option("--tokenize", options.bleu.tokenizer, "BLEU: 13a, none, intl, char, zh")
      ->check(one_of("tokenizer", bleu_tokenizer_names()));
  score.add_flag("--lowercase", options.lowercase, "BLEU, chrF: ignore case (TER does anyway)");
  score.add_option("--smooth", options.smoothing, "BLEU: none, floor, add-k, exp")
      ->check(one_of("smoothing", kSmoothings));
  score.add_option("--smooth-value", options.bleu.smooth_value, "BLEU: of floor (0.1), add-k (1)")
      ->check(above_zero());
  score.add_option("--chrf-char-order", options.chrf.char_order, "chrF: longest n-gram")
      ->check(CLI::Range(1, 100));
  score.add_option("--chrf-word-order", options.chrf.word_order, "chrF: words; 2 is chrF++")
      ->check(CLI::Range(0, 100));
  score.add_option("--chrf-beta", options.chrf.beta, "chrF: weight of recall")
      ->check(CLI::Range(1, 1000));
  score.add_flag("--chrf-whitespace", options.chrf.whitespace, "chrF: count white space");
  score.add_flag("--chrf-eps-smoothing", options.chrf.eps_smoothing, "chrF: as NLTK and Moses do");
  score.add_flag("--one-based", options.gold.from_one, "AER: the gold file counts words from 1");
  score.add_flag("--zero-based", options.gold.from_zero,
                 "AER: it counts from 0, although no link has a 0");
  score.add_flag("--ter-normalized", options.ter.normalized, "TER: set punctuation off first");
  score.add_flag("--ter-no-punct", options.ter.no_punctuation, "TER: drop punctuation");
  score.add_flag("--ter-asian-support", options.ter.asian_support, "TER: both for Asian scripts");
  score.add_flag("--ter-case-sensitive", options.ter.case_sensitive, "TER: keep case");
}

}  // namespace

void add_score(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* score = app.add_subcommand(
      "score",
      "BLEU, chrF, TER of translations, AER of alignments\n"
      "Examples:\n"
      "  heed score --reference ref.txt <hyp.txt               BLEU, as sacreBLEU gives it\n"
      "  heed score -r ref1.gz -r ref2.gz hyp.txt -m bleu,chrf++,ter\n"
      "  heed score -r ref.txt hyp.txt --bootstrap 1000        with a 95 % interval\n"
      "  heed score -r ref.txt old.txt new.txt --bootstrap 1000    is new better than old?\n"
      "  heed score -r ref.txt hyp.txt --sentence -m chrf -b   a number for each line\n"
      "  heed score --metric aer -r gold.txt <alignments       alignment error rate\n");
  score
      ->add_option("hypothesis", options->hypotheses,
                   "translations, one sentence a line, plain or packed (default: standard input)")
      ->default_str("");
  score
      ->add_option("-r,--reference", options->references,
                   "what they should be; may be given several times")
      ->required()
      ->allow_extra_args(false)
      ->default_str("");
  add_metric_options(*score, *options);
  score->add_flag("--sentence", options->sentence, "score each line, not the whole");
  CLI::Option* const bootstrap =
      score
          ->add_option("--bootstrap", options->bootstrap,
                       "draw so many samples: an interval, and for several systems p-values")
          ->check(CLI::Range(2, 10000000))
          ->default_str("");
  score
      ->add_option("--randomization", options->randomization,
                   "compare systems by approximate randomization, in so many trials")
      ->check(CLI::Range(1, 10000000))
      ->default_str("")
      ->excludes(bootstrap);
  score->add_option("--seed", options->seed, "of what is drawn");
  score->add_flag("--json", options->json, "sacreBLEU's JSON");
  score->add_flag("--short", options->brief, "a short signature");
  score->add_flag("-b,--score-only", options->score_only, "only the numbers");
  options->bad.add_flag(*score);
  score->add_option("-w,--width", options->digits, "digits behind the point")
      ->check(CLI::Range(0, 17));
  score->callback([options] { run(*options); });
}

}  // namespace heed::apps
