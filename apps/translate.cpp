// heed translate: lines in, translations out, in the same order. heed align: given pairs, their
// alignment.
#include <cstdio>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>

#include "apps/bad_lines.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "heed/base/check.h"
#include "heed/data/alignment.h"
#include "heed/files/lines.h"
#include "heed/metrics/metrics.h"
#include "heed/training/choose_head.h"
#include "heed/translation/translator.h"

namespace heed::apps {
namespace {

struct Options {
  std::string folder, source, target, alignment, prefixes, gold;
  TranslateOptions translate;
  bool json = false, scores = false;
  // Lines read at a time, and no fewer than 32 batches: after the last of them slots run empty.
  int64_t chunk = 2000;
  BadLines bad;
  Machine machine;
};

const std::vector<std::string> kForms = {"pharaoh", "soft"};

// "0.91,0.05,... 0.1,...": for each target piece, and the end, the weights on all source pieces and
// the end.
std::string soft(const std::vector<std::vector<float>>& weights) {
  std::string out;
  for (const std::vector<float>& row : weights) {
    if (!out.empty()) out += ' ';
    for (size_t j = 0; j < row.size(); ++j) {
      char number[32];
      std::snprintf(number, sizeof number, "%s%.4g", j ? "," : "", double(row[j]));
      out += number;
    }
  }
  return out;
}

nlohmann::ordered_json to_json(const ModelFolder& model, const Translation& t) {
  nlohmann::ordered_json out{{"source", t.source.text},
                             {"source_pieces", model.tokenizers.source->pieces(t.source.ids)}};
  for (const Translation::Candidate& c : t.candidates) {
    nlohmann::ordered_json one{{"text", c.text},
                               {"pieces", model.tokenizers.target->pieces(c.target.ids)},
                               {"log_probability", c.log_probability},
                               {"score", c.score}};
    if (!c.weights.empty()) {
      one["weights"] = c.weights;
      one["alignment"] = to_pharaoh(word_alignment(t.source, c.target, c.weights));
    }
    out["translations"].push_back(one);
  }
  return out;
}

void print(const Options& o, const ModelFolder& model, const Translation& t, bool with_text) {
  if (o.json) {
    std::printf("%s\n", to_json(model, t).dump().c_str());
    return;
  }
  // So many lines for every line, so that whoever reads them knows which they belong to: where
  // there are fewer translations, as of an empty line, lines without words and of probability 0.
  std::vector<Translation::Candidate> all = t.candidates;
  Translation::Candidate none;
  none.log_probability = -std::numeric_limits<double>::infinity();
  all.resize(static_cast<size_t>(o.translate.search.best), none);
  for (const Translation::Candidate& c : all) {
    std::string line = with_text ? c.text : "";
    // Pieces can be drawn that write a newline; a translation is a line.
    std::replace(line.begin(), line.end(), '\n', ' ');
    bool first = !with_text;
    const auto add = [&](const std::string& field) {
      if (!first) line += '\t';
      line += field;
      first = false;
    };
    if (o.alignment == "pharaoh") add(to_pharaoh(word_alignment(t.source, c.target, c.weights)));
    if (o.alignment == "soft") add(soft(c.weights));
    if (o.scores) {
      char number[32];
      std::snprintf(number, sizeof number, "%.6f", c.log_probability);
      add(number);
    }
    std::cout << line << '\n';  // a line may have a zero byte
  }
}

void warn_of_cuts(const std::vector<Translation>& found, int64_t first, int64_t most) {
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i].cut)
      std::fprintf(
          stderr,
          "heed: line %lld has more than %lld pieces; the rest was left out (--max-length)\n",
          static_cast<long long>(first + static_cast<int64_t>(i) + 1),
          static_cast<long long>(most));
}

void prepare(const Options& o) {
  want(!o.folder.empty(), "--model is required, a folder that 'heed train' made");
  if (!o.alignment.empty() && std::find(kForms.begin(), kForms.end(), o.alignment) == kForms.end())
    want(false, unknown_name("alignment", o.alignment, kForms));
  want(o.translate.search.sample || o.translate.search.best <= o.translate.search.beam,
       "--best cannot be more than --beam");
  want(!o.translate.search.sample || o.translate.search.best == 1,
       "--sample draws one translation of a line; --best is for searches");
  as_usage([&] { check(o.translate.search); });
  use(o.machine);
}

std::string place_of(const LineReader& reader) {
  return reader.name() + ": line " + std::to_string(reader.position().line);
}

