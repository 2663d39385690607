// heed translate: lines in, translations out, in the same order; or a whole text.
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <iostream>
#include <limits>

#include "apps/bad_lines.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/ranks.h"
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
  std::vector<std::string> suppress;  // texts that are not said
  std::string end;                    // a piece instead of the model's end
  bool no_unknown = false;
  std::optional<int64_t> max_output;
  std::string output;  // a file instead of standard output
  bool resume = false;
  BadLines bad;
  bool whole = false;  // --text
  std::string format = "text";
  TextOptions text;
};

// The tokens of a text that must be in the vocabulary.
std::vector<Id> known_pieces(const Tokenizer& target, const std::string& flag,
                             const std::string& text) {
  const std::vector<Id> found = target.encode(text).ids;
  want(!found.empty() && std::ranges::find(found, target.special().unknown) == found.end(),
       flag + ": '" + text + "' has a piece that the model's vocabulary does not have");
  return found;
}

// What flags say in words of the model's vocabulary.
void take_words(Options& o, const ModelFolder& model) {
  const Tokenizer& target = *model.tokenizers.target;
  SearchOptions& s = o.translate.search;
  for (const std::string& text : o.suppress)
    s.suppress.push_back(known_pieces(target, "--suppress", text));
  if (!o.end.empty()) {
    const std::vector<Id> found = known_pieces(target, "--end-token", o.end);
    want(found.size() == 1, "--end-token: '" + o.end + "' is " + std::to_string(found.size()) +
                                " pieces; one was wanted");
    o.translate.end = found[0];
  }
  if (o.no_unknown) s.allow_unknown = false;
  if (o.max_output) s.max_ratio = 0, s.max_extra = s.max_length = *o.max_output;
  as_usage([&] { check(s); });
}

