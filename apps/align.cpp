// heed align: links between the words of given pairs, by a statistical aligner that learns from
// them or has learnt before, by a translator's weights, or from two files of links.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <limits>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/translator_flags.h"
#include "heed/alignment/aligner.h"
#include "heed/alignment/symmetrize.h"
#include "heed/base/check.h"
#include "heed/base/words.h"
#include "heed/data/alignment.h"
#include "heed/files/atomic_file.h"
#include "heed/files/lines.h"
#include "heed/metrics/metrics.h"
#include "heed/training/choose_head.h"

namespace heed::apps {
namespace {

using Lines = std::vector<std::string>;

constexpr const char* kAgreement = "agreement";  // --choose, in place of a file

struct Options : TranslatorFlags {
  std::string source, target, reverse_folder, forward, backward, gold;
  std::string save, use, lexicon, combine;
  bool reverse = false, one_based = false, zero_based = false, keep_case = false;
  AlignerOptions aligner;

  bool by_files() const { return !forward.empty() || !backward.empty(); }
  bool by_model() const { return !folder.empty(); }
  bool by_two() const { return by_files() || !reverse_folder.empty(); }
};

struct Pairs {
  Lines source, target;
};

Pairs read_pairs(const Options& o) {
  Pairs pairs{read_text(o.source), read_text(o.target)};
  require(pairs.source.size() == pairs.target.size(), o.source, " has ", pairs.source.size(),
          " lines, ", o.target, " has ", pairs.target.size());
  return pairs;
}

// As the flags want them: target first, counted from 1.
std::string written(const Options& o, Links links) {
  if (o.reverse) links = reversed_links(links);
  if (o.one_based)
    for (Link& link : links) ++link.source, ++link.target;
  return to_pharaoh(links);
}

void print(const Options& o, const std::vector<Links>& all) {
  for (const Links& links : all) std::cout << written(o, links) << '\n';
}

// What can be known of links without a gold alignment: how far two directions agree, and how many
// words have no link.
void tell_quality(const Agreement& agreement, const Pairs& pairs, const std::vector<Links>& all) {
  int64_t words[2] = {}, without[2] = {};
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<bool> linked[2] = {std::vector<bool>(split_words(pairs.source[i]).size()),
                                   std::vector<bool>(split_words(pairs.target[i]).size())};
    for (const Link& link : all[i])
      linked[0].at(static_cast<size_t>(link.source)) =
          linked[1].at(static_cast<size_t>(link.target)) = true;
    for (const int side : {0, 1}) {
      words[side] += std::ssize(linked[side]);
      without[side] += std::ranges::count(linked[side], false);
    }
  }
  if (words[0] == 0 || words[1] == 0) return;
  std::fprintf(stderr,
               "the two directions agree on %.1f %% of their links; without a link are %.1f %% of "
               "the source's words and %.1f %% of the target's\n",
               100 * agreement.share(), 100.0 * double(without[0]) / double(words[0]),
               100.0 * double(without[1]) / double(words[1]));
}

// ---- by statistics

void write_lexicon(const std::string& path, const WordAligner& aligner) {
  AtomicFile file(path);
  std::string text;
  for (const LexiconEntry& entry : aligner.lexicon()) {
    char number[32];
    std::snprintf(number, sizeof number, "\t%.4f\n", entry.probability);
    text += entry.source + '\t' + entry.target + number;
  }
  file.write(text);
  file.commit();
}

void tell_too_long(const AlignedPairs& aligned) {
  if (aligned.too_long > 0)
    std::fprintf(stderr,
                 "heed: %lld lines have more than 2,048 words and marks; they are left out\n",
                 static_cast<long long>(aligned.too_long));
}

// As the flags want it, with progress on `status`.
AlignerOptions aligner_options(const Options& o, StatusLine& status) {
  AlignerOptions out = o.aligner;
  out.lower_case = !o.keep_case;
  take_threshold(out, o.translate.extract);
  out.progress = [&](const AlignerProgress& p) {
    status.show(std::string(p.stage) + ": pass " + std::to_string(p.pass) + " of " +
                std::to_string(p.passes) + ", " + std::to_string(p.done) + " of " +
                std::to_string(p.pairs) + " pairs");
  };
  return out;
}

void align_by_statistics(const Options& o) {
  StatusLine status;
  const AlignerOptions options = aligner_options(o, status);
  if (!o.use.empty()) {
    const WordAligner aligner = WordAligner::load(o.use);
    if (!o.lexicon.empty()) write_lexicon(o.lexicon, aligner);
    if (o.source.empty()) return;
    const Pairs pairs = read_pairs(o);
    const AlignedPairs aligned = aligner.align(pairs.source, pairs.target, options);
    status.clear();
    tell_too_long(aligned);
    print(o, aligned.links);
    return tell_quality(aligned.agreement, pairs, aligned.links);
  }
  const Pairs pairs = read_pairs(o);
  const LearntAlignment learnt = WordAligner::learn(pairs.source, pairs.target, options);
  status.clear();
  tell_too_long(learnt);
  if (!o.save.empty()) learnt.aligner.save(o.save);
  if (!o.lexicon.empty()) write_lexicon(o.lexicon, learnt.aligner);
  print(o, learnt.links);
  tell_quality(learnt.agreement, pairs, learnt.links);
}

// ---- from files

std::vector<Links> read_links(const std::string& path) {
  std::vector<Links> out;
  for (const std::string& line : read_lines(path)) {
    std::optional<Links> links = parse_pharaoh(line);
    require(links.has_value(), path, ": line ", out.size() + 1,
            ": not links; wanted: source-target, as 3-4, with spaces between");
    for (Link& link : *links) link.weight = 1;  // a link of one file is the same link in the other
    out.push_back(std::move(*links));
  }
  return out;
}

void combine_files(const Options& o) {
  const std::vector<Links> forward = read_links(o.forward), backward = read_links(o.backward);
  require(forward.size() == backward.size(), o.forward, " has ", forward.size(), " lines, ",
          o.backward, " has ", backward.size());
  for (size_t i = 0; i < forward.size(); ++i)
    std::cout << written(o, combine(forward[i], backward[i], o.aligner.combine)) << '\n';
}

// ---- by a translator's weights

// The links that heads are measured by: those of a file or, for --choose agreement, those that the
// statistical aligner learns from the very pairs.
Lines links_to_find(const Options& o, const Pairs& pairs) {
  if (o.gold != kAgreement) {
    Lines gold = read_lines(o.gold);
    require(gold.size() == pairs.source.size(), o.source, " has ", pairs.source.size(), " lines, ",
            o.gold, " has ", gold.size());
    return zero_based_gold(std::move(gold), o.gold,
                           {.from_one = o.one_based, .from_zero = o.zero_based});
  }
  StatusLine status;
  Lines out;
  for (const Links& links :
       WordAligner::learn(pairs.source, pairs.target, aligner_options(o, status)).links)
    out.push_back(to_pharaoh(links));
  return out;
}

void choose_head(const Options& o, const Translator& translator, const Pairs& pairs) {
  const Lines gold = links_to_find(o, pairs);
  const std::vector<HeadError> errors =
      head_errors(translator, pairs.source, pairs.target, gold, o.translate);
  const auto name = [](int64_t head) { return head < 0 ? "mean" : std::to_string(head); };
  const auto threshold = [](const AlignmentHead& head) {
    std::array<char, 16> text = {"none"};  // best has none
    if (head.threshold) std::snprintf(text.data(), text.size(), "%.2f", *head.threshold);
    return std::string(text.data());
  };
  // Of the aligner's links none is known to be right: what is measured is how far it disagrees.
  std::printf("layer  head  shift  threshold   %s\n",
              o.gold == kAgreement ? "disagreement" : "AER");
  for (const HeadError& e : errors)
    std::printf("%5lld  %4s  %5lld  %9s %5.1f%s\n", static_cast<long long>(e.head.layer),
                name(e.head.head).c_str(), static_cast<long long>(e.head.shift),
                threshold(e.head).c_str(), e.aer, e.head.whole ? "  seeing the whole target" : "");
  require(best_head(errors).aer < 100, o.gold,
          o.gold == kAgreement
              ? ": no head has any link of the statistical aligner's. Nothing was kept"
              : ": no head finds any of its links; are they of these pairs? Nothing was kept");
  const AlignmentHead best = best_head(errors).head;
  keep_alignment(o.folder, best);
  std::fprintf(stderr, "layer %lld, head %s, shift %lld%s, threshold %s aligns best; %s keeps it\n",
               static_cast<long long>(best.layer), name(best.head).c_str(),
               static_cast<long long>(best.shift), best.whole ? ", seeing the whole target" : "",
               threshold(best).c_str(), (translator.model().path / "config.json").string().c_str());
}

Translator aligning_translator(const std::string& folder, const Inference& machine) {
  Translator translator(opened(folder, machine));
  require(has_attention(translator.model().config), folder,
          ": a model without attention; it cannot align");
  return translator;
}

std::vector<Translation> scored(Options& o, const Translator& translator, const Lines& sources,
                                const Lines& targets) {
  StatusLine status;
  o.translate.progress = [&](int64_t done) {
    status.show(std::to_string(done) + " of " + std::to_string(sources.size()) + " pairs aligned");
  };
  std::vector<Translation> found = translator.score(sources, targets, o.translate);
  status.clear();
  std::fprintf(stderr, "%s", told_of_cuts(found, 0, translator.longest(o.translate)).c_str());
  return found;
}

void print(const Options& o, const ModelFolder& model, const Translation& t) {
  if (o.json) {
    std::printf("%s\n", to_json(model, t, o.translate.extract).dump().c_str());
    return;
  }
  // An empty line has no translation to score: no links, and probability 0.
  Translation::Candidate c;
  c.log_probability = -std::numeric_limits<double>::infinity();
  if (!t.candidates.empty()) c = t.candidates.front();
  std::string line =
      o.alignment == "soft"
          ? soft(c.weights)
          : written(o, word_alignment(model, t.source, c.target, c.weights, o.translate.extract));
  if (o.scores) {
    char number[32];
    std::snprintf(number, sizeof number, "\t%.6f", c.log_probability);
    line += number;
  }
  std::cout << line << '\n';
}

// Two models, one for each direction: their links combined.
void align_by_two(Options& o, const Translator& translator, const Pairs& pairs,
                  const std::vector<Translation>& found) {
  const Translator reverse = aligning_translator(o.reverse_folder, o.machine);
  const std::vector<Translation> turned = scored(o, reverse, pairs.target, pairs.source);
  const auto links = [&](const Translator& by, const Translation& t) {
    return word_alignment(by.model(), t.source, t.best().target, t.best().weights,
                          o.translate.extract);
  };
  Agreement agreement;
  std::vector<Links> all;
  for (size_t i = 0; i < found.size(); ++i) {
    const Links forward = links(translator, found[i]),
                backward = reversed_links(links(reverse, turned[i]));
    agreement.both += std::ssize(combine(forward, backward, Combine::intersection));
    agreement.either += std::ssize(combine(forward, backward, Combine::unite));
    all.push_back(combine(forward, backward, o.aligner.combine));
  }
  print(o, all);
  tell_quality(agreement, pairs, all);
}

void align_by_model(Options& o) {
  o.translate.search.want_weights = true;
  const Translator translator = aligning_translator(o.folder, o.machine);
  const Pairs pairs = read_pairs(o);
  if (!o.gold.empty()) return choose_head(o, translator, pairs);
  const std::vector<Translation> found = scored(o, translator, pairs.source, pairs.target);
  if (o.reverse_folder.empty()) {
    for (const Translation& t : found) print(o, translator.model(), t);
    return;
  }
  align_by_two(o, translator, pairs, found);
}

// ---- the command

void check_usage(Options& o) {
  const bool learns = !o.by_files() && !o.by_model() && o.use.empty();
  want(int{o.by_files()} + int{o.by_model()} + int{!o.use.empty()} <= 1,
       "links are of --model, of --use, or of --forward and --backward: one of these");
  if (o.by_files()) {
    want(!o.forward.empty() && !o.backward.empty(),
         "--forward and --backward go together: two files of links, source first");
    want(o.source.empty() && o.target.empty(), "--forward and --backward want no text");
  } else if (o.use.empty() || o.lexicon.empty() || !o.source.empty() || !o.target.empty()) {
    want(!o.source.empty() && !o.target.empty(), "--source and --target are required");
  }
  want(o.save.empty() || learns, "--save keeps what was learnt; nothing is learnt here");
  want(o.lexicon.empty() || learns || !o.use.empty(),
       "--lexicon is of a statistical aligner, which learns or has learnt (--use)");
  if (!o.by_model()) {
    want(o.reverse_folder.empty(), "--reverse-model goes with --model");
    want(o.gold.empty(), "--choose is for a --model: which of its heads aligns best");
    want(!o.json && !o.scores && o.alignment != "soft",
         "--json, --scores and --alignment soft are of a translator's weights: they want --model");
  }
  want(o.combine.empty() || !o.by_model() || o.by_two(),
       "--combine joins two directions: give --reverse-model, too, or two files of links");
  want(!o.by_two() || (o.gold.empty() && !o.json && !o.scores && o.alignment != "soft"),
       "--reverse-model gives links alone; no --choose, --json, --scores or --alignment soft");
  want(!o.one_based || !o.zero_based, "--one-based and --zero-based exclude each other");
  want(!(o.json || o.alignment == "soft") || !(o.reverse || o.one_based),
       "--reverse and --one-based are of links; --json and --alignment soft have none of them");
  want(o.gold.empty() || !o.reverse, "--choose prints no links to --reverse");
  want(o.gold != kAgreement || !(o.one_based || o.zero_based),
       "--one-based and --zero-based are of a gold alignment; --choose agreement has none");
  // Two directions' links grow; an aligner that knows probabilities uses them.
  if (o.combine.empty()) o.combine = o.by_two() ? "grow-diag" : "posterior";
  o.aligner.combine = as_usage([&] { return combine_named(o.combine); });
  want(o.aligner.combine != Combine::posterior || !o.by_two(),
       "--combine posterior wants probabilities, and links have none: intersection, union, "
       "grow-diag or grow-diag-final-and");
}

void align(Options o) {
  check_usage(o);
  prepare(o);
  for (const std::string& path : {o.save, o.lexicon}) want_writable(path);
  if (o.by_files()) return combine_files(o);
  if (o.by_model()) return align_by_model(o);
  align_by_statistics(o);
}

void add_aligner_flags(CLI::App& command, const std::shared_ptr<Options>& o) {
  command.add_option("--save", o->save, "keep what was learnt in a file");
  command.add_option("--use", o->use, "align by such a file, without learning");
  command.add_option("--lexicon", o->lexicon,
                     "write source word, target word and probability, tabs between, best first");
  command.add_flag("--keep-case", o->keep_case, "learn 'The' and 'the' as two words");
  command.add_option("--model1", o->aligner.model1, "passes of model 1")
      ->check(CLI::Range(0, 1000));
  command
      .add_option("--hmm", o->aligner.hmm,
                  "passes of the HMM (default: 1, or 2 for less than 2,000 pairs)")
      ->check(CLI::Range(0, 1000))
      ->default_str("");
  command.add_option("--fertility", o->aligner.fertility, "passes with fertilities")
      ->check(CLI::Range(0, 1000));
}

}  // namespace

