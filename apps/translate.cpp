// heed translate: lines in, translations out, in the same order; or a whole text.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <limits>

#include "apps/bad_lines.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/translator_flags.h"
#include "heed/base/check.h"
#include "heed/data/alignment.h"
#include "heed/files/lines.h"
#include "heed/translation/text_translator.h"
#include "heed/translation/translator.h"

namespace heed::apps {
namespace {

struct Options : TranslatorFlags {
  std::string source, prefixes;
  // Lines read at a time, and no fewer than 32 batches: after the last of them slots run empty.
  int64_t chunk = 2000;
  bool interactive = false;
  BadLines bad;
  bool whole = false;  // --text
  std::string format = "text";
  TextOptions text;
  const CLI::App* command = nullptr;
};

void print(const Options& o, const ModelFolder& model, const Translation& t) {
  if (o.json) {
    std::printf("%s\n", to_json(model, t, o.translate.extract).dump().c_str());
    return;
  }
  // So many lines for every line, so that whoever reads them knows which they belong to: where
  // there are fewer translations, as of an empty line, lines without words and of probability 0.
  std::vector<Translation::Candidate> all = t.candidates;
  Translation::Candidate none;
  none.log_probability = -std::numeric_limits<double>::infinity();
  all.resize(static_cast<size_t>(o.translate.search.best), none);
  for (const Translation::Candidate& c : all) {
    std::string line = c.text;
    // Pieces can be drawn that write a newline; a translation is a line.
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (o.alignment == "pharaoh")
      line += '\t' + to_pharaoh(word_alignment({model.tokenizers, t.source, c.target, c.weights},
                                               o.translate.extract));
    if (o.alignment == "soft") line += '\t' + soft(c.weights);
    if (o.scores) {
      char number[32];
      std::snprintf(number, sizeof number, "\t%.6f", c.log_probability);
      line += number;
    }
    std::cout << line << '\n';  // a line may have a zero byte
  }
}

std::string place_of(const LineReader& reader) {
  return reader.name() + ": line " + std::to_string(reader.position().line);
}

// All of the input, with its line ends, which are what LineReader read more than it gave.
std::string read_whole(LineReader& reader, const BadLine& bad) {
  std::string all;
  for (uint64_t before = reader.position().byte; auto line = reader.next();
       before = reader.position().byte) {
    const uint64_t end = reader.position().byte - before - line->size();
    all += as_text(std::move(*line), place_of(reader), bad);
    all += end == 2 ? "\r\n" : end == 1 ? "\n" : "";
  }
  return all;
}

void translate_text(Options o) {
  want(o.prefixes.empty() && o.alignment.empty() && !o.json && !o.scores &&
           o.translate.search.best == 1 && !o.interactive,
       "--text gives one text; --prefix, --alignment, --json, --scores, --best and --interactive "
       "are "
       "for lines");
  want(o.format == "text" || o.format == "html",
       "--format is 'text' or 'html', given '" + o.format + "'");
  prepare(o);
  const TextTranslator translator{Translator(opened(o.folder, o.machine))};
  take_search_defaults(o.translate.search, *o.command, translator.translator().model());
  if (o.format == "html") o.text.format = TextOptions::Format::html;
  StatusLine status;
  o.translate.progress = [&](int64_t done) {
    status.show(std::to_string(done) + " sentences translated");
  };
  o.text.translate = o.translate;
  LineReader reader(o.source.empty() ? "-" : o.source);
  const TranslatedText found = translator.translate({read_whole(reader, o.bad.told())}, o.text)[0];
  status.clear();
  std::cout << found.text << std::flush;
  o.bad.sum_up();
}

void translate(Options o) {
  want(!o.folder.empty(), "--model is required, a folder that 'heed train' made");
  if (o.whole) return translate_text(std::move(o));
  want(o.format == "text" && o.text.source_language.empty(),
       "--format and --language are for whole texts; add --text");
  prepare(o);
  const Translator translator(opened(o.folder, o.machine));
  take_search_defaults(o.translate.search, *o.command, translator.model());
  if (!o.alignment.empty() || (o.json && has_attention(translator.model().config)))
    o.translate.search.want_weights = true;
  o.chunk = o.interactive ? 1 : std::max(o.chunk, 32 * translator.batch(o.translate));
  const bool prompt = o.interactive && stderr_is_terminal() && o.source.empty();
  if (prompt) std::fprintf(stderr, "> ");
  LineReader reader(o.source.empty() ? "-" : o.source);
  std::optional<LineReader> prefixes;
  if (!o.prefixes.empty()) prefixes.emplace(o.prefixes);
  StatusLine status;
  int64_t before = 0;
  const BadLine bad = o.bad.told();
  std::optional<Error> broken;  // by a line that is not to be translated; those before it are
  for (bool more = true; more;) {
    std::vector<std::string> lines;
    // Where the input pauses, somebody waits for an answer to what he has said so far.
    constexpr std::chrono::milliseconds kPause{10};
    while (static_cast<int64_t>(lines.size()) < o.chunk && (lines.empty() || reader.ready(kPause)))
      try {
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
    for (const Translation& t : found) print(o, translator.model(), t);
    std::cout.flush();
    std::fflush(stdout);
    before += static_cast<int64_t>(lines.size());
    if (prompt) std::fprintf(stderr, more ? "> " : "\n");
  }
  o.bad.sum_up();
  if (broken) throw *broken;
  require(!prefixes || !prefixes->next(), o.prefixes, ": has more lines than the text, which has ",
          before);
}

}  // namespace

void add_translate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "translate",
      "translate text, line by line, or whole texts\n"
      "Examples:\n"
      "  heed translate --model m < text.en > text.de\n"
      "  heed translate --model m --alignment pharaoh < text.en     with word links behind a tab\n"
      "  heed translate --model m --beam 10 --best 5 --scores < text.en\n"
      "  heed translate --model m --sample --temperature 0.8 --top-k 20 < text.en\n"
      "  heed translate --model m --interactive                         as you type\n"
      "  heed translate --model m --text --language en < letter.txt     sentences are found\n"
      "  heed translate --model m --text --format html < page.html      tags go with their "
      "words\n");
  command->add_option("--input", o->source, "a file instead of standard input (plain or gzip)");
  command->add_flag("--interactive", o->interactive, "answer each line before the next is read");
  SearchOptions& s = o->translate.search;
  command->add_option("--beam", s.beam, "hypotheses kept; 1 is greedy search")
      ->check(CLI::Range(1, 1000));
  command->add_option("--best", s.best, "so many lines for each line, the best translation first")
      ->check(CLI::Range(1, 1000));
  command->add_option("--patience", s.patience,
                      "a search ends with this times --beam hypotheses; inf: when none can be "
                      "better any more");
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
  command->add_flag("--text", o->whole,
                    "the input is one text: it is cut into sentences and put together again, and "
                    "addresses, placeholders, emoji and numbers come through as they are");
  command->add_option("--format", o->format, "of --text: text, or html, whose tags are kept");
  command->add_option("--language", o->text.source_language,
                      "of --text: the source's (en, de, fr, ...), for its abbreviations");
  command
      ->add_option("--longest-part", o->text.longest_part,
                   "of --text: a sentence of more pieces is translated in parts")
      ->check(above_zero());
  o->bad.add_flag(*command);
  o->command = command;
  add_translator_flags(*command, o);
  command->callback([o] { translate(*o); });
}

}  // namespace heed::apps