void translate(Options o) {
  prepare(o);
  const Translator translator(o.folder);
  if (!o.alignment.empty() || (o.json && has_attention(translator.model().config)))
    o.translate.search.want_weights = true;
  o.chunk = std::max(o.chunk, 32 * translator.batch(o.translate));
  LineReader reader(o.source.empty() ? "-" : o.source);
  std::optional<LineReader> prefixes;
  if (!o.prefixes.empty()) prefixes.emplace(o.prefixes);
  StatusLine status;
  int64_t before = 0;
  const BadLine bad = o.bad.told();
  std::optional<Error> broken;  // by a line that is not to be translated; those before it are
  for (bool more = true; more;) {
    std::vector<std::string> lines;
    while (static_cast<int64_t>(lines.size()) < o.chunk) try {
        std::optional<std::string> line = reader.next();
        more = line.has_value();
        if (!more) break;
        lines.push_back(as_text(std::move(*line), place_of(reader), bad));
      } catch (const Error& error) {
        broken = error, more = false;
        break;
      }
    if (prefixes) {
      o.translate.search.prefixes.clear();
      for (size_t i = 0; i < lines.size(); ++i) {
        std::optional<std::string> given = prefixes->next();
        const int64_t number = before + static_cast<int64_t>(i) + 1;
        require(given.has_value(), o.prefixes, ": ends before line ", number,
                ", which the text has; it wants a line for each, which may be empty");
        const std::string prefix = as_text(std::move(*given), place_of(*prefixes), bad);
        if (const int64_t n = unknown_pieces(*translator.model().tokenizers.target, prefix))
          std::fprintf(stderr,
                       "heed: %s: line %lld has %lld piece%s that the model does not know\n",
                       o.prefixes.c_str(), static_cast<long long>(number),
                       static_cast<long long>(n), n > 1 ? "s" : "");
        o.translate.search.prefixes.push_back(
            translator.model().tokenizers.target->encode(prefix).ids);
      }
    }
    o.translate.progress = [&](int64_t done) {
      status.show(std::to_string(before + done) + " lines translated");
    };
    o.translate.first_line = before + 1;
    const std::vector<Translation> found = translator.translate(lines, o.translate);
    status.clear();
    warn_of_cuts(found, before, translator.longest(o.translate));
    for (const Translation& t : found) print(o, translator.model(), t, true);
    std::fflush(stdout);
    before += static_cast<int64_t>(lines.size());
  }
  o.bad.sum_up();
  if (broken) throw *broken;
  require(!prefixes || !prefixes->next(), o.prefixes, ": has more lines than the text, which has ",
          before);
}

void choose_head(const Options& o, const Translator& translator,
                 const std::vector<std::string>& sources, const std::vector<std::string>& targets) {
  const std::vector<std::string> gold = read_lines(o.gold);
  require(gold.size() == sources.size(), o.source, " has ", sources.size(), " lines, ", o.gold,
          " has ", gold.size());
  for (size_t i = 0; i < gold.size(); ++i) {
    try {
      parse_gold_alignment(gold[i]);
    } catch (const Error& error) {
      fail(o.gold, ": line ", i + 1, ": ", error.what());
    }
  }
  const std::vector<HeadError> errors =
      head_errors(translator, sources, targets, gold, o.translate);
  const auto name = [](int64_t head) { return head < 0 ? "mean" : std::to_string(head); };
  std::printf("layer  head   AER\n");
  for (const HeadError& e : errors)
    std::printf("%5lld  %4s %5.1f\n", static_cast<long long>(e.head.layer),
                name(e.head.head).c_str(), e.aer);
  require(best_head(errors).aer < 100, o.gold,
          ": no head finds any of its links; are they of these pairs? Nothing was kept");
  const AlignmentHead best = best_head(errors).head;
  keep_alignment(o.folder, best);
  std::fprintf(stderr, "layer %lld, head %s aligns best; %s keeps it\n",
               static_cast<long long>(best.layer), name(best.head).c_str(),
               (translator.model().path / "config.json").string().c_str());
}

void align(Options o) {
  prepare(o);
  want(!o.source.empty() && !o.target.empty(), "--source and --target are required");
  if (o.alignment.empty()) o.alignment = "pharaoh";
  o.translate.search.want_weights = true;
  const Translator translator(o.folder);
  require(has_attention(translator.model().config), o.folder,
          ": a model without attention; it cannot align");
  const std::vector<std::string> sources = read_text(o.source), targets = read_text(o.target);
  require(sources.size() == targets.size(), o.source, " has ", sources.size(), " lines, ", o.target,
          " has ", targets.size());
  if (!o.gold.empty()) return choose_head(o, translator, sources, targets);
  StatusLine status;
  o.translate.progress = [&](int64_t done) {
    status.show(std::to_string(done) + " of " + std::to_string(sources.size()) + " pairs aligned");
  };
  const std::vector<Translation> found = translator.score(sources, targets, o.translate);
  status.clear();
  warn_of_cuts(found, 0, translator.longest(o.translate));
  for (const Translation& t : found) print(o, translator.model(), t, false);
}