void add_align(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "align",
      "align the words of given pairs\n"
      "Without --model a statistical aligner learns from the pairs themselves.\n"
      "Examples:\n"
      "  heed align --source a.en --target a.de > links        learn, and align the same\n"
      "  heed align --source a.en --target a.de --save en-de.aligner --lexicon words.tsv > links\n"
      "  heed align --source b.en --target b.de --use en-de.aligner > links\n"
      "  heed align --model m --source a.en --target a.de > links      by a translator's weights\n"
      "  heed align --model m --source a.en --target a.de --alignment soft\n"
      "  heed align --model m --source a.en --target a.de --choose gold.align\n"
      "  heed align --model m --source a.en --target a.de --choose agreement    without gold\n"
      "  heed align --forward f.align --backward b.align --combine grow-diag-final-and\n");
  command->add_option("--source", o->source, "source sentences");
  command->add_option("--target", o->target, "their translations");
  command
      ->add_option("--combine", o->combine,
                   "of two directions: intersection, union, grow-diag, grow-diag-final-and, or by "
                   "probability, posterior (default: posterior; of links grow-diag)")
      ->default_str("");
  command->add_flag("--reverse", o->reverse, "print target-source");
  command->add_flag("--one-based", o->one_based,
                    "print words counted from 1; of --choose, its links are so counted");
  command->add_flag("--zero-based", o->zero_based,
                    "--choose: its links are counted from 0, although none has a 0");
  add_aligner_flags(*command, o);
  command->add_option("--forward", o->forward, "a file of links instead, and");
  command->add_option("--backward", o->backward,
                      "one of the other direction, also source first: combine these");
  command->add_option("--reverse-model", o->reverse_folder,
                      "a translator of the other direction, whose links are combined");
  command->add_option("--alignment", o->alignment, "pharaoh or soft")->default_str("pharaoh");
  command->add_option("--choose", o->gold,
                      "the pairs' true links, a file: measure every layer and head by them, and "
                      "keep the best in the model's folder; agreement: by the links that a "
                      "statistical aligner learns from the pairs");
  add_translator_flags(*command, o);
  command->callback([o] { align(*o); });
}

}  // namespace heed::apps
