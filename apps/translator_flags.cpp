#include "apps/translator_flags.h"

#include <algorithm>
#include <cstdio>

#include "heed/base/check.h"

namespace heed::apps {
namespace {

const std::vector<std::string> kForms = {"pharaoh", "soft"};

bool is_given(const CLI::App& command, const char* name) {
  const CLI::Option* const option = command.get_option_no_throw(flag_of(name));
  return option && option->count() > 0;
}

}  // namespace

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

nlohmann::ordered_json to_json(const ModelFolder& model, const Translation& t,
                               const ExtractOptions& extract) {
  nlohmann::ordered_json out{{"source", t.source.text},
                             {"source_pieces", model.tokenizers.source->pieces(t.source.ids)}};
  for (const Translation::Candidate& c : t.candidates) {
    nlohmann::ordered_json one{{"text", c.text},
                               {"pieces", model.tokenizers.target->pieces(c.target.ids)},
                               {"log_probability", c.log_probability},
                               {"score", c.score}};
    if (!c.weights.empty()) {
      one["weights"] = c.weights;
      one["alignment"] = to_pharaoh(word_alignment(model, t.source, c.target, c.weights, extract));
    }
    out["translations"].push_back(one);
  }
  return out;
}

void take_search_defaults(TranslateOptions& options, const CLI::App& command,
                          const ModelFolder& model) {
  std::set<std::string> given;
  fields(model.search, [&](const char* name, const auto&) {
    // --max-length of these commands is of sources.
    if (std::string_view(name) != "max_length" && is_given(command, name)) given.insert(name);
  });
  heed::take_search_defaults(options, model, std::move(given));
}

std::string told_of_cuts(const std::vector<Translation>& found, int64_t first, int64_t most) {
  std::string told;
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i].cut)
      told += "heed: line " + std::to_string(first + static_cast<int64_t>(i) + 1) +
              " has more than " + std::to_string(most) +
              " pieces; the rest was left out (--max-length)\n";
  return told;
}

void add_extract_flags(CLI::App& command, ExtractOptions& extract) {
  command
      .add_option_function<std::string>(
          "--extract",
          [&extract](const std::string& name) {
            extract.how = as_usage([&] { return extract_named(name); });
          },
          "links of weights: best (each target word with the source word that it weighs most), "
          "threshold (all that are likely both ways), or path (so, and words beside each other "
          "look at words beside each other)")
      ->default_str("path");
  command
      .add_option("--threshold", extract.threshold,
                  "how likely a link must be; less gives more links (default: as the model has "
                  "learnt, else 0.35)")
      ->check(CLI::Range(0.0, 1.0));
}

void take_threshold(AlignerOptions& options, const ExtractOptions& extract) {
  if (extract.threshold) options.threshold = static_cast<float>(*extract.threshold);
}

void prepare(const TranslatorFlags& o) {
  if (!o.alignment.empty() && std::find(kForms.begin(), kForms.end(), o.alignment) == kForms.end())
    want(false, unknown_name("alignment", o.alignment, kForms));
  const SearchOptions& s = o.translate.search;
  want(s.sample || s.alternatives || s.best <= s.beam || !is_given(*o.command, "beam"),
       "--best cannot be more than --beam");
  want(!o.translate.search.sample || o.translate.search.best == 1,
       "--sample draws one translation of a line; --best is for searches");
  want(o.translate.search.shift == 0 || o.translate.search.layer || o.translate.search.head,
       "--shift is of the head that --layer and --head name; a model's own has its own");
  as_usage([&] { check(o.translate.search); });
  use(o.machine);
}

void add_translator_flags(CLI::App& command, const std::shared_ptr<TranslatorFlags>& o) {
  o->command = &command;
  command.add_option("--model", o->folder, "the model's folder");
  command
      .add_option("--batch", o->translate.batch,
                  "sentences at a time, for each thread; changes no result")
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
  command
      .add_option("--shift", o->translate.search.shift,
                  "with --layer or --head: a word's weights are those of the step that writes it "
                  "(0), or of the next, which reads it (1)")
      ->check(CLI::Range(0, 1));
  add_extract_flags(command, o->translate.extract);
  command.add_option("--max-length", o->translate.max_length, "longer sources are cut (pieces)")
      ->check(above_zero());
  command.add_flag("--json", o->json, "a JSON object a line: pieces, weights, scores");
  command.add_flag("--scores", o->scores, "the log-probability behind a tab");
  add_inference_flags(command, o->machine);
}

}  // namespace heed::apps