void add_common(CLI::App& command, const std::shared_ptr<Options>& o) {
  command.add_option("--model", o->folder, "the model's folder");
  command.add_option("--batch", o->translate.batch, "sentences at a time; changes no result")
      ->check(above_zero())
      ->default_str("32, on a GPU 256");
  command
      .add_option("--batch-tokens", o->translate.batch_tokens,
                  "of long sentences fewer: times the longest source times --beam, so many tokens "
                  "at a time; bounds memory on a CPU, and changes no result")
      ->check(above_zero());
  command
      .add_option("--layer", o->translate.search.layer,
                  "whose weights align (-1: the last; default: as 'align --choose' chose)")
      ->check(CLI::Range(-1, 1000000));
  command
      .add_option("--head", o->translate.search.head,
                  "whose weights align (-1: the mean of all; default: as chosen)")
      ->check(CLI::Range(-1, 1000000));
  command.add_option("--max-length", o->translate.max_length, "longer sources are cut (pieces)")
      ->check(above_zero());
  command.add_flag("--json", o->json, "a JSON object a line: pieces, weights, scores");
  command.add_flag("--scores", o->scores, "the log-probability behind a tab");
  add_machine_flags(command, o->machine);
}

}  // namespace

void add_translate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "translate",
      "translate text, line by line\n"
      "Examples:\n"
      "  heed translate --model m < text.en > text.de\n"
      "  heed translate --model m --alignment pharaoh < text.en     with word links behind a tab\n"
      "  heed translate --model m --beam 10 --best 5 --scores < text.en\n"
      "  heed translate --model m --sample --temperature 0.8 --top-k 20 < text.en\n");
  command->add_option("--input", o->source, "a file instead of standard input (plain or gzip)");
  SearchOptions& s = o->translate.search;
  command->add_option("--beam", s.beam, "hypotheses kept; 1 is greedy search")
      ->check(CLI::Range(1, 1000));
  command->add_option("--best", s.best, "so many lines for each line, the best translation first")
      ->check(CLI::Range(1, 1000));
  command->add_option("--normalize", s.normalize, "scores are divided by length to this power");
  command->add_option("--coverage", s.coverage, "how much unread source words cost");
  command->add_option("--min-length", s.min_length,
                      "pieces at least, where --max-ratio lets there be");
  command->add_option("--max-ratio", s.max_ratio,
                      "pieces at most: this times the source's, and 20");
  command->add_option("--no-repeat", s.no_repeat, "no n-gram of this length twice");
  command->add_option("--prefix", o->prefixes, "a file: what each translation must begin with");
  command->add_option("--alignment", o->alignment, "behind a tab: pharaoh or soft");
  command->add_flag("--replace-unk", o->translate.replace_unknown,
                    "an unknown word becomes the source word that it attends to most");
  command->add_flag("--sample", s.sample, "draw words instead of searching");
  command->add_option("--temperature", s.temperature, "of sampling");
  command->add_option("--top-k", s.top_k, "sampling: only the likeliest so many words");
  command->add_option("--top-p", s.top_p, "sampling: only words that make up this probability");
  command->add_option("--seed", s.seed, "of sampling");
  o->bad.add_flag(*command);
  add_common(*command, o);
  command->callback([o] { translate(*o); });
}

void add_align(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "align",
      "align the words of given pairs\n"
      "Examples:\n"
      "  heed align --model m --source a.en --target a.de > links\n"
      "  heed align --model m --source a.en --target a.de --alignment soft\n"
      "  heed align --model m --source a.en --target a.de --choose gold.align\n");
  command->add_option("--source", o->source, "source sentences");
  command->add_option("--target", o->target, "their translations");
  command->add_option("--alignment", o->alignment, "pharaoh or soft")->default_str("pharaoh");
  command->add_option("--choose", o->gold,
                      "the pairs' true links: measure every layer and head by them, and keep the "
                      "best in the model's folder");
  add_common(*command, o);
  command->callback([o] { align(*o); });
}

}  // namespace heed::apps