// What is written for one line: as many lines as are asked for, so that whoever reads them knows
// which they belong to.
void write(const Options& o, const ModelFolder& model, const Translation& t, std::string& out) {
  if (o.json) {
    out += to_json(model, t, o.translate.extract).dump() + '\n';
    return;
  }
  // Where there are fewer translations, as of an empty line, lines without words and of
  // probability 0.
  std::vector<Translation::Candidate> all = t.candidates;
  Translation::Candidate none;
  none.log_probability = -std::numeric_limits<double>::infinity();
  all.resize(static_cast<size_t>(o.translate.search.best), none);
  for (const Translation::Candidate& c : all) {
    std::string line = c.text;
    // Pieces can be drawn that write a newline; a translation is a line.
    std::replace(line.begin(), line.end(), '\n', ' ');
    if (o.alignment == "pharaoh")
      line += '\t' +
              to_pharaoh(word_alignment(model, t.source, c.target, c.weights, o.translate.extract));
    if (o.alignment == "soft") line += '\t' + soft(c.weights);
    if (o.scores) {
      char number[32];
      std::snprintf(number, sizeof number, "\t%.6f", c.log_probability);
      line += number;
    }
    out += line + '\n';
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

bool has_prompt(const Options& o) {
  return o.interactive && stderr_is_terminal() && o.source.empty();
}

void translate_text(Options o) {
  want(
      o.prefixes.empty() && o.alignment.empty() && !o.json && !o.scores &&
          o.translate.search.best == 1 && o.output.empty(),
      "--text gives one text; --prefix, --alignment, --json, --scores, --best and --output are for "
      "lines");
  want(ranks()->count() == 1, "--text is for one process; several ranks translate lines");
  want(o.format == "text" || o.format == "html",
       "--format is 'text' or 'html', given '" + o.format + "'");
  prepare(o);
  const TextTranslator translator{Translator(opened(o.folder, o.machine))};
  take_search_defaults(o.translate, *o.command, translator.translator().model());
  take_words(o, translator.translator().model());
  if (o.format == "html") o.text.format = TextOptions::Format::html;
  LineReader reader(o.source.empty() ? "-" : o.source);
  if (o.interactive) {  // each line is a text
    o.text.translate = o.translate;
    const bool prompts = has_prompt(o);
    const auto ask = [&] { return prompts ? std::fprintf(stderr, "> ") : 0; };
    for (std::optional<std::string> line; ask(), line = reader.next();) {
      const std::string text = as_text(std::move(*line), place_of(reader), o.bad.told());
      std::cout << translator.translate({text}, o.text)[0].text << std::endl;
    }
    if (prompts) std::fprintf(stderr, "\n");
    return o.bad.sum_up();
  }
  StatusLine status;
  o.translate.progress = [&](int64_t done) {
    status.show(std::to_string(done) + " sentences translated");
  };
  o.text.translate = o.translate;
  const TranslatedText found = translator.translate({read_whole(reader, o.bad.told())}, o.text)[0];
  status.clear();
  std::cout << found.text << std::flush;
  o.bad.sum_up();
}

// Where answers go: standard output, or a file that can be gone on with.
class Answers {
 public:
  explicit Answers(const Options& o) : path_(o.output) {
    if (path_.empty()) return;
    require(o.resume || !std::filesystem::exists(path_) || std::filesystem::is_empty(path_), path_,
            ": is there already; --resume goes on with it, or choose another file");
    if (o.resume) keep_whole_lines(o.json ? 1 : o.translate.search.best);
    file_.open(path_, std::ios::app | std::ios::binary);
    require(file_.good(), path_, ": cannot be written to");
  }
  // Lines of the input that have their answers already.
  int64_t done() const { return done_; }

  void write(const std::string& text) {
    if (path_.empty()) {
      std::cout << text << std::flush;
      return;
    }
    file_ << text << std::flush;
    require(file_.good(), path_, ": cannot be written to; what is there can be gone on with by ",
            "--resume, once there is room");
  }

 private:
  // A run that was killed may have left a part of an answer.
  void keep_whole_lines(int64_t lines_each) {
    if (!std::filesystem::exists(path_)) return;
    std::ifstream file(path_, std::ios::binary);
    std::vector<char> buffer(size_t{1} << 20);
    uint64_t at = 0, keep = 0;
    int64_t lines = 0;
    while (file.read(buffer.data(), std::ssize(buffer)), file.gcount() > 0)
      for (const char* c = buffer.data(); c != buffer.data() + file.gcount(); ++c) {
        ++at;
        if (*c != '\n' || ++lines % lines_each != 0) continue;
        keep = at;
        ++done_;
      }
    std::filesystem::resize_file(path_, keep);
  }

  std::string path_;
  std::ofstream file_;
  int64_t done_ = 0;
};

std::string joined(const std::vector<std::string>& lines, size_t first, size_t last) {
  std::string text;
  for (size_t i = first; i < last; ++i) text += lines[i] + '\n';
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
  }
  return lines;
}

// Lines that were read together, and where they stand in the text.
struct Chunk {
  std::vector<std::string> lines, prefixes;
  int64_t before = 0;
};

struct Answer {
  std::string text, warnings;
};

// With a status line that says how far it is, if one is given.
Answer answer(const Options& o, const Translator& translator, const Chunk& chunk,
              StatusLine* status) {
  const ModelFolder& model = translator.model();
  Answer out;
  TranslateOptions options = o.translate;
  for (size_t i = 0; i < chunk.prefixes.size(); ++i) {
    const Tokenizer& target = *model.tokenizers.target;
    if (const int64_t n = unknown_pieces(target, chunk.prefixes[i]))
      out.warnings += "heed: " + o.prefixes + ": line " +
                      std::to_string(chunk.before + static_cast<int64_t>(i) + 1) + " has " +
                      std::to_string(n) + " piece" + (n > 1 ? "s" : "") +
                      " that the model does not know\n";
    options.search.prefixes.push_back(target.encode(chunk.prefixes[i]).ids);
  }
  if (status)
    options.progress = [&](int64_t done) {
      status->show(std::to_string(chunk.before + done * ranks()->count()) + " lines translated");
    };
  options.first_line = chunk.before + 1;
  const std::vector<Translation> found = translator.translate(chunk.lines, options);
  if (status) status->clear();
  out.warnings += told_of_cuts(found, chunk.before, translator.longest(options));
  for (const Translation& t : found) write(o, model, t, out.text);
  return out;
}

// The first rank's chunk, of which every rank answers its share; the answers are the first's.
Answer answer_together(const Options& o, const Translator& translator, const Chunk& chunk,
                       StatusLine* status) {
  const int n = ranks()->count();
  if (n == 1) return answer(o, translator, chunk, status);
  std::vector<std::string> lines, prefixes, places;
  const auto all = std::ssize(chunk.lines);
  for (int r = 0; r < n; ++r) {
    const auto first = static_cast<size_t>(all * r / n),
               last = static_cast<size_t>(all * (r + 1) / n);
    lines.push_back(joined(chunk.lines, first, last));
    prefixes.push_back(chunk.prefixes.empty() ? "" : joined(chunk.prefixes, first, last));
    places.push_back(std::to_string(chunk.before + static_cast<int64_t>(first)));
  }
  const Chunk mine{.lines = lines_of(ranks()->scatter("lines", lines)),
                   .prefixes = lines_of(ranks()->scatter("prefixes", prefixes)),
                   .before = std::stoll(ranks()->scatter("places", places))};
  const Answer own = answer(o, translator, mine, status);
  Answer out;
  for (const std::string& text : ranks()->collect("translations", own.text)) out.text += text;
  for (const std::string& text : ranks()->collect("warnings", own.warnings)) out.warnings += text;
  return out;
}

void translate(Options o) {
  want(!o.folder.empty(), "--model is required, a folder that 'heed train' made");
  want(!o.resume || !o.output.empty(), "--resume goes on with --output, a file; give it again");
  take_share(o.machine);
  if (o.whole) return translate_text(std::move(o));
  want(o.format == "text" && o.text.source_language.empty(),
       "--format and --language are for whole texts; add --text");
  prepare(o);
  const bool first = ranks()->first();
  std::optional<Answers> answers;
  if (first) answers.emplace(o);
  const Translator translator(opened(o.folder, o.machine));
  take_search_defaults(o.translate, *o.command, translator.model());
  take_words(o, translator.model());
  if (!o.alignment.empty() || (o.json && has_attention(translator.model().config)))
    o.translate.search.want_weights = true;
  // Before a GPU has translated some lines, others are on their way to it.
  const bool ahead =
      !o.interactive && translator.loaded().device() == Device::cuda && ranks()->count() == 1;
  o.chunk = o.interactive ? 1 : std::max(o.chunk, (ahead ? 8 : 32) * translator.batch(o.translate));
  o.chunk *= ranks()->count();
  const bool prompt = has_prompt(o);
  if (prompt) std::fprintf(stderr, "> ");
  std::optional<LineReader> reader, prefixes;
  StatusLine status;
  Chunk chunk;
  if (first) {
    reader.emplace(o.source.empty() ? "-" : o.source);
    if (!o.prefixes.empty()) prefixes.emplace(o.prefixes);
    chunk.before = answers->done();
    const auto done = static_cast<uint64_t>(chunk.before);
    require(reader->skip(done) == done && (!prefixes || prefixes->skip(done) == done), o.output,
            ": has the answers to ", done, " lines, and there are fewer; is it the same text?");
    if (done > 0) std::fprintf(stderr, "going on after line %lld\n", static_cast<long long>(done));
  }
  const BadLine bad = o.bad.told();
  std::optional<Error> broken;  // by a line that is not to be translated; those before it are
  std::deque<std::future<Answer>> under_way;
  const auto wait_for = [&](size_t at_most) {
    for (; under_way.size() > at_most; under_way.pop_front()) {
      const Answer found = under_way.front().get();
      if (!first) continue;
      std::fprintf(stderr, "%s", found.warnings.c_str());
      answers->write(found.text);
    }
  };
  for (char more = 1; more;) {
    chunk.lines.clear(), chunk.prefixes.clear();
    // Where the input pauses, somebody waits for an answer to what he has said so far.
    constexpr std::chrono::milliseconds kPause{10};
    if (!under_way.empty() && !reader->ready(kPause)) wait_for(0);
    while (first && std::ssize(chunk.lines) < o.chunk &&
           (chunk.lines.empty() || reader->ready(kPause)))
      try {
        std::optional<std::string> line = reader->next();
        more = line.has_value();
        if (!more) break;
        chunk.lines.push_back(as_text(std::move(*line), place_of(*reader), bad));
      } catch (const Error& error) {
        broken = error, more = 0;
        break;
      }
    for (size_t i = 0; prefixes && i < chunk.lines.size(); ++i) try {
        std::optional<std::string> given = prefixes->next();
        require(given.has_value(), o.prefixes, ": ends before line ",
                chunk.before + static_cast<int64_t>(i) + 1,
                ", which the text has; it wants a line for each, which may be empty");
        chunk.prefixes.push_back(as_text(std::move(*given), place_of(*prefixes), bad));
      } catch (const Error& error) {
        broken = error, more = 0;
        chunk.lines.resize(i);
      }
    // Who pauses waits for the answers.
    const size_t later = ahead && std::ssize(chunk.lines) == o.chunk ? 2 : 0;
    under_way.push_back(std::async(later > 0 ? std::launch::async : std::launch::deferred,
                                   [&, chunk, shown = later > 0 ? nullptr : &status] {
                                     return answer_together(o, translator, chunk, shown);
                                   }));
    wait_for(later);
    ranks()->broadcast("the end", std::as_writable_bytes(std::span(&more, 1)));
    if (!first) continue;
    chunk.before += std::ssize(chunk.lines);
    if (prompt) std::fprintf(stderr, more ? "> " : "\n");
  }
  wait_for(0);
  o.bad.sum_up();
  if (broken) throw *broken;
  require(!prefixes || !prefixes->next(), o.prefixes, ": has more lines than the text, which has ",
          chunk.before);
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
      "  mpirun -n 4 heed translate --model m --input big.en --output big.de    (make mpi)\n"
      "  heed translate --model m --interactive                         as you type\n"
      "  heed translate --model m --text --language en < letter.txt     sentences are found\n"
      "  heed translate --model m --text --format html < page.html      tags go with their "
      "words\n");
  command->add_option("--input", o->source, "a file instead of standard input (plain or packed)");
  command->add_option("--output", o->output, "a file instead of standard output");
  command->add_flag("--resume", o->resume, "go on with --output after its last whole answer");
  command->add_flag("--interactive", o->interactive, "answer each line before the next is read");
  SearchOptions& s = o->translate.search;
  command->add_option("--beam", s.beam, "hypotheses kept; 1 is greedy search")
      ->check(CLI::Range(1, 1000));
  command->add_option("--best", s.best, "so many lines for each line, the best translation first")
      ->check(CLI::Range(1, 1000));
  command->add_option("--patience", s.patience,
                      "a search ends with this times --beam hypotheses; inf: when none can be "
                      "better any more");
  command
      ->add_option_function<std::string>(
          "--ending",
          [&s](const std::string& name) {
            s.ending = as_usage([&] { return ending_named(name); });
          },
          "when a search ends: patience (and no live hypothesis is better), counted (with that "
          "many, "
          "as CTranslate2), full (Hugging Face's) or shrinking (Marian's)")
      ->default_str("patience");
  command->add_option("--normalize", s.normalize, "scores are divided by length to this power");
  command->add_option("--coverage", s.coverage, "how much unread source words cost");
  command->add_option("--min-length", s.min_length,
                      "pieces at least, where --max-ratio lets there be");
  command->add_option("--max-ratio", s.max_ratio,
                      "pieces at most: this times the source's, and 20");
  command->add_option("--max-output", o->max_output, "pieces at most, whatever the source has")
      ->check(above_zero());
  command->add_option("--no-repeat", s.no_repeat, "no n-gram of this length twice");
  command->add_option(
      "--repetition-penalty", s.repetition_penalty,
      "scores of pieces that were said are divided by it, negative ones multiplied");
  command
      ->add_option("--suppress", o->suppress,
                   "texts that are not said (pieces of the vocabulary); may be given again")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command->add_flag("--no-unknown", o->no_unknown, "unknown pieces are not said");
  command->add_option("--end-token", o->end, "a piece that ends a translation instead of the end");
  add_shortlist_flag(*command, o->machine);
  command->add_flag("--alternatives", s.alternatives,
                    "for each line the --best likeliest pieces after its prefix, and what follows "
                    "each of them best");
  command->add_option("--least-alternative", s.least_alternative,
                      "of --alternatives: pieces that are at least so probable");
  command->add_option("--prefix", o->prefixes, "a file: what each translation must begin with");
  command->add_option("--prefix-bias", s.prefix_bias,
                      "above 0: a prefix is not forced, but has this share of the probability");
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
  add_translator_flags(*command, o);
  command->callback([o] { translate(*o); });
}

}  // namespace heed::apps
